//! A file of a group: its layout, its map, its locks, and what it still has to make durable.

use std::sync::Arc;

use smallvec::SmallVec;
use spindle_base::{AuSize, FileId, Redundancy, Striping};
use spindle_catalog::{CatalogError, KeptJournal, file_key};
use spindle_extent::map::{ExtentJournal, Map};
use spindle_extent::schedule::Schedule;
use spindle_sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use spindle_sync::level::{Holds, LeafMutex};

use crate::core::clients::{Clients, ShownMark};
use crate::core::commit::owed::Owed;
use crate::core::disks::Target;
use crate::core::map_lock::MapLock;
use crate::core::moving::Moving;
use crate::core::range_lock::RangeLock;
use crate::error::{GroupError, GroupErrorKind};
use crate::levels;

/// How a new file's bytes are laid out; a template chose it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Layout {
    /// Copies of each extent.
    pub redundancy: Redundancy,
    /// How bytes go over extents.
    pub striping: Striping,
}

/// A file's map and its locks, shared by everybody who has it open. Opaque.
#[derive(Debug)]
pub struct File {
    pub(crate) id: FileId,
    /// How bytes go over extents.
    pub(crate) striping: Striping,
    /// Copies that each extent should have.
    wanted_copies: AtomicU8,
    /// Copies that an extent can have; more than wanted while surplus ones are given back.
    copies: AtomicU8,
    pub(crate) range_lock: RangeLock,
    pub(crate) map: MapLock,
    /// Extents that are being copied elsewhere.
    pub(crate) moving: Moving,
    /// For each disk, in each of its incarnations, the newest write that no sync of this file has
    /// covered.
    pub(crate) written: LeafMutex<SmallVec<[Target; 4]>>,
    /// How often marks of the map went back because a disk lost what lay below them; it changes
    /// under the map's lock.
    pub(crate) set_back_count: AtomicU32,
    /// Marks went back and no sync has told it: what lies between a mark and the end of its
    /// extent was perhaps answered, and is no zeros that anybody may be shown, nor put there.
    pub(crate) hides_a_loss: AtomicBool,
    /// What it owes its next sync. Its row is applied under it: above the catalog's own locks.
    pub(crate) owed: LeafMutex<Owed>,
    pub(crate) removed: AtomicBool,
    /// The edit by which rows ceased to list blocks of its only copy that were lost and are written: a
    /// sync waits for it.
    pub(crate) listed_through: AtomicU64,
    /// Some disk may lack a part of the file that the other copies have; see `dirty.rs`.
    pub(crate) may_be_stale: AtomicBool,
}

/// The part of a kept journal that maps write, and the clients that read what it is of.
#[derive(Debug)]
struct KeptExtents {
    journal: Arc<KeptJournal>,
    clients: Arc<Clients>,
}

impl ExtentJournal for KeptExtents {
    fn note(&self, file: FileId, index: u32, mark_blocks: u32, copies: &[u64]) {
        self.clients.close_extent(file, index);
        self.journal.extent(file, index, mark_blocks, copies);
    }
}

impl File {
    pub(crate) fn new(id: FileId, layout: Layout, au_size: AuSize, clients: &Arc<Clients>) -> Self {
        let schedule = Schedule::new(layout.striping, au_size);
        Self {
            id,
            striping: layout.striping,
            wanted_copies: AtomicU8::new(small(layout.redundancy.copies())),
            copies: AtomicU8::new(small(layout.redundancy.copies())),
            range_lock: RangeLock::new(id, clients),
            map: MapLock::new(Map::new(schedule, layout.redundancy.copies())),
            moving: Moving::default(),
            written: LeafMutex::new(SmallVec::new()),
            set_back_count: AtomicU32::new(0),
            hides_a_loss: AtomicBool::new(false),
            owed: LeafMutex::default(),
            removed: AtomicBool::new(false),
            listed_through: AtomicU64::new(0),
            may_be_stale: AtomicBool::new(false),
        }
    }

    /// Every change of its map from now on is in memory that outlives this process.
    pub(crate) fn keep_map(
        &self,
        change: &impl Holds<Level = levels::Change>,
        journal: &Arc<KeptJournal>,
        clients: &Arc<Clients>,
    ) {
        let journal = Arc::new(KeptExtents {
            journal: Arc::clone(journal),
            clients: Arc::clone(clients),
        });
        self.map.write(change).set_journal(journal, self.id);
    }

    /// Whether clients are shown it.
    pub(crate) const fn shown_mark(&self) -> &Arc<ShownMark> {
        &self.range_lock.shown_mark
    }

    /// Whether copies can differ at all. It can change while a range is not locked: whoever
    /// relied on it looks again under the lock.
    pub(crate) fn is_mirrored(&self) -> bool {
        self.copies.load(Ordering::Acquire) > 1
    }

    /// Its redundancy and striping.
    pub(crate) fn layout(&self) -> Layout {
        let copies = usize::from(self.wanted_copies.load(Ordering::Acquire));
        Layout {
            redundancy: Redundancy::of_copies(copies).expect("a file has 1 to 3 copies"),
            striping: self.striping,
        }
    }

    /// The map has another number of copies; the caller holds it.
    pub(crate) fn follow(&self, map: &Map) {
        self.wanted_copies
            .store(small(map.wanted()), Ordering::Release);
        self.copies.store(small(map.copies()), Ordering::Release);
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    /// Why something is refused as long as no sync has told what the extent lost.
    pub(crate) fn lost_and_untold(&self, index: u32, what_then: &str) -> GroupError {
        GroupError::new(
            GroupErrorKind::Io,
            format!(
                "extent {index} of file {} lost what a disk had not flushed: the next sync of the file \
                 tells it, and {what_then} then",
                self.id
            ),
        )
        .of_file(self.id)
        .in_extent(index)
    }

    /// Remembers that a sync of this file must cover that write.
    pub(crate) fn note_written(&self, target: Target) {
        let mut written = self.written.lock();
        match written.iter_mut().find(|other| other.life == target.life) {
            Some(newest) => newest.number = newest.number.max(target.number),
            None => written.push(target),
        }
    }

    /// The key of a row or region in the tables keyed by file and number.
    pub(crate) fn numbered_key(&self, number: u32) -> Vec<u8> {
        let mut key = file_key(self.id);
        key.extend_from_slice(&number.to_be_bytes());
        key
    }
}

fn small(copies: usize) -> u8 {
    u8::try_from(copies).expect("at most three copies")
}

/// File id and row or region number of a key.
pub(crate) fn numbered_key(key: &[u8]) -> Result<(FileId, u32), CatalogError> {
    let bytes: [u8; 12] = key
        .try_into()
        .map_err(|_| CatalogError::Damaged(format!("a key of 12 bytes has {} bytes", key.len())))?;
    let [a, b, c, d, e, f, g, h, i, j, k, l] = bytes;
    Ok((
        FileId(u64::from_be_bytes([a, b, c, d, e, f, g, h])),
        u32::from_be_bytes([i, j, k, l]),
    ))
}
