//! Floor 1 of 7, below `region`: which disks belong to the group, who votes, and who has it open.
//!
//! [`Membership::create`] and [`Membership::open`] give the one owner of the group's labels,
//! openers and group states; nothing else writes them. Everything that the group must remember
//! outside the catalog goes through one durable step, `publish.rs`; which state counts after a
//! stop is decided by `election.rs`, whose head has the table of all cases.
//!
//! What a start finds, and what it makes of it, is the table of `docs/format/start-up.md`.

mod changes;
mod claim;
mod contest;
mod create;
mod cut_off;
mod election;
mod failed_flushes;
mod hanging;
mod labels;
mod look;
mod open;
mod ownership;
mod publish;
mod relapse;
mod replicas;
mod returning;
mod set_back;
pub(crate) mod standing;
mod verify;
mod voters;

use spindle_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock, Weak};

use spindle_base::{AuSize, DiskName, DiskNumber, FailureGroupName, GroupName, Redundancy, Uuid};
use spindle_device::{DiskSlot, Disks, Judge};
use spindle_format::{
    DiskState, DiskStatus, GroupState, Label, LabelStatus, OPENER_PLACE, OpenerRecord, Replica,
};
use spindle_sync::level::{DeepMutex, LeafRwLock};

pub(crate) use changes::{Joining, Standings};
pub use claim::CLAIM_PAUSE_MS;
pub use contest::Waited;
pub(crate) use create::{DISK_AUS_MIN, disk_size_min_text};
pub use create::{NewDisk, NewGroup, disk_bytes_min, judge_new_group};
use cut_off::CutOff;
pub(crate) use failed_flushes::{FailedFlushes, Failures};
use hanging::Hanging;
use labels::LateCopies;
pub use look::{
    DiskLook, GroupFound, LabelFound, Overwritten, SlotFound, groups, look, newest_mark,
};
pub(crate) use open::Attendance;
pub use ownership::{Apart, Clock, Moment, Opener, Watch};
use ownership::{Ownership, Slots};
use publish::{Quorum, set_offline, whole_blocks};
use relapse::{LookedAt, SetBack};
use standing::StandingTable;
pub(crate) use verify::{FaultOutcome, StructureFault};

use crate::error::{GroupError, GroupErrorKind};
use crate::event::{Event, EventKind, EventQueue};
use crate::incarnation::Incarnation;
use crate::levels;

/// The disks of an open group. All methods may be called from many threads.
#[derive(Debug)]
pub struct Membership {
    /// The way to the disks, which ends where somebody else has the group.
    disks: Arc<Ownership>,
    uuid: Uuid,
    au_size: AuSize,
    redundancy: LeafRwLock<Redundancy>,
    was_clean: bool,
    was_forced: bool,
    /// What the last process left is being recovered, see [`Membership::begin_recovery`].
    recovers: AtomicBool,
    /// Disks that had a replica of the catalog, and have none since this opening.
    lost_replicas: Vec<DiskNumber>,
    /// Where each member that was found is open.
    slots: Arc<LeafRwLock<Slots>>,
    /// Changed only by a published state.
    standings: StandingTable,
    hanging: Arc<Hanging>,
    /// Batches of labels, records and states that began to be written.
    structure_writes_count: AtomicU64,
    inner: DeepMutex<Inner, levels::Membership>,
    /// Why no state can be published any more: one that was tried may count, and nobody knows.
    /// For those who must not wait for who publishes.
    stopped: OnceLock<GroupError>,
    events: EventQueue,
}

/// Gives signs of life of a process that opens a group, from when the group is claimed on.
#[derive(Debug, Clone)]
pub struct Pulse(Weak<Membership>);

impl Pulse {
    pub(crate) fn of(membership: &Arc<Membership>) -> Self {
        Self(Arc::downgrade(membership))
    }

    /// Renews the mark that says who has the group; false where there is nothing to be said any more.
    #[must_use]
    pub fn beat(&self, now_s: u64) -> bool {
        (self.0.upgrade()).is_some_and(|membership| membership.beat_while_opening(now_s).is_ok())
    }
}

/// A disk that was found.
#[derive(Debug)]
struct Member {
    path: String,
    /// What its label is to say.
    label: Label,
    /// The copies of it that could not be written.
    late: LateCopies,
    /// The slot that holds the last relied-on state.
    held_slot: usize,
    /// The epoch of the newest state that it is known to hold.
    held_epoch: u64,
    /// That of the state in the other slot, where this process wrote it; else 0.
    spare_epoch: u64,
}

#[derive(Debug)]
struct Inner {
    /// The last relied-on state.
    state: GroupState,
    /// The highest epoch that may be on any disk.
    epoch_tried: u64,
    members: BTreeMap<DiskNumber, Member>,
    opener: OpenerRecord,
    /// The sequence and the heartbeat of the newest opener record that each voter has taken, durably.
    heard: BTreeMap<DiskNumber, (u64, u64)>,
    /// The epoch that disks held that were not there, or not to be trusted, at the opening.
    away_held: BTreeMap<DiskNumber, u64>,
    /// The state to which a change that is refused goes back: what stands in it as before stands so since
    /// then.
    goes_back_to: Option<GroupState>,
    /// Disks that were set back while they served.
    set_back: BTreeMap<DiskNumber, SetBack>,
    /// Why nothing can be published any more.
    broken: Option<GroupError>,
}

/// A disk of an open group, here or away.
#[derive(Debug, Clone)]
pub struct MemberView {
    /// Its standing in the group state.
    pub state: DiskState,
    /// Where it is open; `None` where it was not found.
    pub slot: Option<DiskSlot>,
    /// Its path.
    pub path: Option<String>,
    /// Its name; the catalog's disk record has it where the disk was not found.
    pub name: Option<DiskName>,
    /// Its failure group; likewise.
    pub failure_group: Option<FailureGroupName>,
    /// Its identity; likewise.
    pub uuid: Option<Uuid>,
    /// Whether it holds a replica of the catalog.
    pub catalog_replica: bool,
}

impl MemberView {
    const fn number(&self) -> DiskNumber {
        self.state.number
    }
}

fn refused(kind: GroupErrorKind, message: String) -> GroupError {
    GroupError::new(kind, message)
}

impl Membership {
    /// The group's identity.
    #[must_use]
    pub const fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// The group's AU size.
    #[must_use]
    pub const fn au_size(&self) -> AuSize {
        self.au_size
    }

    /// The group's redundancy.
    #[must_use]
    pub fn redundancy(&self) -> Redundancy {
        *self.redundancy.read()
    }

    /// Gives the group another redundancy, durably: the group state first, which counts, then
    /// the labels; one that cannot be written now is written later.
    ///
    /// # Errors
    /// Where too few voters take it.
    pub(crate) fn set_redundancy(&self, redundancy: Redundancy) -> Result<(), GroupError> {
        self.change_state(|state| state.redundancy = redundancy)?;
        *self.redundancy.write() = redundancy;
        self.bring_labels_up_to_date();
        Ok(())
    }

    /// Whether the group was closed in order before it was opened now: then no copies can differ
    /// and no block of the catalog can be torn.
    #[must_use]
    pub const fn was_clean(&self) -> bool {
        self.was_clean
    }

    /// From now on, until [`Membership::end_recovery`], no disk goes that the redundancy does not bear to
    /// lose: the opening is refused. What a disk that is missing lacks of what was being written is not
    /// known yet, and another one that goes meanwhile would be said to lack it as well. A person who forces
    /// the opening has said that disks are given up.
    pub(crate) fn begin_recovery(&self) {
        self.recovers.store(true, Ordering::Release);
    }

    /// The group can be served.
    ///
    /// # Errors
    /// Where no state can be published any more.
    pub(crate) fn end_recovery(&self) -> Result<(), GroupError> {
        self.recovers.store(false, Ordering::Release);
        self.refuse_stopped(&mut self.inner.lock())
    }

    /// Whether a person forced the opening: what cannot be read is given up.
    pub(crate) const fn was_forced(&self) -> bool {
        self.was_forced
    }

    /// The disks that the group went on without when it was opened, and that had a replica of its
    /// catalog until then.
    pub(crate) fn lost_replicas(&self) -> &[DiskNumber] {
        &self.lost_replicas
    }

    /// What this process has written of itself to the voters.
    #[must_use]
    pub fn opener(&self) -> OpenerRecord {
        self.inner.lock().opener.clone()
    }

    /// The group's name.
    #[must_use]
    pub fn name(&self) -> GroupName {
        self.inner.lock().state.group_name.clone()
    }

    /// The epoch of the last relied-on state.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.inner.lock().state.epoch
    }

    /// A copy of the last relied-on state.
    #[must_use]
    pub fn state(&self) -> GroupState {
        self.inner.lock().state.clone()
    }

    /// Whether the disk is here and serves. Cheap: asked for each request.
    #[must_use]
    pub fn is_online(&self, number: DiskNumber) -> bool {
        self.incarnation(number).serves()
    }

    /// The disk's incarnation. Cheap.
    pub(crate) fn incarnation(&self, number: DiskNumber) -> Incarnation {
        self.standings.incarnation(number)
    }

    /// Changes whenever a disk joins the service, leaves it, or loses writes that no flush had covered.
    /// Cheap.
    pub(crate) fn turns_count(&self) -> u64 {
        self.standings.turns_count()
    }

    /// No direct client reads a disk any more until it is told of the disks anew.
    pub(crate) fn keep_clients_off(&self) {
        self.standings.keep_clients_off();
    }

    /// Whether new extents may go to the disk: it serves and is not being dropped. Cheap.
    #[must_use]
    pub fn may_receive(&self, number: DiskNumber) -> bool {
        self.standings.may_receive(number)
    }

    /// What the data path is told: what the state says of each disk that is here.
    fn set_standings(&self, state: &GroupState) {
        let slots = self.slots.read().clone();
        // Those that the state has forgotten as well.
        let known = state.disks.iter().map(|disk| disk.number);
        let disks: BTreeSet<DiskNumber> = known.chain(self.standings.disks()).collect();
        for number in disks {
            let status = (state.disk(number))
                .filter(|_| slots.contains_key(&number))
                .map(|disk| disk.status);
            let serves = status.is_some_and(DiskStatus::is_served);
            let receives = status == Some(DiskStatus::Online);
            if serves && !self.is_online(number) {
                self.forget_failed_flushes_of(number);
            }
            self.standings.set(number, serves, receives);
            if !serves {
                self.forget_failed_flushes_of(number);
            }
        }
        self.hanging.follow(state, &slots);
    }

    /// From now on the disks ask which of them may be given up.
    fn become_judge(&self) {
        let judge: Arc<dyn Judge> = self.hanging.clone();
        self.disks.set_judge(Arc::downgrade(&judge));
    }

    /// Where the disk is open; `None` where it was not found.
    #[must_use]
    pub fn slot(&self, number: DiskNumber) -> Option<DiskSlot> {
        self.slots.read().get(&number).copied()
    }

    /// Every disk of the group, in the order of the numbers.
    #[must_use]
    pub fn members(&self) -> Vec<MemberView> {
        let inner = self.inner.lock();
        (inner.state.disks.iter())
            .map(|disk| {
                let member = inner.members.get(&disk.number);
                MemberView {
                    state: disk.clone(),
                    slot: self.slot(disk.number),
                    path: member.map(|member| member.path.clone()),
                    name: member.map(|member| member.label.disk_name.clone()),
                    failure_group: member.map(|member| member.label.failure_group.clone()),
                    uuid: member.map(|member| member.label.disk_uuid),
                    catalog_replica: (inner.state.replicas.iter())
                        .any(|replica| replica.disk == disk.number),
                }
            })
            .collect()
    }

    /// The AUs that the catalog has on each disk: not free, whatever the maps say.
    #[must_use]
    pub fn catalog_runs(&self) -> Vec<Replica> {
        self.inner.lock().state.replicas.clone()
    }

    /// What happened since the last call, the oldest first.
    #[must_use]
    pub fn take_events(&self) -> Vec<Event> {
        self.events.take()
    }

    pub(crate) fn event(&self, event: Event) {
        self.events.push(event);
    }

    /// As [`Self::event`], of a disk.
    pub(crate) fn disk_event(&self, kind: EventKind, disk: DiskNumber, message: String) {
        self.event(Event::new(kind, message).disk(disk));
    }

    pub(crate) fn disks(&self) -> Arc<dyn Disks> {
        Arc::clone(&self.disks) as Arc<dyn Disks>
    }

    /// From now on the owner record is read again before anything goes to a disk, and before an
    /// answer counts, where the process or the machine seems to have slept. It is read `apart`, so
    /// that a voter that hangs keeps nobody waiting.
    pub(crate) fn watch_clock(&self, clock: Clock, apart: Apart) {
        self.disks.watch_clock(clock, apart);
    }

    /// Of each disk that this process has open which appearance it has.
    pub(crate) fn appearances(&self) -> impl Iterator<Item = (DiskNumber, Option<u64>)> {
        let slots = self.slots.read().clone();
        (slots.into_iter()).map(|(disk, slot)| (disk, self.disks.appearance(slot)))
    }

    /// Refuses where this process seems to have slept, and the voters do not say that the group is
    /// still its own.
    pub(crate) fn check_owner(&self) -> Result<(), GroupError> {
        self.disks.check()
    }

    /// Refuses where the group had to stop or somebody else has it.
    fn refuse_stopped(&self, inner: &mut Inner) -> Result<(), GroupError> {
        if inner.broken.is_none() {
            inner.broken = self.disks.lost();
        }
        match &inner.broken {
            Some(broken) => Err(broken.clone()),
            None => Ok(()),
        }
    }

    /// The disk's path where it was found, else its number: what messages call it.
    pub(crate) fn disk_title(&self, number: DiskNumber) -> String {
        match self.slot(number) {
            Some(slot) => format!("{number} ({})", self.disks.path(slot)),
            None => number.to_string(),
        }
    }

    /// Takes the disks offline, durably: when it returns, no later mount reads what they missed.
    /// Disks that are offline already stay so. Other disks are given their votes at once.
    ///
    /// # Errors
    /// Where too few voters or no replica of the catalog would be left: the group stops, and so
    /// the write that failed must not be acknowledged.
    pub fn take_offline(&self, numbers: &[DiskNumber], reason: &str) -> Result<(), GroupError> {
        let cut_off = self.cut_off(numbers);
        let mut inner = self.inner.lock();
        self.go_offline(&mut inner, numbers, &cut_off, reason)
    }

    /// As [`Membership::take_offline`], where the group can do without all of them beside those that are
    /// away, or lack something, when it is their turn; whether they are offline. Else they serve on.
    pub(crate) fn take_offline_if_borne(
        &self,
        numbers: &[DiskNumber],
        reason: &str,
    ) -> Result<bool, GroupError> {
        let disks: BTreeSet<DiskNumber> = numbers.iter().copied().collect();
        if self.hanging.refuses(&disks) {
            return Ok(false);
        }
        let cut_off = self.cut_off(numbers);
        let mut inner = self.inner.lock();
        let Some(_going) = self.hanging.reserve(&disks) else {
            return Ok(false);
        };
        self.go_offline(&mut inner, numbers, &cut_off, reason)?;
        Ok(true)
    }

    fn go_offline(
        &self,
        inner: &mut Inner,
        numbers: &[DiskNumber],
        cut_off: &[CutOff],
        reason: &str,
    ) -> Result<(), GroupError> {
        self.refuse_stopped(inner)?;
        let numbers: BTreeSet<DiskNumber> = (numbers.iter().copied())
            .filter(|number| self.is_online(*number))
            .collect();
        if numbers.is_empty() {
            return Ok(());
        }
        for number in &numbers {
            let message = format!(
                "group {}: disk {} goes offline: {reason}",
                inner.state.group_name,
                self.disk_title(*number)
            );
            self.disk_event(EventKind::DiskOffline, *number, message);
        }
        let mut next = inner.state.clone();
        set_offline(&mut next, &numbers);
        for disk in cut_off {
            disk.note(&mut next, self.au_size);
        }
        self.publish(inner, next, Quorum::Half)?;
        self.claim_new_voters(inner)
    }

    /// Whether states can still be published.
    ///
    /// # Errors
    /// Why the group had to stop.
    pub(crate) fn check(&self) -> Result<(), GroupError> {
        self.refuse_stopped(&mut self.inner.lock())
    }

    /// Why the group had to stop at a state that could not be published: nothing is acknowledged
    /// from that moment on.
    pub(crate) fn stopped(&self) -> Option<&GroupError> {
        self.stopped.get()
    }

    /// Publishes a change of the state that another part of the group decides on.
    pub(crate) fn change_state(
        &self,
        change: impl FnOnce(&mut GroupState),
    ) -> Result<(), GroupError> {
        self.try_change_state(|state| {
            change(state);
            Ok(())
        })
    }

    /// As [`Membership::change_state`], where the state may turn out to be another than the one
    /// that was decided on.
    ///
    /// # Errors
    /// What `change` answers, and nothing has changed then.
    pub(crate) fn try_change_state(
        &self,
        change: impl FnOnce(&mut GroupState) -> Result<(), GroupError>,
    ) -> Result<(), GroupError> {
        let mut inner = self.inner.lock();
        let mut next = inner.state.clone();
        change(&mut next)?;
        self.publish(&mut inner, next, Quorum::Half)?;
        self.claim_new_voters(&mut inner)
    }

    /// Writes the opener to all voters that have not taken it as it is; those that fail go offline, until
    /// all have. Those that were set back go before.
    fn claim_new_voters(&self, inner: &mut Inner) -> Result<(), GroupError> {
        self.claim_voters(inner, Quorum::Half)
    }

    fn claim_voters(&self, inner: &mut Inner, quorum: Quorum) -> Result<(), GroupError> {
        loop {
            let unaware = inner.unaware_voters();
            let looked_at = self.look_at_marks(inner, unaware);
            if self.publish_without_set_back(inner, quorum)? {
                continue;
            }
            let failed = self.write_opener(inner, &looked_at);
            if failed.is_empty() {
                return Ok(());
            }
            let mut next = inner.state.clone();
            self.leave_out(&mut next, failed, "opener record");
            self.publish(inner, next, quorum)?;
        }
    }

    /// Marks the group closed. Everything must be durable before; nothing can be published after.
    ///
    /// # Errors
    /// Where too few voters take it: the next mount then finds the group not clean.
    pub fn close(&self) -> Result<(), GroupError> {
        self.close_announced(&|_, _| {})
    }

    /// As [`Membership::close`]. `announce` is told what this process has written of itself and what
    /// it is about to write, before any disk has the latter.
    pub fn close_announced(
        &self,
        announce: &dyn Fn(&OpenerRecord, &OpenerRecord),
    ) -> Result<(), GroupError> {
        let mut inner = self.inner.lock();
        self.refuse_taken(&inner)?;
        let mut next = inner.state.clone();
        next.clean = true;
        self.publish(&mut inner, next, Quorum::Half)?;
        let before = inner.opener.clone();
        inner.opener.open = false;
        inner.opener.sequence += 1;
        announce(&before, &inner.opener);
        let answer = self.claim_new_voters(&mut inner);
        self.disks.end();
        let name = &inner.state.group_name;
        inner.broken = Some(refused(
            GroupErrorKind::Invalid,
            format!("group {name} is closed"),
        ));
        answer
    }

    /// Renews the mark that says who has the group.
    ///
    /// # Errors
    /// [`GroupErrorKind::Busy`] where another host has taken the group by force: nothing may be
    /// written any more.
    pub fn heartbeat(&self, now_s: u64) -> Result<(), GroupError> {
        // Without the lock, for which everybody waits who asks for a disk's standing.
        self.disks.look();
        let mut inner = self.inner.lock();
        self.refuse_stopped(&mut inner)?;
        inner.opener.heartbeat_s = now_s;
        if inner.state.voters().any(|number| self.is_silent(number)) {
            // Those that answer show that this process lives. The count stays: one that misses two
            // that count looks put back to an older image, and whoever waits for it here would keep
            // everything else from being done.
            self.tell_those_that_answer(&mut inner);
            return self.refuse_stopped(&mut inner);
        }
        inner.opener.heartbeats_count += 1;
        self.claim_new_voters(&mut inner)
    }

    /// Says that this process lives, which has claimed the group and not finished to open it: a beat
    /// that does not count, and that no disk goes offline for. Whoever opens the group does so alone,
    /// and may come to the disks that it then finds gone at any point.
    ///
    /// # Errors
    /// As [`Membership::heartbeat`].
    fn beat_while_opening(&self, now_s: u64) -> Result<(), GroupError> {
        self.disks.look();
        let mut inner = self.inner.lock();
        self.refuse_stopped(&mut inner)?;
        inner.opener.heartbeat_s = now_s;
        self.tell_those_that_answer(&mut inner);
        self.refuse_stopped(&mut inner)
    }

    /// Whether the voter was asked whose the group is and has not answered yet.
    fn is_silent(&self, number: DiskNumber) -> bool {
        (self.slot(number)).is_some_and(|slot| self.disks.is_silent(slot))
    }

    /// Writes the opener record to the voters that answer; one that fails goes offline at the next
    /// heartbeat that counts.
    fn tell_those_that_answer(&self, inner: &mut Inner) {
        let mut answering = inner.voters_here();
        answering.retain(|number| !self.is_silent(*number));
        let LookedAt {
            voters: mut answering,
            unread,
        } = self.look_at_marks(inner, answering);
        // What shows that a disk was set back stays until it goes, where another one tells.
        let is_sound =
            |number: &DiskNumber| !inner.set_back.contains_key(number) && !unread.contains(number);
        if answering.iter().any(is_sound) {
            answering.retain(is_sound);
        }
        let written = |number| answering.contains(&number);
        let failed = self.write_record(inner, OPENER_PLACE, written);
        for (number, why) in failed {
            tracing::debug!(disk = number.0, %why, "a voter does not take a heartbeat");
        }
    }

    /// Gives the group another name: the group state first, which counts, then the labels; one
    /// that cannot be written now is written later.
    ///
    /// # Errors
    /// Where too few voters take it.
    pub fn rename(&self, name: &GroupName) -> Result<(), GroupError> {
        self.change_state(|state| state.group_name = name.clone())?;
        self.bring_labels_up_to_date();
        Ok(())
    }

    /// Gives the disks free: their labels say "former" from now on, and no mount finds the group.
    ///
    /// # Errors
    /// Where a label cannot be written; the disks named still look like members then.
    pub fn destroy(&self) -> Result<(), GroupError> {
        let mut inner = self.inner.lock();
        self.write_labels(
            &mut inner,
            |_| true,
            |label| label.status = LabelStatus::Former,
        )?;
        let name = &inner.state.group_name;
        inner.broken = Some(refused(
            GroupErrorKind::NotFound,
            format!("group {name} was destroyed"),
        ));
        Ok(())
    }

    /// Whether the disk is being dropped, though it may have gone offline since.
    pub(crate) fn leaves(&self, number: DiskNumber) -> bool {
        let inner = self.inner.lock();
        (inner.state.disk(number))
            .is_some_and(|disk| disk.leaves || disk.status == DiskStatus::Dropping)
    }

    /// The epoch of the group state that took the disk offline; `None` where it is not.
    pub(crate) fn offline_epoch(&self, number: DiskNumber) -> Option<u64> {
        let inner = self.inner.lock();
        let disk = inner.state.disk(number)?;
        (disk.status == DiskStatus::Offline).then_some(disk.status_epoch)
    }

    /// The disk's status.
    #[must_use]
    pub fn status(&self, number: DiskNumber) -> Option<DiskStatus> {
        let inner = self.inner.lock();
        inner.state.disk(number).map(|disk| disk.status)
    }
}

#[cfg(test)]
mod tests;
