//! What loom tries of the group: the code itself, a few operations at a time, where it relies on an
//! order of memory that no lock gives it. Who looks is the thread that is started, see the models of
//! the journal.

use std::sync::Arc;

use spindle_base::{AuSize, DiskNumber, FileId, Redundancy, Sequence, Striping};
use spindle_catalog::Edit;
use spindle_device::{DeviceError, DiskSlot, Request, Work};
use spindle_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use spindle_sync::thread;

use crate::core::dirty::{DirtyRegions, Lately};
use crate::core::disks::{Fate, Flushed, Flushes, NotedOutages, OpenSlot};
use crate::core::file::{File, Layout};
use crate::core::moving::Moving;
use crate::core::range_lock::RangeLock;
use crate::incarnation::Life;
use crate::quorum::Failures;
use crate::quorum::standing::StandingTable;

const DISK: DiskNumber = DiskNumber(0);
const BLOCKS: [(u64, u64); 1] = [(0, 1)];

fn new_file() -> File {
    let layout = Layout {
        redundancy: Redundancy::Normal,
        striping: Striping::Coarse,
    };
    File::new(FileId(7), layout, AuSize::DEFAULT, &Arc::default())
}

fn applied(_: Edit) -> Sequence {
    Sequence(1)
}

/// A disk, and what is known of it.
#[derive(Debug)]
struct Seen {
    standings: StandingTable,
    dirty: DirtyRegions,
    noted: NotedOutages,
    file: File,
}

impl Seen {
    /// The disk serves.
    fn new() -> Arc<Self> {
        let standings = StandingTable::default();
        standings.set(DISK, true, true);
        Arc::new(Self {
            standings,
            dirty: DirtyRegions::default(),
            noted: NotedOutages::default(),
            file: new_file(),
        })
    }

    fn life(&self) -> Life {
        Life {
            disk: DISK,
            incarnation: self.standings.incarnation(DISK),
        }
    }
}

/// A reader that meets no turn never takes a disk that is back for one that has everything.
pub fn a_reader_looks_for_what_a_returned_disk_missed() {
    let seen = Seen::new();
    seen.standings.set(DISK, false, false);
    let group = Arc::clone(&seen);
    let observer = thread::spawn(move || {
        let turns_count = seen.standings.turns_count();
        let looks = seen.dirty.view(&seen.file).is_some();
        let serves = seen.standings.incarnation(DISK).serves();
        if seen.standings.turns_count() == turns_count {
            assert!(looks || !serves, "it reads what the disk missed");
        }
    });
    // A write that it missed, and its return.
    (group.dirty).missed_by(&group.file, &BLOCKS, &[DISK], &mut applied);
    let _returning = group.dirty.begin_resync();
    group.standings.set(DISK, true, true);
    observer.join().expect("no panic");
}

/// Who sees a disk gone after the last turn that it knows of sees another turn.
pub fn a_disk_that_has_gone_is_a_turn() {
    let seen = Seen::new();
    let looked_at = seen.standings.turns_count();
    let group = Arc::clone(&seen);
    let observer = thread::spawn(move || {
        // As a flush that leaves the disk out, and a sync that asks whether it has to look again.
        if !seen.standings.incarnation(DISK).serves() {
            assert_ne!(seen.standings.turns_count(), looked_at);
        }
    });
    group.standings.set(DISK, false, false);
    observer.join().expect("no panic");
}

/// Who finds an outage noted sees what was noted of it.
pub fn what_is_noted_of_an_outage_is_seen() {
    let seen = Seen::new();
    // Unflushed when the disk goes.
    let announced = (seen.dirty).begin_write(&seen.file, &BLOCKS, false, &[], &mut applied);
    let group = Arc::clone(&seen);
    let observer = thread::spawn(move || {
        let life = seen.life();
        if life.incarnation.outages_count() > 0 && !seen.noted.lacks(life.incarnation) {
            assert!(seen.dirty.is_stale(&seen.file, DISK, 0, 1));
        }
    });
    group.standings.set(DISK, false, false);
    let gone = group.life();
    let is_stale = |_| group.file.may_be_stale.store(true, Ordering::Release);
    let lately = Lately {
        written: group.dirty.written_lately(),
        held: Vec::new(),
    };
    group
        .dirty
        .went_offline(gone, &lately, &|_| false, &is_stale, &mut applied);
    group.noted.set(gone.incarnation);
    observer.join().expect("no panic");
    group.dirty.end_write(group.file.id, &announced.0);
}

/// Nobody asks a disk that came back in another slot where it was before.
pub fn a_disk_that_is_back_is_asked_where_it_is() {
    let standings = StandingTable::default();
    standings.set(DISK, true, true);
    standings.set(DISK, false, false);
    let slot = OpenSlot::new(Some(DiskSlot(1)));
    let seen = Arc::new((standings, slot));
    let group = Arc::clone(&seen);
    let observer = thread::spawn(move || {
        let (standings, slot) = &*seen;
        let found = slot.get_where(|| standings.incarnation(DISK).serves());
        assert_ne!(found, Some(DiskSlot(1)));
    });
    group.1.set(Some(DiskSlot(2)));
    group.0.set(DISK, true, true);
    observer.join().expect("no panic");
}

/// A disk that keeps what was written before a flush began.
#[derive(Debug, Default)]
struct OneDisk {
    standings: StandingTable,
    written: [AtomicBool; 2],
    durable: [AtomicBool; 2],
}

impl Flushed for OneDisk {
    fn life(&self, disk: DiskNumber) -> Option<Life> {
        let incarnation = self.standings.incarnation(disk);
        Some(Life { disk, incarnation })
    }

    fn online_slot(&self, _disk: DiskNumber) -> Option<DiskSlot> {
        Some(DiskSlot(0))
    }

    fn run(&self, batch: &mut [Request<'_>]) {
        for request in batch {
            assert!(matches!(request.work, Work::Flush));
            for (written, durable) in self.written.iter().zip(&self.durable) {
                // As the requests of two threads to one disk: nothing orders them but those who
                // send them.
                if written.load(Ordering::Relaxed) {
                    durable.store(true, Ordering::Relaxed);
                }
            }
            request.result = Ok(());
        }
    }

    fn failures(&self, _disk: DiskNumber) -> Failures {
        Failures::default()
    }

    fn newest_failure(&self, _disk: DiskNumber) -> DeviceError {
        unreachable!("it fails none")
    }
}

/// The disk, to which something was written before the threads begin.
fn written_once() -> Arc<(OneDisk, Flushes)> {
    let disk = OneDisk::default();
    disk.standings.set(DISK, true, true);
    let flushes = Flushes::default();
    flushes.assume_written(disk.life(DISK).expect("it is there"));
    Arc::new((disk, flushes))
}

/// What counts as flushed was on the disk before the flush began, whoever ran it.
pub fn what_counts_as_flushed_is_on_the_disk() {
    let shared = written_once();
    let write = |shared: &(OneDisk, Flushes), index: usize| {
        let (disk, flushes) = shared;
        let life = disk.life(DISK).expect("it is there");
        disk.written[index].store(true, Ordering::Relaxed);
        flushes.note_written(life)
    };
    let other = Arc::clone(&shared);
    let writer = thread::spawn(move || {
        let target = write(&other, 1);
        let (disk, flushes) = &*other;
        if flushes.fate(disk, target) == Fate::Flushed {
            assert!(disk.durable[1].load(Ordering::Relaxed));
        }
    });
    let target = write(&shared, 0);
    let (disk, flushes) = &*shared;
    assert!(flushes.cover(disk, &[target]).is_empty());
    assert_eq!(flushes.fate(disk, target), Fate::Flushed);
    assert!(disk.durable[0].load(Ordering::Relaxed));
    writer.join().expect("no panic");
}

/// Two who want their writes flushed share flushes, and neither sleeps on.
pub fn two_syncs_share_flushes() {
    let shared = written_once();
    let sync = |shared: &(OneDisk, Flushes), index: usize| {
        let (disk, flushes) = shared;
        let life = disk.life(DISK).expect("it is there");
        disk.written[index].store(true, Ordering::Relaxed);
        let target = flushes.note_written(life);
        assert!(flushes.cover(disk, &[target]).is_empty());
        assert!(disk.durable[index].load(Ordering::Relaxed));
    };
    let other = Arc::clone(&shared);
    let second = thread::spawn(move || sync(&other, 1));
    sync(&shared, 0);
    second.join().expect("no panic");
}

/// What is written while an extent is copied is copied again.
pub fn what_is_written_while_an_extent_moves_is_copied_again() {
    #[derive(Debug, Default)]
    struct Extent {
        range: RangeLock,
        moving: Moving,
        data: AtomicU32,
    }
    let extent = Arc::new(Extent::default());
    let written = Arc::clone(&extent);
    let writer = thread::spawn(move || {
        let _held = written.range.exclusive(0, 1);
        written.data.store(1, Ordering::Relaxed);
        if !written.moving.is_empty() {
            written.moving.note(0, 0, 1);
        }
    });
    let ticket = {
        let _held = extent.range.exclusive(0, 1);
        extent.moving.begin(0).expect("nobody else copies it")
    };
    let mut copied = extent.data.load(Ordering::Relaxed);
    {
        let _held = extent.range.exclusive(0, 1);
        let noted = (extent.moving.take(0, ticket)).expect("it was not cancelled");
        if !noted.is_empty() {
            copied = extent.data.load(Ordering::Relaxed);
        }
        assert_eq!(copied, extent.data.load(Ordering::Relaxed));
    }
    extent.moving.end(0, ticket);
    writer.join().expect("no panic");
}
