//! Redundancy of files, directories and the group: who gets which, and a process that is killed in
//! the midst of it.

use spindle_base::{FileId, Redundancy};
use spindle_device::DiskSlot;
use spindle_fs::{FsError, RenameMode};

use crate::fixture::{Fixture, ROOT, name};

const EXTERNAL: Redundancy = Redundancy::External;
const NORMAL: Redundancy = Redundancy::Normal;

fn of(fixture: &Fixture, path: &str) -> Redundancy {
    let id = fixture.find(path).id;
    let group = fixture.fs().group();
    group.layout(&group.file(id).unwrap()).redundancy
}

fn work(fixture: &Fixture) {
    let group = fixture.fs().group();
    for now_ms in 0..10_000 {
        if !group.work(now_ms * 10).unwrap().did_something {
            return;
        }
    }
    panic!("the work does not end");
}

fn set(fixture: &Fixture, path: &str, redundancy: Redundancy, recursive: bool) -> u64 {
    let id = fixture.find(path).id;
    let converted = fixture.fs().set_redundancy(id, redundancy, recursive);
    converted.unwrap().files_count
}

#[track_caller]
fn assert_whole(fixture: &Fixture, id: FileId) {
    let group = fixture.fs().group();
    let file = group.file(id).unwrap();
    let copies = group.layout(&file).redundancy.copies();
    for extent in group.map(&file) {
        let there = extent.copies.iter().flatten().count();
        assert_eq!((there, extent.copies.len()), (copies, copies));
    }
}

#[test]
fn a_directory_says_it_for_what_is_made_below_wherever_it_is_moved() {
    let mut fixture = Fixture::plain();
    let above = fixture.directory(ROOT, "above");
    let below = fixture.directory(above, "below");
    drop(fixture.make(below, "old"));
    assert_eq!(set(&fixture, "above", EXTERNAL, false), 0);
    drop(fixture.make(below, "new"));
    assert_eq!(of(&fixture, "above/below/old"), NORMAL);
    assert_eq!(of(&fixture, "above/below/new"), EXTERNAL);
    fixture.reopen();
    fixture.crash();
    let elsewhere = fixture.directory(ROOT, "elsewhere");
    let moved = fixture.fs().rename(
        above,
        name("below"),
        elsewhere,
        name("below"),
        RenameMode::Replace,
        fixture.now(),
    );
    moved.unwrap();
    drop(fixture.make(below, "outside"));
    assert_eq!(of(&fixture, "elsewhere/below/outside"), NORMAL);
    assert_eq!(of(&fixture, "elsewhere/below/new"), EXTERNAL);
    drop(fixture.make(above, "inside"));
    assert_eq!(of(&fixture, "above/inside"), EXTERNAL);
    // What is there follows only where that is asked for, and says nothing of its own any more.
    assert_eq!(set(&fixture, "elsewhere/below/old", EXTERNAL, false), 1);
    assert_eq!(set(&fixture, "elsewhere", NORMAL, true), 2);
    let old = fixture.find("elsewhere/below/old").id;
    assert_eq!(fixture.fs().redundancy_mark(old), None);
    assert_eq!(of(&fixture, "elsewhere/below/old"), NORMAL);
    work(&fixture);
    fixture.check();
}

#[test]
fn a_group_is_converted_with_the_files_of_which_nobody_said_anything_else() {
    let mut fixture = Fixture::new("postgresql", NORMAL);
    let base = fixture.directory(ROOT, "base");
    let temporary = fixture.directory(base, "pgsql_tmp");
    let own = fixture.directory(ROOT, "own");
    for (parent, text) in [
        (base, "table"),
        (temporary, "t1"),
        (own, "kept"),
        (base, "set"),
    ] {
        let handle = fixture.make(parent, text);
        fixture.write(&handle, 0, &[7; 5000]);
    }
    set(&fixture, "own", NORMAL, false);
    set(&fixture, "base/set", NORMAL, false);
    assert_eq!(of(&fixture, "base/pgsql_tmp/t1"), EXTERNAL);
    // Two failure groups cannot have three copies.
    let refused = fixture.fs().convert_group(Redundancy::High);
    assert!(matches!(refused, Err(FsError::Group(_))), "{refused:?}");
    assert_eq!(of(&fixture, "base/table"), NORMAL);
    assert_eq!(fixture.fs().convert_group(EXTERNAL).unwrap().files_count, 3);
    work(&fixture);
    for path in ["base/table", "own/kept", "base/set"] {
        assert_eq!(of(&fixture, path), EXTERNAL, "{path}");
    }
    fixture.reopen();
    drop(fixture.make(own, "new"));
    assert_eq!(of(&fixture, "own/new"), EXTERNAL);
    // Back again: what has a redundancy of its own is left as it is.
    assert_eq!(fixture.fs().convert_group(NORMAL).unwrap().files_count, 1);
    work(&fixture);
    assert_eq!(fixture.fs().group().view().redundancy, NORMAL);
    assert_eq!(of(&fixture, "base/table"), NORMAL);
    assert_eq!(of(&fixture, "base/pgsql_tmp/t1"), EXTERNAL);
    assert_eq!(of(&fixture, "own/kept"), EXTERNAL);
    drop(fixture.make(own, "newer"));
    assert_eq!(of(&fixture, "own/newer"), NORMAL);
    fixture.check();
}

#[test]
fn a_template_gets_another_redundancy_for_files_to_come() {
    let fixture = Fixture::new("postgresql", NORMAL);
    let fs = fixture.fs();
    assert!(fs.set_template_redundancy("data", Some(EXTERNAL)).unwrap());
    assert!(!fs.set_template_redundancy("date", Some(EXTERNAL)).unwrap());
    assert!(
        fs.set_template_redundancy("data", Some(Redundancy::High))
            .is_err()
    );
    drop(fixture.make(ROOT, "file"));
    assert_eq!(of(&fixture, "file"), EXTERNAL);
    assert!(fs.set_template_redundancy("data", None).unwrap());
    drop(fixture.make(ROOT, "other"));
    assert_eq!(of(&fixture, "other"), NORMAL);
}

#[test]
fn a_kill_in_the_midst_of_a_conversion_loses_nothing_and_it_goes_on() {
    for rounds in [0_u64, 1, 3, 7, 15, 30] {
        for (before, after) in [(EXTERNAL, NORMAL), (NORMAL, EXTERNAL)] {
            let mut fixture = Fixture::plain();
            fixture.keep();
            let directory = fixture.directory(ROOT, "directory");
            set(&fixture, "directory", before, false);
            let id = {
                let handle = fixture.make(directory, "file");
                fixture.write(&handle, 0, &[1; 2_300_000]);
                handle.id()
            };
            fixture.fs().group().sync().unwrap();
            set(&fixture, "directory/file", after, false);
            let handle = fixture.fs().open_file(id).unwrap();
            let mut wanted = vec![1; 2_300_000];
            for round in 0..rounds {
                fixture.fs().group().work(round).unwrap();
                let at = usize::try_from(round).unwrap() * 70_000;
                fixture.write(&handle, at as u64, &[round as u8 + 2; 9000]);
                wanted[at..at + 9000].fill(round as u8 + 2);
            }
            std::mem::forget(handle);
            fixture.kill();
            fixture.check();
            let handle = fixture.fs().open_file(id).unwrap();
            assert!(fixture.contents(&handle) == wanted, "{rounds} rounds");
            work(&fixture);
            assert_whole(&fixture, id);
            assert_eq!(of(&fixture, "directory/file"), after);
            assert!(fixture.contents(&handle) == wanted, "{rounds} rounds");
            drop(handle);
            fixture.check();
            fixture.reopen();
            assert_whole(&fixture, id);
            fixture.check();
        }
    }
}

#[test]
fn a_loss_waits_for_whoever_syncs_and_the_step_that_follows_quiet_does_not_take_it() {
    let fixture = Fixture::plain();
    let group = fixture.fs().group();
    let single = fixture.directory(ROOT, "single");
    assert_eq!(set(&fixture, "single", EXTERNAL, false), 0);
    let handle = fixture.make(single, "a");
    fixture.write(&handle, 0, b"here");
    fixture.fs().sync().unwrap();
    let mut now_ms = 1000;
    while fixture.fs().step(now_ms).unwrap() {}
    // It is written once more, and its disk loses that and is back.
    fixture.write(&handle, 0, b"gone");
    let file = group.file(fixture.find("single/a").id).unwrap();
    let disk = group.map(&file)[0].copies[0].unwrap().0;
    let slot = DiskSlot(disk.0);
    fixture.disks.vanish(slot);
    let other = fixture.make(ROOT, "other");
    fixture.write(&other, 0, &vec![7; 8 << 20]);
    fixture.disks.bring_back(slot);
    assert_eq!(group.return_disks(&[slot]).unwrap(), [disk]);
    for _ in 0..10 {
        now_ms += 200;
        while fixture.fs().step(now_ms).unwrap() {}
    }
    assert!(fixture.fs().sync().is_err(), "the loss is told");
}
