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

#[test]
fn attributes_of_one_file_are_bounded_so_that_they_can_be_listed() {
    let fixture = Fixture::plain();
    let file = fixture.make(ROOT, "file");
    let set = |number: usize, length: usize| {
        let text = format!("user.{number:0200}");
        let value = vec![1; length];
        let (fs, now) = (fixture.fs(), fixture.now());
        fs.set_extended_attribute(file.id(), name(&text), &value, false, false, now)
    };
    let count = (0..1000)
        .take_while(|number| set(*number, 1).is_ok())
        .count();
    assert_eq!(class(&set(count, 1)), "no space");
    let names = fixture.fs().list_extended_attributes(file.id()).unwrap();
    assert!(names.len() <= 64 << 10 && names.len() > 63 << 10);
    // Values are bounded too, and one that is there may be replaced.
    set(0, 2).unwrap();
    let large = (0..count).take_while(|number| set(*number, 60_000).is_ok());
    assert_eq!(large.count(), 17);
    (fixture.fs())
        .remove_extended_attribute(file.id(), name(&format!("user.{:0200}", 0)), fixture.now())
        .unwrap();
    set(count, 1).unwrap();
}
