//! The free space of one disk: a bitmap of AUs, and the AUs that small extents share.
//!
//! Extents of 1, 4 and 16 AUs come from the lowest aligned free run; a hint per length says
//! below which word there is none, so that a search costs nothing where it found nothing
//! before. Where no aligned run of 4 or 16 is left, any free AUs in a row will do. Where there
//! are none in a row either, this disk is full for that extent, however many single AUs are
//! free: the schedule fixes the length, so the caller tries another disk, and the write fails
//! with "no space" when all have failed.

use std::collections::{BTreeMap, BTreeSet};

use spindle_base::AuSize;

use super::bits;
use super::shared_au::SharedAu;

/// Why a run cannot be marked as used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// It lies (in part) beyond the disk, or in its first AU.
    #[error("lies outside the disk's data AUs")]
    Outside,
    /// Something else has blocks of it.
    #[error("overlaps a run in use")]
    DoubleUse,
}

/// Free space of one disk.
#[derive(Debug)]
pub struct DiskSpace {
    au_class: u8,
    au_count: u64,
    /// AUs from here on are not given out any more: the disk is to end here.
    end_au: u64,
    /// A bit per AU; set where it is used, shared or beyond the disk.
    used: Vec<u64>,
    /// Free AUs before the end, and behind it.
    free_aus: u64,
    free_behind_aus: u64,
    /// For runs of 1, 4 and 16 AUs: no word before this one has an aligned free run.
    hints: [usize; 3],
    /// No run of this many AUs in a row is free, aligned or not.
    none_in_a_row_of: u64,
    shared: BTreeMap<u64, SharedAu>,
    /// Shared AUs by the class of their largest free run.
    by_largest: Vec<BTreeSet<u64>>,
    /// Free blocks in shared AUs before the end, and behind it.
    shared_free_blocks: u64,
    shared_free_behind_blocks: u64,
}

impl DiskSpace {
    /// A disk of `au_count` AUs, all free but the first.
    pub fn new(au_size: AuSize, au_count: u64) -> Self {
        let mut space = Self {
            au_class: au_size.class(),
            au_count: 0,
            end_au: 0,
            used: Vec::new(),
            free_aus: 0,
            free_behind_aus: 0,
            hints: [0; 3],
            none_in_a_row_of: u64::MAX,
            shared: BTreeMap::new(),
            by_largest: vec![BTreeSet::new(); usize::from(au_size.class())],
            shared_free_blocks: 0,
            shared_free_behind_blocks: 0,
        };
        space.set_count(au_count);
        if au_count > 0 {
            space.set_aus(0, 1);
        }
        space
    }

    /// The disk has so many AUs from now on, and all that are free are given out. Nothing may
    /// lie in AUs that are cut off.
    pub fn set_count(&mut self, au_count: u64) {
        if au_count < self.au_count {
            self.set_end(au_count);
            assert!(!self.is_used_behind_end(), "AUs that are cut off are free");
            self.free_behind_aus = 0;
        } else {
            self.free_behind_aus += au_count - self.au_count;
        }
        self.used
            .resize(bits::index(au_count.div_ceil(64)), u64::MAX);
        for au in self.au_count..au_count {
            self.used[bits::index(au / 64)] &= !(1 << (au % 64));
        }
        for au in au_count..self.used.len() as u64 * 64 {
            self.used[bits::index(au / 64)] |= 1 << (au % 64);
        }
        self.au_count = au_count;
        self.set_end(au_count);
    }

    /// AUs from `end_au` on are not given out any more, those before it are.
    pub fn set_end(&mut self, end_au: u64) {
        let end_au = end_au.min(self.au_count);
        let (low, high) = (self.end_au.min(end_au), self.end_au.max(end_au));
        let inward = end_au < self.end_au;
        let shared: Vec<u64> = self.shared.range(low..high).map(|(au, _)| *au).collect();
        for au in &shared {
            self.forget_shared(*au);
        }
        self.end_au = end_au;
        for au in shared {
            self.count_shared(au);
        }
        let free_aus = (low..high)
            .filter(|au| self.used[bits::index(au / 64)] >> (au % 64) & 1 == 0)
            .count() as u64;
        if inward {
            self.free_aus -= free_aus;
            self.free_behind_aus += free_aus;
        } else {
            self.free_aus += free_aus;
            self.free_behind_aus -= free_aus;
        }
        self.hints = [0; 3];
        self.none_in_a_row_of = u64::MAX;
    }

    /// The disk's AUs, AU 0 included.
    pub const fn au_count(&self) -> u64 {
        self.au_count
    }

    /// The first AU that is not given out any more.
    pub const fn end_au(&self) -> u64 {
        self.end_au
    }

    /// Whether anything lies behind the end.
    pub const fn is_used_behind_end(&self) -> bool {
        self.au_count - self.end_au > self.free_behind_aus
    }

    /// Whether anything lies in that AU or behind it.
    pub fn is_used_from(&self, au: u64) -> bool {
        (au..self.au_count).any(|au| self.used[bits::index(au / 64)] >> (au % 64) & 1 != 0)
    }

    /// Blocks that runs take; AU 0 is not counted.
    pub const fn used_blocks(&self) -> u64 {
        let taken_aus = (self.au_count - self.free_aus - self.free_behind_aus).saturating_sub(1);
        (taken_aus << self.au_class) - self.shared_free_blocks - self.shared_free_behind_blocks
    }

    /// Whole AUs that no run takes.
    #[must_use]
    pub const fn free_aus(&self) -> u64 {
        self.free_aus
    }

    /// Blocks that no run takes.
    #[must_use]
    pub const fn free_blocks(&self) -> u64 {
        (self.free_aus << self.au_class) + self.shared_free_blocks
    }

    /// Whether `reserve_aus` AUs stay free after a run of `class` was taken.
    pub fn leaves(&self, class: u8, reserve_aus: u64) -> bool {
        if class >= self.au_class {
            return self.free_aus >= reserve_aus + (1 << (class - self.au_class));
        }
        self.free_aus > reserve_aus
            || (usize::from(class)..self.by_largest.len())
                .any(|larger| !self.by_largest[larger].is_empty())
    }

    /// Takes a run of 2^class blocks; its first block.
    pub fn allocate(&mut self, class: u8) -> Option<u64> {
        if class < self.au_class {
            return self.allocate_shared(class);
        }
        let run_class = class - self.au_class;
        let au = self
            .find_aligned(run_class)
            .or_else(|| self.find_in_a_row(1 << run_class))?;
        self.set_aus(au, 1 << run_class);
        Some(au << self.au_class)
    }

    /// Takes `count` AUs in a row; the number of the first.
    pub fn allocate_aus(&mut self, count: u64) -> Option<u64> {
        let au = self.find_in_a_row(count)?;
        self.set_aus(au, count);
        Some(au)
    }

    fn find_aligned(&mut self, run_class: u8) -> Option<u64> {
        if run_class > 6 {
            return None;
        }
        let hint = match run_class {
            0 => Some(0),
            2 => Some(1),
            4 => Some(2),
            _ => None,
        };
        let from = hint.map_or(0, |hint| self.hints[hint]);
        let words = bits::index(self.end_au.div_ceil(64));
        let found = (from..words).find_map(|word| {
            let starts = bits::aligned_starts(self.used_or_behind(word), run_class);
            (starts != 0).then(|| (word, starts.trailing_zeros()))
        });
        if let Some(hint) = hint {
            self.hints[hint] = found.map_or(self.used.len(), |(word, _)| word);
        }
        found.map(|(word, bit)| word as u64 * 64 + u64::from(bit))
    }

    /// The bits of a word, with all set that are not given out.
    fn used_or_behind(&self, word: usize) -> u64 {
        let behind = if bits::index(self.end_au / 64) == word {
            u64::MAX << (self.end_au % 64)
        } else {
            0
        };
        self.used[word] | behind
    }

    fn find_in_a_row(&mut self, count: u64) -> Option<u64> {
        if count == 0 || count >= self.none_in_a_row_of {
            return None;
        }
        let mut length = 0;
        let mut au = 0;
        while au < self.end_au {
            let word = self.used[bits::index(au / 64)];
            if au.is_multiple_of(64) && word == u64::MAX {
                length = 0;
                au += 64;
                continue;
            }
            length = if word >> (au % 64) & 1 == 0 {
                length + 1
            } else {
                0
            };
            au += 1;
            if length == count {
                return Some(au - count);
            }
        }
        self.none_in_a_row_of = count;
        None
    }

    fn set_aus(&mut self, first: u64, count: u64) {
        for au in first..first + count {
            self.used[bits::index(au / 64)] |= 1 << (au % 64);
        }
        // Only a mount marks runs behind the end, before anybody sets one.
        self.free_aus -= count;
    }

    fn clear_aus(&mut self, first: u64, count: u64) {
        for au in first..first + count {
            let (word, mask) = (bits::index(au / 64), 1_u64 << (au % 64));
            assert!(self.used[word] & mask != 0, "a freed AU was in use");
            self.used[word] &= !mask;
        }
        let before = self.end_au.clamp(first, first + count) - first;
        self.free_aus += before;
        self.free_behind_aus += count - before;
        let word = bits::index(first / 64);
        for hint in &mut self.hints {
            *hint = (*hint).min(word);
        }
        self.none_in_a_row_of = u64::MAX;
    }

    fn allocate_shared(&mut self, class: u8) -> Option<u64> {
        let au = match (usize::from(class)..self.by_largest.len())
            .find_map(|larger| self.by_largest[larger].first().copied())
        {
            Some(au) => au,
            None => {
                let au = self.find_aligned(0)?;
                self.share(au);
                au
            }
        };
        let offset = self.update_shared(au, |shared| shared.allocate(class))?;
        Some((au << self.au_class) + offset)
    }

    /// Makes a shared AU of a free one.
    fn share(&mut self, au: u64) {
        self.set_aus(au, 1);
        self.shared.insert(au, SharedAu::new(1 << self.au_class));
        self.count_shared(au);
    }

    /// Takes a shared AU into the sums and, where its blocks are given out, into the index.
    fn count_shared(&mut self, au: u64) {
        let shared = &self.shared[&au];
        if au >= self.end_au {
            self.shared_free_behind_blocks += shared.free_blocks();
            return;
        }
        self.shared_free_blocks += shared.free_blocks();
        if let Some(class) = shared.largest_class()
            && let Some(index) = self.by_largest.get_mut(usize::from(class))
        {
            index.insert(au);
        }
    }

    /// Takes it out again, as it was counted.
    fn forget_shared(&mut self, au: u64) {
        let shared = &self.shared[&au];
        if au >= self.end_au {
            self.shared_free_behind_blocks -= shared.free_blocks();
            return;
        }
        self.shared_free_blocks -= shared.free_blocks();
        if let Some(class) = shared.largest_class()
            && let Some(index) = self.by_largest.get_mut(usize::from(class))
        {
            index.remove(&au);
        }
    }

    /// Changes a shared AU and keeps the index by largest run and the sums right.
    fn update_shared<T>(&mut self, au: u64, change: impl FnOnce(&mut SharedAu) -> T) -> T {
        self.forget_shared(au);
        let shared = self.shared.get_mut(&au).expect("the AU is shared");
        let answer = change(shared);
        if shared.is_empty() {
            self.shared.remove(&au);
            self.clear_aus(au, 1);
        } else {
            self.count_shared(au);
        }
        answer
    }

    /// Marks a run that a map names.
    pub fn mark_used(&mut self, start: u64, class: u8) -> Result<(), Conflict> {
        if class >= self.au_class {
            let count = 1_u64 << (class - self.au_class).min(32);
            let first = self.check_aus(start, count)?;
            if (first..first + count)
                .any(|au| self.used[bits::index(au / 64)] >> (au % 64) & 1 != 0)
            {
                return Err(Conflict::DoubleUse);
            }
            self.set_aus(first, count);
            return Ok(());
        }
        let au = start >> self.au_class;
        if !start.is_multiple_of(1 << class) || au == 0 || au >= self.au_count {
            return Err(Conflict::Outside);
        }
        let inside = start & ((1 << self.au_class) - 1);
        if !self.shared.contains_key(&au) {
            if self.used[bits::index(au / 64)] >> (au % 64) & 1 != 0 {
                return Err(Conflict::DoubleUse);
            }
            self.share(au);
        }
        if self.shared[&au].usage(inside, class).0 {
            return Err(Conflict::DoubleUse);
        }
        self.update_shared(au, |shared| shared.take(inside, class));
        Ok(())
    }

    fn check_aus(&self, start: u64, count: u64) -> Result<u64, Conflict> {
        let first = start >> self.au_class;
        let aligned = start.is_multiple_of(1 << self.au_class);
        let end = first.checked_add(count).ok_or(Conflict::Outside)?;
        if !aligned || first == 0 || end > self.au_count {
            return Err(Conflict::Outside);
        }
        Ok(first)
    }

    /// Frees a run that is used.
    pub fn free(&mut self, start: u64, class: u8) {
        if class >= self.au_class {
            self.clear_aus(start >> self.au_class, 1 << (class - self.au_class));
            return;
        }
        let inside = start & ((1 << self.au_class) - 1);
        self.update_shared(start >> self.au_class, |shared| shared.free(inside, class));
    }

    /// Whether every block of the run is in use.
    pub fn is_used(&self, start: u64, class: u8) -> bool {
        if class >= self.au_class {
            let Ok(first) = self.check_aus(start, 1 << (class - self.au_class).min(32)) else {
                return false;
            };
            return (first..first + (1 << (class - self.au_class))).all(|au| {
                self.used[bits::index(au / 64)] >> (au % 64) & 1 != 0
                    && !self.shared.contains_key(&au)
            });
        }
        let inside = start & ((1 << self.au_class) - 1);
        self.shared
            .get(&(start >> self.au_class))
            .is_some_and(|shared| shared.usage(inside, class).1)
    }
}
