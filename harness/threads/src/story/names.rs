//! Files with names, and processes that are killed: the other kind of run.
//!
//! The real file system over a mirrored group whose journal a keeper holds. Each thread owns some
//! names, in the root and in a directory that all share, and changes them by requests that must be
//! done once; so what each is told follows from its own doings alone. Every round ends with a kill,
//! a power cut or in peace, and the next process finds what was left.
//!
//! - **After a kill** everything that was answered is there. The request under way was done or not,
//!   and when it was sent again, as the kernel does, it is done once.
//! - **After a power cut** each owner's names are as they were at some moment since the last sync.
//!
//! A kill is a copy of the disks, of the kept memory and of what everybody was told, taken between
//! two points. The killed process goes on with disks that have no power, until its threads end;
//! nobody hears what it says. What it does not show: a request that reaches a disk after the kill.

mod kept;
mod owner;

use std::ffi::OsString;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use spindle_base::{FileId, Uuid};
use spindle_device::{DiskSlot, Disks, SeededRandom, SimulatedDisks};
use spindle_fs::{Asked, FileSystem, FsError, FsResult, Kind, Owner as User, RenameMode, Time};
use spindle_group::{Group, KeptJournal, Opener};
use spindle_sync::thread;

use super::{Story, Subject, scene};
use crate::disks::PointDisks;
use crate::history::{BLOCK_BYTES, History, fill};
use owner::{Change, Entry, Names, Owner, Place, is_same};

const USER: User = User { user: 0, group: 0 };
/// Blocks that files have at most.
const FILE_BLOCKS: u64 = 12;
const SHARED: &str = "shared";
/// Names of a directory that are listed in one go.
const ENTRIES_MOST: usize = 3;

/// A process and the world that it is in.
struct Process {
    story: Story,
    journal: Arc<KeptJournal>,
    owners: Mutex<Vec<Owner>>,
    shared: FileId,
    /// What a kill of this process left.
    heir: Mutex<Option<Heir>>,
    /// By its own clock, which may be set.
    clock_s: u64,
    /// Since the machine was started.
    boot: u8,
    number: u8,
    /// The one before it was killed, and this one takes over.
    was_killed: bool,
}

/// See [`Process::heir`].
struct Heir {
    disks: SimulatedDisks,
    journal: KeptJournal,
    history: History,
    owners: Vec<Owner>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn new_journal() -> Arc<KeptJournal> {
    Arc::new(KeptJournal::create().expect("the kernel gives memory"))
}

/// Runs the story of a seed within an execution of the scheduler.
pub fn run(seed: u64, history: &Arc<History>) {
    let mut random = SeededRandom::new(seed);
    let disks = Arc::new(SimulatedDisks::new(
        seed,
        &[scene::DISK_BYTES; scene::DISKS_COUNT],
    ));
    let story = Story::new(seed, disks, Arc::clone(history));
    scene::create(&story.access);
    let mut process = Process {
        story,
        journal: new_journal(),
        owners: Mutex::new((0..2 + random.below(2)).map(Owner::new).collect()),
        shared: FileId(0),
        heir: Mutex::default(),
        clock_s: 1000,
        boot: 1,
        number: 1,
        was_killed: false,
    };
    process.make();
    for _ in 0..1 + random.below(4) {
        let Some(fs) = process.open() else {
            return;
        };
        let Some(next) = process.serve(fs, &mut random) else {
            return;
        };
        process = next;
    }
    if let Some(fs) = process.open() {
        process.end(&fs);
    }
}

impl Process {
    fn time(&self) -> Time {
        Time {
            seconds: i64::try_from(self.clock_s).expect("a small number"),
            nanoseconds: 5,
        }
    }

    fn history(&self) -> &History {
        &self.story.history
    }

    /// The files of the new group, by a process that nobody kills.
    fn make(&mut self) {
        let group = self.open_group(None).expect("a new group can be opened");
        FileSystem::create(&group, USER, self.time()).expect("it is empty");
        let fs = FileSystem::open(group).expect("it was made just now");
        let made = fs.make_directory(FileId::ROOT, SHARED.as_ref(), 0o755, USER, self.time());
        self.shared = made.expect("there is room").id;
        fs.close().expect("nothing has failed yet");
        self.number += 1;
    }

    fn open_group(
        &self,
        journal: Option<Arc<KeptJournal>>,
    ) -> Result<Arc<Group>, spindle_group::GroupError> {
        let disks = &self.story.disks;
        let slots: Vec<DiskSlot> = (0..u16::try_from(disks.disk_count()).expect("few"))
            .map(DiskSlot)
            .filter(|slot| !disks.is_vanished(*slot))
            .collect();
        let opener = Opener {
            host: "simulated".to_owned(),
            origin: None,
            booted_s: None,
            boot: Uuid([self.boot; 16]),
            process_id: u32::from(self.number),
            now_s: self.clock_s,
            force: false,
            preferred_failure_group: None,
        };
        let access = Arc::clone(&self.story.access);
        let name = scene::name();
        Group::open_kept(access, &slots, &name, &opener, &|_| false, journal).map(Arc::new)
    }

    /// Opens, sends again what was under way, and judges what is there.
    fn open(&self) -> Option<Arc<FileSystem>> {
        let disks = &self.story.disks;
        let mut random = self.story.random(60 + u64::from(self.number));
        let away: Vec<DiskSlot> = (self.story.fallible().into_iter())
            .filter(|slot| disks.is_vanished(*slot))
            .collect();
        let comes_late = random.chance(1, 2);
        if !comes_late {
            away.iter().for_each(|slot| disks.bring_back(*slot));
        }
        self.history().note(|| {
            let (number, boot) = (self.number, self.boot);
            format!("process {number} of boot {boot} opens; {away:?} were away")
        });
        let opened = self
            .open_group(Some(Arc::clone(&self.journal)))
            .map_err(FsError::from)
            .and_then(|group| FileSystem::open_kept(group, self.was_killed))
            .and_then(|fs| fs.group().begin_journal().map(|()| fs).map_err(FsError::from));
        let fs = match opened {
            Ok(fs) => Arc::new(fs),
            Err(error) => {
                self.history()
                    .violate(format!("the files cannot be opened: {error}"));
                return None;
            }
        };
        for slot in away {
            disks.bring_back(slot);
        }
        let offline: Vec<DiskSlot> = (fs.group().view().disks.iter())
            .filter(|disk| disk.mode == "offline")
            .map(|disk| DiskSlot(disk.number.0))
            .collect();
        if !offline.is_empty() {
            (self.story).judge("the return of disks", fs.group().return_disks(&offline));
        }
        for owner in locked(&self.owners).iter_mut() {
            self.judge_names(&fs, owner);
            self.send_again(&fs, owner);
            self.judge_data(&fs, owner);
        }
        self.history().is_clean().then_some(fs)
    }

    /// Runs the threads of this process; the next one, unless a promise was broken.
    fn serve(self, fs: Arc<FileSystem>, random: &mut SeededRandom) -> Option<Self> {
        let ends_by = random.below(4);
        if ends_by == 0 {
            let most = [50, 300][random.index(2)];
            (self.story.disks).power_fails_after(1 + random.below(most));
        }
        let kills_after = (ends_by < 3).then(|| random.below([40, 400, 2000][random.index(3)]));
        let number = u64::from(self.number) * 8;
        let process = Arc::new(self);
        let start = |body: Box<dyn FnOnce(&Self, &FileSystem) + Send>| {
            let (process, fs) = (Arc::clone(&process), Arc::clone(&fs));
            thread::spawn(move || body(&process, &fs))
        };
        let mut bounded = Vec::new();
        let owners_count = locked(&process.owners).len();
        for owner in 0..owners_count {
            bounded.push(start(Box::new(move |process, fs| process.own(fs, owner))));
        }
        if random.chance(1, 4) {
            bounded.push(start(Box::new(move |process, fs| {
                process.story.lose_and_return_disks(fs.group(), number + 6);
            })));
        }
        let mut endless = vec![
            start(Box::new(move |process, fs| process.step(fs, number + 4))),
            start(Box::new(move |process, fs| {
                process.story.work(fs.group(), number + 5);
            })),
        ];
        if let Some(points) = kills_after.filter(|_| ends_by > 0) {
            endless.push(start(Box::new(move |process, _| process.kill(points))));
        }
        for thread in bounded {
            let _ = thread.join();
        }
        process.story.is_over.store(true, Ordering::Relaxed);
        for thread in endless {
            let _ = thread.join();
        }
        let heir = locked(&process.heir).take();
        let Ok(process) = Arc::try_unwrap(process) else {
            unreachable!("all threads have ended");
        };
        process.succeeded(fs, heir, random)
    }

    /// The next process, after a kill, a power cut or a close.
    fn succeeded(
        self,
        fs: Arc<FileSystem>,
        heir: Option<Heir>,
        random: &mut SeededRandom,
    ) -> Option<Self> {
        let Self {
            story,
            mut journal,
            owners,
            shared,
            clock_s,
            mut boot,
            number,
            ..
        } = self;
        let mut owners = owners
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let seed = story.seed;
        let was_killed = heir.is_some();
        let (disks, history) = match heir {
            Some(heir) => {
                journal = Arc::new(heir.journal);
                owners = heir.owners;
                (Arc::new(heir.disks), Arc::new(heir.history))
            }
            None if !story.history.is_clean() => return None,
            None => {
                let was_cut = !story.disks.is_powered();
                if !was_cut {
                    story.disks.power_stays();
                    story.judge("the close", fs.group().sync());
                    story.disks.crash();
                }
                story.disks.restart();
                // The memory is gone, and nobody sends anything again.
                journal = new_journal();
                boot += 1;
                for owner in &mut owners {
                    if !was_cut {
                        owner.durable = owner.states.len() - 1;
                    }
                }
                (Arc::clone(&story.disks), Arc::clone(&story.history))
            }
        };
        drop(fs);
        let next = Story::new(seed, disks, history);
        let carry = |from: &std::sync::atomic::AtomicU64, to: &std::sync::atomic::AtomicU64| {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        };
        carry(&story.now_ms, &next.now_ms);
        carry(&story.next_version, &next.next_version);
        let clock_s = match random.below(4) {
            0 => clock_s,
            1 => clock_s - 100,
            _ => clock_s + random.below(100),
        };
        Some(Self {
            story: next,
            journal,
            owners: Mutex::new(owners),
            shared,
            heir: Mutex::default(),
            clock_s,
            boot,
            number: number + 1,
            was_killed,
        })
    }

    /// The process is killed after so many points.
    fn kill(&self, points: u64) {
        for _ in 0..points {
            if self.story.is_over.load(Ordering::Relaxed) || !self.story.goes_on() {
                return;
            }
            spindle_sync::point();
        }
        if !self.story.goes_on() {
            return;
        }
        // From here on nothing is a point.
        let seed = self.story.seed ^ u64::from(self.number) << 32;
        let copied = kept::copy(&self.journal).expect("the kernel gives memory");
        *locked(&self.heir) = Some(Heir {
            disks: self.story.disks.fork(seed),
            journal: copied,
            owners: locked(&self.owners).clone(),
            history: self.history().fork(),
        });
        self.story.disks.crash();
    }

    /// The lazy work of a daemon.
    fn step(&self, fs: &FileSystem, of: u64) {
        let mut random = self.story.random(of);
        while !self.story.is_over.load(Ordering::Relaxed) && self.story.goes_on() {
            let now_ms = self.story.later_ms(1 + random.below(2000));
            self.answered("a step", fs.step(now_ms));
            fs.group().take_events();
            spindle_sync::point();
        }
    }

    /// Whether an answer of what must not fail means anything.
    fn answered<T>(&self, what: &str, answer: FsResult<T>) -> Option<T> {
        match answer {
            Ok(value) => Some(value),
            Err(_) if !self.story.disks.is_powered() => None,
            Err(error) => {
                self.history().violate(format!("{what} failed: {error}"));
                None
            }
        }
    }

    /// A thread that owns names.
    fn own(&self, fs: &FileSystem, owner: usize) {
        let mut random = self.story.random(u64::from(self.number) * 8 + owner as u64);
        for _ in 0..8 + random.below(16) {
            if !self.story.goes_on() {
                return;
            }
            match random.below(12) {
                0..=6 => self.change_names(fs, owner, &mut random),
                7..=8 => self.write(fs, owner, &mut random),
                9 => self.sync_file(fs, owner, &mut random),
                _ => self.sync_all(fs),
            }
        }
    }

    fn change_names(&self, fs: &FileSystem, owner: usize, random: &mut SeededRandom) {
        let (change, unique) = {
            let mut owners = locked(&self.owners);
            let change = owners[owner].draw(random);
            (change, owners[owner].begin(change))
        };
        self.history()
            .note(|| format!("owner {owner} asks for {change:?}, request {unique}"));
        let asked = Asked {
            now: self.time(),
            request: Some(self.journal.request(owner, unique)),
        };
        let answer = self.carry_out(fs, owner, change, asked);
        let what = format!("{change:?} of owner {owner}");
        if let Some(made) = self.answered(&what, answer) {
            self.end_change(&mut locked(&self.owners)[owner], change, made);
        }
    }

    fn end_change(&self, owner: &mut Owner, change: Change, made: Option<FileId>) {
        if let Some(id) = made {
            self.history().create(id, 2);
        }
        owner.end(change, made);
        let number = owner.number;
        self.history()
            .note(|| format!("{change:?} of owner {number} was answered"));
    }

    /// Where a name lies, and what it is.
    fn name(&self, owner: usize, (is_shared, number): Place) -> (FileId, OsString) {
        let directory = if is_shared { self.shared } else { FileId::ROOT };
        (directory, format!("{owner}.{number}").into())
    }

    /// What a new file has as its number.
    fn carry_out<'a>(
        &self,
        fs: &'a FileSystem,
        owner: usize,
        change: Change,
        asked: Asked<'a>,
    ) -> FsResult<Option<FileId>> {
        let at = |place| self.name(owner, place);
        match change {
            Change::Create(place) => {
                let (parent, name) = at(place);
                let made = fs.make_node(parent, &name, Kind::Regular, 0o644, 0, USER, asked)?;
                Ok(Some(made.id))
            }
            Change::MakeDirectory(place) => {
                let (parent, name) = at(place);
                (fs.make_directory(parent, &name, 0o755, USER, asked)).map(|_| None)
            }
            Change::Unlink(place) => {
                let (parent, name) = at(place);
                fs.unlink(parent, &name, asked).map(|()| None)
            }
            Change::RemoveDirectory(place) => {
                let (parent, name) = at(place);
                fs.remove_directory(parent, &name, asked).map(|()| None)
            }
            Change::Rename(from, to) => {
                let ((parent, name), (to_parent, to_name)) = (at(from), at(to));
                let mode = RenameMode::Replace;
                fs.rename(parent, &name, to_parent, &to_name, mode, asked)
                    .map(|()| None)
            }
        }
    }

    /// One of the owner's files.
    fn draw_file(&self, owner: usize, random: &mut SeededRandom) -> Option<FileId> {
        let owners = locked(&self.owners);
        let files: Vec<FileId> = (owners[owner].names().values())
            .filter_map(|entry| match entry {
                Entry::File(id) => *id,
                Entry::Directory => None,
            })
            .collect();
        (!files.is_empty()).then(|| files[random.index(files.len())])
    }

    fn write(&self, fs: &FileSystem, owner: usize, random: &mut SeededRandom) {
        let Some(id) = self.draw_file(owner, random) else {
            return;
        };
        let Some(handle) = self.answered("an open", fs.open_file(id)) else {
            return;
        };
        let first = random.below(FILE_BLOCKS);
        let end = (first + 1 + random.below(3)).min(FILE_BLOCKS);
        let version = self.story.version();
        let mut data = vec![0; usize::try_from(end - first).expect("few") * BLOCK_BYTES];
        fill(&mut data, id, first, version);
        let place = self.history().begin_write(id, (first, end), version);
        let at = first * BLOCK_BYTES as u64;
        let answer = fs.write(&handle, at, &data, false, self.time());
        let ok = self.answered("a write", answer).is_some();
        self.history().end_write(id, place, ok);
    }

    fn sync_file(&self, fs: &FileSystem, owner: usize, random: &mut SeededRandom) {
        let Some(id) = self.draw_file(owner, random) else {
            return;
        };
        let Some(handle) = self.answered("an open", fs.open_file(id)) else {
            return;
        };
        let begun = self.history().tick();
        let answer = fs.sync_file(&handle, random.chance(1, 2));
        let ok = self.answered("a sync", answer).is_some();
        self.history().end_sync(id, begun, ok);
    }

    /// As fsync of a directory does it.
    fn sync_all(&self, fs: &FileSystem) {
        let begun = self.history().tick();
        let (standing, files): (Vec<usize>, Vec<FileId>) = {
            let owners = locked(&self.owners);
            let standing = owners.iter().map(|owner| owner.states.len() - 1);
            let entries = owners.iter().flat_map(|owner| owner.names().values());
            let files = entries.filter_map(|entry| match entry {
                Entry::File(id) => *id,
                Entry::Directory => None,
            });
            (standing.collect(), files.collect())
        };
        if self.answered("a sync of all", fs.sync()).is_none() {
            return;
        }
        for id in files {
            self.history().end_sync(id, begun, true);
        }
        for (owner, standing) in locked(&self.owners).iter_mut().zip(standing) {
            owner.durable = owner.durable.max(standing);
        }
    }

    /// What there is of the owner's names.
    fn found(&self, fs: &FileSystem, owner: u64) -> FsResult<Names> {
        let prefix = format!("{owner}.");
        let mut names = Names::new();
        for (is_shared, directory) in [(false, FileId::ROOT), (true, self.shared)] {
            let mut cookie = 0;
            loop {
                let entries = fs.read_directory(directory, cookie, ENTRIES_MOST)?;
                let Some(last) = entries.last() else { break };
                cookie = last.cookie;
                for entry in &entries {
                    let name = String::from_utf8_lossy(&entry.name);
                    let number = name.strip_prefix(&prefix).and_then(|rest| rest.parse().ok());
                    let Some(number) = number else { continue };
                    let kind = match entry.kind {
                        Kind::Directory => Entry::Directory,
                        _ => Entry::File(Some(entry.id)),
                    };
                    names.insert((is_shared, number), kind);
                }
            }
        }
        Ok(names)
    }

    /// The owner's names are one of those that they may be; that one is what counts from now on.
    fn judge_names(&self, fs: &FileSystem, owner: &mut Owner) {
        let number = owner.number;
        let Some(found) = self.answered("a listing", self.found(fs, number)) else {
            return;
        };
        let wanted = if self.was_killed {
            owner.after_kill()
        } else {
            owner.after_cut()
        };
        if !wanted.iter().any(|names| is_same(names, &found)) {
            self.history().violate(format!(
                "process {} finds of owner {number} {found:?}, which is none of {wanted:?}",
                self.number
            ));
            return;
        }
        for entry in found.values() {
            if let Entry::File(Some(id)) = entry {
                self.history().create_unless_known(*id, 2);
            }
        }
        if !self.was_killed {
            owner.states = vec![found];
            owner.durable = 0;
            owner.under_way = None;
        }
    }

    /// As the kernel does it after a kill.
    fn send_again(&self, fs: &FileSystem, owner: &mut Owner) {
        let Some((unique, change)) = owner.under_way.take() else {
            return;
        };
        let is_done = fs.group().is_done(unique);
        self.history().note(|| {
            format!("request {unique} for {change:?} is sent again; known as done: {is_done}")
        });
        let number = usize::try_from(owner.number).expect("few");
        if !is_done {
            let asked = Asked {
                now: self.time(),
                request: Some(self.journal.request(number, unique)),
            };
            let answer = self.carry_out(fs, number, change, asked);
            let what = format!("{change:?}, sent again,");
            if self.answered(&what, answer).is_none() {
                return;
            }
        }
        let Some(found) = self.answered("a listing", self.found(fs, owner.number)) else {
            return;
        };
        let wanted = owner::after(owner.names(), change, None);
        if !is_same(&wanted, &found) {
            self.history().violate(format!(
                "request {unique} for {change:?} was answered, and the names are {found:?} instead \
                 of {wanted:?}"
            ));
        }
        for entry in found.values() {
            if let Entry::File(Some(id)) = entry {
                self.history().create_unless_known(*id, 2);
            }
        }
        owner.states.push(found);
    }

    fn judge_data(&self, fs: &FileSystem, owner: &Owner) {
        let was_cut = !self.was_killed;
        for entry in owner.names().values() {
            let Entry::File(Some(id)) = entry else {
                continue;
            };
            let Some(handle) = self.answered("an open", fs.open_file(*id)) else {
                continue;
            };
            let length = usize::try_from(FILE_BLOCKS).expect("few") * BLOCK_BYTES;
            let mut bytes = vec![0; length];
            let read = self.answered("a read", fs.read(&handle, 0, &mut bytes));
            if let Some(read) = read {
                // What is beyond the end is not said.
                bytes[read..].fill(0);
                self.history().judge_end(*id, 0, &bytes, was_cut);
            }
        }
    }

    /// Everything comes to rest.
    fn end(&mut self, fs: &FileSystem) {
        let owners = locked(&self.owners);
        let files = owners.iter().flat_map(|owner| owner.names().values());
        self.story.files = files
            .filter_map(|entry| match entry {
                Entry::File(Some(id)) => Some(Subject {
                    id: *id,
                    is_mirrored: true,
                }),
                _ => None,
            })
            .collect();
        if self.story.bring_to_rest(fs.group()) {
            self.story.judge_copies(fs.group());
        }
        match self.answered("a check of the files", fs.check()) {
            Some(lines) if lines.is_empty() => {}
            Some(lines) => self
                .history()
                .violate(format!("the check of the files found: {}", lines.join("; "))),
            None => {}
        }
    }
}
