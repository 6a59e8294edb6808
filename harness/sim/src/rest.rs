//! The end of a run: every disk comes back, the background work is done until nothing is left,
//! and the group must be as if nothing had ever happened to it.
//!
//! Then: every extent has all its copies, in different failure groups, with the same bytes; no
//! disk is on its way out, unless the group says that the rest has no room; each disk has its
//! share; no more was moved than had to be; and a further rebalance moves next to nothing.

mod moved;

use std::collections::{BTreeMap, BTreeSet};

use spindle_base::{BLOCK_SIZE_BYTES, DiskNumber};
use spindle_fs::FsError;
use spindle_group::{OperationState, Power};

use crate::content::index;
use crate::rest::moved::{Held, Maps, text};
use crate::run::{Answer, Run, Step};

const MIB: u64 = 1 << 20;
/// Units after which the work on these small disks must have ended.
const UNITS_MAX: u64 = 100_000;
/// Steps of lazy work that bring a group to rest: rounds of cleaning are 5 s apart.
const STEPS: u64 = 8;
const STEP_MS: u64 = 6000;
/// What a disk may differ from its share: a few extents, and one in a hundred.
const SHARE_SLACK_BYTES: u64 = 3 * MIB;
/// Room that is certainly enough, beyond what is to move.
const PLENTY_BYTES: u64 = 24 * MIB;

impl Run {
    /// See the module. Nothing is asked of a group that lost more than it bears.
    pub(crate) fn come_to_rest(&mut self) -> Step<()> {
        if self.may_be_lost() {
            return Ok(());
        }
        let away = self.away_slots();
        let mut slots = self.slots().into_iter();
        if slots.any(|slot| self.disks.is_vanished(slot) && !away.contains(&slot)) {
            // Back before anybody noticed, it would have lied about what it took.
            self.disks_return = true;
            self.disks.crash();
            self.recover_from_power_cut()?;
        }
        self.repair_disks();
        self.return_all()?;
        let power = self.group().set_power(Power::MAX).map_err(FsError::Group);
        self.judge("setting the power", power)?;
        self.step_to_rest()?;
        let stops_count = self.stops_count;
        self.left_moves_out = false;
        let before = self.held();
        self.work_to_rest()?;
        self.step_to_rest()?;
        self.work_to_rest()?;
        let after = self.held();
        self.check_group()?;
        self.check_redundancies()?;
        let stopped = self.stopped_for();
        let had_room = self.stops_count == stops_count;
        self.check_disks(stopped.as_deref(), &after)?;
        self.check_copies(stopped.as_deref(), &after.maps)?;
        if stopped.is_none() {
            // One that found no room for a while made detours.
            if had_room {
                self.check_moved(&before, &after)?;
            }
            // One that was not asked for may be long ago.
            self.rebalance_once_more()?;
        }
        if self.stopped_for().is_none() {
            self.check_shares(&self.held())?;
            self.rebalance_once_more()?;
            self.coverage.rests += 1;
        }
        self.model.clock += 1;
        self.close_and_reopen()?;
        if stopped.is_none() {
            self.rebalance_once_more()?;
        }
        Ok(())
    }

    /// Every disk that is away and was not given up.
    fn return_all(&mut self) -> Step<()> {
        for slot in self.away_slots() {
            self.note(format!("slot {} comes back at the end", slot.0));
            match self.group().return_disks(&[slot]) {
                Ok(back) => self.coverage.returns += back.len() as u64,
                // What says who it is was flipped, once in each of its places perhaps.
                Err(error) if self.flipped.contains(&slot) => {
                    self.note(format!("it does not: {error}"));
                }
                Err(error) => {
                    return Err(Self::wrong(&format!(
                        "disk in slot {} that is whole again does not come back: {error}",
                        slot.0
                    )));
                }
            }
        }
        self.take_events();
        Ok(())
    }

    /// A disk could not say any more who it is.
    fn is_one_away(&self) -> bool {
        !self.flipped.is_empty() && !self.away_slots().is_empty()
    }

    /// Lazy work until copies are clean.
    fn step_to_rest(&mut self) -> Step<()> {
        let begun_ms = self.model.clock * 1000;
        for step in 0..STEPS {
            let result = self.system().step(begun_ms + step * STEP_MS);
            self.judge("a background step", result)?;
        }
        self.model.clock += STEPS * STEP_MS / 1000;
        self.take_events();
        Ok(())
    }

    fn work_to_rest(&mut self) -> Step<()> {
        for _ in 0..UNITS_MAX {
            if self.work_once()?.is_none() {
                self.take_events();
                return Ok(());
            }
        }
        self.take_events();
        Err(Self::wrong("the background work does not end"))
    }

    fn held(&self) -> Held {
        let group = self.group();
        let disks = group.view().disks;
        Held {
            maps: (self.model.contents.keys())
                .filter_map(|id| Some((*id, group.map(&*group.file(*id)?))))
                .collect(),
            ends: (disks.iter())
                .map(|disk| (disk.number, group.end_block(disk.number) * BLOCK_SIZE_BYTES))
                .collect(),
            groups: (disks.iter())
                .map(|disk| (disk.number, disk.failure_group.to_string()))
                .collect(),
        }
    }

    /// Why the background work cannot go on, in the group's own words.
    fn stopped_for(&self) -> Option<String> {
        (self.group().operations().into_iter())
            .filter(|operation| operation.state == OperationState::Errors)
            .find_map(|operation| operation.error)
    }

    /// What one more file could get with the most copies that any file has.
    fn has_plenty(&self, wanted_bytes: u64) -> bool {
        let group = self.group();
        let layouts = (self.model.contents.keys())
            .filter_map(|id| group.file(*id))
            .map(|file| group.layout(&file));
        let widest = layouts.max_by_key(|layout| layout.redundancy.copies());
        let failure_groups: BTreeSet<String> = (group.view().disks.into_iter())
            .filter(|disk| disk.state == "normal" && disk.mode == "online")
            .map(|disk| disk.failure_group.to_string())
            .collect();
        widest.is_some_and(|layout| {
            layout.redundancy.copies() <= failure_groups.len()
                && group.usable_bytes(layout) > wanted_bytes + PLENTY_BYTES
        })
    }

    /// Nothing is left of disks that were to leave.
    fn check_disks(&self, stopped: Option<&str>, after: &Held) -> Step<()> {
        let held = after.by_disk();
        for disk in self.group().view().disks {
            if disk.state == "normal" && disk.mode == "online" {
                continue;
            }
            if disk.mode == "offline" && self.is_one_away() {
                continue;
            }
            let held_bytes = held.get(&disk.number).copied().unwrap_or(0);
            let excuse = stopped.filter(|_| !self.has_plenty(held_bytes));
            if excuse.is_none() {
                return Err(Self::wrong(&format!(
                    "disk {} is {} and {} when all work is done, with {held_bytes} bytes on it; \
                     the group says: {stopped:?}",
                    disk.name, disk.mode, disk.state
                )));
            }
        }
        Ok(())
    }

    /// Each extent has its copies, and they are the same.
    fn check_copies(&self, stopped: Option<&str>, maps: &Maps) -> Step<()> {
        let slots: BTreeMap<DiskNumber, _> = (self.members().into_iter())
            .map(|(slot, number)| (number, slot))
            .collect();
        for (id, extents) in maps {
            let wanted =
                (self.group().file(*id)).map(|file| self.group().layout(&file).redundancy.copies());
            for extent in extents {
                let place = format!("extent {} of file {id}", extent.index);
                if wanted.is_some_and(|wanted| extent.copies.len() != wanted) {
                    return Err(Self::wrong(&format!(
                        "{place} has {} places for copies where its file has {wanted:?}",
                        extent.copies.len()
                    )));
                }
                if extent.copies.contains(&None)
                    && (stopped.is_none() || self.has_plenty(extent.length_bytes))
                    && !self.is_one_away()
                {
                    return Err(Self::wrong(&format!(
                        "{place} lacks a copy when all work is done; the group says: {stopped:?}"
                    )));
                }
                let copies: Vec<(DiskNumber, Vec<u8>)> = (extent.copies.iter().flatten())
                    .filter_map(|(disk, at_bytes)| {
                        let slot = slots.get(disk)?;
                        let length = index(extent.initialised_bytes);
                        Some((*disk, self.disks.bytes(*slot, *at_bytes, length)))
                    })
                    .collect();
                let Some(((first, bytes), others)) = copies.split_first() else {
                    continue;
                };
                if let Some((other, _)) = others.iter().find(|(_, other)| other != bytes)
                    && !self.is_one_away()
                {
                    return Err(Self::wrong(&format!(
                        "the copies of {place} on disks {first} and {other} differ"
                    )));
                }
            }
        }
        Ok(())
    }

    /// No more was moved than had to be, as far as that can be told.
    fn check_moved(&self, before: &Held, after: &Held) -> Step<()> {
        if self.left_moves_out {
            // It came to another end than the one for which it moved the others.
            return Ok(());
        }
        moved::judge(before, after).map_err(|excess| Self::wrong(&excess))
    }

    /// Each disk has its share in proportion to its size, no failure group more than one copy of
    /// everything. Told only of groups whose files all have as many copies, and room.
    fn check_shares(&self, after: &Held) -> Step<()> {
        let maps = &after.maps;
        let widths: BTreeSet<usize> = (maps.values().flatten())
            .map(|extent| extent.copies.len())
            .collect();
        let (Some(copies), 1, false) = (widths.first().copied(), widths.len(), self.is_one_away())
        else {
            return Ok(());
        };
        let disks = self.group().view().disks;
        let one_copy_bytes: u64 = (maps.values().flatten())
            .map(|extent| extent.length_bytes)
            .sum();
        let mut groups: BTreeMap<String, u64> = BTreeMap::new();
        for disk in &disks {
            let weight = disk.total_bytes - MIB;
            *groups.entry(disk.failure_group.to_string()).or_default() += weight;
        }
        let shares = group_shares(&groups, one_copy_bytes, copies as u64);
        let held = after.by_disk();
        for disk in &disks {
            let group = disk.failure_group.to_string();
            let share_bytes = of(shares[&group], disk.total_bytes - MIB, groups[&group]);
            if share_bytes > disk.total_bytes * 3 / 4 {
                // What is kept for the catalog counts there.
                return Ok(());
            }
            let held_bytes = held.get(&disk.number).copied().unwrap_or(0);
            if held_bytes.abs_diff(share_bytes) > SHARE_SLACK_BYTES + share_bytes / 100 {
                return Err(Self::wrong(&format!(
                    "disk {} of {} bytes holds {held_bytes} where its share is {share_bytes}; \
                     all: {}",
                    disk.name,
                    disk.total_bytes,
                    text(held.iter())
                )));
            }
        }
        Ok(())
    }

    /// A rebalance of a group at rest; where all is even already it moves next to nothing.
    fn rebalance_once_more(&mut self) -> Step<()> {
        self.left_moves_out = false;
        let before = self.held();
        let result = self.group().rebalance().map_err(FsError::Group);
        if !matches!(self.judge("a further rebalance", result)?, Answer::Done(())) {
            return Ok(());
        }
        self.work_to_rest()?;
        self.check_moved(&before, &self.held())
    }
}

/// What each failure group should have: in proportion, at most one copy, the rest to the others.
fn group_shares(
    groups: &BTreeMap<String, u64>,
    one_copy_bytes: u64,
    copies: u64,
) -> BTreeMap<String, u64> {
    let mut shares = BTreeMap::new();
    loop {
        let open: BTreeMap<&String, u64> = (groups.iter())
            .filter(|(name, _)| !shares.contains_key(*name))
            .map(|(name, weight)| (name, *weight))
            .collect();
        let weight: u64 = open.values().sum();
        let left_bytes = (copies * one_copy_bytes).saturating_sub(shares.values().sum());
        let full: Vec<&String> = (open.iter())
            .filter(|(_, own)| of(left_bytes, **own, weight) >= one_copy_bytes)
            .map(|(name, _)| *name)
            .collect();
        if full.is_empty() {
            for (name, own) in open {
                shares.insert(name.clone(), of(left_bytes, own, weight));
            }
            return shares;
        }
        for name in full {
            shares.insert(name.clone(), one_copy_bytes);
        }
    }
}

/// `part` in `whole` of `bytes`.
fn of(bytes: u64, part: u64, whole: u64) -> u64 {
    let product = u128::from(bytes) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(product).unwrap_or(u64::MAX)
}
