//! What the commands that make durable, unmount and close came to.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What `spindle sync` came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SyncedReport {
    /// The group.
    pub group: String,
    /// Whether it was open; one that is not has nothing left to be written.
    pub open: bool,
}

/// What `spindle umount` or `spindle group dismount` came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClosedReport {
    /// The group.
    pub group: String,
    /// The directories that were unmounted.
    pub directories: Vec<String>,
    /// Whether the group is closed now: one that is mounted elsewhere too, or was opened by `spindle
    /// group mount`, stays open; one whose processes were killed was left as it was.
    pub closed: bool,
}
