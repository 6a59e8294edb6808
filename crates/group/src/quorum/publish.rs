//! Writing a new group state so that it can be relied on.
//!
//! A state goes to all disks that serve, some hundreds at a time, into the slot that does not hold
//! the last relied-on state. A disk that cannot take it is written out of the group by the next epoch, in
//! the next round. The round in which every disk took it decides: the disks that took it must
//! have at least half of the votes of the last relied-on state. Then those that did not can
//! never be a majority of it, and no mount goes on from it without meeting the new one.
//!
//! A crash between the writes leaves a state that a voter lacks: the next election puts it aside.

use std::collections::{BTreeMap, BTreeSet};

use spindle_base::DiskNumber;
use spindle_device::{AlignedBuffer, DeviceError, Request, Work};
use spindle_format::{
    DiskStatus, Feature, GroupState, Lost, OPENER_BYTES, OPENER_PLACE, STATE_PLACES,
    STATE_SLOT_BYTES,
};
use spindle_sync::atomic::Ordering;

use crate::error::{GroupError, GroupErrorKind};
use crate::event::EventKind;
use crate::quorum::hanging::Going;
use crate::quorum::relapse::LookedAt;
use crate::quorum::{Inner, Member, Membership, Opener, hanging, refused, voters};

/// What copies of a new state may take in memory: each disk of a batch has one until then, of 116 KiB
/// where there are 4,096 disks. Few batches, because each may wait for disks that hang.
const STATES_BYTES_MAX: usize = 128 << 20;

/// What a new state is held against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quorum {
    /// At least half of the voters must take it.
    Half,
    /// Likewise, of who opens the group, until what the last process left is recovered: and no disk may
    /// go for it that the redundancy does not bear to lose.
    Opening,
    /// A person forced it: any disk that takes it is enough.
    Forced,
}

impl Quorum {
    pub(super) const fn of(opener: &Opener) -> Self {
        if opener.force {
            Self::Forced
        } else {
            Self::Opening
        }
    }
}

impl Membership {
    /// Makes `next` the group's state, durably; disks that cannot take it go offline in it.
    ///
    /// # Errors
    /// Where too few voters took it, or no replica of the catalog is left. The membership is
    /// broken then: another process may already go on without us.
    pub(super) fn publish(
        &self,
        inner: &mut Inner,
        mut next: GroupState,
        quorum: Quorum,
    ) -> Result<(), GroupError> {
        self.refuse_stopped(inner)?;
        // Those that hang are asked to take it, and are not given up beside those.
        let mut going = self.hanging.going();
        going.extend(&self.gone_by(&inner.state, &next));
        self.look_at_structures(inner, &next);
        let _set_back = self.leave_out_set_back(inner, &mut next);
        let quorum = match quorum {
            Quorum::Half if self.recovers.load(Ordering::Acquire) && !self.was_forced => {
                Quorum::Opening
            }
            other => other,
        };
        // Those that were set back and serve on may go in this very round.
        if !inner.set_back.is_empty() || next.disks.iter().any(|disk| disk.lost != Lost::NOTHING) {
            next.features = next.features.with(Feature::LostContents);
        }
        let raises = next.features != inner.state.features;
        let mut answer = self.publish_rounds(inner, &mut next, &mut going, quorum);
        if raises && answer.is_ok() {
            // Whoever votes since the first one hears of this opening before there is a second:
            // else a kill between the two would make it look put back, see `set_back.rs`.
            let unaware = inner.unaware_voters();
            let looked_at = self.look_at_marks(inner, unaware);
            let failed = self.write_opener(inner, &looked_at);
            self.leave_out(&mut next, failed, "opener record");
            // Into the other slot too: a program that does not know the feature must not find a
            // state beside it that it knows.
            answer = self.publish_rounds(inner, &mut next, &mut going, quorum);
        }
        if let Err(error) = &mut answer {
            if let Some(lost) = self.disks.lost() {
                *error = lost;
            }
            self.stopped.get_or_init(|| error.clone());
            self.keep_clients_off();
            inner.broken = Some(error.clone());
        }
        answer
    }

    /// The group uses the feature from now on, durably: to be called before anything of it is written.
    ///
    /// # Errors
    /// Where too few voters take the state.
    pub(crate) fn use_feature(&self, feature: Feature) -> Result<(), GroupError> {
        if self.state().features.contains(feature) {
            return Ok(());
        }
        self.change_state(|state| state.features = state.features.with(feature))
    }

    fn publish_rounds(
        &self,
        inner: &mut Inner,
        next: &mut GroupState,
        going: &mut Going<'_>,
        quorum: Quorum,
    ) -> Result<(), GroupError> {
        loop {
            going.extend(&self.gone_by(&inner.state, next));
            inner.lose_set_back(next);
            voters::appoint(next);
            inner.epoch_tried += 1;
            next.epoch = inner.epoch_tried;
            for disk in &mut next.disks {
                let former = [Some(&inner.state), inner.goes_back_to.as_ref()];
                let was = former
                    .into_iter()
                    .flatten()
                    .filter_map(|state| state.disk(disk.number));
                // A round that was not relied on may have given it another.
                disk.status_epoch = (was.into_iter())
                    .find(|was| was.status == disk.status)
                    .map_or(next.epoch, |was| was.status_epoch);
            }
            self.check_support(inner, next, quorum)?;
            if let Some(journal) = self.failed_flushes().journal() {
                journal.try_epoch(next.epoch);
            }
            let failed = self.write_state(inner, next);
            if failed.is_empty() {
                break;
            }
            let numbers: Vec<DiskNumber> = failed.iter().map(|(number, _)| *number).collect();
            self.leave_out(next, failed, "group state");
            stay_away(&inner.state, next, &numbers);
        }
        for (number, member) in &mut inner.members {
            if self.serves(next, *number) {
                member.held_slot = 1 - member.held_slot;
                member.spare_epoch = member.held_epoch;
                member.held_epoch = next.epoch;
            }
        }
        inner.state = next.clone();
        inner.keep_set_back_away();
        if let Some(journal) = self.failed_flushes().journal() {
            journal.rely_on_epoch(next.epoch);
        }
        self.set_standings(&inner.state);
        Ok(())
    }

    /// Disks that are here, serve by the last state, and are away by the next one.
    fn gone_by(&self, before: &GroupState, next: &GroupState) -> BTreeSet<DiskNumber> {
        let is_away = |number| {
            let disk = next.disk(number);
            disk.is_some_and(|disk| hanging::is_away(disk.status))
        };
        (before.disks.iter().map(|disk| disk.number))
            .filter(|number| self.serves(before, *number) && is_away(*number))
            .collect()
    }

    /// Takes disks out of a state that is to be tried, because they could not take this.
    pub(super) fn leave_out(
        &self,
        next: &mut GroupState,
        failed: Vec<(DiskNumber, DeviceError)>,
        what: &str,
    ) {
        for (number, why) in &failed {
            let message = format!(
                "group {}: disk {} goes offline: it could not take the {what}: {why}",
                next.group_name,
                self.disk_title(*number)
            );
            self.disk_event(EventKind::DiskOffline, *number, message);
        }
        let numbers = failed.into_iter().map(|(number, _)| number).collect();
        set_offline(next, &numbers);
    }

    /// Whether the disk is here and the state lets it serve.
    pub(super) fn serves(&self, state: &GroupState, number: DiskNumber) -> bool {
        let listed = state.disk(number);
        listed.is_some_and(|disk| disk.status.is_served()) && self.slot(number).is_some()
    }

    /// Refuses a state that must not be tried: too few voters of the last one would hold it, the
    /// catalog would have no replica, or an opening would give up more than the redundancy bears.
    fn check_support(
        &self,
        inner: &Inner,
        next: &GroupState,
        quorum: Quorum,
    ) -> Result<(), GroupError> {
        let voters: Vec<DiskNumber> = inner.state.voters().collect();
        let takers = (voters.iter())
            .filter(|voter| self.serves(next, **voter))
            .count();
        if quorum != Quorum::Forced && takers * 2 < voters.len() {
            return Err(refused(
                GroupErrorKind::Io,
                format!(
                    "group {} stops: only {takers} of the {} disks that vote can still be \
                     written; bring the others back",
                    next.group_name,
                    voters.len()
                ),
            ));
        }
        if next.replicas.is_empty() || next.voters().next().is_none() {
            return Err(refused(
                GroupErrorKind::Io,
                format!(
                    "group {} stops: no disk with a replica of its catalog is left; bring its \
                     disks back",
                    next.group_name
                ),
            ));
        }
        match quorum {
            Quorum::Opening => self.check_bearable(&inner.state, next),
            Quorum::Half | Quorum::Forced => Ok(()),
        }
    }

    /// Refuses an opening that would take disks offline which fail as it writes to them, where the
    /// redundancy does not bear that: as where they are missing from the beginning, files would be
    /// unreadable, and nobody was asked.
    pub(super) fn check_bearable(
        &self,
        state: &GroupState,
        next: &GroupState,
    ) -> Result<(), GroupError> {
        let failed: Vec<DiskNumber> = (state.disks.iter())
            .filter(|disk| !disk.quorum_only)
            .map(|disk| disk.number)
            .filter(|number| self.serves(state, *number) && !self.serves(next, *number))
            .collect();
        if failed.is_empty() || bears(next, &BTreeSet::new()) {
            return Ok(());
        }
        let failures = self.failed_flushes();
        let told = failed.iter().map(|number| {
            let why = failures.answered(*number);
            let why = why.map_or_else(String::new, |why| format!(": {why}"));
            format!("{}{why}", self.disk_title(*number))
        });
        let told: Vec<String> = told.collect();
        Err(refused(
            GroupErrorKind::NotEnough,
            format!(
                "group {} is not opened: it cannot write to {} {}; without {} it would lack more than \
                 {} redundancy bears. See to {3} and mount it again, or use --force to go on without \
                 {3} and reach the files that lie on the others",
                next.group_name,
                if failed.len() == 1 { "disk" } else { "disks" },
                told.join(", "),
                if failed.len() == 1 { "it" } else { "them" },
                next.redundancy,
            ),
        ))
    }

    /// Writes the state to every disk that serves; gives those that did not take it.
    fn write_state(&self, inner: &Inner, next: &GroupState) -> Vec<(DiskNumber, DeviceError)> {
        let serving: Vec<(&DiskNumber, &Member)> = (inner.members.iter())
            .filter(|(number, _)| self.serves(next, **number))
            .collect();
        let mut bytes = next.encode_for_some_disk();
        let mut failed = Vec::new();
        let disks_per_batch = STATES_BYTES_MAX / STATE_SLOT_BYTES;
        for members in serving.chunks(disks_per_batch) {
            let pages: Vec<(DiskNumber, u64, AlignedBuffer)> = (members.iter())
                .map(|(number, member)| {
                    let place = STATE_PLACES[1 - member.held_slot];
                    let page = whole_blocks(bytes.address(place, member.label.disk_uuid));
                    (**number, place, page)
                })
                .collect();
            let writes = (pages.iter()).map(|(number, place, page)| (*number, *place, &page[..]));
            failed.extend(self.write_durably(writes));
        }
        failed
    }

    /// Writes the opener record to voters that were looked at; gives those that did not take it.
    pub(super) fn write_opener(
        &self,
        inner: &mut Inner,
        looked_at: &LookedAt,
    ) -> Vec<(DiskNumber, DeviceError)> {
        let voters = &looked_at.voters;
        let failed = self.write_record(inner, OPENER_PLACE, |number| voters.contains(&number));
        self.own_record(inner);
        let has_failed = |number: &DiskNumber| failed.iter().any(|(other, _)| other == number);
        inner.hear(voters.iter().copied().filter(|number| !has_failed(number)));
        failed
    }

    /// From now on the voters are to say what the opener record says.
    pub(super) fn own_record(&self, inner: &Inner) {
        let voters = (inner.voters_here().into_iter()).filter_map(|number| self.slot(number));
        let name = &inner.state.group_name;
        self.disks.own(name, &inner.opener, voters.collect());
    }

    /// Writes the opener record to that place of the voters that `wanted` picks; gives those that
    /// did not take it.
    pub(super) fn write_record(
        &self,
        inner: &Inner,
        place: u64,
        wanted: impl Fn(DiskNumber) -> bool,
    ) -> Vec<(DiskNumber, DeviceError)> {
        let pages: Vec<(DiskNumber, AlignedBuffer)> = (inner.state.voters())
            .filter(|number| wanted(*number))
            .filter_map(|number| {
                let member = inner.members.get(&number)?;
                let mut record = inner.opener.clone();
                record.disk_uuid = member.label.disk_uuid;
                let mut page = AlignedBuffer::zeroed(OPENER_BYTES);
                page.copy_from_slice(&record.encode(place));
                Some((number, page))
            })
            .collect();
        let writes = (pages.iter()).map(|(number, page)| (*number, place, &page[..]));
        self.write_durably(writes)
    }

    /// One batch of durable writes to members; gives the disks that failed, and why. They count as
    /// disks that failed a flush: for what each must take or go offline.
    pub(super) fn write_durably<'a>(
        &self,
        writes: impl Iterator<Item = (DiskNumber, u64, &'a [u8])>,
    ) -> Vec<(DiskNumber, DeviceError)> {
        self.structure_writes_count.fetch_add(1, Ordering::AcqRel);
        let writes = writes.map(|(number, place, bytes)| {
            let slot = self.slot(number).expect("members that were found are open");
            (number, slot, place, bytes)
        });
        self.run_durable_writes(writes.collect())
    }

    /// As [`Self::write_durably`], for what a disk may fail to take and serve on: one that fails a
    /// write did not fail a flush.
    pub(super) fn write_and_flush<'a>(
        &self,
        writes: impl Iterator<Item = (DiskNumber, u64, &'a [u8])>,
    ) -> Vec<(DiskNumber, DeviceError)> {
        self.structure_writes_count.fetch_add(1, Ordering::AcqRel);
        let failures = self.failed_flushes();
        let mut written: BTreeMap<DiskNumber, u64> = BTreeMap::new();
        let mut failed = self.run_at_members(writes.map(|(number, place, bytes)| {
            (written.entry(number)).or_insert_with(|| failures.of(number).count);
            (number, place, Work::Write(bytes))
        }));
        for (number, _) in &failed {
            written.remove(number);
        }
        let flushes = written.keys().map(|number| (*number, 0, Work::Flush));
        let unflushed = self.run_at_members(flushes);
        for (number, _) in &unflushed {
            written.remove(number);
        }
        failed.extend(unflushed);
        // What they were given they may have dropped at somebody else's flush.
        let dropped =
            (written.into_iter()).filter(|(disk, count)| failures.of(*disk).count != *count);
        failed.extend(dropped.map(|(disk, _)| (disk, failures.newest(disk))));
        failed
    }

    /// One batch of requests to members; gives the disks that failed, and why.
    pub(super) fn run_at_members<'a>(
        &self,
        requests: impl Iterator<Item = (DiskNumber, u64, Work<'a>)>,
    ) -> Vec<(DiskNumber, DeviceError)> {
        let (numbers, mut batch): (Vec<DiskNumber>, Vec<Request<'_>>) = requests
            .map(|(number, place, work)| {
                let slot = self.slot(number).expect("members that were found are open");
                (number, Request::new(slot, place, work))
            })
            .unzip();
        self.run(&mut batch);
        (numbers.into_iter().zip(batch))
            .filter_map(|(number, request)| Some((number, request.result.err()?)))
            .collect()
    }
}

/// Takes the disks out of the state: offline, and holding no replica. One that was being dropped
/// still leaves. Votes are given anew when the state is published.
pub(super) fn set_offline(state: &mut GroupState, numbers: &BTreeSet<DiskNumber>) {
    for number in numbers {
        if let Some(disk) = state.disk_mut(*number)
            && disk.status.is_served()
        {
            disk.leaves = disk.status == DiskStatus::Dropping;
            disk.status = DiskStatus::Offline;
            disk.voter = false;
        }
    }
    (state.replicas).retain(|replica| !numbers.contains(&replica.disk));
}

/// Disks that were to come back and did not take the state that says so are away as they were before:
/// it is the same outage, and what they lost is not made good.
fn stay_away(before: &GroupState, next: &mut GroupState, failed: &[DiskNumber]) {
    for number in failed {
        if let (Some(was), Some(disk)) = (before.disk(*number), next.disk_mut(*number))
            && was.status == disk.status
        {
            *disk = was.clone();
        }
    }
}

/// Whether the group's files can be read without the missing: fewer failure groups are away than each
/// extent has copies.
pub(super) fn bears(state: &GroupState, missing: &BTreeSet<DiskNumber>) -> bool {
    let away: BTreeSet<u16> = (state.disks.iter())
        .filter(|disk| !disk.quorum_only)
        .filter(|disk| missing.contains(&disk.number) || !disk.status.is_served())
        .map(|disk| disk.failure_group)
        .collect();
    away.len() < state.redundancy.copies()
}

/// The bytes in aligned memory, whole blocks of it.
pub(super) fn whole_blocks(bytes: &[u8]) -> AlignedBuffer {
    let mut page = AlignedBuffer::zeroed(bytes.len().next_multiple_of(4096));
    page[..bytes.len()].copy_from_slice(bytes);
    page
}
