//! How long files live: links, open files without a name, crashes.

use spindle_base::Redundancy;
use spindle_fs::AttributeChange;

use crate::fixture::{Fixture, OWNER, ROOT, class, name};

#[test]
fn a_file_lives_until_its_last_link_is_gone() {
    let fixture = Fixture::plain();
    let id = fixture.make(ROOT, "a").id();
    let linked = fixture
        .fs()
        .make_link(id, ROOT, name("b"), fixture.now())
        .unwrap();
    assert_eq!(linked.links_count, 2);
    fixture.fs().unlink(ROOT, name("a"), fixture.now()).unwrap();
    assert_eq!(fixture.find("b").links_count, 1);
    fixture.fs().unlink(ROOT, name("b"), fixture.now()).unwrap();
    assert_eq!(class(&fixture.fs().attributes(id)), "not found");
    fixture.check();
}

#[test]
fn directories_get_no_second_name() {
    let fixture = Fixture::plain();
    let id = fixture.directory(ROOT, "a");
    let linked = fixture.fs().make_link(id, ROOT, name("b"), fixture.now());
    assert_eq!(class(&linked), "not permitted");
}

#[test]
fn an_unlinked_file_is_written_and_read_until_the_last_handle_is_gone() {
    let fixture = Fixture::plain();
    let handle = fixture.make(ROOT, "a");
    let second = fixture.fs().open_file(handle.id()).unwrap();
    fixture.fs().unlink(ROOT, name("a"), fixture.now()).unwrap();
    assert!(!fixture.exists("a"));
    drop(handle);
    fixture.write(&second, 0, &[3; 10_000]);
    assert_eq!(fixture.contents(&second), [3; 10_000]);
    assert_eq!(fixture.fs().attributes(second.id()).unwrap().links_count, 0);
    let id = second.id();
    drop(second);
    assert_eq!(class(&fixture.fs().attributes(id)), "not found");
    assert!(fixture.fs().group().file(id).is_none());
}

#[test]
fn the_kernels_references_keep_an_unlinked_file_until_they_are_forgotten() {
    let fixture = Fixture::plain();
    let id = fixture.make(ROOT, "a").id();
    fixture.fs().remember(id, 3);
    fixture.fs().unlink(ROOT, name("a"), fixture.now()).unwrap();
    fixture.fs().forget(id, 2);
    assert_eq!(class(&fixture.fs().attributes(id)), "ok");
    fixture.fs().forget(id, 1);
    assert_eq!(class(&fixture.fs().attributes(id)), "not found");
    assert_eq!(class(&fixture.fs().open_file(id)), "not found");
    // Counts of what is gone are of no interest.
    fixture.fs().forget(id, 1);
    fixture.fs().remember(id, 1);
}

#[test]
fn the_end_of_the_mount_ends_the_kernels_references_and_not_the_handles() {
    let fixture = Fixture::plain();
    let fs = fixture.fs();
    let (forgotten, named) = (
        fixture.make(ROOT, "a").id(),
        fixture.make(ROOT, "named").id(),
    );
    let open = fixture.make(ROOT, "b");
    for id in [forgotten, named, open.id()] {
        fs.remember(id, 3);
    }
    for gone in ["a", "b"] {
        fs.unlink(ROOT, name(gone), fixture.now()).unwrap();
    }
    assert_eq!(class(&fs.attributes(forgotten)), "ok");
    fs.end_kernel();
    assert_eq!(class(&fs.attributes(forgotten)), "not found");
    assert!(fs.group().file(forgotten).is_none());
    assert_eq!(fs.attributes(open.id()).unwrap().links_count, 0);
    let id = open.id();
    drop(open);
    assert_eq!(class(&fs.attributes(id)), "not found");
    fs.unlink(ROOT, name("named"), fixture.now()).unwrap();
    assert_eq!(class(&fs.attributes(named)), "not found");
    fixture.check();
}

#[test]
fn what_was_inherited_from_an_earlier_process_ends_with_the_mount_too() {
    let mut fixture = Fixture::plain();
    fixture.keep();
    let [orphan, named, later] = ["orphan", "named", "later"].map(|text| {
        let handle = fixture.make(ROOT, text);
        fixture.write(&handle, 0, &[7; 4096]);
        handle.id()
    });
    fixture.fs().sync().unwrap();
    fixture.kill();
    let fs = fixture.fs();
    for gone in ["orphan", "named"] {
        fs.unlink(ROOT, name(gone), fixture.now()).unwrap();
    }
    assert_eq!(fs.doubtful_orphans(), [orphan, named]);
    // One was known by this process, too.
    fs.remember(named, 1);
    fs.end_kernel();
    assert_eq!(fs.doubtful_orphans(), []);
    for id in [orphan, named] {
        assert!(fs.group().file(id).is_none());
    }
    // Loaded by now or not, it is nobody's heritage any more.
    fs.unlink(ROOT, name("later"), fixture.now()).unwrap();
    assert!(fs.group().file(later).is_none());
    fixture.check();
}

#[test]
fn a_file_without_a_name_gets_one_by_a_link() {
    let mut fixture = Fixture::plain();
    let (attributes, handle) = fixture
        .fs()
        .create_unnamed(ROOT, 0o600, OWNER, fixture.now())
        .unwrap();
    assert_eq!(attributes.links_count, 0);
    assert!(fixture.names(ROOT).is_empty());
    fixture.write(&handle, 0, b"hello");
    fixture
        .fs()
        .make_link(handle.id(), ROOT, name("named"), fixture.now())
        .unwrap();
    drop(handle);
    fixture.reopen();
    let found = fixture.find("named");
    assert_eq!((found.links_count, found.size_bytes), (1, 5));
}

#[test]
fn what_has_no_name_at_a_crash_is_removed_when_the_group_is_opened() {
    let mut fixture = Fixture::plain();
    let free = fixture.fs().space().unwrap().blocks_free;
    let handle = fixture.make(ROOT, "a");
    fixture.write(&handle, 0, &vec![1; 2 << 20]);
    let (_, unnamed) = fixture
        .fs()
        .create_unnamed(ROOT, 0o600, OWNER, fixture.now())
        .unwrap();
    fixture.write(&unnamed, 0, &vec![1; 2 << 20]);
    fixture.fs().unlink(ROOT, name("a"), fixture.now()).unwrap();
    fixture.fs().sync().unwrap();
    let ids = [handle.id(), unnamed.id()];
    // A process that is killed runs no destructor.
    std::mem::forget((handle, unnamed));
    fixture.crash();
    for id in ids {
        assert_eq!(class(&fixture.fs().attributes(id)), "not found");
        assert!(fixture.fs().group().file(id).is_none());
    }
    fixture.fs().sync().unwrap();
    fixture.check();
    assert_eq!(fixture.fs().space().unwrap().blocks_free, free);
}

#[test]
fn an_fsync_makes_a_new_file_its_name_and_its_directory_durable() {
    let mut fixture = Fixture::plain();
    let directory = fixture.directory(ROOT, "d");
    let handle = fixture.make(directory, "a");
    fixture.write(&handle, 0, b"acknowledged");
    fixture.fs().sync_file(&handle, true).unwrap();
    drop(handle);
    fixture.crash();
    let found = fixture.find("d/a");
    let handle = fixture.fs().open_file(found.id).unwrap();
    assert_eq!(fixture.contents(&handle), b"acknowledged");
}

#[test]
fn fdatasync_keeps_sizes_and_fsync_also_times() {
    let mut fixture = Fixture::plain();
    let handle = fixture.make(ROOT, "a");
    fixture.fs().sync_file(&handle, false).unwrap();
    fixture.write(&handle, 0, &[1; 5000]);
    fixture.fs().sync_file(&handle, true).unwrap();
    let synced = fixture.fs().attributes(handle.id()).unwrap();
    drop(handle);
    fixture.crash();
    let found = fixture.find("a");
    assert_eq!(found.size_bytes, 5000);
    assert_eq!(found.modified, synced.modified);

    let handle = fixture.fs().open_file(found.id).unwrap();
    let change = AttributeChange {
        permissions: Some(0o600),
        modified: Some(fixture.now()),
        ..Default::default()
    };
    let set = fixture
        .fs()
        .set_attributes(handle.id(), &change, fixture.now())
        .unwrap();
    fixture.fs().sync_file(&handle, false).unwrap();
    drop(handle);
    fixture.crash();
    let found = fixture.find("a");
    assert_eq!(found.modified, set.modified);
    assert_eq!(found.permissions, 0o600);
}

#[test]
fn an_fsync_of_an_unchanged_file_asks_the_disks_nothing() {
    let fixture = Fixture::plain();
    let handle = fixture.make(ROOT, "a");
    fixture.write(&handle, 0, &[1; 5000]);
    fixture.fs().sync_file(&handle, false).unwrap();
    let before = fixture.disks.counts();
    fixture.fs().sync_file(&handle, false).unwrap();
    fixture.fs().sync_file(&handle, true).unwrap();
    assert_eq!(fixture.disks.counts(), before);
    // Times alone are no reason for fdatasync to write metadata: the disks are flushed, no more.
    fixture.write(&handle, 0, &[2; 4096]);
    let before = fixture.disks.counts();
    fixture.fs().sync_file(&handle, true).unwrap();
    assert_eq!(fixture.disks.counts().writes, before.writes);
    assert!(fixture.disks.counts().flushes > before.flushes);
}

#[test]
fn aged_sizes_are_committed_by_steps_without_a_sync() {
    let mut fixture = Fixture::plain();
    let handle = fixture.make(ROOT, "a");
    fixture.fs().sync_file(&handle, false).unwrap();
    fixture.write(&handle, 0, &[1; 5000]);
    for second in 0..20 {
        while fixture.fs().step(second * 1000).unwrap() {}
    }
    drop(handle);
    fixture.crash();
    assert_eq!(fixture.find("a").size_bytes, 5000);
}

#[test]
fn what_was_written_is_durable_soon_after_the_last_write() {
    let fixture = Fixture::plain();
    let is_durable = |text: &str| {
        let group = fixture.after_power_cut(7);
        let fs = spindle_fs::FileSystem::open(group).unwrap();
        let found = fs.lookup(ROOT, name(text));
        found.is_ok_and(|found| {
            let mut back = [0; 8];
            let handle = fs.open_file(found.id).unwrap();
            fs.read(&handle, 0, &mut back).is_ok_and(|read| read == 8) && back == *b"contents"
        })
    };
    let step = |now_ms| while fixture.fs().step(now_ms).unwrap() {};
    step(1000);
    let handle = fixture.make(ROOT, "a");
    fixture.write(&handle, 0, b"contents");
    step(1100);
    assert!(!is_durable("a"), "nobody has asked");
    // As long as more comes it waits, and goes by its age.
    for tenth in 12..20 {
        fixture.write(&handle, 8, &[tenth; 8]);
        step(u64::from(tenth) * 100);
    }
    assert!(!is_durable("a"));
    step(2300);
    assert!(is_durable("a"));
    // Nothing is done for nothing.
    let before = fixture.disks.counts().flushes;
    for now_ms in [2400, 2600, 3000, 3400] {
        step(now_ms);
    }
    assert_eq!(fixture.disks.counts().flushes, before);
}

#[test]
fn what_a_step_could_not_make_durable_is_made_so_by_a_later_one() {
    let fixture = Fixture::new("plain", Redundancy::External);
    let file = fixture.make(ROOT, "file");
    fixture.write(&file, 0, &[1; 4096]);
    fixture.fs().sync().unwrap();
    for step in 1..=10 {
        while fixture.fs().step(step * 400).unwrap() {}
    }
    // In place: no map changes, so that only the flush makes it durable.
    fixture.write(&file, 0, &[2; 4096]);
    let (slot, offset_bytes) = fixture.places(&file, 0)[0];
    fixture.disks.fail_flushes(slot, 1);
    fixture.fs().step(4400).unwrap();
    fixture.fs().step(4800).unwrap_err();
    for step in 13..=20 {
        while fixture.fs().step(step * 400).unwrap() {}
    }
    let found = fixture.disks.durable_bytes(slot, offset_bytes, 4096);
    assert!(found == [2; 4096]);
}
