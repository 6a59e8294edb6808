//! Reading again what the disks of an open group say of themselves: labels, opener records, group
//! states. While the group is open nobody reads them, so damage there is seen by the next opening,
//! when it may be too late: where the first MiB of a member was overwritten, the next mount would
//! be refused.
//!
//! What they must say is in memory, proven by every other disk; so what is damaged is written
//! again. A structure that somebody else wrote there whole (another group, a newer program, a
//! newer owner) is not damage and is left: the heartbeat tells of owners. Where several are whole and
//! older than what the disk had taken, that is no damage either, but the disk was set back: see
//! `relapse.rs`.
//!
//! Looking takes no lock, and counts where nobody wrote a structure meanwhile. Before anything is
//! written the voters are asked who has the group: what looks damaged to an owner that slept may be
//! what a newer one is just writing. A crash leaves a structure as it was or as it should be.

use std::collections::{BTreeMap, BTreeSet};

use spindle_base::DiskNumber;
use spindle_device::{AlignedBuffer, DeviceError, DiskSlot};
use spindle_format::{Label, STATE_PLACES};
use spindle_sync::atomic::Ordering;
use spindle_sync::level::MutexGuard;

use crate::levels;
use crate::quorum::look::{DiskLook, LabelFound, SlotFound, look};
use crate::quorum::{Inner, LateCopies, Membership, whole_blocks};

/// How often the structures are looked at until nobody writes meanwhile.
const LOOKS_MOST: usize = 8;

/// A structure of a disk that was not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StructureFault {
    pub disk: DiskNumber,
    /// `label`, `opener record`, `group state`, or `content` of a disk that was set back.
    pub what: &'static str,
    /// Where the one copy of a label lies that is meant; the others are good.
    pub place: Option<u64>,
    pub why: String,
    pub outcome: FaultOutcome,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FaultOutcome {
    /// It is written again.
    Repaired,
    /// It can be written again.
    Repairable,
    /// It is left, because it may be somebody else's.
    Left,
    /// The disk was set back: its structures are older than what it had taken durably.
    SetBack,
    /// It could not be written.
    Failed(String),
}

impl Membership {
    /// Looks at the structures of every disk that serves, and writes again what is damaged where
    /// `repair` says so. Disks that were set back are noted: see `relapse.rs`.
    pub(crate) fn verify_structures(&self, repair: bool) -> Vec<StructureFault> {
        let mut faults: Vec<StructureFault> = Vec::new();
        // Twice: a disk without a label shows nothing of its other structures.
        for pass in 0..2 {
            let Some((mut inner, mut found)) = self.look_while_nobody_writes(repair) else {
                break;
            };
            let subject = |fault: &StructureFault| (fault.disk, fault.what, fault.place);
            let is_known = |fault: &StructureFault| {
                (faults.iter()).any(|other| subject(other) == subject(fault))
            };
            // What a write that failed just now has left is believed at the next round.
            if repair && pass == 0 {
                self.forget_written_labels(&mut inner, &found);
            }
            found.retain(|fault| !is_known(fault));
            let is_done = !repair || found.is_empty();
            if !is_done {
                self.write_again(&mut inner, &mut found);
            }
            faults.extend(found);
            if is_done {
                break;
            }
        }
        if repair {
            self.tell_of_late_labels(&mut self.inner.lock());
        }
        faults
    }

    /// What is wrong, and the lock under which it stays so; `None` where the group had to stop, or
    /// there was no moment at which nobody wrote: the next round looks again.
    fn look_while_nobody_writes(
        &self,
        to_write: bool,
    ) -> Option<(
        MutexGuard<'_, Inner, levels::Membership>,
        Vec<StructureFault>,
    )> {
        for _ in 0..LOOKS_MOST {
            let (numbers, before) = {
                let inner = self.inner.lock();
                let numbers: Vec<DiskNumber> = inner.members.keys().copied().collect();
                (numbers, self.structure_writes_count.load(Ordering::Acquire))
            };
            let looks = self.looks(numbers);
            let has_written = || self.structure_writes_count.load(Ordering::Acquire) != before;
            for is_asked in [false, true] {
                let mut inner = self.inner.lock();
                self.refuse_stopped(&mut inner).ok()?;
                let faults = self.faults(&inner, &looks);
                if !faults.is_empty() && has_written() {
                    break;
                }
                // At once: whoever writes while the voters are asked may write over what shows it.
                for fault in &faults {
                    if fault.outcome == FaultOutcome::SetBack {
                        self.note_set_back(&mut inner, fault.disk, fault.why.clone());
                    }
                }
                if is_asked || !to_write || faults.is_empty() {
                    return Some((inner, faults));
                }
                drop(inner);
                self.disks.look();
            }
        }
        None
    }

    fn looks(&self, numbers: Vec<DiskNumber>) -> BTreeMap<DiskNumber, DiskLook> {
        let online: Vec<(DiskNumber, DiskSlot)> = (numbers.into_iter())
            .filter(|number| self.is_online(*number))
            .filter_map(|number| Some((number, self.slot(number)?)))
            .collect();
        let slots: Vec<DiskSlot> = online.iter().map(|(_, slot)| *slot).collect();
        let looks = look(&*self.disks, &slots);
        let numbers = online.into_iter().map(|(number, _)| number);
        numbers.zip(looks).collect()
    }

    /// Copies of labels that a write failed on, and which a look finds good, are late no more.
    fn forget_written_labels(&self, inner: &mut Inner, found: &[StructureFault]) {
        for (number, member) in &mut inner.members {
            let is_at_fault = |place: u64| {
                (found.iter()).any(|fault| {
                    let is_whole = fault.place.is_none_or(|at| at == place);
                    fault.disk == *number && fault.what == "label" && is_whole
                })
            };
            if self.is_online(*number) {
                member.late.keep(is_at_fault);
            }
        }
    }

    fn faults(&self, inner: &Inner, looks: &BTreeMap<DiskNumber, DiskLook>) -> Vec<StructureFault> {
        let mut faults = Vec::new();
        for (number, look) in looks {
            let Some(member) = inner.members.get(number) else {
                continue;
            };
            let of_labels = label_faults(*number, &look.label, &member.label);
            let has_no_label = !of_labels.is_empty() && look.member().is_none();
            faults.extend(of_labels);
            if has_no_label {
                continue;
            }
            let mut note = |what, why: String, outcome| {
                faults.push(StructureFault {
                    disk: *number,
                    what,
                    place: None,
                    why,
                    outcome,
                });
            };
            if let Some(why) = inner.shows_relapse(*number, look) {
                note("content", why, FaultOutcome::SetBack);
                continue;
            }
            if inner.state.voters().any(|voter| voter == *number) {
                let ours = &inner.opener;
                match &look.opener {
                    _ if look.newer_opener.is_some() => {}
                    None => note(
                        "opener record",
                        "it is damaged".to_owned(),
                        FaultOutcome::Repairable,
                    ),
                    Some(found) if found.sequence < ours.sequence => note(
                        "opener record",
                        "it is an older one".to_owned(),
                        FaultOutcome::Repairable,
                    ),
                    Some(_) => {}
                }
            }
            match &look.states[member.held_slot] {
                SlotFound::State(state) if state.epoch >= member.held_epoch => {}
                SlotFound::Newer(_) => {}
                SlotFound::State(state) => note(
                    "group state",
                    format!("it is an older one, of epoch {}", state.epoch),
                    FaultOutcome::Repairable,
                ),
                SlotFound::Blank => note(
                    "group state",
                    "there is none".to_owned(),
                    FaultOutcome::Repairable,
                ),
                SlotFound::Damaged(why) => {
                    note("group state", why.clone(), FaultOutcome::Repairable);
                }
            }
        }
        faults
    }

    fn write_again(&self, inner: &mut Inner, faults: &mut [StructureFault]) {
        for fault in faults {
            if fault.outcome != FaultOutcome::Repairable {
                continue;
            }
            let answer = match (fault.what, fault.place) {
                ("label", Some(place)) => self.write_label_copies(inner, fault.disk, &[place]),
                ("label", None) => self
                    .write_labels(inner, |number| number == fault.disk, |_| {})
                    .map_err(|error| error.report())
                    .and_then(|()| none_is_late(inner, fault.disk)),
                ("opener record", _) => {
                    let looked_at = self.look_at_marks(inner, BTreeSet::from([fault.disk]));
                    first_failure(self.write_opener(inner, &looked_at))
                }
                _ => self.write_held_state(inner, fault.disk),
            };
            fault.outcome = match answer {
                Ok(()) => FaultOutcome::Repaired,
                Err(why) => FaultOutcome::Failed(why),
            };
        }
    }

    /// The state that the disk should hold, into the slot that should hold it.
    fn write_held_state(&self, inner: &Inner, number: DiskNumber) -> Result<(), String> {
        let Some(member) = inner.members.get(&number) else {
            return Ok(());
        };
        if member.held_epoch != inner.state.epoch {
            return Err(
                "it holds none of this group's last states; the next one is written to it"
                    .to_owned(),
            );
        }
        let place = STATE_PLACES[member.held_slot];
        let bytes = inner.state.encode(place, member.label.disk_uuid);
        let page: AlignedBuffer = whole_blocks(&bytes);
        first_failure(self.write_and_flush(std::iter::once((number, place, &page[..]))))
    }
}

/// Writing labels refuses nothing for the copy at the end alone; it is no repair without it.
fn none_is_late(inner: &Inner, number: DiskNumber) -> Result<(), String> {
    let late = inner.members.get(&number).map(|member| &member.late);
    match late.and_then(LateCopies::described) {
        Some(which) => Err(format!("it cannot be written {which}")),
        None => Ok(()),
    }
}

fn first_failure(failed: Vec<(DiskNumber, DeviceError)>) -> Result<(), String> {
    match failed.into_iter().next() {
        None => Ok(()),
        Some((_, why)) => Err(why.to_string()),
    }
}

/// What is wrong with a disk's label that should say `wanted`: one fault for all of it, or one for
/// each copy that is not good.
fn label_faults(disk: DiskNumber, found: &LabelFound, wanted: &Label) -> Vec<StructureFault> {
    let fault = |place, why: String, outcome| StructureFault {
        disk,
        what: "label",
        place,
        why,
        outcome,
    };
    let repairable = |why: String| vec![fault(None, why, FaultOutcome::Repairable)];
    let left = |why: &str| vec![fault(None, why.to_owned(), FaultOutcome::Left)];
    match found {
        LabelFound::Good { label, .. } | LabelFound::Truncated { label }
            if (label.group_uuid, label.disk_uuid) != (wanted.group_uuid, wanted.disk_uuid) =>
        {
            left("it is that of another disk")
        }
        LabelFound::Overwritten(found)
            if (found.label.group_uuid, found.label.disk_uuid)
                != (wanted.group_uuid, wanted.disk_uuid) =>
        {
            left("it is that of another disk")
        }
        // The group has the disk for itself and writes all over it: whoever wrote there lost it.
        LabelFound::Overwritten(found) => repairable(found.to_string()),
        LabelFound::Newer { .. } => left("it was written by a newer program"),
        LabelFound::Good { label, .. }
            if **label != *wanted && label.sequence <= wanted.sequence =>
        {
            repairable("it is older than what was written last".to_owned())
        }
        LabelFound::Good { repairs, .. } => (repairs.iter())
            .map(|(place, why)| {
                let why = format!("its copy at byte {place} is not good: {why}");
                fault(Some(*place), why, FaultOutcome::Repairable)
            })
            .collect(),
        // Its size is looked at elsewhere.
        LabelFound::Truncated { .. } => Vec::new(),
        LabelFound::Damaged(why) => repairable(format!("every copy is damaged: {why}")),
        LabelFound::None => repairable("there is none any more".to_owned()),
    }
}
