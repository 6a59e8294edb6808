//! Whether groups are well: asked of those that serve them, and judged here for the others.

use std::sync::mpsc;
use std::time::Duration;

use spindle_base::GroupName;

use crate::api::calls::ShowHealth;
use crate::api::client::Client;
use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::api::event_filter::EventFilter;
use crate::api::health::{judge, report, silent_finding};
use crate::api::view::{GroupReport, GroupState, HealthFindingReport, HealthReport, HealthStatus};
use crate::command::event::Events;
use crate::command::group::{list_groups, show_group};
use crate::machine::settings::Settings;
use crate::serving::served;

/// How long a process may take to answer before that is a finding.
const ANSWER_MOST: Duration = Duration::from_secs(10);

/// Judges one group, or every group that is open or on the search path.
///
/// # Errors
/// Where there is no such group, or none at all.
pub fn check_health(
    settings: &Settings,
    name: Option<&GroupName>,
) -> ControlResult<Vec<HealthReport>> {
    let (sender, receiver) = mpsc::channel();
    let (asked, wanted) = (settings.clone(), name.cloned());
    // A thread of its own: a process that hangs must not make its monitor hang.
    std::thread::spawn(move || sender.send(judge_all(&asked, wanted.as_ref())));
    let Ok(answer) = receiver.recv_timeout(ANSWER_MOST) else {
        let finding = HealthFindingReport {
            severity: HealthStatus::Critical,
            kind: "no_answer".to_owned(),
            disk_name: None,
            text: format!(
                "no answer within {} s from the process that serves the group or from its disks",
                ANSWER_MOST.as_secs()
            ),
            advice: "look at the log of the process and at the disks below".to_owned(),
            can_be_cleared: false,
        };
        let group = name.map_or_else(|| "all groups".to_owned(), ToString::to_string);
        return Ok(vec![report(&group, vec![finding])]);
    };
    answer
}

fn judge_all(settings: &Settings, name: Option<&GroupName>) -> ControlResult<Vec<HealthReport>> {
    let groups = match name {
        Some(name) => {
            // Who serves it knows more than its listing says.
            match served::find(settings, name.as_str()) {
                Ok(Some(client)) => return Ok(vec![of_served(&client)?]),
                Ok(None) => vec![show_group(settings, name.as_str())?],
                Err(error) => vec![held_group(settings, name).ok_or(error)?],
            }
        }
        None => list_groups(settings)?,
    };
    if groups.is_empty() {
        return Err(ControlError::not_found(format!(
            "no group is open, and none was found on the search path: {}",
            settings.search_path()
        )));
    }
    let now_ms = u64::try_from(crate::machine::clock::now().seconds).unwrap_or(0) * 1000;
    let mut reports = Vec::new();
    for group in groups {
        let found = match group.state {
            GroupState::Mounted => served::find(settings, &group.name)?,
            // Its next process may be starting; else it is held.
            GroupState::Held => served::find(settings, &group.name).unwrap_or_default(),
            GroupState::Dismounted | GroupState::Broken | GroupState::Silent => None,
        };
        if let Some(client) = found {
            reports.push(of_served(&client)?);
            continue;
        }
        let events = match GroupName::new(&group.name) {
            Ok(name) if !group.state.is_dark() => {
                Events::new(settings, Some(name), EventFilter::default())
                    .all()
                    .unwrap_or_default()
            }
            _ => Vec::new(),
        };
        reports.push(judge(&group, &events, now_ms));
    }
    Ok(reports)
}

/// The listing of a group whose mount a keeper holds: that is no failure of the command.
fn held_group(settings: &Settings, name: &GroupName) -> Option<GroupReport> {
    let is_held = |group: &GroupReport| {
        group.state == GroupState::Held && group.name.eq_ignore_ascii_case(name.as_str())
    };
    list_groups(settings).ok()?.into_iter().find(is_held)
}

/// A process that does not answer is a finding; any other failure is one of the command.
fn of_served(client: &Client) -> ControlResult<HealthReport> {
    match client.ask_soon(&ShowHealth {}) {
        Err(error) if error.kind == ControlErrorKind::Silent => {
            let findings = vec![silent_finding(error.message())];
            Ok(report(client.group_name(), findings))
        }
        answer => answer,
    }
}
