use parking_lot::Mutex;
use spindle_base::{AuSize, DiskName, FailureGroupName, GroupName, Redundancy, Uuid};
use spindle_device::{DiskSlot, Disks, SimulatedDisks};
use spindle_group::{Group, NewDisk, NewGroup, Opener};

use super::*;

/// Remembers what it was told.
#[derive(Debug, Default)]
struct Told(Mutex<Vec<(FileId, String)>>);

impl KernelCache for Told {
    fn write_back(&self, _id: FileId) {}
    fn bytes_changed(&self, _id: FileId) -> bool {
        true
    }

    fn attributes_changed(&self, _id: FileId) -> bool {
        true
    }

    fn entry_changed(&self, parent: FileId, name: &OsStr) {
        let name = name.to_str().unwrap().to_owned();
        self.0.lock().push((parent, name));
    }
}

fn files(kernel: Arc<dyn KernelCache>) -> OpenFiles {
    let disks: Arc<dyn Disks> = Arc::new(SimulatedDisks::new(1, &[48 << 20]));
    let name = GroupName::new("DATA").unwrap();
    let new = NewGroup {
        name: name.clone(),
        uuid: Uuid([7; 16]),
        redundancy: Redundancy::External,
        au_size: AuSize::DEFAULT,
        disks: vec![NewDisk {
            slot: DiskSlot(0),
            name: DiskName::new("DISK0").unwrap(),
            failure_group: FailureGroupName::new("SIDE0").unwrap(),
            uuid: Uuid([1; 16]),
        }],
        profile: "plain".to_owned(),
        created_s: 1,
    };
    Group::create(Arc::clone(&disks), &new).unwrap();
    let opener = Opener {
        host: "here".to_owned(),
        origin: None,
        booted_s: None,
        boot: Uuid([9; 16]),
        process_id: 1,
        now_s: 1,
        force: true,
        preferred_failure_group: None,
    };
    let group = Group::open(disks, &[DiskSlot(0)], &name, &opener).unwrap();
    let group = Arc::new(group);
    FileSystem::create(&group, Owner { user: 0, group: 0 }, now()).unwrap();
    let file_system = FileSystem::open(group).unwrap();
    OpenFiles::new(Arc::new(file_system), "DATA".to_owned(), Some(kernel))
}

#[test]
fn the_kernel_is_told_that_a_link_has_gone_where_the_one_in_its_place_cannot_be_made() {
    let told = Arc::new(Told::default());
    let files = files(Arc::clone(&told) as Arc<dyn KernelCache>);
    let new = NewEntry {
        permissions: 0o777,
        user: 0,
        group: 0,
        modified: None,
    };
    let link = Path::new("/link");
    files.make_symlink(link, Path::new("target"), new).unwrap();
    let too_long = "x".repeat(5000);
    (files.make_symlink(link, Path::new(&too_long), new)).unwrap_err();
    let there = files.file_system.lookup(FileId::ROOT, OsStr::new("link"));
    assert!(matches!(there, Err(FsError::NotFound)));
    let changed = (FileId::ROOT, "link".to_owned());
    assert_eq!(*told.0.lock(), [changed.clone(), changed]);
}

#[test]
fn a_path_is_walked_from_the_root_however_it_is_written() {
    for (given, meant) in [
        ("/", "/"),
        ("", "/"),
        ("a//b/./c", "/a/b/c"),
        ("/a/../b", "/b"),
        ("/../..", "/"),
    ] {
        assert_eq!(
            normal(Path::new(given)).unwrap(),
            Path::new(meant),
            "{given}"
        );
    }
}

#[test]
fn a_name_beyond_255_bytes_is_told_before_anything_is_done() {
    let path = format!("/{}", "x".repeat(256));
    let error = normal(Path::new(&path)).unwrap_err();
    assert!(error.message().contains("256 bytes"), "{}", error.message());
}
