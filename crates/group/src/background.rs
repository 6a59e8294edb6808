//! Floor 5 of 7, above `io` and below `change`: background copying. What is wanted, how fast, and the
//! passes that do it.
//!
//! [`Group::work`] does one small unit; whoever has threads calls it, as many and as often as
//! [`Group::workers_wanted`] says. The passes run in order, one at a time: RESYNC (stale runs of
//! disks that returned), CONVERT (surplus copies are given back), RESTORE (missing copies),
//! REBALANCE (leaving disks are emptied, then everybody comes to the fair share); another pass is
//! one more implementation of [`BackgroundPass`] in [`Background::passes`]. SCRUB comes after them
//! and has a power of its own, so it goes on where copying is paused.
//!
//! Durable is only that a rebalance is wanted, and at which power. Everything else is computed
//! from the disks' statuses and the maps, so that after a crash the work goes on by itself.

pub(crate) mod mover;
pub(crate) mod open_group;
pub(crate) mod operations;
pub(crate) mod outage;
pub(crate) mod planner;
pub(crate) mod planning_scene;
pub(crate) mod power;
pub(crate) mod relocation;
pub(crate) mod replicas;
pub(crate) mod resync;
pub(crate) mod resync_pass;
pub(crate) mod returning;
pub(crate) mod scrub;
pub(crate) mod scrub_pass;
pub(crate) mod slow;
pub(crate) mod surplus;
mod watchdog;

use spindle_sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};

use spindle_base::FileId;
use spindle_catalog::{Catalog, Edit, Table};
use spindle_device::AlignedBuffer;
use spindle_extent::space::Run;
use spindle_format::DiskStatus;
use spindle_sync::level::LeafMutex;

use crate::error::GroupError;

use mover::Mover;
pub(crate) use planner::{Goal, PlanDisk, Role};
use resync_pass::ResyncPass;
use scrub_pass::ScrubPass;
use surplus::SurplusPass;

pub use open_group::{Group, Lazy};
pub use operations::{OperationState, OperationView, Pass};
pub use outage::RepairTime;
pub use planning_scene::{Planned, PlanningScene};
pub use power::Power;
pub use scrub::{
    Distrust, Finding, FindingKind, Known, LeftOut, LeftOutReason, PageJudge, ScrubScope,
    ScrubState, ScrubStep, ScrubView, ScrubWish,
};

/// The attribute that says that a rebalance is wanted; its value is the power of the run, as a
/// decimal number, or empty where the group's own holds.
pub const WISH_KEY: &[u8] = b"rebalance";
/// The attribute that holds the group's own power, as a decimal number.
const POWER_KEY: &[u8] = b"rebalance_power";
/// In place of the power of a run: the group's own holds.
const NONE: u16 = u16::MAX;
/// How long a caller waits who found nothing to do.
const IDLE_MS: u32 = 100;

/// What a pass answers to a request for work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassStep {
    /// It has nothing to do; the next pass may run.
    Nothing,
    /// Other threads have all that can be done now; the next pass must wait.
    Wait,
    /// It did something; so many bytes were copied.
    Did(u64),
    /// A run of moves is over; see [`Group::work`] for what follows.
    Ended(Ended),
}

/// A run of moves that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// What it was for.
    pub goal: Goal,
    /// Copies that are still not where they should be.
    pub left_count: u64,
    /// What it moved.
    pub moved_bytes: u64,
    /// What had been looked at when it was planned.
    pub planned_at: (u64, u64),
}

/// A pass of background work. Methods may be called from several threads.
pub trait BackgroundPass: Send + Sync + std::fmt::Debug {
    /// Does one unit.
    ///
    /// # Errors
    /// Where the group has to stop, or something failed that may succeed later.
    fn work(&self, group: &Group, now_ms: u64) -> Result<PassStep, GroupError>;

    /// Its line in the listing, if it has anything to do. `is_first` says that no earlier pass
    /// has.
    fn view(&self, group: &Group, is_first: bool) -> Option<OperationView>;
}

/// What a call of [`Group::work`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Worked {
    /// Whether anything was done; else the caller waits a while.
    pub did_something: bool,
    /// Bytes copied.
    pub copied_bytes: u64,
    /// How long to pause, in percent of the time that the call took.
    pub pause_percent: u32,
}

/// What the power asks of whoever has threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkersWanted {
    /// Threads that should call [`Group::work`].
    pub count: u32,
    /// How long a thread waits that found nothing to do.
    pub idle_ms: u32,
}

/// Who wants a rebalance.
#[derive(Debug, Default)]
struct Wishes {
    /// Counts them, so that a pass which found nothing looks again.
    count: u64,
    /// Changes of the disks that have put their wish and are not in the group state yet: what a run
    /// does meanwhile fulfils none of them.
    changes_count: u32,
}

/// A change of the disks from before its wish until it is asked for again.
#[derive(Debug)]
pub struct ChangeUnderWay<'a>(&'a Background);

impl Drop for ChangeUnderWay<'_> {
    fn drop(&mut self) {
        let mut wishes = self.0.wishes.lock();
        wishes.changes_count -= 1;
        // A run that ended meanwhile has left the wish standing: it is looked again.
        wishes.count += 1;
    }
}

/// The background work of an open group.
#[derive(Debug)]
pub struct Background {
    /// A rebalance is wanted.
    is_wanted: AtomicBool,
    /// Held while the row of the wish is put or taken away in the catalog's memory, and with it the
    /// power of the run.
    wishes: LeafMutex<Wishes>,
    power: AtomicU16,
    run_power: AtomicU16,
    resync: ResyncPass,
    surplus: SurplusPass,
    restore: Mover,
    rebalance: Mover,
    scrub: ScrubPass,
    /// A pass that copies had something to do when last asked.
    is_copying: AtomicBool,
    buffers: LeafMutex<Vec<AlignedBuffer>>,
    /// Runs on targets that no map names yet.
    underway: LeafMutex<Vec<Run>>,
    /// Why a disk that is empty cannot leave.
    kept_for: LeafMutex<Option<String>>,
    /// Requests of this work, which are not the foreground's.
    own_count: AtomicU64,
    /// All requests and our own, when the foreground was last looked at.
    seen: LeafMutex<(u64, u64)>,
}

impl Background {
    /// What the catalog says is wanted.
    ///
    /// # Errors
    /// Where the catalog cannot be read.
    pub fn open(catalog: &Catalog) -> Result<Self, GroupError> {
        let number = |bytes: Option<Vec<u8>>| {
            bytes.and_then(|bytes| String::from_utf8(bytes).ok()?.parse::<u16>().ok())
        };
        let wish = catalog.get(Table::Attribute, WISH_KEY)?;
        let is_wanted = wish.is_some();
        let valid = |number: &u16| *number <= Power::MAX.number();
        let run_power = number(wish).filter(valid).unwrap_or(NONE);
        let power = number(catalog.get(Table::Attribute, POWER_KEY)?).filter(valid);
        Ok(Self {
            is_wanted: AtomicBool::new(is_wanted),
            wishes: LeafMutex::default(),
            power: AtomicU16::new(power.unwrap_or(Power::DEFAULT.number())),
            run_power: AtomicU16::new(run_power),
            resync: ResyncPass::default(),
            surplus: SurplusPass::default(),
            restore: Mover::new(Goal::Restore),
            rebalance: Mover::new(Goal::Rebalance),
            scrub: ScrubPass::default(),
            is_copying: AtomicBool::new(false),
            buffers: LeafMutex::default(),
            underway: LeafMutex::default(),
            kept_for: LeafMutex::default(),
            own_count: AtomicU64::new(0),
            seen: LeafMutex::default(),
        })
    }

    /// The passes that copy, in the order in which they run.
    fn passes(&self) -> [&dyn BackgroundPass; 4] {
        [&self.resync, &self.surplus, &self.restore, &self.rebalance]
    }

    /// Who moves copies for that goal.
    pub fn mover(&self, goal: Goal) -> &Mover {
        match goal {
            Goal::Restore => &self.restore,
            Goal::Rebalance => &self.rebalance,
        }
    }

    /// One unit of the scrub.
    pub fn scrub(&self, group: &Group, now_ms: u64) -> Result<PassStep, GroupError> {
        self.scrub.work(group, now_ms)
    }

    /// Whether a pass before the scrub did something when it was last asked.
    pub fn set_copying(&self, is_copying: bool) {
        self.is_copying.store(is_copying, Ordering::Relaxed);
    }

    /// One unit of the first pass that has something to do.
    pub fn copy(&self, group: &Group, now_ms: u64) -> Result<PassStep, GroupError> {
        // An extent that a rebalance has half way cannot be given the copy that it lacks: RESTORE
        // would pass it over and end, and the rebalance would not go on before that.
        if self.restore.may_have_work(group) {
            let step = self.rebalance.finish_begun(group, now_ms)?;
            if step != PassStep::Nothing {
                return Ok(step);
            }
        }
        for pass in self.passes() {
            let step = pass.work(group, now_ms)?;
            if step != PassStep::Nothing {
                return Ok(step);
            }
        }
        Ok(PassStep::Nothing)
    }

    /// These files have copies that are to be given back, or may have.
    pub fn give_back(&self, files: impl Iterator<Item = FileId>) {
        self.surplus.add(files);
    }

    /// Requests that the work sent to disks.
    pub fn count_own(&self, requests: u64) {
        self.own_count.fetch_add(requests, Ordering::Relaxed);
    }

    /// What a pass that has nothing to do compares: it looks again when this has changed.
    fn looked_at(&self, group: &Group) -> (u64, u64) {
        let wishes_count = self.wishes.lock().count;
        (group.membership.epoch(), wishes_count)
    }

    /// Until this is dropped no wish for a rebalance is taken for fulfilled.
    pub(crate) fn begin_change(&self) -> ChangeUnderWay<'_> {
        self.wishes.lock().changes_count += 1;
        ChangeUnderWay(self)
    }

    /// Runs that are taken though no map names them: copies on their way.
    pub fn runs_underway(&self) -> Vec<Run> {
        self.underway.lock().clone()
    }

    /// Notes why a disk that is empty cannot leave, or that none is kept; what was noted before.
    pub fn set_kept_for(&self, why: Option<String>) -> Option<String> {
        std::mem::replace(&mut *self.kept_for.lock(), why)
    }

    fn buffer(&self, power: Power) -> AlignedBuffer {
        let blocks = power.piece_blocks();
        let length = usize::try_from(blocks * spindle_base::BLOCK_SIZE_BYTES)
            .expect("a piece fits the address space");
        let mut buffers = self.buffers.lock();
        while let Some(buffer) = buffers.pop() {
            if buffer.len() == length {
                return buffer;
            }
        }
        drop(buffers);
        AlignedBuffer::zeroed(length)
    }

    fn keep_buffer(&self, buffer: AlignedBuffer) {
        self.buffers.lock().push(buffer);
    }

    /// Whether others used the disks since the last call.
    pub fn is_foreground_busy(&self, group: &Group) -> bool {
        let all: u64 = (group.disks.iter())
            .map(|disk| {
                let counters = &disk.counters;
                counters.reads_count.load(Ordering::Relaxed)
                    + counters.writes_count.load(Ordering::Relaxed)
            })
            .sum();
        let own = self.own_count.load(Ordering::Relaxed);
        let before = std::mem::replace(&mut *self.seen.lock(), (all, own));
        all.saturating_sub(before.0) > own.saturating_sub(before.1)
    }
}

impl Group {
    /// How many threads should call [`Group::work`].
    pub fn workers_wanted(&self) -> WorkersWanted {
        let scrubbing_count = self.scrub_workers_count();
        WorkersWanted {
            count: if self.is_copying() || scrubbing_count == 0 {
                self.power().workers_count()
            } else {
                scrubbing_count
            },
            idle_ms: IDLE_MS,
        }
    }

    /// Whether passes before the scrub have something to do and may.
    fn is_copying(&self) -> bool {
        self.power() != Power::PAUSED && self.background.is_copying.load(Ordering::Relaxed)
    }

    /// The power that background work has now: that of the run, else the group's own.
    pub fn power(&self) -> Power {
        let run = self.background.run_power.load(Ordering::Acquire);
        let number = if run == NONE {
            self.background.power.load(Ordering::Acquire)
        } else {
            run
        };
        Power::new(number).unwrap_or(Power::DEFAULT)
    }

    /// The group's own power: what a rebalance has that nobody gave another one.
    pub fn default_power(&self) -> Power {
        let number = self.background.power.load(Ordering::Acquire);
        Power::new(number).unwrap_or(Power::DEFAULT)
    }

    /// Changes the group's own power, durably; a run that was given another one keeps it.
    ///
    /// # Errors
    /// As [`crate::core::Core::sync`].
    pub fn set_power(&self, power: Power) -> Result<(), GroupError> {
        let number = power.number();
        self.background.power.store(number, Ordering::Release);
        self.restart_meters();
        self.put_attribute(POWER_KEY, Some(number.to_string().into_bytes()))
    }

    /// Asks for a rebalance, durably, though nothing changed: missing copies are looked for, and
    /// every disk comes to its share. One that runs goes on.
    ///
    /// # Errors
    /// As [`crate::core::Core::sync`].
    pub fn rebalance(&self) -> Result<(), GroupError> {
        self.commit_wish(Edit::default(), None)
    }

    /// Makes the edit durable, and with it the wish for a rebalance: at this power, or at that of a run
    /// that goes on.
    pub(crate) fn commit_wish(
        &self,
        mut edit: Edit,
        power: Option<Power>,
    ) -> Result<(), GroupError> {
        let sequence = {
            let _change = self.change();
            let mut wishes = self.background.wishes.lock();
            wishes.count += 1;
            let run_power = &self.background.run_power;
            if let Some(power) = power {
                run_power.store(power.number(), Ordering::Release);
            }
            let wanted = match run_power.load(Ordering::Acquire) {
                NONE => Vec::new(),
                number => number.to_string().into_bytes(),
            };
            edit.put(Table::Attribute, WISH_KEY.to_vec(), wanted);
            // Wanted at once: where it cannot be committed now, the next commit takes it along.
            self.background.is_wanted.store(true, Ordering::Release);
            self.catalog.apply(edit)
        };
        if power.is_some() {
            self.restart_meters();
        }
        self.commit_through(sequence)
    }

    /// As [`Group::rebalance`], with a power of its own until it ends.
    ///
    /// # Errors
    /// As [`crate::core::Core::sync`].
    pub fn rebalance_at(&self, power: Power) -> Result<(), GroupError> {
        self.commit_wish(Edit::default(), Some(power))
    }

    /// What runs and what waits, in the order of the passes.
    pub fn operations(&self) -> Vec<OperationView> {
        let mut views: Vec<OperationView> = Vec::new();
        for pass in self.background.passes() {
            views.extend(pass.view(self, views.is_empty()));
        }
        views.extend(self.background.scrub.view(self, !self.is_copying()));
        views
    }

    fn restart_meters(&self) {
        self.background.restore.restart_meter();
        self.background.rebalance.restart_meter();
    }

    /// Whether the catalog or a disk on its way out asks for a rebalance.
    fn is_rebalance_wanted(&self) -> bool {
        self.background.is_wanted.load(Ordering::Acquire)
            || (self.membership.members().iter())
                .any(|member| member.state.status == DiskStatus::Dropping)
    }

    /// So many wishes are fulfilled, and the run's power goes with them. A later one stays, and with it
    /// its row: a crash would leave nothing of it else.
    fn rebalance_ended(&self, fulfilled_count: u64) -> Result<(), GroupError> {
        let sequence = {
            let _change = self.change();
            let wishes = self.background.wishes.lock();
            if wishes.count != fulfilled_count || wishes.changes_count > 0 {
                return Ok(());
            }
            self.background.is_wanted.store(false, Ordering::Release);
            self.background.run_power.store(NONE, Ordering::Release);
            let mut edit = Edit::default();
            edit.delete(Table::Attribute, WISH_KEY.to_vec());
            self.catalog.apply(edit)
        };
        self.commit_through(sequence)
    }

    fn put_attribute(&self, key: &[u8], value: Option<Vec<u8>>) -> Result<(), GroupError> {
        let mut edit = Edit::default();
        match value {
            Some(value) => edit.put(Table::Attribute, key.to_vec(), value),
            None => edit.delete(Table::Attribute, key.to_vec()),
        }
        self.commit_edit(edit)
    }
}
