//! The structures that listings and the API show as JSON. Their shape is a promise
//! (`docs/json.md`): fields are added, never renamed or given another meaning.
//!
//! Names are whole words with the unit last. Identities are the usual text of a UUID. What a
//! person reads in a table is made from these and nothing else.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use serde::{Deserialize, Serialize};
use spindle_base::{Redundancy, Striping};
use spindle_group::{DiskView, GroupView};
use utoipa::ToSchema;

pub use crate::api::health_report::{HealthFindingReport, HealthReport, HealthStatus};

/// What a daemon says when it is ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadyReport {
    /// The group as it calls itself.
    pub group: String,
    /// The process that serves it.
    pub process_id: u32,
    /// Where it is mounted.
    pub mounts: Vec<MountReport>,
    /// What was noticed or repaired on the way, a line each.
    pub notices: Vec<String>,
}

/// Whether a process here serves the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum GroupState {
    /// A process of this machine has it open.
    Mounted,
    /// Nobody has it open; it could be.
    Dismounted,
    /// It cannot be opened; `note` says why.
    Broken,
    /// A process of this machine has it open and does not answer; `note` says more.
    Silent,
    /// Its processes died, and a keeper holds its mount and what waits to be written; `note` says
    /// which, and what to do.
    Held,
}

impl GroupState {
    /// Whether no more is known of the group than its labels say.
    #[must_use]
    pub const fn is_dark(self) -> bool {
        matches!(self, Self::Broken | Self::Silent | Self::Held)
    }
}

impl std::fmt::Display for GroupState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Mounted => "mounted",
            Self::Dismounted => "dismounted",
            Self::Broken => "broken",
            Self::Silent => "silent",
            Self::Held => "held",
        })
    }
}

/// A disk of a group.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DiskReport {
    /// Its number in the group.
    pub number: u16,
    /// Its name.
    pub name: String,
    /// Disks that one fault can take away together.
    pub failure_group: String,
    /// Where it was found; `null` where it was not.
    pub path: Option<String>,
    /// What became of the path since, where it does not lead to this disk any more; `null` where
    /// it does, and in every answer but that on the group's health.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_lost: Option<String>,
    /// Its size.
    pub total_bytes: u64,
    /// What no extent uses.
    pub free_bytes: u64,
    /// `online` or `offline`.
    pub mode: String,
    /// `normal`, later `adding`, `dropping`, ...
    pub state: String,
    /// Whether its reads take far longer than those of its peers: other copies are read first.
    #[serde(default)]
    pub slow: bool,
    /// Seconds until it is given up and what it holds is restored elsewhere; `null` where it is
    /// not offline.
    #[serde(default)]
    pub repair_time_left_s: Option<u64>,
    /// Whether the majority of group states counts it.
    pub voter: bool,
    /// Whether it holds a copy of the catalog.
    pub catalog_replica: bool,
    /// Reads since the group was opened.
    pub reads_count: u64,
    /// Writes since the group was opened.
    pub writes_count: u64,
    /// Bytes read since the group was opened.
    pub read_bytes: u64,
    /// Bytes written since the group was opened.
    pub written_bytes: u64,
    /// Reads that failed or gave damaged bytes.
    pub read_errors_count: u64,
    /// Writes that failed.
    pub write_errors_count: u64,
}

impl From<DiskView> for DiskReport {
    fn from(view: DiskView) -> Self {
        Self {
            number: view.number.0,
            name: view.name.to_string(),
            failure_group: view.failure_group.to_string(),
            path: view.path,
            path_lost: None,
            total_bytes: view.total_bytes,
            free_bytes: view.free_bytes,
            mode: view.mode,
            state: view.state,
            slow: view.slow,
            repair_time_left_s: view.repair_time_left_s,
            voter: view.voter,
            catalog_replica: view.catalog_replica,
            reads_count: view.reads_count,
            writes_count: view.writes_count,
            read_bytes: view.read_bytes,
            written_bytes: view.written_bytes,
            read_errors_count: view.read_errors_count,
            write_errors_count: view.write_errors_count,
        }
    }
}

/// What a change of a group's disks came to.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DiskChangesReport {
    /// The group.
    pub group: String,
    /// The disks that the change was about, as they are now.
    pub disks: Vec<DiskReport>,
    /// Numbers of disks that held nothing and have left already.
    pub forgotten: Vec<u16>,
    /// What a person should know.
    pub note: Option<String>,
}

/// A place where the files of a group are mounted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MountReport {
    /// The mount point.
    pub directory: String,
    /// Whether it bypasses the page cache.
    pub direct: bool,
}

/// A group.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct GroupReport {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uuid: String,
    /// Whether a process here serves it.
    pub state: GroupState,
    /// Redundancy of files whose template says nothing else: ASM's type.
    #[schema(value_type = String)]
    pub redundancy: Redundancy,
    /// The set of templates it was made with.
    pub profile: String,
    /// Sector size of its disks.
    pub sector_size_bytes: u64,
    /// The smallest run that a file can own.
    pub block_size_bytes: u64,
    /// The allocation unit.
    pub au_size_bytes: u64,
    /// All disks together.
    pub total_bytes: u64,
    /// What no extent uses, all copies counted.
    pub free_bytes: u64,
    /// What must stay free to restore the redundancy after the largest failure.
    pub required_mirror_free_bytes: u64,
    /// What files can still take with the group's redundancy; negative where a failure could
    /// not be repaired from the free space.
    pub usable_bytes: i64,
    /// Disks that are not online.
    pub offline_disks_count: u32,
    /// The newest epoch of the group state.
    pub epoch: u64,
    /// Extents of all files.
    pub extents_count: u64,
    /// What disks that came back have not been given yet; they are read around until then.
    #[serde(default)]
    pub resync_left_bytes: u64,
    /// Disks that should hold the catalog.
    #[serde(default)]
    pub catalog_replicas_wanted: u32,
    /// Why the group had to stop and takes no writes; `null` where it did not.
    #[serde(default)]
    pub fenced: Option<String>,
    /// The process that serves it.
    pub process_id: Option<u32>,
    /// The process that holds its mount beyond that one's death.
    pub keeper_process_id: Option<u32>,
    /// Where it is mounted.
    pub mounts: Vec<MountReport>,
    /// Why it is broken, or what a person should know.
    pub note: Option<String>,
    /// Its disks.
    pub disks: Vec<DiskReport>,
}

impl GroupReport {
    /// The report of an open group.
    #[must_use]
    pub fn new(view: GroupView, state: GroupState) -> Self {
        Self {
            name: view.name.to_string(),
            uuid: view.uuid.to_string(),
            state,
            redundancy: view.redundancy,
            profile: view.profile,
            sector_size_bytes: view.sector_size_bytes,
            block_size_bytes: view.block_size_bytes,
            au_size_bytes: view.au_size.bytes(),
            total_bytes: view.total_bytes,
            free_bytes: view.free_bytes,
            required_mirror_free_bytes: view.required_mirror_free_bytes,
            usable_bytes: view.usable_bytes,
            offline_disks_count: view.offline_disks_count,
            epoch: view.epoch,
            extents_count: view.extents_count,
            resync_left_bytes: view.resync_left_bytes,
            catalog_replicas_wanted: view.catalog_replicas_wanted,
            fenced: view.fenced,
            process_id: None,
            keeper_process_id: None,
            mounts: Vec::new(),
            note: None,
            disks: view.disks.into_iter().map(DiskReport::from).collect(),
        }
    }
}

/// A point in time, counted from 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct TimeReport {
    /// Whole seconds.
    pub seconds: i64,
    /// What is beyond them.
    pub nanoseconds: u32,
}

/// A file, directory or other entry.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FileReport {
    /// Its path in the group; bytes that are no UTF-8 are replaced.
    pub path: String,
    /// Its last component, likewise.
    pub name: String,
    /// The component's very bytes, where they are no UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_bytes: Option<Vec<u8>>,
    /// Its number, which is its inode number in a mount.
    pub id: u64,
    /// `file`, `directory`, `symlink`, `fifo`, `socket`, `character_device` or `block_device`.
    pub kind: String,
    /// Permission bits.
    pub permissions: u16,
    /// Names it has.
    pub links_count: u32,
    /// Owner.
    pub user: u32,
    /// Owning group of users.
    pub group: u32,
    /// Length.
    pub size_bytes: u64,
    /// Space taken, one copy counted.
    pub allocated_bytes: u64,
    /// Copies of each extent; `null` for what has no extents.
    #[schema(value_type = Option<String>)]
    pub redundancy: Option<Redundancy>,
    /// How bytes go over extents; `null` for what has no extents.
    #[schema(value_type = Option<String>)]
    pub striping: Option<Striping>,
    /// Where a symbolic link points; bytes that are no UTF-8 are replaced.
    pub target: Option<String>,
    /// The target's very bytes, where they are no UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_bytes: Option<Vec<u8>>,
    /// Last read.
    pub accessed: TimeReport,
    /// Last change of contents.
    pub modified: TimeReport,
    /// Last change of anything.
    pub changed: TimeReport,
    /// Creation.
    pub created: TimeReport,
}

impl FileReport {
    /// [`FileReport::target`] and [`FileReport::target_bytes`] of a link's target.
    #[must_use]
    pub fn target_from(bytes: Option<Vec<u8>>) -> (Option<String>, Option<Vec<u8>>) {
        match bytes.map(String::from_utf8) {
            None => (None, None),
            Some(Ok(text)) => (Some(text), None),
            Some(Err(error)) => {
                let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
                (Some(text), Some(error.into_bytes()))
            }
        }
    }

    /// Where the symbolic link points, byte by byte.
    #[must_use]
    pub fn target_path(&self) -> OsString {
        match &self.target_bytes {
            Some(bytes) => OsString::from_vec(bytes.clone()),
            None => OsString::from(self.target.clone().unwrap_or_default()),
        }
    }
}

/// One copy of an extent.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CopyReport {
    /// The disk's number.
    pub disk: u16,
    /// The disk's name.
    pub disk_name: String,
    /// Where on the disk.
    pub offset_bytes: u64,
}

/// One extent of a file.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ExtentReport {
    /// Index in the file's map.
    pub index: u32,
    /// Where in the file; for fine striping, where its column begins.
    pub offset_bytes: u64,
    /// Length.
    pub length_bytes: u64,
    /// Bytes from its start that hold data; the rest reads as zeros.
    pub initialised_bytes: u64,
    /// Its copies; `null` for one that is missing.
    pub copies: Vec<Option<CopyReport>>,
}

/// What one disk holds of a file.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ShareReport {
    /// The disk's number.
    pub disk: u16,
    /// The disk's name.
    pub disk_name: String,
    /// Extents on it, every copy counted.
    pub extents_count: u64,
    /// Bytes of them.
    pub bytes: u64,
}

/// Which extents of a file lie where.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct MapReport {
    /// The file's path.
    pub path: String,
    /// Its number.
    pub id: u64,
    /// Its length.
    pub size_bytes: u64,
    /// Copies of each extent.
    #[schema(value_type = String)]
    pub redundancy: Redundancy,
    /// How bytes go over extents.
    #[schema(value_type = String)]
    pub striping: Striping,
    /// Every extent; holes are left out.
    pub extents: Vec<ExtentReport>,
    /// The sums by disk.
    pub disks: Vec<ShareReport>,
}

/// Space taken by a directory and everything below it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct UsageReport {
    /// The directory or file.
    pub path: String,
    /// Files below it, each counted once however many names it has.
    pub files_count: u64,
    /// Their lengths.
    pub size_bytes: u64,
    /// Space taken, one copy counted.
    pub allocated_bytes: u64,
}

/// What an examination found.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CheckReport {
    /// The group.
    pub group: String,
    /// Contradictions between maps, space, records and names; empty where all is well.
    pub contradictions: Vec<String>,
    /// Contradictions that were there and are put right.
    #[serde(default)]
    pub repaired: Vec<String>,
    /// What was noticed or repaired while the group was opened and examined.
    pub events: Vec<String>,
}

/// Something that happened in a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventReport {
    /// Its number in the group, which grows with each event.
    #[serde(default)]
    pub number: u64,
    /// Seconds since 1970.
    pub time_s: u64,
    /// The same in milliseconds.
    #[serde(default)]
    pub time_ms: u64,
    /// The host that served the group then.
    #[serde(default)]
    pub host: String,
    /// The group.
    pub group: String,
    /// `info`, `warning` or `critical`.
    #[serde(default)]
    pub severity: String,
    /// What sort of event: `disk_offline`, `block_repaired`, ...; more are added, so expect
    /// others.
    #[serde(default)]
    pub kind: String,
    /// The number of the disk it happened to; `null` where it concerns none.
    #[serde(default)]
    pub disk: Option<u16>,
    /// That disk's name; `null` where it is not in the group any more.
    #[serde(default)]
    pub disk_name: Option<String>,
    /// The number of the file it happened to; `null` where it concerns none.
    #[serde(default)]
    pub file: Option<u64>,
    /// The path of that file by now, where it has one and it was asked for; names in a group are
    /// bytes, and what is no UTF-8 of them is shown with replacements.
    #[serde(default)]
    pub path: Option<String>,
    /// What happened, for a person.
    pub text: String,
}

/// A template: which files get which layout.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TemplateReport {
    /// Its name.
    pub name: String,
    /// Which paths it is for, in words of the profile.
    pub pattern: String,
    /// Copies; `group` where it follows the group's redundancy.
    pub redundancy: String,
    /// How bytes go over extents.
    #[schema(value_type = String)]
    pub striping: Striping,
    /// `cached` or `direct`.
    pub caching: String,
}

/// Running counters of one disk or file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Counters {
    /// Reads answered.
    pub reads_count: u64,
    /// Writes answered.
    pub writes_count: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Time that reads took, added up.
    pub read_time_us: u64,
    /// Time that writes took, added up.
    pub write_time_us: u64,
}

/// The counters of one disk or file at one time.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ActivityReport {
    /// The disk's or file's number.
    pub id: u64,
    /// The disk's name or the file's path.
    pub name: String,
    /// The counters.
    #[serde(flatten)]
    pub counters: Counters,
}

/// All counters at one time.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ActivitySample {
    /// The group.
    pub group: String,
    /// A clock that never goes back.
    pub time_us: u64,
    /// By disk.
    pub disks: Vec<ActivityReport>,
    /// By file, the busy ones.
    pub files: Vec<ActivityReport>,
}

/// Rates of one disk or file between two samples.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RateReport {
    /// The disk's or file's number.
    pub id: u64,
    /// The disk's name or the file's path.
    pub name: String,
    /// Reads a second.
    pub reads_per_s: f64,
    /// Writes a second.
    pub writes_per_s: f64,
    /// Bytes read a second.
    pub read_bytes_per_s: f64,
    /// Bytes written a second.
    pub written_bytes_per_s: f64,
    /// Mean time of a read; `null` where there was none.
    pub read_latency_us: Option<f64>,
    /// Mean time of a write; `null` where there was none.
    pub write_latency_us: Option<f64>,
}

/// What `iostat` shows for one interval.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct IostatReport {
    /// The group.
    pub group: String,
    /// Length of the interval.
    pub interval_s: f64,
    /// By disk.
    pub disks: Vec<RateReport>,
    /// By file, the busiest first.
    pub files: Vec<RateReport>,
}

/// What stands on a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DiskStatus {
    /// Nothing: free to be used.
    Candidate,
    /// A disk of a group.
    Member,
    /// Was a disk of a group that was destroyed or that dropped it: free to be used.
    Former,
    /// Somebody else's: a file system, LVM, md, a partition table, ASM, ...
    Foreign,
    /// Has the identity of another disk that was found too: a copied image.
    Conflict,
    /// Cannot be read, is shorter than its label says, or its label is damaged on both copies.
    Unusable,
}

impl std::fmt::Display for DiskStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Candidate => "candidate",
            Self::Member => "member",
            Self::Former => "former",
            Self::Foreign => "foreign",
            Self::Conflict => "conflict",
            Self::Unusable => "unusable",
        })
    }
}

/// A disk as the scan found it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FoundDisk {
    /// Its path.
    pub path: String,
    /// Its size; `null` where it cannot be opened.
    pub size_bytes: Option<u64>,
    /// What stands on it.
    pub status: DiskStatus,
    /// The group it is or was of.
    pub group: Option<String>,
    /// The group's identity.
    pub group_uuid: Option<String>,
    /// Its number in the group.
    pub number: Option<u16>,
    /// Its name in the group.
    pub name: Option<String>,
    /// Its failure group.
    pub failure_group: Option<String>,
    /// Its identity.
    pub uuid: Option<String>,
    /// Whether a process of this machine holds it.
    pub in_use: bool,
    /// What was found, in words.
    pub found: String,
}

/// What a scan of the search path found.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ScanReport {
    /// Where was looked.
    pub search_path: String,
    /// Every disk there.
    pub disks: Vec<FoundDisk>,
}

/// What a copy did.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct CopiedReport {
    /// Files copied.
    pub files_count: u64,
    /// Directories made.
    pub directories_count: u64,
    /// Symbolic links made.
    pub symlinks_count: u64,
    /// Bytes copied.
    pub bytes: u64,
    /// What was left out, and why.
    pub skipped: Vec<String>,
}

/// Whether a process ends after what it was asked.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct EndingReport {
    /// The group.
    pub group: String,
    /// The process.
    pub process_id: u32,
    /// Its keeper, which ends after it.
    #[serde(default)]
    pub keeper_process_id: Option<u32>,
    /// Whether it ends now; then the group is closed when it has.
    pub ending: bool,
    /// The directories that were unmounted.
    #[serde(default)]
    pub directories: Vec<String>,
}

/// A structure at its place on a disk.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct StructureDump {
    /// Where on the disk.
    pub offset_bytes: u64,
    /// What it says; `null` where it is none.
    pub contents: Option<serde_json::Value>,
    /// `empty`, or what is wrong with it.
    pub error: Option<String>,
}

/// The structures of one disk.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DiskDump {
    /// Its path.
    pub path: String,
    /// Its size.
    pub size_bytes: u64,
    /// What stands on it.
    pub status: DiskStatus,
    /// Likewise, in words.
    pub found: String,
    /// The two copies of the label.
    pub labels: Vec<StructureDump>,
    /// The two slots of the group state.
    pub states: Vec<StructureDump>,
    /// Who has or had the group open.
    pub opener: StructureDump,
}

/// A row of the catalog.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RowDump {
    /// Its key: numbers and names with `/` between them.
    pub key: String,
    /// Its value; the digits of its bytes where it is no structure of this version.
    pub value: serde_json::Value,
}

/// A table of the catalog.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TableDump {
    /// Its name.
    pub name: String,
    /// Rows it has.
    pub rows_count: u64,
    /// The first of them.
    pub rows: Vec<RowDump>,
}

/// The catalog of a group.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CatalogDump {
    /// Its tables.
    pub tables: Vec<TableDump>,
}

/// The structures of a group's disks.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DumpReport {
    /// By disk.
    pub disks: Vec<DiskDump>,
    /// The catalog; `null` where it was not asked for or cannot be opened.
    pub catalog: Option<CatalogDump>,
    /// Why it cannot be opened.
    pub note: Option<String>,
}

/// What a group uses of what earlier programs do not know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FeaturesReport {
    /// The group.
    pub group: String,
    /// Every feature that this program knows.
    pub features: Vec<FeatureReport>,
}

/// Something that disks hold since a later format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FeatureReport {
    /// Its name.
    pub name: String,
    /// It is set: programs that do not know it refuse the group.
    pub in_use: bool,
    /// What sets it.
    pub set_when: String,
}
