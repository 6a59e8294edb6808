use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::{RecordKind, RecordLog, RecordedDisks, ReplayError, Replayer};
use crate::engine_tests::Folder;
use crate::{DiskSlot, Disks, FaultyOperation, Request, SeededRandom, SimulatedDisks, Work};

const MIB: u64 = 1 << 20;
const D0: DiskSlot = DiskSlot(0);

fn recorded(folder: &Folder) -> RecordedDisks<SimulatedDisks> {
    let disks = SimulatedDisks::new(1, &[MIB, MIB]);
    RecordedDisks::new(disks, &folder.0.join("log")).unwrap()
}

fn one(disks: &dyn Disks, at: u64, work: Work<'_>) -> bool {
    let mut batch = [Request::new(D0, at, work)];
    disks.run(&mut batch);
    batch[0].result.is_ok()
}

fn replayer(folder: &Folder, disks: &RecordedDisks<SimulatedDisks>) -> Replayer {
    disks.flush_log().unwrap();
    let log = RecordLog::open(&folder.0.join("log")).unwrap();
    assert_eq!(log.truncation(), None);
    Replayer::new(log, BTreeMap::new(), &folder.0).unwrap()
}

fn target(folder: &Folder) -> BTreeMap<DiskSlot, PathBuf> {
    BTreeMap::from([(D0, folder.0.join("target"))])
}

fn block(folder: &Folder, number: u64) -> Vec<u8> {
    let file = std::fs::File::open(folder.0.join("target")).unwrap();
    let mut bytes = vec![0; 4096];
    file.read_exact_at(&mut bytes, number * 4096).unwrap();
    bytes
}

#[test]
fn what_a_completed_flush_covers_is_there_at_every_later_cut_and_the_rest_in_any_state() {
    let folder = Folder::new("replay");
    let disks = recorded(&folder);
    assert!(one(&disks, 0, Work::Write(&[1; 4096])));
    assert!(one(&disks, 0, Work::Flush));
    assert!(one(&disks, 0, Work::Write(&[2; 4096])));
    assert!(one(&disks, 4096, Work::WriteDurable(&[3; 4096])));
    let mut replayer = replayer(&folder, &disks);
    let kinds: Vec<_> = replayer
        .log()
        .records()
        .iter()
        .map(|record| record.kind)
        .collect();
    let expected = [
        RecordKind::Disk,
        RecordKind::Write,
        RecordKind::Done,
        RecordKind::Flush,
        RecordKind::Done,
        RecordKind::Write,
        RecordKind::Done,
        RecordKind::WriteDurable,
        RecordKind::Done,
    ];
    assert_eq!(kinds, expected);
    // For each cut, which bytes the two blocks may have.
    let allowed: [(&[u8], &[u8]); 10] = [
        (&[0], &[0]),
        (&[0], &[0]),
        (&[0, 1], &[0]),
        (&[0, 1], &[0]),
        (&[0, 1], &[0]),
        (&[1], &[0]),
        (&[1, 2], &[0]),
        (&[1, 2], &[0]),
        (&[1, 2], &[0, 3]),
        (&[1, 2], &[3]),
    ];
    for (cut, (first, second)) in allowed.into_iter().enumerate() {
        let mut seen = [BTreeSet::new(), BTreeSet::new()];
        for seed in 0..60 {
            replayer.rebuild(cut, seed, &target(&folder)).unwrap();
            seen[0].extend(block(&folder, 0));
            seen[1].extend(block(&folder, 1));
        }
        assert!(seen[0].iter().eq(first), "cut {cut}: {seen:?}");
        assert!(seen[1].iter().eq(second), "cut {cut}: {seen:?}");
    }
}

#[test]
fn an_older_unsynced_or_failed_write_never_covers_a_newer_durable_one() {
    let folder = Folder::new("supersede");
    let disks = recorded(&folder);
    assert!(one(&disks, 0, Work::Write(&[1; 8192])));
    let range = 0..MIB;
    disks.inner().fail_writes(D0, range, 1);
    assert!(!one(&disks, 4096, Work::Write(&[2; 8192])));
    assert!(one(&disks, 4096, Work::WriteDurable(&[3; 4096])));
    let mut replayer = replayer(&folder, &disks);
    let end = replayer.log().records().len();
    let mut failed_write_seen = false;
    for seed in 0..100 {
        let summary = replayer.rebuild(end, seed, &target(&folder)).unwrap();
        assert_eq!(
            (summary.durable, summary.unsynced, summary.under_way),
            (1, 2, 0)
        );
        assert_eq!(summary.kept + summary.lost + summary.torn, 2);
        assert_eq!(block(&folder, 1), vec![3; 4096]);
        failed_write_seen |= block(&folder, 2).contains(&2);
    }
    assert!(failed_write_seen);
}

#[test]
fn a_failed_flush_covers_nothing() {
    let folder = Folder::new("failed-flush");
    let disks = recorded(&folder);
    assert!(one(&disks, 0, Work::Write(&[1; 4096])));
    let kind = crate::DeviceErrorKind::Medium;
    disks
        .inner()
        .fail(D0, FaultyOperation::Flush, 0..1, 1, kind);
    assert!(!one(&disks, 0, Work::Flush));
    let mut replayer = replayer(&folder, &disks);
    let end = replayer.log().records().len();
    let lost = (0..60).any(|seed| {
        replayer.rebuild(end, seed, &target(&folder)).unwrap();
        block(&folder, 0) == vec![0; 4096]
    });
    assert!(lost);
}

#[test]
fn a_log_cut_off_or_damaged_is_good_up_to_there_and_says_so() {
    let folder = Folder::new("truncated");
    let disks = recorded(&folder);
    for index in 0..10 {
        assert!(one(&disks, index * 4096, Work::Write(&[1; 4096])));
    }
    disks.flush_log().unwrap();
    let path = folder.0.join("log");
    let whole = std::fs::read(&path).unwrap();
    let count = RecordLog::open(&path).unwrap().records().len();
    assert_eq!(count, 21);
    for length in [whole.len() - 1, whole.len() - 50, whole.len() - 100] {
        std::fs::write(&path, &whole[..length]).unwrap();
        let log = RecordLog::open(&path).unwrap();
        assert!(log.records().len() < count && log.records().len() >= count - 3);
        assert!(log.truncation().is_some());
    }
    let mut damaged = whole.clone();
    // Inside the data of a write, not in a length.
    let middle = whole.len() / 2 - 1000;
    damaged[middle] ^= 1;
    std::fs::write(&path, &damaged).unwrap();
    let log = RecordLog::open(&path).unwrap();
    assert!(log.truncation().unwrap().contains("damaged"));
    assert!((5..20).contains(&log.records().len()));
    std::fs::write(&path, b"something else").unwrap();
    assert!(matches!(RecordLog::open(&path), Err(ReplayError::NoLog(_))));
}

#[test]
fn cuts_in_any_order_over_base_images_give_the_same_disks() {
    let folder = Folder::new("order");
    let disks = recorded(&folder);
    let base = folder.0.join("base");
    std::fs::write(&base, vec![7; usize::try_from(MIB).unwrap()]).unwrap();
    let mut random = SeededRandom::new(5);
    for round in 0..60_u8 {
        let at = random.below(16) * 4096;
        assert!(one(&disks, at, Work::Write(&[round; 8192])));
        if random.chance(1, 5) {
            assert!(one(&disks, 0, Work::Flush));
        }
    }
    disks.flush_log().unwrap();
    let rebuild = |cuts: &[usize]| {
        let log = RecordLog::open(&folder.0.join("log")).unwrap();
        let bases = BTreeMap::from([(D0, base.clone())]);
        let mut replayer = Replayer::new(log, bases, &folder.0).unwrap();
        let mut images = BTreeMap::new();
        for &cut in cuts {
            replayer.rebuild(cut, 9, &target(&folder)).unwrap();
            images.insert(cut, std::fs::read(folder.0.join("target")).unwrap());
        }
        images
    };
    let ascending = rebuild(&[10, 50, 90, 120]);
    assert_eq!(ascending, rebuild(&[120, 10, 90, 50]));
    assert!(ascending[&10].ends_with(&[7; 4096]));
    assert_ne!(ascending[&50], ascending[&90]);
}

#[test]
fn times_go_up_along_the_log_and_a_cut_can_be_chosen_by_time() {
    let folder = Folder::new("times");
    let disks = recorded(&folder);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let disks = &disks;
            scope.spawn(move || {
                for _ in 0..50 {
                    assert!(one(disks, thread * 4096, Work::Write(&[1; 4096])));
                }
            });
        }
    });
    let replayer = replayer(&folder, &disks);
    let records = replayer.log().records();
    assert_eq!(records.len(), 301);
    assert!(records.is_sorted_by_key(|record| record.time_ns));
    let log = replayer.log();
    assert_eq!(log.cut_at_time(0), 0);
    assert_eq!(log.cut_at_time(u64::MAX), records.len());
    let cut = log.cut_at_time(records[100].time_ns);
    assert!(cut > 100);
    assert!(records[cut - 1].time_ns <= records[100].time_ns);
}

#[test]
fn reads_are_not_recorded_and_pass_through() {
    let folder = Folder::new("reads");
    let disks = recorded(&folder);
    assert!(one(&disks, 0, Work::Write(&[4; 4096])));
    let mut memory = [0; 4096];
    assert!(one(&disks, 0, Work::Read(&mut memory)));
    assert_eq!(memory, [4; 4096]);
    assert_eq!(replayer(&folder, &disks).log().records().len(), 3);
}
