//! The settings of a group, as they are shown.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The settings of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupSettings {
    /// The group.
    pub group: String,
    /// Seconds from one scrub of the whole group to the next; `null` where there is no schedule.
    pub scrub_interval_s: Option<u64>,
    /// Seconds that a disk may be away before it is given up.
    pub disk_repair_time_s: u64,
    /// Seconds that a whole failure group may be away before its disks are given up.
    pub failgroup_repair_time_s: u64,
    /// Seconds that the process which serves the group may show no sign of life before its keeper
    /// kills it.
    #[serde(default = "watchdog_of_earlier_versions")]
    pub watchdog_s: u64,
}

/// One that cannot be asked for its setting has none.
const fn watchdog_of_earlier_versions() -> u64 {
    60
}
