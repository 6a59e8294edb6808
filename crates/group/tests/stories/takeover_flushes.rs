//! Disks that fail a flush, or several in a row, wherever a takeover asks for one.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use spindle_base::{FileId, Redundancy};
use spindle_device::{DiskSlot, Disks, Judge, Operation, Request, SimulatedDisks};
use spindle_format::{JOURNAL_BYTES, JOURNAL_PLACE};
use spindle_group::{Group, KeptJournal};

use crate::scene::{MIB, NORMAL, Scene, create, pattern, resync};
use crate::takeovers::{assert_all_read, copy_of, open_kept, open_kept_at_last, take_over};

/// Where the catalog's journal of commits lies.
const JOURNAL: Range<u64> = JOURNAL_PLACE..JOURNAL_PLACE + JOURNAL_BYTES as u64;

/// Simulated disks of which some fail flushes, those within durable writes of the catalog too, after
/// as many that they took, and drop what those were to cover.
#[derive(Debug)]
struct FailFlushesLater {
    disks: Arc<SimulatedDisks>,
    taken_count: u64,
    failing_count: u64,
    /// Each with its flushes until now.
    failing: [(DiskSlot, AtomicU64); 2],
    /// From then on they take every one.
    is_over: AtomicBool,
}

impl Disks for FailFlushesLater {
    fn run(&self, batch: &mut [Request<'_>]) {
        for request in batch.iter() {
            let place = request.offset_bytes;
            let is_flush = match request.work.operation() {
                Operation::Flush => true,
                // A disk that cannot take a label or a state goes offline, whatever that costs.
                Operation::WriteDurable => JOURNAL.contains(&place),
                Operation::Read | Operation::Write => false,
            };
            if !is_flush || self.is_over.load(Ordering::Relaxed) {
                continue;
            }
            let mut failing = self.failing.iter();
            let Some((slot, count)) = failing.find(|(slot, _)| *slot == request.slot) else {
                continue;
            };
            let before = count.fetch_add(1, Ordering::Relaxed);
            if (self.taken_count..self.taken_count + self.failing_count).contains(&before) {
                self.disks.drop_at_flushes(*slot, 1);
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
/// every pair, of which every region has been written to lately, or none has.
fn three_by_two(journal: &KeptJournal, is_quiet: bool) -> (Scene, Vec<FileId>) {
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
    if is_quiet {
        resync(&group);
    }
    // The catalog lacks it, so that whoever takes over writes the region.
    create(&group, 40, NORMAL);
    std::mem::forget(group);
    (scene, files)
}

/// Takes over from it while these two disks fail flushes, and lets others take over from that
/// one until one serves; whether the first one did not.
fn take_over_at_last(
    scene: &Scene,
    journal: &KeptJournal,
    failing: [u16; 2],
    (taken_count, failing_count): (u64, u64),
) -> (Group, bool) {
    let disks = Arc::new(FailFlushesLater {
        disks: Arc::clone(&scene.disks),
        taken_count,
        failing_count,
        failing: failing.map(|slot| (DiskSlot(slot), AtomicU64::new(0))),
        is_over: AtomicBool::new(false),
    });
    let backend = Arc::clone(&disks) as Arc<dyn Disks>;
    if let Ok(group) = take_over(scene, journal, backend) {
        // As the layer above may: so something is committed after the last recovery.
        create(&group, 41, NORMAL);
        if group.begin_journal().is_ok() {
            disks.is_over.store(true, Ordering::Relaxed);
            return (group, false);
        }
        // It ends there as if it were killed.
        std::mem::forget(group);
    }
    (open_kept_at_last(scene, journal), true)
}

/// What came of takeovers in which disks failed flushes.
#[derive(Debug, Default)]
struct Outcome {
    ended_count: u32,
    /// Disks that are offline by then, or after a sync of whoever serves; with the flushes that were
    /// taken and failed before.
    gone: Vec<(u64, u64, Vec<u16>)>,
}

fn take_over_everywhere(failing: [u16; 2], is_quiet: bool) -> Outcome {
    let kept = KeptJournal::create().unwrap();
    let (killed, files) = three_by_two(&kept, is_quiet);
    let mut outcome = Outcome::default();
    for (taken_count, failing_count) in (0..12).flat_map(|taken| (1..4).map(move |n| (taken, n))) {
        let scene = killed.copy(taken_count);
        let journal = copy_of(kept.memory());
        let fails = (taken_count, failing_count);
        let (group, has_ended) = take_over_at_last(&scene, &journal, failing, fails);
        outcome.ended_count += u32::from(has_ended);
        let offline = || -> Vec<u16> {
            let disks = group.view().disks.into_iter();
            (disks.filter(|disk| disk.mode != "online"))
                .map(|disk| disk.number.0)
                .collect()
        };
        if offline().is_empty() {
            assert_all_read(&group, &files);
            for id in &files {
                let file = group.file(*id).unwrap();
                // It may owe an error.
                let _ = group.sync_file(&file, true);
                group.write(&file, 8 * MIB, &pattern(id.0, 4096)).unwrap();
            }
            group.sync().unwrap();
        }
        if !offline().is_empty() {
            (outcome.gone).push((taken_count, failing_count, offline()));
        }
    }
    outcome
}

#[test]
fn of_disks_in_two_failure_groups_that_fail_flushes_anywhere_in_a_takeover_none_goes() {
    // The last two have no replica of the catalog, the first two have.
    for (failing, is_quiet) in [([4, 5], false), ([0, 1], false), ([0, 1], true)] {
        let outcome = take_over_everywhere(failing, is_quiet);
        let is_as_promised = outcome.gone.is_empty() && outcome.ended_count >= 3;
        assert!(is_as_promised, "{failing:?}, quiet {is_quiet}: {outcome:?}");
    }
}
