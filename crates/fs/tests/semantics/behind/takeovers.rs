//! What waits in memory when a process ends, and the next one that takes over.

use spindle_base::Redundancy;
use spindle_catalog::{Edit, Table, file_key};

use crate::fixture::{Fixture, ROOT};

use super::{BLOCK, behind, kept};

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
