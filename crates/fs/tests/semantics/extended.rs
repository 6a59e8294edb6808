//! Extended attributes.

use spindle_base::FileId;
use spindle_fs::FsResult;

use crate::fixture::{Fixture, ROOT, class, name};

fn set(
    fixture: &Fixture,
    id: FileId,
    text: &str,
    value: &[u8],
    flags: (bool, bool),
) -> FsResult<()> {
    fixture
        .fs()
        .set_extended_attribute(id, name(text), value, flags.0, flags.1, fixture.now())
}

const ANY: (bool, bool) = (false, false);
const CREATE: (bool, bool) = (true, false);
const REPLACE: (bool, bool) = (false, true);

#[test]
fn attributes_are_set_replaced_listed_and_removed() {
    let mut fixture = Fixture::plain();
    let id = fixture.make(ROOT, "a").id();
    let get = |fixture: &Fixture, text| fixture.fs().extended_attribute(id, name(text));
    assert_eq!(class(&get(&fixture, "user.x")), "no attribute");
    assert_eq!(
        class(&set(&fixture, id, "user.x", b"1", REPLACE)),
        "no attribute"
    );
    set(&fixture, id, "user.x", b"1", CREATE).unwrap();
    assert_eq!(class(&set(&fixture, id, "user.x", b"2", CREATE)), "exists");
    set(&fixture, id, "user.x", b"2", REPLACE).unwrap();
    set(&fixture, id, "security.y", b"", ANY).unwrap();
    fixture.reopen();
    assert_eq!(get(&fixture, "user.x").unwrap(), b"2");
    assert_eq!(get(&fixture, "security.y").unwrap(), b"");
    assert_eq!(class(&get(&fixture, "user.z")), "no attribute");
    let listed = fixture.fs().list_extended_attributes(id).unwrap();
    assert_eq!(listed, b"security.y\0user.x\0");
    let removed = fixture
        .fs()
        .remove_extended_attribute(id, name("user.x"), fixture.now());
    assert_eq!(class(&removed), "ok");
    let removed = fixture
        .fs()
        .remove_extended_attribute(id, name("user.x"), fixture.now());
    assert_eq!(class(&removed), "no attribute");
    assert_eq!(class(&get(&fixture, "user.x")), "no attribute");
}

#[test]
fn lists_of_access_control_and_too_large_values_are_refused() {
    let fixture = Fixture::plain();
    for (text, want) in [
        ("system.posix_acl_access", "unsupported"),
        ("system.posix_acl_default", "unsupported"),
        ("other.x", "unsupported"),
        ("user.", "invalid"),
    ] {
        assert_eq!(class(&set(&fixture, ROOT, text, b"", ANY)), want, "{text}");
    }
    let largest = vec![1; 64 << 10];
    set(&fixture, ROOT, "user.large", &largest, ANY).unwrap();
    let value = fixture
        .fs()
        .extended_attribute(ROOT, name("user.large"))
        .unwrap();
    assert_eq!(value, largest);
    let larger = vec![1; (64 << 10) + 1];
    assert_eq!(
        class(&set(&fixture, ROOT, "user.large", &larger, ANY)),
        "too large"
    );
}

#[test]
fn the_names_of_one_file_can_always_be_listed() {
    let fixture = Fixture::plain();
    let id = fixture.make(ROOT, "a").id();
    let name_of = |number: u32| format!("user.{number:0200}");
    let mut count = 0;
    let full = loop {
        let answer = set(&fixture, id, &name_of(count), b"v", ANY);
        if answer.is_err() {
            break answer;
        }
        count += 1;
        assert!(count < 1000, "nothing bounds them");
    };
    assert_eq!(class(&full), "attributes full");
    let listed = fixture.fs().list_extended_attributes(id).unwrap();
    // What the kernel takes, and hardly less.
    assert!((64_000..=65_536).contains(&listed.len()));
    // Another file has room, and so has this one after a removal.
    set(&fixture, ROOT, "user.x", b"1", ANY).unwrap();
    set(&fixture, id, &name_of(0), b"w", ANY).unwrap();
    let first = name_of(0);
    let removed = fixture
        .fs()
        .remove_extended_attribute(id, name(&first), fixture.now());
    removed.unwrap();
    set(&fixture, id, &name_of(count), b"v", ANY).unwrap();
}

#[test]
fn the_values_of_one_file_take_a_bounded_part_of_the_catalog() {
    let fixture = Fixture::plain();
    let id = fixture.make(ROOT, "a").id();
    let value = vec![7; 64 << 10];
    let mut count = 0;
    let full = loop {
        let answer = set(&fixture, id, &format!("user.{count}"), &value, ANY);
        if answer.is_err() {
            break answer;
        }
        count += 1;
        assert!(count < 100, "nothing bounds them");
    };
    assert_eq!(class(&full), "attributes full");
    assert_eq!(count, 15);
    assert_eq!(
        class(&set(&fixture, id, "user.small", b"", REPLACE)),
        "no attribute"
    );
    set(&fixture, id, "user.0", b"shorter", REPLACE).unwrap();
    set(&fixture, id, "user.15", &value, CREATE).unwrap();
    let last = set(&fixture, id, "user.0", &value, REPLACE);
    assert_eq!(class(&last), "attributes full");
    let kept = fixture.fs().extended_attribute(id, name("user.0")).unwrap();
    assert_eq!(kept, b"shorter");
}

#[test]
fn attributes_go_with_their_file() {
    let fixture = Fixture::plain();
    let id = fixture.make(ROOT, "a").id();
    set(&fixture, id, "user.x", b"1", ANY).unwrap();
    fixture.fs().unlink(ROOT, name("a"), fixture.now()).unwrap();
    let key = id.0.to_be_bytes();
    let rows = fixture
        .fs()
        .group()
        .range(
            spindle_catalog::Table::ExtendedAttribute,
            &key,
            &(id.0 + 1).to_be_bytes(),
            10,
        )
        .unwrap();
    assert!(rows.is_empty());
}
