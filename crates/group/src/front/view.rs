//! What listings show of a group, its disks and its files.

use spindle_sync::atomic::Ordering;

use spindle_base::{
    AuSize, BLOCK_SIZE_BYTES, DiskName, DiskNumber, FailureGroupName, GroupName, Redundancy, Uuid,
};
use spindle_extent::capacity::{self};
use spindle_format::DiskStatus;

use crate::background::Group;
use crate::core::file::{File, Layout};

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
    /// Its number in the group.
    pub number: DiskNumber,
    /// Its name.
    pub name: DiskName,
    /// Its failure group.
    pub failure_group: FailureGroupName,
    /// Where it is open; `None` where it was not found.
    pub path: Option<String>,
    /// What the group uses of it.
    pub total_bytes: u64,
    /// Of this, what no extent uses.
    pub free_bytes: u64,
    /// `online` or `offline`.
    pub mode: String,
    /// `normal`, `adding`, `dropping` or `absent`.
    pub state: String,
    /// Whether it is far slower than its peers and read last.
    pub slow: bool,
    /// Seconds until it is given up, where it is offline and that was noted.
    pub repair_time_left_s: Option<u64>,
    /// Whether it votes on the group state.
    pub voter: bool,
    /// Whether it holds a replica of the catalog.
    pub catalog_replica: bool,
    /// Reads of file data answered since the group was opened.
    pub reads_count: u64,
    /// Writes of file data answered.
    pub writes_count: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Reads that failed.
    pub read_errors_count: u64,
    /// Writes that failed.
    pub write_errors_count: u64,
}

/// A group as listings show it, with ASM's sums.
#[derive(Debug, Clone, serde::Serialize)]
pub struct GroupView {
    /// Its name.
    pub name: GroupName,
    /// Its identity.
    pub uuid: Uuid,
    /// The redundancy of files whose template says nothing else.
    pub redundancy: Redundancy,
    /// The profile it was made with.
    pub profile: String,
    /// The unit of addressing.
    pub block_size_bytes: u64,
    /// The unit that disks are written in.
    pub sector_size_bytes: u64,
    /// The allocation unit.
    pub au_size: AuSize,
    /// Sum over the disks.
    pub total_bytes: u64,
    /// Sum over the disks.
    pub free_bytes: u64,
    /// What must stay free so that redundancy can be restored after a failure.
    pub required_mirror_free_bytes: u64,
    /// May be negative: then a failure could not be repaired from the free space.
    pub usable_bytes: i64,
    /// Disks that are offline.
    pub offline_disks_count: u32,
    /// The number of the group state.
    pub epoch: u64,
    /// Extents of all files.
    pub extents_count: u64,
    /// What disks that came back have not been given yet.
    pub resync_left_bytes: u64,
    /// Disks that should hold the catalog.
    pub catalog_replicas_wanted: u32,
    /// Why the group had to stop, where it did.
    pub fenced: Option<String>,
    /// Its disks, in the order of their numbers.
    pub disks: Vec<DiskView>,
}

/// What is counted in the group beside its disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct GroupFigures {
    /// Regions whose copies an unclean stop would compare, or that an offline disk missed.
    pub dirty_regions_count: u64,
    /// Commits of the catalog since the group was opened.
    pub catalog_commits_count: u64,
    /// Changes of metadata that no commit has made durable yet, roughly.
    pub catalog_pending_bytes: u64,
}

impl Group {
    /// What is counted beside the disks; cheap.
    pub fn figures(&self) -> GroupFigures {
        GroupFigures {
            dirty_regions_count: self.dirty.count() as u64,
            catalog_commits_count: self.catalog.commits_count(),
            catalog_pending_bytes: self.catalog.pending_bytes() as u64,
        }
    }

    /// Sums and disks.
    pub fn view(&self) -> GroupView {
        let disks = self.disk_views();
        let capacities = self.capacities(None);
        let redundancy = self.membership.redundancy();
        let bytes = |blocks: u64| blocks * BLOCK_SIZE_BYTES;
        let files = self.all_files();
        GroupView {
            name: self.membership.name(),
            uuid: self.membership.uuid(),
            redundancy,
            profile: self.profile(),
            block_size_bytes: BLOCK_SIZE_BYTES,
            sector_size_bytes: BLOCK_SIZE_BYTES,
            au_size: self.membership.au_size(),
            total_bytes: disks.iter().map(|disk| disk.total_bytes).sum(),
            free_bytes: disks.iter().map(|disk| disk.free_bytes).sum(),
            required_mirror_free_bytes: bytes(capacity::required_mirror_free_blocks(
                redundancy,
                &capacities,
            )),
            usable_bytes: capacity::usable_blocks(redundancy, &capacities)
                .saturating_mul(BLOCK_SIZE_BYTES.cast_signed()),
            offline_disks_count: u32::try_from(
                disks.iter().filter(|disk| disk.mode == "offline").count(),
            )
            .expect("disk numbers have 16 bits"),
            epoch: self.membership.epoch(),
            extents_count: files
                .iter()
                .map(|file| file.map.read().extents_count())
                .sum(),
            resync_left_bytes: self.resync_progress().0,
            catalog_replicas_wanted: self.membership.replicas_wanted(),
            fenced: self.stopped_for(),
            disks,
        }
    }

    /// The disk's name; `None` where the group has no such disk.
    pub fn disk_name(&self, disk: DiskNumber) -> Option<DiskName> {
        self.disks.get(disk).map(|disk| disk.name())
    }

    fn disk_views(&self) -> Vec<DiskView> {
        let members = self.membership.members();
        self.disks
            .iter()
            .map(|disk| {
                let member = members.iter().find(|m| m.state.number == disk.number);
                let status = member.map(|member| member.state.status);
                let counters = &disk.counters;
                let count =
                    |counter: &spindle_sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
                DiskView {
                    number: disk.number,
                    name: disk.name(),
                    failure_group: disk.failure_group.clone(),
                    path: self.disks.path(disk),
                    total_bytes: disk.total_bytes(),
                    free_bytes: self.space.free_blocks(disk.number) * BLOCK_SIZE_BYTES,
                    mode: if disk.is_online() {
                        "online"
                    } else {
                        "offline"
                    }
                    .to_owned(),
                    state: match status {
                        Some(DiskStatus::Adding) => "adding",
                        Some(DiskStatus::Dropping) => "dropping",
                        Some(DiskStatus::Offline) if self.membership.leaves(disk.number) => {
                            "dropping"
                        }
                        Some(DiskStatus::Absent) => "absent",
                        _ => "normal",
                    }
                    .to_owned(),
                    slow: disk.is_slow.load(Ordering::Relaxed),
                    repair_time_left_s: self.repair_time_left(disk.number),
                    voter: member.is_some_and(|member| member.state.voter),
                    catalog_replica: member.is_some_and(|member| member.catalog_replica),
                    reads_count: count(&counters.reads_count),
                    writes_count: count(&counters.writes_count),
                    read_bytes: count(&counters.read_bytes),
                    written_bytes: count(&counters.written_bytes),
                    read_errors_count: count(&counters.read_errors_count),
                    write_errors_count: count(&counters.write_errors_count),
                }
            })
            .collect()
    }

    /// Every extent, for `spindle map`.
    pub fn map(&self, file: &File) -> Vec<ExtentView> {
        let map = file.map.read();
        let mut extents = Vec::new();
        map.for_each(0, u32::MAX, |index, extent| {
            extents.push(ExtentView {
                index,
                offset_bytes: map.schedule().first_block(index) * BLOCK_SIZE_BYTES,
                length_bytes: map.schedule().length_blocks(index) * BLOCK_SIZE_BYTES,
                initialised_bytes: u64::from(extent.mark_blocks) * BLOCK_SIZE_BYTES,
                copies: extent
                    .copies()
                    .iter()
                    .map(|copy| copy.is_present().then(|| (copy.disk(), copy.start_bytes())))
                    .collect(),
            });
        });
        extents
    }

    /// Bytes that one more file of `layout` could get: whole AUs, less what is kept for the
    /// catalog, as far as the failure groups can pair them.
    pub fn usable_bytes(&self, layout: Layout) -> u64 {
        capacity::writable_blocks(layout.redundancy, &self.capacities(Some(layout.striping)))
            * BLOCK_SIZE_BYTES
    }
}
