//! What a change would cost, as it is asked for and told.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::disk_request::{DiskChangesRequest, DiskNames};
use crate::api::error::ControlResult;

/// What to tell the costs of: one of these, or a rebalance of what is there where none is given.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EstimateRequest {
    /// Changes of the disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disks: Option<DiskChangesRequest>,
    /// Names of disks that go offline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offline: Option<Vec<String>>,
    /// Names of disks that come back; all that are away where the list is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub online: Option<Vec<String>>,
}

impl EstimateRequest {
    /// Refuses what names more disks than a group can have.
    ///
    /// # Errors
    /// Where that is so.
    pub(crate) fn check_size(&self) -> ControlResult<()> {
        for names in [&self.offline, &self.online].into_iter().flatten() {
            DiskNames::of(names)?;
        }
        self.disks
            .as_ref()
            .map_or(Ok(()), DiskChangesRequest::check_size)
    }
}

/// Bytes that go from one disk to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FlowReport {
    /// The name of the disk that is read.
    pub from: String,
    /// The name of the disk that is written.
    pub to: String,
    /// How much.
    pub bytes: u64,
}

/// How long it takes at a power.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PaceReport {
    /// The power.
    pub power: u16,
    /// Seconds, while databases use the disks.
    pub seconds: u64,
    /// Whether it is the group's own power.
    pub is_default: bool,
}

/// A disk when all is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiskAfterReport {
    /// Its number in the group.
    pub number: u16,
    /// Its name.
    pub name: String,
    /// Disks that one fault can take away together.
    pub failure_group: String,
    /// What the group uses of it.
    pub total_bytes: u64,
    /// What no extent uses then; the catalog is counted where it is now.
    pub free_bytes: u64,
    /// What is free now; `null` for a disk that joins.
    pub free_before_bytes: Option<u64>,
    /// Whether new extents go there then.
    pub receives: bool,
    /// Bytes a second that the times count on.
    pub rate_bytes_per_s: u64,
    /// Whether the rate was measured, by the disk's own large reads; else it is an assumption.
    pub rate_is_measured: bool,
}

/// What a change would cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EstimateReport {
    /// The group.
    pub group: String,
    /// Copies that lie on another disk afterwards.
    pub moved_bytes: u64,
    /// Copies that are made from others, because they are missing or given up.
    pub restored_bytes: u64,
    /// What disks that come back have missed.
    pub resynced_bytes: u64,
    /// Copies for which there would be no place: the change would not come to its end.
    pub stuck_bytes: u64,
    /// All of it from disk to disk.
    pub flows: Vec<FlowReport>,
    /// How long it takes at some powers.
    pub times: Vec<PaceReport>,
    /// The disks when all is done, without those that have left.
    pub disks: Vec<DiskAfterReport>,
    /// What no extent uses then.
    pub free_bytes: u64,
    /// What is free now.
    pub free_before_bytes: u64,
    /// What must stay free then, so that redundancy can be restored after a failure.
    pub required_mirror_free_bytes: u64,
    /// What can be written then; negative where a failure could not be repaired any more.
    pub usable_bytes: i64,
    /// The same now.
    pub usable_before_bytes: i64,
}
