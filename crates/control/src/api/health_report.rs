//! How well a group is, as it is shown.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How well something is; the numbers are the exit codes of `spindle health`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum HealthStatus {
    /// All is well: 0.
    Ok,
    /// Something needs to be looked at: 1.
    Warning,
    /// It could not be found out: 3.
    Unknown,
    /// Redundancy or data is lost, or nearly: 2.
    Critical,
}

impl HealthStatus {
    /// What monitoring expects as the exit code of a check.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Warning => 1,
            Self::Critical => 2,
            Self::Unknown => 3,
        }
    }
}

impl std::fmt::Display for HealthStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Unknown => "unknown",
            Self::Critical => "critical",
        })
    }
}

/// Something that is not well, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HealthFindingReport {
    /// How bad it is.
    pub severity: HealthStatus,
    /// What sort of finding: `disk_offline`, `space_low`, ...; more are added.
    pub kind: String,
    /// The disk it is about; `null` where it is about none.
    pub disk_name: Option<String>,
    /// What is found, for a person.
    pub text: String,
    /// What to do.
    pub advice: String,
    /// Whether `spindle clear` can acknowledge it: what is over and will not come back by itself.
    /// What still holds ends when it is mended.
    #[serde(default)]
    pub can_be_cleared: bool,
}

impl HealthFindingReport {
    /// What `spindle clear` calls it: its kind, with the disk that it is about behind a colon.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.disk_name {
            Some(disk) => format!("{}:{disk}", self.kind),
            None => self.kind.clone(),
        }
    }
}

/// How well a group is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HealthReport {
    /// The group.
    pub group: String,
    /// The worst of its findings; `ok` where there is none.
    pub status: HealthStatus,
    /// What is not well, the worst first.
    pub findings: Vec<HealthFindingReport>,
}
