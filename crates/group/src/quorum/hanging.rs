//! Disks that do not answer: which of them may be given up, and which must be waited for.
//!
//! Whoever waits for a disk asks here when its time is up, with any lock held. So what decides is
//! kept apart from the membership: a short word of each disk, brought up to date by every published
//! state, under a lock that nobody holds for longer than it takes to look.
//!
//! A disk may be given up where the redundancy bears it beside all that are away already, those
//! included that were given up a moment ago and do not stand in the group state yet; where the
//! votes that are left can publish a state without it; and where the catalog has another replica.
//! So of two disks that hang together, one goes and the other is waited for, as a last copy is.
//!
//! A disk that answered with a failure is none of those until the state without it is published, for
//! which the one that hangs may be needed. So it counts as gone before: for whoever waits in the batch
//! in which it failed; for everybody from when it said that it is gone ([`Watch::unsettled`]), and from
//! when it was decided that it goes ([`Going`]).
//!
//! Extents that got fewer copies than they should, because there was no room or a disk was away, count
//! as long as they have not got them: what lies in their failure groups is waited for.
//!
//! Where the group can do without each of two disks, and not without both, it is asked and decided in
//! one step ([`Membership::take_offline_if_borne`]). So of two threads that find a bad place each, on
//! two disks, the second one decides when the first one's disk is offline.
//!
//! Invariant: a disk that was given up goes offline, durably, before anything is answered that it
//! was to have: by whoever needed it, or by the next step of the group.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use spindle_base::{DiskNumber, Redundancy};
use spindle_catalog::{Claim, KeptJournal};
use spindle_device::{DeviceErrorKind, DiskSlot, Disks, Judge, Request};
use spindle_format::{DiskStatus, GroupState};
use spindle_sync::atomic::{AtomicBool, Ordering};
use spindle_sync::level::LeafMutex;
use spindle_sync::{Fault, is_put_back};

use crate::by_number::ByNumber;
use crate::event::EventKind;
use crate::quorum::Membership;

/// For how many looks a disk counts as gone that said so and serves on: a minute, in which whoever heard
/// it comes to the end of his deadline and says it again, or takes the disk offline. One that only
/// blinked keeps nobody waiting for longer.
const UNSETTLED_LOOKS: u32 = 12;

/// Decides for the engine; see the module.
#[derive(Debug, Default)]
pub(super) struct Hanging {
    watch: LeafMutex<Watch>,
    /// No disk's data is anywhere else.
    is_external: AtomicBool,
    /// A disk was given up and is not offline yet, or is waited for and that was not told.
    is_news: AtomicBool,
    /// Is told whether any disk lacks something, from when this process serves on.
    journal: OnceLock<Arc<KeptJournal>>,
    /// By disk: whether it is among [`Watch::set_back`], for whoever may not wait for the watch.
    is_set_back: ByNumber<AtomicBool>,
}

#[derive(Debug, Default)]
struct Watch {
    copies: usize,
    disks: BTreeMap<DiskNumber, Seen>,
    by_slot: BTreeMap<DiskSlot, DiskNumber>,
    /// Disks that came back, as long as they may lack what others have.
    catching_up: BTreeSet<DiskNumber>,
    /// Disks that serve though nothing on them is relied on: the group cannot do without them yet.
    set_back: BTreeSet<DiskNumber>,
    /// Failure groups that have extents with fewer copies than their files ask for, until all are made:
    /// how many the fewest have. By the group's redundancy that may be enough.
    short: BTreeMap<u16, usize>,
    /// How often one was noted.
    short_count: u64,
    given_up: BTreeSet<DiskNumber>,
    /// Disks that the state which is being published takes offline. Whoever puts one here holds the
    /// lock of the group state until it is published, or refused.
    going: BTreeSet<DiskNumber>,
    /// Disks that said that they are gone, to somebody who could not take them offline yet: he waits for
    /// another one of the same batch, say. For how many looks more that counts.
    unsettled: BTreeMap<DiskNumber, u32>,
    waited_for: BTreeMap<DiskNumber, Wait>,
}

/// A disk that is waited for.
#[derive(Debug, Default)]
struct Wait {
    is_told: bool,
    /// Somebody asked since the last look: it still does not answer.
    was_asked: bool,
}

/// Whether a disk of that status lacks what it should hold. One that was given up has been replaced
/// by other copies only when the group has forgotten it.
pub(super) const fn is_away(status: DiskStatus) -> bool {
    matches!(status, DiskStatus::Offline | DiskStatus::Absent)
}

/// What counts of a disk.
#[derive(Debug)]
struct Seen {
    failure_group: u16,
    serves: bool,
    is_away: bool,
    votes: bool,
    holds_data: bool,
    holds_catalog: bool,
}

impl Watch {
    /// Whether the group can do without the disks, which failed something. Where it cannot they serve
    /// on, and count as lacking it from now on, until they were seen to lack nothing: the next one may
    /// be judged before it is noted what they lack.
    fn bears_loss_or_keep(&mut self, disks: &BTreeSet<DiskNumber>) -> bool {
        let bears = self.bears_loss_of(disks, &self.going);
        if !bears {
            let kept = disks.iter().copied().filter(|disk| self.serves(*disk));
            let kept: Vec<DiskNumber> = kept.collect();
            self.catching_up.extend(kept);
        }
        bears
    }

    /// Whether the group can do without the disks beside those, and all that lack something.
    fn bears_loss_of(&self, disks: &BTreeSet<DiskNumber>, beside: &BTreeSet<DiskNumber>) -> bool {
        let lacking: BTreeSet<u16> = (self.disks.iter())
            .filter(|(number, seen)| {
                let lacks = seen.is_away
                    || self.catching_up.contains(number)
                    || self.set_back.contains(number);
                let is_gone = disks.contains(number) || self.is_gone(**number, beside);
                seen.holds_data && (lacks || is_gone)
            })
            .map(|(_, seen)| seen.failure_group)
            .collect();
        let is_known = |disk: &DiskNumber| self.disks.contains_key(disk);
        let takes_data = |disk: &DiskNumber| self.disks[disk].holds_data;
        // So many copies fewer than others have.
        let fewer = |disk: &DiskNumber| {
            let fewest = self.short.get(&self.disks[disk].failure_group);
            fewest.map_or(0, |fewest| self.copies.saturating_sub(*fewest))
        };
        disks.iter().all(is_known)
            && (!disks.iter().any(takes_data)
                || lacking.len() + disks.iter().map(fewer).max().unwrap_or(0) < self.copies)
            && self.goes_on_without(disks, beside)
    }

    /// Whether the disk serves by the last group state only.
    fn is_gone(&self, disk: DiskNumber, beside: &BTreeSet<DiskNumber>) -> bool {
        beside.contains(&disk)
            || self.given_up.contains(&disk)
            || self.unsettled.contains_key(&disk)
    }

    /// Whether votes and a replica of the catalog are left.
    fn goes_on_without(&self, disks: &BTreeSet<DiskNumber>, beside: &BTreeSet<DiskNumber>) -> bool {
        let stays = |number: &DiskNumber, seen: &Seen| {
            seen.serves && !disks.contains(number) && !self.is_gone(*number, beside)
        };
        let count = |counts: fn(&Seen) -> bool| {
            let all = self.disks.values().filter(|seen| counts(seen)).count();
            let staying = (self.disks.iter())
                .filter(|(number, seen)| counts(seen) && stays(number, seen))
                .count();
            (all, staying)
        };
        let (votes, votes_left) = count(|seen| seen.votes);
        let (_, replicas_left) = count(|seen| seen.holds_catalog);
        votes_left > 0 && votes_left * 2 >= votes && replicas_left > 0
    }

    /// Whether the disks are of one failure group, and no other has a disk with data that serves.
    fn are_alone(&self, disks: &BTreeSet<DiskNumber>) -> bool {
        let group_of = |disk| self.disks.get(disk).map(|seen| seen.failure_group);
        let groups: BTreeSet<Option<u16>> = disks.iter().map(group_of).collect();
        let others = |seen: &&Seen| seen.serves && seen.holds_data;
        groups.len() == 1
            && (self.disks.values().filter(others))
                .all(|seen| groups.contains(&Some(seen.failure_group)))
    }

    /// Whoever waits for the disk has had these failures beside it: those that count as gone in its
    /// question, along with those that go. One that has a bad place counts there alone: it has all the
    /// rest, and perhaps serves on.
    fn note_failed(
        &mut self,
        disk: DiskNumber,
        failed: &[(DiskSlot, DeviceErrorKind)],
    ) -> BTreeSet<DiskNumber> {
        let mut beside = self.going.clone();
        for (slot, kind) in failed {
            let other = self.by_slot.get(slot).copied();
            if let Some(other) = other.filter(|other| *other != disk) {
                beside.insert(other);
                if *kind == DeviceErrorKind::Gone {
                    self.note_gone(other);
                }
            }
        }
        beside
    }

    fn note_gone(&mut self, disk: DiskNumber) {
        if self.serves(disk) {
            self.unsettled.insert(disk, UNSETTLED_LOOKS);
        }
    }

    /// One look more: a disk that said that it is gone, not again for long, and serves on, is there.
    fn look_at_unsettled(&mut self) {
        self.unsettled.retain(|_, looks_left| {
            *looks_left -= 1;
            *looks_left > 0
        });
    }

    /// An extent with a copy in the failure group has so many, fewer than its file asks for: be it enough
    /// by the redundancy that the group has, which may be raised before the others are made.
    fn note_short(&mut self, failure_group: u16, copies_count: usize) {
        let fewest = self.short.entry(failure_group).or_insert(copies_count);
        *fewest = copies_count.min(*fewest);
        self.short_count += 1;
    }

    /// Whether an extent has fewer copies than the group's redundancy asks for.
    fn is_short(&self) -> bool {
        self.short.values().any(|fewest| *fewest < self.copies)
    }

    fn serves(&self, disk: DiskNumber) -> bool {
        self.disks.get(&disk).is_some_and(|seen| seen.serves)
    }
}

impl Judge for Hanging {
    fn may_give_up(&self, slot: DiskSlot, failed: &[(DiskSlot, DeviceErrorKind)]) -> bool {
        let mut watch = self.watch.lock();
        // A disk that does not serve, or is only looked at, has nothing that anybody waits for.
        let Some(disk) = watch.by_slot.get(&slot).copied() else {
            return true;
        };
        if !watch.serves(disk) || watch.given_up.contains(&disk) {
            return true;
        }
        let beside = watch.note_failed(disk, failed);
        let may = (watch.going.contains(&disk)
            || watch.bears_loss_of(&BTreeSet::from([disk]), &beside))
            && !is_put_back(Fault::SilentDiskWaitedFor);
        if may {
            watch.given_up.insert(disk);
        } else {
            watch.waited_for.entry(disk).or_default().was_asked = true;
        }
        self.is_news.store(true, Ordering::Release);
        may
    }

    fn has_gone(&self, slot: DiskSlot) {
        let mut watch = self.watch.lock();
        if let Some(disk) = watch.by_slot.get(&slot).copied() {
            watch.note_gone(disk);
        }
    }
}

/// Disks that go: it was decided, and the state without them is not published yet. As long as this
/// lives they count as gone; what did not go by then serves as before.
#[derive(Debug)]
pub(super) struct Going<'a> {
    hanging: &'a Hanging,
    disks: BTreeSet<DiskNumber>,
}

impl Going<'_> {
    pub(super) fn extend(&mut self, disks: &BTreeSet<DiskNumber>) {
        if !disks.is_empty() {
            self.hanging.watch.lock().going.extend(disks);
            self.disks.extend(disks);
        }
    }
}

impl Drop for Going<'_> {
    fn drop(&mut self) {
        if !self.disks.is_empty() {
            let mut watch = self.hanging.watch.lock();
            watch.going.retain(|disk| !self.disks.contains(disk));
        }
    }
}

impl Hanging {
    /// A process that follows this one, killed while a disk hangs, opens the group without that disk
    /// only where nobody else lacks anything.
    fn note_equality(&self, watch: &Watch) {
        if let Some(journal) = self.journal.get() {
            let nobody_lacks = watch.catching_up.is_empty() && watch.set_back.is_empty();
            let is_equal = nobody_lacks && !watch.is_short();
            journal.note_all_is_equal(is_equal);
        }
    }

    /// Of disks that go, whatever that costs; none yet. The caller holds the lock of the group state.
    pub(super) fn going(&self) -> Going<'_> {
        Going {
            hanging: self,
            disks: BTreeSet::new(),
        }
    }

    /// The disks go, all of them, where the redundancy, the votes and the catalog bear it beside all that
    /// are away or lack something. The caller holds the lock of the group state, so no others go at the
    /// moment.
    pub(super) fn reserve(&self, disks: &BTreeSet<DiskNumber>) -> Option<Going<'_>> {
        let mut watch = self.watch.lock();
        if !watch.bears_loss_or_keep(disks) {
            self.note_equality(&watch);
            return None;
        }
        watch.going.extend(disks);
        drop(watch);
        Some(Going {
            hanging: self,
            disks: disks.clone(),
        })
    }

    /// As [`Self::reserve`], for one that was set back; that it lacks everything is known already.
    pub(super) fn reserve_set_back(&self, disk: DiskNumber) -> Option<Going<'_>> {
        let disks = BTreeSet::from([disk]);
        let mut watch = self.watch.lock();
        if !watch.bears_loss_of(&disks, &watch.going) {
            return None;
        }
        watch.going.insert(disk);
        drop(watch);
        Some(Going {
            hanging: self,
            disks,
        })
    }

    /// Nothing on the disk is relied on any more, as long as it serves.
    pub(super) fn note_set_back(&self, disk: DiskNumber) {
        let mut watch = self.watch.lock();
        if watch.serves(disk) {
            watch.set_back.insert(disk);
            let is_set_back = self.is_set_back.get_or_put(disk.0, AtomicBool::default);
            is_set_back.store(true, Ordering::Release);
            self.note_equality(&watch);
        }
    }

    /// Whether the disk serves though nothing on it is relied on. Cheap.
    pub(super) fn is_set_back(&self, disk: DiskNumber) -> bool {
        let is_set_back = self.is_set_back.get(disk.0);
        is_set_back.is_some_and(|is_set_back| is_set_back.load(Ordering::Acquire))
    }

    /// Whether [`Self::reserve`] would refuse these disks, whatever becomes of others that are on their
    /// way out.
    pub(super) fn refuses(&self, disks: &BTreeSet<DiskNumber>) -> bool {
        let mut watch = self.watch.lock();
        let refuses = watch.going.is_empty() && !watch.bears_loss_or_keep(disks);
        self.note_equality(&watch);
        refuses
    }

    fn note_answers(&self, disk: DiskNumber) {
        self.watch.lock().unsettled.remove(&disk);
    }

    /// Follows a published state.
    pub(super) fn follow(&self, state: &GroupState, slots: &BTreeMap<DiskNumber, DiskSlot>) {
        let mut watch = self.watch.lock();
        watch.copies = state.redundancy.copies();
        watch.by_slot = slots.iter().map(|(disk, slot)| (*slot, *disk)).collect();
        watch.disks = (state.disks.iter())
            .map(|disk| {
                let seen = Seen {
                    failure_group: disk.failure_group,
                    serves: disk.status.is_served() && slots.contains_key(&disk.number),
                    is_away: is_away(disk.status),
                    votes: disk.voter,
                    holds_data: !disk.quorum_only,
                    holds_catalog: (state.replicas.iter())
                        .any(|replica| replica.disk == disk.number),
                };
                (disk.number, seen)
            })
            .collect();
        let Watch {
            disks,
            given_up,
            catching_up,
            set_back,
            going,
            unsettled,
            waited_for,
            ..
        } = &mut *watch;
        let serves = |disk: &DiskNumber| disks.get(disk).is_some_and(|seen| seen.serves);
        given_up.retain(serves);
        catching_up.retain(serves);
        set_back.retain(serves);
        for (number, is_set_back) in self.is_set_back.iter() {
            is_set_back.store(set_back.contains(&DiskNumber(number)), Ordering::Release);
        }
        going.retain(serves);
        unsettled.retain(|disk, _| serves(disk));
        waited_for.retain(|disk, _| serves(disk));
        self.note_equality(&watch);
        let is_external = state.redundancy == Redundancy::External;
        self.is_external.store(is_external, Ordering::Release);
    }
}

impl Membership {
    /// Runs a batch of the group's own. Where no disk's data is anywhere else, it waits for each
    /// however long that takes.
    pub(crate) fn run(&self, batch: &mut [Request<'_>]) {
        if self.hanging.is_external.load(Ordering::Acquire) {
            for request in batch.iter_mut() {
                request.is_patient = true;
            }
        }
        self.disks.run(batch);
    }

    /// Disks that were given up since the last call and still serve by the group state: to be taken
    /// offline. Who is waited for is told.
    pub(crate) fn take_silent(&self) -> Vec<DiskNumber> {
        if !self.hanging.is_news.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        let mut watch = self.hanging.watch.lock();
        let untold: Vec<DiskNumber> = (watch.waited_for.iter_mut())
            .filter_map(|(disk, wait)| {
                let was_told = std::mem::replace(&mut wait.is_told, true);
                (!was_told).then_some(*disk)
            })
            .collect();
        let given_up = watch.given_up.iter().copied().collect();
        drop(watch);
        for disk in untold {
            let message = format!(
                "disk {} does not answer, and nobody else has what it holds: what needs it waits",
                self.disk_title(disk)
            );
            self.disk_event(EventKind::DiskHangs, disk, message);
        }
        given_up
    }

    /// The disk answers, after it said that it is gone.
    pub(crate) fn note_answers(&self, disk: DiskNumber) {
        self.hanging.note_answers(disk);
    }

    /// Whether disks that failed a flush, and that the group cannot do without, had better serve on:
    /// the group would go on with them offline, and without what they alone have; or it would stop,
    /// though no disk has a copy beside theirs. Else it is better to stop: whoever opens it next
    /// compares the copies, where an open row would name more of them than one as stale.
    pub(crate) fn had_better_serve_on(&self, disks: &BTreeSet<DiskNumber>) -> bool {
        let watch = self.hanging.watch.lock();
        watch.goes_on_without(disks, &watch.going) || watch.are_alone(disks)
    }

    /// Whether the disk was given up and still serves by the group state.
    pub(crate) fn is_given_up(&self, disk: DiskNumber) -> bool {
        self.hanging.watch.lock().given_up.contains(&disk)
    }

    /// Whether the disk owes an answer for so long that it was given up, is waited for, or is asked
    /// whose the group is.
    pub(super) fn hangs(&self, disk: DiskNumber) -> bool {
        let watch = self.hanging.watch.lock();
        let is_known = watch.given_up.contains(&disk) || watch.waited_for.contains_key(&disk);
        drop(watch);
        is_known || self.is_silent(disk)
    }

    /// Tells of disks that were waited for and answer again, and forgets who was said to be gone and
    /// serves on; to be called every few seconds.
    pub(crate) fn tell_of_answers(&self) {
        let mut watch = self.hanging.watch.lock();
        watch.look_at_unsettled();
        let mut answer = Vec::new();
        watch.waited_for.retain(|disk, wait| {
            let still_asked = std::mem::take(&mut wait.was_asked);
            if !still_asked && wait.is_told {
                answer.push(*disk);
            }
            still_asked || !wait.is_told
        });
        drop(watch);
        for disk in answer {
            let message = format!("disk {} answers again", self.disk_title(disk));
            self.disk_event(EventKind::DiskAnswers, disk, message);
        }
    }

    /// These disks came back, or lacked something when the group was opened: they may lack what
    /// others have, until [`Self::caught_up`].
    pub(crate) fn begin_catching_up(&self, disks: impl Iterator<Item = DiskNumber>) {
        let mut watch = self.hanging.watch.lock();
        watch.catching_up.extend(disks);
        self.hanging.note_equality(&watch);
    }

    /// Disks that came back and were not seen to lack nothing since.
    pub(crate) fn catching_up(&self) -> Vec<DiskNumber> {
        let watch = self.hanging.watch.lock();
        watch.catching_up.iter().copied().collect()
    }

    /// The disk lacks nothing any more.
    pub(crate) fn caught_up(&self, disk: DiskNumber) {
        let mut watch = self.hanging.watch.lock();
        watch.catching_up.remove(&disk);
        self.hanging.note_equality(&watch);
    }

    /// Extents with copies on these disks have so many copies at the fewest: until all are made that the
    /// group's redundancy asks for, their failure groups cannot be done without as if they had them.
    pub(crate) fn note_short(&self, fewest: impl Iterator<Item = (DiskNumber, usize)>) {
        let mut watch = self.hanging.watch.lock();
        for (disk, copies_count) in fewest {
            if let Some(group) = watch.disks.get(&disk).map(|seen| seen.failure_group) {
                watch.note_short(group, copies_count);
            }
        }
        self.hanging.note_equality(&watch);
    }

    /// How often [`Self::note_short`] was called.
    pub(crate) fn short_count(&self) -> u64 {
        self.hanging.watch.lock().short_count
    }

    /// Whether extents may have fewer copies than they should.
    pub(crate) fn is_short(&self) -> bool {
        self.hanging.watch.lock().is_short()
    }

    /// All copies were made that were missing by then.
    pub(crate) fn forget_short(&self, short_count: u64) {
        let mut watch = self.hanging.watch.lock();
        if watch.short_count == short_count {
            watch.short.clear();
            self.hanging.note_equality(&watch);
        }
    }

    /// Until all that this opening finds is known, somebody may lack something.
    pub(super) fn doubt_equality(&self) {
        if let Some(journal) = self.failed_flushes().journal() {
            journal.note_all_is_equal(false);
        }
    }

    /// This process serves: whoever follows it when it is killed finds in the journal which state is in
    /// force, and whether any disk lacks something.
    pub(crate) fn begin_states(&self, claim: Claim) {
        let inner = self.inner.lock();
        let Some(journal) = self.failed_flushes().journal() else {
            return;
        };
        journal.try_epoch(inner.epoch_tried);
        journal.rely_on_epoch(inner.state.epoch);
        journal.begin_states(claim);
        let watch = self.hanging.watch.lock();
        if self.hanging.journal.set(Arc::clone(journal)).is_ok() {
            self.hanging.note_equality(&watch);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{DiskStatus, Hanging, Seen, UNSETTLED_LOOKS, is_away};
    use spindle_base::DiskNumber;
    use spindle_device::DeviceErrorKind::{Gone, Medium};
    use spindle_device::{DiskSlot, Judge};

    /// Disks by failure group, all of them voting and with data; the first three have the catalog.
    fn hanging(copies: usize, failure_groups: &[u16]) -> Hanging {
        let hanging = Hanging::default();
        let mut watch = hanging.watch.lock();
        watch.copies = copies;
        for (number, failure_group) in (0..).zip(failure_groups) {
            let seen = Seen {
                failure_group: *failure_group,
                serves: true,
                is_away: false,
                votes: true,
                holds_data: true,
                holds_catalog: number < 3,
            };
            watch.disks.insert(DiskNumber(number), seen);
            watch.by_slot.insert(DiskSlot(number), DiskNumber(number));
        }
        drop(watch);
        hanging
    }

    #[test]
    fn of_two_copies_that_hang_together_one_is_given_up_and_the_other_is_waited_for() {
        let hanging = hanging(2, &[0, 1]);
        assert!(hanging.may_give_up(DiskSlot(1), &[]));
        assert!(!hanging.may_give_up(DiskSlot(0), &[]));
        assert!(hanging.may_give_up(DiskSlot(1), &[]), "asked again");
        assert!(!hanging.may_give_up(DiskSlot(0), &[]), "asked again");
    }

    #[test]
    fn disks_of_one_failure_group_may_all_go_and_none_of_another_after_them() {
        let hanging = hanging(2, &[0, 0, 1, 1]);
        assert!(hanging.may_give_up(DiskSlot(0), &[]));
        assert!(hanging.may_give_up(DiskSlot(1), &[]));
        assert!(!hanging.may_give_up(DiskSlot(2), &[]));
    }

    #[test]
    fn where_there_is_one_copy_none_is_given_up() {
        let hanging = hanging(1, &[0, 1, 2]);
        assert!((0..3).all(|slot| !hanging.may_give_up(DiskSlot(slot), &[])));
    }

    #[test]
    fn while_a_disk_that_came_back_lacks_something_its_partner_is_waited_for() {
        let hanging = hanging(2, &[0, 1, 2]);
        hanging.watch.lock().catching_up.insert(DiskNumber(0));
        assert!(!hanging.may_give_up(DiskSlot(1), &[]));
        hanging.watch.lock().catching_up.clear();
        assert!(hanging.may_give_up(DiskSlot(1), &[]));
    }

    #[test]
    fn what_is_set_back_lacks_everything_until_it_goes() {
        let hanging = hanging(2, &[0, 1, 2]);
        hanging.watch.lock().short.insert(0, 1);
        hanging.note_set_back(ONE);
        assert!(hanging.reserve_set_back(ONE).is_none());
        assert!(!hanging.may_give_up(DiskSlot(1), &[]));
        hanging.watch.lock().short.clear();
        assert!(hanging.reserve_set_back(ONE).is_some());
    }

    #[test]
    fn extents_that_lack_copies_count_by_how_many_the_redundancy_asks_for() {
        for (copies, fewest, may) in [(2, 1, false), (2, 2, true), (3, 2, true), (3, 1, false)] {
            let hanging = hanging(copies, &[0, 1, 2]);
            hanging.watch.lock().short.insert(0, fewest);
            assert_eq!(
                hanging.may_give_up(DiskSlot(0), &[]),
                may,
                "{fewest} of {copies}"
            );
        }
        // What is enough today is too little once the group has the higher redundancy.
        let hanging = hanging(2, &[0, 1, 2]);
        hanging.watch.lock().note_short(0, 2);
        assert!(!hanging.watch.lock().is_short());
        hanging.watch.lock().copies = 3;
        assert!(hanging.watch.lock().is_short());
    }

    #[test]
    fn a_disk_that_was_given_up_is_no_copy_as_long_as_the_group_knows_it() {
        let served = [DiskStatus::Online, DiskStatus::Dropping];
        assert!(served.iter().all(|status| !is_away(*status)));
        let hanging = hanging(2, &[0, 1, 2]);
        let mut watch = hanging.watch.lock();
        let given_up = watch.disks.get_mut(&DiskNumber(0)).unwrap();
        given_up.is_away = is_away(DiskStatus::Absent);
        given_up.serves = false;
        drop(watch);
        assert!(
            !hanging.may_give_up(DiskSlot(1), &[]),
            "its partner is the only one"
        );
    }

    #[test]
    fn a_disk_without_which_no_state_can_be_published_is_waited_for() {
        let hanging = hanging(3, &[0, 1, 2]);
        hanging
            .watch
            .lock()
            .disks
            .get_mut(&DiskNumber(0))
            .unwrap()
            .serves = false;
        assert!(!hanging.may_give_up(DiskSlot(1), &[]), "one vote of three");
    }

    const ONE: DiskNumber = DiskNumber(0);
    const OTHER: DiskNumber = DiskNumber(1);

    fn goes(hanging: &Hanging, disk: DiskNumber) -> bool {
        hanging.reserve(&BTreeSet::from([disk])).is_some()
    }

    #[test]
    fn beside_a_failure_of_the_same_batch_the_only_other_copy_is_waited_for() {
        let hanging = hanging(2, &[0, 1]);
        assert!(!hanging.may_give_up(DiskSlot(1), &[(DiskSlot(0), Medium)]));
        // The failure may concern one place, and the others have a copy each.
        assert!(hanging.may_give_up(DiskSlot(1), &[]));
    }

    #[test]
    fn beside_a_failure_in_its_own_failure_group_a_disk_is_given_up() {
        let hanging = hanging(2, &[0, 0, 1, 1]);
        assert!(hanging.may_give_up(DiskSlot(1), &[(DiskSlot(0), Gone)]));
    }

    #[test]
    fn an_earlier_failure_of_the_disk_itself_keeps_it_from_nothing() {
        let hanging = hanging(2, &[0, 1]);
        assert!(hanging.may_give_up(DiskSlot(1), &[(DiskSlot(1), Gone)]));
    }

    #[test]
    fn a_disk_that_said_it_is_gone_is_no_copy_for_others_until_it_answers_or_a_minute_is_over() {
        for said_in_batch in [false, true] {
            let hanging = hanging(2, &[0, 1]);
            match said_in_batch {
                false => hanging.has_gone(DiskSlot(0)),
                true => assert!(!hanging.may_give_up(DiskSlot(1), &[(DiskSlot(0), Gone)])),
            }
            assert!(!hanging.may_give_up(DiskSlot(1), &[]));
            assert!(!goes(&hanging, OTHER));
            for _ in 1..UNSETTLED_LOOKS {
                hanging.watch.lock().look_at_unsettled();
            }
            hanging.watch.lock().catching_up.clear();
            assert!(!hanging.may_give_up(DiskSlot(1), &[]));
            hanging.watch.lock().look_at_unsettled();
            assert!(hanging.may_give_up(DiskSlot(1), &[]));
        }
        let hanging = hanging(2, &[0, 1]);
        hanging.has_gone(DiskSlot(0));
        hanging.note_answers(ONE);
        assert!(hanging.may_give_up(DiskSlot(1), &[]));
    }

    #[test]
    fn while_a_disk_goes_the_other_one_is_waited_for_and_no_longer_where_it_does_not() {
        let hanging = hanging(2, &[0, 1]);
        let mut going = hanging.going();
        going.extend(&BTreeSet::from([ONE]));
        assert!(!hanging.may_give_up(DiskSlot(1), &[]));
        drop(going);
        assert!(hanging.may_give_up(DiskSlot(1), &[]));
    }

    #[test]
    fn a_disk_that_goes_may_be_given_up_itself() {
        let hanging = hanging(2, &[0, 1]);
        let going = hanging.reserve(&BTreeSet::from([ONE]));
        assert!(going.is_some() && goes(&hanging, ONE), "asked again");
        assert!(hanging.may_give_up(DiskSlot(0), &[]));
    }

    #[test]
    fn of_two_disks_that_each_may_go_alone_one_is_let_go() {
        let hanging = hanging(2, &[0, 1]);
        let going = hanging.reserve(&BTreeSet::from([ONE]));
        assert!(going.is_some() && !goes(&hanging, OTHER));
        assert!(
            !hanging.refuses(&BTreeSet::from([OTHER])),
            "it has to wait for its turn"
        );
        drop(going);
        assert!(!goes(&hanging, ONE), "the other one lacks what it failed");
        hanging.watch.lock().catching_up.remove(&OTHER);
        assert!(goes(&hanging, ONE), "it lacked nothing");
    }

    #[test]
    fn a_disk_that_was_refused_to_go_counts_as_lacking_what_it_failed() {
        let hanging = hanging(2, &[0, 0, 1]);
        hanging.watch.lock().catching_up.insert(ONE);
        assert!(hanging.refuses(&BTreeSet::from([DiskNumber(2)])));
        // Else it would go with what the last one failed, because its neighbour lacks something already.
        assert!(!goes(&hanging, OTHER));
    }
}
