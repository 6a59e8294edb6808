//! A set of blocks of one region, at 4 KiB: nothing, everything, or 2 KiB of bits.

use spindle_base::FileId;
use spindle_format::{BlockRun, DIRTY_REGION_BLOCKS};

const BLOCKS: u32 = DIRTY_REGION_BLOCKS as u32;
const WORDS: usize = DIRTY_REGION_BLOCKS as usize / 64;

/// Blocks of a region, counted from its start.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub enum BlockSet {
    #[default]
    Nothing,
    Everything,
    Bits(Box<[u64; WORDS]>),
}

/// The bits of `word` that belong to `[first, end)`.
fn mask(word: u32, first: u32, end: u32) -> u64 {
    let low = first.saturating_sub(word * 64).min(64);
    let high = end.saturating_sub(word * 64).min(64);
    let below = |count: u32| u64::MAX.checked_shr(64 - count).unwrap_or(0);
    below(high) & !below(low)
}

/// The words that `[first, end)` touches.
fn words(first: u32, end: u32) -> std::ops::Range<u32> {
    first / 64..end.div_ceil(64)
}

impl BlockSet {
    pub const fn is_empty(&self) -> bool {
        matches!(self, Self::Nothing)
    }

    /// How many blocks are in it.
    pub fn count(&self) -> u32 {
        match self {
            Self::Nothing => 0,
            Self::Everything => BLOCKS,
            Self::Bits(bits) => bits.iter().map(|word| word.count_ones()).sum(),
        }
    }

    fn bits(&mut self) -> &mut [u64; WORDS] {
        match self {
            Self::Bits(_) => {}
            Self::Nothing => *self = Self::Bits(Box::new([0; WORDS])),
            Self::Everything => *self = Self::Bits(Box::new([u64::MAX; WORDS])),
        }
        let Self::Bits(bits) = self else {
            unreachable!("it has just become bits")
        };
        bits
    }

    /// Adds the blocks `[first, end)`.
    pub fn insert(&mut self, first: u32, end: u32) {
        if first == 0 && end == BLOCKS {
            *self = Self::Everything;
        }
        if first >= end || matches!(self, Self::Everything) {
            return;
        }
        let bits = self.bits();
        for word in words(first, end) {
            bits[word as usize] |= mask(word, first, end);
        }
    }

    /// Takes out the blocks `[first, end)`.
    pub fn remove(&mut self, first: u32, end: u32) {
        if first >= end || matches!(self, Self::Nothing) {
            return;
        }
        let bits = self.bits();
        for word in words(first, end) {
            bits[word as usize] &= !mask(word, first, end);
        }
        if bits.iter().all(|word| *word == 0) {
            *self = Self::Nothing;
        }
    }

    /// Those of its blocks that lie in `[first, end)`.
    pub fn within(&self, first: u32, end: u32) -> Self {
        let mut set = self.clone();
        set.remove(0, first);
        set.remove(end, BLOCKS);
        set
    }

    /// Adds all blocks of another set.
    pub fn insert_all(&mut self, other: &Self) {
        match (&mut *self, other) {
            (Self::Everything, _) | (_, Self::Nothing) => {}
            (Self::Bits(bits), Self::Bits(others)) => {
                for (word, other) in bits.iter_mut().zip(others.iter()) {
                    *word |= other;
                }
            }
            _ => *self = other.clone(),
        }
    }

    pub fn contains(&self, block: u32) -> bool {
        match self {
            Self::Nothing => false,
            Self::Everything => true,
            Self::Bits(bits) => bits[block as usize / 64] >> (block % 64) & 1 != 0,
        }
    }

    /// Whether any of `[first, end)` is in it.
    pub fn touches(&self, first: u32, end: u32) -> bool {
        match self {
            Self::Nothing => false,
            Self::Everything => first < end,
            Self::Bits(bits) => {
                words(first, end).any(|word| bits[word as usize] & mask(word, first, end) != 0)
            }
        }
    }

    /// The first block at or above `from` and below `end` whose being in it is not `wanted`.
    fn until(&self, wanted: bool, from: u32, end: u32) -> u32 {
        let Self::Bits(bits) = self else {
            let inside = matches!(self, Self::Everything);
            return if inside == wanted { end } else { from };
        };
        for word in words(from, end) {
            let differing = if wanted {
                !bits[word as usize]
            } else {
                bits[word as usize]
            };
            let found = differing & mask(word, from, end);
            if found != 0 {
                return word * 64 + found.trailing_zeros();
            }
        }
        end
    }

    /// How far the answer for `from` holds, `end` at most.
    pub fn same_until(&self, from: u32, end: u32) -> u32 {
        self.until(self.contains(from), from, end)
    }

    /// The first run `[first, end)` in it at or above `from`.
    pub fn run_from(&self, from: u32) -> Option<(u32, u32)> {
        let first = self.until(false, from, BLOCKS);
        (first < BLOCKS).then(|| (first, self.until(true, first, BLOCKS)))
    }

    /// Adds all its runs to those of the file, of which the region begins at block `start`.
    pub fn add_runs(&self, file: FileId, start: u64, found: &mut Vec<(FileId, (u64, u64))>) {
        let mut from = 0;
        while let Some((first, end)) = self.run_from(from) {
            found.push((file, (start + u64::from(first), start + u64::from(end))));
            from = end;
        }
    }

    /// All its runs, ascending and apart.
    pub fn runs(&self) -> Vec<BlockRun> {
        let mut runs = Vec::new();
        let mut from = 0;
        while let Some((first, end)) = self.run_from(from) {
            let narrow = |blocks: u32| u16::try_from(blocks).expect("a region has 16,384 blocks");
            runs.push(BlockRun {
                first_block: narrow(first),
                blocks: narrow(end - first),
            });
            from = end;
        }
        runs
    }

    /// The set of these runs.
    pub fn of(runs: &[BlockRun]) -> Self {
        let mut set = Self::default();
        for run in runs {
            let first = u32::from(run.first_block);
            set.insert(first, first + u32::from(run.blocks));
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{BLOCKS, BlockSet};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_set_holds_what_went_in_and_was_not_taken_out(
            steps in prop::collection::vec((any::<bool>(), 0..300_u32, 0..300_u32, 0..4_u32), 1..40)
        ) {
            let mut set = BlockSet::default();
            let mut model: BTreeSet<u32> = BTreeSet::new();
            for (adds, from, length, far) in steps {
                // Near the start, in the middle, and at the very end.
                let base = [0, 8_000, BLOCKS - 600, 0][far as usize];
                let (first, end) = if far == 3 && length > 290 {
                    (0, BLOCKS)
                } else {
                    (base + from, base + from + length)
                };
                if adds {
                    set.insert(first, end);
                    model.extend(first..end);
                } else {
                    set.remove(first, end);
                    model.retain(|block| !(first..end).contains(block));
                }
                prop_assert_eq!(set.count() as usize, model.len());
                prop_assert_eq!(set.is_empty(), model.is_empty());
                let inside = model.range(first..end).count();
                prop_assert_eq!(set.within(first, end).count() as usize, inside);
                let runs = set.runs();
                let listed: BTreeSet<u32> = runs
                    .iter()
                    .flat_map(|run| {
                        let first = u32::from(run.first_block);
                        first..first + u32::from(run.blocks)
                    })
                    .collect();
                prop_assert_eq!(&listed, &model);
                prop_assert_eq!(BlockSet::of(&runs).runs(), runs);
                prop_assert_eq!(set.touches(first, end), model.range(first..end).next().is_some());
                let same = set.same_until(base + 7, BLOCKS);
                let inside = model.contains(&(base + 7));
                prop_assert!((base + 7..same).all(|block| model.contains(&block) == inside));
                prop_assert!(same == BLOCKS || model.contains(&same) != inside);
            }
        }

        #[test]
        fn the_union_of_two_sets_holds_both(
            left in prop::collection::vec((0..200_u32, 1..90_u32), 0..6),
            right in prop::collection::vec((0..200_u32, 1..90_u32), 0..6)
        ) {
            let set = |ranges: &[(u32, u32)]| {
                let mut set = BlockSet::default();
                for (first, length) in ranges {
                    set.insert(*first, first + length);
                }
                set
            };
            let mut both = set(&left);
            both.insert_all(&set(&right));
            prop_assert_eq!(both.runs(), set(&[left, right].concat()).runs());
        }
    }
}
