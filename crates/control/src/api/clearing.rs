//! Acknowledging findings: which can be, how it is written down, and what it covers.
//!
//! Findings of the past are told from the event log, which lies in the group, so their
//! acknowledgement lies there too, as an event: it survives a restart, goes with the disks to
//! another host, and says who acknowledged what. It covers the events up to the newest one that
//! was judged for it and no later one, so that what happens in the same moment is told. Where its
//! ring of the log is so full that it has made room before what it acknowledges, that is told again.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::api::health::is_damage;
use crate::api::nearness::suggestion;
use crate::api::operations::OperationReport;
use crate::api::view::{EventReport, HealthFindingReport, HealthReport};

/// The kind of event by which a finding is acknowledged; an older program passes it over.
pub(crate) const FINDING_CLEARED: &str = "finding_cleared";
/// The finding that sums up all events of damage.
const DAMAGE: &str = "damage";
/// What stands between the kind of a finding and the number of the last event that is covered.
const UP_TO: &str = " up to event ";
/// Longer texts are cut: they stand in the log already.
const TEXT_CHARACTERS_MOST: usize = 400;

/// What an acknowledgement came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClearReport {
    /// The group.
    pub group: String,
    /// What is acknowledged, or would be.
    pub cleared: Vec<HealthFindingReport>,
    /// What is still told: it holds, or nobody asked for it.
    pub left: Vec<HealthFindingReport>,
}

/// What is known of the work in a group, as far as a finding may be over without an event saying so.
#[derive(Debug)]
pub(crate) struct WorkState {
    background_fails: bool,
    rebalance_stands: bool,
    restore_stands: bool,
}

impl WorkState {
    /// No process serves the group: nothing is tried, and whether copying could go on only a process
    /// can tell.
    pub(crate) const fn of_none() -> Self {
        Self {
            background_fails: false,
            rebalance_stands: true,
            restore_stands: true,
        }
    }

    /// As the process that serves it knows.
    pub(crate) fn of_served(background_fails: bool, operations: &[OperationReport]) -> Self {
        let stands = |pass| {
            let is_it = |it: &&OperationReport| it.pass == pass;
            operations
                .iter()
                .find(is_it)
                .is_some_and(|it| it.state == "errors")
        };
        Self {
            background_fails,
            rebalance_stands: stands("rebalance"),
            restore_stands: stands("restore"),
        }
    }

    /// Whether a finding of that kind is over, so that a person may acknowledge it. Everything else
    /// is a state of the group or lasts until an event ends it, and hiding it would hide what is.
    pub(crate) fn lets_clear(&self, kind: &str, is_of_disk: bool) -> bool {
        match kind {
            DAMAGE => true,
            "background_failed" => !self.background_fails,
            "rebalance_stopped" => !self.rebalance_stands,
            // Of one disk it says that it cannot be given up, which no operation shows and which is told
            // once.
            "restore_stopped" => !self.restore_stands && !is_of_disk,
            _ => false,
        }
    }
}

/// What of the findings is to be acknowledged: those of these names, or all that can be.
///
/// # Errors
/// Where none is asked for, one is not there, or one still holds; then nothing is acknowledged.
pub(crate) fn chosen(health: &HealthReport, names: &str, all: bool) -> ControlResult<ClearReport> {
    let names = names.split(',').map(str::trim);
    let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
    if names.is_empty() != all {
        return Err(ControlError::invalid(format!(
            "name the findings of {} to acknowledge, or ask for all: {}",
            health.group,
            listed(health)
        )));
    }
    for name in &names {
        let mut meant = (health.findings.iter()).filter(|finding| is_meant(finding, name));
        let Some(first) = meant.next() else {
            let known: Vec<String> = health
                .findings
                .iter()
                .map(HealthFindingReport::name)
                .collect();
            let hint = suggestion(name, "finding", known.iter().map(String::as_str));
            return Err(ControlError::not_found(format!(
                "{} has no finding {name:?}; {hint}",
                health.group
            )));
        };
        if let Some(holds) = std::iter::once(first)
            .chain(meant)
            .find(|it| !it.can_be_cleared)
        {
            return Err(ControlError::new(
                ControlErrorKind::Busy,
                format!(
                    "{} of {} cannot be cleared, because it still holds: {}; to end it, {}",
                    holds.name(),
                    health.group,
                    holds.text,
                    holds.advice
                ),
            ));
        }
    }
    let is_cleared = |finding: &HealthFindingReport| {
        finding.can_be_cleared && (all || names.iter().any(|name| is_meant(finding, name)))
    };
    let (cleared, left) = health.findings.iter().cloned().partition(is_cleared);
    Ok(ClearReport {
        group: health.group.clone(),
        cleared,
        left,
    })
}

/// A kind means it whatever its disk.
fn is_meant(finding: &HealthFindingReport, name: &str) -> bool {
    finding.kind == name || finding.name().eq_ignore_ascii_case(name)
}

fn listed(health: &HealthReport) -> String {
    let told = |finding: &HealthFindingReport| match finding.can_be_cleared {
        true => finding.name(),
        false => format!("{} (still holds)", finding.name()),
    };
    let told: Vec<String> = health.findings.iter().map(told).collect();
    match told.is_empty() {
        true => "there is none".to_owned(),
        false => format!("there is {}", told.join(", ")),
    }
}

/// The text of the event that acknowledges the finding up to the event of that number.
pub(crate) fn text_of(finding: &HealthFindingReport, up_to: u64, by: &str) -> String {
    let text = format!(
        "{}{UP_TO}{up_to}: acknowledged by {by}: {}",
        finding.kind, finding.text
    );
    text.chars().take(TEXT_CHARACTERS_MOST).collect()
}

/// What an event acknowledges: the kind of finding, and the number of the last event that it covers.
fn acknowledged(event: &EventReport) -> Option<(&str, u64)> {
    if event.kind != FINDING_CLEARED {
        return None;
    }
    let (head, _) = event.text.split_once(": ")?;
    let (kind, number) = head.rsplit_once(UP_TO)?;
    Some((kind, number.parse().ok()?))
}

/// The events without those that were acknowledged. What no log has yet has no number, and is told.
pub(crate) fn not_cleared(events: &[EventReport]) -> Vec<&EventReport> {
    let cleared: Vec<(&str, u64, Option<u16>)> = (events.iter())
        .filter_map(|event| acknowledged(event).map(|(kind, up_to)| (kind, up_to, event.disk)))
        .collect();
    let is_cleared = |event: &EventReport| {
        (cleared.iter()).any(|(kind, up_to, disk)| {
            let is_it = match *kind {
                DAMAGE => is_damage(event),
                kind => event.kind == kind && event.disk == *disk,
            };
            is_it && (1..=*up_to).contains(&event.number)
        })
    };
    events.iter().filter(|event| !is_cleared(event)).collect()
}

#[cfg(test)]
mod tests;
