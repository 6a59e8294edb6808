//! Regions that a resync went through and could not copy whole: a block of them cannot be read, or
//! the disk does not take it.
//!
//! They are left alone for a while and tried again, each time after a longer while, because a path
//! or a disk may recover; and at once when disks come or go, because another copy may be there then.
//! What is known of them is memory only: a crash tries everything again.

use std::collections::{BTreeMap, BTreeSet};

use super::{Claim, claim_of};
use crate::core::dirty::StaleRegion;
use crate::error::GroupError;

/// How long they are left alone at first, in milliseconds.
const PAUSE_LEAST_MS: u64 = 10_000;
/// How long at most.
const PAUSE_MOST_MS: u64 = 600_000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Blocked {
    /// Nothing of these can be copied now.
    regions: BTreeSet<Claim>,
    /// Regions that a disk's error keeps.
    passed_over: BTreeMap<Claim, PassedOver>,
    /// Those of which an event told.
    told: BTreeSet<Claim>,
    /// How often disks had come or gone when that was found.
    found_at: u64,
    /// When they are tried again, where that is set.
    again_ms: Option<u64>,
    /// How long they were left alone last; 0 where they were not yet.
    pause_ms: u64,
}

/// What of a region is passed over.
#[derive(Debug)]
struct PassedOver {
    /// Blocks of the file that cannot be read or written.
    blocks: BTreeSet<u64>,
    /// Those of them that can be had nowhere.
    lost: BTreeSet<u64>,
    /// What was found first.
    why: GroupError,
}

impl Blocked {
    /// Disks have come or gone so often: what was found before counts no more.
    pub(super) fn follow(&mut self, turns_count: u64) {
        if self.found_at != turns_count {
            *self = Self {
                found_at: turns_count,
                ..Self::default()
            };
        }
    }

    pub(super) fn has(&self, claim: &Claim) -> bool {
        self.regions.contains(claim)
    }

    /// Nothing more of the region can be copied now, as was found when disks had come or gone so often.
    /// Whether that is news: of what was found before a turn nothing is kept.
    pub(super) fn add(&mut self, stale: &StaleRegion, found_at: u64) -> bool {
        if found_at != self.found_at {
            return false;
        }
        self.regions.insert(claim_of(stale));
        self.told.insert(claim_of(stale))
    }

    /// A disk's error keeps the region, as [`Self::add`] says when; the block is the one that it is about,
    /// where it is about one, and `is_lost` where it can be had nowhere.
    pub(super) fn pass_over(
        &mut self,
        (stale, found_at): (&StaleRegion, u64),
        block: Option<u64>,
        is_lost: bool,
        why: &GroupError,
    ) {
        if found_at != self.found_at {
            return;
        }
        let new = || PassedOver {
            blocks: BTreeSet::new(),
            lost: BTreeSet::new(),
            why: why.clone(),
        };
        let region = self.passed_over.entry(claim_of(stale));
        let region = region.or_insert_with(new);
        region.blocks.extend(block);
        region.lost.extend(block.filter(|_| is_lost));
    }

    /// Blocks of the file that are stale there and can be had nowhere.
    pub(super) fn lost(&self, stale: &StaleRegion) -> BTreeSet<u64> {
        let region = self.passed_over.get(&claim_of(stale));
        region.map_or_else(BTreeSet::new, |region| region.lost.clone())
    }

    /// Why blocks of the region are passed over, if some are.
    pub(super) fn why(&self, stale: &StaleRegion) -> Option<GroupError> {
        let region = self.passed_over.get(&claim_of(stale));
        region.map(|region| region.why.clone())
    }

    /// The part of the run `[first, end)` that comes first and has no block that is passed over.
    pub(super) fn without_bad(&self, stale: &StaleRegion, (first, end): (u64, u64)) -> (u64, u64) {
        let Some(region) = self.passed_over.get(&claim_of(stale)) else {
            return (first, end);
        };
        let mut from = first;
        for block in region.blocks.range(first..end) {
            if *block > from {
                return (from, *block);
            }
            from = block + 1;
        }
        (from, end)
    }

    /// Gives regions free again whose time has come.
    pub(super) fn retry(&mut self, now_ms: u64) {
        if self.regions.is_empty() && self.passed_over.is_empty() {
            return;
        }
        match self.again_ms {
            None => {
                self.pause_ms = (self.pause_ms * 2).clamp(PAUSE_LEAST_MS, PAUSE_MOST_MS);
                self.again_ms = Some(now_ms + self.pause_ms);
            }
            Some(again_ms) if again_ms <= now_ms => {
                self.passed_over.clear();
                // Those too that wait for a disk: what they lack by now its source has perhaps.
                self.regions.clear();
                self.again_ms = None;
            }
            Some(_) => {}
        }
    }
}
