//! Which events are asked for, and which kinds there are.

use serde::{Deserialize, Serialize};
use spindle_group::{EventKind, KeptEvent, Severity};

use crate::api::clearing::FINDING_CLEARED;
use crate::api::error::{ControlError, ControlResult};
use crate::api::nearness::suggestion;
use crate::api::view::EventReport;

/// Which events are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventFilter {
    /// Only events with a larger number.
    pub after: u64,
    /// Only events since then, milliseconds since 1970.
    pub since_ms: u64,
    /// Only events that matter at least so much.
    pub least: Severity,
    /// Only events of these kinds; empty for every kind.
    pub kinds: Vec<String>,
}

/// Names of kinds of events; none for every kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Kinds(pub(crate) Vec<String>);

impl Default for EventFilter {
    fn default() -> Self {
        Self {
            after: 0,
            since_ms: 0,
            least: Severity::Info,
            kinds: Vec::new(),
        }
    }
}

impl EventFilter {
    pub(crate) fn admits(&self, event: &KeptEvent) -> bool {
        let record = &event.record;
        event.number > self.after && self.admits_what(record.time_ms, record.severity, &record.kind)
    }

    /// As [`EventFilter::admits`], of an event that no log has yet and that has no number.
    pub(crate) fn admits_unkept(&self, event: &EventReport) -> bool {
        Severity::from_name(&event.severity)
            .is_some_and(|severity| self.admits_what(event.time_ms, severity, &event.kind))
    }

    fn admits_what(&self, time_ms: u64, severity: Severity, kind: &String) -> bool {
        time_ms >= self.since_ms
            && severity >= self.least
            && (self.kinds.is_empty() || self.kinds.contains(kind))
    }
}

/// A kind of event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventKindReport {
    /// Its name.
    pub kind: String,
    /// How much it usually matters: `info`, `warning` or `critical`.
    pub severity: String,
    /// What happened.
    pub meaning: String,
}

impl EventKindReport {
    /// Every kind that this program tells.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let of_groups = EventKind::ALL.iter().map(|kind| Self {
            kind: kind.name().to_owned(),
            severity: kind.usual_severity().name().to_owned(),
            meaning: kind.meaning().to_owned(),
        });
        let cleared = Self {
            kind: FINDING_CLEARED.to_owned(),
            severity: Severity::Info.name().to_owned(),
            meaning: "Somebody acknowledged a finding: which, who, and what it said.".to_owned(),
        };
        of_groups.chain([cleared]).collect()
    }
}

/// The severity that the word means.
///
/// # Errors
/// Where it means none.
pub fn parse_severity(name: &str) -> ControlResult<Severity> {
    Severity::from_name(name).ok_or_else(|| {
        ControlError::invalid(format!(
            "{name:?} is no severity: choose info, warning or critical"
        ))
    })
}

/// Kinds of events between commas.
///
/// # Errors
/// Where one of them is none.
pub fn parse_kinds(text: &str) -> ControlResult<Vec<String>> {
    let of_groups = || EventKind::ALL.iter().map(|kind| kind.name());
    let known = || of_groups().chain([FINDING_CLEARED]);
    let mut kinds = Vec::new();
    for name in text
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
    {
        if !known().any(|kind| kind == name) {
            let hint = suggestion(name, "kind", known());
            return Err(ControlError::invalid(format!(
                "{name:?} is no kind of event; {hint}; `spindle events --list-kinds` shows all"
            )));
        }
        kinds.push(name.to_owned());
    }
    Ok(kinds)
}

#[cfg(test)]
mod tests {
    use super::{parse_kinds, parse_severity};

    #[test]
    fn a_word_that_is_no_kind_or_severity_is_told_with_what_was_meant() {
        let error = parse_kinds("disk_ofline").unwrap_err();
        assert!(error.message().contains("disk_offline"), "{error}");
        let error = parse_severity("bad").unwrap_err();
        assert!(error.message().contains("critical"), "{error}");
    }
}
