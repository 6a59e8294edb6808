//! Requests that are made and answered with an error: what the kernel is told of them.

use std::cell::RefCell;

use spindle_base::{AuSize, DiskName, FailureGroupName, GroupName, Redundancy, Uuid};
use spindle_device::{DiskSlot, SharedMemory, SimulatedDisks};
use spindle_group::{Group, KeptJournal, NewDisk, NewGroup, Opener};

use super::*;
use crate::abi::{
    self, AllocateIn, CopyRangeIn, NotifyInodeOut, SetAttributesIn, WriteIn, open_flags,
    set_attributes,
};
use crate::stale::Stale;

const BLOCK: u64 = 4096;
pub(super) const TIME: Time = Time {
    seconds: 1000,
    nanoseconds: 0,
};
pub(super) const OWNER: Owner = Owner { user: 0, group: 0 };

/// One request, and what is said of it.
struct Told {
    body: Vec<u8>,
    /// Runs when the request is looked at for the first time: all that comes before it has been done.
    then: RefCell<Option<Box<dyn FnOnce()>>>,
    /// Runs when the answer is made and not given yet.
    before_answer: Option<Box<dyn FnOnce()>>,
    errors: Vec<i32>,
    dropped: Vec<NotifyInodeOut>,
    forgotten: RefCell<Vec<Stale>>,
    forgotten_at_once: RefCell<Vec<Stale>>,
}

impl Told {
    fn new(body: &[&[u8]]) -> Self {
        Self {
            body: body.concat(),
            then: RefCell::default(),
            before_answer: None,
            errors: Vec::new(),
            dropped: Vec::new(),
            forgotten: RefCell::default(),
            forgotten_at_once: RefCell::default(),
        }
    }

    fn body(&self) -> &[u8] {
        let then = self.then.borrow_mut().take();
        if let Some(then) = then {
            then();
        }
        &self.body
    }
}

impl Transport for Told {
    fn receive(&mut self) -> Result<Option<InHeader>, Errno> {
        Ok(None)
    }

    fn arguments(&self, length_bytes: usize) -> Option<&[u8]> {
        self.body().get(..length_bytes)
    }

    fn tail(&self, after_bytes: usize) -> &[u8] {
        self.body().get(after_bytes..).unwrap_or_default()
    }

    fn payload(&mut self, _length_bytes: usize) -> Option<&mut [u8]> {
        None
    }

    fn answer(&mut self, error: i32, _data: &[u8]) -> Result<(), Errno> {
        if let Some(before_answer) = self.before_answer.take() {
            before_answer();
        }
        self.errors.push(error);
        Ok(())
    }

    fn answer_after(&mut self, _dropped: Dropped, _data: &[u8]) -> Result<(), Errno> {
        self.errors.push(0);
        Ok(())
    }

    fn drop_pages(&mut self, dropped: Dropped) {
        self.dropped.push(dropped.notice);
    }

    fn answer_payload(&mut self, _length_bytes: usize) -> Result<(), Errno> {
        self.errors.push(0);
        Ok(())
    }

    fn forget_soon(&self, stale: Vec<Stale>) {
        self.forgotten.borrow_mut().extend(stale);
    }

    fn forget(&self, stale: &Stale) -> Result<(), Errno> {
        self.forgotten_at_once.borrow_mut().push(stale.clone());
        Ok(())
    }
}

/// A group on one disk with a journal that is soon full, and two files in it.
struct Scene {
    disks: Arc<SimulatedDisks>,
    journal: Arc<KeptJournal>,
    file_system: Arc<FileSystem>,
    bridge: Bridge,
    fills: Arc<spindle_fs::Handle>,
    file: Arc<spindle_fs::Handle>,
}

/// A new file system on one disk, and what a keeper holds for it.
pub(super) fn file_system_on(
    disks: &Arc<SimulatedDisks>,
    journal: Option<Arc<KeptJournal>>,
) -> Arc<FileSystem> {
    let name = GroupName::new("DATA").unwrap();
    let new = NewGroup {
        name: name.clone(),
        uuid: Uuid([7; 16]),
        redundancy: Redundancy::External,
        au_size: AuSize::DEFAULT,
        disks: vec![NewDisk {
            slot: DiskSlot(0),
            name: DiskName::new("DISK").unwrap(),
            failure_group: FailureGroupName::new("SIDE").unwrap(),
            uuid: Uuid([1; 16]),
        }],
        profile: "plain".to_owned(),
        created_s: 1,
    };
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
    Group::create(disks.clone(), &new).unwrap();
    let slots = [DiskSlot(0)];
    let group = Group::open_kept(disks.clone(), &slots, &name, &opener, &|_| false, journal);
    let group = Arc::new(group.unwrap());
    FileSystem::create(&group, OWNER, TIME).unwrap();
    Arc::new(FileSystem::open(group).unwrap())
}

impl Scene {
    fn new() -> Self {
        let disks = Arc::new(SimulatedDisks::new(1, &[96 << 20]));
        let memory = SharedMemory::create("journal", KeptJournal::length_bytes(1 << 10)).unwrap();
        let journal = Arc::new(KeptJournal::new(memory).unwrap());
        let file_system = file_system_on(&disks, Some(Arc::clone(&journal)));
        let [fills, file] = ["fills", "file"].map(|name| {
            let made = file_system.create_file(FileId::ROOT, name.as_ref(), 0o644, OWNER, TIME);
            let handle = made.unwrap().1;
            let data = vec![1; 4 * 4096];
            (file_system.write(&handle, 0, &data, false, TIME)).unwrap();
            handle
        });
        file_system.sync().unwrap();
        let options = MountOptions::new("told");
        Self {
            // The kernel may keep anything of the files.
            bridge: Bridge::new(Arc::clone(&file_system), None, &options).after_another(),
            disks,
            journal,
            file_system,
            fills,
            file,
        }
    }

    /// Lets the request be made, where nothing refuses it, and not be kept.
    fn refused(&self, opcode: Opcode, node: FileId, body: &[&[u8]]) -> Told {
        let (disks, journal) = (Arc::clone(&self.disks), Arc::clone(&self.journal));
        let (file_system, fills) = (Arc::clone(&self.file_system), Arc::clone(&self.fills));
        let fail_to_keep = move || {
            while !journal.is_overflowed() {
                let change = spindle_fs::AttributeChange {
                    permissions: Some(0o600),
                    ..Default::default()
                };
                (file_system.set_attributes(fills.id(), &change, TIME)).unwrap();
            }
            (file_system.write(&fills, 0, &[2; 4096], false, TIME)).unwrap();
            disks.fail_flushes(DiskSlot(0), 1);
        };
        let mut told = Told::new(body);
        told.then = RefCell::new(Some(Box::new(fail_to_keep)));
        self.serve(opcode, node, &mut told);
        assert_eq!(told.errors, [-Errno::IO.raw_os_error()]);
        told
    }

    fn serve(&self, opcode: Opcode, node: FileId, told: &mut Told) {
        let header = InHeader {
            opcode: opcode as u32,
            unique: 2,
            node: node.0,
            ..InHeader::default()
        };
        self.bridge.serve(&header, told, 0).unwrap();
    }

    /// Serves a request that goes well.
    fn answered(&self, opcode: Opcode, node: FileId, body: &[&[u8]]) -> Told {
        let mut told = Told::new(body);
        self.serve(opcode, node, &mut told);
        assert_eq!(told.errors, [0]);
        told
    }

    /// How many notices a direct write sends of attributes.
    fn notices_of_a_direct_write(&self) -> usize {
        let request = WriteIn {
            handle: self.handle(&self.file),
            size_bytes: 4096,
            // As those of every user who is not privileged.
            write_flags: abi::WRITE_PAST_CACHE | abi::WRITE_KILL_PRIVILEGES,
            flags: open_flags::DIRECT,
            ..WriteIn::default()
        };
        let body = [request.as_bytes(), &[3; 4096]];
        let told = self.answered(Opcode::Write, self.file.id(), &body);
        let forgotten = told.forgotten_at_once.into_inner();
        let attributes = Stale::Attributes(self.file.id());
        // With anything else the kernel may wait for this very request.
        assert!(forgotten.iter().all(|stale| *stale == attributes));
        forgotten.len()
    }

    /// As [`Self::answered`], where `written` is written by another door before the answer is given; what
    /// the kernel is told to forget of what it was answered.
    fn overtaken(
        &self,
        written: &Arc<spindle_fs::Handle>,
        opcode: Opcode,
        node: FileId,
        body: &[&[u8]],
    ) -> Vec<Stale> {
        let mut told = Told::new(body);
        let written = Arc::clone(written);
        told.before_answer = Some(Box::new(move || {
            assert!(written.forget_attributes().is_some());
        }));
        self.serve(opcode, node, &mut told);
        assert_eq!(told.errors, [0]);
        told.forgotten.into_inner()
    }

    fn handle(&self, handle: &Arc<spindle_fs::Handle>) -> u64 {
        self.bridge.handles.insert(Arc::clone(handle))
    }

    fn allocate(&self, mode: u32) -> Told {
        let request = AllocateIn {
            handle: self.handle(&self.file),
            offset_bytes: BLOCK,
            length_bytes: 8 * BLOCK,
            mode,
            padding: 0,
        };
        self.refused(Opcode::Allocate, self.file.id(), &[request.as_bytes()])
    }

    fn set_attributes(&self, valid: u32) -> Told {
        let request = SetAttributesIn {
            valid,
            mode: 0o640,
            size_bytes: 64 * BLOCK,
            ..SetAttributesIn::default()
        };
        self.refused(Opcode::SetAttributes, self.file.id(), &[request.as_bytes()])
    }
}

/// The ranges that were dropped, all of that file.
fn ranges(told: &Told, id: FileId) -> Vec<(i64, i64)> {
    assert!(told.dropped.iter().all(|notice| notice.node == id.0));
    let ranges = told.dropped.iter();
    ranges
        .map(|notice| (notice.offset_bytes, notice.length_bytes))
        .collect()
}

#[test]
fn the_kernel_forgets_a_name_that_was_made_and_could_not_be_kept() {
    let scene = Scene::new();
    let told = scene.refused(Opcode::Symlink, FileId::ROOT, &[b"link\0target\0"]);
    let link = Stale::Entry {
        parent: FileId::ROOT,
        name: b"link".to_vec(),
    };
    assert_eq!(told.forgotten.into_inner(), [link]);
    assert!(told.dropped.is_empty());
    scene
        .file_system
        .lookup(FileId::ROOT, "link".as_ref())
        .unwrap();
}

#[test]
fn the_kernel_drops_what_a_direct_write_replaced_that_could_not_be_kept() {
    let scene = Scene::new();
    let request = WriteIn {
        handle: scene.handle(&scene.file),
        offset_bytes: BLOCK,
        size_bytes: 4096,
        write_flags: abi::WRITE_PAST_CACHE,
        flags: open_flags::DIRECT,
        ..WriteIn::default()
    };
    let body = [request.as_bytes(), &[3; 4096]];
    let told = scene.refused(Opcode::Write, scene.file.id(), &body);
    assert_eq!(ranges(&told, scene.file.id()), [(4096, 4096)]);
}

#[test]
fn the_kernel_drops_what_a_copy_replaced_that_could_not_be_kept() {
    let scene = Scene::new();
    let request = CopyRangeIn {
        from_handle: scene.handle(&scene.fills),
        from_offset_bytes: 0,
        to_node: scene.file.id().0,
        to_handle: scene.handle(&scene.file),
        to_offset_bytes: 2 * BLOCK,
        length_bytes: BLOCK,
        flags: 0,
    };
    for opcode in [Opcode::CopyRange, Opcode::CopyRange64] {
        let told = scene.refused(opcode, scene.fills.id(), &[request.as_bytes()]);
        assert_eq!(ranges(&told, scene.file.id()), [(8192, 4096)]);
    }
}

/// No thread of the daemon has the kernel drop bytes, which it does not do while they are being read.
#[test]
fn the_kernel_drops_the_bytes_of_a_file_whose_new_end_could_not_be_kept() {
    let scene = Scene::new();
    let attributes = [Stale::Attributes(scene.file.id())];
    let told = scene.set_attributes(set_attributes::SIZE);
    assert_eq!(ranges(&told, scene.file.id()), [(0, 0)]);
    assert_eq!(told.forgotten.into_inner(), attributes);
    let told = scene.allocate(0);
    assert_eq!(ranges(&told, scene.file.id()), [(0, 0)]);
    assert_eq!(told.forgotten.into_inner(), attributes);
}

#[test]
fn the_kernel_keeps_the_bytes_of_a_file_whose_permissions_could_not_be_kept() {
    let scene = Scene::new();
    let told = scene.set_attributes(set_attributes::MODE);
    assert!(told.dropped.is_empty());
    let attributes = [Stale::Attributes(scene.file.id())];
    assert_eq!(told.forgotten.into_inner(), attributes);
}

/// The hole is there but for blocks that wait in memory, and the file system refuses it.
#[test]
fn the_kernel_drops_the_bytes_of_a_file_in_which_half_a_hole_was_made() {
    const PUNCH_HOLE_KEEP_SIZE: u32 = 3;
    let scene = Scene::new();
    let told = scene.allocate(PUNCH_HOLE_KEEP_SIZE);
    assert_eq!(ranges(&told, scene.file.id()), [(0, 0)]);
}

#[test]
fn a_direct_write_has_attributes_forgotten_where_the_kernel_was_told_them_and_once() {
    let scene = Scene::new();
    // What an earlier process told is not known.
    scene.notices_of_a_direct_write();
    assert_eq!(scene.notices_of_a_direct_write(), 0);
    let of_file = scene.file.id();
    for (opcode, node, body) in [
        (Opcode::GetAttributes, of_file, b"".as_slice()),
        (Opcode::Lookup, FileId::ROOT, b"file\0".as_slice()),
    ] {
        scene.answered(opcode, node, &[body]);
        assert_eq!(scene.notices_of_a_direct_write(), 1, "{opcode:?}");
        assert_eq!(scene.notices_of_a_direct_write(), 0, "{opcode:?}");
    }
}

#[test]
fn attributes_that_reach_the_kernel_after_it_was_told_to_forget_them_are_forgotten_again() {
    let scene = Scene::new();
    let change = SetAttributesIn {
        valid: set_attributes::MODE,
        mode: 0o640,
        ..SetAttributesIn::default()
    };
    let (file, of_file) = (&scene.file, scene.file.id());
    let attributes = [Stale::Attributes(of_file)];
    let change = [change.as_bytes()];
    let forgotten = scene.overtaken(file, Opcode::SetAttributes, of_file, &change);
    assert_eq!(forgotten, attributes);
    let name = [b"file\0".as_slice()];
    let forgotten = scene.overtaken(file, Opcode::Lookup, FileId::ROOT, &name);
    assert_eq!(forgotten, attributes);
    let told = scene.answered(Opcode::Lookup, FileId::ROOT, &name);
    assert!(told.forgotten.into_inner().is_empty(), "nobody overtook it");
}

/// Each would start a thread, for as long as somebody writes to any file past the cache.
#[test]
fn attributes_of_one_file_are_not_forgotten_for_those_of_another() {
    let scene = Scene::new();
    let change = SetAttributesIn {
        valid: set_attributes::MODE,
        mode: 0o640,
        ..SetAttributesIn::default()
    };
    let requests = [
        (Opcode::SetAttributes, scene.file.id(), change.as_bytes()),
        (Opcode::Lookup, FileId::ROOT, b"file\0"),
    ];
    for (opcode, node, body) in requests {
        scene.answered(Opcode::Lookup, FileId::ROOT, &[b"fills\0"]);
        let forgotten = scene.overtaken(&scene.fills, opcode, node, &[body]);
        assert_eq!(forgotten, [], "{opcode:?}");
    }
}
