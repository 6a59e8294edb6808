//! The command that is run at events, as `spindle.toml` names it.

use std::path::PathBuf;
use std::time::Duration;

use spindle_group::Severity;

use crate::api::view::EventReport;

/// What is run, and at which events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookSettings {
    /// The command: an absolute path.
    pub command: PathBuf,
    /// Only events that matter at least so much.
    pub least: Severity,
    /// Only these kinds; empty for every kind.
    pub kinds: Vec<String>,
    /// How long it may take.
    pub timeout: Duration,
}

impl HookSettings {
    pub(crate) fn admits(&self, event: &EventReport) -> bool {
        let severity = Severity::from_name(&event.severity).unwrap_or(Severity::Critical);
        // The failure of the command must not run the command.
        event.kind != "hook_failed"
            && severity >= self.least
            && (self.kinds.is_empty() || self.kinds.contains(&event.kind))
    }
}
