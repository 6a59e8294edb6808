//! One run: the group that is simulated, and the loop over the plan's operations.

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};

use spindle_base::{AuSize, DiskNumber, FileId, GroupName, Redundancy, Uuid};
use spindle_device::{DiskSlot, Disks, SeededRandom, SimulatedDisks};
use spindle_fs::{FileSystem, FsError, FsResult, Handle, Owner, Time};
use spindle_group::{Group, GroupError, GroupErrorKind, NewGroup, Opener, ReadTotals};

use crate::broken_disks::{Breakage, BrokenDisks};
use crate::model::{Model, Names};
use crate::outcome::{Coverage, Violation};
use crate::plan::Plan;
use crate::shelf::ShelfDisk;

/// Why a run ends before its last operation.
#[derive(Debug)]
pub(crate) enum Stop {
    /// A promise was broken.
    Violation(String),
    /// More failed than the redundancy bears, and the group says so.
    Lost,
}

pub(crate) type Step<T> = Result<T, Stop>;

/// What an operation's answer means.
#[derive(Debug)]
pub(crate) enum Answer<T> {
    Done(T),
    /// The power failed under it: it may have happened or not.
    PowerLost,
    /// There was no room: at most a part of its bytes are there.
    Full,
    /// It failed, which is allowed with this many faults.
    Failed,
}

/// A group, its file system, and what they must show.
pub(crate) struct Run {
    pub(crate) plan: Plan,
    pub(crate) disks: Arc<SimulatedDisks>,
    /// By slot.
    pub(crate) shelf: Vec<ShelfDisk>,
    /// Redundancies that files were given, and that must be found after every power cut.
    pub(crate) redundancies: BTreeMap<FileId, Redundancy>,
    /// The newest identity that a disk was added with.
    pub(crate) next_identity: u8,
    access: Arc<dyn Disks>,
    breakage: Option<Breakage>,
    pub(crate) random: SeededRandom,
    pub(crate) model: Model,
    pub(crate) system: Option<FileSystem>,
    /// Files held open over several operations, some of them without a name by now.
    pub(crate) kept: BTreeMap<FileId, Arc<Handle>>,
    pub(crate) next_tag: u16,
    pub(crate) next_version: u16,
    pub(crate) faults_count: u64,
    /// Disks of which metadata bits were flipped.
    pub(crate) flipped: BTreeSet<DiskSlot>,
    /// The power cut that waits for its request will be followed by one in the recovery.
    pub(crate) cut_in_recovery: Option<u64>,
    /// The disks that failed are repaired before the next opening.
    pub(crate) disks_return: bool,
    openings_count: u8,
    /// The clock of the background's work; it goes faster than the operations'.
    pub(crate) work_ms: u64,
    /// The disk that is slow, and what the group was told of all of them.
    pub(crate) slow: Option<DiskNumber>,
    pub(crate) read_totals: BTreeMap<DiskNumber, ReadTotals>,
    /// How often background work could not go on for want of room.
    pub(crate) stops_count: u64,
    /// What the newest rebalance planned to move. Where some copies found no room anywhere one moves
    /// less.
    pub(crate) planned_bytes: u64,
    pub(crate) left_moves_out: bool,
    /// A disk that the group took for an older image of itself; none is ever put back here.
    pub(crate) wrongly_left_out: Option<String>,
    pub(crate) trace: Vec<String>,
    pub(crate) coverage: Coverage,
}

pub(crate) const OWNER: Owner = Owner {
    user: 1000,
    group: 1000,
};

/// Runs the plan; `breakage` puts lying disks below the group.
///
/// # Errors
/// The first broken promise.
pub fn simulate(plan: &Plan, breakage: Option<Breakage>) -> Result<Coverage, Box<Violation>> {
    install_quiet_panic_hook();
    let mut run = Run::new(plan.clone(), breakage);
    let mut step = 0;
    let outcome = catch_unwind(AssertUnwindSafe(|| run.go(&mut step)));
    let message = match outcome {
        Ok(Ok(()) | Err(Stop::Lost)) => {
            return Ok(run.coverage);
        }
        Ok(Err(Stop::Violation(message))) => message,
        Err(panic) => panic_text(panic.as_ref()),
    };
    let violation = Violation {
        seed: plan.seed,
        step,
        message,
        trace: std::mem::take(&mut run.trace),
    };
    // What panicked may be in any state; its drop must not end the whole simulation.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(run)));
    Err(Box::new(violation))
}

impl Run {
    fn new(plan: Plan, breakage: Option<Breakage>) -> Self {
        let sizes: Vec<u64> = plan.disks.iter().map(|disk| disk.size_bytes).collect();
        let disks = Arc::new(SimulatedDisks::new(plan.seed, &sizes));
        let access = over(&disks, breakage);
        let disk_texts: Vec<String> = plan
            .disks
            .iter()
            .map(|disk| {
                format!(
                    "{} MiB in f{}{}",
                    disk.size_bytes >> 20,
                    disk.failure_group,
                    if disk.may_fail { " (may fail)" } else { "" }
                )
            })
            .collect();
        let trace = vec![format!(
            "{} redundancy, profile {}{}, disks: {}",
            plan.redundancy,
            plan.profile,
            if plan.is_beyond_redundancy {
                ", faults beyond it"
            } else {
                ""
            },
            disk_texts.join(", ")
        )];
        Self {
            random: SeededRandom::new(!plan.seed),
            redundancies: BTreeMap::new(),
            next_identity: u8::try_from(plan.disks.len()).unwrap_or(u8::MAX),
            shelf: (plan.disks.iter().zip(1..))
                .map(|(disk, identity)| ShelfDisk::planned(disk, identity))
                .collect(),
            plan,
            disks,
            access,
            breakage,
            model: Model::new(Names::default()),
            system: None,
            kept: BTreeMap::new(),
            next_tag: 1,
            next_version: 1,
            faults_count: 0,
            flipped: BTreeSet::new(),
            cut_in_recovery: None,
            disks_return: false,
            openings_count: 0,
            work_ms: 0,
            slow: None,
            read_totals: BTreeMap::new(),
            stops_count: 0,
            planned_bytes: 0,
            left_moves_out: false,
            wrongly_left_out: None,
            trace,
            coverage: Coverage::default(),
        }
    }

    fn go(&mut self, step: &mut usize) -> Step<()> {
        self.create()?;
        for index in 0..self.plan.operations.len() {
            *step = index;
            let operation = self.plan.operations[index];
            self.model.clock += 1;
            self.coverage.operations += 1;
            self.trace
                .push(format!("{:3} {index:3} {operation:?}", self.model.clock));
            self.execute(operation)?;
            if !self.disks.is_powered() {
                self.recover_from_power_cut()?;
            }
        }
        *step = self.plan.operations.len();
        self.model.clock += 1;
        self.disks.power_stays();
        self.note("the end: close and reopen");
        self.close_and_reopen()?;
        if !self.disks.is_powered() {
            self.recover_from_power_cut()?;
        }
        self.come_to_rest()
    }

    fn create(&mut self) -> Step<()> {
        let disks = (self.slots().into_iter())
            .map(|slot| self.shelf_disk(slot).joining(slot))
            .collect();
        let new = NewGroup {
            name: group_name(),
            uuid: Uuid([0xEE; 16]),
            redundancy: self.plan.redundancy,
            au_size: AuSize::DEFAULT,
            disks,
            profile: self.plan.profile.to_owned(),
            created_s: 1,
        };
        Group::create(Arc::clone(&self.access), &new)
            .map_err(|error| violation("the group cannot be created", &error))?;
        let group = self
            .open_group(false)
            .map_err(|error| violation("the new group cannot be opened", &error))?;
        FileSystem::create(&group, OWNER, self.now())
            .map_err(|error| violation("the file system cannot be made", &error))?;
        let system = FileSystem::open(group)
            .map_err(|error| violation("the new file system cannot be opened", &error))?;
        system
            .set_templates(self.plan.templates())
            .map_err(|error| violation("the templates cannot be set", &error))?;
        system
            .sync()
            .map_err(|error| violation("the new file system cannot be synced", &error))?;
        self.system = Some(system);
        let found = self.walk()?;
        self.model = Model::new(found.names);
        Ok(())
    }

    pub(crate) fn open_group(&mut self, force: bool) -> Result<Arc<Group>, GroupError> {
        self.openings_count = self.openings_count.wrapping_add(1);
        let slots = self.slots();
        let opener = Opener {
            host: "simulated".to_owned(),
            origin: None,
            booted_s: None,
            boot: Uuid([self.openings_count; 16]),
            process_id: u32::from(self.openings_count),
            now_s: self.model.clock * 60,
            force,
            preferred_failure_group: None,
        };
        Group::open(Arc::clone(&self.access), &slots, &group_name(), &opener).map(Arc::new)
    }

    pub(crate) fn now(&self) -> Time {
        Time {
            seconds: i64::try_from(self.model.clock).unwrap_or(0),
            nanoseconds: 0,
        }
    }

    pub(crate) fn system(&self) -> &FileSystem {
        self.system
            .as_ref()
            .expect("the group is open between operations")
    }

    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.trace.push(format!("        {}", text.into()));
    }

    /// Files that live on without a name because they are open.
    pub(crate) fn kept_ids(&self) -> BTreeSet<FileId> {
        self.kept.keys().copied().collect()
    }

    pub(crate) fn judge<T>(&mut self, what: &str, result: FsResult<T>) -> Step<Answer<T>> {
        let error = match result {
            Ok(value) => return Ok(Answer::Done(value)),
            Err(error) => error,
        };
        if !self.disks.is_powered() {
            return Ok(Answer::PowerLost);
        }
        self.note(format!("answered: {error}"));
        if self.is_lost_majority(&error) {
            self.note("the power is cut, and all disks come back");
            self.coverage.lost_majorities += 1;
            self.disks_return = true;
            self.disks.crash();
            return Ok(Answer::PowerLost);
        }
        if let FsError::Group(group_error) = &error {
            match group_error.kind {
                GroupErrorKind::NoSpace => {
                    self.coverage.full += 1;
                    return Ok(Answer::Full);
                }
                GroupErrorKind::Io | GroupErrorKind::Corrupt if self.may_be_lost() => {
                    return Ok(Answer::Failed);
                }
                _ => {}
            }
        }
        Err(violation(&format!("{what} failed"), &error))
    }

    /// Two failure groups lost in one moment, of three that vote: the group must stop, because
    /// those two could mount without the third. Nothing is lost when they come back.
    pub(crate) fn is_lost_majority(&self, error: &FsError) -> bool {
        self.plan.may_lose_majority()
            && self.faults_count > 0
            && error
                .to_string()
                .contains("disks that vote can still be written")
    }

    /// Whether faults may have taken more than the redundancy bears.
    pub(crate) fn may_be_lost(&self) -> bool {
        self.plan.is_beyond_redundancy && self.faults_count > 0
    }

    /// The group runs on other disks from its next opening on.
    pub(crate) fn replace_disks(&mut self, disks: SimulatedDisks) {
        self.disks = Arc::new(disks);
        self.access = over(&self.disks, self.breakage);
    }

    /// Commits, closes, opens again, and compares everything.
    pub(crate) fn close_and_reopen(&mut self) -> Step<()> {
        self.kept.clear();
        self.sync_group("the sync before closing")?;
        let system = self.system.take().expect("the group is open");
        let closed = system.close();
        self.judge("closing", closed)?;
        drop(system);
        if self.disks.is_powered() {
            self.reopen(false)?;
        }
        Ok(())
    }
}

fn over(disks: &Arc<SimulatedDisks>, breakage: Option<Breakage>) -> Arc<dyn Disks> {
    match breakage {
        Some(breakage) => Arc::new(BrokenDisks::new(Arc::clone(disks), breakage)),
        None => Arc::clone(disks) as Arc<dyn Disks>,
    }
}

pub(crate) fn violation(what: &str, error: &dyn std::error::Error) -> Stop {
    Stop::Violation(format!("{what}: {error}"))
}

fn group_name() -> GroupName {
    valid(GroupName::new("SIM"))
}

pub(crate) fn valid<T>(name: Result<T, spindle_base::NameError>) -> T {
    name.expect("the simulator's own names are valid")
}

thread_local! {
    static PANIC_PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Panics are violations with a seed; the standard hook would print a backtrace for each
/// attempt at shrinking.
fn install_quiet_panic_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let standard = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |information| {
            let in_run = std::thread::current()
                .name()
                .is_some_and(|name| name.starts_with("seeds"));
            let place = information
                .location()
                .map_or_else(String::new, ToString::to_string);
            PANIC_PLACE.with_borrow_mut(|kept| *kept = place);
            if !in_run {
                standard(information);
            }
        }));
    });
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    let place = PANIC_PLACE.with_borrow(String::clone);
    format!("panic at {place}: {text}")
}
