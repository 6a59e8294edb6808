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
//! Invariant: a disk that was given up goes offline, durably, before anything is answered that it
//! was to have: by whoever needed it, or by the next step of the group.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use spindle_base::{DiskNumber, Redundancy};
use spindle_catalog::{Claim, KeptJournal};
use spindle_device::{DiskSlot, Disks, Judge, Request};
use spindle_format::{DiskStatus, GroupState};
use spindle_sync::atomic::{AtomicBool, Ordering};
use spindle_sync::level::LeafMutex;
use spindle_sync::{Fault, is_put_back};

use crate::event::EventKind;
use crate::quorum::Membership;

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
}

#[derive(Debug, Default)]
struct Watch {
    copies: usize,
    disks: BTreeMap<DiskNumber, Seen>,
    by_slot: BTreeMap<DiskSlot, DiskNumber>,
    /// Disks that came back, as long as they may lack what others have.
    catching_up: BTreeSet<DiskNumber>,
    given_up: BTreeSet<DiskNumber>,
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
const fn is_away(status: DiskStatus) -> bool {
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
    fn can_do_without(&self, disks: &BTreeSet<DiskNumber>) -> bool {
        let is_gone =
            |number: &DiskNumber| disks.contains(number) || self.given_up.contains(number);
        let lacking: BTreeSet<u16> = (self.disks.iter())
            .filter(|(number, seen)| {
                let lacks = seen.is_away || self.catching_up.contains(number) || is_gone(number);
                seen.holds_data && lacks
            })
            .map(|(_, seen)| seen.failure_group)
            .collect();
        let takes_data = disks.iter().any(|disk| self.disks[disk].holds_data);
        let bears = !takes_data || lacking.len() < self.copies;
        bears && self.goes_on_without(disks)
    }

    /// Whether votes and a replica of the catalog are left.
    fn goes_on_without(&self, disks: &BTreeSet<DiskNumber>) -> bool {
        let stays = |number: &DiskNumber, seen: &Seen| {
            seen.serves && !disks.contains(number) && !self.given_up.contains(number)
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
}

impl Judge for Hanging {
    fn may_give_up(&self, slot: DiskSlot) -> bool {
        let mut watch = self.watch.lock();
        // A disk that does not serve, or is only looked at, has nothing that anybody waits for.
        let Some(disk) = watch.by_slot.get(&slot).copied() else {
            return true;
        };
        if !watch.disks.get(&disk).is_some_and(|seen| seen.serves) || watch.given_up.contains(&disk)
        {
            return true;
        }
        let may = watch.can_do_without(&BTreeSet::from([disk]))
            && !is_put_back(Fault::SilentDiskWaitedFor);
        if may {
            watch.given_up.insert(disk);
        } else {
            watch.waited_for.entry(disk).or_default().was_asked = true;
        }
        self.is_news.store(true, Ordering::Release);
        may
    }
}

impl Hanging {
    /// A process that follows this one, killed while a disk hangs, opens the group without that disk
    /// only where nobody else lacks anything.
    fn note_equality(&self, watch: &Watch) {
        if let Some(journal) = self.journal.get() {
            journal.note_all_is_equal(watch.catching_up.is_empty());
        }
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
            waited_for,
            ..
        } = &mut *watch;
        let serves = |disk: &DiskNumber| disks.get(disk).is_some_and(|seen| seen.serves);
        given_up.retain(serves);
        catching_up.retain(serves);
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

    /// Disks that were given up and still serve by the group state: to be taken offline.
    pub(crate) fn given_up(&self) -> Vec<DiskNumber> {
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

    /// Whether the redundancy, the votes and the catalog bear the loss of the disks together, beside
    /// all that are away or lack something.
    pub(crate) fn can_do_without(&self, disks: &BTreeSet<DiskNumber>) -> bool {
        let watch = self.hanging.watch.lock();
        let is_known = |disk| watch.disks.contains_key(disk);
        disks.iter().all(is_known) && watch.can_do_without(disks)
    }

    /// Whether disks that failed a flush, and that the group cannot do without, had better serve on:
    /// the group would go on with them offline, and without what they alone have; or it would stop,
    /// though no disk has a copy beside theirs. Else it is better to stop: whoever opens it next
    /// compares the copies, where an open row would name more of them than one as stale.
    pub(crate) fn had_better_serve_on(&self, disks: &BTreeSet<DiskNumber>) -> bool {
        let watch = self.hanging.watch.lock();
        watch.goes_on_without(disks) || watch.are_alone(disks)
    }

    /// Whether the disk was given up and still serves by the group state.
    pub(crate) fn is_given_up(&self, disk: DiskNumber) -> bool {
        self.hanging.watch.lock().given_up.contains(&disk)
    }

    /// Tells of disks that were waited for and answer again; to be called every few seconds.
    pub(crate) fn tell_of_answers(&self) {
        let mut watch = self.hanging.watch.lock();
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
    use super::{DiskStatus, Hanging, Seen, is_away};
    use spindle_base::DiskNumber;
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
        assert!(hanging.may_give_up(DiskSlot(1)));
        assert!(!hanging.may_give_up(DiskSlot(0)));
        assert!(hanging.may_give_up(DiskSlot(1)), "asked again");
        assert!(!hanging.may_give_up(DiskSlot(0)), "asked again");
    }

    #[test]
    fn disks_of_one_failure_group_may_all_go_and_none_of_another_after_them() {
        let hanging = hanging(2, &[0, 0, 1, 1]);
        assert!(hanging.may_give_up(DiskSlot(0)));
        assert!(hanging.may_give_up(DiskSlot(1)));
        assert!(!hanging.may_give_up(DiskSlot(2)));
    }

    #[test]
    fn where_there_is_one_copy_none_is_given_up() {
        let hanging = hanging(1, &[0, 1, 2]);
        assert!((0..3).all(|slot| !hanging.may_give_up(DiskSlot(slot))));
    }

    #[test]
    fn while_a_disk_that_came_back_lacks_something_its_partner_is_waited_for() {
        let hanging = hanging(2, &[0, 1, 2]);
        hanging.watch.lock().catching_up.insert(DiskNumber(0));
        assert!(!hanging.may_give_up(DiskSlot(1)));
        hanging.watch.lock().catching_up.clear();
        assert!(hanging.may_give_up(DiskSlot(1)));
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
            !hanging.may_give_up(DiskSlot(1)),
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
        assert!(!hanging.may_give_up(DiskSlot(1)), "one vote of three");
    }
}
