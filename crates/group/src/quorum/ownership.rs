//! The way to the disks of a group that this process owns, which ends where it does not any more.
//!
//! Another host takes a group by force when its owner seems to be dead. An owner that only slept
//! (it was stopped, or its machine was suspended) wakes up with writes in its hands, of which
//! each would destroy something of the new owner's. So nothing goes to a disk, and no answer of a
//! disk counts, while the owner record was not read for longer than [`TRUSTED_MS`], or the
//! machine was suspended since: it is read again first, by whoever comes first. Heartbeats read it
//! too, so that nobody else has to as long as they come in time.
//!
//! A voter that hangs holds nobody up who waits for another disk: each voter is asked on a thread of
//! its own, which the caller brings with the clock. The group counts as ours where at least half of
//! the voters say so; when they have, the others have a moment left. As long as they have not, every
//! voter that owes an answer is waited for, whoever asked it, and is asked again when it gives that
//! one, which may be older than the question. A voter that fails says nothing: where no silent one is
//! left and fewer than half have said that the group is ours, it is not known to be. At least half of
//! the voters must take every state of a new owner who was not forced, so that it is known to one of
//! those; who forces it with fewer has been told what that risks.
//!
//! An answer that somebody else has the group counts whenever it comes, also when nobody waits for it
//! any more.
//!
//! A reservation conflict says the same: another host has fenced this one off. It is no fault of
//! the disk.
//!
//! Once lost, the group is lost for this process: every request is answered
//! [`DeviceErrorKind::Fenced`], without going anywhere. What remains is the time between the
//! reading and the arrival of a request at the disk, which only the disk itself can close.

use spindle_sync::Condvar;
use spindle_sync::atomic::{AtomicU64, Ordering};
use spindle_sync::level::{DeepMutex, LeafMutex, LeafRwLock};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use spindle_base::{DiskNumber, FailureGroupName, GroupName, Uuid};
use spindle_device::{
    AlignedBuffer, DeviceError, DeviceErrorKind, DiskSlot, Disks, Judge, Request, Work,
};
use spindle_format::{OPENER_BYTES, OPENER_PLACE, OpenerRecord, Origin, identities};

use crate::error::{GroupError, GroupErrorKind};
use crate::levels;
use crate::quorum::failed_flushes::FlushListener;
use crate::quorum::{FailedFlushes, refused};

/// Who opens the group, written to its disks so that another host can tell.
#[derive(Debug, Clone)]
pub struct Opener {
    /// The host's name.
    pub host: String,
    /// What tells the host from others of its name, where it is known.
    pub origin: Option<Origin>,
    /// The kernel's boot id.
    pub boot: Uuid,
    /// When the kernel was started, in seconds since 1970, where it is known.
    pub booted_s: Option<u64>,
    /// The process id.
    pub process_id: u32,
    /// Seconds since 1970.
    pub now_s: u64,
    /// Take the group although another seems to have it, or a majority cannot be seen.
    pub force: bool,
    /// Preferred failure group for reads.
    pub preferred_failure_group: Option<FailureGroupName>,
}

/// How long a reading of the owner record is relied on. Heartbeats come every two seconds.
pub(super) const TRUSTED_MS: u64 = 2500;
/// By how much the two clocks may drift apart without a suspension: they are read one after the
/// other.
const DRIFT_MS: u64 = 100;

/// How long the next voter has to answer when at least half of them have.
const MOMENT: Duration = Duration::from_millis(500);

/// Where each member that was found is open.
pub(super) type Slots = BTreeMap<DiskNumber, DiskSlot>;

/// What two clocks show at about the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Milliseconds since the machine was booted, without the time that it was suspended.
    pub awake_ms: u64,
    /// The same with that time.
    pub booted_ms: u64,
}

/// Reads the two clocks.
pub type Clock = Box<dyn Fn() -> Moment + Send + Sync>;

/// Does something on a thread of its own, however long it takes.
pub type Apart = Box<dyn Fn(Box<dyn FnOnce() + Send>) -> std::io::Result<()> + Send + Sync>;

/// What an owner that may sleep is watched with.
pub struct Watch {
    /// Reads the two clocks.
    pub clock: Clock,
    /// Where a voter is waited for.
    pub apart: Apart,
}

/// What this process wrote last of itself, and where.
#[derive(Debug, Clone)]
struct Own {
    group: GroupName,
    record: OpenerRecord,
    voters: Vec<DiskSlot>,
}

/// What this process holds of the group. Shared with the threads that wait for a voter, which may
/// outlive who asked.
#[derive(Default)]
struct Tenure {
    /// `None` before the group is claimed and when it is closed.
    own: LeafRwLock<Option<Own>>,
    lost: OnceLock<GroupError>,
}

/// The disks, as long as the group is this process's.
pub(super) struct Ownership {
    disks: Arc<dyn Disks>,
    /// The group's disks: those of others may be fenced for all we know.
    slots: Arc<LeafRwLock<Slots>>,
    flushes: Arc<FlushListener>,
    watch: OnceLock<Watch>,
    tenure: Arc<Tenure>,
    /// When the record was last found to be ours, and how long the machine had been suspended.
    read_ms: AtomicU64,
    suspended_ms: AtomicU64,
    reading: DeepMutex<(), levels::OwnerRecord>,
    inquiry: Arc<Inquiry>,
}

impl std::fmt::Debug for Ownership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (f.debug_struct("Ownership").field("disks", &self.disks)).finish_non_exhaustive()
    }
}

/// What a voter's owner record, or all of them together, came to.
enum Reading {
    /// Nobody else has written there.
    Ours,
    /// It cannot be read; of all together, fewer than half can.
    Unreadable,
    /// Somebody else has the group.
    Lost(String),
}

impl Tenure {
    fn lose(&self, why: &str) {
        let group = self.own.read().as_ref().map(|own| own.group.to_string());
        let group = group.unwrap_or_default();
        let message = format!("group {group} stops: {why}");
        // The first reason is the one to tell.
        let _ = self.lost.set(refused(GroupErrorKind::Busy, message));
    }

    /// What one voter's record says; the group is lost where that is another's.
    fn judge(&self, page: &[u8], result: Result<(), DeviceError>) -> Reading {
        // Whoever has the group when it is closed is no usurper.
        let Some(own) = self.own.read().clone() else {
            return Reading::Ours;
        };
        let reading = match result {
            Ok(()) => match other_owner(page, &own.record) {
                Some(other) => Reading::Lost(other),
                None => Reading::Ours,
            },
            Err(error) if error.kind == DeviceErrorKind::Fenced => {
                Reading::Lost(fenced_off(&error))
            }
            Err(_) => Reading::Unreadable,
        };
        if let Reading::Lost(why) = &reading {
            self.lose(why);
        }
        reading
    }
}

impl Ownership {
    pub(super) fn new(
        disks: Arc<dyn Disks>,
        slots: Arc<LeafRwLock<Slots>>,
        failed_flushes: FailedFlushes,
    ) -> Self {
        Self {
            disks,
            flushes: Arc::new(FlushListener {
                failures: failed_flushes,
                slots: Arc::clone(&slots),
            }),
            slots,
            watch: OnceLock::new(),
            tenure: Arc::default(),
            read_ms: AtomicU64::new(0),
            suspended_ms: AtomicU64::new(0),
            reading: DeepMutex::new(()),
            inquiry: Arc::default(),
        }
    }

    pub(super) fn watch_clock(&self, clock: Clock, apart: Apart) {
        // A second clock would be no better than the first.
        let _ = self.watch.set(Watch { clock, apart });
        self.look();
    }

    /// What the voters' owner records say by now.
    pub(super) fn own(&self, group: &GroupName, record: &OpenerRecord, voters: Vec<DiskSlot>) {
        *self.tenure.own.write() = Some(Own {
            group: group.clone(),
            record: record.clone(),
            voters,
        });
    }

    /// The group is closed: whoever has it next is no usurper.
    pub(super) fn end(&self) {
        *self.tenure.own.write() = None;
    }

    /// The disks, whoever has the group.
    pub(super) fn beneath(&self) -> &dyn Disks {
        &*self.disks
    }

    /// The flushes that disks failed.
    pub(super) fn failed_flushes(&self) -> &FailedFlushes {
        &self.flushes.failures
    }

    /// Why the group is not this process's any more.
    pub(super) fn lost(&self) -> Option<GroupError> {
        self.tenure.lost.get().cloned()
    }

    /// The group is not this process's any more, for that reason.
    pub(super) fn lose(&self, why: &str) {
        self.tenure.lose(why);
    }

    /// As for a request to a disk, for what is answered without one.
    pub(super) fn check(&self) -> Result<(), GroupError> {
        let Err(_) = self.permits() else {
            return Ok(());
        };
        let unreadable = || {
            let message = "fewer than half of the disks that vote say whose the group is";
            GroupError::new(GroupErrorKind::Io, message)
        };
        Err(self.lost().unwrap_or_else(unreadable))
    }

    /// Reads the owner record, whenever it was read last.
    pub(super) fn look(&self) {
        let _one = self.reading.lock();
        self.read();
    }

    /// Whether the voter was asked and has not answered yet.
    pub(super) fn is_silent(&self, slot: DiskSlot) -> bool {
        self.inquiry.board.lock().silent.contains_key(&slot)
    }

    /// Whether a request may go out, or its answer count; the kind of the failure where not.
    fn permits(&self) -> Result<(), DeviceErrorKind> {
        if self.tenure.lost.get().is_some() {
            return Err(DeviceErrorKind::Fenced);
        }
        if self.is_trusted() {
            return Ok(());
        }
        let _one = self.reading.lock();
        // Whoever was first has read it for all.
        let readable = self.is_trusted() || self.read();
        match self.tenure.lost.get() {
            Some(_) => Err(DeviceErrorKind::Fenced),
            None if readable => Ok(()),
            None => Err(DeviceErrorKind::Gone),
        }
    }

    fn is_trusted(&self) -> bool {
        let Some(watch) = self.watch.get() else {
            return true;
        };
        let now = (watch.clock)();
        let suspended_ms = now.booted_ms.saturating_sub(now.awake_ms);
        let is_recent = now
            .booted_ms
            .saturating_sub(self.read_ms.load(Ordering::Acquire));
        let slept_ms = suspended_ms.saturating_sub(self.suspended_ms.load(Ordering::Acquire));
        (is_recent <= TRUSTED_MS && slept_ms <= DRIFT_MS) || self.tenure.own.read().is_none()
    }

    /// Reads the records; false where fewer than half can be read. The caller holds `reading`.
    fn read(&self) -> bool {
        // Before the reading: what comes to pass while it is under way is not known by it.
        let begun = self.watch.get().map(|watch| (watch.clock)());
        let Some(own) = self.tenure.own.read().clone() else {
            return true;
        };
        let reading = match self.watch.get() {
            Some(watch) => self.read_apart(&own, watch),
            // Without a clock nobody but heartbeats reads, and nobody waits for them.
            None => self.read_at_once(&own),
        };
        match reading {
            Reading::Unreadable => return false,
            Reading::Lost(_) => {}
            Reading::Ours => {
                if let Some(now) = begun {
                    let suspended_ms = now.booted_ms.saturating_sub(now.awake_ms);
                    self.suspended_ms.store(suspended_ms, Ordering::Release);
                    self.read_ms.store(now.booted_ms, Ordering::Release);
                }
            }
        }
        true
    }

    /// Reads the record of every voter, however long one of them takes.
    fn read_at_once(&self, own: &Own) -> Reading {
        let mut pages: Vec<AlignedBuffer> = (own.voters.iter())
            .map(|_| AlignedBuffer::zeroed(OPENER_BYTES))
            .collect();
        let mut batch: Vec<Request<'_>> = (own.voters.iter().zip(&mut pages))
            .map(|(slot, page)| Request::new(*slot, OPENER_PLACE, Work::Read(page)))
            .collect();
        self.disks.run(&mut batch);
        let results: Vec<Result<(), DeviceError>> =
            batch.into_iter().map(|request| request.result).collect();
        let mut ours_count = 0;
        for (page, result) in pages.iter().zip(results) {
            match self.tenure.judge(page, result) {
                Reading::Unreadable => {}
                Reading::Ours => ours_count += 1,
                lost @ Reading::Lost(_) => return lost,
            }
        }
        own.reading(ours_count)
    }

    /// Reads the record of every voter, each on a thread of its own, until enough have answered.
    fn read_apart(&self, own: &Own, watch: &Watch) -> Reading {
        let reading = self.inquiry.begin();
        for slot in own.voters.iter().copied() {
            if !self.is_silent(slot)
                && let Err(error) = self.ask(slot, reading, watch)
            {
                tracing::warn!(%error, "no thread to read an owner record on");
                return self.read_at_once(own);
            }
        }
        let mut ours_count = 0;
        while let Some(answer) = self.inquiry.next(own, reading, own.is_half(ours_count)) {
            match answer.said {
                lost @ Reading::Lost(_) => return lost,
                Reading::Ours if answer.asked_by == reading => ours_count += 1,
                Reading::Unreadable if answer.asked_by == reading => {}
                // It may have been read before this reading began.
                Reading::Ours | Reading::Unreadable => {
                    if own.voters.contains(&answer.slot)
                        && let Err(error) = self.ask(answer.slot, reading, watch)
                    {
                        tracing::warn!(%error, "no thread to read an owner record on");
                        return self.read_at_once(own);
                    }
                }
            }
        }
        own.reading(ours_count)
    }

    /// Asks a voter that owes no answer, on a thread of its own.
    fn ask(&self, slot: DiskSlot, reading: u64, watch: &Watch) -> std::io::Result<()> {
        self.inquiry.board.lock().silent.insert(slot, reading);
        let disks = Arc::clone(&self.disks);
        let tenure = Arc::clone(&self.tenure);
        let inquiry = Arc::clone(&self.inquiry);
        let ask = move || {
            let mut page = AlignedBuffer::zeroed(OPENER_BYTES);
            let mut batch = [Request::new(slot, OPENER_PLACE, Work::Read(&mut page))];
            disks.run(&mut batch);
            let [Request { result, .. }] = batch;
            // Before the answer: whoever has it may close the disks.
            drop(disks);
            // Here, where it comes: nobody may wait for it any more.
            let said = tenure.judge(&page, result);
            let mut board = inquiry.board.lock();
            board.silent.remove(&slot);
            board.came.push(Answer {
                slot,
                asked_by: reading,
                said,
            });
            drop(board);
            inquiry.changed.notify_all();
        };
        (watch.apart)(Box::new(ask)).inspect_err(|_| {
            self.inquiry.board.lock().silent.remove(&slot);
        })
    }
}

/// What the voters were asked, and what they answered.
#[derive(Default)]
struct Inquiry {
    board: LeafMutex<Board>,
    changed: Condvar,
}

#[derive(Default)]
struct Board {
    /// The number of the last reading.
    reading: u64,
    /// Voters that owe an answer, and which reading asked them.
    silent: BTreeMap<DiskSlot, u64>,
    /// What no reading has taken yet.
    came: Vec<Answer>,
}

/// What one voter's disk answered.
struct Answer {
    slot: DiskSlot,
    /// The number of the reading.
    asked_by: u64,
    said: Reading,
}

impl Inquiry {
    /// The number of a new reading.
    fn begin(&self) -> u64 {
        let mut board = self.board.lock();
        board.came.clear();
        board.reading += 1;
        board.reading
    }

    /// The next answer; `None` where no voter that is waited for owes one, or where others suffice
    /// and none comes soon.
    fn next(&self, own: &Own, reading: u64, others_suffice: bool) -> Option<Answer> {
        let mut board = self.board.lock();
        loop {
            if let Some(answer) = board.came.pop() {
                return Some(answer);
            }
            let is_waited_for = |slot: &DiskSlot| {
                (board.silent.get(slot)).is_some_and(|by| !others_suffice || *by == reading)
            };
            if !own.voters.iter().any(is_waited_for) {
                return None;
            }
            if !others_suffice {
                board.wait(&self.changed);
            } else if board.wait_for(&self.changed, MOMENT) {
                return None;
            }
        }
    }
}

impl Own {
    /// Whether so many are at least half of the voters.
    const fn is_half(&self, count: usize) -> bool {
        count * 2 >= self.voters.len()
    }

    /// What so many voters come to that say that the group is ours, and none that says otherwise.
    const fn reading(&self, ours_count: usize) -> Reading {
        if self.is_half(ours_count) {
            Reading::Ours
        } else {
            Reading::Unreadable
        }
    }
}

/// Who wrote the record, where it is somebody else and newer. A damaged one is written again by
/// the next heartbeat.
fn other_owner(page: &[u8], ours: &OpenerRecord) -> Option<String> {
    match OpenerRecord::parse(page, OPENER_PLACE) {
        Ok(found) => {
            let is_other = found.group_uuid == ours.group_uuid
                && found.sequence >= ours.sequence
                && (found.boot, found.process_id) != (ours.boot, ours.process_id);
            is_other.then(|| taken_by(&found))
        }
        Err(why) if why.kind.is_newer() => {
            let group = identities(page).map(|(group, _)| group);
            (group == Some(ours.group_uuid)).then(|| format!("a newer program has taken it: {why}"))
        }
        Err(_) => None,
    }
}

pub(super) fn taken_by(other: &OpenerRecord) -> String {
    format!(
        "process {} on host {} has taken it by force",
        other.process_id, other.host
    )
}

fn fenced_off(error: &DeviceError) -> String {
    format!("another host has fenced this one off its disks: {error}")
}

impl Disks for Ownership {
    fn run(&self, batch: &mut [Request<'_>]) {
        if let Err(kind) = self.permits() {
            return self.fail_all(batch, kind);
        }
        // Noted are the answers that the disks gave, not those that take their place below.
        self.flushes.run(&*self.disks, batch);
        for request in batch.iter() {
            if let Err(error) = &request.result
                && error.kind == DeviceErrorKind::Fenced
                && self.slots.read().values().any(|slot| *slot == request.slot)
            {
                self.tenure.lose(&fenced_off(error));
            }
        }
        if let Err(kind) = self.permits() {
            self.fail_all(batch, kind);
        }
    }

    fn size_bytes(&self, slot: DiskSlot) -> u64 {
        self.disks.size_bytes(slot)
    }

    fn measure(&self, slot: DiskSlot) -> std::io::Result<u64> {
        self.disks.measure(slot)
    }

    fn path(&self, slot: DiskSlot) -> String {
        self.disks.path(slot)
    }

    fn in_flight_count(&self, slot: DiskSlot) -> u32 {
        self.disks.in_flight_count(slot)
    }

    fn appearance(&self, slot: DiskSlot) -> Option<u64> {
        self.disks.appearance(slot)
    }

    fn is_fenced(&self, slot: DiskSlot) -> bool {
        self.disks.is_fenced(slot)
    }

    fn set_judge(&self, judge: Weak<dyn Judge>) {
        self.disks.set_judge(judge);
    }
}

impl Ownership {
    #[cold]
    fn fail_all(&self, batch: &mut [Request<'_>], kind: DeviceErrorKind) {
        for request in batch {
            request.result = Err(DeviceError {
                path: self.disks.path(request.slot),
                operation: request.operation(),
                offset_bytes: request.offset_bytes,
                length_bytes: request.length_bytes(),
                kind,
                errno: None,
            });
        }
    }
}
