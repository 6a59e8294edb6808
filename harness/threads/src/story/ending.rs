//! The end: the power comes back, the group is opened again, every disk returns, the background
//! work comes to rest, and what is there is judged.

use std::sync::Arc;

use spindle_base::DiskNumber;
use spindle_device::{DiskSlot, SeededRandom};
use spindle_group::{Group, GroupErrorKind, Power};

use super::flushing::Flushing;
use super::{Plot, Story, Subject, scene};
use crate::history::{BLOCK_BYTES, shown};

/// Units after which the work on these few extents must have ended.
const UNITS_MOST: u64 = 20_000;

impl Story {
    /// See the module.
    pub fn end(&mut self, group: Arc<Group>, was_cut: bool) {
        if !self.history.is_clean() {
            // What broke a promise is in no state to be asked more.
            return;
        }
        if self.history.has_stopped() {
            return self.end_of_a_stop(group);
        }
        let mut random = self.random(99);
        let mut spoilt = None;
        if !was_cut {
            if self.plot == Plot::Flushes(Flushing::BesideOutage) && !self.settle(&group) {
                return;
            }
            self.judge_files(&group, false);
            spoilt = self.draw_spoilt(&group, &mut random);
            self.disks.crash();
        }
        drop(group);
        self.disks.restart();
        let is_with_second =
            spoilt.is_none() && self.plot == Plot::Everything && random.chance(1, 2);
        if is_with_second {
            self.die_with_the_power(&mut random);
        }
        // Some come back only later, as those of a controller that starts slowly.
        let away: Vec<DiskSlot> = (self.fallible().into_iter())
            .filter(|slot| self.disks.is_vanished(*slot))
            .collect();
        self.spoil(spoilt, &mut random);
        if random.chance(1, 2) {
            for slot in &away {
                self.disks.bring_back(*slot);
            }
        }
        let vanishes = is_with_second.then(|| self.vanish_at_openings(&mut random));
        self.history
            .note(|| format!("opening again; {away:?} were away"));
        let mut opened = match self.plot {
            Plot::Places => self.open_with_bad_reads(&mut random),
            _ => scene::open(&self.access, &self.disks, 2),
        };
        if let Err(error) = &opened
            && error.kind == GroupErrorKind::NoMajority
            && self.has_only_vote_among(&away)
        {
            self.history.note(|| format!("refused: {error}"));
            away.iter().for_each(|slot| self.disks.bring_back(*slot));
            opened = scene::open(&self.access, &self.disks, 3);
        }
        let group = match opened {
            Ok(group) => group,
            Err(error) => {
                self.history
                    .violate(format!("the group cannot be opened again: {error}"));
                return;
            }
        };
        if let Some(slot) = vanishes
            && Self::is_offline(&group, slot)
            && !self.bring_online(&group, slot)
        {
            return;
        }
        self.judge_files(&group, true);
        for slot in away {
            self.disks.bring_back(slot);
        }
        if let Some(spoilt) = spoilt
            && !self.mend_spoilt(&group, spoilt)
        {
            return;
        }
        if self.plot.has_conversions() && self.bring_to_rest(&group) {
            // They have two copies again, which are judged as others are.
            self.convert_all_back(&group);
            (self.files.iter_mut()).for_each(|subject| subject.is_mirrored = true);
        }
        if self.bring_to_rest(&group) && self.keep_what_must_not_go(&group) {
            self.judge_copies(&group);
            self.judge_files(&group, true);
        }
    }

    /// One disk of the second failure group does not survive the power cut, in one run of two.
    fn die_with_the_power(&self, random: &mut SeededRandom) {
        let candidates = self.fallible();
        let is_away = candidates.iter().any(|slot| self.disks.is_vanished(*slot));
        if random.chance(1, 2) && !is_away {
            self.disks
                .vanish(candidates[random.index(candidates.len())]);
        }
    }

    /// A disk of the first failure group vanishes at some request of an opening, or soon after it, and is
    /// back before the next one. What it alone has, because another one is away, nobody may lose: such an
    /// opening is refused, or the disk has it when it is taken back. Which disk it is.
    fn vanish_at_openings(&self, random: &mut SeededRandom) -> DiskSlot {
        let candidates: Vec<DiskSlot> = (self.all_slots())
            .filter(|slot| scene::failure_group(*slot) == 0)
            .collect();
        let slot = candidates[random.index(candidates.len())];
        // Else a copy may have no other one.
        self.all_slots()
            .for_each(|slot| self.disks.clear_faults(slot));
        for opening in 0..1 + u8::try_from(random.below(2)).expect("few") {
            let requests = 1 + random.below(90);
            self.disks.vanish_after(slot, requests);
            let opened = scene::open(&self.access, &self.disks, 20 + opening);
            self.history.note(|| {
                let answer = opened
                    .as_ref()
                    .map(|_| "it is open")
                    .map_err(ToString::to_string);
                format!(
                    "slot {} vanishes after {requests} requests of an opening: {answer:?}",
                    slot.0
                )
            });
            if let Ok(group) = &opened {
                for _ in 0..random.below(4) {
                    let _ = group.step(self.later_ms(1000));
                }
            }
            self.disks.crash();
            drop(opened);
            self.disks.restart();
            self.disks.bring_back(slot);
        }
        slot
    }

    /// With all of its disks a group that stopped goes on, and has what was synced.
    fn end_of_a_stop(&self, group: Arc<Group>) {
        drop(group);
        self.disks.restart();
        self.all_slots()
            .for_each(|slot| self.disks.bring_back(slot));
        match scene::open(&self.access, &self.disks, 2) {
            Ok(group) => self.judge_files(&group, true),
            Err(error) => self
                .history
                .violate(format!("a group that stopped cannot be opened: {error}")),
        }
    }

    /// Before a crash that would meet a second failure every copy is made equal, and what is lost is
    /// told.
    fn settle(&self, group: &Group) -> bool {
        self.sync_all(group);
        if !self.bring_to_rest(group) {
            return false;
        }
        for subject in &self.files {
            if let Some(file) = group.file(subject.id) {
                let begun = self.history.tick();
                let answer = group.sync_file(&file, true);
                self.history.end_sync(subject.id, begun, answer.is_ok());
            }
        }
        // What could be lost was told by these.
        let begun = self.history.tick();
        if self
            .judge("a sync of what lacks nothing", group.sync())
            .is_some()
        {
            for subject in &self.files {
                self.history.end_sync(subject.id, begun, true);
            }
        }
        self.judge_copies(group);
        self.history.is_clean()
    }

    /// Whether the newest state that all its voters hold, as far as they are here, has but one vote
    /// for each failure group, and the second one's is of these: where its other disk was dropped, or
    /// was offline (the state of its return may have reached some others before the power went). Then
    /// neither half goes on without the other.
    fn has_only_vote_among(&self, away: &[DiskSlot]) -> bool {
        let slots: Vec<DiskSlot> = (0..u16::try_from(self.disks.disk_count()).expect("few"))
            .map(DiskSlot)
            .filter(|slot| !self.disks.is_vanished(*slot))
            .collect();
        let looks = spindle_group::look(&*self.access, &slots);
        let states_of = |look: &'_ spindle_group::DiskLook| {
            look.states.clone().map(|found| found.state().cloned())
        };
        let held: Vec<_> = looks.iter().map(states_of).collect();
        let is_held = |voter: DiskNumber, epoch: u64| {
            (slots.iter().zip(&held))
                .filter(|(slot, _)| slot.0 == voter.0)
                .all(|(_, states)| states.iter().flatten().any(|state| state.epoch == epoch))
        };
        (held.iter().flatten().flatten())
            .filter(|state| state.voters().all(|voter| is_held(voter, state.epoch)))
            .max_by_key(|state| state.epoch)
            .is_some_and(|state| {
                let voters: Vec<DiskSlot> =
                    (state.voters()).map(|number| DiskSlot(number.0)).collect();
                voters.len() == 2 && voters.iter().any(|voter| away.contains(voter))
            })
    }

    /// Where broken places took every other disk of the second failure group offline while one of
    /// it was being dropped, nothing new has a second copy: what is being dropped gets nothing.
    /// Whoever keeps that disk after all gets every copy back.
    fn keep_what_must_not_go(&self, group: &Group) -> bool {
        let online: Vec<DiskNumber> = (group.view().disks.iter())
            .filter(|disk| {
                disk.mode != "offline" && scene::failure_group(DiskSlot(disk.number.0)) == 1
            })
            .map(|disk| disk.number)
            .collect();
        let leaving: Vec<DiskNumber> = (group.view().disks.iter())
            .filter(|disk| online.contains(&disk.number) && disk.state == "dropping")
            .map(|disk| disk.number)
            .collect();
        if leaving.is_empty() || leaving.len() < online.len() {
            return true;
        }
        self.history
            .note(|| format!("disks {leaving:?} are kept: no other can have second copies"));
        self.judge("a drop taken back", group.undrop_disks(&leaving));
        self.history.is_clean() && self.bring_to_rest(group)
    }

    pub(super) fn judge_files(&self, group: &Group, was_cut: bool) {
        for Subject { id, is_mirrored } in &self.files {
            let Some(file) = group.file(*id) else {
                self.history.violate(format!("file {id} is gone"));
                continue;
            };
            let extents = group.map(&file);
            let of_bytes = |bytes: u64| bytes / BLOCK_BYTES as u64;
            let held: Vec<(u64, u64)> = (extents.iter())
                .map(|extent| {
                    let end_bytes = extent.offset_bytes + extent.length_bytes;
                    (of_bytes(extent.offset_bytes), of_bytes(end_bytes))
                })
                .collect();
            self.history.judge_holes(*id, &held, was_cut);
            for extent in extents {
                self.history.note(|| format!("{id}: {extent:?}"));
                let mut bytes = vec![0xee; usize::try_from(extent.length_bytes).expect("small")];
                match group.read(&file, extent.offset_bytes, &mut bytes) {
                    Ok(()) => self.history.judge_end(
                        *id,
                        extent.offset_bytes / BLOCK_BYTES as u64,
                        &bytes,
                        was_cut,
                    ),
                    // The disk of its only copy is away.
                    Err(_) if !is_mirrored => {}
                    Err(error) => self
                        .history
                        .violate(format!("{id} cannot be read: {error}")),
                }
            }
        }
    }

    pub(super) fn bring_to_rest(&self, group: &Group) -> bool {
        let away: Vec<DiskSlot> = (group.view().disks.iter())
            // One that was given up does not come back.
            .filter(|disk| disk.mode == "offline" && disk.state != "absent")
            .map(|disk| DiskSlot(disk.number.0))
            .collect();
        for slot in away {
            if let Err(error) = group.return_disks(&[slot]) {
                self.history.violate(format!(
                    "slot {} is not taken back at the end: {error}",
                    slot.0
                ));
                return false;
            }
        }
        self.judge("setting the power", group.set_power(Power::MAX));
        for _ in 0..3 {
            for _ in 0..8 {
                let now_ms = self.later_ms(6000);
                while self.judge("a step", group.step(now_ms)) == Some(true) {}
            }
            let mut units = 0;
            while self.history.is_clean() {
                let now_ms = self.later_ms(1);
                match self.judge("background work", group.work(now_ms)) {
                    Some(worked) if worked.did_something => units += 1,
                    _ => break,
                }
                if units > UNITS_MOST {
                    self.history
                        .violate("the background work does not end".to_owned());
                }
            }
        }
        let left_bytes = group.view().resync_left_bytes;
        // What the only copy lost, nobody can copy to it.
        if left_bytes > 0 && self.files.iter().all(|subject| subject.is_mirrored) {
            self.history.violate(format!(
                "{left_bytes} bytes are still stale at the end: {:?}; {:?}",
                group.operations(),
                group.take_events()
            ));
        }
        match self.judge("a check", group.check()) {
            Some(lines) if lines.is_empty() => {}
            Some(lines) => self
                .history
                .violate(format!("the check found: {}", lines.join("; "))),
            None => {}
        }
        self.history.is_clean()
    }

    /// Every copy of what is initialised has the same bytes. A disk that went offline again, as one
    /// does that cannot be written where it must be, is known to lack what it missed.
    pub(super) fn judge_copies(&self, group: &Group) {
        let view = group.view();
        let offline: Vec<DiskNumber> = (view.disks.iter())
            .filter(|disk| disk.mode == "offline")
            .map(|disk| disk.number)
            .collect();
        // Where broken places took all of the second failure group offline nothing can be mirrored.
        let can_mirror = (view.disks.iter()).any(|disk| {
            disk.mode != "offline" && scene::failure_group(DiskSlot(disk.number.0)) == 1
        });
        for Subject { id, is_mirrored } in &self.files {
            let Some(file) = group.file(*id).filter(|_| *is_mirrored) else {
                continue;
            };
            for extent in group.map(&file) {
                let length = usize::try_from(extent.initialised_bytes).expect("small");
                if (extent.copies.iter().flatten()).any(|(disk, _)| offline.contains(disk)) {
                    continue;
                }
                let copies: Vec<Vec<u8>> = (extent.copies.iter().flatten())
                    .map(|(disk, offset)| self.disks.bytes(DiskSlot(disk.0), *offset, length))
                    .collect();
                if copies.len() < 2 && !can_mirror {
                    continue;
                }
                if copies.len() < 2 {
                    self.history.violate(format!(
                        "extent {} of {id} has {} copies at the end",
                        extent.index,
                        copies.len()
                    ));
                } else if copies.iter().any(|copy| *copy != copies[0]) {
                    let differs = |block: &usize| {
                        let range = block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES;
                        copies
                            .iter()
                            .any(|copy| copy[range.clone()] != copies[0][range.clone()])
                    };
                    let blocks: Vec<usize> = (0..length / BLOCK_BYTES).filter(differs).collect();
                    let first_block = extent.offset_bytes / BLOCK_BYTES as u64;
                    let shown: Vec<String> = (copies.iter())
                        .map(|copy| {
                            let from = blocks[0] * BLOCK_BYTES;
                            let bytes = &copy[from..from + BLOCK_BYTES];
                            shown(*id, first_block + blocks[0] as u64, bytes)
                        })
                        .collect();
                    self.history.violate(format!(
                        "the copies of extent {} of {id} differ in its blocks {blocks:?} (it begins \
                         at block {first_block} of the file): {:?} show {shown:?}",
                        extent.index, extent.copies
                    ));
                }
            }
        }
    }
}
