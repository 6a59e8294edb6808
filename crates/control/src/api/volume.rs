//! Volumes: files of a group that are used as block devices, and where they are exported.

use serde::{Deserialize, Serialize};
use spindle_base::{Redundancy, Striping};
use utoipa::ToSchema;

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeReport {
    /// Its path in the group.
    pub path: String,
    /// The number of its file.
    pub id: u64,
    /// Its size.
    pub size_bytes: u64,
    /// The space it takes in each copy.
    pub allocated_bytes: u64,
    /// Copies of each extent; `null` where the file is gone meanwhile.
    #[schema(value_type = Option<String>)]
    pub redundancy: Option<Redundancy>,
    /// How its extents lie.
    #[schema(value_type = Option<String>)]
    pub striping: Option<Striping>,
}

/// A volume that is exported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExportReport {
    /// The volume's path in the group.
    pub path: String,
    /// The number of its file.
    pub id: u64,
    /// The name by which clients ask for it; the empty one is the same.
    pub name: String,
    /// The Unix socket at which clients connect.
    pub socket: String,
    /// Whether clients can only read.
    pub read_only: bool,
    /// Clients that are connected.
    pub connections_count: usize,
}
