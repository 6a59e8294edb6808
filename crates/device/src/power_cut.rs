//! What a power cut does to writes that no flush covered; one model for the simulated disks and
//! for replayed recordings.

use std::ops::Range;

use crate::random::SeededRandom;

/// What no write ever tears: the unit that real media write atomically.
pub(crate) const SECTOR_BYTES: usize = 512;

/// How one disk fares in one power cut. Many bugs need that all unsynced writes survive, or
/// none, which independent fates hardly ever give; so each has one cut in six.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    AllKept,
    AllLost,
    Mixed,
}

impl Mood {
    pub(crate) const fn draw(random: &mut SeededRandom) -> Self {
        match random.below(6) {
            0 => Self::AllLost,
            1 => Self::AllKept,
            _ => Self::Mixed,
        }
    }

    /// The fate of a write of so many sectors.
    pub(crate) fn fate(self, sector_count: usize, random: &mut SeededRandom) -> Fate {
        match self {
            Self::AllKept => Fate::Kept,
            Self::AllLost => Fate::Lost,
            Self::Mixed => Fate::draw(sector_count, random),
        }
    }
}

/// What a power cut does to one write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fate {
    Kept,
    Lost,
    /// Only these sectors, counted from the start of the write, arrived.
    TornTo(Range<usize>),
    /// Each sector arrived or did not.
    Scattered,
}

impl Fate {
    pub(crate) fn draw(sector_count: usize, random: &mut SeededRandom) -> Self {
        assert!(sector_count > 1, "a write is a whole number of blocks");
        match random.below(8) {
            0..=2 => Self::Kept,
            3..=4 => Self::Lost,
            5 => Self::TornTo(0..1 + random.index(sector_count - 1)),
            6 => Self::TornTo(1 + random.index(sector_count - 1)..sector_count),
            _ => Self::Scattered,
        }
    }

    /// Whether this sector of the write arrived.
    pub(crate) fn takes(&self, sector: usize, random: &mut SeededRandom) -> bool {
        match self {
            Self::Kept => true,
            Self::Lost => false,
            Self::TornTo(sectors) => sectors.contains(&sector),
            Self::Scattered => random.chance(1, 2),
        }
    }
}
