//! Disks join, change their standing, and leave.
//!
//! A disk that joins is wiped and labelled first; then one new state names it online. A crash in
//! between leaves a disk with a label that the state does not know: it is passed over, and
//! joining again begins anew. A disk that leaves is taken out of the state first, and then its
//! label becomes "former": a crash in between leaves the same kind of disk. So a state never
//! names a disk that has no label, and no moment needs a step back after a crash.
//!
//! Every change is one state, whole or not at all; what a failing disk leaves half done while the
//! process lives is put back by one more state.

use std::collections::BTreeSet;

use spindle_base::DiskNumber;
use spindle_device::{AlignedBuffer, DiskSlot, Disks, Request, Work};
use spindle_format::{
    DISKS_MAX, DiskState, DiskStatus, GroupState, LABEL_BYTES, LABEL_COPIES, LABEL_PLACES, Label,
    LabelStatus, Lost, OPENER_PLACE, STATE_PLACES, end_label_place,
};

use crate::error::{GroupError, GroupErrorKind, Operation};
use crate::quorum::NewDisk;
use crate::quorum::create::uuid_start;
use crate::quorum::publish::{Quorum, set_offline};
use crate::quorum::{Inner, LateCopies, Member, Membership, refused, voters, whole_blocks};

/// A disk that is to join, with what the group has chosen for it.
#[derive(Debug, Clone)]
pub(crate) struct Joining {
    pub(crate) disk: NewDisk,
    pub(crate) number: DiskNumber,
    /// Its failure group as a small number.
    pub(crate) failure_group: u16,
    pub(crate) size_aus: u32,
}

/// What one new state changes.
#[derive(Debug, Default)]
pub(crate) struct Standings {
    pub(crate) joining: Vec<Joining>,
    pub(crate) statuses: Vec<(DiskNumber, DiskStatus)>,
    pub(crate) sizes_aus: Vec<(DiskNumber, u32)>,
}

impl Membership {
    /// Numbers for `count` disks that are to join. `is_taken` tells which numbers without a disk
    /// must not be given.
    pub(crate) fn free_numbers(
        &self,
        count: usize,
        is_taken: impl Fn(DiskNumber) -> bool,
    ) -> Result<Vec<DiskNumber>, GroupError> {
        let inner = self.inner.lock();
        let state = &inner.state;
        // Numbers of forgotten disks come again only when all others were given once.
        let fresh = state.next_disk_number..u16::MAX;
        let former = 0..state.next_disk_number;
        let numbers: Vec<DiskNumber> = (fresh.chain(former))
            .map(DiskNumber)
            .filter(|number| state.disk(*number).is_none() && !is_taken(*number))
            .take(count)
            .collect();
        if numbers.len() < count || state.disks.len() + count > DISKS_MAX {
            return Err(refused(
                GroupErrorKind::Invalid,
                format!(
                    "group {} has {} disks and can have at most {DISKS_MAX}",
                    state.group_name,
                    state.disks.len()
                ),
            ));
        }
        Ok(numbers)
    }

    /// Wipes and labels disks that are to join. Nothing knows them yet.
    ///
    /// # Errors
    /// [`GroupErrorKind::Io`] where a disk cannot be written, or does not give back its label: none
    /// of them has a label then, as far as it can be written.
    pub(crate) fn label_joining(&self, joining: &[Joining]) -> Result<(), GroupError> {
        let written: Vec<_> = (joining.iter())
            .map(|joining| (joining.disk.slot, joining.disk.uuid))
            .collect();
        let answer =
            (self.write_first_labels(joining)).and_then(|()| self.refuse_unlike_labels(&written));
        if answer.is_err() {
            self.unlabel(joining);
        }
        answer
    }

    fn write_first_labels(&self, joining: &[Joining]) -> Result<(), GroupError> {
        let zeros = AlignedBuffer::zeroed(LABEL_BYTES);
        // A mark from when it was another disk of this opening would be taken for an image put back.
        let places = (LABEL_PLACES.into_iter()).chain([OPENER_PLACE]);
        for place in places.chain(STATE_PLACES) {
            let writes = (joining.iter()).map(|disk| (disk.disk.slot, place, &zeros[..]));
            self.write_to_slots(writes)?;
        }
        self.write_to_slots((joining.iter()).map(|disk| {
            let place = end_label_place(self.disks.size_bytes(disk.disk.slot));
            (disk.disk.slot, place, &zeros[..])
        }))?;
        let inner = self.inner.lock();
        for copy in 0..LABEL_COPIES {
            let pages: Vec<(DiskSlot, u64, AlignedBuffer)> = (joining.iter())
                .filter_map(|disk| {
                    let label = self.first_label(&inner, disk);
                    let place = label.places(disk.size_aus)[copy]?;
                    Some((disk.disk.slot, place, whole_blocks(&label.encode(place))))
                })
                .collect();
            let writes = (pages.iter()).map(|(slot, place, page)| (*slot, *place, &page[..]));
            self.write_to_slots(writes)?;
        }
        Ok(())
    }

    /// Takes the labels of disks away again that did not join, as far as they can be written.
    pub(crate) fn unlabel(&self, joining: &[Joining]) {
        let zeros = AlignedBuffer::zeroed(LABEL_BYTES);
        for disk in joining {
            let end = end_label_place(self.disks.size_bytes(disk.disk.slot));
            for place in LABEL_PLACES.into_iter().chain([end]) {
                // A label that stays says no more than that its disk is passed over.
                let _ = self.write_to_slots([(disk.disk.slot, place, &zeros[..])].into_iter());
            }
        }
    }

    fn write_to_slots<'a>(
        &self,
        writes: impl Iterator<Item = (DiskSlot, u64, &'a [u8])>,
    ) -> Result<(), GroupError> {
        let mut batch: Vec<Request<'_>> = writes
            .map(|(slot, place, bytes)| Request::new(slot, place, Work::WriteDurable(bytes)))
            .collect();
        self.run(&mut batch);
        for request in batch {
            if let Err(why) = request.result {
                return Err(refused(
                    GroupErrorKind::Io,
                    format!(
                        "{} cannot be written: {why}; nothing was changed",
                        self.disks.path(request.slot)
                    ),
                )
                .during(Operation::Write)
                .because(why));
            }
        }
        Ok(())
    }

    fn first_label(&self, inner: &Inner, joining: &Joining) -> Label {
        let created_s = (inner.members.values().next()).map_or(0, |member| member.label.created_s);
        Label {
            sequence: 1,
            group_uuid: self.uuid,
            disk_uuid: joining.disk.uuid,
            group_name: inner.state.group_name.clone(),
            disk_name: joining.disk.name.clone(),
            failure_group: joining.disk.failure_group.clone(),
            number: joining.number,
            au_size: self.au_size,
            redundancy: inner.state.redundancy,
            status: LabelStatus::Member,
            size_bytes: self.disks.size_bytes(joining.disk.slot),
            created_s,
        }
    }

    /// Publishes the change in one state. Disks that join were labelled before.
    ///
    /// # Errors
    /// Where the group could not go on with the change, or a disk that joins fails: nothing has
    /// changed then.
    pub(crate) fn change_standings(&self, change: &Standings) -> Result<(), GroupError> {
        let mut inner = self.inner.lock();
        let before = inner.state.clone();
        self.refuse_to_give_up_served(&before, change)?;
        let next = changed(&before, change);
        self.check_change(&inner, &next)?;
        for joining in &change.joining {
            self.take_in(&mut inner, joining);
        }
        self.publish(&mut inner, next, Quorum::Half)?;
        self.claim_new_voters(&mut inner)?;
        let bad = (change.joining.iter()).find(|joining| !self.is_online(joining.number));
        let Some(bad) = bad else {
            return Ok(());
        };
        let path = self.disks.path(bad.disk.slot);
        // A disk that fails as it joins is no disk to have: back to what was, less what failed
        // meanwhile.
        let mut back = before.clone();
        let failed: BTreeSet<DiskNumber> = (inner.state.disks.iter())
            .filter(|disk| disk.status == DiskStatus::Offline)
            .map(|disk| disk.number)
            .collect();
        set_offline(&mut back, &failed);
        // It is the same outage of who was away before.
        inner.goes_back_to = Some(before);
        let answer = self.publish(&mut inner, back, Quorum::Half);
        inner.goes_back_to = None;
        answer?;
        for joining in &change.joining {
            self.let_go(&mut inner, joining.number);
        }
        self.claim_new_voters(&mut inner)?;
        Err(refused(
            GroupErrorKind::Io,
            format!("{path} failed while it was added; nothing was changed"),
        ))
    }

    /// Refuses to give up a disk that serves: what it has, nobody has looked for elsewhere.
    fn refuse_to_give_up_served(
        &self,
        before: &GroupState,
        change: &Standings,
    ) -> Result<(), GroupError> {
        let is_served = |number: &DiskNumber| {
            (before.disk(*number)).is_some_and(|disk| disk.status.is_served())
        };
        let given_up = (change.statuses.iter())
            .filter(|(_, status)| *status == DiskStatus::Absent)
            .map(|(number, _)| *number);
        match given_up.into_iter().find(is_served) {
            None => Ok(()),
            Some(number) => Err(refused(
                GroupErrorKind::Invalid,
                format!(
                    "disk {} has come back and is not given up; nothing was changed",
                    self.disk_title(number)
                ),
            )),
        }
    }

    /// Refuses a change that [`Self::change_standings`] would refuse; writes nothing.
    pub(crate) fn judge_standings(&self, change: &Standings) -> Result<(), GroupError> {
        let inner = self.inner.lock();
        let next = changed(&inner.state, change);
        self.check_change(&inner, &next)
    }

    /// Refuses what [`Self::offline_by_wish`] would refuse; writes nothing.
    pub(crate) fn judge_offline(&self, numbers: &[DiskNumber]) -> Result<(), GroupError> {
        let inner = self.inner.lock();
        let mut next = inner.state.clone();
        set_offline(&mut next, &numbers.iter().copied().collect());
        self.check_change(&inner, &next)
    }

    fn take_in(&self, inner: &mut Inner, joining: &Joining) {
        let label = self.first_label(inner, joining);
        let member = Member {
            held_epoch: 0,
            spare_epoch: 0,
            path: self.disks.path(joining.disk.slot),
            label,
            late: LateCopies::default(),
            held_slot: 1,
        };
        inner.members.insert(joining.number, member);
        self.come(joining.number, joining.disk.slot);
    }

    /// From now on the disk is in this slot. Before anything is written to it that a kill and a
    /// moment without power could take away unseen, the journal knows which appearance it has.
    pub(super) fn come(&self, number: DiskNumber, slot: DiskSlot) {
        let appearance = self.disks.appearance(slot);
        (self.failed_flushes()).note_appearance(number, appearance);
        self.slots.write().insert(number, slot);
    }

    fn let_go(&self, inner: &mut Inner, number: DiskNumber) {
        inner.members.remove(&number);
        inner.heard.remove(&number);
        inner.set_back.remove(&number);
        self.slots.write().remove(&number);
        // Its place in the journal is for another disk, as its number is.
        (self.failed_flushes()).note_appearance(number, None);
        self.set_standings(&inner.state);
    }

    /// Refuses a state that the group could not go on with, before anything is written.
    fn check_change(&self, inner: &Inner, next: &GroupState) -> Result<(), GroupError> {
        if let Some(broken) = &inner.broken {
            return Err(broken.clone());
        }
        let mut next = next.clone();
        voters::appoint(&mut next);
        let refusal = |what: &str| {
            refused(
                GroupErrorKind::NotEnough,
                format!(
                    "group {} could not go on: {what}; nothing was changed",
                    next.group_name
                ),
            )
        };
        if next.voters().next().is_none() {
            return Err(refusal("no disk would be left online to vote"));
        }
        if next.replicas.is_empty() {
            return Err(refusal("no disk with its catalog would be left online"));
        }
        if let Some(what) = next.contradiction() {
            return Err(refusal(&format!("{what} would be wrong")));
        }
        let voters: Vec<DiskNumber> = inner.state.voters().collect();
        let takers = (voters.iter())
            .filter(|voter| {
                next.disk(**voter)
                    .is_some_and(|disk| disk.status.is_served())
            })
            .count();
        if takers * 2 < voters.len() {
            return Err(refusal(
                "fewer than half of the disks that vote would be left; take fewer at a time",
            ));
        }
        Ok(())
    }

    /// Takes disks offline that a person names, in one state.
    ///
    /// # Errors
    /// Where the group could not go on without them: nothing has changed then.
    pub(crate) fn offline_by_wish(&self, numbers: &[DiskNumber]) -> Result<(), GroupError> {
        let mut inner = self.inner.lock();
        let mut next = inner.state.clone();
        set_offline(&mut next, &numbers.iter().copied().collect());
        self.check_change(&inner, &next)?;
        self.publish(&mut inner, next, Quorum::Half)?;
        self.claim_new_voters(&mut inner)
    }

    /// Takes disks out of the state for good; no map names them and no replica lies on them.
    /// Then their labels say so, as far as they can be written.
    pub(crate) fn forget(&self, numbers: &[DiskNumber]) -> Result<(), GroupError> {
        let mut inner = self.inner.lock();
        let mut next = inner.state.clone();
        next.disks.retain(|disk| !numbers.contains(&disk.number));
        (next.replicas).retain(|replica| !numbers.contains(&replica.disk));
        self.check_change(&inner, &next)?;
        self.publish(&mut inner, next, Quorum::Half)?;
        self.claim_new_voters(&mut inner)?;
        let former = self.write_labels(
            &mut inner,
            |number| numbers.contains(&number),
            |label| label.status = LabelStatus::Former,
        );
        if let Err(error) = former {
            // The state no longer knows it, which is what counts.
            tracing::warn!("a dropped disk still has its label: {error:#}");
        }
        for number in numbers {
            self.let_go(&mut inner, *number);
        }
        Ok(())
    }
}

fn changed(before: &GroupState, change: &Standings) -> GroupState {
    let mut next = before.clone();
    for (number, status) in &change.statuses {
        if let Some(disk) = next.disk_mut(*number) {
            // It was judged while the disk served. One that went offline since comes back by a
            // return only, which knows what it missed; it leaves then, or stays.
            let has_gone = disk.status == DiskStatus::Offline && status.is_served();
            disk.leaves = has_gone && *status == DiskStatus::Dropping;
            if !has_gone {
                disk.status = *status;
                disk.voter &= *status == DiskStatus::Online;
            }
        }
    }
    for (number, size_aus) in &change.sizes_aus {
        if let Some(disk) = next.disk_mut(*number) {
            disk.size_aus = *size_aus;
            if disk.lost != Lost::NOTHING {
                // It is a share of the size that was.
                disk.lost = Lost::EVERYTHING;
            }
        }
    }
    for joining in &change.joining {
        let entry = DiskState {
            number: joining.number,
            failure_group: joining.failure_group,
            size_aus: joining.size_aus,
            uuid_start: uuid_start(joining.disk.uuid),
            status_epoch: 0,
            status: DiskStatus::Online,
            voter: false,
            quorum_only: false,
            leaves: false,
            lost: Lost::NOTHING,
        };
        let place = (next.disks).partition_point(|disk| disk.number < joining.number);
        next.disks.insert(place, entry);
        next.next_disk_number = next.next_disk_number.max(joining.number.0 + 1);
    }
    next
}
