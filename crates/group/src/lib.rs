//! The heart: allocation, extent maps, mirroring and recovery. See docs/architecture.md.
//! STUB of the contract: the owner of this crate splits it into rooms.

mod membership;
mod region;

pub use membership::{
    DiskLook, GroupFound, LabelFound, MemberView, Membership, SlotFound, groups, look,
};
pub use region::{RegionSpace, ReplicatedRegion};

use std::sync::Arc;

use spindle_base::{
    AuSize, DiskName, DiskNumber, ErrorClass, FailureGroupName, FileId, GroupName, Redundancy,
    Striping, Uuid,
};
use spindle_catalog::Edit;
use spindle_device::{DiskSlot, Disks};

/// How a new file's bytes are laid out; a template chose it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Layout {
    /// Copies of each extent.
    pub redundancy: Redundancy,
    /// How bytes go over extents.
    pub striping: Striping,
}

/// A disk of a group to be made.
#[derive(Debug, Clone)]
pub struct NewDisk {
    /// Where it is open.
    pub slot: DiskSlot,
    /// Its name in the group.
    pub name: DiskName,
    /// Its failure group.
    pub failure_group: FailureGroupName,
    /// Random identity.
    pub uuid: Uuid,
}

/// A group to be made.
#[derive(Debug, Clone)]
pub struct NewGroup {
    /// Its name.
    pub name: GroupName,
    /// Random identity.
    pub uuid: Uuid,
    /// The redundancy of files whose template says nothing else.
    pub redundancy: Redundancy,
    /// Fixed for the group's life.
    pub au_size: AuSize,
    /// Its disks, numbered in this order.
    pub disks: Vec<NewDisk>,
    /// `postgresql`, `mariadb`, `sqlite` or `plain`; stored as an attribute for the layer above.
    pub profile: String,
    /// Seconds since 1970, for the records.
    pub created_s: u64,
}

/// Who opens the group, written to its disks so that another host can tell.
#[derive(Debug, Clone)]
pub struct Opener {
    /// The host's name.
    pub host: String,
    /// The kernel's boot id.
    pub boot: Uuid,
    /// The process id.
    pub process_id: u32,
    /// Seconds since 1970.
    pub now_s: u64,
    /// Take the group although another seems to have it, or a majority cannot be seen.
    pub force: bool,
    /// Preferred failure group for reads.
    pub preferred_failure_group: Option<FailureGroupName>,
}

/// A small kind, the context in the text, and whose fault it is.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct GroupError {
    /// What went wrong, for code.
    pub kind: GroupErrorKind,
    /// What happened, to what, and what to do, for a person.
    pub message: String,
}

/// What went wrong in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupErrorKind {
    /// No room with the redundancy that the file wants.
    NoSpace,
    /// No online copy of some extent could be read or written; sticky where it was a write.
    Io,
    /// Bytes from disk are not what they must be, on every copy.
    Corrupt,
    /// No such file.
    NotFound,
    /// Too few disks, failure groups or too small ones.
    NotEnough,
    /// Open here or elsewhere.
    Busy,
    /// The newest group state has no majority among the disks seen.
    NoMajority,
    /// Any other mistake of the caller.
    Invalid,
}

impl GroupErrorKind {
    /// Whose fault this kind is.
    #[must_use]
    pub const fn class(self) -> ErrorClass {
        match self {
            Self::Io => ErrorClass::Environment,
            Self::Corrupt => ErrorClass::BadBytes,
            Self::NoSpace
            | Self::NotFound
            | Self::NotEnough
            | Self::Busy
            | Self::NoMajority
            | Self::Invalid => ErrorClass::Caller,
        }
    }
}

/// One extent of a file as `spindle map` shows it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ExtentView {
    /// Index in the file's map.
    pub index: u32,
    /// Where in the file, in bytes (for fine striping: where its column begins).
    pub offset_bytes: u64,
    /// Its length in bytes.
    pub length_bytes: u64,
    /// Bytes from its start that hold data; the rest reads as zeros.
    pub initialised_bytes: u64,
    /// Disk and byte offset of each copy; `None` for a copy that is missing.
    pub copies: Vec<Option<(DiskNumber, u64)>>,
}

/// A disk as listings show it.
#[derive(Debug, Clone, serde::Serialize)]
pub struct DiskView {
    pub number: DiskNumber,
    pub name: DiskName,
    pub failure_group: FailureGroupName,
    pub path: Option<String>,
    pub total_bytes: u64,
    pub free_bytes: u64,
    /// `online` or `offline`.
    pub mode: String,
    /// `normal`, later `adding`, `dropping`, ...
    pub state: String,
    pub voter: bool,
    pub catalog_replica: bool,
    pub reads_count: u64,
    pub writes_count: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub read_errors_count: u64,
    pub write_errors_count: u64,
}

/// A group as listings show it, with ASM's sums.
#[derive(Debug, Clone, serde::Serialize)]
pub struct GroupView {
    pub name: GroupName,
    pub uuid: Uuid,
    pub redundancy: Redundancy,
    pub profile: String,
    pub block_size_bytes: u64,
    pub sector_size_bytes: u64,
    pub au_size: AuSize,
    pub total_bytes: u64,
    pub free_bytes: u64,
    pub required_mirror_free_bytes: u64,
    /// May be negative: then a failure could not be repaired from the free space.
    pub usable_bytes: i64,
    pub offline_disks_count: u32,
    pub epoch: u64,
    pub extents_count: u64,
    pub disks: Vec<DiskView>,
}

/// A file's map and its locks, shared by everybody who has it open. Opaque.
#[derive(Debug)]
pub struct File {}

/// While it lives, no commit can take a half of what its holder changes.
#[derive(Debug)]
pub struct Change<'a> {
    _group: &'a Group,
}

/// An open disk group.
#[derive(Debug)]
pub struct Group {}

impl Group {
    /// Writes labels, group state and an empty catalog. Refuses too few failure groups, too small disks.
    pub fn create(_disks: Arc<dyn Disks>, _new: &NewGroup) -> Result<(), GroupError> {
        unimplemented!("stub")
    }
    /// Reads labels and state from the given slots, elects the newest state, opens the catalog,
    /// loads the maps, makes dirty regions equal. Slots of other groups or no label are ignored.
    pub fn open(
        _disks: Arc<dyn Disks>,
        _slots: &[DiskSlot],
        _name: &GroupName,
        _opener: &Opener,
    ) -> Result<Self, GroupError> {
        unimplemented!("stub")
    }
    /// Commits, cleans, and marks the group closed. Later calls fail.
    pub fn close(&self) -> Result<(), GroupError> {
        unimplemented!("stub")
    }
    /// Sums and disks.
    pub fn view(&self) -> GroupView {
        unimplemented!("stub")
    }

    // ---- files (layout and bytes; names, sizes and attributes belong to `fs`) ----
    /// A new, empty file; its record joins the current batch.
    pub fn create_file(
        &self,
        _change: &Change<'_>,
        _id: FileId,
        _layout: Layout,
    ) -> Result<Arc<File>, GroupError> {
        unimplemented!("stub")
    }
    /// The file, if there is one with that id.
    pub fn file(&self, _id: FileId) -> Option<Arc<File>> {
        unimplemented!("stub")
    }
    /// Frees everything and removes the record; space returns after the commit. Waits for I/O on it.
    pub fn remove_file(&self, _change: &Change<'_>, _file: &Arc<File>) -> Result<(), GroupError> {
        unimplemented!("stub")
    }
    /// Fills `out` from `offset_bytes`; holes and what was never written read as zeros. Knows no
    /// end of file. Any alignment; whole aligned blocks go without a copy.
    pub fn read(
        &self,
        _file: &File,
        _offset_bytes: u64,
        _out: &mut [u8],
    ) -> Result<(), GroupError> {
        unimplemented!("stub")
    }
    /// Writes to every online copy; allocates what is missing; blocks in part are read first.
    /// At return every online copy has it (not yet durable).
    pub fn write(&self, _file: &File, _offset_bytes: u64, _data: &[u8]) -> Result<(), GroupError> {
        unimplemented!("stub")
    }
    /// Reserves space for the range; it reads as before (holes as zeros). All or nothing.
    pub fn allocate(
        &self,
        _file: &File,
        _offset_bytes: u64,
        _length_bytes: u64,
    ) -> Result<(), GroupError> {
        unimplemented!("stub")
    }
    /// Makes the range read as zeros; whole extents become holes, the rest is zeroed in place.
    pub fn punch(
        &self,
        _file: &File,
        _offset_bytes: u64,
        _length_bytes: u64,
    ) -> Result<(), GroupError> {
        unimplemented!("stub")
    }
    /// Everything from `offset_bytes` on reads as zeros and is freed where whole extents lie in it.
    pub fn truncate(&self, _file: &File, _offset_bytes: u64) -> Result<(), GroupError> {
        unimplemented!("stub")
    }
    /// The next offset >= `offset_bytes` with data (`hole` false) or in a hole (`hole` true),
    /// looking no further than `end_bytes`; `None` where there is none before it.
    pub fn seek(
        &self,
        _file: &File,
        _offset_bytes: u64,
        _end_bytes: u64,
        _hole: bool,
    ) -> Option<u64> {
        unimplemented!("stub")
    }
    /// Bytes allocated, one copy counted (what st_blocks shows).
    pub fn allocated_bytes(&self, _file: &File) -> u64 {
        unimplemented!("stub")
    }
    /// The layout the file was made with.
    pub fn layout(&self, _file: &File) -> Layout {
        unimplemented!("stub")
    }
    /// Every extent, for `spindle map`.
    pub fn map(&self, _file: &File) -> Vec<ExtentView> {
        unimplemented!("stub")
    }

    // ---- metadata ----
    /// Opens a change: the parts applied while it lives reach one commit together. Short, memory
    /// only: never hold it over data I/O. (remove_file, truncate and punch take theirs inside.)
    pub fn change(&self) -> Change<'_> {
        unimplemented!("stub")
    }
    /// Adds the layer above's rows to the batch.
    pub fn apply(&self, _change: &Change<'_>, _edit: Edit) {
        unimplemented!("stub")
    }
    /// The newest value of a row of the layer above.
    pub fn get(
        &self,
        _table: spindle_catalog::Table,
        _key: &[u8],
    ) -> Result<Option<Vec<u8>>, GroupError> {
        unimplemented!("stub")
    }
    /// Rows in order, at most `most`.
    pub fn range(
        &self,
        _table: spindle_catalog::Table,
        _from: &[u8],
        _to: &[u8],
        _most: usize,
    ) -> Result<Vec<spindle_catalog::Row>, GroupError> {
        unimplemented!("stub")
    }
    /// Makes the file's data durable and, unless `data_only` and its map and the caller's rows
    /// are unchanged (`through` is the caller's last edit, `None` for none), the batch too.
    pub fn sync_file(&self, _file: &File, _metadata: bool) -> Result<(), GroupError> {
        unimplemented!("stub")
    }
    /// Makes everything durable.
    pub fn sync(&self) -> Result<(), GroupError> {
        unimplemented!("stub")
    }
    /// Bytes that one more file of `layout` could get.
    pub fn usable_bytes(&self, _layout: Layout) -> u64 {
        unimplemented!("stub")
    }

    // ---- background, driven from outside ----
    /// One small piece of lazy work (clean dirty regions, commit an aged batch); `now_ms` is any
    /// monotonic clock. True where more is to do at once.
    pub fn step(&self, _now_ms: u64) -> Result<bool, GroupError> {
        unimplemented!("stub")
    }
    /// Renews the mark that says who has the group.
    pub fn heartbeat(&self, _now_s: u64) -> Result<(), GroupError> {
        unimplemented!("stub")
    }
    /// What happened since the last call (disk offline, block repaired, ...), a line each.
    pub fn take_events(&self) -> Vec<String> {
        unimplemented!("stub")
    }
    /// Compares maps, space and records; one line for each contradiction.
    pub fn check(&self) -> Result<Vec<String>, GroupError> {
        unimplemented!("stub")
    }
}
