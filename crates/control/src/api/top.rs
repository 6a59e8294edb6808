//! Everything about an open group that is shown at a time.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::operations::OperationsReport;
use crate::api::view::{EventReport, GroupReport, HealthReport, IostatReport};

/// A group at one moment, and what happened in it since the moment before.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TopReport {
    /// Its state, its space and its disks.
    pub group: GroupReport,
    /// How well it is.
    pub health: HealthReport,
    /// Background work that runs or waits.
    pub operations: OperationsReport,
    /// What its disks and files did.
    pub activity: IostatReport,
    /// Its newest events, the newest last.
    pub events: Vec<EventReport>,
}
