//! A catalog that names and attributes have filled: what is answered can be kept, what makes room
//! again goes on, and it comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use spindle_base::{FileId, Redundancy};
use spindle_fs::{AttributeChange, FileSystem, FsError};

use crate::fixture::{Fixture, OWNER, ROOT, class, name};

/// Long names fill it with fewer files.
fn long_name(number: usize) -> String {
    format!("{number:0200}")
}

/// Attributes fill it faster than names do: as many as it takes, and some files of their own.
fn fill_with_attributes(fixture: &Fixture) {
    for file in 0.. {
        let text = format!("attributes{file}");
        let made = (fixture.fs()).create_file(ROOT, name(&text), 0o644, OWNER, fixture.now());
        let Ok((made, _)) = made else {
            assert_eq!(class(&made), "no space");
            return;
        };
        for number in 0..16 {
            let set = fixture.fs().set_extended_attribute(
                made.id,
                name(&format!("user.{number}")),
                &[1; 60_000],
                false,
                false,
                fixture.now(),
            );
            if set.is_err() {
                assert_eq!(class(&set), "no space");
                return;
            }
        }
    }
}

/// As [`fill_with_attributes`], and some room again for many names.
fn leave_room_for_names(fixture: &Fixture, attributes_count: usize) {
    fill_with_attributes(fixture);
    for number in 0..attributes_count {
        let attribute = format!("user.{}", number % 16);
        let found = fixture.find(&format!("/attributes{}", number / 16)).id;
        (fixture.fs())
            .remove_extended_attribute(found, name(&attribute), fixture.now())
            .unwrap();
    }
}

/// Makes empty files until one is refused; how many there are.
fn fill(fixture: &Fixture, directory: FileId, mut after_each: impl FnMut(usize)) -> usize {
    for number in 0.. {
        let text = long_name(number);
        let made = (fixture.fs()).create_file(directory, name(&text), 0o644, OWNER, fixture.now());
        if made.is_err() {
            assert_eq!(class(&made), "no space");
            return number;
        }
        after_each(number + 1);
    }
    unreachable!("some file is refused")
}

fn names_count(fs: &FileSystem, directory: FileId) -> usize {
    let (mut count, mut cookie) = (0, 0);
    loop {
        let entries = fs.read_directory(directory, cookie, 1000).unwrap();
        let Some(last) = entries.last() else { break };
        cookie = last.cookie;
        count += entries.len();
    }
    // "." and ".."
    count - 2
}

fn remove(fixture: &Fixture, directory: FileId, number: usize) {
    let text = long_name(number);
    (fixture.fs())
        .unlink(directory, name(&text), fixture.now())
        .unwrap();
}

#[test]
fn a_catalog_filled_with_names_refuses_in_time_and_comes_back_when_they_go() {
    let mut fixture = Fixture::sized("plain", Redundancy::Normal, 20 << 20);
    let directory = fixture.directory(ROOT, "directory");
    leave_room_for_names(&fixture, 32);
    let count = fill(&fixture, directory, |count| {
        if count % 500 == 0 {
            fixture.fs().sync().unwrap();
        }
    });
    assert!(count > 300, "{count} files");
    // Every answer is kept, and statfs agrees with the refusal.
    fixture.fs().sync().unwrap();
    let space = fixture.fs().space().unwrap();
    assert_eq!((space.files_free, space.blocks_free), (0, 0));
    assert_eq!(names_count(fixture.fs(), directory), count);
    let file = fixture.fs().lookup(directory, name(&long_name(7))).unwrap();
    let set = fixture.fs().set_extended_attribute(
        file.id,
        name("user.large"),
        &[1; 60_000],
        false,
        false,
        fixture.now(),
    );
    assert_eq!(class(&set), "no space");
    let change = AttributeChange {
        permissions: Some(0o600),
        size_bytes: Some(0),
        ..AttributeChange::default()
    };
    (fixture.fs())
        .set_attributes(file.id, &change, fixture.now())
        .unwrap();
    // It can be closed and opened, and survives a power cut.
    fixture.reopen();
    assert_eq!(names_count(fixture.fs(), directory), count);
    fixture.crash();
    assert_eq!(names_count(fixture.fs(), directory), count);
    for number in 0..count {
        remove(&fixture, directory, number);
    }
    fixture.fs().sync().unwrap();
    assert_eq!(names_count(fixture.fs(), directory), 0);
    (fixture.fs())
        .remove_directory(ROOT, name("directory"), fixture.now())
        .unwrap();
    // As many fit again, or nearly.
    let directory = fixture.directory(ROOT, "again");
    let again = fill(&fixture, directory, |_| ());
    assert!(again > count * 8 / 10, "{again} of {count} files");
    fixture.fs().sync().unwrap();
    fixture.check();
}

#[test]
fn a_power_cut_while_the_catalog_is_nearly_full_keeps_what_was_synced() {
    let fixture = Fixture::sized("plain", Redundancy::Normal, 20 << 20);
    let directory = fixture.directory(ROOT, "directory");
    leave_room_for_names(&fixture, 8);
    let cut_and_count = |seed: usize| {
        let cut = FileSystem::open(fixture.after_power_cut(seed as u64)).unwrap();
        names_count(&cut, directory)
    };
    let mut synced = 0;
    let count = fill(&fixture, directory, |count| {
        if count % 100 == 0 {
            fixture.fs().sync().unwrap();
            synced = count;
        }
        if count % 177 == 0 {
            let found = cut_and_count(count);
            assert!((synced..=count).contains(&found), "{found} of {count}");
        }
    });
    let mut left_at_sync = count;
    for number in 0..count {
        remove(&fixture, directory, number);
        let left = count - number - 1;
        if number % 60 == 0 {
            fixture.fs().sync().unwrap();
            left_at_sync = left;
        }
        if number % 97 == 0 {
            let found = cut_and_count(number);
            assert!(
                (left..=left_at_sync).contains(&found),
                "{found}, not {left}"
            );
        }
    }
    fixture.fs().sync().unwrap();
    assert_eq!(cut_and_count(1), 0);
}

#[test]
fn data_that_needs_new_extents_is_refused_in_a_full_catalog_before_it_is_answered() {
    let fixture = Fixture::sized("plain", Redundancy::Normal, 20 << 20);
    let directory = fixture.directory(ROOT, "directory");
    let file = fixture.make(ROOT, "file");
    fixture.write(&file, 0, b"there is a block");
    fill_with_attributes(&fixture);
    fill(&fixture, directory, |_| ());
    // What has its place is written.
    fixture.write(&file, 3, b"was");
    let refused = (fixture.fs()).write(&file, 1 << 20, &[1; 4096], false, fixture.now());
    assert_eq!(class(&refused), "no space");
    fixture.fs().sync_file(&file, false).unwrap();
    assert_eq!(fixture.contents(&file), b"thewasis a block");
}

#[test]
fn a_file_is_made_where_what_others_removed_while_it_looked_for_room_gives_it() {
    const REMOVED: usize = 10;
    let mut fixture = Fixture::sized("plain", Redundancy::Normal, 64 << 20);
    let (asks, asked) = channel::<Sender<()>>();
    let is_armed = Arc::new(AtomicBool::new(false));
    fixture.reopen_asked({
        let is_armed = Arc::clone(&is_armed);
        move |_| {
            if is_armed.swap(false, Ordering::AcqRel) {
                let (done, is_done) = channel();
                asks.send(done).unwrap();
                is_done.recv().unwrap();
            }
        }
    });
    fill_with_attributes(&fixture);
    fill(&fixture, ROOT, |_| ());
    let file = fixture.find("/attributes0").id;
    // Something that makes no room has changed since the last refusal: the next one looks.
    let change = AttributeChange {
        permissions: Some(0o600),
        ..AttributeChange::default()
    };
    (fixture.fs())
        .set_attributes(file, &change, fixture.now())
        .unwrap();
    let (fs, now) = (fixture.fs(), fixture.now());
    is_armed.store(true, Ordering::Release);
    thread::scope(|scope| {
        let made = scope.spawn(|| fs.create_file(ROOT, name("made"), 0o644, OWNER, now));
        let done = asked.recv().unwrap();
        for number in 0..REMOVED {
            let attribute = format!("user.{number}");
            (fs.remove_extended_attribute(file, name(&attribute), now)).unwrap();
        }
        done.send(()).unwrap();
        assert_eq!(class(&made.join().unwrap()), "ok");
    });
}

/// A full catalog whose every other file lost its name while a mount that is older than the process
/// may have it open: what stays lies beside what goes, all over the catalog.
fn full_of_orphans() -> Fixture {
    let mut fixture = Fixture::sized("plain", Redundancy::Normal, 20 << 20);
    fixture.keep();
    leave_room_for_names(&fixture, 160);
    let make = |number: usize| -> Result<(), FsError> {
        let text = format!("file{number}");
        let (made, _) =
            (fixture.fs()).create_file(ROOT, name(&text), 0o644, OWNER, fixture.now())?;
        let attribute = name("user.much");
        let (value, now) = ([1; 1300], fixture.now());
        (fixture.fs()).set_extended_attribute(made.id, attribute, &value, false, false, now)
    };
    let full = (0..).find(|number| make(*number).is_err()).unwrap();
    fixture.kill();
    for number in (0..full).step_by(2) {
        let text = format!("file{number}");
        (fixture.fs())
            .unlink(ROOT, name(&text), fixture.now())
            .unwrap();
    }
    fixture.fs().sync().unwrap();
    assert!(fixture.fs().doubtful_orphans().len() >= full / 2);
    fixture
}

/// All that is durable can be opened again, and nothing contradicts it.
fn assert_opens(mut fixture: Fixture) {
    fixture.fs().sync().unwrap();
    fixture.crash();
    fixture.check();
}

#[test]
fn orphans_that_the_kernel_lets_go_of_leave_a_full_catalog_in_steps_that_it_can_take() {
    let fixture = full_of_orphans();
    for id in fixture.fs().doubtful_orphans() {
        fixture.fs().disinherit(id);
    }
    assert_opens(fixture);
}

#[test]
fn orphans_that_an_opening_finds_leave_a_full_catalog_in_steps_that_it_can_take() {
    let mut fixture = full_of_orphans();
    fixture.crash();
    assert_opens(fixture);
}

/// Times of many files lag behind when the daemon is killed: their rows lie in more leaves of the
/// catalog than one transaction has room for.
#[test]
fn times_that_a_killed_daemon_held_back_come_into_a_full_catalog_in_steps_that_it_can_take() {
    let mut fixture = Fixture::sized("plain", Redundancy::Normal, 20 << 20);
    fixture.keep();
    leave_room_for_names(&fixture, 160);
    let made = |number: usize| -> Result<FileId, FsError> {
        let text = format!("file{number}");
        let made = (fixture.fs()).create_file(ROOT, name(&text), 0o644, OWNER, fixture.now());
        made.map(|(made, _)| made.id)
    };
    let files: Vec<FileId> = (0..).map_while(|number| made(number).ok()).collect();
    assert!(files.len() > 5000, "{}", files.len());
    fixture.fs().sync().unwrap();
    fixture.kill();
    let modified = AttributeChange {
        modified: Some(fixture.now()),
        ..AttributeChange::default()
    };
    for id in files.iter().step_by(16) {
        fixture
            .fs()
            .set_attributes(*id, &modified, fixture.now())
            .unwrap();
    }
    fixture.kill();
    assert_opens(fixture);
}
