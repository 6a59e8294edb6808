//! What a person wants to know of a group at a glance.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::forecast::ForecastReport;
use crate::api::operations::OperationReport;
use crate::api::scrub::ScrubReport;
use crate::api::scrub_log::LastScrubReport;
use crate::api::view::{EventReport, GroupReport, HealthReport};

/// A process that uses a mount.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct UserReport {
    /// The process.
    pub process_id: u32,
    /// Its name.
    pub name: String,
    /// Why it is one of them: a file that it has open, or that it stands in the directory.
    pub how: String,
    /// The mount point.
    pub directory: String,
}

/// A group on one page.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct StatusReport {
    /// Its state, its space and its disks.
    pub group: GroupReport,
    /// How well it is.
    pub health: HealthReport,
    /// When it will be full; `null` where no process serves it.
    #[serde(default)]
    pub forecast: Option<ForecastReport>,
    /// Background work that runs or waits; none where nobody serves the group.
    pub operations: Vec<OperationReport>,
    /// The scrub that runs, or the last one since the group was opened; `null` where there was none.
    pub scrub: Option<ScrubReport>,
    /// The last scrub of the whole group that came to its end, whichever process ran it; `null` where
    /// the event log has none.
    #[serde(default)]
    pub last_scrub: Option<LastScrubReport>,
    /// Who uses its mounts, as far as the caller may see.
    pub users: Vec<UserReport>,
    /// Its newest events, the newest last.
    pub events: Vec<EventReport>,
}
