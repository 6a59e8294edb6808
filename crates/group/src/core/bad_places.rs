//! Copies that lie on a bad place of their disk, until they are mended. All of it is memory: after a
//! crash a read or a scrub finds them again.

use spindle_sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use smallvec::SmallVec;
use spindle_base::{DiskNumber, FileId};
use spindle_format::ExtentCopy;
use spindle_sync::level::LeafMutex;

use crate::core::dirty::Ranges;
use crate::core::file::File;
use crate::incarnation::Life;

/// Blocks of a copy that could not be read, or are wrong.
#[derive(Debug)]
pub struct BadPlace {
    /// The file.
    pub file: Arc<File>,
    /// The extent.
    pub index: u32,
    /// The copy, as the map had it.
    pub copy: ExtentCopy,
    /// Its bad blocks.
    pub bad: Vec<BadBlocks>,
    /// The disks of the extent's copies when this was found: of one that has gone since, nobody
    /// knows what it has, and the place is found again where it is still bad.
    pub lives: SmallVec<[Life; 4]>,
    /// What its finder met.
    pub reason: String,
}

/// Blocks of a copy that are bad, and where they are good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadBlocks {
    /// The first one, from the extent's start.
    pub inside_blocks: u64,
    /// How many.
    pub blocks: u64,
    /// The copy that has them right.
    pub source: ExtentCopy,
}

/// Places that wait to be mended.
#[derive(Debug, Default)]
pub struct BadPlaces {
    pub(crate) waiting: LeafMutex<Vec<BadPlace>>,
    /// Looked at by every read: most groups never see a bad place.
    pub(crate) any: AtomicBool,
    /// Blocks of which a disk still has a copy on a bad place: who writes there reads it back.
    left: LeafMutex<Vec<Left>>,
    /// Looked at by every write.
    any_left: AtomicBool,
}

#[derive(Debug, PartialEq, Eq)]
struct Left {
    file: FileId,
    disk: DiskNumber,
    /// Blocks `[first, end)` of the file.
    blocks: (u64, u64),
}

impl BadPlaces {
    /// The disk's copy of these blocks stays on a bad place: who writes it again reads it back.
    pub(crate) fn leave(&self, file: FileId, disk: DiskNumber, ranges: &[(u64, u64)]) {
        for (first, end) in ranges.iter().copied() {
            // What was noted before in pieces is one piece.
            self.note_good(file, disk, (first, end));
            let blocks = (first, end);
            self.left.lock().push(Left { file, disk, blocks });
        }
        self.any_left.store(true, Ordering::Release);
    }

    /// Whether any blocks of any file were left so.
    pub(crate) fn has_left(&self) -> bool {
        self.any_left.load(Ordering::Acquire)
    }

    /// Those of these blocks that were left so, ascending and apart.
    pub(crate) fn left_of(
        &self,
        file: FileId,
        disk: DiskNumber,
        (first, end): (u64, u64),
    ) -> Ranges {
        if !self.has_left() {
            return Ranges::new();
        }
        let left = self.left.lock();
        let own = left
            .iter()
            .filter(|left| (left.file, left.disk) == (file, disk));
        let inside = own.map(|left| (left.blocks.0.max(first), left.blocks.1.min(end)));
        let mut inside: Ranges = inside.filter(|(first, end)| first < end).collect();
        inside.sort_unstable();
        let mut apart = Ranges::new();
        for (first, end) in inside {
            match apart.last_mut() {
                Some(last) if first <= last.1 => last.1 = last.1.max(end),
                _ => apart.push((first, end)),
            }
        }
        apart
    }

    /// Whether any of these blocks was left so.
    pub(crate) fn is_left(&self, file: FileId, disk: DiskNumber, blocks: (u64, u64)) -> bool {
        !self.left_of(file, disk, blocks).is_empty()
    }

    /// The disk's copy of these blocks goes away; whether any of them was left.
    pub(crate) fn take_left(&self, file: FileId, disk: DiskNumber, ranges: &[(u64, u64)]) -> bool {
        let is_of_disk = |left: &Left| (left.file, left.disk) == (file, disk);
        if !self.left.lock().iter().any(is_of_disk) {
            return false;
        }
        let is_left = ranges.iter().any(|range| self.is_left(file, disk, *range));
        for range in ranges.iter().filter(|_| is_left) {
            self.note_good(file, disk, *range);
        }
        is_left
    }

    /// The disk gives these blocks back as they were written.
    pub(crate) fn note_good(&self, file: FileId, disk: DiskNumber, (first, end): (u64, u64)) {
        let mut left = self.left.lock();
        let rest: Vec<Left> = left
            .drain(..)
            .flat_map(|one| one.without(file, disk, first, end))
            .collect();
        self.any_left.store(!rest.is_empty(), Ordering::Release);
        *left = rest;
    }
}

impl Left {
    /// What is left of it where these blocks are good.
    fn without(self, file: FileId, disk: DiskNumber, first: u64, end: u64) -> SmallVec<[Self; 2]> {
        if (self.file, self.disk) != (file, disk) {
            return SmallVec::from_iter([self]);
        }
        let (from, to) = self.blocks;
        let parts = [(from, to.min(first)), (from.max(end), to)];
        let parts = parts.into_iter().filter(|(first, end)| first < end);
        parts.map(|blocks| Self { file, disk, blocks }).collect()
    }
}

impl BadPlace {
    /// Whether the other one is of the same copy, which is mended once.
    pub fn is_same(&self, other: &Self) -> bool {
        self.file.id == other.file.id && self.index == other.index && self.copy == other.copy
    }

    /// The bad blocks that this one is among.
    pub(crate) fn bad_at(&self, inside_blocks: u64) -> Option<&BadBlocks> {
        self.bad.iter().find(|bad| {
            (bad.inside_blocks..bad.inside_blocks + bad.blocks).contains(&inside_blocks)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_good_of_a_place_that_was_left_is_left_no_more_and_the_rest_is() {
        let places = BadPlaces::default();
        let (file, disk) = (FileId(7), DiskNumber(1));
        places.leave(file, disk, &[(10, 20)]);
        places.note_good(file, DiskNumber(2), (0, 100));
        places.note_good(file, disk, (0, 12));
        places.note_good(file, disk, (14, 16));
        let is_left = |first, end| places.is_left(file, disk, (first, end));
        assert!(!is_left(0, 12) && !is_left(14, 16) && !is_left(20, 30));
        assert!(is_left(12, 13) && is_left(13, 14) && is_left(19, 20));
        places.leave(file, disk, &[(19, 30), (40, 50)]);
        let left = places.left_of(file, disk, (13, 45));
        assert_eq!(left[..], [(13, 14), (16, 30), (40, 45)]);
        assert!(places.take_left(file, disk, &[(25, 100)]));
        assert!(!places.take_left(file, disk, &[(20 + 5, 100)]));
        assert!(places.take_left(file, disk, &[(20, 25)]));
        places.note_good(file, disk, (12, 20));
        assert!(!is_left(0, 100) && !places.has_left());
    }
}
