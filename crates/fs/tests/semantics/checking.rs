//! Contradictions planted in the rows: the check tells them all, and puts right what loses
//! nothing.

use spindle_base::FileId;
use spindle_catalog::{Edit, Table, file_key};
use spindle_format::{Inode, NameRecord};
use spindle_fs::{FileSystem, FsError, RenameMode};

use crate::fixture::{Fixture, OWNER, ROOT, name};

fn plant(fixture: &Fixture, edit: Edit) {
    let group = fixture.fs().group();
    group.apply(&group.change(), edit);
}

fn name_key(parent: FileId, text: &str) -> Vec<u8> {
    let mut key = file_key(parent);
    key.extend_from_slice(text.as_bytes());
    key
}

fn take(fs: &FileSystem, table: Table, key: &[u8]) -> Vec<u8> {
    fs.group().get(table, key).unwrap().unwrap()
}

/// Checks with repair; what was put right, after a reopening found nothing more.
fn repaired(fixture: &mut Fixture, left_count: usize) -> Vec<String> {
    let found = fixture.fs().check().unwrap();
    assert!(!found.is_empty());
    let checked = fixture.fs().check_and_repair(OWNER, fixture.now()).unwrap();
    assert_eq!(checked.contradictions.len(), left_count, "{checked:?}");
    fixture.reopen();
    assert_eq!(fixture.fs().check().unwrap(), checked.contradictions);
    checked.repaired
}

#[test]
fn a_sound_file_system_has_nothing_to_repair() {
    let fixture = Fixture::plain();
    let checked = fixture.fs().check_and_repair(OWNER, fixture.now()).unwrap();
    assert_eq!(checked, spindle_fs::Checked::default());
}

#[test]
fn a_file_that_no_name_leads_to_is_found_again_with_its_bytes() {
    let mut fixture = Fixture::plain();
    let handle = fixture.make(ROOT, "a");
    fixture.write(&handle, 0, b"what was in it");
    let id = handle.id();
    drop(handle);
    fixture.reopen();
    let mut edit = Edit::default();
    edit.delete(Table::Name, name_key(ROOT, "a"));
    plant(&fixture, edit);
    let lines = repaired(&mut fixture, 0);
    assert!(
        lines
            .iter()
            .any(|line| line.contains("0 names") || line.contains("there are 0"))
    );
    let fs = fixture.fs();
    let path = format!("/lost+found/file-{id}");
    let found = fs.resolve(path.as_ref()).unwrap();
    assert_eq!((found.id, found.links_count), (id, 1));
    let handle = fs.open_file(id).unwrap();
    let mut bytes = [0; 14];
    assert_eq!(fs.read(&handle, 0, &mut bytes).unwrap(), 14);
    assert_eq!(&bytes, b"what was in it");
}

#[test]
fn counts_and_rows_follow_the_names() {
    let mut fixture = Fixture::plain();
    let handle = fixture.make(ROOT, "a");
    let id = handle.id();
    drop(handle);
    fixture.reopen();
    let fs = fixture.fs();
    let mut edit = Edit::default();
    // A second name that the inode does not count, one that leads nowhere, and rows of nobody.
    let record = take(fs, Table::Name, &name_key(ROOT, "a"));
    let mut other = NameRecord::parse(&record).unwrap();
    other.id = FileId(5000);
    edit.put(Table::Name, name_key(ROOT, "lost"), other.encode());
    edit.put(Table::Orphan, file_key(FileId(5000)), Vec::new());
    edit.put(Table::Orphan, file_key(id), Vec::new());
    edit.put(
        Table::ExtendedAttribute,
        name_key(FileId(5000), "user.x"),
        b"1".to_vec(),
    );
    plant(&fixture, edit);
    let lines = repaired(&mut fixture, 0);
    assert!(lines.len() >= 4, "{lines:?}");
    let fs = fixture.fs();
    assert!(fs.lookup(ROOT, name("lost")).is_err());
    assert_eq!(fs.lookup(ROOT, name("a")).unwrap().id, id);
}

#[test]
fn an_entry_whose_name_could_lead_elsewhere_is_an_error_and_the_check_tells_of_it() {
    let long = "x".repeat(256);
    for bad in ["../../etc", "a/b", "..", ".", "", "nul\0", long.as_str()] {
        let mut fixture = Fixture::plain();
        let directory = fixture.directory(ROOT, "directory");
        drop(fixture.make(directory, "good"));
        fixture.reopen();
        let fs = fixture.fs();
        let entry = take(fs, Table::Name, &name_key(directory, "good"));
        let mut edit = Edit::default();
        edit.put(Table::Name, name_key(directory, bad), entry);
        edit.delete(Table::Name, name_key(directory, "good"));
        plant(&fixture, edit);
        fixture.reopen();
        let fs = fixture.fs();
        let listed = fs.read_directory(directory, 0, 100);
        assert!(
            matches!(listed, Err(FsError::Group(_))),
            "{bad:?}: {listed:?}"
        );
        let mut visited = Vec::new();
        let walked = fs.walk(ROOT, &mut |path, _| {
            visited.push(path.to_owned());
            Ok(())
        });
        assert!(walked.is_err(), "{bad:?}");
        assert_eq!(visited, ["directory"], "{bad:?}");
        let lines = fs.check().unwrap();
        assert!(
            lines.iter().any(|line| line.contains("cannot be a name")),
            "{bad:?}: {lines:?}"
        );
    }
}

#[test]
fn directories_that_lie_in_one_another_are_errors_and_nobody_waits_for_ever() {
    let mut fixture = Fixture::plain();
    let outer = fixture.directory(ROOT, "outer");
    let inner = fixture.directory(outer, "inner");
    let other = fixture.directory(ROOT, "other");
    fixture.reopen();
    let fs = fixture.fs();
    // The name of the outer one moves into the inner one.
    let entry = take(fs, Table::Name, &name_key(ROOT, "outer"));
    let mut inode = Inode::parse(&take(fs, Table::Inode, &file_key(outer))).unwrap();
    inode.parent = Some(inner);
    let mut edit = Edit::default();
    edit.delete(Table::Name, name_key(ROOT, "outer"));
    edit.put(Table::Name, name_key(inner, "outer"), entry);
    edit.put(Table::Inode, file_key(outer), inode.encode());
    plant(&fixture, edit);
    fixture.reopen();
    let fs = fixture.fs();
    let made = fs.create_file(inner, name("file"), 0o644, OWNER, fixture.now());
    assert!(made.is_err());
    let moved = fs.rename(
        ROOT,
        name("other"),
        inner,
        name("moved"),
        RenameMode::Replace,
        fixture.now(),
    );
    assert!(moved.is_err(), "{moved:?}");
    let mut visits_count = 0;
    fs.walk(inner, &mut |_, _| {
        visits_count += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!(visits_count, 2);
    let lines = fs.check().unwrap();
    assert!(
        lines.iter().any(|line| line.contains("circle")),
        "{lines:?}"
    );
    assert!(fs.attributes(other).is_ok());
}
