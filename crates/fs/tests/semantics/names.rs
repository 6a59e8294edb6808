//! Names: making, finding, reading, removing.

use spindle_base::FileId;
use spindle_fs::{FsError, Kind};

use crate::fixture::{Fixture, OWNER, ROOT, class, name};

#[test]
fn a_fresh_file_system_has_an_empty_root_with_two_links() {
    let fixture = Fixture::plain();
    let root = fixture.fs().attributes(ROOT).unwrap();
    assert_eq!((root.kind, root.links_count), (Kind::Directory, 2));
    assert!(fixture.names(ROOT).is_empty());
    let entries = fixture.fs().read_directory(ROOT, 0, 10).unwrap();
    let names: Vec<&[u8]> = entries.iter().map(|entry| entry.name.as_slice()).collect();
    assert_eq!(names, [b".".as_slice(), b".."]);
}

#[test]
fn names_are_bytes_with_case_of_at_most_255_without_slash_and_nul() {
    let fixture = Fixture::plain();
    let longest = "x".repeat(255);
    for good in ["a", "A", "...", longest.as_str(), "ü \n"] {
        fixture.make(ROOT, good);
    }
    assert_eq!(fixture.names(ROOT).len(), 5);
    let too_long = "x".repeat(256);
    for (bad, want) in [
        (too_long.as_str(), "name too long"),
        ("a/b", "invalid"),
        ("a\0", "invalid"),
        ("", "invalid"),
        (".", "invalid"),
        ("..", "invalid"),
        ("a", "exists"),
    ] {
        let made = fixture
            .fs()
            .create_file(ROOT, name(bad), 0o644, OWNER, fixture.now());
        assert_eq!(class(&made), want, "{bad:?}");
    }
    let looked = fixture.fs().lookup(ROOT, name(&too_long));
    assert_eq!(class(&looked), "name too long");
}

#[test]
fn a_directory_counts_its_subdirectories_and_notes_when_names_change() {
    let fixture = Fixture::plain();
    let outer = fixture.directory(ROOT, "outer");
    let before = fixture.fs().attributes(outer).unwrap();
    let inner = fixture.directory(outer, "inner");
    fixture.make(outer, "file");
    let after = fixture.fs().attributes(outer).unwrap();
    assert_eq!((before.links_count, after.links_count), (2, 3));
    assert!(after.modified > before.modified && after.changed > before.changed);
    assert_eq!(fixture.fs().lookup(inner, name("..")).unwrap().id, outer);
    assert_eq!(fixture.fs().lookup(inner, name(".")).unwrap().id, inner);
    assert_eq!(fixture.fs().lookup(ROOT, name("..")).unwrap().id, ROOT);
    fixture
        .fs()
        .remove_directory(outer, name("inner"), fixture.now())
        .unwrap();
    assert_eq!(fixture.fs().attributes(outer).unwrap().links_count, 2);
}

#[test]
fn removing_the_wrong_kind_or_a_full_directory_is_refused() {
    let fixture = Fixture::plain();
    let outer = fixture.directory(ROOT, "outer");
    fixture.make(outer, "file");
    let fs = fixture.fs();
    let now = fixture.now();
    assert_eq!(
        class(&fs.remove_directory(ROOT, name("outer"), now)),
        "not empty"
    );
    assert_eq!(
        class(&fs.unlink(ROOT, name("outer"), now)),
        "is a directory"
    );
    assert_eq!(
        class(&fs.remove_directory(outer, name("file"), now)),
        "not a directory"
    );
    assert_eq!(class(&fs.unlink(outer, name("other"), now)), "not found");
    let file = fixture.find("outer/file").id;
    assert_eq!(class(&fs.lookup(file, name("x"))), "not a directory");
    assert_eq!(class(&fs.read_directory(file, 0, 1)), "not a directory");
}

#[test]
fn a_directory_removed_while_open_is_empty_and_takes_nothing_new() {
    let fixture = Fixture::plain();
    let id = fixture.directory(ROOT, "gone");
    let handle = fixture.fs().open_file(id).unwrap();
    fixture
        .fs()
        .remove_directory(ROOT, name("gone"), fixture.now())
        .unwrap();
    assert_eq!(fixture.fs().attributes(id).unwrap().links_count, 0);
    assert!(fixture.fs().read_directory(id, 0, 10).unwrap().is_empty());
    let made = fixture
        .fs()
        .create_file(id, name("x"), 0o644, OWNER, fixture.now());
    assert!(matches!(made, Err(FsError::NotFound)));
    drop(handle);
    assert!(matches!(
        fixture.fs().attributes(id),
        Err(FsError::NotFound)
    ));
}

#[test]
fn a_set_group_id_directory_gives_its_group_to_what_is_made_in_it() {
    let fixture = Fixture::plain();
    let outer = fixture.directory(ROOT, "shared");
    let change = spindle_fs::AttributeChange {
        permissions: Some(0o2775),
        group: Some(55),
        ..Default::default()
    };
    fixture
        .fs()
        .set_attributes(outer, &change, fixture.now())
        .unwrap();
    let file = fixture.make(outer, "file");
    let inner = fixture.directory(outer, "inner");
    let file = fixture.fs().attributes(file.id()).unwrap();
    let inner = fixture.fs().attributes(inner).unwrap();
    assert_eq!((file.group, file.permissions), (55, 0o644));
    assert_eq!((inner.group, inner.permissions), (55, 0o2755));
}

#[test]
fn special_nodes_and_links_keep_what_they_were_made_with() {
    let mut fixture = Fixture::plain();
    let device = fixture
        .fs()
        .make_node(
            ROOT,
            name("device"),
            Kind::BlockDevice,
            0o600,
            0x801,
            OWNER,
            fixture.now(),
        )
        .unwrap();
    let target = "t".repeat(4095);
    let link = fixture
        .fs()
        .make_symlink(ROOT, name("link"), name(&target), OWNER, fixture.now())
        .unwrap();
    let too_long = "t".repeat(4096);
    let refused =
        fixture
            .fs()
            .make_symlink(ROOT, name("long"), name(&too_long), OWNER, fixture.now());
    assert_eq!(class(&refused), "name too long");
    fixture.reopen();
    let found = fixture.find("device");
    assert_eq!(
        (found.id, found.kind, found.device),
        (device.id, Kind::BlockDevice, 0x801)
    );
    let found = fixture.find("link");
    assert_eq!((found.id, found.size_bytes), (link.id, 4095));
    assert_eq!(fixture.fs().read_link(link.id).unwrap(), target.as_bytes());
    assert_eq!(class(&fixture.fs().read_link(device.id)), "invalid");
}

#[test]
fn ids_are_never_used_again_also_after_a_crash() {
    let mut fixture = Fixture::plain();
    let mut last = FileId(0);
    for round in 0..3 {
        let handle = fixture.make(ROOT, &format!("file{round}"));
        assert!(handle.id() > last);
        last = handle.id();
        fixture.fs().sync_file(&handle, false).unwrap();
        drop(handle);
        fixture
            .fs()
            .unlink(ROOT, name(&format!("file{round}")), fixture.now())
            .unwrap();
        fixture.crash();
    }
}

#[test]
fn entries_that_stay_come_exactly_once_whatever_changes_while_a_directory_is_read() {
    let fixture = Fixture::plain();
    let id = fixture.directory(ROOT, "many");
    for number in 0..300 {
        fixture.make(id, &format!("stay{number}"));
        fixture.make(id, &format!("go{number}"));
    }
    let mut seen = Vec::new();
    let mut cookie = 0;
    let mut round = 0;
    loop {
        let entries = fixture.fs().read_directory(id, cookie, 7).unwrap();
        let Some(last) = entries.last() else {
            break;
        };
        cookie = last.cookie;
        seen.extend(entries.into_iter().map(|entry| entry.name));
        // Removes one of what was read and of what was not, and adds one.
        for number in [round, 299 - round] {
            let gone = format!("go{number}");
            let removed = fixture.fs().unlink(id, name(&gone), fixture.now());
            assert!(matches!(removed, Ok(()) | Err(FsError::NotFound)));
        }
        let replaced = fixture.fs().rename(
            id,
            name(&format!("new{}", round.max(1) - 1)),
            id,
            name(&format!("stay{round}")),
            spindle_fs::RenameMode::Replace,
            fixture.now(),
        );
        assert!(matches!(replaced, Ok(()) | Err(FsError::NotFound)));
        if round < 50 {
            fixture.make(id, &format!("new{round}"));
        }
        round += 1;
    }
    let mut stayed: Vec<Vec<u8>> = seen
        .into_iter()
        .filter(|name| name.starts_with(b"stay"))
        .collect();
    assert_eq!(stayed.len(), 300);
    stayed.sort();
    stayed.dedup();
    assert_eq!(stayed.len(), 300);
}

#[test]
fn a_directory_emptied_while_it_is_read_is_read_and_emptied_whole() {
    let fixture = Fixture::plain();
    let id = fixture.directory(ROOT, "many");
    for number in 0..500 {
        fixture
            .fs()
            .make_node(
                id,
                name(&format!("file{number}")),
                Kind::Fifo,
                0o644,
                0,
                OWNER,
                fixture.now(),
            )
            .unwrap();
    }
    let mut cookie = 0;
    loop {
        let entries = fixture.fs().read_directory(id, cookie, 11).unwrap();
        let Some(last) = entries.last() else {
            break;
        };
        cookie = last.cookie;
        for entry in entries {
            let text = String::from_utf8(entry.name).unwrap();
            if text != "." && text != ".." {
                fixture.fs().unlink(id, name(&text), fixture.now()).unwrap();
            }
        }
    }
    fixture
        .fs()
        .remove_directory(ROOT, name("many"), fixture.now())
        .unwrap();
    fixture.check();
}

#[test]
fn the_path_of_a_file_is_one_of_its_names_and_of_a_removed_one_there_is_none() {
    let fixture = Fixture::plain();
    let directory = fixture.directory(ROOT, "directory");
    let file = fixture.make(directory, "b");
    let fs = fixture.fs();
    let path = |id| fs.path_of(id).unwrap();
    assert_eq!(path(file.id()).unwrap(), "/directory/b");
    fs.make_link(file.id(), directory, name("a"), fixture.now())
        .unwrap();
    assert_eq!(path(file.id()).unwrap(), "/directory/a");
    for text in ["a", "b"] {
        assert!(path(file.id()).is_some());
        fs.unlink(directory, name(text), fixture.now()).unwrap();
    }
    assert_eq!(path(file.id()), None);
    assert_eq!(path(directory).unwrap(), "/directory");
    fs.remove_directory(ROOT, name("directory"), fixture.now())
        .unwrap();
    assert_eq!(path(directory), None);
}
