//! The scrub: every copy of what files hold is read and compared, and pages of databases are
//! judged by their own checksums.
//!
//! Callers bring the threads: [`Group::scrub_unit`] does one stretch of one file, several may be
//! called at once; [`Group::work`] calls it where nothing is to be copied. Which file is which database's, this layer does not know: a [`PageJudge`] of
//! the layer above tells it.
//!
//! Invariants:
//! - Copies are compared under the file's range lock, shared: no writer is between them. A copy
//!   that a dirty region names as stale is not compared, and proves nothing.
//! - Nothing is written that is not proven: one version of a page is good and no other; or a
//!   block cannot be read from one copy, and what the others have is the same and not bad.
//! - A scrub of the group looks at its own structures first (`structures.rs`).
//! - What is not looked at does not count as done: a copy that is stale or whose disk is offline is
//!   left out block by block, come back to, and told where it stays out of reach.
//! - Where a person distrusts a disk, its copies lose where they differ and nothing is proven; what
//!   is proven stands above a person's word.
//! - Pages that look wrong are looked at again after [`SUSPECT_MS`] before they are told of: a
//!   kernel's write-back may bring a page in two pieces.
//! - One scrub at a time. Its position is in the catalog, never ahead of what was looked at; a
//!   crash goes on from there, and looks at a stretch twice at most.

mod copies;
mod cursor;
mod examine;
mod judging;
mod left_out;
mod record;
mod run;
mod stretch;
mod structures;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use spindle_base::{BLOCK_SIZE_BYTES, DiskNumber, FileId};
use spindle_catalog::{Catalog, CatalogError, Edit, Table};
use spindle_pages::PageFile;
use spindle_sync::level::{DeepMutex, LeafRwLock};

use crate::background::Group;
use crate::background::Power;
use crate::error::{GroupError, GroupErrorKind};
use crate::event::{Event, EventKind, Severity};
use crate::levels;
use left_out::Missed;
pub use left_out::{LeftOut, LeftOutReason};
use record::{INTERVAL_KEY, LAST_KEY, RUN_KEY, Saved};
use run::Run;

/// The highest power.
const POWER_MOST: u16 = 1024;
/// Bytes of a file that one unit looks at for each step of power.
const STRETCH_BYTES_PER_POWER: u64 = 128 << 10;
/// So long a page that looks wrong must stay as it is before it is told of: longer than a kernel
/// keeps half of it back.
const SUSPECT_MS: u64 = 40_000;
/// Findings kept for the report; the events have all of them.
const FINDINGS_MOST: usize = 1000;

/// What the layer above knows of a file.
#[derive(Debug, Clone)]
pub struct Known {
    /// What a person calls it.
    pub title: String,
    /// How to judge its pages, where it has such.
    pub pages: Option<PageFile>,
}

/// The layer above, asked what a file is.
pub trait PageJudge: std::fmt::Debug + Send + Sync {
    /// May read the file; called without any lock.
    fn look(&self, file: FileId) -> Known;

    /// No scrub runs any more: what was remembered for it can go.
    fn rest(&self) {}
}

/// What is scrubbed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScrubScope {
    /// Every file.
    Group,
    /// Every extent that has a copy on one of these disks.
    Disks(Vec<DiskNumber>),
    /// These files.
    Files(Vec<FileId>),
}

/// What somebody asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrubWish {
    /// What is scrubbed.
    pub scope: ScrubScope,
    /// What the person called it: the group, a disk or a path.
    pub title: String,
    /// Whether what is proven is also repaired.
    pub repair: bool,
    /// 0 to 1024; 0 waits.
    pub power: u16,
    /// Whose copies lose where they differ from another one and nothing is proven.
    pub distrust: Option<Distrust>,
}

/// A person's word on a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Distrust {
    /// The disk.
    pub disk: DiskNumber,
    /// Who gave it.
    pub by: String,
}

/// How a scrub stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ScrubState {
    /// It reads.
    Running,
    /// Its power is 0.
    Paused,
    /// All is read; what looked wrong is looked at once more.
    LookingAgain,
    /// It came to its end.
    Done,
    /// It was stopped.
    Stopped,
}

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// One copy was wrong and is right again.
    Repaired,
    /// One copy was wrong; it lies elsewhere on its disk now.
    Moved,
    /// One copy was wrong, and its disk took it nowhere: it is offline.
    DiskOffline,
    /// One copy is wrong and it is proven which: `--repair` mends it.
    Repairable,
    /// Copies differ, and nothing proves which is right.
    CopiesDiffer,
    /// All copies agree, and the page is bad.
    BadPage,
    /// No copy can be read.
    Unreadable,
}

/// One place that was not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// What.
    pub kind: FindingKind,
    /// The file.
    pub file: FileId,
    /// What a person calls it.
    pub title: String,
    /// Where in the file, in bytes.
    pub offset_bytes: u64,
    /// How long.
    pub length_bytes: u64,
    /// The number of the page, where the file has pages.
    pub page: Option<u64>,
    /// Names of the disks whose copies are wrong; where that is not proven, of all that differ.
    pub disks: Vec<String>,
    /// In words.
    pub message: String,
}

/// A scrub as listings show it.
#[derive(Debug, Clone, serde::Serialize)]
pub struct ScrubView {
    /// What is scrubbed.
    pub title: String,
    /// How it stands.
    pub state: ScrubState,
    /// Whether it repairs.
    pub repair: bool,
    /// Its power.
    pub power: u16,
    /// The disk whose copies lose on a person's word.
    pub distrust: Option<DiskNumber>,
    /// Bytes of files of which every copy was looked at, one copy counted.
    pub done_bytes: u64,
    /// Bytes of files to look at in all, as they were when it began.
    pub total_bytes: u64,
    /// Bytes read, all copies.
    pub read_bytes: u64,
    /// Copies that it could not look at, so far: the first thousand.
    pub left_out: Vec<LeftOut>,
    /// Bytes of files of which a copy was left out, in all.
    pub left_out_bytes: u64,
    /// Pages that were judged.
    pub judged_pages_count: u64,
    /// Findings of all kinds, those that are not kept included.
    pub findings_count: u64,
    /// Of these, what is right again.
    pub repaired_count: u64,
    /// The first thousand findings.
    pub findings: Vec<Finding>,
}

/// What a call of [`Group::scrub_unit`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScrubStep {
    /// No scrub runs, or it is paused, or others have what is left of it.
    Idle,
    /// A stretch was looked at.
    Did,
    /// What looked wrong is waited for.
    Waiting,
}

/// How far the scrub that runs is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScrubProgress {
    pub power: u16,
    pub done_bytes: u64,
    pub total_bytes: u64,
}

/// The scrubs of a group.
#[derive(Debug, Default)]
pub(crate) struct Scrubs {
    judge: LeafRwLock<Option<Arc<dyn PageJudge>>>,
    state: DeepMutex<State, levels::Scrubs>,
}

#[derive(Debug, Default)]
struct State {
    current: Option<Arc<Run>>,
    last: Option<ScrubView>,
    /// What a crash interrupted, until the first unit goes on with it.
    interrupted: Option<Saved>,
    interval_s: u64,
    last_started_s: u64,
}

impl Scrubs {
    /// Takes the rows as the catalog holds them at opening.
    pub(crate) fn load(catalog: &Catalog) -> Result<Self, CatalogError> {
        let saved = match catalog.get(Table::Attribute, RUN_KEY)? {
            Some(bytes) => Some(Saved::parse(&bytes).map_err(CatalogError::Damaged)?),
            None => None,
        };
        let number = |key: &[u8]| -> Result<u64, CatalogError> {
            let bytes = catalog.get(Table::Attribute, key)?;
            Ok(bytes
                .and_then(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)))
                .unwrap_or(0))
        };
        Ok(Self {
            judge: LeafRwLock::default(),
            state: DeepMutex::new(State {
                current: None,
                last: None,
                interrupted: saved,
                interval_s: number(INTERVAL_KEY)?,
                last_started_s: number(LAST_KEY)?,
            }),
        })
    }
}

impl Group {
    /// Whoever knows the files by name; without one no page is judged.
    pub fn set_page_judge(&self, judge: Arc<dyn PageJudge>) {
        *self.scrubs.judge.write() = Some(judge);
    }

    /// Begins a scrub.
    ///
    /// # Errors
    /// [`GroupErrorKind::Busy`] where one runs, [`GroupErrorKind::Invalid`] for a power out of
    /// range or nothing to scrub.
    pub fn start_scrub(&self, mut wish: ScrubWish) -> Result<(), GroupError> {
        self.check_fence()?;
        check_power(wish.power)?;
        let is_empty = match &mut wish.scope {
            ScrubScope::Group => false,
            ScrubScope::Disks(disks) => disks.is_empty(),
            ScrubScope::Files(files) => {
                files.sort_unstable();
                files.dedup();
                files.is_empty()
            }
        };
        if is_empty {
            return Err(GroupError::new(
                GroupErrorKind::Invalid,
                format!("{} has nothing to scrub: it holds no file", wish.title),
            ));
        }
        self.take_up(Saved::fresh(wish))
    }

    /// Goes on with a scrub from where it was saved.
    fn take_up(&self, saved: Saved) -> Result<(), GroupError> {
        let title = saved.wish.title.clone();
        let is_new = saved.done_bytes == 0;
        let (distrust, repairs) = (saved.wish.distrust.clone(), saved.wish.repair);
        let run = Arc::new(Run::new(saved, |run| self.scrub_total_bytes(run)));
        {
            let mut state = self.scrubs.state.lock();
            let busy = state.current.as_ref().map(|other| other.title().to_owned());
            let waiting = state.interrupted.as_ref();
            if let Some(other) = busy.or_else(|| waiting.map(|other| other.wish.title.clone())) {
                return Err(GroupError::new(
                    GroupErrorKind::Busy,
                    format!(
                        "a scrub of {other} runs already: wait for it, or end it with `spindle \
                         scrub {} --stop`",
                        self.membership.name()
                    ),
                ));
            }
            state.current = Some(Arc::clone(&run));
        }
        self.save_scrub(&run);
        let how = if is_new { "began" } else { "goes on" };
        let mut message = format!("a scrub of {title} {how}");
        let mut severity = Severity::Info;
        if let Some(distrust) = distrust {
            let _ = write!(
                message,
                "; {} asked that the copies on {} lose wherever they differ from another one and \
                 nothing is proven{}",
                distrust.by,
                self.name_of_disk(distrust.disk),
                if repairs {
                    ""
                } else {
                    ", to see where, without repair"
                }
            );
            severity = Severity::Warning;
        }
        self.event(Event::new(EventKind::ScrubStarted, message).severity(severity));
        Ok(())
    }

    /// Ends the scrub that runs; what units are in the midst of comes to its end.
    ///
    /// # Errors
    /// [`GroupErrorKind::NotFound`] where none runs.
    pub fn stop_scrub(&self) -> Result<ScrubView, GroupError> {
        self.resume_scrub();
        let current = self.scrubs.state.lock().current.clone();
        let Some(run) = current else {
            return Err(GroupError::new(
                GroupErrorKind::NotFound,
                "no scrub runs: there is nothing to stop",
            ));
        };
        self.end_scrub(&run, ScrubState::Stopped);
        Ok(self.view_of(&run, Some(ScrubState::Stopped)))
    }

    /// Changes the power of the scrub that runs; 0 lets it wait.
    ///
    /// # Errors
    /// [`GroupErrorKind::NotFound`] where none runs, [`GroupErrorKind::Invalid`] out of range.
    pub fn set_scrub_power(&self, power: u16) -> Result<(), GroupError> {
        check_power(power)?;
        self.resume_scrub();
        let current = self.scrubs.state.lock().current.clone();
        let Some(run) = current else {
            return Err(GroupError::new(
                GroupErrorKind::NotFound,
                "no scrub runs: start one with this power",
            ));
        };
        run.set_power(power);
        self.save_scrub(&run);
        Ok(())
    }

    /// The scrub that runs, else the last one since the group was opened.
    pub fn scrub_view(&self) -> Option<ScrubView> {
        let state = self.scrubs.state.lock();
        match &state.current {
            Some(run) => Some(self.view_of(run, None)),
            None => state.last.clone(),
        }
    }

    /// Threads that should work at the scrub that runs; 0 where there is nothing to do.
    pub fn scrub_workers_count(&self) -> u32 {
        self.resume_scrub();
        let state = self.scrubs.state.lock();
        match state.current.as_ref().map(|run| run.power()) {
            None | Some(0) => 0,
            Some(power) => u32::from(power / 64).clamp(1, 16),
        }
    }

    /// The power of the scrub that runs.
    pub(crate) fn scrub_power(&self) -> Power {
        let state = self.scrubs.state.lock();
        let power = state.current.as_ref().map_or(0, |run| run.power());
        Power::new(power).unwrap_or(Power::DEFAULT)
    }

    /// How far the scrub that runs is.
    pub(crate) fn scrub_progress(&self) -> Option<ScrubProgress> {
        let state = self.scrubs.state.lock();
        state.current.as_ref().map(|run| run.progress())
    }

    /// Looks at one stretch; `now_ms` is any monotonic clock.
    ///
    /// # Errors
    /// What a disk that has to be given up leaves behind: [`GroupErrorKind::Io`] where the group
    /// must stop. A file that cannot be looked at is a finding, not an error.
    pub fn scrub_unit(&self, now_ms: u64) -> Result<ScrubStep, GroupError> {
        self.check_fence()?;
        self.resume_scrub();
        let current = self.scrubs.state.lock().current.clone();
        let Some(run) = current.filter(|run| run.power() > 0) else {
            return Ok(ScrubStep::Idle);
        };
        let step = self.scrub_step(&run, now_ms)?;
        if run.is_save_due(now_ms) {
            self.save_scrub(&run);
        }
        if step == ScrubStep::Idle && run.is_finished() {
            self.end_scrub(&run, ScrubState::Done);
        }
        Ok(step)
    }

    /// Seconds between two scrubs of the whole group; 0 for none.
    pub fn scrub_interval_s(&self) -> u64 {
        self.scrubs.state.lock().interval_s
    }

    /// Sets the seconds between two scrubs of the whole group, 0 for none; durable with the next
    /// commit.
    pub fn set_scrub_interval_s(&self, interval_s: u64) {
        self.scrubs.state.lock().interval_s = interval_s;
        self.put_scrub_number(INTERVAL_KEY, interval_s);
    }

    /// Starts the scrub of the whole group where its time has come, with repair and at power 1;
    /// `now_s` is seconds since 1970.
    ///
    /// # Errors
    /// As [`Group::start_scrub`]; a scrub that runs is no error.
    pub fn scrub_on_schedule(&self, now_s: u64) -> Result<(), GroupError> {
        {
            let mut state = self.scrubs.state.lock();
            if state.interval_s == 0 || state.current.is_some() || state.interrupted.is_some() {
                return Ok(());
            }
            if state.last_started_s == 0 || state.last_started_s > now_s {
                // The first one comes an interval after the schedule was made. A time that lies ahead
                // is of a clock that was wrong: it counts as now.
                state.last_started_s = now_s;
            } else if now_s.saturating_sub(state.last_started_s) < state.interval_s {
                return Ok(());
            } else {
                state.last_started_s = now_s;
                drop(state);
                self.put_scrub_number(LAST_KEY, now_s);
                return self.start_scrub(ScrubWish {
                    scope: ScrubScope::Group,
                    title: self.membership.name().to_string(),
                    repair: true,
                    power: 1,
                    distrust: None,
                });
            }
        }
        self.put_scrub_number(LAST_KEY, now_s);
        Ok(())
    }

    /// The group is being closed: the next opening goes on from here.
    pub(crate) fn keep_scrub(&self) {
        let current = self.scrubs.state.lock().current.clone();
        if let Some(run) = current {
            self.save_scrub(&run);
        }
    }

    fn put_scrub_number(&self, key: &[u8], number: u64) {
        let mut edit = Edit::default();
        edit.put(
            Table::Attribute,
            key.to_vec(),
            number.to_le_bytes().to_vec(),
        );
        self.apply(&self.change(), edit);
    }

    /// Goes on with what a crash or a close interrupted.
    fn resume_scrub(&self) {
        let Some(saved) = self.scrubs.state.lock().interrupted.take() else {
            return;
        };
        // Nobody can have begun another one: it would have been refused.
        let _ = self.take_up(saved);
    }

    fn save_scrub(&self, run: &Run) {
        let mut edit = Edit::default();
        edit.put(Table::Attribute, RUN_KEY.to_vec(), run.saved().encode());
        let change = self.change();
        // Not after its end, which removed the row.
        let state = self.scrubs.state.lock();
        if state
            .current
            .as_ref()
            .is_some_and(|current| current.is(run))
        {
            self.apply(&change, edit);
        }
    }

    fn end_scrub(&self, run: &Run, how: ScrubState) {
        {
            let change = self.change();
            let mut state = self.scrubs.state.lock();
            if !state
                .current
                .as_ref()
                .is_some_and(|current| current.is(run))
            {
                return;
            }
            state.current = None;
            state.last = Some(self.view_of(run, Some(how)));
            let mut edit = Edit::default();
            edit.delete(Table::Attribute, RUN_KEY.to_vec());
            self.apply(&change, edit);
        }
        let judge = self.scrubs.judge.read().clone();
        if let Some(judge) = judge {
            judge.rest();
        }
        let view = self.view_of(run, Some(how));
        let verb = if how == ScrubState::Stopped {
            "was stopped"
        } else {
            "ended"
        };
        self.tell_left_out(&view);
        let found = match (view.findings_count, view.repaired_count) {
            (0, _) if view.left_out_bytes == 0 => "every copy is as it should be".to_owned(),
            (0, _) => "every copy that could be looked at is as it should be".to_owned(),
            (findings, repaired) => format!("{findings} findings, {repaired} of them repaired"),
        };
        self.event(Event::new(
            EventKind::ScrubEnded,
            format!(
                "the scrub of {} {verb}: {} bytes read, {found}",
                view.title, view.read_bytes
            ),
        ));
        let whole = matches!(run.scope(), ScrubScope::Group) && how == ScrubState::Done;
        let is_all = view.findings_count == view.repaired_count && view.left_out_bytes == 0;
        if whole && is_all {
            let message = "every copy of the group was read, and nothing wrong is left";
            self.event(Event::new(EventKind::AllCopiesRight, message));
        }
    }
}

impl Group {
    fn view_of(&self, run: &Run, ended: Option<ScrubState>) -> ScrubView {
        run.view(ended, &|missed| self.named(run, missed))
    }

    fn named(&self, run: &Run, missed: &Missed) -> LeftOut {
        LeftOut {
            file: missed.file,
            title: run.title_of(missed.file),
            offset_bytes: missed.first * BLOCK_SIZE_BYTES,
            length_bytes: (missed.end - missed.first) * BLOCK_SIZE_BYTES,
            disk: self.name_of_disk(missed.disk),
            reason: missed.reason,
        }
    }

    fn name_of_disk(&self, number: DiskNumber) -> String {
        (self.disks.get(number)).map_or_else(|| number.to_string(), |disk| disk.name().to_string())
    }

    /// One event for each disk and reason.
    fn tell_left_out(&self, view: &ScrubView) {
        let mut groups: BTreeMap<(&str, LeftOutReason), Vec<&LeftOut>> = BTreeMap::new();
        for one in &view.left_out {
            groups.entry((&one.disk, one.reason)).or_default().push(one);
        }
        for ((disk, reason), entries) in groups {
            let bytes: u64 = entries.iter().map(|one| one.length_bytes).sum();
            let first = entries[0];
            let others = match entries.len() - 1 {
                0 => String::new(),
                more => format!(" and {more} other places"),
            };
            let message = format!(
                "the scrub of {} left out {bytes} bytes on {disk}, because {}: {} bytes at {} of \
                 {}{others}; scrub again when the disk has everything",
                view.title,
                reason.words(),
                first.length_bytes,
                first.offset_bytes,
                first.title,
            );
            self.event(Event::new(EventKind::ScrubLeftOut, message).file(first.file));
        }
    }
}

fn check_power(power: u16) -> Result<(), GroupError> {
    if power <= POWER_MOST {
        return Ok(());
    }
    Err(GroupError::new(
        GroupErrorKind::Invalid,
        format!("the power {power} is out of range: it is from 0, which waits, to {POWER_MOST}"),
    ))
}
