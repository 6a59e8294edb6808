//! Findings that a person acknowledges, in the process that serves the group or here where none does.

use spindle_base::GroupName;

use crate::api::calls::ClearFindings;
use crate::api::clearing::{ClearReport, chosen};
use crate::api::error::ControlResult;
use crate::command::health::check_health;
use crate::command::reach::reach;
use crate::machine::settings::Settings;
use crate::machine::user::{own_user, user_name};

/// Acknowledges findings of a group, or every finding that can be where `findings` is empty; with
/// `dry_run` it only says which.
///
/// # Errors
/// Where a finding is not there or still holds, or the group cannot be opened.
pub fn clear_findings(
    settings: &Settings,
    group: &GroupName,
    findings: &[String],
    dry_run: bool,
) -> ControlResult<ClearReport> {
    let call = ClearFindings {
        finding: findings.join(","),
        all: findings.is_empty(),
    };
    // Nothing to write where everything still holds: a group that is closed is not opened for it.
    let health = check_health(settings, Some(group))?;
    let seen = health
        .first()
        .map(|report| chosen(report, &call.finding, call.all));
    match seen.transpose()? {
        Some(report) if dry_run || report.cleared.is_empty() => Ok(report),
        _ => reach(settings, group, &call, |opened| {
            opened.clear_findings(&call, &user_name(own_user()))
        }),
    }
}
