//! Writes that are answered from memory and written to the disks behind it.

mod loads;
mod takeovers;

use std::time::Duration;

use spindle_base::Redundancy;
use spindle_device::SeededRandom;
use spindle_fs::{AttributeChange, FsResult, Handle, RenameMode};

use crate::fixture::{Fixture, ROOT, class, name};

const BLOCK: usize = 4096;
/// What takes longer hangs.
const TEST_MOST: Duration = Duration::from_secs(15);

fn kept() -> Fixture {
    let mut fixture = Fixture::plain();
    fixture.keep();
    fixture
}

fn behind(fixture: &Fixture, handle: &Handle, offset: u64, data: &[u8]) -> FsResult<()> {
    (fixture.fs()).write_behind(handle, offset, data.into(), fixture.now())
}

#[test]
fn an_answered_write_is_read_found_and_measured_before_any_disk_has_it() {
    let fixture = kept();
    let handle = fixture.make(ROOT, "file");
    behind(&fixture, &handle, 0, &[7; 10_000]).unwrap();
    behind(&fixture, &handle, 1 << 20, &[8; 5000]).unwrap();
    let fs = fixture.fs();
    assert_eq!(fs.unwritten_bytes(), 5 * BLOCK as u64);
    let bytes = fixture.contents(&handle);
    assert_eq!(bytes.len(), (1 << 20) + 5000);
    assert!(bytes[..10_000].iter().all(|byte| *byte == 7));
    assert!(bytes[10_000..1 << 20].iter().all(|byte| *byte == 0));
    assert!(bytes[1 << 20..].iter().all(|byte| *byte == 8));
    assert_eq!(fs.seek(&handle, 0, true).unwrap(), Some(3 * BLOCK as u64));
    assert_eq!(
        fs.seek(&handle, 3 * BLOCK as u64, false).unwrap(),
        Some(1 << 20)
    );
    assert!(fs.attributes(handle.id()).unwrap().allocated_bytes >= 5 * BLOCK as u64);
    fs.sync_file(&handle, true).unwrap();
    assert_eq!(fs.unwritten_bytes(), 0);
    assert_eq!(fixture.contents(&handle), bytes);
    fixture.check();
}

#[test]
fn a_sync_covers_what_was_answered_and_a_power_cut_leaves_it() {
    let fixture = kept();
    let synced = fixture.make(ROOT, "synced");
    behind(&fixture, &synced, 0, &[7; 3 * BLOCK]).unwrap();
    fixture.fs().sync_file(&synced, false).unwrap();
    for seed in 0..8 {
        let group = fixture.after_power_cut(seed);
        let fs = spindle_fs::FileSystem::open(group).unwrap();
        let handle = fs.open_file(synced.id()).unwrap();
        let mut bytes = vec![0; 4 * BLOCK];
        assert_eq!(fs.read(&handle, 0, &mut bytes).unwrap(), 3 * BLOCK);
        assert!(bytes[..3 * BLOCK].iter().all(|byte| *byte == 7));
    }
}

/// A program appends; what is written, committed and synced comes as it may.
#[test]
fn a_power_cut_leaves_no_zeros_at_the_end_of_what_nothing_synced() {
    for seed in 0..12 {
        let mut random = SeededRandom::new(seed);
        let fixture = kept();
        let handle = fixture.make(ROOT, "file");
        let fs = fixture.fs();
        fs.sync_file(&handle, false).unwrap();
        let (mut written, mut synced_bytes, mut clock_ms) = (Vec::new(), 0, 0);
        for round in 0..60_u64 {
            match random.below(8) {
                0..3 => {
                    let length = 1 + random.below(20_000) as usize;
                    let bytes = vec![(round % 250) as u8 + 1; length];
                    behind(&fixture, &handle, written.len() as u64, &bytes).unwrap();
                    written.extend(bytes);
                }
                3 => {
                    fs.write_due();
                    // What is written again is there already.
                    let at = random.below(written.len() as u64 + 1) as usize;
                    let end = written.len().min(at + random.below(9000) as usize);
                    behind(&fixture, &handle, at as u64, &written[at..end]).unwrap();
                }
                4 => {
                    clock_ms += 1 + random.below(6000);
                    fs.step(clock_ms).unwrap();
                }
                5 => fs.make_durable().unwrap(),
                6 => {
                    let change = AttributeChange {
                        permissions: Some(0o600),
                        ..Default::default()
                    };
                    (fs.set_attributes(handle.id(), &change, fixture.now())).unwrap();
                    fs.make_durable().unwrap();
                }
                _ if random.below(3) == 0 => {
                    fs.sync_file(&handle, random.below(2) == 0).unwrap();
                    synced_bytes = written.len();
                }
                _ => {}
            }
            let group = fixture.after_power_cut(round);
            let after = spindle_fs::FileSystem::open(group).unwrap();
            let found = after.open_file(handle.id()).unwrap();
            let mut bytes = vec![0; written.len() + 1];
            let length = after.read(&found, 0, &mut bytes).unwrap();
            assert!(length >= synced_bytes, "{length} of {synced_bytes}");
            assert!(
                bytes[..length] == written[..length],
                "seed {seed} round {round}"
            );
        }
    }
}

/// As a file with a head that changes with every record.
#[test]
fn a_power_cut_takes_no_more_of_a_file_that_is_written_again_while_it_grows_than_of_another() {
    const RECORD: usize = 1 << 16;
    let fixture = kept();
    let handle = fixture.make(ROOT, "file");
    let fs = fixture.fs();
    fs.sync_file(&handle, false).unwrap();
    for round in 1..=100_u64 {
        let records = round * RECORD as u64;
        behind(&fixture, &handle, records - RECORD as u64, &[1; RECORD]).unwrap();
        behind(&fixture, &handle, 0, &[2; BLOCK]).unwrap();
        fs.step(round * 1000).unwrap();
        while fs.write_due() {}
        behind(&fixture, &handle, 0, &[3; BLOCK]).unwrap();
        fs.make_durable().unwrap();
        let after = spindle_fs::FileSystem::open(fixture.after_power_cut(round)).unwrap();
        let found_bytes = after.attributes(handle.id()).unwrap().size_bytes;
        let least_bytes = round.saturating_sub(15) * RECORD as u64;
        assert!(found_bytes >= least_bytes, "{found_bytes} of {records}");
    }
}

#[test]
fn a_full_group_refuses_the_write_and_keeps_what_it_accepted() {
    let fixture = kept();
    let handle = fixture.make(ROOT, "file");
    let piece = vec![5; 1 << 20];
    let mut accepted = 0;
    let refused = loop {
        match behind(&fixture, &handle, accepted, &piece) {
            Ok(()) => accepted += 1 << 20,
            refused => break refused,
        }
    };
    assert_eq!(class(&refused), "no space");
    assert!(accepted > 40 << 20, "{accepted}");
    // Nothing that was accepted is refused later.
    fixture.fs().sync_file(&handle, false).unwrap();
    let bytes = fixture.contents(&handle);
    assert_eq!(bytes.len() as u64, accepted);
    assert!(bytes.iter().all(|byte| *byte == 5));
}

#[test]
fn a_log_finds_space_where_data_files_find_none() {
    let fixture = Fixture::new("postgresql", Redundancy::Normal);
    let data = fixture.make(ROOT, "data");
    let directory = fixture.directory(ROOT, "pg_wal");
    let log = fixture.make(directory, "log");
    let now = fixture.now();
    let fill = |handle: &Handle| {
        let mut end = 0;
        while (fixture.fs())
            .write(handle, end, &[3; 1 << 20], false, now)
            .is_ok()
        {
            end += 1 << 20;
        }
        end
    };
    let data_bytes = fill(&data);
    let log_bytes = fill(&log);
    // A log takes eight AUs at a time; there are a dozen in a sixteenth of such small disks.
    assert!(log_bytes >= 1 << 20, "{log_bytes}");
    assert!(data_bytes > 40 << 20, "{data_bytes}");
}

#[test]
fn where_no_memory_is_left_a_write_goes_to_the_disks_at_once() {
    let mut fixture = Fixture::plain();
    fixture.keep_with(8);
    let handle = fixture.make(ROOT, "file");
    behind(&fixture, &handle, 0, &[1; 6 * BLOCK]).unwrap();
    behind(&fixture, &handle, 4 * BLOCK as u64, &[2; 6 * BLOCK]).unwrap();
    behind(&fixture, &handle, 9 * BLOCK as u64 + 100, &[3; 10]).unwrap();
    let mut expected = [vec![1; 4 * BLOCK], vec![2; 6 * BLOCK]].concat();
    expected[9 * BLOCK + 100..][..10].fill(3);
    assert!(fixture.contents(&handle) == expected);
    std::mem::forget(handle);
    fixture.kill();
    let handle = fixture.fs().open_file(fixture.find("/file").id).unwrap();
    assert!(fixture.contents(&handle) == expected);
}

#[test]
fn what_waits_is_written_when_it_is_old_and_what_is_filled_at_once() {
    let fixture = kept();
    let fs = fixture.fs();
    fs.step(1000).unwrap();
    let small = fixture.make(ROOT, "small");
    behind(&fixture, &small, 0, &[1; BLOCK]).unwrap();
    assert!(!fs.write_due());
    let stream = fixture.make(ROOT, "stream");
    behind(&fixture, &stream, 0, &[2; 1 << 20]).unwrap();
    assert!(fs.write_due());
    assert_eq!(fs.unwritten_bytes(), BLOCK as u64);
    fs.step(5999).unwrap();
    assert!(!fs.write_due());
    fs.step(6000).unwrap();
    assert!(fs.write_due());
    assert_eq!(fs.unwritten_bytes(), 0);
}

#[test]
fn blocks_that_are_written_again_are_not_counted_as_a_filled_stretch_each_time() {
    let fixture = kept();
    let fs = fixture.fs();
    fs.step(1000).unwrap();
    let file = fixture.make(ROOT, "file");
    let last = (1 << 20) - BLOCK as u64;
    for _ in 0..100 {
        behind(&fixture, &file, last, &[1; BLOCK]).unwrap();
    }
    assert!(fs.write_due(), "the stretch that the first one filled");
    behind(&fixture, &file, 0, &[1; BLOCK]).unwrap();
    assert!(!fs.write_due());
}

#[test]
fn a_refused_write_past_the_memory_changes_nothing_that_waits() {
    let fixture = kept();
    let file = fixture.make(ROOT, "file");
    let fills = fixture.make(ROOT, "fills");
    behind(&fixture, &file, 0, &[1; BLOCK]).unwrap();
    let now = fixture.now();
    let write = |handle: &Handle, offset: u64, data: &[u8]| {
        fixture.fs().write(handle, offset, data, false, now)
    };
    let mut end = 0;
    while write(&fills, end, &[3; 1 << 20]).is_ok() {
        end += 1 << 20;
    }
    assert_eq!(class(&write(&file, 0, &[2; 8 << 20])), "no space");
    assert_eq!(fixture.contents(&file), vec![1; BLOCK]);
}

#[test]
fn what_memory_has_is_read_though_its_place_on_the_disk_cannot_be() {
    let mut fixture = Fixture::new("plain", Redundancy::External);
    fixture.keep();
    let file = fixture.make(ROOT, "file");
    fixture.write(&file, 0, &[1; 8 * BLOCK]);
    fixture.fs().sync().unwrap();
    for (slot, offset) in fixture.places(&file, 2 * BLOCK as u64) {
        let range = offset..offset + BLOCK as u64;
        fixture.disks.fail_reads(slot, range, u64::MAX);
    }
    behind(&fixture, &file, 2 * BLOCK as u64, &[2; BLOCK]).unwrap();
    let mut expected = vec![1; 8 * BLOCK];
    expected[2 * BLOCK..3 * BLOCK].fill(2);
    assert_eq!(fixture.contents(&file), expected);
}

#[test]
fn files_that_change_names_are_both_written_first() {
    let fixture = kept();
    let (one, other) = (fixture.make(ROOT, "one"), fixture.make(ROOT, "other"));
    behind(&fixture, &one, 0, &[1; BLOCK]).unwrap();
    behind(&fixture, &other, 0, &[2; BLOCK]).unwrap();
    let (from, to) = (name("one"), name("other"));
    let now = fixture.now();
    (fixture.fs())
        .rename(ROOT, from, ROOT, to, RenameMode::Exchange, now)
        .unwrap();
    assert_eq!(fixture.fs().unwritten_bytes(), 0);
}

#[test]
fn a_file_that_is_put_in_the_place_of_another_by_its_name_is_written_first() {
    let fixture = kept();
    let old = fixture.make(ROOT, "old");
    behind(&fixture, &old, 0, &[1; BLOCK]).unwrap();
    fixture.fs().sync().unwrap();
    let new = fixture.make(ROOT, "new");
    behind(&fixture, &new, 0, &[2; BLOCK]).unwrap();
    let (from, to) = (name("new"), name("old"));
    let now = fixture.now();
    (fixture.fs())
        .rename(ROOT, from, ROOT, to, RenameMode::Replace, now)
        .unwrap();
    assert_eq!(fixture.fs().unwritten_bytes(), 0);
}

#[test]
fn a_file_that_is_removed_or_cut_takes_what_waited_with_it() {
    let mut fixture = kept();
    let gone = fixture.make(ROOT, "gone");
    behind(&fixture, &gone, 0, &[1; 10 * BLOCK]).unwrap();
    drop(gone);
    let now = fixture.now();
    fixture.fs().unlink(ROOT, name("gone"), now).unwrap();
    let cut = fixture.make(ROOT, "cut");
    behind(&fixture, &cut, 0, &[2; 10 * BLOCK]).unwrap();
    let change = AttributeChange {
        size_bytes: Some(5000),
        ..Default::default()
    };
    let now = fixture.now();
    fixture.fs().set_attributes(cut.id(), &change, now).unwrap();
    assert!(fixture.fs().unwritten_bytes() <= 2 * BLOCK as u64);
    std::mem::forget(cut);
    fixture.kill();
    let cut = fixture.fs().open_file(fixture.find("/cut").id).unwrap();
    assert_eq!(fixture.contents(&cut), vec![2; 5000]);
    fixture.write(&cut, 20_000, b"end");
    let bytes = fixture.contents(&cut);
    assert!(bytes[5000..20_000].iter().all(|byte| *byte == 0));
    fixture.check();
}

#[test]
fn a_part_of_what_waits_is_read_with_what_the_disks_have_beside_it() {
    let fixture = kept();
    let handle = fixture.make(ROOT, "file");
    fixture.write(&handle, 0, &[1; 4 * BLOCK]);
    behind(&fixture, &handle, BLOCK as u64, &[2; BLOCK]).unwrap();
    let mut bytes = [0xee; 2];
    let at = 2 * BLOCK as u64 - 1;
    assert_eq!(fixture.fs().read(&handle, at, &mut bytes).unwrap(), 2);
    assert_eq!(bytes, [2, 1]);
    assert_eq!(
        fixture
            .fs()
            .read(&handle, BLOCK as u64 - 1, &mut bytes)
            .unwrap(),
        2
    );
    assert_eq!(bytes, [1, 2]);
}
