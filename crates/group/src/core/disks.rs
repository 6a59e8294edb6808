//! The group's disks as the data path sees them: where each is open, whether it is online, how
//! much was asked of it, and how far it was flushed.
//!
//! Invariant: a disk that the membership says is offline is neither read nor written for file
//! data; the membership says so only when it is durable.
//!
//! A write gets its number here and nowhere else, when the disks have answered it
//! ([`DiskTable::write`]): a flush that began before covers nothing of it, and one that begins
//! later covers all of it. It belongs to the incarnation in which it went out.

mod away;
mod flush;
mod open_slot;
mod slow;
mod written;

use spindle_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

use smallvec::SmallVec;
use spindle_base::{AuSize, DiskName, DiskNumber, FailureGroupName};
use spindle_device::{DeviceError, DiskSlot, Disks, Operation, Request};
use spindle_extent::map::Extent;
use spindle_extent::placement::{Candidate, Placement};
use spindle_extent::plan::Serving;
use spindle_format::ExtentCopy;
use spindle_sync::level::LeafRwLock;
use spindle_sync::{Fault, is_put_back};

use crate::by_number::ByNumber;
use crate::incarnation::{Incarnation, Life};
use crate::quorum::{Failures, Membership};

pub(crate) use away::{Away, away_key};
pub use flush::{FailedFlush, Fate, Flushed, Flushes, Target};
pub(crate) use open_slot::{NotedOutages, OpenSlot};
pub use slow::{ReadTotals, SlowDisks, Verdict};
pub use written::Written;

/// Added to what a slow disk has under way, so that its copies are chosen last.
const SLOW_COUNT: u32 = 1 << 20;

/// In place of a slot or a failure group: there is none.
const NONE: u32 = u32::MAX;

/// What was asked of a disk since the group was opened.
#[derive(Debug, Default)]
pub struct Counters {
    pub reads_count: AtomicU64,
    pub writes_count: AtomicU64,
    pub read_bytes: AtomicU64,
    pub written_bytes: AtomicU64,
    pub read_errors_count: AtomicU64,
    pub write_errors_count: AtomicU64,
}

/// What a new entry of the table begins with.
#[derive(Debug)]
pub struct NewDiskState {
    pub number: DiskNumber,
    pub name: DiskName,
    pub failure_group: FailureGroupName,
    /// The failure group as a small number.
    pub group_index: u16,
    /// Where it is open; `None` where it was not found.
    pub slot: Option<DiskSlot>,
    /// What the group uses of it.
    pub total_bytes: u64,
    /// Whether it may hold data: quorum disks do not.
    pub holds_data: bool,
}

/// One disk of the group. What can change of it changes in place: readers of the data path hold
/// a plain reference.
#[derive(Debug)]
pub struct DiskState {
    pub number: DiskNumber,
    pub failure_group: FailureGroupName,
    /// The failure group as a small number.
    pub group_index: u16,
    /// Whether it may hold data: quorum disks do not.
    pub holds_data: bool,
    pub counters: Counters,
    name: LeafRwLock<DiskName>,
    slot: OpenSlot,
    total_bytes: AtomicU64,
    /// It answers much slower than its peers: its copies are read last.
    pub is_slow: AtomicBool,
    /// Reads in a row that it did not answer at all.
    pub unanswered_count: AtomicU32,
    noted: NotedOutages,
    /// The group has forgotten it; no map names it.
    forgotten: AtomicBool,
    membership: Arc<Membership>,
}

impl DiskState {
    fn new(new: NewDiskState, membership: Arc<Membership>) -> Self {
        Self {
            number: new.number,
            failure_group: new.failure_group,
            group_index: new.group_index,
            holds_data: new.holds_data,
            counters: Counters::default(),
            name: LeafRwLock::new(new.name),
            slot: OpenSlot::new(new.slot),
            total_bytes: AtomicU64::new(new.total_bytes),
            is_slow: AtomicBool::new(false),
            unanswered_count: AtomicU32::new(0),
            noted: NotedOutages::default(),
            forgotten: AtomicBool::new(false),
            membership,
        }
    }

    /// Its name.
    pub fn name(&self) -> DiskName {
        self.name.read().clone()
    }

    /// Where it is open; `None` where it was not found.
    pub fn slot(&self) -> Option<DiskSlot> {
        self.slot.get()
    }

    /// What the group uses of it.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes.load(Ordering::Acquire)
    }

    /// Whether file data may be read and written there.
    pub fn is_online(&self) -> bool {
        self.online_slot().is_some()
    }

    /// The disk as it is now.
    pub fn life(&self) -> Life {
        Life {
            disk: self.number,
            incarnation: self.membership.incarnation(self.number),
        }
    }

    /// Its newest outage, where what it missed by that is not noted yet.
    pub fn outage_to_note(&self) -> Option<Life> {
        let life = self.life();
        self.noted.lacks(life.incarnation).then_some(life)
    }

    /// What the disk missed by the outages before that incarnation is noted.
    pub fn set_noted(&self, incarnation: Incarnation) {
        self.noted.set(incarnation);
    }

    /// Whether new extents may go there: it is online and is not on its way out.
    pub fn may_receive(&self) -> bool {
        self.holds_data && self.is_online() && self.membership.may_receive(self.number)
    }

    /// The slot of an online disk.
    pub fn online_slot(&self) -> Option<DiskSlot> {
        (self.slot).get_where(|| self.membership.is_online(self.number))
    }
}

/// All disks by number, and the way to them. Disks come and go while others do I/O.
#[derive(Debug)]
pub struct DiskTable {
    backend: Arc<dyn Disks>,
    membership: Arc<Membership>,
    disks: ByNumber<DiskState>,
    /// By slot the number of the disk that is open there.
    by_slot: ByNumber<AtomicU32>,
    preferred: Option<FailureGroupName>,
    preferred_group: AtomicU32,
    pub flushes: Flushes,
}

/// The key of a disk's record.
pub(crate) fn disk_key(number: DiskNumber) -> Vec<u8> {
    number.0.to_be_bytes().to_vec()
}

impl DiskTable {
    /// A table of these disks.
    pub fn new(
        backend: Arc<dyn Disks>,
        membership: Arc<Membership>,
        list: Vec<NewDiskState>,
        preferred: Option<&FailureGroupName>,
    ) -> Self {
        let table = Self {
            backend,
            membership,
            disks: ByNumber::default(),
            by_slot: ByNumber::default(),
            preferred: preferred.cloned(),
            preferred_group: AtomicU32::new(NONE),
            flushes: Flushes::default(),
        };
        for disk in list {
            table.add(disk);
        }
        table
    }

    /// Takes in a disk whose number no disk had since the group was opened.
    pub fn add(&self, new: NewDiskState) {
        let (number, slot) = (new.number, new.slot);
        let prefers = self.preferred.as_ref().is_some_and(|name| {
            name.as_str()
                .eq_ignore_ascii_case(new.failure_group.as_str())
        });
        if prefers {
            let group = u32::from(new.group_index);
            self.preferred_group.store(group, Ordering::Release);
        }
        if let Some(slot) = slot {
            self.note_slot(number, slot);
        }
        let mut new = Some(new);
        self.disks.get_or_put(number.0, || {
            let new = new.take().expect("it is asked for once");
            DiskState::new(new, Arc::clone(&self.membership))
        });
        assert!(new.is_none(), "a disk's number was never given before");
    }

    /// The disk is open in that slot from now on.
    pub fn set_slot(&self, number: DiskNumber, slot: DiskSlot) {
        self.note_slot(number, slot);
        if let Some(disk) = self.disks.get(number.0) {
            disk.slot.set(Some(slot));
        }
    }

    /// To be called before the disk is seen with the slot: a write to a slot of which nobody knows whose
    /// it is has no number, and no sync flushes it.
    fn note_slot(&self, number: DiskNumber, slot: DiskSlot) {
        let of_slot = self.by_slot.get_or_put(slot.0, || AtomicU32::new(NONE));
        of_slot.store(u32::from(number.0), Ordering::Release);
    }

    /// The group uses so much of the disk from now on.
    pub fn set_total_bytes(&self, number: DiskNumber, total_bytes: u64) {
        if let Some(disk) = self.disks.get(number.0) {
            disk.total_bytes.store(total_bytes, Ordering::Release);
            // They know where it ends.
            self.membership.keep_clients_off();
        }
    }

    /// The disk has another name from now on.
    pub fn set_name(&self, number: DiskNumber, name: &DiskName) {
        if let Some(disk) = self.disks.get(number.0) {
            *disk.name.write() = name.clone();
        }
    }

    /// The group state no longer knows the disk, and no map names it.
    pub fn forget(&self, number: DiskNumber) {
        let Some(disk) = self.disks.get(number.0) else {
            return;
        };
        disk.forgotten.store(true, Ordering::Release);
        if let Some(slot) = disk.slot()
            && let Some(of_slot) = self.by_slot.get(slot.0)
        {
            of_slot.store(NONE, Ordering::Release);
        }
        disk.slot.set(None);
    }

    /// Whether a disk had that number since the group was opened.
    pub fn knows_number(&self, number: DiskNumber) -> bool {
        self.disks.get(number.0).is_some()
    }

    /// The disk with that number.
    pub fn get(&self, number: DiskNumber) -> Option<&DiskState> {
        let disk = self.disks.get(number.0)?;
        (!disk.forgotten.load(Ordering::Acquire)).then_some(disk)
    }

    /// Whether the disk was set back to an older image, and serves until the group can do without it.
    pub fn is_set_back(&self, number: DiskNumber) -> bool {
        self.membership.is_set_back(number)
    }

    /// Whether the disk is known and serves.
    pub fn is_online(&self, number: DiskNumber) -> bool {
        self.get(number).is_some_and(DiskState::is_online)
    }

    /// Every disk, in the order of the numbers.
    pub fn iter(&self) -> impl Iterator<Item = &DiskState> {
        (self.disks.iter())
            .map(|(_, disk)| disk)
            .filter(|disk| !disk.forgotten.load(Ordering::Acquire))
    }

    /// The size of each disk that holds data.
    pub fn sizes_bytes(&self) -> Vec<(DiskNumber, u64)> {
        (self.iter().filter(|disk| disk.holds_data))
            .map(|disk| (disk.number, disk.total_bytes()))
            .collect()
    }

    /// A person's name for the disk: name and, where it is open, its path.
    pub fn describe(&self, number: DiskNumber) -> String {
        self.get(number).map_or_else(
            || format!("disk {number}"),
            |disk| match disk.slot() {
                Some(slot) => format!("disk {} ({})", disk.name(), self.backend.path(slot)),
                None => format!("disk {}", disk.name()),
            },
        )
    }

    /// The path of a disk that is open.
    pub fn path(&self, disk: &DiskState) -> Option<String> {
        disk.slot().map(|slot| self.backend.path(slot))
    }

    /// Whether the disk still serves as it did then.
    pub fn is_current(&self, life: Life) -> bool {
        Flushed::is_current(self, life)
    }

    /// Whether what these disks had, here or away, may still count, on them or where it was copied to:
    /// none of them has come or gone since, or may have dropped something that is not noted yet.
    pub fn have_kept_all(&self, lives: &[Life]) -> bool {
        // Of one that is away nothing is read, and nobody tells what it still answers. In this order: a
        // failure that is told in between has ended the life.
        let stands = |life: &Life| life.incarnation.serves() && self.failures(life.disk).stand();
        let is_same = |life: &Life| (self.get(life.disk)).is_some_and(|disk| disk.life() == *life);
        (lives.iter()).all(|life| !stands(life) && is_same(life))
    }

    /// The disks of these copies as they are now.
    pub fn lives(&self, copies: impl Iterator<Item = ExtentCopy>) -> SmallVec<[Life; 4]> {
        copies
            .filter_map(|copy| Some(self.get(copy.disk())?.life()))
            .collect()
    }

    /// Runs a batch in which nothing is written.
    pub fn read(&self, batch: &mut [Request<'_>]) {
        let writes = |request: &Request<'_>| {
            let operation = request.work.operation();
            matches!(operation, Operation::Write | Operation::WriteDurable)
        };
        assert!(
            !batch.iter().any(writes),
            "what is written gets a number: DiskTable::write"
        );
        self.run(batch);
    }

    /// Runs a batch and numbers what was written in it, whether the disks took it or not.
    pub fn write(&self, batch: &mut [Request<'_>]) -> Written {
        let mut lives: SmallVec<[Life; 4]> = SmallVec::new();
        for request in batch.iter() {
            if let Some(disk) = self.disk_of(request.slot)
                && !lives.iter().any(|life| life.disk == disk.number)
            {
                lives.push(disk.life());
            }
        }
        let number = |lives: SmallVec<[Life; 4]>| {
            let numbered = lives.into_iter();
            Written::new(numbered.map(|life| self.flushes.note_written(life)))
        };
        if is_put_back(Fault::WriteNumberedEarly) {
            let written = number(lives);
            self.run(batch);
            return written;
        }
        self.run(batch);
        number(lives)
    }

    /// Runs a batch and counts it.
    fn run(&self, batch: &mut [Request<'_>]) {
        self.membership.run(batch);
        for request in batch.iter() {
            let Some(disk) = self.disk_of(request.slot) else {
                continue;
            };
            let counters = &disk.counters;
            let (count, bytes, errors) = match request.work.operation() {
                Operation::Read => (
                    &counters.reads_count,
                    &counters.read_bytes,
                    &counters.read_errors_count,
                ),
                Operation::Write | Operation::WriteDurable => (
                    &counters.writes_count,
                    &counters.written_bytes,
                    &counters.write_errors_count,
                ),
                Operation::Flush => continue,
            };
            let length = request.length_bytes();
            if request.result.is_err() {
                errors.fetch_add(1, Ordering::Relaxed);
            } else {
                count.fetch_add(1, Ordering::Relaxed);
                bytes.fetch_add(length as u64, Ordering::Relaxed);
                if disk.unanswered_count.load(Ordering::Relaxed) > 0 {
                    disk.unanswered_count.store(0, Ordering::Relaxed);
                }
            }
        }
    }

    /// The disk open in `slot`.
    pub fn disk_of(&self, slot: DiskSlot) -> Option<&DiskState> {
        let number = self.by_slot.get(slot.0)?.load(Ordering::Acquire);
        self.get(DiskNumber(u16::try_from(number).ok()?))
    }

    /// The rotations over the disks that may get new extents.
    pub fn placement(&self, au_size: AuSize) -> Placement {
        let receiving = self.iter().filter(|disk| disk.may_receive());
        let candidates = receiving.map(|disk| Candidate {
            number: disk.number,
            group_index: disk.group_index,
            weight_aus: (disk.total_bytes() / au_size.bytes())
                .saturating_sub(1)
                .max(1),
        });
        Placement::over(candidates.collect())
    }
}

impl Flushed for DiskTable {
    fn life(&self, disk: DiskNumber) -> Option<Life> {
        Some(self.get(disk)?.life())
    }

    fn online_slot(&self, disk: DiskNumber) -> Option<DiskSlot> {
        self.get(disk)?.online_slot()
    }

    fn run(&self, batch: &mut [Request<'_>]) {
        self.run(batch);
    }

    fn failures(&self, disk: DiskNumber) -> Failures {
        self.membership.failed_flushes().of(disk)
    }

    fn newest_failure(&self, disk: DiskNumber) -> DeviceError {
        self.membership.failed_flushes().newest(disk)
    }
}

impl Serving for DiskTable {
    fn slot_of(&self, copy: ExtentCopy) -> Option<DiskSlot> {
        if !copy.is_present() {
            return None;
        }
        self.get(copy.disk())?.online_slot()
    }

    /// In the preferred failure group where there is one, else on the least busy disk.
    fn choose(&self, extent: &Extent, avoid: u8) -> Option<(usize, ExtentCopy, DiskSlot)> {
        let (mut doubtful, mut set_back) = (0, 0);
        for (number, copy) in extent.copies().iter().enumerate() {
            // Until it was told, whichever life the disk is in: one that serves on lacks what it dropped,
            // and that is noted only while the new life goes on already.
            doubtful |= u8::from(self.failures(copy.disk()).stand()) << number;
            set_back |= u8::from(self.is_set_back(copy.disk())) << number;
        }
        // One that failed a flush lacks what it dropped, one that was set back everything since: where
        // there is another, not that one.
        let of_others = |avoided: u8| self.choose_of(extent, avoid | avoided);
        (of_others(doubtful | set_back))
            .or_else(|| (doubtful != 0).then(|| of_others(set_back)).flatten())
            .or_else(|| (set_back != 0).then(|| of_others(0)).flatten())
    }
}

impl DiskTable {
    fn choose_of(&self, extent: &Extent, avoid: u8) -> Option<(usize, ExtentCopy, DiskSlot)> {
        let mut best: Option<(u32, usize, ExtentCopy, DiskSlot)> = None;
        for (number, copy) in extent.copies().iter().enumerate() {
            if avoid >> number & 1 != 0 || !copy.is_present() {
                continue;
            }
            let Some(disk) = self.get(copy.disk()) else {
                continue;
            };
            let Some(slot) = disk.online_slot() else {
                continue;
            };
            if extent.copies().len() == 1 {
                return Some((number, *copy, slot));
            }
            let busy_count =
                if self.preferred_group.load(Ordering::Relaxed) == u32::from(disk.group_index) {
                    0
                } else {
                    self.backend.in_flight_count(slot).saturating_add(1)
                };
            let busy_count = if disk.is_slow.load(Ordering::Relaxed) {
                busy_count.saturating_add(SLOW_COUNT)
            } else {
                busy_count
            };
            if best.is_none_or(|(least, ..)| busy_count < least) {
                best = Some((busy_count, number, *copy, slot));
            }
        }
        best.map(|(_, number, copy, slot)| (number, copy, slot))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use spindle_base::{DiskName, DiskNumber, FailureGroupName, Redundancy};
    use spindle_device::{DeviceError, DeviceErrorKind, DiskSlot};

    use super::NewDiskState;
    use crate::scene::{NORMAL, Scene, create, pattern, read};

    /// What failed a flush lacks what it dropped, what was set back everything since.
    #[test]
    fn beside_a_disk_that_was_set_back_one_that_failed_a_flush_is_read() {
        let scene = Scene::new(5, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
        let group = scene.open();
        let [fails, set_back, away] = [0, 1, 2].map(DiskNumber);
        let file = create(&group, 10, NORMAL);
        group.write(&file, 0, &pattern(1, 8 << 20)).unwrap();
        group.sync().unwrap();
        let image = scene.disks.image(DiskSlot(set_back.0));
        group.take_offline(&[away], "it failed").unwrap();
        let new = pattern(2, 8 << 20);
        group.write(&file, 0, &new).unwrap();
        group.sync().unwrap();
        group.heartbeat(2_001).unwrap();
        group.heartbeat(2_003).unwrap();
        scene.disks.put_back(DiskSlot(set_back.0), &image);
        group.heartbeat(2_005).unwrap();
        assert!(group.disks.is_set_back(set_back));
        let dropped = DeviceError {
            path: "simulated-0".to_owned(),
            operation: "flush",
            offset_bytes: 0,
            length_bytes: 0,
            kind: DeviceErrorKind::Medium,
            errno: None,
        };
        group.membership.failed_flushes().note(fails, &dropped);
        let preferred = group.disks.get(set_back).unwrap().group_index;
        (group.disks.preferred_group).store(u32::from(preferred), Ordering::Release);
        let on_both = |extent: &crate::ExtentView| {
            let disks = extent.copies.iter().flatten().map(|(disk, _)| *disk);
            disks.collect::<std::collections::BTreeSet<_>>() == [fails, set_back].into()
        };
        let extents = group.map(&file);
        let extents: Vec<_> = extents.iter().filter(|extent| on_both(extent)).collect();
        assert!(!extents.is_empty());
        for extent in extents {
            let at = usize::try_from(extent.offset_bytes).unwrap();
            assert!(read(&group, &file, extent.offset_bytes, 512) == new[at..at + 512]);
        }
    }

    /// Found by seed 40937 of the simulator of threads: a sync left out a disk that had joined while
    /// its file was written.
    #[test]
    fn who_sees_a_disk_that_joins_with_its_slot_finds_it_by_that_slot() {
        let scene = Scene::mirrored(1);
        let group = scene.open();
        let disks = &group.disks;
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let looker = scope.spawn(|| {
                let mut next = 100;
                while !is_over.load(Ordering::Relaxed) {
                    let Some(slot) = disks.get(DiskNumber(next)).and_then(super::DiskState::slot)
                    else {
                        continue;
                    };
                    if disks.disk_of(slot).is_none() {
                        return Err(next);
                    }
                    next += 1;
                }
                Ok(())
            });
            for number in 100..30_000 {
                disks.add(NewDiskState {
                    number: DiskNumber(number),
                    slot: Some(DiskSlot(number)),
                    name: DiskName::new(format!("D{number}")).unwrap(),
                    failure_group: FailureGroupName::new("F").unwrap(),
                    group_index: 9,
                    holds_data: true,
                    total_bytes: 0,
                });
            }
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(looker.join().unwrap(), Ok(()), "a disk that nobody has");
        });
    }
}
