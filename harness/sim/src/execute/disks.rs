//! Operations on the disks of the group, and the background work that follows from them.

use std::sync::Arc;

use spindle_base::{DiskNumber, FileId};
use spindle_device::DiskSlot;
use spindle_fs::FsError;
use spindle_group::{
    EventKind, FindingKind, Group, GroupError, GroupErrorKind, NewDisk, Power, RepairTime,
    ScrubScope, ScrubState, ScrubStep, ScrubWish,
};

use crate::disk_operation::DiskOperation;
use crate::fault::pick;
use crate::run::{Answer, Run, Step, Stop};

const MIB: u64 = 1 << 20;
/// More disks would make a run long and show nothing more.
const MEMBERS_MAX: usize = 8;
const DEVICES_MAX: usize = 14;
/// A scrub looks again at what looked wrong after 40 s; its clock goes on by this much.
const SCRUB_TICK_MS: u64 = 41_000;
/// Units after which a scrub of these small disks must have ended.
const SCRUB_UNITS_MAX: u64 = 10_000;

/// What a refused change must leave as it was: number, state and size of each disk.
type Standings = Vec<(DiskNumber, String, u64)>;

impl Run {
    pub(super) fn execute_on_disks(&mut self, operation: DiskOperation) -> Step<()> {
        use DiskOperation as Op;
        match operation {
            Op::Add {
                size_mib,
                failure_group,
                again,
            } => self.add_disk(size_mib, failure_group, again),
            Op::Drop { disk, force } => self.change_member(disk, "drop", |group, number| {
                group.drop_disks(&[number], force)
            }),
            Op::Undrop { disk } => self.undrop_disk(disk),
            Op::Replace { disk, size_mib } => self.replace_disk(disk, size_mib),
            Op::Resize {
                disk,
                size_mib,
                device_grows,
            } => self.resize_disk(disk, size_mib * MIB, device_grows),
            Op::Offline { disk } => self.offline_disk(disk),
            Op::Return { disk, by_itself } => self.return_disk(disk, by_itself),
            Op::Work { units } => self.work(units),
            Op::Power { number } => {
                let power = Power::new(number).map_err(|error| refused_power(&error))?;
                let result = self.group().set_power(power).map_err(FsError::Group);
                self.judge("setting the power", result).map(drop)
            }
            Op::Rebalance => {
                let result = self.group().rebalance().map_err(FsError::Group);
                self.judge("asking for a rebalance", result).map(drop)
            }
            Op::Convert { file, number } => self.convert(file, number),
            Op::Scrub { units, repair } => self.scrub(units, repair),
            Op::FlipCopy { file, place } => self.flip_copy(file, place),
            Op::Slow { disk } => self.slow_disk(disk),
            Op::RepairTime { seconds } => {
                for of in [RepairTime::Disk, RepairTime::FailureGroup] {
                    let result = self.group().set_repair_time(of, seconds);
                    let result = result.map_err(FsError::Group);
                    if !matches!(self.judge("a repair time", result)?, Answer::Done(())) {
                        break;
                    }
                }
                Ok(())
            }
        }
    }

    pub(crate) fn group(&self) -> Arc<Group> {
        Arc::clone(self.system().group())
    }

    pub(super) fn member(&self, disk: u64) -> Option<(DiskSlot, DiskNumber)> {
        pick(&self.members(), disk)
    }

    fn standings(&self) -> Standings {
        (self.group().view().disks.into_iter())
            .map(|disk| (disk.number, disk.state, disk.total_bytes))
            .collect()
    }

    /// Makes a change of the disks. One that is refused must have changed nothing.
    fn change_disks<T>(
        &mut self,
        what: &str,
        change: impl FnOnce(&Group) -> Result<T, GroupError>,
    ) -> Step<Answer<T>> {
        let before = self.standings();
        let result = change(&self.group());
        self.take_events();
        match result {
            Ok(value) => {
                self.coverage.disk_changes += 1;
                Ok(Answer::Done(value))
            }
            Err(error) if self.disks.is_powered() && self.is_refusal(&error) => {
                self.note(format!("{what} refused: {error}"));
                self.coverage.refused_changes += 1;
                let after = self.standings();
                if before != after {
                    return Err(Self::wrong(&format!(
                        "{what} was refused ({error}), and the disks were {before:?} and are \
                         {after:?}"
                    )));
                }
                Ok(Answer::Failed)
            }
            Err(error) => self.judge(what, Err(FsError::Group(error))),
        }
    }

    /// Whether the group may say no, and has done nothing then.
    pub(super) fn is_refusal(&self, error: &GroupError) -> bool {
        use GroupErrorKind as Kind;
        match error.kind {
            Kind::Invalid | Kind::NotFound | Kind::NotEnough | Kind::Busy => true,
            Kind::Io => {
                self.faults_count > 0 && !self.is_lost_majority(&FsError::Group(error.clone()))
            }
            _ => false,
        }
    }

    fn change_member(
        &mut self,
        disk: u64,
        what: &str,
        change: impl FnOnce(&Group, DiskNumber) -> Result<(), GroupError>,
    ) -> Step<()> {
        let Some((slot, number)) = self.member(disk) else {
            return Ok(());
        };
        self.note(format!("{what}: disk {number} in slot {}", slot.0));
        self.change_disks(what, |group| change(group, number))
            .map(drop)
    }

    fn add_disk(&mut self, size_mib: u64, failure_group: u64, again: bool) -> Step<()> {
        if self.members().len() >= MEMBERS_MAX {
            return Ok(());
        }
        let former: Vec<DiskSlot> = (self.slots().into_iter())
            .filter(|slot| self.number_of(*slot).is_none())
            .collect();
        let slot = match pick(&former, size_mib) {
            Some(slot) if again || self.shelf.len() >= DEVICES_MAX => slot,
            _ => {
                // One of those that are there, or a new one.
                let groups = (self.shelf.iter())
                    .map(|disk| disk.failure_group)
                    .max()
                    .map_or(1, |last| last + 2);
                self.attach(size_mib * MIB, failure_group % groups)
            }
        };
        let new = self.joining(slot);
        self.note(format!(
            "slot {} of {} MiB joins {}",
            slot.0,
            self.shelf_disk(slot).size_bytes / MIB,
            new.failure_group
        ));
        let answer = self.change_disks("add", |group| group.add_disks(&[new]))?;
        if let Answer::Done(_) = answer {
            self.coverage.disks_added += 1;
        }
        Ok(())
    }

    /// One that is being dropped, where there is one.
    fn undrop_disk(&mut self, disk: u64) -> Step<()> {
        let dropping: Vec<DiskNumber> = (self.group().view().disks.into_iter())
            .filter(|disk| disk.state == "dropping")
            .map(|disk| disk.number)
            .collect();
        let any = self.member(disk).map(|(_, number)| number);
        let Some(number) = pick(&dropping, disk).or(any) else {
            return Ok(());
        };
        let answer = self.change_disks("undrop", |group| group.undrop_disks(&[number]))?;
        if let Answer::Done(()) = answer {
            self.coverage.undrops += 1;
        }
        Ok(())
    }

    fn replace_disk(&mut self, disk: u64, size_mib: u64) -> Step<()> {
        let Some((old_slot, old)) = self.member(disk) else {
            return Ok(());
        };
        if self.shelf.len() >= DEVICES_MAX {
            return Ok(());
        }
        let former = self.shelf_disk(old_slot);
        // Too small in some runs, which is refused.
        let size_bytes = (size_mib * MIB).max(former.size_bytes - 2 * MIB);
        let slot = self.attach(size_bytes, former.failure_group);
        let new: NewDisk = self.joining(slot);
        self.note(format!("slot {} in place of disk {old}", slot.0));
        let answer = self.change_disks("replace", |group| group.replace_disk(old, &new))?;
        if let Answer::Done(_) = answer {
            self.coverage.replacements += 1;
        }
        Ok(())
    }

    fn resize_disk(&mut self, disk: u64, size_bytes: u64, device_grows: bool) -> Step<()> {
        let Some((slot, number)) = self.member(disk) else {
            return Ok(());
        };
        if device_grows && size_bytes > self.shelf_disk(slot).size_bytes {
            self.disks.resize(slot, size_bytes);
            self.shelf[usize::from(slot.0)].size_bytes = size_bytes;
        }
        self.note(format!("disk {number} is to have {} MiB", size_bytes / MIB));
        let answer = self.change_disks("resize", |group| group.resize_disk(number, size_bytes))?;
        if let Answer::Done(()) = answer {
            self.coverage.resizes += 1;
        }
        Ok(())
    }

    /// Only disks that may fail: with another one away, what they hold would be beyond the
    /// redundancy.
    fn offline_disk(&mut self, disk: u64) -> Step<()> {
        let mut members = self.members();
        members.retain(|(slot, _)| self.shelf_disk(*slot).may_fail);
        let Some((_, number)) = pick(&members, disk) else {
            return Ok(());
        };
        self.faults_count += 1;
        self.note(format!("disk {number} is taken offline"));
        let answer = self.change_disks("offline", |group| group.offline_disks(&[number]))?;
        if let Answer::Done(()) = answer {
            self.coverage.offlines += 1;
        }
        Ok(())
    }

    /// Disks that are away and not given up.
    pub(crate) fn away_slots(&self) -> Vec<DiskSlot> {
        (self.group().away_disks().into_iter())
            .filter_map(|number| self.slot_of(number))
            .collect()
    }

    fn return_disk(&mut self, disk: u64, by_itself: bool) -> Step<()> {
        let away = self.away_slots();
        let all = self.failing_slots();
        let Some(slot) = pick(&away, disk).or_else(|| pick(&all, disk)) else {
            return Ok(());
        };
        if self.disks.is_vanished(slot) && !away.contains(&slot) {
            // Its cache went with its power: back before anybody noticed, it would have lied.
            return Ok(());
        }
        self.disks.bring_back(slot);
        self.disks.clear_faults(slot);
        self.note(format!("slot {} comes back", slot.0));
        let answer = self.change_disks("return", |group| {
            if by_itself {
                group.return_answering()
            } else {
                group.return_disks(&[slot])
            }
        })?;
        if let Answer::Done(back) = answer {
            self.coverage.returns += back.len() as u64;
        }
        Ok(())
    }

    /// Units of background copying; every other time with a step of the lazy work before.
    fn work(&mut self, units: u64) -> Step<()> {
        if units.is_multiple_of(2) {
            self.background(2)?;
        }
        for _ in 0..units {
            if self.work_once()?.is_none() {
                break;
            }
        }
        self.take_events();
        Ok(())
    }

    /// The bytes that were copied, or none where there is nothing to do.
    pub(crate) fn work_once(&mut self) -> Step<Option<u64>> {
        if !self.disks.is_powered() {
            return Ok(None);
        }
        self.work_ms += 10;
        let result = self.group().work(self.work_ms);
        let result = result.map_err(FsError::Group);
        match self.judge("background work", result)? {
            Answer::Done(worked) if worked.did_something => {
                self.coverage.work_units += 1;
                self.coverage.copied_bytes += worked.copied_bytes;
                Ok(Some(worked.copied_bytes))
            }
            _ => Ok(None),
        }
    }

    fn scrub(&mut self, units: u64, repair: bool) -> Step<()> {
        let is_running = (self.group().scrub_view())
            .is_some_and(|view| !matches!(view.state, ScrubState::Done | ScrubState::Stopped));
        if !is_running && !self.start_scrub(repair)? {
            return Ok(());
        }
        for _ in 0..units {
            if !self.scrub_once()? {
                break;
            }
        }
        self.take_events();
        self.judge_scrub()
    }

    fn start_scrub(&mut self, repair: bool) -> Step<bool> {
        let wish = ScrubWish {
            scope: ScrubScope::Group,
            title: "SIM".to_owned(),
            repair,
            power: 11,
            distrust: None,
        };
        match self.group().start_scrub(wish) {
            // One that a power cut interrupted goes on.
            Err(error) if error.kind == GroupErrorKind::Busy => Ok(true),
            result => {
                let result = result.map_err(FsError::Group);
                Ok(matches!(self.judge("a scrub", result)?, Answer::Done(())))
            }
        }
    }

    fn scrub_once(&mut self) -> Step<bool> {
        let result = self.group().scrub_unit(self.work_ms);
        let result = result.map_err(FsError::Group);
        match self.judge("a unit of a scrub", result)? {
            Answer::Done(ScrubStep::Did) => Ok(true),
            Answer::Done(ScrubStep::Waiting) => {
                self.work_ms += SCRUB_TICK_MS;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// A scrub finds nothing but what faults have made of single copies.
    fn judge_scrub(&mut self) -> Step<()> {
        let Some(view) = self.group().scrub_view() else {
            return Ok(());
        };
        if self.may_be_lost() || !self.disks.is_powered() {
            return Ok(());
        }
        let wrong = view.findings.iter().find(|finding| {
            matches!(
                finding.kind,
                FindingKind::CopiesDiffer | FindingKind::BadPage | FindingKind::Unreadable
            )
        });
        match wrong {
            None => Ok(()),
            Some(finding) => Err(Self::wrong(&format!(
                "a scrub found {:?} in file {} at {}: {}",
                finding.kind, finding.file, finding.offset_bytes, finding.message
            ))),
        }
    }

    /// Flips a bit of one copy, lets a scrub look, and takes the bit back. Without a checksum
    /// nothing proves which copy is right: it must be told of, and nothing may be written.
    fn flip_copy(&mut self, file: u64, place: u64) -> Step<()> {
        if self.faults_count > 0 {
            return Ok(());
        }
        self.sync()?;
        // One that runs, or that a power cut interrupted, would only look at what is left of it.
        while self.disks.is_powered() && self.scrub_once()? {}
        let Some((id, slot, at_bytes)) = self.place_of_copy(file, place) else {
            return Ok(());
        };
        if !self.disks.is_powered() || self.disks.unsynced_count(slot) > 0 {
            return Ok(());
        }
        let before = self.disks.bytes(slot, at_bytes, 1);
        self.note(format!(
            "flips a bit of file {id} in slot {}, byte {at_bytes}",
            slot.0
        ));
        self.disks.flip_bits(slot, at_bytes..at_bytes + 1, 1);
        let found = self.scrub_whole();
        self.disks.overwrite(slot, at_bytes, &before);
        if !self.disks.is_powered() {
            return found.map(drop);
        }
        self.coverage.flipped_copies += 1;
        if found?
            .iter()
            .any(|(kind, file)| *kind == FindingKind::CopiesDiffer && *file == id)
        {
            return Ok(());
        }
        Err(Self::wrong(&format!(
            "a scrub did not find that the copies of file {id} differ"
        )))
    }

    /// A scrub of everything: what it found.
    fn scrub_whole(&mut self) -> Step<Vec<(FindingKind, FileId)>> {
        if !self.start_scrub(true)? {
            return Ok(Vec::new());
        }
        for _ in 0..SCRUB_UNITS_MAX {
            if !self.scrub_once()? {
                let view = self.group().scrub_view();
                return Ok(view.map_or_else(Vec::new, |view| {
                    (view.findings.iter())
                        .map(|finding| (finding.kind, finding.file))
                        .collect()
                }));
            }
        }
        Err(Self::wrong("a scrub does not end"))
    }

    /// A byte that one of several copies holds.
    fn place_of_copy(&self, file: u64, place: u64) -> Option<(FileId, DiskSlot, u64)> {
        let group = self.group();
        let files: Vec<FileId> = (self.model.contents.keys().copied())
            .filter(|id| {
                group
                    .file(*id)
                    .is_some_and(|file| group.layout(&file).redundancy.copies() > 1)
            })
            .collect();
        let id = pick(&files, file)?;
        let extents: Vec<_> = (group.map(&*group.file(id)?).into_iter())
            .filter(|extent| extent.initialised_bytes > 0 && !extent.copies.contains(&None))
            .collect();
        let extent = &extents[usize::try_from(place.checked_rem(extents.len() as u64)?).ok()?];
        let copies: Vec<(DiskNumber, u64)> = extent.copies.iter().flatten().copied().collect();
        let (disk, start_bytes) = pick(&copies, place >> 8)?;
        let at_bytes = start_bytes + (place >> 12) % extent.initialised_bytes;
        Some((id, self.slot_of(disk)?, at_bytes))
    }

    /// What the group tells of goes into the trace and the counts.
    pub(crate) fn take_events(&mut self) {
        for event in self.group().take_events() {
            match event.kind {
                EventKind::DiskDropped => self.coverage.disks_dropped += 1,
                EventKind::RebalanceStarted => self.planned_bytes = bytes_of(&event.message),
                EventKind::RebalanceEnded => {
                    self.coverage.rebalances += 1;
                    let moved_bytes = bytes_of(&event.message);
                    self.left_moves_out |= moved_bytes < self.planned_bytes;
                }
                EventKind::RestoreEnded => self.coverage.restores += 1,
                EventKind::ResyncEnded => self.coverage.resyncs += 1,
                EventKind::ScrubEnded => self.coverage.scrubs += 1,
                EventKind::DiskSlow => self.coverage.slow_disks += 1,
                EventKind::RepairTimeOver => self.coverage.given_up += 1,
                EventKind::RebalanceStopped | EventKind::RestoreStopped => self.stops_count += 1,
                _ => {}
            }
            self.note(format!("event: {event}"));
            if event.kind == EventKind::DiskPassedOver && event.message.contains("older image") {
                self.wrongly_left_out = Some(event.message);
            }
        }
    }
}

/// The bytes that an event of a rebalance tells.
fn bytes_of(message: &str) -> u64 {
    let mut numbers = message.split(' ').filter_map(|word| word.parse().ok());
    numbers.next_back().unwrap_or(0)
}

fn refused_power(error: &GroupError) -> Stop {
    Stop::Violation(format!("a power is refused: {error}"))
}
