//! Which disks the copies of an extent go to.
//!
//! A smooth weighted rotation over the disks gives the first copy: extent i of a file goes to
//! place (start + i) of it, where the file's id gives the start. So each file is spread evenly
//! by itself, and nothing is remembered. Each disk has a rotation of its own over its partners
//! (disks in other failure groups, at most 8) for the other copies. The weights of the pairs are
//! balanced so that first and other copies together fill the disks in proportion to their sizes.
//!
//! A disk that is full or offline is passed over, in favour of the next in the rotation; where no
//! partner has room, any disk of another failure group will do. Where one failure group has so
//! much of the free space that the others can only just pair it off, it gets a copy of each
//! extent: so what statfs promises can be written, however unequal the failure groups are. Where fewer failure groups are
//! online than there should be copies, the others are entered as missing; where they are online
//! and full, the write fails with "no space".

mod partners;
mod rotation;

use std::sync::OnceLock;

use smallvec::SmallVec;
use spindle_base::{DiskNumber, FileId};
use spindle_format::ExtentCopy;

use crate::map::Extent;
use crate::space::{Run, Space};

pub use partners::{PARTNERS_MAX, partners};
use rotation::Rotation;

/// A disk as placement sees it.
#[derive(Debug, Clone, Copy)]
pub struct Candidate {
    /// The disk.
    pub number: DiskNumber,
    /// Its failure group.
    pub group_index: u16,
    /// Its size in AUs.
    pub weight_aus: u64,
}

/// The rotations over the disks that were online when it was made.
#[derive(Debug)]
pub struct Placement {
    candidates: Vec<Candidate>,
    first: LazyRotation,
    /// By index of the candidate: over indices of its partners.
    others: Vec<LazyRotation>,
    groups_count: usize,
}

/// A rotation that is made when it is first asked: many a placement is replaced before.
#[derive(Debug)]
struct LazyRotation {
    weights: Vec<(usize, f64)>,
    places: usize,
    rotation: OnceLock<Rotation>,
}

impl LazyRotation {
    const fn new(weights: Vec<(usize, f64)>, places: usize) -> Self {
        Self {
            weights,
            places,
            rotation: OnceLock::new(),
        }
    }

    fn get(&self) -> &Rotation {
        (self.rotation).get_or_init(|| Rotation::new(&self.weights, self.places))
    }
}

type Chosen = SmallVec<[(usize, u64); 3]>;

impl Placement {
    /// Rotations over these disks.
    #[must_use]
    pub fn over(candidates: Vec<Candidate>) -> Self {
        let pairs = partners::weights(&candidates);
        let every: Vec<f64> = pairs
            .iter()
            .zip(&candidates)
            .map(|(row, candidate)| {
                let sum: f64 = row.iter().map(|(_, weight)| weight).sum();
                #[expect(clippy::cast_precision_loss, reason = "a weight, not a count")]
                let alone = candidate.weight_aus as f64;
                if sum > 0.0 { sum } else { alone }
            })
            .collect();
        let alone: Vec<(usize, f64)> = if pairs.iter().any(|row| !row.is_empty()) {
            every.iter().copied().enumerate().collect()
        } else {
            #[expect(clippy::cast_precision_loss, reason = "a weight, not a count")]
            let sizes = candidates.iter().map(|c| c.weight_aus as f64);
            sizes.enumerate().collect()
        };
        let mut groups: Vec<u16> = candidates.iter().map(|c| c.group_index).collect();
        groups.sort_unstable();
        groups.dedup();
        Self {
            groups_count: groups.len(),
            first: LazyRotation::new(alone, 8192.max(candidates.len() * 64)),
            others: (pairs.into_iter())
                .map(|row| LazyRotation::new(row, 1024))
                .collect(),
            candidates,
        }
    }

    /// Takes runs of 2^class blocks for the copies of extent `index`; `None` where there is no
    /// room. `reserve_aus` tells how much of each disk is kept for the catalog.
    pub fn allocate(
        &self,
        space: &Space,
        file: FileId,
        index: u32,
        copies: usize,
        class: u8,
        reserve_aus: &dyn Fn(DiskNumber) -> u64,
    ) -> Option<Extent> {
        let wanted = copies.min(self.groups_count);
        if wanted == 0 {
            return None;
        }
        let take = |candidate: usize| {
            let disk = self.candidates[candidate].number;
            space.allocate(disk, class, reserve_aus(disk))
        };
        let give_back = |candidate: usize, start_block: u64| {
            space.give_back(Run {
                disk: self.candidates[candidate].number,
                start_block,
                class,
            });
        };
        let must = self.group_that_must(space, wanted, reserve_aus);
        let chosen = self
            .choose((file, index), wanted, must, &take, &give_back)
            // It has the most room, and none that fits.
            .or_else(|| {
                must.and_then(|_| self.choose((file, index), wanted, None, &take, &give_back))
            })?;
        Some(self.extent(&chosen, copies, class))
    }

    /// Takes runs in `wanted` failure groups, one of them `must`; `None` where they are not to be had.
    fn choose(
        &self,
        (file, index): (FileId, u32),
        wanted: usize,
        must: Option<u16>,
        take: &dyn Fn(usize) -> Option<u64>,
        give_back: &dyn Fn(usize, u64),
    ) -> Option<Chosen> {
        let rotation = self.first.get();
        let place = mix(file.0) % rotation.len_u64() + u64::from(index);
        let mut tried: SmallVec<[bool; 32]> = SmallVec::from_elem(false, self.candidates.len());
        for step in 0..rotation.len_u64() {
            let (first, turn) = rotation.at(place + step);
            if std::mem::replace(&mut tried[first], true) {
                continue;
            }
            let Some(start) = take(first) else { continue };
            let mut chosen: Chosen = SmallVec::from_slice(&[(first, start)]);
            self.add_others(&mut chosen, wanted, must, file, turn, take);
            if chosen.len() == wanted {
                return Some(chosen);
            }
            for (candidate, start_block) in chosen {
                give_back(candidate, start_block);
            }
        }
        None
    }

    /// The failure group that has at least its share of the free space for one copy of every
    /// extent to come, if there is one and a choice.
    fn group_that_must(
        &self,
        space: &Space,
        wanted: usize,
        reserve_aus: &dyn Fn(DiskNumber) -> u64,
    ) -> Option<u16> {
        if wanted < 2 || self.groups_count == wanted {
            return None;
        }
        let free = space.allocatable_aus(self.candidates.iter().map(|c| c.number));
        let mut groups: SmallVec<[(u16, u64); 8]> = SmallVec::new();
        let mut total = 0;
        for (candidate, free_aus) in self.candidates.iter().zip(free) {
            let usable = free_aus.saturating_sub(reserve_aus(candidate.number));
            total += usable;
            match groups
                .iter_mut()
                .find(|(group, _)| *group == candidate.group_index)
            {
                Some((_, sum)) => *sum += usable,
                None => groups.push((candidate.group_index, usable)),
            }
        }
        let (group, most) = groups.into_iter().max_by_key(|(_, sum)| *sum)?;
        (most > 0 && most * wanted as u64 >= total).then_some(group)
    }

    fn add_others(
        &self,
        chosen: &mut Chosen,
        wanted: usize,
        must: Option<u16>,
        file: FileId,
        turn: u64,
        take: &dyn Fn(usize) -> Option<u64>,
    ) {
        let first = chosen[0].0;
        let rotation = self.others[first].get();
        let place = mix(file.0 ^ 0x9e37_79b9_7f4a_7c15) % rotation.len_u64().max(1) + turn;
        let partners = (0..rotation.len_u64()).map(|step| rotation.at(place + step).0);
        let anybody = (1..self.candidates.len()).map(|step| (first + step) % self.candidates.len());
        let mut tried: SmallVec<[usize; 16]> = SmallVec::new();
        for candidate in partners.chain(anybody) {
            if chosen.len() == wanted {
                return;
            }
            let group = self.candidates[candidate].group_index;
            let has = |group: u16| {
                let same = |(other, _): &(usize, u64)| self.candidates[*other].group_index == group;
                chosen.iter().any(same)
            };
            if chosen.len() + 1 == wanted && must.is_some_and(|must| group != must && !has(must)) {
                continue;
            }
            if tried.contains(&candidate) || has(group) {
                continue;
            }
            tried.push(candidate);
            if let Some(start) = take(candidate) {
                chosen.push((candidate, start));
            }
        }
    }

    fn extent(&self, chosen: &Chosen, copies: usize, class: u8) -> Extent {
        let mut entries = [ExtentCopy::MISSING; spindle_format::COPIES_MAX];
        for (entry, (candidate, start)) in entries.iter_mut().zip(chosen) {
            *entry = ExtentCopy::new(self.candidates[*candidate].number, *start, class);
        }
        Extent::new(&entries[..copies], 0)
    }
}

/// Spreads file ids over the rotation; every bit of the id changes about half of the answer.
const fn mix(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests;
