//! Floor 3 of 7, above `region` and below `io`: the core of an open disk group. Its disks, files and
//! maps, and what becomes durable when.

pub(crate) mod bad_places;
pub(crate) mod bad_runs;
pub(crate) mod cleaning;
pub(crate) mod clients;
pub(crate) mod commit;
pub(crate) mod dirty;
pub(crate) mod dirty_maps;
mod disk_paths;
pub(crate) mod disks;
pub(crate) mod event_log;
pub(crate) mod file;
pub(crate) mod files;
pub(crate) mod keeper_journal;
pub(crate) mod map_lock;
#[cfg(feature = "loom")]
pub mod models;
pub(crate) mod moving;
pub(crate) mod range_lock;
pub(crate) mod room;
pub(crate) mod takeover;
pub(crate) mod unanswered;

use spindle_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::Arc;

use spindle_base::{BLOCK_SIZE_BYTES, DiskNumber, FileId, GroupName, Striping};
use spindle_catalog::{Catalog, Row, Table};
use spindle_extent::capacity::DiskCapacity;
use spindle_extent::placement::Placement;
use spindle_extent::space::Space;
use spindle_sync::level::{InsideLock, LeafMutex, LeafRwLock, Mutex};

use crate::core::bad_runs::BadRuns;
use crate::core::clients::Clients;
use crate::core::dirty::DirtyRegions;
use crate::core::dirty_maps::DirtyMaps;
use crate::core::disks::{DiskTable, SlowDisks};
use crate::core::event_log::EventLog;
use crate::error::GroupError;
use crate::event::{Event, EventKind};
use crate::levels;
use crate::quorum::{FaultOutcome, Membership};
use crate::region::ReplicatedRegion;
use bad_places::BadPlaces;
use commit::owed::together::OwedRows;
use keeper_journal::Kept;

/// Files leave so much of a group to logs, or a hundredth where that is more.
const LOG_RESERVE_BYTES_MIN: u64 = 64 << 20;
/// And never more than such a part of a disk.
const LOG_RESERVE_PART_MAX: u64 = 16;

pub use clients::{ToldDisk, ToldDisks, Withheld};
pub use commit::Change;
pub use commit::owed::ToldBefore;
pub use disks::ReadTotals;
pub use event_log::KeptEvent;
pub use file::{File, Layout};

/// What every floor above stands on: the disks, the files and their maps, and what becomes
/// durable when. Opaque; `Group` is the whole.
#[derive(Debug)]
pub struct Core {
    pub(crate) membership: Arc<Membership>,
    pub(crate) region: Arc<ReplicatedRegion>,
    pub(crate) catalog: Catalog,
    pub(crate) disks: DiskTable,
    pub(crate) space: Arc<Space>,
    pub(crate) dirty: DirtyRegions,
    placement: LeafRwLock<Arc<Placement>>,
    /// Its record is applied while it is put among them: above the catalog's own locks.
    files: LeafRwLock<BTreeMap<FileId, Arc<File>>>,
    /// Shared by changes, exclusive for a seal.
    pub(crate) change: InsideLock<levels::Change, levels::Range>,
    /// Files whose maps have rows that the catalog lacks.
    dirty_maps: LeafMutex<DirtyMaps>,
    /// Somebody was refused because the catalog is full.
    is_catalog_full: AtomicBool,
    /// What was applied then: as long as nothing else is, the answer stays.
    refused_at: AtomicU64,
    /// Held while room is made in the catalog.
    making_room: Mutex<(), levels::MakingRoom>,
    /// Something is pending that must not wait until its batch is old.
    commit_is_urgent: AtomicBool,
    /// Why the group had to stop.
    fence: LeafMutex<Option<GroupError>>,
    is_fenced: AtomicBool,
    event_log: EventLog,
    /// Places that no copy may lie at any more.
    pub(crate) bad_runs: BadRuns,
    /// Copies that wait to be moved from such a place.
    pub(crate) bad_places: BadPlaces,
    /// How often disks had come or gone when it was last looked what of all files was lost.
    looked_for_lost_at: AtomicU64,
    /// How often a sync told something that was lost, or could not be written.
    told_count: AtomicU64,
    /// What files owe by rows of several. Such a row is applied under it: above the catalog's own
    /// locks.
    owed_together: LeafMutex<OwedRows>,
    pub(crate) slow_disks: LeafMutex<SlowDisks>,
    /// Seconds since 1970 when last told.
    pub(crate) now_s: AtomicU64,
    /// The journal, where a keeper holds the mount.
    pub(crate) kept: Option<Kept>,
    /// What direct clients may read.
    pub(crate) clients: Arc<Clients>,
}

/// What an opening has loaded.
pub(crate) struct Loaded {
    pub membership: Arc<Membership>,
    pub region: Arc<ReplicatedRegion>,
    pub catalog: Catalog,
    pub disks: DiskTable,
    pub space: Arc<Space>,
    pub dirty: DirtyRegions,
    pub files: BTreeMap<FileId, Arc<File>>,
    pub event_log: EventLog,
    pub bad_runs: BadRuns,
    pub kept: Option<Kept>,
    pub clients: Arc<Clients>,
    pub now_s: u64,
}

impl Core {
    pub(crate) fn new(loaded: Loaded) -> Self {
        let au_size = loaded.membership.au_size();
        Self {
            looked_for_lost_at: AtomicU64::new(loaded.membership.turns_count()),
            told_count: AtomicU64::new(0),
            placement: LeafRwLock::new(Arc::new(loaded.disks.placement(au_size))),
            membership: loaded.membership,
            region: loaded.region,
            catalog: loaded.catalog,
            disks: loaded.disks,
            space: loaded.space,
            dirty: loaded.dirty,
            files: LeafRwLock::new(loaded.files),
            change: InsideLock::default(),
            dirty_maps: LeafMutex::default(),
            is_catalog_full: AtomicBool::new(false),
            refused_at: AtomicU64::new(0),
            making_room: Mutex::default(),
            commit_is_urgent: AtomicBool::new(false),
            fence: LeafMutex::new(None),
            is_fenced: AtomicBool::new(false),
            event_log: loaded.event_log,
            bad_runs: loaded.bad_runs,
            bad_places: BadPlaces::default(),
            owed_together: LeafMutex::default(),
            slow_disks: LeafMutex::default(),
            now_s: AtomicU64::new(loaded.now_s),
            kept: loaded.kept,
            clients: loaded.clients,
        }
    }

    /// The file, if there is one with that id.
    pub fn file(&self, id: FileId) -> Option<Arc<File>> {
        self.files.read().get(&id).cloned()
    }

    /// The file of the lowest id from `from` on.
    pub(crate) fn file_from(&self, from: FileId) -> Option<Arc<File>> {
        let files = self.files.read();
        files.range(from..).next().map(|(_, file)| Arc::clone(file))
    }

    /// The newest value of a row of the layer above.
    ///
    /// # Errors
    /// [`GroupErrorKind::Io`] or [`GroupErrorKind::Corrupt`] where the catalog cannot be read.
    pub fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, GroupError> {
        Ok(self.catalog.get(table, key)?)
    }

    /// Rows in order, at most `most`.
    ///
    /// # Errors
    /// As [`Core::get`].
    pub fn range(
        &self,
        table: Table,
        from: &[u8],
        to: &[u8],
        most: usize,
    ) -> Result<Vec<Row>, GroupError> {
        Ok(self.catalog.range(table, from, to, most)?)
    }

    /// What happened since the last call (disk offline, block repaired, ...), the oldest first.
    pub fn take_events(&self) -> Vec<Event> {
        self.membership.take_events()
    }

    /// Tells that something happened. Memory only, and never fails: the data path may call it,
    /// and with any lock of [`levels`] held.
    pub fn event(&self, event: Event) {
        self.membership.event(event);
    }

    #[cfg(test)]
    pub(crate) fn set_placement(&self, placement: Arc<Placement>) {
        *self.placement.write() = placement;
    }

    /// What the next seal adds to the catalog at most.
    #[cfg(test)]
    pub(crate) fn dirty_rows(&self) -> spindle_catalog::Rows {
        self.dirty_maps.lock().rows()
    }

    pub(crate) fn placement(&self) -> Arc<Placement> {
        Arc::clone(&self.placement.read())
    }

    /// Follows the disks. One at a time: what one saw must not take the place of what another saw
    /// later.
    pub(crate) fn rebuild_placement(&self) {
        let mut placement = self.placement.write();
        *placement = Arc::new(self.disks.placement(self.membership.au_size()));
    }

    /// Disks that are offline now.
    pub(crate) fn offline_now(&self) -> smallvec::SmallVec<[DiskNumber; 2]> {
        self.disks
            .iter()
            .filter(|disk| disk.holds_data && !disk.is_online())
            .map(|disk| disk.number)
            .collect()
    }

    /// Whole AUs of a disk that files leave to the catalog, so that a full group can still
    /// record what is removed from it.
    pub(crate) fn reserve_aus(&self, disk: DiskNumber) -> u64 {
        match self.disks.get(disk) {
            Some(disk) => Self::reserve_of(disk.total_bytes() / self.membership.au_size().bytes()),
            None => 0,
        }
    }

    /// As [`Core::reserve_aus`], for a file of this striping: logs, which are striped finely, may have
    /// what other files leave to them. A database whose data files find no space goes on as long as
    /// its log finds some.
    pub(crate) fn reserve_for(&self, striping: Striping) -> impl Fn(DiskNumber) -> u64 + '_ {
        let disks_count = self.disks.iter().filter(|disk| disk.holds_data).count();
        let au_bytes = self.membership.au_size().bytes();
        let copies_count = self.membership.redundancy().copies() as u64;
        let least_bytes = LOG_RESERVE_BYTES_MIN * copies_count / disks_count.max(1) as u64;
        move |disk| {
            let total_bytes = self.disks.get(disk).map_or(0, |disk| disk.total_bytes());
            let log_bytes = match striping {
                Striping::Fine => 0,
                Striping::Coarse => (total_bytes / 100).max(least_bytes),
            };
            let most_aus = total_bytes / LOG_RESERVE_PART_MAX / au_bytes;
            self.reserve_aus(disk) + log_bytes.div_ceil(au_bytes).min(most_aus)
        }
    }

    /// Free blocks of each disk; only those that a large file of that striping could get where one
    /// is named.
    pub(crate) fn capacities(&self, for_files: Option<Striping>) -> Vec<DiskCapacity> {
        let au_blocks = self.membership.au_size().blocks();
        let reserve = self.reserve_for(for_files.unwrap_or(Striping::Fine));
        self.disks
            .iter()
            .filter(|disk| disk.holds_data)
            .map(|disk| DiskCapacity {
                failure_group: u32::from(disk.group_index),
                total_blocks: disk.total_bytes() / BLOCK_SIZE_BYTES,
                free_blocks: if for_files.is_some() {
                    let free_aus = self.space.free_aus(disk.number);
                    free_aus.saturating_sub(reserve(disk.number)) * au_blocks
                } else {
                    self.space.free_blocks(disk.number)
                },
                // What a disk has free that leaves the group is of no use to anybody.
                online: disk.may_receive(),
            })
            .collect()
    }

    /// As [`Core::reserve_aus`], of a disk of so many AUs.
    pub(crate) fn reserve_of(total_aus: u64) -> u64 {
        (total_aus / 128).clamp(u64::from(total_aus > 32), 64)
    }

    /// AUs of a disk of so many that files may have: neither its first, nor the catalog's, nor those
    /// that are kept for it.
    pub(crate) fn file_aus(total_aus: u64, catalog_aus: u64) -> u64 {
        total_aus.saturating_sub(1 + catalog_aus + Self::reserve_of(total_aus))
    }

    /// AUs that the catalog has on each disk at the moment.
    pub(crate) fn catalog_aus(&self) -> impl Fn(DiskNumber) -> u64 {
        let replicas = self.membership.catalog_runs();
        move |disk| {
            (replicas.iter())
                .filter(|replica| replica.disk == disk)
                .flat_map(|replica| &replica.runs)
                .map(|run| u64::from(run.aus))
                .sum()
        }
    }

    /// No region is recorded as dirty from now on, until the group is opened anew: after an
    /// unclean stop copies may differ and nobody knows. It is for measuring what the record costs
    /// and for nothing else; no command and no setting leads here.
    #[doc(hidden)]
    pub fn leave_out_dirty_record(&self) {
        self.dirty.leave_out();
    }

    /// Gives the group another name, durably: the group state first, which counts, then the
    /// labels.
    ///
    /// # Errors
    /// Where too few voters take it.
    pub fn rename(&self, name: &GroupName) -> Result<(), GroupError> {
        self.membership.rename(name)
    }

    /// Renews the mark that says who has the group, and looks whether a disk was cut off or set back.
    ///
    /// # Errors
    /// [`GroupErrorKind::Busy`] where another host has taken the group: it stops here. As
    /// [`Core::sync`] where it cannot go on without a disk.
    pub fn heartbeat(&self, now_s: u64) -> Result<(), GroupError> {
        self.now_s.store(now_s, Ordering::Relaxed);
        self.keep_fence(self.membership.heartbeat(now_s))?;
        self.keep_fence(self.membership.notice_cut_off())?;
        self.keep_fence(self.membership.give_up_set_back())
    }

    /// Reads the labels, owner records and group states of every disk that serves, and writes
    /// again what is damaged: the next mount would be refused for it. A disk that was set back goes
    /// offline. To be called at times.
    ///
    /// # Errors
    /// As [`Core::sync`] where the group cannot go on without a disk.
    pub fn mend_structures(&self) -> Result<(), GroupError> {
        for fault in self.membership.verify_structures(true) {
            if fault.outcome != FaultOutcome::Repaired {
                continue;
            }
            let message = format!(
                "{}: its {} was damaged while the group is open, and was written again ({})",
                self.disks.describe(fault.disk),
                fault.what,
                fault.why
            );
            self.event(Event::new(EventKind::LabelRepaired, message).disk(fault.disk));
        }
        self.keep_fence(self.membership.give_up_set_back())
    }

    /// For what is answered without a request to a disk, when it is done: refuses where this process
    /// seems to have slept, and the voters do not say that the group is still its own.
    ///
    /// # Errors
    /// Who has the group, or that too few voters can be read.
    pub fn check_owner(&self) -> Result<(), GroupError> {
        self.membership.check_owner()
    }

    /// Stops the group where the membership could not go on.
    pub(crate) fn keep_fence<T>(&self, answer: Result<T, GroupError>) -> Result<T, GroupError> {
        if let Err(error) = &answer {
            self.stop_for(error);
        }
        answer
    }
}
