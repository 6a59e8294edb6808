//! Every form of rename.

use spindle_base::FileId;
use spindle_fs::{FsResult, RenameMode};

use crate::fixture::{Fixture, ROOT, class, name};

fn rename(
    fixture: &Fixture,
    from: (FileId, &str),
    to: (FileId, &str),
    mode: RenameMode,
) -> FsResult<()> {
    fixture
        .fs()
        .rename(from.0, name(from.1), to.0, name(to.1), mode, fixture.now())
}

#[test]
fn a_rename_within_a_directory_keeps_the_file_and_the_cookie() {
    let fixture = Fixture::plain();
    let id = fixture.make(ROOT, "a").id();
    let before = fixture.fs().read_directory(ROOT, 2, 10).unwrap();
    rename(&fixture, (ROOT, "a"), (ROOT, "b"), RenameMode::Replace).unwrap();
    let after = fixture.fs().read_directory(ROOT, 2, 10).unwrap();
    assert_eq!(fixture.names(ROOT), ["b"]);
    assert_eq!(fixture.find("b").id, id);
    assert_eq!(before[0].cookie, after[0].cookie);
}

#[test]
fn a_replaced_file_is_gone_unless_open() {
    let fixture = Fixture::plain();
    let a = fixture.make(ROOT, "a");
    fixture.write(&a, 0, b"new");
    let b = fixture.make(ROOT, "b");
    fixture.write(&b, 0, b"old");
    rename(&fixture, (ROOT, "a"), (ROOT, "b"), RenameMode::Replace).unwrap();
    assert_eq!(fixture.names(ROOT), ["b"]);
    assert_eq!(fixture.find("b").id, a.id());
    assert_eq!(fixture.contents(&b), b"old");
    let replaced = b.id();
    drop(b);
    assert_eq!(class(&fixture.fs().attributes(replaced)), "not found");
}

#[test]
fn no_replace_refuses_an_existing_target_and_moves_otherwise() {
    let fixture = Fixture::plain();
    fixture.make(ROOT, "a");
    fixture.make(ROOT, "b");
    let refused = rename(&fixture, (ROOT, "a"), (ROOT, "b"), RenameMode::NoReplace);
    assert_eq!(class(&refused), "exists");
    rename(&fixture, (ROOT, "a"), (ROOT, "c"), RenameMode::NoReplace).unwrap();
    assert_eq!(fixture.names(ROOT), ["b", "c"]);
}

#[test]
fn an_exchange_swaps_a_directory_and_a_file_across_directories() {
    let mut fixture = Fixture::plain();
    let left = fixture.directory(ROOT, "left");
    let right = fixture.directory(ROOT, "right");
    let inner = fixture.directory(left, "inner");
    let file = fixture.make(right, "file").id();
    rename(
        &fixture,
        (left, "inner"),
        (right, "file"),
        RenameMode::Exchange,
    )
    .unwrap();
    assert_eq!(fixture.find("left/inner").id, file);
    assert_eq!(fixture.find("right/file").id, inner);
    assert_eq!(fixture.find("left").links_count, 2);
    assert_eq!(fixture.find("right").links_count, 3);
    assert_eq!(fixture.fs().lookup(inner, name("..")).unwrap().id, right);
    let missing = rename(
        &fixture,
        (left, "inner"),
        (right, "x"),
        RenameMode::Exchange,
    );
    assert_eq!(class(&missing), "not found");
    fixture.reopen();
    assert_eq!(fixture.find("right/file").id, inner);
}

#[test]
fn two_names_of_one_file_stay_as_they_are() {
    let fixture = Fixture::plain();
    let id = fixture.make(ROOT, "a").id();
    fixture
        .fs()
        .make_link(id, ROOT, name("b"), fixture.now())
        .unwrap();
    for (to, mode) in [
        ("b", RenameMode::Replace),
        ("a", RenameMode::Replace),
        ("b", RenameMode::Exchange),
    ] {
        rename(&fixture, (ROOT, "a"), (ROOT, to), mode).unwrap();
        assert_eq!(fixture.names(ROOT), ["a", "b"]);
        assert_eq!(fixture.find("a").links_count, 2);
    }
}

#[test]
fn a_directory_cannot_come_to_lie_in_itself() {
    let fixture = Fixture::plain();
    let outer = fixture.directory(ROOT, "outer");
    let middle = fixture.directory(outer, "middle");
    let inner = fixture.directory(middle, "inner");
    for target in [outer, middle, inner] {
        let refused = rename(
            &fixture,
            (ROOT, "outer"),
            (target, "x"),
            RenameMode::Replace,
        );
        assert_eq!(class(&refused), "invalid");
    }
    // Neither by an exchange with something below it.
    let refused = rename(
        &fixture,
        (ROOT, "outer"),
        (middle, "inner"),
        RenameMode::Exchange,
    );
    assert_eq!(class(&refused), "invalid");
    let refused = rename(
        &fixture,
        (middle, "inner"),
        (ROOT, "outer"),
        RenameMode::Exchange,
    );
    assert_eq!(class(&refused), "invalid");
    // Over what is above it: that is not empty.
    let refused = rename(
        &fixture,
        (middle, "inner"),
        (ROOT, "outer"),
        RenameMode::Replace,
    );
    assert_eq!(class(&refused), "not empty");
    assert_eq!(fixture.find("outer/middle/inner").id, inner);
}

#[test]
fn a_directory_replaces_an_empty_directory_and_nothing_else() {
    let mut fixture = Fixture::plain();
    let full = fixture.directory(ROOT, "full");
    fixture.make(full, "file");
    let empty = fixture.directory(ROOT, "empty");
    fixture.make(ROOT, "plain");
    let cases = [
        ("empty", "full", "not empty"),
        ("empty", "plain", "not a directory"),
        ("plain", "empty", "is a directory"),
        ("full", "empty", "ok"),
    ];
    for (from, to, want) in cases {
        let result = rename(&fixture, (ROOT, from), (ROOT, to), RenameMode::Replace);
        assert_eq!(class(&result), want, "{from} to {to}");
    }
    assert_eq!(fixture.find("empty").id, full);
    assert_eq!(fixture.find("/").links_count, 3);
    assert_eq!(class(&fixture.fs().attributes(empty)), "not found");
    fixture.reopen();
    assert!(fixture.exists("empty/file"));
}

#[test]
fn a_directory_moved_elsewhere_takes_its_contents_and_its_way_up() {
    let mut fixture = Fixture::plain();
    let a = fixture.directory(ROOT, "a");
    let b = fixture.directory(ROOT, "b");
    let moved = fixture.directory(a, "moved");
    fixture.make(moved, "file");
    rename(&fixture, (a, "moved"), (b, "here"), RenameMode::Replace).unwrap();
    fixture.reopen();
    assert!(fixture.exists("b/here/file"));
    assert_eq!(fixture.fs().lookup(moved, name("..")).unwrap().id, b);
    assert_eq!(fixture.find("a").links_count, 2);
    assert_eq!(fixture.find("b").links_count, 3);
}

#[test]
fn a_file_written_and_renamed_over_another_is_whole_after_a_crash_that_kept_the_rename() {
    let mut fixture = Fixture::plain();
    fixture.keep();
    let old = fixture.make(ROOT, "settings");
    fixture.write(&old, 0, b"old settings");
    fixture.fs().sync().unwrap();
    let new = fixture.make(ROOT, "settings.new");
    let (bytes, now) = (b"new settings, longer", fixture.now());
    (fixture.fs())
        .write_behind(&new, 0, bytes[..].into(), now)
        .unwrap();
    rename(
        &fixture,
        (ROOT, "settings.new"),
        (ROOT, "settings"),
        RenameMode::Replace,
    )
    .unwrap();
    // Another file's fsync commits the rename; nobody synced the file itself.
    let other = fixture.make(ROOT, "other");
    fixture.fs().sync_file(&other, false).unwrap();
    drop((old, new, other));
    fixture.crash();
    let found = fixture.find("settings");
    let handle = fixture.fs().open_file(found.id).unwrap();
    assert_eq!(fixture.contents(&handle), b"new settings, longer");
}
