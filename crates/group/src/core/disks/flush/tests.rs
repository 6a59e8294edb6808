//! Flushes that fail, with others before, beside and after them.

use spindle_base::DiskNumber;
use spindle_device::{DeviceError, DeviceErrorKind, DiskSlot, Operation, Request};
use spindle_sync::level::LeafMutex;

use super::{Fate, Flushed, Flushes};
use crate::incarnation::{Incarnation, Life};
use crate::quorum::{FailedFlushes, Failures};

const LIFE: Life = Life {
    disk: DiskNumber(0),
    incarnation: Incarnation::AWAY.next(),
};

/// A disk that fails flushes on demand.
#[derive(Debug, Default)]
struct OneDisk {
    failures: FailedFlushes,
    /// So many that come fail.
    fails_count: LeafMutex<u64>,
    /// While one is under way, another of somebody else's fails.
    other_fails: bool,
}

fn error() -> DeviceError {
    DeviceError {
        path: "disk".to_owned(),
        operation: "flush",
        offset_bytes: 0,
        length_bytes: 0,
        kind: DeviceErrorKind::Medium,
        errno: None,
    }
}

impl OneDisk {
    fn failing(count: u64) -> Self {
        let disk = Self::default();
        *disk.fails_count.lock() = count;
        disk
    }

    fn tell(&self, failures_count: u64) {
        self.failures.forget(LIFE.disk, failures_count);
    }
}

impl Flushed for OneDisk {
    fn life(&self, _disk: DiskNumber) -> Option<Life> {
        Some(LIFE)
    }

    fn online_slot(&self, _disk: DiskNumber) -> Option<DiskSlot> {
        Some(DiskSlot(0))
    }

    fn run(&self, batch: &mut [Request<'_>]) {
        for request in batch {
            assert_eq!(request.work.operation(), Operation::Flush);
            let fails = {
                let mut count = self.fails_count.lock();
                let fails = *count > 0;
                *count = count.saturating_sub(1);
                fails
            };
            if fails || self.other_fails {
                self.failures.note(LIFE.disk, &error());
            }
            request.result = if fails { Err(error()) } else { Ok(()) };
        }
    }

    fn failures(&self, disk: DiskNumber) -> Failures {
        self.failures.of(disk)
    }

    fn newest_failure(&self, disk: DiskNumber) -> DeviceError {
        self.failures.newest(disk)
    }
}

#[test]
fn no_flush_counts_while_one_that_failed_was_not_told() {
    let (disk, flushes) = (OneDisk::failing(1), Flushes::default());
    let first = flushes.note_written(LIFE);
    let failed = flushes.cover(&disk, &[first]);
    assert_eq!(failed.len(), 1);
    let second = flushes.note_written(LIFE);
    assert_eq!(flushes.cover(&disk, &[second]).len(), 1);
    assert_eq!(flushes.fate(&disk, first), Fate::Waits);
    disk.tell(failed[0].failures_count);
    assert!(flushes.cover(&disk, &[second]).is_empty());
    assert_eq!(flushes.fate(&disk, second), Fate::Flushed);
}

#[test]
fn what_was_flushed_before_is_not_asked_for_again_by_a_flush_that_failed() {
    let (disk, flushes) = (OneDisk::default(), Flushes::default());
    let first = flushes.note_written(LIFE);
    assert!(flushes.cover(&disk, &[first]).is_empty());
    disk.failures.note(LIFE.disk, &error());
    assert!(flushes.cover(&disk, &[first]).is_empty());
    let second = flushes.note_written(LIFE);
    assert_eq!(flushes.cover(&disk, &[first, second]).len(), 1);
}

#[test]
fn whoever_tells_a_failed_flush_does_not_tell_the_next_one_with_it() {
    let (disk, flushes) = (OneDisk::failing(2), Flushes::default());
    let first = flushes.note_written(LIFE);
    // Two who waited for it: both have to tell it.
    let failed = [(); 2].map(|()| flushes.cover(&disk, &[first]));
    disk.tell(failed[0][0].failures_count);
    assert_eq!(flushes.cover(&disk, &[first]).len(), 1);
    disk.tell(failed[1][0].failures_count);
    assert_eq!(flushes.cover(&disk, &[first]).len(), 1);
    assert_eq!(flushes.fate(&disk, first), Fate::Waits);
}

#[test]
fn a_flush_beside_which_another_fails_does_not_count() {
    let disk = OneDisk {
        other_fails: true,
        ..OneDisk::default()
    };
    let flushes = Flushes::default();
    let first = flushes.note_written(LIFE);
    assert_eq!(flushes.cover(&disk, &[first]).len(), 1);
    assert_eq!(flushes.fate(&disk, first), Fate::Waits);
}
