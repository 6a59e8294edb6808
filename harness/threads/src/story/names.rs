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
//! nobody hears what it says. Of the writes that it had sent and that were not answered its disks
//! took none, all or some sectors. What it does not show: a request that reaches a disk when the next
//! process is there already.
//!
//! In some runs there are files that several threads use at once, beside disks that go, fail or join.
//!
//! In half of the runs the log of the keeper's journal is so small that it fills up; then the threads
//! do as the mount does, and have what fell out committed before anybody is answered.

mod clients;
mod doings;
mod filling;
mod judging;
mod kept;
mod meeting;
mod owner;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use spindle_base::{FileId, Redundancy, Uuid};
use spindle_device::{DiskSlot, SeededRandom, SharedMemory, SimulatedDisks};
use spindle_fs::{FileSystem, FsError, FsResult, Owner as User, Time};
use spindle_group::{Attended, Group, KeptJournal, Opener, RequestUnderWay, UnwrittenBlocks};
use spindle_lease::map::SharedMap;
use spindle_sync::thread;

use super::{Story, scene};
use crate::clock::Clock;
use crate::history::History;
use owner::Owner;

const USER: User = User { user: 0, group: 0 };
/// Blocks that files have at most.
const FILE_BLOCKS: u64 = 12;
const SHARED: &str = "shared";
/// Names of a directory that are listed in one go.
const ENTRIES_MOST: usize = 3;

/// What a run is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plot {
    Everything,
    /// The catalog is full or nearly so, and the disks have no room for more of it.
    Full,
    /// Files are used by several threads at once, and something happens to the disks.
    Meeting,
}

impl Plot {
    /// That of a seed.
    const fn of(seed: u64) -> Self {
        match seed % 64 {
            19 => Self::Full,
            7 | 23 | 39 | 55 => Self::Meeting,
            _ => Self::Everything,
        }
    }

    /// The size of every disk.
    const fn disk_bytes(self) -> u64 {
        match self {
            Self::Everything | Self::Meeting => scene::DISK_BYTES,
            Self::Full => 20 << 20,
        }
    }
}

/// A process and the world that it is in.
struct Process {
    story: Story,
    journal: Arc<KeptJournal>,
    /// What direct clients of this process read, where there are any.
    client_map: Option<SharedMemory>,
    /// Of the journal of every process of the run.
    log_bytes: u64,
    owners: Mutex<Vec<Owner>>,
    shared: FileId,
    /// What a kill of this process left.
    heir: Mutex<Option<Heir>>,
    /// By its own clock, which may be set.
    clock_s: u64,
    /// Since the machine was started.
    boot: u8,
    number: u8,
    /// The one before it was killed, and this one takes over its mount.
    was_killed: bool,
    /// It has come to the end of its opening.
    has_opened: AtomicBool,
}

/// What a thread of a process does.
type Body = Box<dyn FnOnce(&Process, &FileSystem) + Send>;

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

/// Of what ships; two in which a few changes of names have room; one with room for some dozens.
const LOGS_BYTES: [u64; 6] = [128 << 20, 128 << 20, 128 << 20, 1 << 10, 4 << 10, 32 << 10];

fn new_journal(log_bytes: u64) -> Arc<KeptJournal> {
    let length_bytes = KeptJournal::length_bytes(log_bytes);
    let memory = SharedMemory::create("journal", length_bytes).expect("the kernel gives memory");
    let blocks_count = if log_bytes < LOGS_BYTES[0] { 4 } else { 256 };
    let length_bytes = UnwrittenBlocks::length_bytes(blocks_count);
    let blocks = SharedMemory::create("blocks", length_bytes).expect("the kernel gives memory");
    let blocks = UnwrittenBlocks::new(blocks).expect("they are empty");
    let journal = KeptJournal::new(memory).expect("it is empty");
    Arc::new(journal.with_blocks(blocks))
}

/// Memory for the map of direct clients, where the plot has some.
fn new_client_map(seed: u64) -> Option<SharedMemory> {
    let new = || SharedMemory::create("map", SharedMap::LENGTH_BYTES);
    (Plot::of(seed) == Plot::Meeting).then(|| new().expect("the kernel gives memory"))
}

/// Runs the story of a seed within an execution of the scheduler.
pub fn run(seed: u64, history: &Arc<History>, clock: &Arc<Clock>) {
    let mut random = SeededRandom::new(seed);
    let (history, clock) = (Arc::clone(history), Arc::clone(clock));
    let story = Story::new(
        seed,
        scene::disks(seed, Plot::of(seed).disk_bytes()),
        history,
        clock,
    );
    scene::create(&story.access, Redundancy::Normal);
    let log_bytes = LOGS_BYTES[random.index(LOGS_BYTES.len())];
    let mut process = Process {
        story,
        journal: new_journal(log_bytes),
        client_map: new_client_map(seed),
        log_bytes,
        owners: Mutex::new((0..2 + random.below(2)).map(Owner::new).collect()),
        shared: FileId(0),
        heir: Mutex::default(),
        clock_s: 1000,
        boot: 1,
        number: 1,
        was_killed: false,
        has_opened: AtomicBool::new(false),
    };
    process.make();
    for _ in 0..1 + random.below(4) {
        let Some(next) = process.live(&mut random) else {
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

    /// A request of the kernel's, noted before it is carried out.
    fn request(&self, owner: usize, unique: u64) -> RequestUnderWay<'_> {
        let connection = self.journal.connection();
        self.journal.request(connection, owner, unique)
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
        match Plot::of(self.story.seed) {
            Plot::Everything => {}
            Plot::Full => self.fill(&fs),
            Plot::Meeting => self.story.files = self.make_met(&fs),
        }
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
        let again = |memory: &SharedMemory| {
            let descriptor = memory.descriptor().try_clone_to_owned()?;
            SharedMemory::from_descriptor(descriptor)
        };
        let client_map = self.client_map.as_ref().filter(|_| journal.is_some());
        let client_map = client_map.map(|memory| {
            let memory = again(memory).expect("the kernel maps memory");
            SharedMap::new(memory).expect("it is a map, or empty")
        });
        let attended = Attended {
            journal,
            client_map,
            ..Attended::default()
        };
        Group::open_attended(access, &slots, &name, &opener, &|_| false, attended).map(Arc::new)
    }

    /// Opens, sends again what was under way, and judges what is there.
    fn open(&self) -> Option<Arc<FileSystem>> {
        let disks = &self.story.disks;
        let mut random = self.story.random(60 + u64::from(self.number));
        let away: Vec<DiskSlot> = (self.story.fallible().into_iter())
            .filter(|slot| disks.is_vanished(*slot))
            .collect();
        if random.chance(1, 2) {
            away.iter().for_each(|slot| disks.bring_back(*slot));
        }
        self.history().note(|| {
            let (number, boot) = (self.number, self.boot);
            format!("process {number} of boot {boot} opens; {away:?} were away")
        });
        let opened = self
            .open_group(Some(Arc::clone(&self.journal)))
            .map_err(FsError::from)
            .and_then(|group| FileSystem::open_kept(group, self.was_killed));
        let fs = match opened {
            Ok(fs) => Arc::new(fs),
            Err(_) if !self.story.disks.is_powered() => return None,
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
        // Who is killed in here leaves everybody with what they knew before.
        let mut owners = locked(&self.owners).clone();
        for owner in &mut owners {
            self.judge_names(&fs, owner);
            self.send_again(&fs, owner);
            self.judge_data(&fs, owner);
        }
        self.judge_met(&fs);
        if !self.story.goes_on() {
            return None;
        }
        *locked(&self.owners) = owners;
        self.has_opened.store(true, Ordering::Relaxed);
        Some(fs)
    }

    /// Opens, and runs the threads of this process; the next one, unless a promise was broken.
    fn live(self, random: &mut SeededRandom) -> Option<Self> {
        let ends_by = random.below(4);
        if ends_by == 0 {
            let most = [50, 300][random.index(2)];
            (self.story.disks).power_fails_after(1 + random.below(most));
        }
        let most = [40, 400, 2000][random.index(3)];
        let kills_after = (ends_by < 3).then(|| random.below(most));
        let number = u64::from(self.number) * 8;
        let process = Arc::new(self);
        // It may be killed while it opens, too.
        let killer = kills_after.filter(|_| ends_by > 0).map(|points| {
            let process = Arc::clone(&process);
            thread::spawn(move || process.kill(points))
        });
        let fs = process.open();
        if let Some(fs) = &fs {
            Self::serve(&process, fs, number, random);
        }
        process.story.is_over.store(true, Ordering::Relaxed);
        if let Some(killer) = killer {
            let _ = killer.join();
        }
        let heir = locked(&process.heir).take();
        let Ok(process) = Arc::try_unwrap(process) else {
            unreachable!("all threads have ended");
        };
        process.succeeded(fs.as_deref(), heir, random)
    }

    /// Runs the threads of a process that has opened.
    fn serve(process: &Arc<Self>, fs: &Arc<FileSystem>, number: u64, random: &mut SeededRandom) {
        let start = |body: Body| {
            let (process, fs) = (Arc::clone(process), Arc::clone(fs));
            thread::spawn(move || body(&process, &fs))
        };
        let mut bounded = Vec::new();
        let owners_count = locked(&process.owners).len();
        for owner in 0..owners_count {
            bounded.push(start(Box::new(move |process, fs| process.own(fs, owner))));
        }
        if Plot::of(process.story.seed) == Plot::Meeting {
            bounded.extend(process.cast_of_meeting(random).into_iter().map(start));
        } else if random.chance(1, 4) {
            bounded.push(start(Box::new(move |process, fs| {
                process.story.lose_and_return_disks(fs.group(), number + 6);
            })));
        }
        let endless = [
            start(Box::new(move |process, fs| process.step(fs, number + 4))),
            start(Box::new(move |process, fs| {
                process.story.work(fs.group(), number + 5);
            })),
        ];
        for thread in bounded {
            let _ = thread.join();
        }
        process.story.is_over.store(true, Ordering::Relaxed);
        for thread in endless {
            let _ = thread.join();
        }
    }

    /// The next process, after a kill, a power cut or a close.
    fn succeeded(
        self,
        fs: Option<&FileSystem>,
        heir: Option<Heir>,
        random: &mut SeededRandom,
    ) -> Option<Self> {
        let Self {
            story,
            log_bytes,
            owners,
            shared,
            clock_s,
            mut boot,
            number,
            was_killed,
            has_opened,
            ..
        } = self;
        let mut owners = owners
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let seed = story.seed;
        // Where a power cut came before, and nobody has been told since what there is, the next one
        // finds what the cut left.
        let is_taken_over = heir.is_some() && (was_killed || has_opened.into_inner());
        let (disks, history, journal) = match heir {
            Some(heir) => {
                owners = heir.owners;
                let (disks, history) = (Arc::new(heir.disks), Arc::new(heir.history));
                (disks, history, Arc::new(heir.journal))
            }
            None if !story.history.is_clean() => return None,
            None => {
                let was_cut = !story.disks.is_powered();
                if was_cut {
                    story.history.power_cut();
                } else {
                    let fs = fs?;
                    story.disks.power_stays();
                    if let Err(error) = fs.sync() {
                        story
                            .history
                            .violate(format!("the last sync failed: {error}"));
                    }
                    story.disks.crash();
                }
                story.disks.restart();
                // The memory is gone, and nobody sends anything again.
                boot += 1;
                for owner in &mut owners {
                    if !was_cut {
                        owner.durable = owner.states.len() - 1;
                    }
                }
                (
                    Arc::clone(&story.disks),
                    Arc::clone(&story.history),
                    new_journal(log_bytes),
                )
            }
        };
        let mut next = Story::new(seed, disks, history, Arc::clone(&story.clock));
        next.files.clone_from(&story.files);
        let version = story.next_version.load(Ordering::Relaxed);
        next.next_version.store(version, Ordering::Relaxed);
        let clock_s = match random.below(4) {
            0 => clock_s,
            1 => clock_s - 100,
            _ => clock_s + random.below(100),
        };
        Some(Self {
            story: next,
            journal,
            client_map: new_client_map(seed),
            log_bytes,
            owners: Mutex::new(owners),
            shared,
            heir: Mutex::default(),
            clock_s,
            boot,
            number: number + 1,
            was_killed: is_taken_over,
            has_opened: AtomicBool::new(false),
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
        let disks = self.story.disks.fork(seed);
        let sent_count = self.story.sent.land_in_part(&disks);
        self.history().note(|| {
            let number = self.number;
            format!("process {number} is killed, with {sent_count} writes sent")
        });
        *locked(&self.heir) = Some(Heir {
            disks,
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
            fs.write_due();
            fs.group().take_events();
            spindle_sync::point();
        }
    }

    /// As the mount does before it carries a request out: a log that is nearly full is emptied first.
    fn make_room(&self, fs: &FileSystem) {
        if self.journal.is_nearly_full() {
            self.answered("a commit for a log that is nearly full", fs.make_durable());
        }
    }

    /// As the mount does before it answers: what fell out of the log would be lost by a kill.
    fn kept<T>(&self, fs: &FileSystem, answer: FsResult<T>) -> FsResult<T> {
        fs.group().keep_what_fell_out()?;
        answer
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
}
