//! Disks that fail a flush, or several in a row, wherever a takeover asks for one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use spindle_base::{FileId, Redundancy};
use spindle_device::{DiskSlot, Disks, Judge, Operation, Request, SimulatedDisks};
use spindle_group::{Group, KeptJournal};

use crate::scene::{MIB, NORMAL, Scene, create, pattern};
use crate::takeovers::{assert_all_read, copy_of, open_kept, open_kept_at_last, take_over};

/// Simulated disks of which some fail flushes after as many that they took.
#[derive(Debug)]
struct FailFlushesLater {
    disks: Arc<SimulatedDisks>,
    taken_count: u64,
    failing_count: u64,
    /// Each with its flushes until now.
    failing: [(DiskSlot, AtomicU64); 2],
}

impl Disks for FailFlushesLater {
    fn run(&self, batch: &mut [Request<'_>]) {
        for request in batch.iter() {
            if request.work.operation() != Operation::Flush {
                continue;
            }
            let mut failing = self.failing.iter();
            let Some((slot, count)) = failing.find(|(slot, _)| *slot == request.slot) else {
                continue;
            };
            let before = count.fetch_add(1, Ordering::Relaxed);
            if (self.taken_count..self.taken_count + self.failing_count).contains(&before) {
                self.disks.fail_flushes(*slot, 1);
            }
        }
        self.disks.run(batch);
    }

    fn size_bytes(&self, slot: DiskSlot) -> u64 {
        self.disks.size_bytes(slot)
    }

    fn path(&self, slot: DiskSlot) -> String {
        self.disks.path(slot)
    }

    fn in_flight_count(&self, slot: DiskSlot) -> u32 {
        self.disks.in_flight_count(slot)
    }

    fn appearance(&self, slot: DiskSlot) -> Option<u64> {
        self.disks.appearance(slot)
    }

    fn is_fenced(&self, slot: DiskSlot) -> bool {
        self.disks.is_fenced(slot)
    }

    fn set_judge(&self, judge: Weak<dyn Judge>) {
        self.disks.set_judge(judge);
    }
}

/// Six disks in two failure groups, of which the last two have no replica of the catalog; files on
/// every pair, of which every region has been written to lately.
fn three_by_two(journal: &KeptJournal) -> (Scene, Vec<FileId>) {
    let disks = [(0, 64), (1, 64), (0, 64), (1, 64), (0, 64), (1, 64)];
    let scene = Scene::new(31, Redundancy::Normal, &disks);
    let group = open_kept(&scene, journal);
    let files: Vec<FileId> = (10..40).map(FileId).collect();
    for _ in 0..2 {
        for id in &files {
            let file = (group.file(*id)).unwrap_or_else(|| create(&group, id.0, NORMAL));
            let data = pattern(id.0, 64 << 10);
            group.write(&file, 8 * MIB, &data).unwrap();
        }
        group.sync().unwrap();
    }
    std::mem::forget(group);
    (scene, files)
}

/// Takes over from it while the last two disks fail flushes, and lets others take over from that
/// one until one serves; whether the first one did not.
fn take_over_at_last(
    scene: &Scene,
    journal: &KeptJournal,
    (taken_count, failing_count): (u64, u64),
) -> (Group, bool) {
    let disks = Arc::new(FailFlushesLater {
        disks: Arc::clone(&scene.disks),
        taken_count,
        failing_count,
        failing: [4, 5].map(|slot| (DiskSlot(slot), AtomicU64::new(0))),
    });
    if let Ok(group) = take_over(scene, journal, disks) {
        if group.begin_journal().is_ok() {
            return (group, false);
        }
        // It ends there as if it were killed.
        std::mem::forget(group);
    }
    (open_kept_at_last(scene, journal), true)
}

#[test]
fn of_disks_in_two_failure_groups_that_fail_flushes_anywhere_in_a_takeover_none_goes() {
    let kept = KeptJournal::create().unwrap();
    let (killed, files) = three_by_two(&kept);
    let mut ended_count = 0;
    let mut gone = Vec::new();
    for taken_count in 0..8 {
        for failing_count in 1..4 {
            let scene = killed.copy(taken_count);
            let journal = copy_of(kept.memory());
            let fails = (taken_count, failing_count);
            let (group, has_ended) = take_over_at_last(&scene, &journal, fails);
            ended_count += u32::from(has_ended);
            let disks = group.view().disks.into_iter();
            let offline: Vec<u16> = (disks.filter(|disk| disk.mode != "online"))
                .map(|disk| disk.number.0)
                .collect();
            if offline.is_empty() {
                assert_all_read(&group, &files);
            } else {
                gone.push((fails, offline));
            }
        }
    }
    assert!(gone.is_empty(), "{gone:?}");
    assert!(ended_count >= 3, "{ended_count}");
}
