//! A group of four simulated disks in two failure groups, with a file system on it.

use std::cell::Cell;
use std::ffi::OsStr;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use spindle_base::{AuSize, DiskName, FailureGroupName, FileId, GroupName, Redundancy, Uuid};
use spindle_device::{DiskSlot, Disks, Operation, Request, SharedMemory, SimulatedDisks};
use spindle_fs::{AttributeChange, Attributes, FileSystem, FsError, FsResult, Handle, Owner, Time};
use spindle_group::{Group, KeptJournal, NewDisk, NewGroup, Opener, UnwrittenBlocks};

pub const ROOT: FileId = FileId::ROOT;
pub const OWNER: Owner = Owner {
    user: 1000,
    group: 100,
};

const DISKS_COUNT: u16 = 4;

pub struct Fixture {
    pub disks: Arc<SimulatedDisks>,
    fs: Option<FileSystem>,
    clock_s: Cell<i64>,
    /// The memory that a keeper would hold.
    journal: Option<Arc<KeptJournal>>,
}

/// The disks as a process sees them that is killed after some requests: it never hears of the
/// next one.
#[derive(Debug)]
struct Dying {
    disks: Arc<SimulatedDisks>,
    left: Mutex<usize>,
    dead: Sender<Option<FileSystem>>,
}

impl Disks for Dying {
    fn run(&self, batch: &mut [Request<'_>]) {
        let mut left = self.left.lock().unwrap();
        let reached = batch.len().min(*left);
        *left -= reached;
        self.disks.run(&mut batch[..reached]);
        if reached < batch.len() {
            self.dead.send(None).unwrap();
            loop {
                std::thread::park();
            }
        }
    }

    fn size_bytes(&self, slot: DiskSlot) -> u64 {
        self.disks.size_bytes(slot)
    }

    fn path(&self, slot: DiskSlot) -> String {
        self.disks.path(slot)
    }

    fn in_flight_count(&self, _slot: DiskSlot) -> u32 {
        0
    }

    fn appearance(&self, slot: DiskSlot) -> Option<u64> {
        self.disks.appearance(slot)
    }
}

type Watch = dyn Fn(&[Request<'_>]) + Send + Sync;

/// The disks, and somebody who is called before each batch of requests.
struct Watched {
    disks: Arc<SimulatedDisks>,
    watch: Box<Watch>,
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Watched").finish_non_exhaustive()
    }
}

impl Disks for Watched {
    fn run(&self, batch: &mut [Request<'_>]) {
        (self.watch)(batch);
        self.disks.run(batch);
    }

    fn size_bytes(&self, slot: DiskSlot) -> u64 {
        self.disks.size_bytes(slot)
    }

    fn path(&self, slot: DiskSlot) -> String {
        self.disks.path(slot)
    }

    fn in_flight_count(&self, _slot: DiskSlot) -> u32 {
        0
    }

    fn appearance(&self, slot: DiskSlot) -> Option<u64> {
        self.disks.appearance(slot)
    }
}

pub fn name(text: &str) -> &OsStr {
    OsStr::new(text)
}

impl Fixture {
    pub fn new(profile: &str, redundancy: Redundancy) -> Self {
        Self::sized(profile, redundancy, 48 << 20)
    }

    pub fn plain() -> Self {
        Self::new("plain", Redundancy::Normal)
    }

    pub fn sized(profile: &str, redundancy: Redundancy, disk_bytes: u64) -> Self {
        let disks = Arc::new(SimulatedDisks::new(1, &[disk_bytes; DISKS_COUNT as usize]));
        let new = NewGroup {
            name: GroupName::new("DATA").unwrap(),
            uuid: Uuid([7; 16]),
            redundancy,
            au_size: AuSize::DEFAULT,
            disks: (0..DISKS_COUNT)
                .map(|number| NewDisk {
                    slot: DiskSlot(number),
                    name: DiskName::new(format!("DISK{number}")).unwrap(),
                    failure_group: FailureGroupName::new(format!("SIDE{}", number % 2)).unwrap(),
                    uuid: Uuid([number as u8 + 1; 16]),
                })
                .collect(),
            profile: profile.to_owned(),
            created_s: 1,
        };
        Group::create(Arc::clone(&disks) as Arc<dyn Disks>, &new).unwrap();
        let fixture = Self {
            disks,
            fs: None,
            clock_s: Cell::new(1000),
            journal: None,
        };
        let group = fixture.open_group();
        FileSystem::create(&group, OWNER, fixture.now()).unwrap();
        Self {
            fs: Some(FileSystem::open(group).unwrap()),
            ..fixture
        }
    }

    /// From now on a keeper holds a journal, so that this process may be killed.
    pub fn keep(&mut self) {
        self.keep_with(1 << 18);
    }

    /// As [`Self::keep`], with memory for so many blocks.
    pub fn keep_with(&mut self, blocks_count: u32) {
        self.keep_in(KeptJournal::create().unwrap(), blocks_count);
    }

    /// As [`Self::keep`], with a log that has so much room.
    pub fn keep_with_log_of(&mut self, log_bytes: u64) {
        let length_bytes = KeptJournal::length_bytes(log_bytes);
        let memory = SharedMemory::create("journal", length_bytes).unwrap();
        self.keep_in(KeptJournal::new(memory).unwrap(), 1 << 10);
    }

    fn keep_in(&mut self, journal: KeptJournal, blocks_count: u32) {
        let length_bytes = UnwrittenBlocks::length_bytes(blocks_count);
        let memory = SharedMemory::create("blocks", length_bytes).unwrap();
        let blocks = UnwrittenBlocks::new(memory).unwrap();
        self.journal = Some(Arc::new(journal.with_blocks(blocks)));
        self.reopen();
    }

    /// Has changes noted until the log is full.
    pub fn fill_log(&self, path: &str) {
        let journal = self.journal.as_ref().expect("a keeper holds a journal");
        let id = self.find(path).id;
        while !journal.is_overflowed() {
            let change = AttributeChange {
                permissions: Some(0o600),
                ..AttributeChange::default()
            };
            self.fs().set_attributes(id, &change, self.now()).unwrap();
        }
    }

    /// Ends this process as SIGKILL would in the midst of `last`: what that did to the disks counts,
    /// and nothing that it did to the kept memory.
    pub fn kill_between(&mut self, last: impl FnOnce(&FileSystem)) {
        let journal = self.journal.as_ref().expect("a keeper holds a journal");
        let words = journal.memory().words();
        let copy = SharedMemory::create("journal", words.len() as u64 * 8).unwrap();
        for (to, from) in copy.words().iter().zip(words) {
            let bits = from.load(std::sync::atomic::Ordering::Acquire);
            if bits != 0 {
                to.store(bits, std::sync::atomic::Ordering::Release);
            }
        }
        last(self.fs());
        std::mem::forget(self.fs.take());
        self.journal = Some(Arc::new(KeptJournal::new(copy).unwrap()));
        self.open(true);
    }

    /// Ends this process as SIGKILL would, and starts the next one. Handles must be forgotten.
    pub fn kill(&mut self) {
        self.die();
        self.open(true);
    }

    /// Closes the group, as far as that goes, and starts the next process on the same mount.
    /// Handles must be forgotten.
    pub fn hand_over(&mut self) -> FsResult<()> {
        let fs = self.fs.take().expect("open between calls");
        let answer = fs.close();
        drop(fs);
        self.journal = Some(Arc::new(self.kept_memory()));
        self.open(true);
        answer
    }

    /// Ends this process as SIGKILL would.
    pub fn die(&mut self) {
        // Nothing of a killed process runs any more, no drop either.
        std::mem::forget(self.fs.take());
        self.journal = Some(Arc::new(self.kept_memory()));
    }

    /// The memory has another block beside those that a process left.
    pub fn leave_block(&self, file: FileId, block: u64, bytes: &[u8]) {
        let journal = self.journal.as_ref().expect("a keeper holds a journal");
        let blocks = journal.unwritten().expect("it has memory for blocks");
        let slot = blocks.take().unwrap();
        blocks.put(&slot, file, block, bytes);
    }

    /// The memory as the keeper gives it to the next process.
    fn kept_memory(&self) -> KeptJournal {
        let journal = self.journal.as_ref().expect("a keeper holds a journal");
        let again = |memory: &SharedMemory| {
            let descriptor = memory.descriptor().try_clone_to_owned().unwrap();
            SharedMemory::from_descriptor(descriptor).unwrap()
        };
        let next = KeptJournal::new(again(journal.memory())).unwrap();
        match journal.unwritten() {
            Some(blocks) => next.with_blocks(UnwrittenBlocks::new(again(blocks.memory())).unwrap()),
            None => next,
        }
    }

    /// Starts the next process, which is killed when so many requests have gone to the disks;
    /// whether it got to the end before.
    pub fn open_and_die_after(&mut self, requests: usize) -> bool {
        let (sender, receiver) = channel();
        let disks = Arc::new(Dying {
            disks: Arc::clone(&self.disks),
            left: Mutex::new(requests),
            dead: sender.clone(),
        });
        let journal = Arc::clone(self.journal.as_ref().unwrap());
        let _killed = std::thread::spawn(move || {
            let fs = FileSystem::open_kept(
                Self::open_with(Arc::clone(&disks) as Arc<dyn Disks>, Some(journal)),
                true,
            )
            .unwrap();
            *disks.left.lock().unwrap() = usize::MAX;
            sender.send(Some(fs)).unwrap();
        });
        match receiver.recv().unwrap() {
            Some(fs) => {
                self.fs = Some(fs);
                true
            }
            None => {
                self.journal = Some(Arc::new(self.kept_memory()));
                false
            }
        }
    }

    /// Somebody else, who has nothing to do with the keeper, has the group for a moment.
    pub fn open_elsewhere(&self) -> Arc<Group> {
        Self::open_on(Arc::clone(&self.disks) as Arc<dyn Disks>)
    }

    pub fn open(&mut self, inherits: bool) {
        let fs = FileSystem::open_kept(self.open_group(), inherits).unwrap();
        self.fs = Some(fs);
    }

    /// Closes and opens again; `watch` is called before all requests that write. Handles must be gone.
    pub fn reopen_watched(&mut self, watch: impl Fn() + Send + Sync + 'static) {
        self.reopen_asked(move |batch| {
            if (batch.iter()).any(|request| request.work.operation() == Operation::Write) {
                watch();
            }
        });
    }

    /// As [`Self::reopen_watched`], where `watch` hears of all requests.
    pub fn reopen_asked(&mut self, watch: impl Fn(&[Request<'_>]) + Send + Sync + 'static) {
        let disks = Watched {
            disks: Arc::clone(&self.disks),
            watch: Box::new(watch),
        };
        self.reopen_on(Arc::new(disks));
    }

    /// Closes, and opens on the same disks as somebody else shows them. Handles must be gone.
    pub fn reopen_on(&mut self, disks: Arc<dyn Disks>) {
        let fs = self.fs.take().expect("open between calls");
        fs.close().unwrap();
        drop(fs);
        let group = Self::open_with(disks, self.journal.clone());
        self.fs = Some(FileSystem::open_kept(group, false).unwrap());
    }

    fn open_group(&self) -> Arc<Group> {
        Self::open_with(
            Arc::clone(&self.disks) as Arc<dyn Disks>,
            self.journal.clone(),
        )
    }

    /// The group as it would be opened if the power were cut now; the real one goes on.
    pub fn after_power_cut(&self, seed: u64) -> Arc<Group> {
        let disks = self.disks.fork(seed);
        disks.crash();
        disks.restart();
        Self::open_on(Arc::new(disks))
    }

    fn open_on(disks: Arc<dyn Disks>) -> Arc<Group> {
        Self::open_with(disks, None)
    }

    fn open_with(disks: Arc<dyn Disks>, journal: Option<Arc<KeptJournal>>) -> Arc<Group> {
        let slots: Vec<DiskSlot> = (0..DISKS_COUNT).map(DiskSlot).collect();
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
        let name = GroupName::new("DATA").unwrap();
        let group = Group::open_kept(disks, &slots, &name, &opener, &|_| false, journal);
        Arc::new(group.unwrap())
    }

    pub fn fs(&self) -> &FileSystem {
        self.fs.as_ref().expect("open between calls")
    }

    /// Each call is a second later.
    pub fn now(&self) -> Time {
        self.clock_s.set(self.clock_s.get() + 1);
        Time {
            seconds: self.clock_s.get(),
            nanoseconds: 5,
        }
    }

    /// Closes and opens again; handles must be gone.
    pub fn reopen(&mut self) {
        let fs = self.fs.take().expect("open between calls");
        fs.close().unwrap();
        drop(fs);
        self.open(false);
    }

    /// Cuts the power without a word to the file system, then opens again.
    pub fn crash(&mut self) {
        self.disks.crash();
        self.fs = None;
        // The keeper's memory goes with the power.
        self.journal = None;
        self.disks.restart();
        self.fs = Some(FileSystem::open(self.open_group()).unwrap());
    }

    pub fn make(&self, parent: FileId, text: &str) -> Arc<Handle> {
        let made = self
            .fs()
            .create_file(parent, name(text), 0o644, OWNER, self.now());
        made.unwrap().1
    }

    pub fn directory(&self, parent: FileId, text: &str) -> FileId {
        let made = self
            .fs()
            .make_directory(parent, name(text), 0o755, OWNER, self.now());
        made.unwrap().id
    }

    pub fn write(&self, handle: &Handle, offset_bytes: u64, data: &[u8]) {
        self.fs()
            .write(handle, offset_bytes, data, false, self.now())
            .unwrap();
    }

    /// Where the copies of a byte of the file lie.
    pub fn places(&self, handle: &Handle, offset_bytes: u64) -> Vec<(DiskSlot, u64)> {
        let group = self.fs().group();
        let extents = group.map(&group.file(handle.id()).unwrap());
        let extent = (extents.into_iter())
            .rfind(|extent| extent.offset_bytes <= offset_bytes)
            .unwrap();
        let inside = offset_bytes - extent.offset_bytes;
        let copies = extent.copies.into_iter().flatten();
        copies
            .map(|(disk, start)| (DiskSlot(disk.0), start + inside))
            .collect()
    }

    pub fn contents(&self, handle: &Handle) -> Vec<u8> {
        let size_bytes = self.fs().attributes(handle.id()).unwrap().size_bytes;
        // One byte more than there is, so that a read beyond the end is noticed.
        let mut bytes = vec![0xee; usize::try_from(size_bytes).unwrap() + 1];
        let length = self.fs().read(handle, 0, &mut bytes).unwrap();
        assert_eq!(length as u64, size_bytes);
        bytes.truncate(length);
        bytes
    }

    pub fn find(&self, path: &str) -> Attributes {
        self.fs().resolve(OsStr::new(path)).unwrap()
    }

    pub fn exists(&self, path: &str) -> bool {
        match self.fs().resolve(OsStr::new(path)) {
            Ok(_) => true,
            Err(FsError::NotFound) => false,
            Err(error) => panic!("{path}: {error}"),
        }
    }

    /// The names of a directory, read three entries at a time, without "." and "..".
    pub fn names(&self, id: FileId) -> Vec<String> {
        let mut names = Vec::new();
        let mut cookie = 0;
        loop {
            let entries = self.fs().read_directory(id, cookie, 3).unwrap();
            let Some(last) = entries.last() else {
                break;
            };
            cookie = last.cookie;
            names.extend(
                entries
                    .into_iter()
                    .map(|entry| String::from_utf8(entry.name).unwrap())
                    .filter(|name| name != "." && name != ".."),
            );
        }
        names.sort();
        names
    }

    /// Neither this layer's check nor the group's own finds anything.
    pub fn check(&self) {
        let found = self.fs().check().unwrap();
        assert!(found.is_empty(), "{found:?}");
        let found = self.fs().group().check().unwrap();
        assert!(found.is_empty(), "{found:?}");
    }
}

/// The kind of an error, for comparing.
pub fn class<T>(result: &FsResult<T>) -> &'static str {
    match result {
        Ok(_) => "ok",
        Err(FsError::NotFound) => "not found",
        Err(FsError::Exists) => "exists",
        Err(FsError::NotADirectory) => "not a directory",
        Err(FsError::IsADirectory) => "is a directory",
        Err(FsError::NotEmpty) => "not empty",
        Err(FsError::NameTooLong) => "name too long",
        Err(FsError::TooManyLinks) => "too many links",
        Err(FsError::Invalid(_)) => "invalid",
        Err(FsError::NotPermitted(_)) => "not permitted",
        Err(FsError::NoAttribute) => "no attribute",
        Err(FsError::TooLarge) => "too large",
        Err(FsError::AttributesFull) => "attributes full",
        Err(FsError::Unsupported) => "unsupported",
        Err(FsError::Group(error)) => match error.kind {
            spindle_group::GroupErrorKind::NoSpace => "no space",
            _ => panic!("the group failed: {error}"),
        },
    }
}
