//! What direct clients may read by themselves, and when an extent is taken from them.
//!
//! A client reads the disks by a map that it cannot write (`spindle_lease::map`), and what it read counts
//! where the map still says the same behind the answer. So nobody waits for a client; but whatever makes
//! an answer wrong has to be said in the map *before* it is done:
//!
//! - Who changes bytes has their blocks [alone](Withheld): no extent of them is in the map meanwhile. Whoever
//!   holds a range exclusively does; a write that waits in memory is withheld until it waits.
//! - Who changes where an extent lies, or how far it holds data, has it [closed](Clients::close_extent), by
//!   the map that he changes.
//! - Where a disk comes or goes, fails a flush, or turns out to have been set back, the number of the
//!   disks' standing is raised, and no client reads any disk until it is told of the new one
//!   ([`Core::tell_clients`](super::Core::tell_clients)), with nothing in the map from before.
//!
//! What was closed is said again by [`Core::show_file`](super::Core::show_file), which looks at the facts behind
//! the mark that the file is shown: who comes later finds the mark, and closes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spindle_base::{DiskNumber, FileId};
use spindle_extent::schedule::Schedule;
use spindle_lease::map::{Entry, FileKey, SharedMap, StandingWord};
use spindle_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use spindle_sync::level::LeafMutex;
use spindle_sync::{Fault, is_put_back};

/// Of more extents than this none is remembered: all of the file is said again.
const REMEMBERED_MOST: usize = 4096;

/// What clients were told, and of what it is to be said again.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    /// Some file was shown. Who changes a map looks here first.
    is_used: AtomicBool,
    shared: LeafMutex<Option<Shared>>,
}

#[derive(Debug)]
struct Shared {
    map: SharedMap,
    /// The standing that what is in the map is of.
    standing: u64,
    files: BTreeMap<FileId, Shown>,
    /// How often something was begun to be said.
    sayings_count: u64,
}

#[derive(Debug)]
struct Shown {
    schedule: Schedule,
    mark: Arc<ShownMark>,
    /// Extents that the map says nothing of and might.
    closed: Closed,
    /// The newest attempt to say them.
    saying: u64,
}

#[derive(Debug)]
enum Closed {
    Some(BTreeSet<u32>),
    All,
}

impl Closed {
    const NONE: Self = Self::Some(BTreeSet::new());

    fn is_empty(&self) -> bool {
        matches!(self, Self::Some(extents) if extents.is_empty())
    }

    fn contains(&self, index: u32) -> bool {
        match self {
            Self::Some(extents) => extents.contains(&index),
            Self::All => true,
        }
    }

    fn add(&mut self, index: u32) {
        if let Self::Some(extents) = self {
            extents.insert(index);
            if extents.len() > REMEMBERED_MOST {
                *self = Self::All;
            }
        }
    }

    fn add_all_of(&mut self, other: Self) {
        match other {
            Self::All => *self = Self::All,
            Self::Some(extents) => extents.into_iter().for_each(|index| self.add(index)),
        }
    }
}

/// Of a file: whether it is shown, and how many have blocks of it alone.
#[derive(Debug, Default)]
pub(crate) struct ShownMark {
    is_shown: AtomicBool,
    withheld_count: AtomicU32,
}

impl ShownMark {
    /// Whether nobody has blocks alone. Asked behind the mark that the file is shown.
    pub(crate) fn is_quiet(&self) -> bool {
        self.withheld_count.load(Ordering::SeqCst) == 0
    }
}

/// Blocks of a file that no client is shown until it is dropped.
#[derive(Debug)]
#[must_use = "clients are shown the blocks again when it is dropped"]
pub struct Withheld<'a> {
    mark: &'a ShownMark,
}

impl Drop for Withheld<'_> {
    fn drop(&mut self) {
        self.mark.withheld_count.fetch_sub(1, Ordering::Release);
    }
}

/// Extents of a file that somebody is about to say.
#[derive(Debug)]
pub(crate) struct Saying {
    extents: Closed,
    number: u64,
    key: FileKey,
}

impl Saying {
    /// The extents, as `[first, end)`.
    pub(crate) fn ranges(&self) -> Vec<(u32, u32)> {
        match &self.extents {
            Closed::All => vec![(0, u32::MAX)],
            Closed::Some(extents) => extents.iter().map(|index| (*index, index + 1)).collect(),
        }
    }
}

/// What the map calls the file. Its number is never given again, and its striping never changes.
#[must_use]
pub const fn key_of(file: FileId) -> FileKey {
    FileKey {
        file,
        incarnation: 0,
    }
}

impl Clients {
    /// Those that have this map, of which nothing is said; none where no keeper holds one.
    pub(crate) fn new(map: Option<SharedMap>) -> Self {
        let shared = map.map(|mut map| {
            map.reset();
            Shared {
                standing: map.standing().number(),
                map,
                files: BTreeMap::new(),
                sayings_count: 0,
            }
        });
        Self {
            is_used: AtomicBool::new(false),
            shared: LeafMutex::new(shared),
        }
    }

    /// The number that is raised where a disk comes or goes.
    pub(crate) fn standing(&self) -> Option<StandingWord> {
        Some(self.shared.lock().as_ref()?.map.standing())
    }

    /// Blocks `[first, end)` of the file are the caller's alone: no read of them that a client has under
    /// way counts, and none is shown until the answer is dropped.
    pub(crate) fn withhold<'a>(
        &self,
        file: FileId,
        mark: &'a ShownMark,
        (first, end): (u64, u64),
    ) -> Withheld<'a> {
        // In this order: who shows the file marks it, and then looks at the count.
        mark.withheld_count.fetch_add(1, Ordering::SeqCst);
        let withheld = Withheld { mark };
        if mark.is_shown.load(Ordering::SeqCst) && !is_put_back(Fault::ClientsReadBesideWriters) {
            self.close_blocks(file, (first, end));
        }
        withheld
    }

    #[cold]
    fn close_blocks(&self, file: FileId, (first, end): (u64, u64)) {
        let mut shared = self.shared.lock();
        let Some(Shared { map, files, .. }) = &mut *shared else {
            return;
        };
        let Some(shown) = files.get_mut(&file) else {
            return;
        };
        let extents = shown.schedule.extents(first, end);
        match extents.filter(|(first, end)| ((end - first) as usize) < REMEMBERED_MOST) {
            Some((first, end)) => {
                for index in first..end {
                    map.close(key_of(file), index);
                    shown.closed.add(index);
                }
            }
            None => {
                map.withdraw(file);
                shown.closed = Closed::All;
            }
        }
    }

    /// An extent of the file is another one from now on. The caller holds the file's map.
    pub(crate) fn close_extent(&self, file: FileId, index: u32) {
        if !self.is_used.load(Ordering::Acquire) {
            return;
        }
        let mut shared = self.shared.lock();
        if let Some(Shared { map, files, .. }) = &mut *shared
            && let Some(shown) = files.get_mut(&file)
        {
            map.close(key_of(file), index);
            shown.closed.add(index);
        }
    }

    /// Nothing is shown of the file any more.
    pub(crate) fn forget(&self, file: FileId) {
        if let Some(Shared { map, files, .. }) = &mut *self.shared.lock()
            && let Some(shown) = files.remove(&file)
        {
            // In this order: who finds the file not shown changes it at once.
            map.withdraw(file);
            shown.mark.is_shown.store(false, Ordering::SeqCst);
        }
    }

    /// Nothing is shown any more, and no read that is under way counts: the group is closed, or has stopped.
    pub(crate) fn end(&self) {
        if let Some(mut shared) = self.shared.lock().take() {
            shared.map.reset();
        }
    }

    /// Files of which something might be said that is not.
    pub(crate) fn with_closed(&self) -> Vec<FileId> {
        let shared = self.shared.lock();
        let files = shared.iter().flat_map(|shared| &shared.files);
        files
            .filter(|(_, shown)| !shown.closed.is_empty())
            .map(|(file, _)| *file)
            .collect()
    }

    /// Marks the file as shown, and takes the extents that are to be said; `None` where there are no
    /// clients. The caller looks at the facts behind it, and then says them or gives them back.
    pub(crate) fn begin_saying(
        &self,
        file: FileId,
        schedule: Schedule,
        mark: &Arc<ShownMark>,
    ) -> Option<Saying> {
        let mut shared = self.shared.lock();
        let shared = shared.as_mut()?;
        shared.follow_standing();
        self.is_used.store(true, Ordering::Release);
        shared.sayings_count += 1;
        let number = shared.sayings_count;
        let shown = shared.files.entry(file).or_insert_with(|| Shown {
            schedule,
            mark: Arc::clone(mark),
            closed: Closed::All,
            saying: 0,
        });
        shown.saying = number;
        mark.is_shown.store(true, Ordering::SeqCst);
        Some(Saying {
            extents: std::mem::replace(&mut shown.closed, Closed::NONE),
            number,
            key: key_of(file),
        })
    }

    /// Says extents; `each` gives them with what is true of them, and is asked where nobody changes them. What was
    /// closed since the beginning is left out. False where somebody else has begun since, whose facts are newer, or
    /// the file is not shown any more: nothing was said then.
    pub(crate) fn say(
        &self,
        saying: &Saying,
        each: impl FnOnce(&mut dyn FnMut(u32, &Entry)),
    ) -> bool {
        let mut shared = self.shared.lock();
        let Some(Shared { map, files, .. }) = &mut *shared else {
            return false;
        };
        let Some(shown) =
            (files.get_mut(&saying.key.file)).filter(|shown| shown.saying == saying.number)
        else {
            return false;
        };
        each(&mut |index, entry| {
            if !shown.closed.contains(index) {
                // What finds no room goes through the mount.
                let _ = map.set(saying.key, index, entry);
            }
        });
        true
    }

    /// They are not said.
    pub(crate) fn give_back(&self, saying: Saying) {
        if let Some(Shared { files, .. }) = &mut *self.shared.lock()
            && let Some(shown) = files.get_mut(&saying.key.file)
        {
            shown.closed.add_all_of(saying.extents);
        }
    }

    /// Where the disks are of another standing than what the map says, it says nothing from now on; the
    /// standing.
    pub(crate) fn follow_standing(&self) -> Option<u64> {
        Some(self.shared.lock().as_mut()?.follow_standing())
    }
}

impl Shared {
    fn follow_standing(&mut self) -> u64 {
        let now = self.map.standing().number();
        if now != self.standing {
            self.map.forget_all();
            for shown in self.files.values_mut() {
                shown.closed = Closed::All;
            }
            self.standing = now;
        }
        now
    }
}

/// A disk that clients may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToldDisk {
    /// Its number.
    pub number: DiskNumber,
    /// Where it is open.
    pub slot: spindle_device::DiskSlot,
    /// What the group uses of it.
    pub total_bytes: u64,
}

/// What a client is told of the disks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldDisks {
    /// The standing that it is of.
    pub standing: u64,
    /// Those that serve.
    pub disks: Vec<ToldDisk>,
}
