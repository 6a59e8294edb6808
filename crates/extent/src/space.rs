//! Free space: which runs of which disk no map uses.
//!
//! Nothing of it is stored; it is rebuilt at mount from the maps and the catalog's own runs, and
//! a run that two of them name is reported as damage. A crash therefore cannot leak space.
//!
//! Invariants: AU 0 (labels, group state) is never given out. A freed run is quarantined until
//! the commit that freed it is durable, because after a crash the older map would point to it.
//! The lock in here is a leaf: nothing else is locked and nothing blocks while it is held, so
//! the catalog's region may grow through it in the midst of a commit.

mod bits;
mod disk_space;
mod shared_au;

use spindle_base::{AuSize, DiskNumber, Sequence};
use spindle_sync::Mutex;

pub use disk_space::{Conflict, DiskSpace};

/// A run of 2^class blocks on one disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// The disk.
    pub disk: DiskNumber,
    /// Its first block.
    pub start_block: u64,
    /// Its length class.
    pub class: u8,
}

#[derive(Debug)]
struct State {
    disks: Vec<Option<DiskSpace>>,
    /// Freed by changes that no batch has been sealed with yet.
    open: Vec<Run>,
    /// Freed by the batch up to that sequence.
    sealed: Vec<(Sequence, Vec<Run>)>,
    quarantined_blocks: Vec<u64>,
}

impl State {
    /// Blocks in quarantine that are given out again: on a disk that is to end early, those before its
    /// end.
    fn returning_blocks(&self, space: &DiskSpace, index: usize, au_size: AuSize) -> u64 {
        if space.end_au() == space.au_count() {
            return self.quarantined_blocks[index];
        }
        let end_block = space.end_au() << au_size.class();
        let sealed = self.sealed.iter().flat_map(|(_, runs)| runs);
        (self.open.iter().chain(sealed))
            .filter(|run| usize::from(run.disk.0) == index)
            .map(|run| {
                end_block
                    .saturating_sub(run.start_block)
                    .min(1 << run.class)
            })
            .sum()
    }
}

/// The free space of a group.
#[derive(Debug)]
pub struct Space {
    au_size: AuSize,
    state: Mutex<State>,
}

impl Space {
    /// Space of these disks, each with its size in bytes.
    #[must_use]
    pub fn new(au_size: AuSize, disks: &[(DiskNumber, u64)]) -> Self {
        let space = Self {
            au_size,
            state: Mutex::new(State {
                disks: Vec::new(),
                open: Vec::new(),
                sealed: Vec::new(),
                quarantined_blocks: Vec::new(),
            }),
        };
        for (disk, size_bytes) in disks {
            space.add_disk(*disk, *size_bytes);
        }
        space
    }

    /// The same disks with nothing on them, and none of them ends early.
    pub fn emptied(&self) -> Self {
        let au_bytes = self.au_size.bytes();
        let disks: Vec<(DiskNumber, u64)> = (0_u16..)
            .zip(&self.state.lock().disks)
            .filter_map(|(disk, space)| {
                let aus = space.as_ref()?.au_count();
                Some((DiskNumber(disk), aus * au_bytes))
            })
            .collect();
        Self::new(self.au_size, &disks)
    }

    /// Ends each disk where the same disk of `other` ends.
    pub fn end_as(&self, other: &Self) {
        let other = other.state.lock();
        for (disk, space) in (0_u16..).zip(&other.disks) {
            if let Some(space) = space {
                self.end_disk(DiskNumber(disk), space.end_au() * self.au_size.bytes());
            }
        }
    }

    /// Takes in a disk on which nothing lies yet.
    pub fn add_disk(&self, disk: DiskNumber, size_bytes: u64) {
        let mut state = self.state.lock();
        let index = usize::from(disk.0);
        if state.disks.len() <= index {
            state.disks.resize_with(index + 1, || None);
            state.quarantined_blocks.resize(index + 1, 0);
        }
        assert!(state.disks[index].is_none(), "a disk is taken in once");
        let aus = size_bytes / self.au_size.bytes();
        state.disks[index] = Some(DiskSpace::new(self.au_size, aus));
    }

    /// The disk has another size; nothing may lie in what is cut off, quarantine included.
    pub fn resize_disk(&self, disk: DiskNumber, size_bytes: u64) {
        self.change_disk(disk, |space, au_size| {
            space.set_count(size_bytes / au_size.bytes());
        });
    }

    /// Gives nothing out any more behind the first `size_bytes` of the disk, and everything
    /// before. What lies behind stays in use until it was freed.
    pub fn end_disk(&self, disk: DiskNumber, size_bytes: u64) {
        self.change_disk(disk, |space, au_size| {
            space.set_end(size_bytes / au_size.bytes());
        });
    }

    /// The first block of the disk that is not given out any more.
    pub fn end_block(&self, disk: DiskNumber) -> u64 {
        self.of_disk(disk, |space| space.end_au() << self.au_size.class())
    }

    /// Whether anything lies behind the end of the disk, quarantine included.
    pub fn is_used_behind_end(&self, disk: DiskNumber) -> bool {
        self.of_disk(disk, DiskSpace::is_used_behind_end)
    }

    /// Whether anything lies at that block of the disk or behind it, quarantine included.
    pub fn is_used_behind(&self, disk: DiskNumber, block: u64) -> bool {
        let au = block >> self.au_size.class();
        self.of_disk(disk, |space| space.is_used_from(au))
    }

    /// Blocks of the disk that runs take, the catalog's and quarantined ones included.
    pub fn used_blocks(&self, disk: DiskNumber) -> u64 {
        self.of_disk(disk, DiskSpace::used_blocks)
    }

    /// Blocks of the disk that were freed by changes that are not durable yet.
    pub fn quarantined_blocks(&self, disk: DiskNumber) -> u64 {
        let state = self.state.lock();
        let blocks = state.quarantined_blocks.get(usize::from(disk.0));
        blocks.copied().unwrap_or(0)
    }

    fn change_disk(&self, disk: DiskNumber, change: impl FnOnce(&mut DiskSpace, AuSize)) {
        let mut state = self.state.lock();
        let space = state.disks.get_mut(usize::from(disk.0));
        if let Some(space) = space.and_then(Option::as_mut) {
            change(space, self.au_size);
        }
    }

    fn of_disk<T: Default>(&self, disk: DiskNumber, look: impl FnOnce(&DiskSpace) -> T) -> T {
        let state = self.state.lock();
        let space = state.disks.get(usize::from(disk.0));
        space.and_then(Option::as_ref).map_or_else(T::default, look)
    }

    /// The disk is gone; nothing durable names a run on it.
    pub fn forget_disk(&self, disk: DiskNumber) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.open.retain(|run| run.disk != disk);
        for (_, runs) in &mut state.sealed {
            runs.retain(|run| run.disk != disk);
        }
        if let Some(space) = state.disks.get_mut(usize::from(disk.0)) {
            *space = None;
            state.quarantined_blocks[usize::from(disk.0)] = 0;
        }
    }

    /// Takes a free run of 2^class blocks on `disk`, leaving at least `reserve_aus` whole AUs
    /// free there for the catalog.
    pub fn allocate(&self, disk: DiskNumber, class: u8, reserve_aus: u64) -> Option<u64> {
        let mut state = self.state.lock();
        let space = state.disks.get_mut(usize::from(disk.0))?.as_mut()?;
        if reserve_aus > 0 && !space.leaves(class, reserve_aus) {
            return None;
        }
        space.allocate(class)
    }

    /// Takes `count` AUs in a row on `disk`; the number of the first.
    pub fn allocate_aus(&self, disk: DiskNumber, count: u64) -> Option<u64> {
        let mut state = self.state.lock();
        let space = state.disks.get_mut(usize::from(disk.0))?.as_mut()?;
        space.allocate_aus(count)
    }

    /// Gives back a run that no batch ever spoke of, at once.
    pub fn give_back(&self, run: Run) {
        let mut state = self.state.lock();
        state
            .disks
            .get_mut(usize::from(run.disk.0))
            .and_then(Option::as_mut)
            .expect("a run that was given out lies on a disk that is there")
            .free(run.start_block, run.class);
    }

    /// Gives back AUs of the catalog region, at once: the group state no longer names them.
    pub fn give_back_aus(&self, disk: DiskNumber, first_au: u64, count: u64) {
        let class = self.au_size.class();
        for au in first_au..first_au + count {
            self.give_back(Run {
                disk,
                start_block: au << class,
                class,
            });
        }
    }

    /// Marks a run that a map names; used while mounting.
    ///
    /// # Errors
    /// [`Conflict`] where it lies outside the disk or another map has it.
    pub fn mark_used(&self, run: Run) -> Result<(), Conflict> {
        self.marker().mark_used(run)
    }

    /// Marks many runs under one lock.
    pub fn marker(&self) -> Marker<'_> {
        Marker {
            state: self.state.lock(),
        }
    }

    /// Marks AUs of the catalog region; used while mounting.
    ///
    /// # Errors
    /// As [`Self::mark_used`].
    pub fn mark_used_aus(
        &self,
        disk: DiskNumber,
        first_au: u64,
        count: u64,
    ) -> Result<(), Conflict> {
        let class = self.au_size.class();
        let mut marker = self.marker();
        for au in first_au..first_au.saturating_add(count) {
            marker.mark_used(Run {
                disk,
                start_block: au.checked_shl(u32::from(class)).ok_or(Conflict::Outside)?,
                class,
            })?;
        }
        Ok(())
    }

    /// Puts a freed run into quarantine.
    pub fn quarantine(&self, run: Run) {
        let mut state = self.state.lock();
        state.open.push(run);
        state.quarantined_blocks[usize::from(run.disk.0)] += 1 << run.class;
    }

    /// What was freed until now belongs to the batch that ends with `sequence`.
    pub fn seal(&self, sequence: Sequence) {
        let mut state = self.state.lock();
        if !state.open.is_empty() {
            let runs = std::mem::take(&mut state.open);
            state.sealed.push((sequence, runs));
        }
    }

    /// Everything that batches up to `committed` freed may be used again.
    pub fn release(&self, committed: Sequence) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.sealed.retain(|(sequence, runs)| {
            if *sequence > committed {
                return true;
            }
            for run in runs {
                let disk = usize::from(run.disk.0);
                state.quarantined_blocks[disk] -= 1 << run.class;
                state.disks[disk]
                    .as_mut()
                    .expect("a quarantined run lies on a disk that is there")
                    .free(run.start_block, run.class);
            }
            false
        });
    }

    /// Whether a commit would give space back.
    pub fn has_quarantine(&self) -> bool {
        let state = self.state.lock();
        !state.open.is_empty() || !state.sealed.is_empty()
    }

    /// Free blocks of a disk, those in quarantine included: a commit makes them free.
    pub fn free_blocks(&self, disk: DiskNumber) -> u64 {
        let state = self.state.lock();
        let index = usize::from(disk.0);
        match state.disks.get(index) {
            Some(Some(space)) => {
                space.free_blocks() + state.returning_blocks(space, index, self.au_size)
            }
            _ => 0,
        }
    }

    /// Whole free AUs of a disk, quarantine included.
    pub fn free_aus(&self, disk: DiskNumber) -> u64 {
        let state = self.state.lock();
        let index = usize::from(disk.0);
        match state.disks.get(index) {
            Some(Some(space)) => {
                let returning_blocks = state.returning_blocks(space, index, self.au_size);
                space.free_aus() + (returning_blocks >> self.au_size.class())
            }
            _ => 0,
        }
    }

    /// Whole AUs that can be given out now, of each of these disks.
    pub fn allocatable_aus<'a>(
        &self,
        disks: impl Iterator<Item = DiskNumber> + 'a,
    ) -> smallvec::SmallVec<[u64; 16]> {
        let state = self.state.lock();
        disks
            .map(|disk| match state.disks.get(usize::from(disk.0)) {
                Some(Some(space)) => space.free_aus(),
                _ => 0,
            })
            .collect()
    }

    /// Whether every block of the run is in use (quarantine counts as in use).
    pub fn is_used(&self, run: Run) -> bool {
        let state = self.state.lock();
        state
            .disks
            .get(usize::from(run.disk.0))
            .and_then(Option::as_ref)
            .is_some_and(|space| space.is_used(run.start_block, run.class))
    }
}

/// Marks runs while a group is mounted.
#[derive(Debug)]
pub struct Marker<'a> {
    state: spindle_sync::MutexGuard<'a, State>,
}

impl Marker<'_> {
    /// Marks one run.
    ///
    /// # Errors
    /// [`Conflict`] where it lies outside the disk or another map has it.
    pub fn mark_used(&mut self, run: Run) -> Result<(), Conflict> {
        self.state
            .disks
            .get_mut(usize::from(run.disk.0))
            .and_then(Option::as_mut)
            .ok_or(Conflict::Outside)?
            .mark_used(run.start_block, run.class)
    }
}

#[cfg(test)]
mod tests;
