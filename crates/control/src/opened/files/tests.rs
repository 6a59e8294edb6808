use parking_lot::Mutex;
use spindle_base::{AuSize, DiskName, FailureGroupName, GroupName, Redundancy, Uuid};
use spindle_device::{DiskSlot, Disks, SimulatedDisks};
use spindle_group::{Group, NewDisk, NewGroup, Opener};

use super::*;
use crate::command::copy::{CopyOptions, CopyProgress, Tree, copy};

/// Remembers what it was told.
#[derive(Debug, Default)]
struct Told {
    entries: Mutex<Vec<(FileId, String)>>,
    attributes: Mutex<Vec<FileId>>,
}

impl KernelCache for Told {
    fn write_back(&self, _id: FileId) {}
    fn bytes_changed(&self, _id: FileId) -> bool {
        true
    }

    fn attributes_changed(&self, id: FileId) -> bool {
        self.attributes.lock().push(id);
        true
    }

    fn entry_changed(&self, parent: FileId, name: &OsStr) {
        let name = name.to_str().unwrap().to_owned();
        self.entries.lock().push((parent, name));
    }
}

const NEW: NewEntry = NewEntry {
    permissions: 0o777,
    user: 0,
    group: 0,
    modified: None,
};

fn files(kernel: Arc<dyn KernelCache>) -> OpenFiles {
    files_on(&Arc::new(SimulatedDisks::new(1, &[48 << 20])), kernel)
}

fn files_on(disks: &Arc<SimulatedDisks>, kernel: Arc<dyn KernelCache>) -> OpenFiles {
    let disks: Arc<dyn Disks> = Arc::<SimulatedDisks>::clone(disks);
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
    let link = Path::new("/link");
    files.make_symlink(link, Path::new("target"), NEW).unwrap();
    let too_long = "x".repeat(5000);
    (files.make_symlink(link, Path::new(&too_long), NEW)).unwrap_err();
    let there = files.file_system.lookup(FileId::ROOT, OsStr::new("link"));
    assert!(matches!(there, Err(FsError::NotFound)));
    let changed = (FileId::ROOT, "link".to_owned());
    assert_eq!(*told.entries.lock(), [changed.clone(), changed]);
}

#[test]
fn the_attributes_of_a_directory_and_of_what_a_name_led_to_before_count_as_forgotten() {
    let told = Arc::new(Told::default());
    let files = files(Arc::clone(&told) as Arc<dyn KernelCache>);
    let file_system = &files.file_system;
    let [file, link, volume] = ["/file", "/link", "/volume"].map(Path::new);
    files.write_from(file, NEW, &mut &b"one"[..]).unwrap();
    files.make_symlink(link, Path::new("one"), NEW).unwrap();
    files.create_volume(volume, 1 << 20, false).unwrap();
    let of_root = told.attributes.lock().iter().all(|id| *id == FileId::ROOT);
    assert!(of_root, "nothing was replaced");
    let change = |name: &str, change: &dyn Fn()| {
        let former = file_system.lookup(FileId::ROOT, OsStr::new(name));
        let former = former.ok().map(|attributes| attributes.id);
        if let Some(id) = former {
            let other = format!("other name of {name}");
            (file_system.make_link(id, FileId::ROOT, OsStr::new(&other), now())).unwrap();
        }
        // Answers with the attributes from before are on their way to the kernel, which holds what
        // they are of.
        let count = file_system.forgettings_count();
        let changed: Vec<FileId> = former.into_iter().chain([FileId::ROOT]).collect();
        for id in &changed {
            file_system.attributes(*id).unwrap();
            file_system.remember(*id, 1);
        }
        told.attributes.lock().clear();
        change();
        assert_eq!(*told.attributes.lock(), changed, "{name}");
        for id in changed {
            assert!(file_system.was_forgotten_since(id, count), "{name}: {id}");
        }
    };
    change("file", &|| {
        files.write_from(file, NEW, &mut &b"two"[..]).unwrap();
    });
    change("link", &|| {
        files.make_symlink(link, Path::new("two"), NEW).unwrap();
    });
    change("volume", &|| {
        files.drop_volume(volume).unwrap();
    });
    change("directory", &|| {
        files.make_directory(Path::new("/directory"), NEW).unwrap();
    });
    change("new", &|| {
        files
            .create_volume(Path::new("/new"), 1 << 20, false)
            .unwrap();
    });
}

/// A program may have it open, and asks how many names it has.
#[test]
fn the_attributes_of_a_file_whose_last_name_goes_count_as_forgotten_where_the_kernel_holds_it() {
    let told = Arc::new(Told::default());
    let files = files(Arc::clone(&told) as Arc<dyn KernelCache>);
    let file_system = &files.file_system;
    let file = Path::new("/file");
    let id_of = || {
        let found = file_system.lookup(FileId::ROOT, OsStr::new("file"));
        found.unwrap().id
    };
    files.write_from(file, NEW, &mut &b"one"[..]).unwrap();
    let held = id_of();
    file_system.remember(held, 1);
    let count = file_system.forgettings_count();
    files.write_from(file, NEW, &mut &b"two"[..]).unwrap();
    assert!(file_system.was_forgotten_since(held, count));
    assert_eq!(file_system.attributes(held).unwrap().links_count, 0);
    let held_by_nobody = id_of();
    told.attributes.lock().clear();
    files.write_from(file, NEW, &mut &b"three"[..]).unwrap();
    assert!(!told.attributes.lock().contains(&held_by_nobody));
    assert!(matches!(
        file_system.attributes(held_by_nobody),
        Err(FsError::NotFound)
    ));
}

#[test]
fn a_resize_of_a_volume_counts_as_a_forgetting_of_its_attributes() {
    let told = Arc::new(Told::default());
    let files = files(Arc::clone(&told) as Arc<dyn KernelCache>);
    let volume = Path::new("/volume");
    files.create_volume(volume, 1 << 20, false).unwrap();
    let file_system = &files.file_system;
    let id = (file_system
        .lookup(FileId::ROOT, OsStr::new("volume"))
        .unwrap())
    .id;
    // An answer with the size from before is on its way to the kernel.
    let count = file_system.forgettings_count();
    file_system.attributes(id).unwrap();
    told.attributes.lock().clear();
    files.resize_volume(volume, 2 << 20, false).unwrap();
    assert!(file_system.was_forgotten_since(id, count));
    assert_eq!(*told.attributes.lock(), [id]);
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

/// Files of which somebody else syncs everything right before this one does, and is told.
struct SyncedBefore<'a>(&'a OpenFiles);

impl Files for SyncedBefore<'_> {
    fn stat(&self, path: &Path) -> ControlResult<FileReport> {
        self.0.stat(path)
    }
    fn list(&self, path: &Path) -> ControlResult<Vec<FileReport>> {
        self.0.list(path)
    }
    fn map(&self, path: &Path) -> ControlResult<MapReport> {
        self.0.map(path)
    }
    fn usage(&self, path: &Path, depth: usize) -> ControlResult<Vec<UsageReport>> {
        self.0.usage(path, depth)
    }
    fn read_to(&self, path: &Path, out: &mut dyn Write) -> ControlResult<u64> {
        self.0.read_to(path, out)
    }
    fn write_from(&self, path: &Path, new: NewEntry, input: &mut dyn Read) -> ControlResult<u64> {
        self.0.write_from(path, new, input)
    }
    fn make_directory(&self, path: &Path, new: NewEntry) -> ControlResult<()> {
        self.0.make_directory(path, new)
    }
    fn make_symlink(&self, path: &Path, target: &Path, new: NewEntry) -> ControlResult<()> {
        self.0.make_symlink(path, target, new)
    }
    fn sync(&self, written: &[&Path]) -> ControlResult<()> {
        self.0.sync(&[]).unwrap_err();
        self.0.sync(written)
    }
}

struct Quiet;

impl CopyProgress for Quiet {
    fn total(&self, _files_count: u64, _bytes: u64) {}
    fn file(&self, _path: &Path) {}
    fn bytes(&self, _count: u64) {}
}

#[test]
fn what_a_copy_lost_is_told_to_it_though_another_sync_was_told() {
    let disks = Arc::new(SimulatedDisks::new(1, &[48 << 20]));
    let files = files_on(&disks, Arc::new(Told::default()));
    let path = Path::new("/file");
    (files.write_from(path, NEW, &mut &[1; 1 << 20][..])).unwrap();
    files.sync(&[]).unwrap();
    let tree = |files, path: &str| Tree {
        files,
        path: PathBuf::from(path),
        label: path.to_owned(),
    };
    let to = SyncedBefore(&files);
    disks.drop_at_flushes(DiskSlot(0), 1);
    let copied = copy(
        &[tree(&files, "/file")],
        &tree(&to, "/copy"),
        CopyOptions::default(),
        &Quiet,
    );
    let told = format!("{:#}", copied.unwrap_err());
    assert!(told.contains("may be lost"), "{told}");
    files.sync(&[]).unwrap();
    files.tell_lost(Path::new("/copy")).unwrap();
    files.tell_lost(Path::new("/gone")).unwrap();
}

#[test]
fn a_setting_is_changed_though_disks_lost_bytes_which_is_left_to_a_sync() {
    let disks = Arc::new(SimulatedDisks::new(1, &[48 << 20]));
    let files = files_on(&disks, Arc::new(Told::default()));
    let mut bytes = std::io::repeat(1).take(16 << 20);
    files
        .write_from(Path::new("/file"), NEW, &mut bytes)
        .unwrap();
    disks.drop_at_flushes(DiskSlot(0), 1);
    let group = files.file_system.group();
    let set = |value: &str| crate::opened::setting::change("DATA", group, "watchdog", value);
    let _ = set("5m");
    set("6m").unwrap();
    files.sync(&[]).unwrap_err();
}

#[test]
fn space_is_added_up_to_any_depth() {
    let files = files(Arc::new(Told::default()));
    let mut directory = FileId::ROOT;
    let owner = Owner { user: 0, group: 0 };
    for _ in 0..20_000 {
        let made =
            (files.file_system).make_directory(directory, OsStr::new("d"), 0o755, owner, now());
        directory = made.unwrap().id;
    }
    let (attributes, handle) = (files.file_system)
        .create_unnamed(directory, 0o644, owner, now())
        .unwrap();
    (files.file_system)
        .make_link(attributes.id, directory, OsStr::new("file"), now())
        .unwrap();
    files
        .file_system
        .write(&handle, 0, &[1; 4096], false, now())
        .unwrap();
    drop(handle);
    let told = files.usage(Path::new("/"), 1).unwrap();
    let sums: Vec<_> = (told.iter())
        .map(|one| (one.path.as_str(), one.files_count, one.size_bytes))
        .collect();
    assert_eq!(sums, [("/d", 1, 4096), ("/", 1, 4096)]);
}

#[test]
fn a_copy_takes_no_volumes_place() {
    let files = files(Arc::new(Told::default()));
    let path = Path::new("/volume");
    files.create_volume(path, 1 << 20, false).unwrap();
    let refused = files.write_from(path, NEW, &mut &b"bytes"[..]).unwrap_err();
    assert_eq!(refused.kind, ControlErrorKind::Exists);
    assert!(refused.to_string().contains("is a volume"), "{refused}");
    assert_eq!(files.volume(path).unwrap().0.size_bytes, 1 << 20);
    files.drop_volume(path).unwrap();
    files.write_from(path, NEW, &mut &b"bytes"[..]).unwrap();
}

/// Makes each file larger that it is to write back, as a program on the mount may.
#[derive(Debug, Default)]
struct Growing(Mutex<Option<Arc<FileSystem>>>);

impl KernelCache for Growing {
    fn write_back(&self, id: FileId) {
        if let Some(file_system) = &*self.0.lock() {
            let change = AttributeChange {
                size_bytes: Some(3 << 20),
                ..AttributeChange::default()
            };
            file_system.set_attributes(id, &change, now()).unwrap();
        }
    }

    fn bytes_changed(&self, _id: FileId) -> bool {
        true
    }

    fn attributes_changed(&self, _id: FileId) -> bool {
        true
    }

    fn entry_changed(&self, _parent: FileId, _name: &OsStr) {}
}

#[test]
fn a_volume_that_grew_meanwhile_does_not_shrink_unasked() {
    let kernel = Arc::new(Growing::default());
    let files = files(Arc::<Growing>::clone(&kernel));
    let path = Path::new("/volume");
    files.create_volume(path, 1 << 20, false).unwrap();
    *kernel.0.lock() = Some(Arc::clone(&files.file_system));
    let refused = files.resize_volume(path, 2 << 20, false).unwrap_err();
    assert!(refused.to_string().contains("--shrink"), "{refused}");
    assert_eq!(files.volume(path).unwrap().0.size_bytes, 3 << 20);
    *kernel.0.lock() = None;
    files.resize_volume(path, 2 << 20, true).unwrap();
}
