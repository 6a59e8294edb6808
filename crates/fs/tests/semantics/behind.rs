//! Writes that are answered from memory and written to the disks behind it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use spindle_base::Redundancy;
use spindle_catalog::{Edit, Table, file_key};
use spindle_device::SeededRandom;
use spindle_fs::{AttributeChange, FsResult, Handle, RenameMode, Time};

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

/// A program goes on as fast as the disks take what it writes.
#[test]
fn a_sync_ends_though_a_program_goes_on_behind_what_it_writes() {
    const PIECE_BYTES: usize = 1 << 20;
    const PIECES_MOST: u64 = 32;
    let mut fixture = kept();
    let handle = fixture.make(ROOT, "log");
    fixture.write(&handle, 0, &vec![1; PIECES_MOST as usize * PIECE_BYTES]);
    drop(handle);
    let syncs = Arc::new(AtomicBool::new(false));
    let (asks, asked) = channel();
    let (answers, answered) = channel();
    let (is_asked, answered) = (Arc::clone(&syncs), Mutex::new(answered));
    let asks_before_writes = asks.clone();
    fixture.reopen_watched(move || {
        if is_asked.load(Ordering::Relaxed) {
            asks_before_writes.send(false).unwrap();
            answered.lock().unwrap().recv().unwrap();
        }
    });
    let handle = (fixture.fs().open_file(fixture.find("/log").id)).unwrap();
    let write_piece = |piece: u64| {
        let offset = piece * PIECE_BYTES as u64;
        behind(&fixture, &handle, offset, &vec![2; PIECE_BYTES]).unwrap();
    };
    let mut pieces = 0..PIECES_MOST;
    pieces.by_ref().take(2).for_each(write_piece);
    let fs = fixture.fs();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            syncs.store(true, Ordering::Relaxed);
            fs.sync_file(&handle, true).unwrap();
            syncs.store(false, Ordering::Relaxed);
            asks.send(true).unwrap();
        });
        while !asked.recv().unwrap() {
            pieces.next().into_iter().for_each(write_piece);
            answers.send(()).unwrap();
        }
    });
    assert_ne!(pieces.next(), None, "the sync ended with the program");
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
fn a_write_past_the_memory_that_panics_sends_no_later_write_past_it() {
    let mut fixture = Fixture::new("plain", Redundancy::External);
    fixture.keep();
    let file = fixture.make(ROOT, "file");
    fixture.write(&file, 0, &[1; BLOCK]);
    drop(file);
    let panics = Arc::new(AtomicBool::new(false));
    let is_asked = Arc::clone(&panics);
    fixture.reopen_watched(move || {
        let is_asked = is_asked.swap(false, Ordering::Relaxed);
        assert!(!is_asked, "as the test wants it");
    });
    let file = fixture.fs().open_file(fixture.find("/file").id).unwrap();
    panics.store(true, Ordering::Relaxed);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        fixture.write(&file, 0, &[2; BLOCK]);
    }));
    panicked.unwrap_err();
    behind(&fixture, &file, 5, &[3; 10]).unwrap();
    assert_eq!(fixture.fs().unwritten_bytes(), BLOCK as u64);
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
fn writers_wait_for_the_disks_where_too_much_waits_and_write_themselves() {
    let fixture = kept();
    let handle = fixture.make(ROOT, "file");
    fixture.fs().set_unwritten_most(1 << 20);
    for piece in 0..8 {
        behind(&fixture, &handle, piece << 20, &[piece as u8; 1 << 20]).unwrap();
        // What is answered while there is room may go beyond it by one write.
        assert!(fixture.fs().unwritten_bytes() <= 2 << 20);
    }
    let bytes = fixture.contents(&handle);
    for (piece, bytes) in bytes.chunks(1 << 20).enumerate() {
        assert!(bytes.iter().all(|byte| *byte == piece as u8));
    }
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
fn memory_keeps_what_was_written_until_a_full_journal_has_the_mark() {
    let mut fixture = Fixture::plain();
    let file = fixture.make(ROOT, "file");
    fixture.make(ROOT, "fills");
    std::mem::forget(file);
    fixture.keep_with_log_of(1 << 10);
    let file = fixture.fs().open_file(fixture.find("/file").id).unwrap();
    behind(&fixture, &file, 0, &[7; 3 * BLOCK]).unwrap();
    fixture.fill_log("/fills");
    fixture.fs().hurry_writes();
    assert!(fixture.fs().write_due());
    assert_eq!(fixture.fs().unwritten_bytes(), 0);
    std::mem::forget(file);
    fixture.kill();
    let file = fixture.fs().open_file(fixture.find("/file").id).unwrap();
    assert_eq!(fixture.contents(&file), vec![7; 3 * BLOCK]);
    fixture.check();
}

#[test]
fn what_could_not_be_written_before_a_hand_over_is_there_after_it() {
    // What was there is overwritten, or the file gets longer, and the block fails that comes first.
    for (first, blocks) in [(0, 1), (1, 1), (1, 3)] {
        let mut fixture = Fixture::new("plain", Redundancy::External);
        fixture.keep();
        let file = fixture.make(ROOT, "file");
        fixture.write(&file, 0, &[1; BLOCK]);
        fixture.fs().sync().unwrap();
        let at = first * BLOCK as u64;
        let mut expected = vec![1; first as usize * BLOCK];
        expected.extend(vec![2; blocks * BLOCK]);
        behind(&fixture, &file, at, &expected[at as usize..]).unwrap();
        let places = fixture.places(&file, at);
        for (slot, offset) in &places {
            let broken = *offset..*offset + BLOCK as u64;
            fixture.disks.fail_writes(*slot, broken, u64::MAX);
        }
        std::mem::forget(file);
        fixture.hand_over().unwrap_err();
        for (slot, _) in &places {
            fixture.disks.clear_faults(*slot);
        }
        let file = fixture.fs().open_file(fixture.find("/file").id).unwrap();
        assert!(fixture.contents(&file) == expected, "{first} {blocks}");
        assert!(
            fixture.fs().sync_file(&file, false).is_err(),
            "it was never told"
        );
        fixture.fs().sync_file(&file, false).unwrap();
        assert_eq!(fixture.fs().unwritten_bytes(), 0);
    }
}

#[test]
fn what_waited_is_told_as_lost_where_somebody_else_had_the_group() {
    let mut fixture = kept();
    let file = fixture.make(ROOT, "file");
    fixture.write(&file, 0, &[1; BLOCK]);
    fixture.fs().sync().unwrap();
    behind(&fixture, &file, 0, &[2; BLOCK]).unwrap();
    std::mem::forget(file);
    fixture.die();
    let other = spindle_fs::FileSystem::open(fixture.open_elsewhere()).unwrap();
    other.close().unwrap();
    fixture.open(true);
    let file = fixture.fs().open_file(fixture.find("/file").id).unwrap();
    assert_eq!(fixture.contents(&file), vec![1; BLOCK]);
    assert!(fixture.fs().sync_file(&file, false).is_err());
    fixture.fs().sync_file(&file, false).unwrap();
    assert_eq!(fixture.fs().unwritten_bytes(), 0);
}

/// Whoever finds out that it is lost is killed before anything else, or after it.
#[test]
fn what_is_lost_is_told_whenever_who_finds_it_out_is_killed() {
    for requests in 0.. {
        let mut fixture = kept();
        let file = fixture.make(ROOT, "file");
        fixture.write(&file, 0, &[1; BLOCK]);
        fixture.fs().sync().unwrap();
        behind(&fixture, &file, 0, &[2; BLOCK]).unwrap();
        std::mem::forget(file);
        fixture.die();
        let other = spindle_fs::FileSystem::open(fixture.open_elsewhere()).unwrap();
        other.close().unwrap();
        let has_opened = fixture.open_and_die_after(requests);
        if !has_opened {
            fixture.open(true);
        }
        let file = fixture.fs().open_file(fixture.find("/file").id).unwrap();
        assert_eq!(fixture.contents(&file), vec![1; BLOCK]);
        let told = fixture.fs().sync_file(&file, false);
        assert!(told.is_err(), "killed after {requests} requests");
        fixture.fs().sync_file(&file, false).unwrap();
        if has_opened {
            break;
        }
    }
}

/// A row that cannot be read when another process takes over, and can be read later.
#[test]
fn what_waits_of_a_file_that_cannot_be_loaded_is_there_when_it_can_and_comes_over_nothing_newer() {
    let mut fixture = kept();
    let file = fixture.make(ROOT, "file");
    let id = file.id();
    fixture.write(&file, 0, &[1; 2 * BLOCK]);
    fixture.fs().sync().unwrap();
    behind(&fixture, &file, 0, &[2; BLOCK]).unwrap();
    fixture.fs().make_durable().unwrap();
    let row = (fixture.fs().group().get(Table::Inode, &file_key(id))).unwrap();
    let put_row = |fixture: &Fixture, row: Vec<u8>| {
        let mut edit = Edit::default();
        edit.put(Table::Inode, file_key(id), row);
        let group = fixture.fs().group();
        group.apply(&group.change(), edit);
    };
    put_row(&fixture, vec![1]);
    std::mem::forget(file);
    // It stays, over as many processes as it takes.
    fixture.kill();
    fixture.kill();
    assert!(fixture.fs().open_file(id).is_err());
    assert!(fixture.fs().sync().is_err(), "not all is on the disks");
    put_row(&fixture, row.unwrap());
    let file = fixture.fs().open_file(id).unwrap();
    let both = [[2; BLOCK], [1; BLOCK]].concat();
    assert_eq!(fixture.contents(&file), both);
    fixture.fs().sync().unwrap();
    assert_eq!(fixture.fs().unwritten_bytes(), 0);
    behind(&fixture, &file, 0, &[3; BLOCK]).unwrap();
    fixture.fs().sync_file(&file, false).unwrap();
    std::mem::forget(file);
    fixture.kill();
    let file = fixture.fs().open_file(id).unwrap();
    let both = [[3; BLOCK], [1; BLOCK]].concat();
    assert_eq!(fixture.contents(&file), both);
}

#[test]
fn of_two_versions_of_a_block_that_were_left_one_is_kept_and_the_file_owes_an_error() {
    for is_killed in [false, true] {
        let mut fixture = kept();
        let file = fixture.make(ROOT, "file");
        let id = file.id();
        behind(&fixture, &file, 0, &[2; BLOCK]).unwrap();
        std::mem::forget(file);
        fixture.die();
        fixture.leave_block(id, 0, &[3; BLOCK]);
        fixture.open(true);
        if is_killed {
            fixture.kill();
        }
        let file = fixture.fs().open_file(id).unwrap();
        let kept = fixture.contents(&file);
        assert!(kept == [2; BLOCK] || kept == [3; BLOCK]);
        assert!(fixture.fs().sync_file(&file, false).is_err());
        fixture.fs().sync_file(&file, false).unwrap();
        behind(&fixture, &file, 0, &[4; BLOCK]).unwrap();
        fixture.fs().sync_file(&file, false).unwrap();
        std::mem::forget(file);
        fixture.kill();
        let file = fixture.fs().open_file(id).unwrap();
        assert_eq!(fixture.contents(&file), [4; BLOCK]);
        fixture.fs().sync_file(&file, false).unwrap();
    }
}

#[test]
fn a_stream_keeps_neither_another_file_nor_its_own_beginning_from_the_disks() {
    let fixture = kept();
    let fs = fixture.fs();
    fs.step(1000).unwrap();
    let small = fixture.make(ROOT, "small");
    let stream = fixture.make(ROOT, "stream");
    behind(&fixture, &small, 0, &[1; BLOCK]).unwrap();
    behind(&fixture, &stream, 0, &[1; BLOCK]).unwrap();
    for second in 1..12 {
        behind(&fixture, &stream, second << 20, &[2; 1 << 20]).unwrap();
        fs.step(1000 + second * 1000).unwrap();
        // The disks write as much as comes, and a little more.
        for _ in 0..2 {
            fs.write_due();
        }
    }
    assert_eq!(
        fs.unwritten_bytes() % (1 << 20),
        0,
        "both blocks are written"
    );
}

/// It comes faster than the disks write, so that no look for a free block behind its last one ends.
#[test]
fn a_stream_that_is_faster_than_the_disks_keeps_nothing_from_them() {
    let fixture = kept();
    let fs = fixture.fs();
    fs.step(1000).unwrap();
    let small = fixture.make(ROOT, "small");
    let stream = fixture.make(ROOT, "stream");
    behind(&fixture, &stream, 0, &[1; BLOCK]).unwrap();
    let mut runs = 0;
    for second in 1..=60 {
        for _ in 0..2 {
            // Each is a run of its own.
            runs += 2;
            behind(&fixture, &stream, runs * BLOCK as u64, &[2; BLOCK]).unwrap();
        }
        if second == 2 {
            behind(&fixture, &small, 0, &[3; BLOCK]).unwrap();
            behind(&fixture, &stream, 0, &[3; BLOCK]).unwrap();
        }
        fs.step(1000 + second * 1000).unwrap();
        fs.write_due();
        fs.make_durable().unwrap();
    }
    assert!(fs.unwritten_bytes() > 0, "it was no faster than the disks");
    let after = spindle_fs::FileSystem::open(fixture.after_power_cut(1)).unwrap();
    for file in [&small, &stream] {
        let found = after.open_file(file.id()).unwrap();
        let mut block = [0; BLOCK];
        assert_eq!(after.read(&found, 0, &mut block).unwrap(), BLOCK);
        assert_eq!(block, [3; BLOCK]);
    }
}

/// Of a file of one copy that is written in place nothing tells but the bytes.
#[test]
fn what_is_written_after_a_takeover_or_at_a_second_try_is_flushed_though_nothing_else_changes() {
    for is_killed in [true, false] {
        let mut fixture = Fixture::new("plain", Redundancy::External);
        fixture.keep();
        let file = fixture.make(ROOT, "file");
        fixture.write(&file, 0, &[1; BLOCK]);
        fixture.fs().sync().unwrap();
        fixture.fs().step(1000).unwrap();
        behind(&fixture, &file, 0, &[2; BLOCK]).unwrap();
        let (slot, offset) = fixture.places(&file, 0)[0];
        let id = file.id();
        if is_killed {
            std::mem::forget(file);
            fixture.kill();
        } else {
            let broken = offset..offset + BLOCK as u64;
            fixture.disks.fail_writes(slot, broken, u64::MAX);
            fixture.fs().hurry_writes();
            assert!(fixture.fs().write_due());
        }
        let fs = fixture.fs();
        for step in 1..=20 {
            while fs.step(1000 + step * 400).unwrap() {}
        }
        fixture.disks.clear_faults(slot);
        assert_eq!(fs.unwritten_bytes(), BLOCK as u64);
        fs.step(20_000).unwrap();
        assert!(fs.write_due());
        assert_eq!(fs.unwritten_bytes(), 0);
        for step in 1..=150 {
            fs.step(20_000 + step * 400).unwrap();
        }
        for seed in 0..8 {
            let after = spindle_fs::FileSystem::open(fixture.after_power_cut(seed)).unwrap();
            let found = after.open_file(id).unwrap();
            let mut block = [0; BLOCK];
            after.read(&found, 0, &mut block).unwrap();
            assert_eq!(block, [2; BLOCK], "killed {is_killed}, seed {seed}");
        }
    }
}

#[test]
fn a_disk_that_hangs_keeps_no_writer_of_a_file_that_lies_elsewhere() {
    let mut fixture = Fixture::new("plain", Redundancy::External);
    fixture.keep();
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let slots = names.map(|text| {
        let file = fixture.make(ROOT, text);
        fixture.write(&file, 0, &[1; BLOCK]);
        fixture.places(&file, 0)[0].0
    });
    let hangs = slots[0];
    let elsewhere = slots.iter().position(|slot| *slot != hangs).unwrap();
    let (goes_on, does) = channel::<()>();
    let (begun, has_begun) = channel();
    let does = Mutex::new(does);
    let is_hung = Arc::new(AtomicBool::new(false));
    let hung = Arc::clone(&is_hung);
    fixture.reopen_asked(move |batch| {
        if hung.load(Ordering::Relaxed) && batch.iter().any(|request| request.slot == hangs) {
            begun.send(()).unwrap();
            // It ends when the test does.
            let _ = does.lock().unwrap().recv();
        }
    });
    let fs = fixture.fs();
    let open = |text: &str| fs.open_file(fixture.find(&format!("/{text}")).id).unwrap();
    let (bad, good) = (open(names[0]), open(names[elsewhere]));
    fs.set_unwritten_most(BLOCK as u64);
    fs.step(1000).unwrap();
    behind(&fixture, &bad, 0, &[2; BLOCK]).unwrap();
    is_hung.store(true, Ordering::Relaxed);
    fs.hurry_writes();
    let now = fixture.now();
    let (answers, answered) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| fs.write_due());
        has_begun.recv().unwrap();
        scope.spawn(|| {
            for _ in 0..20 {
                let data = [3; BLOCK];
                (fs.write_behind(&good, 0, data[..].into(), now)).unwrap();
            }
            answers.send(()).unwrap();
        });
        let answer = answered.recv_timeout(TEST_MOST);
        is_hung.store(false, Ordering::Relaxed);
        drop(goes_on);
        answer.expect("it waits for the other's disk");
    });
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
fn a_disk_that_takes_nothing_is_asked_a_few_times_for_a_run() {
    let mut fixture = Fixture::new("plain", Redundancy::External);
    fixture.keep();
    let file = fixture.make(ROOT, "file");
    behind(&fixture, &file, 0, &[2; 256 * BLOCK]).unwrap();
    let slots: Vec<_> = (fixture.places(&file, 0).iter())
        .map(|place| place.0)
        .collect();
    for slot in &slots {
        fixture
            .disks
            .fail_writes(*slot, 1 << 20..u64::MAX, u64::MAX);
    }
    let before = fixture.disks.counts().writes;
    assert!(fixture.fs().sync_file(&file, true).is_err());
    let count = fixture.disks.counts().writes - before;
    assert!(count < 100, "{count}");
    assert!(fixture.fs().unwritten_bytes() > 0);
    assert_eq!(fixture.contents(&file), vec![2; 256 * BLOCK]);
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

/// Each of some threads has every fourth half of a block of one file to itself, so that it shares each
/// block with another; others write out, sync and read meanwhile.
#[test]
fn threads_that_write_past_the_memory_and_into_it_lose_nothing_of_each_other() {
    let fixture = kept();
    let handle = fixture.make(ROOT, "file");
    let is_over = AtomicBool::new(false);
    let fs = fixture.fs();
    let now = fixture.now();
    const THREADS: usize = 4;
    const BLOCKS: usize = 64;
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let handle = Arc::clone(&handle);
                scope.spawn(move || write_some(fs, &handle, thread, now))
            })
            .collect();
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                fs.sync_file(&handle, true).unwrap();
            }
        });
        scope.spawn(|| {
            let mut clock_ms = 0;
            while !is_over.load(Ordering::Relaxed) {
                clock_ms += 3000;
                fs.step(clock_ms).unwrap();
                fs.write_due();
            }
        });
        let last: Vec<_> = writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .collect();
        is_over.store(true, Ordering::Relaxed);
        let bytes = fixture.contents(&handle);
        for (at, byte) in bytes.iter().enumerate() {
            let (half, inside) = (at / (BLOCK / 2), at % (BLOCK / 2));
            let expected = last[half % THREADS][half / THREADS];
            assert_eq!(*byte, expected, "half {half}, byte {inside}");
        }
    });
    fixture.check();

    fn write_some(
        fs: &spindle_fs::FileSystem,
        handle: &Handle,
        thread: usize,
        now: Time,
    ) -> Vec<u8> {
        let mut random = SeededRandom::new(thread as u64);
        let mut last = vec![0; BLOCKS * 2 / THREADS];
        for round in 0..3000 {
            let mine = random.below(last.len() as u64) as usize;
            let offset = ((mine * THREADS + thread) * BLOCK / 2) as u64;
            let byte = (round % 251) as u8 + 1;
            let data = [byte; BLOCK / 2];
            if random.below(3) == 0 {
                fs.write(handle, offset, &data, false, now).unwrap();
            } else {
                fs.write_behind(handle, offset, data[..].into(), now)
                    .unwrap();
            }
            last[mine] = byte;
            if round % 16 == 0 {
                let mut read = [0; BLOCK / 2];
                fs.read(handle, offset, &mut read).unwrap();
                assert_eq!(read, data);
            }
        }
        last
    }
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

#[test]
fn a_disk_that_fails_what_is_written_behind_hides_nothing_and_keeps_nothing_else() {
    let mut fixture = Fixture::new("plain", Redundancy::External);
    fixture.keep();
    let bad = fixture.make(ROOT, "bad");
    let good = fixture.make(ROOT, "good");
    fixture.write(&bad, 0, &[1; 8 * BLOCK]);
    fixture.fs().sync().unwrap();
    behind(&fixture, &bad, 0, &[2; 8 * BLOCK]).unwrap();
    // The third of them only: the others of its run get to the disk.
    let places = fixture.places(&bad, 2 * BLOCK as u64);
    for (slot, offset) in &places {
        let range = *offset..*offset + BLOCK as u64;
        fixture.disks.fail_writes(*slot, range, u64::MAX);
    }
    behind(&fixture, &good, 0, &[3; BLOCK]).unwrap();
    let fs = fixture.fs();
    assert!(fs.sync_file(&bad, false).is_err());
    // Neither older bytes, nor a second answer that says otherwise.
    assert_eq!(fixture.contents(&bad), vec![2; 8 * BLOCK]);
    assert!(fs.sync_file(&bad, false).is_err());
    assert_eq!(fs.unwritten_bytes(), 2 * BLOCK as u64);
    fs.sync_file(&good, false).unwrap();
    fs.make_durable().unwrap();
    // What waits stays where a kill leaves it.
    std::mem::forget((bad, good));
    fixture.kill();
    let bad = fixture.fs().open_file(fixture.find("/bad").id).unwrap();
    assert_eq!(fixture.contents(&bad), vec![2; 8 * BLOCK]);
    for (slot, _) in &places {
        fixture.disks.clear_faults(*slot);
    }
    // Told to nobody who is known to have heard it: a kill may have come before the answer.
    assert!(fixture.fs().sync_file(&bad, false).is_err());
    assert_eq!(fixture.fs().unwritten_bytes(), 0);
    fixture.fs().sync_file(&bad, false).unwrap();
}
