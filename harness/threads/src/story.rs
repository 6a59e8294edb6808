//! One run: a mirrored group, several threads that use it, faults, perhaps a power cut, and the
//! judgement of what is there afterwards.
//!
//! Two failure groups of two disks. Only disks of the second one fail, one at a time and the next
//! only when the one before has come back, so that a mirrored file has a good copy at every moment
//! and no request on it may fail while there is power. A place of one that breaks may take it offline
//! beside another one of them. When the group is opened again, one of the first may vanish for a moment.
//! A file of one copy may lie anywhere: it may lose what its disk lost, and has to say so at the next sync.

mod breaking;
mod changing;
mod cutting;
mod ending;
mod flushing;
mod hanging;
mod names;
mod scene;
mod scrubbing;
mod spoiling;
mod work;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spindle_base::{FileId, Redundancy};
use spindle_device::{DiskImage, DiskSlot, Disks, SeededRandom, SimulatedDisks};
use spindle_group::{Group, GroupError};
use spindle_sync::thread::{self, JoinHandle};

use crate::clock::Clock;
use crate::disks::{IO_DEADLINE_MS, PointDisks, SentWrites};
use crate::faults::Faults;
use crate::history::History;
use crate::watch::Watch;
use changing::Changing;
pub use cutting::Cutting;
use flushing::Flushing;

/// What a run is about. Most have a bit of everything; some have what meets too seldom by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plot {
    Everything,
    /// Copies move to disks that blink.
    Moves,
    /// A disk goes in the midst of syncs, and soon after it the power.
    Cuts(Cutting),
    /// Disks keep silent: the only runs in which time passes by itself.
    Hangs,
    /// Disks fail flushes and serve on.
    Flushes(Flushing),
    /// Places go bad, and reads fail at an opening.
    Places,
    /// Extents change while they move, files their redundancy, and rounds of cleaning meet.
    Changes(Changing),
}

impl Plot {
    /// That of a seed.
    pub const fn of(seed: u64) -> Self {
        match seed % 16 {
            2 | 6 | 10 => Self::Moves,
            0 | 4 | 8 => Self::Cuts(Cutting::of(seed / 16)),
            5 | 13 => Self::Hangs,
            12 => Self::Flushes(Flushing::of(seed / 16)),
            14 => Self::Places,
            15 => Self::Changes(Changing::of(seed / 16)),
            _ => Self::Everything,
        }
    }

    /// Whether the power may fail at any request.
    const fn may_end_by_cut(self) -> bool {
        // The first has a cut of its own. After one in the second, open rows name both copies of what
        // was written there as stale, whole (docs/plan.md).
        !matches!(self, Self::Cuts(_) | Self::Flushes(Flushing::BesideOutage))
    }

    /// Whether files get another redundancy.
    const fn has_conversions(self) -> bool {
        matches!(self, Self::Changes(Changing::Redundancy))
    }

    /// That of the group.
    pub const fn redundancy(self) -> Redundancy {
        match self {
            Self::Flushes(Flushing::WithoutRedundancy) => Redundancy::External,
            _ => Redundancy::Normal,
        }
    }

    /// Whether time passes by itself.
    pub const fn has_time(self) -> bool {
        matches!(self, Self::Hangs)
    }
}

/// What the threads of a run share. Its own atomics are no points.
pub struct Story {
    pub seed: u64,
    plot: Plot,
    pub disks: Arc<SimulatedDisks>,
    pub access: Arc<dyn Disks>,
    pub faults: Arc<Faults>,
    /// Noted where processes are killed.
    sent: Arc<SentWrites>,
    pub history: Arc<History>,
    pub watch: Arc<Watch>,
    pub files: Vec<Subject>,
    pub clock: Arc<Clock>,
    /// Files that came while the threads ran, and are durable.
    newcomers: Mutex<Vec<Subject>>,
    /// Disks that the group had forgotten when they were taken away for good.
    gone: Arc<Mutex<Vec<DiskSlot>>>,
    /// What one of the disks held at some moment while the threads ran.
    image: Arc<Mutex<Option<(DiskSlot, DiskImage)>>>,
    /// A disk was to be dropped: a failure group may have but one vote.
    is_smaller: AtomicBool,
    next_version: AtomicU64,
    /// A disk went, and the power may go when something is durable.
    is_cut_due: AtomicBool,
    /// The threads with an end of their own have ended: the others may.
    is_over: AtomicBool,
}

/// A file that the threads meet on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subject {
    pub id: FileId,
    pub is_mirrored: bool,
}

/// How often a thread without an end of its own goes round at most.
const ROUNDS_MOST: u64 = 400;

impl Story {
    /// Over these disks.
    fn new(
        seed: u64,
        disks: Arc<SimulatedDisks>,
        history: Arc<History>,
        clock: Arc<Clock>,
    ) -> Self {
        let watch = Arc::new(Watch::default());
        let faults = Arc::new(Faults::new(Arc::clone(&history)));
        let access = PointDisks::new(
            Arc::clone(&disks),
            Arc::clone(&faults),
            Arc::clone(&history),
            Arc::clone(&watch),
            Arc::clone(&clock),
            seed,
        );
        let sent = Arc::<SentWrites>::default();
        let access = match is_of_names(seed) {
            true => access.noting(Arc::clone(&sent)),
            false => access,
        };
        Self {
            seed,
            plot: Plot::of(seed),
            disks,
            access: Arc::new(access),
            faults,
            sent,
            history,
            watch,
            files: Vec::new(),
            clock,
            newcomers: Mutex::default(),
            gone: Arc::default(),
            image: Arc::default(),
            is_smaller: AtomicBool::new(false),
            next_version: AtomicU64::new(1),
            is_cut_due: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        }
    }

    /// A random of its own for each use.
    fn random(&self, of: u64) -> SeededRandom {
        SeededRandom::new(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (of << 56))
    }

    fn version(&self) -> u32 {
        u32::try_from(self.next_version.fetch_add(1, Ordering::Relaxed)).expect("a run is short")
    }

    fn later_ms(&self, by_ms: u64) -> u64 {
        self.clock.later_ms(by_ms)
    }

    /// Whether an answer of a request that must not fail means anything.
    fn judge<T>(&self, what: &str, answer: Result<T, GroupError>) -> Option<T> {
        match answer {
            Ok(value) => Some(value),
            Err(_) if !self.disks.is_powered() => None,
            Err(error) if self.has_to_stop(&error) => {
                self.history.note(|| format!("{what}: {error}"));
                self.history.stop();
                self.disks.crash();
                None
            }
            Err(error) => {
                self.history.violate(format!("{what} failed: {error}"));
                None
            }
        }
    }

    /// Whether the group can do nothing else than stop: of three replicas of its catalog one is away, and
    /// both other disks failed a flush before the fourth disk had its own.
    fn has_to_stop(&self, error: &GroupError) -> bool {
        self.plot == Plot::Flushes(Flushing::BesideOutage)
            && self.history.second_failures_count() >= 2
            && error
                .message
                .contains("no disk with a replica of its catalog is left")
    }

    /// As [`Story::judge`], of something that one file or all asked for. What may be lost nobody reads
    /// or writes behind until a sync has told it.
    fn judge_of<T>(&self, subject: Subject, what: &str, answer: Result<T, GroupError>) {
        if subject.is_mirrored && !self.history.may_have_lost(subject.id) {
            self.judge(what, answer);
        }
    }

    /// As [`Story::judge`], of the daemon's own work: in a group without redundancy it fails where a
    /// flush does, and goes on with the next one.
    fn judge_work<T>(&self, group: &Group, what: &str, answer: Result<T, GroupError>) -> Option<T> {
        match answer {
            Err(_) if self.plot.redundancy() == Redundancy::External => {
                self.judge("serving on", group.check_serves());
                None
            }
            answer => self.judge(what, answer),
        }
    }

    /// Whoever has a mirror waits for no disk longer than for one that keeps silent.
    fn in_time<T>(&self, what: &str, operation: impl FnOnce() -> T) -> T {
        let begun_ms = self.clock.waited_ms();
        let answer = operation();
        let took_ms = self.clock.waited_ms() - begun_ms;
        if self.clock.is_simulated() && took_ms > IO_DEADLINE_MS {
            self.history
                .violate(format!("{what} was answered after {took_ms} ms"));
        }
        answer
    }

    fn newcomers(&self) -> MutexGuard<'_, Vec<Subject>> {
        self.newcomers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn goes_on(&self) -> bool {
        self.disks.is_powered() && self.history.is_clean()
    }
}

/// Whether the run is of files with names, and of processes that are killed.
const fn is_of_names(seed: u64) -> bool {
    seed % 4 == 3 && seed % 16 != 15
}

/// Runs the story of a seed within an execution of the scheduler.
pub fn run(seed: u64, history: &Arc<History>, clock: &Arc<Clock>) {
    if is_of_names(seed) {
        return names::run(seed, history, clock);
    }
    let mut random = SeededRandom::new(seed);
    let (history, clock) = (Arc::clone(history), Arc::clone(clock));
    let mut story = Story::new(seed, scene::disks(seed, scene::DISK_BYTES), history, clock);
    scene::create(&story.access, story.plot.redundancy());
    let opened = scene::open(&story.access, &story.disks, 1);
    let group = Arc::new(opened.expect("a new group can be opened"));
    story.make_files(&group, &mut random);
    let was_cut = story.go(&group, &mut random);
    story.end(group, was_cut);
}

/// Who takes part in a story, each a thread.
struct Cast<'a> {
    story: &'a Arc<Story>,
    group: &'a Arc<Group>,
}

impl Cast<'_> {
    fn start(&self, of: u64, body: fn(&Story, &Group, u64)) -> JoinHandle<()> {
        let (story, group) = (Arc::clone(self.story), Arc::clone(self.group));
        thread::spawn(move || body(&story, &group, of))
    }

    fn start_all_that_end(&self, random: &mut SeededRandom) -> Vec<JoinHandle<()>> {
        let plot = self.story.plot;
        let writers_count = match plot {
            Plot::Moves => 1,
            // It has its own.
            Plot::Cuts(Cutting::AfterSync) => 0,
            Plot::Everything
            | Plot::Cuts(_)
            | Plot::Hangs
            | Plot::Flushes(_)
            | Plot::Places
            | Plot::Changes(_) => 2 + random.below(2),
        };
        let mut threads: Vec<JoinHandle<()>> = (0..writers_count)
            .map(|writer| self.start(1 + writer, Story::write_and_read))
            .collect();
        threads.extend(self.start_what_happens(random));
        let may_break = matches!(plot, Plot::Everything | Plot::Moves);
        if may_break && random.chance(1, 3) {
            threads.push(self.start(12, Story::break_places));
        }
        if random.chance(1, 3) {
            threads.push(self.start(13, Story::scrub));
        }
        if random.chance(1, 4) {
            threads.push(self.start(15, Story::take_image));
        }
        threads
    }

    /// What the plot is about.
    fn start_what_happens(&self, random: &mut SeededRandom) -> Vec<JoinHandle<()>> {
        let mut threads = Vec::new();
        match self.story.plot {
            Plot::Moves => threads.push(self.start(10, Story::blink_where_copies_come)),
            Plot::Cuts(Cutting::AfterOutage) => {
                threads.push(self.start(10, Story::lose_a_disk_and_the_power));
            }
            Plot::Cuts(Cutting::AfterSync) => {
                threads.push(self.start(10, Story::lose_a_disk_before_syncs));
                let others = 5..8 + random.below(2);
                threads.extend(others.map(|of| self.start(of, Story::write_and_sync_late)));
            }
            Plot::Flushes(_) => threads.push(self.start(10, Story::fail_flushes)),
            Plot::Changes(changing) => threads.extend(self.start_changes(changing, random)),
            Plot::Places => {
                threads.push(self.start(10, Story::break_places_for_a_while));
                if random.chance(1, 2) {
                    threads.push(self.start(11, Story::change_disks));
                }
            }
            Plot::Hangs => {
                threads.push(self.start(10, Story::hang_disks));
                threads.push(self.start(14, Story::come_new));
                if random.chance(1, 3) {
                    threads.push(self.start(11, Story::change_disks));
                }
            }
            Plot::Everything => {
                if random.chance(2, 3) {
                    threads.push(self.start(10, Story::lose_and_return_disks));
                }
                if random.chance(1, 2) {
                    threads.push(self.start(11, Story::change_disks));
                }
            }
        }
        threads
    }

    fn start_changes(&self, changing: Changing, random: &mut SeededRandom) -> Vec<JoinHandle<()>> {
        let mut threads = Vec::new();
        if changing == Changing::Extents || random.chance(1, 4) {
            threads.push(self.start(10, Story::move_again_and_again));
        }
        let has_other_outages = match changing {
            Changing::Extents => false,
            Changing::Redundancy => random.chance(1, 3),
            Changing::Cleaning => true,
        };
        if has_other_outages {
            threads.push(self.start(11, Story::lose_and_return_disks));
        }
        match changing {
            Changing::Extents => {}
            Changing::Redundancy if has_other_outages => {
                threads.push(self.start(12, Story::convert));
            }
            Changing::Redundancy => threads.push(self.start(12, Story::convert_and_blink)),
            Changing::Cleaning => threads.push(self.start(12, Story::take_offline_by_wish)),
        }
        threads
    }

    fn start_background(&self, random: &mut SeededRandom) -> Vec<JoinHandle<()>> {
        let mut threads = vec![self.start(20, Story::step), self.start(21, Story::work)];
        if random.chance(1, 3) {
            threads.push(self.start(22, Story::work));
        }
        threads
    }
}

impl Story {
    /// Runs the threads until all have ended; whether the power was cut.
    fn go(&mut self, group: &Arc<Group>, random: &mut SeededRandom) -> bool {
        let story = self.shared();
        if story.plot.may_end_by_cut() && random.chance(3, 5) {
            let most = [30, 150, 600][random.index(3)];
            let requests = 1 + random.below(most);
            story
                .history
                .note(|| format!("the power will fail at request {requests}"));
            story.disks.power_fails_after(requests);
        }
        let cast = Cast {
            story: &story,
            group,
        };
        let bounded = cast.start_all_that_end(random);
        let endless = cast.start_background(random);
        for thread in bounded {
            let _ = thread.join();
        }
        story.is_over.store(true, Ordering::Relaxed);
        for thread in endless {
            let _ = thread.join();
        }
        self.files.append(&mut story.newcomers());
        let is_smaller = story.is_smaller.load(Ordering::Relaxed);
        self.is_smaller.store(is_smaller, Ordering::Relaxed);
        let was_cut = !story.disks.is_powered();
        story.disks.power_stays();
        for slot in story.fallible() {
            story.disks.release(slot);
        }
        was_cut
    }

    /// The story as its threads share it.
    fn shared(&self) -> Arc<Self> {
        Arc::new(Self {
            seed: self.seed,
            plot: self.plot,
            disks: Arc::clone(&self.disks),
            access: Arc::clone(&self.access),
            faults: Arc::clone(&self.faults),
            sent: Arc::clone(&self.sent),
            history: Arc::clone(&self.history),
            watch: Arc::clone(&self.watch),
            files: self.files.clone(),
            clock: Arc::clone(&self.clock),
            newcomers: Mutex::default(),
            gone: Arc::clone(&self.gone),
            image: Arc::clone(&self.image),
            is_smaller: AtomicBool::new(false),
            next_version: AtomicU64::new(self.next_version.load(Ordering::Relaxed)),
            is_cut_due: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        })
    }

    fn gone(&self) -> MutexGuard<'_, Vec<DiskSlot>> {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every disk of the second failure group, as a slot, those left out that are away for good.
    fn fallible(&self) -> Vec<DiskSlot> {
        let gone = self.gone();
        (0..u16::try_from(self.disks.disk_count()).expect("few"))
            .map(DiskSlot)
            .filter(|slot| scene::failure_group(*slot) == 1 && !gone.contains(slot))
            .collect()
    }
}
