//! The labels of an open group's disks: how they are written, and how they follow the group state.
//!
//! Where label and state differ the state counts, so a label that cannot be written is no reason
//! to refuse anything: it is told of, and written again at the next round or opening. Each copy is
//! judged by itself: that one is late hides nothing of another. A crash leaves one of the two copies
//! whole, and labels with a former name or size, which the next opening writes again. The one thing
//! that a label alone knows is the disk's name.

use std::collections::{BTreeMap, BTreeSet};

use spindle_base::{DiskName, DiskNumber, Uuid};
use spindle_device::{AlignedBuffer, DeviceError, DiskSlot, Disks};
use spindle_format::{GroupState, LABEL_COPIES, LABEL_PLACES, Label, labelled_bytes};

use crate::error::{GroupError, GroupErrorKind, Operation};
use crate::event::EventKind;
use crate::quorum::look::{DiskLook, LabelFound, look};
use crate::quorum::{Inner, Membership, refused, whole_blocks};

/// The copies of one disk's label that could not be written.
#[derive(Debug, Default)]
pub(super) struct LateCopies {
    /// By place, and why.
    by_place: BTreeMap<u64, String>,
    /// The places that were told.
    told: BTreeSet<u64>,
    /// Copies of one sequence may differ, because a change of the label was taken back.
    is_mixed: bool,
}

impl LateCopies {
    /// What a write of the copy came to.
    fn note(&mut self, place: u64, failure: Option<&DeviceError>) {
        match failure {
            Some(why) => self.by_place.insert(place, why.to_string()),
            None => self.by_place.remove(&place),
        };
    }

    /// Forgets the copies that are good after all.
    pub(super) fn keep(&mut self, is_late: impl Fn(u64) -> bool) {
        self.by_place.retain(|place, _| is_late(*place));
    }

    /// Which are late, and why.
    pub(super) fn described(&self) -> Option<String> {
        let copies = (self.by_place.iter()).map(|(place, why)| format!("at byte {place} ({why})"));
        let copies: Vec<String> = copies.collect();
        (!copies.is_empty()).then(|| copies.join(", "))
    }
}

impl Membership {
    /// Refuses disks of which one does not give back the label that was just written to it: two paths
    /// that lead to one disk, which would overwrite each other, or a disk that drops what it is given.
    ///
    /// # Errors
    /// [`GroupErrorKind::Io`], with the disks.
    pub(super) fn refuse_unlike_labels(
        &self,
        written: &[(DiskSlot, Uuid)],
    ) -> Result<(), GroupError> {
        let slots: Vec<DiskSlot> = written.iter().map(|(slot, _)| *slot).collect();
        for (found, (slot, wanted)) in look(&*self.disks, &slots).iter().zip(written) {
            let (uuid, why) = match &found.label {
                LabelFound::Good { label, .. } if label.disk_uuid == *wanted => continue,
                LabelFound::Good { label, .. } => (Some(label.disk_uuid), None),
                LabelFound::Damaged(why) => (None, Some(why)),
                _ => (None, None),
            };
            let path = self.disks.path(*slot);
            let other = written.iter().find(|(_, other)| Some(*other) == uuid);
            let told = match other {
                Some((other, _)) => format!(
                    "{path} and {} are one disk: what was written to one of them came back from the \
                     other. Name it once; of a disk with several paths name the device of multipath",
                    self.disks.path(*other)
                ),
                None => {
                    let why = why.map_or(String::new(), |why| format!(": {why}"));
                    format!("{path} does not give back the label that was written to it{why}")
                }
            };
            return Err(refused(GroupErrorKind::Io, told).during(Operation::Write));
        }
        Ok(())
    }

    /// Writes the labels of the disks that `wanted` picks, one copy after the other, so that at
    /// any moment one of them is whole. All are tried; the first failure of those in AU 0 is the
    /// answer. The copy at the end is one more: where it cannot be written it is tried again.
    pub(super) fn write_labels(
        &self,
        inner: &mut Inner,
        wanted: impl Fn(DiskNumber) -> bool,
        change: impl Fn(&mut Label),
    ) -> Result<(), GroupError> {
        let mut labels: Vec<(DiskNumber, Label, [Option<u64>; LABEL_COPIES])> = Vec::new();
        for (number, member) in &mut inner.members {
            if wanted(*number) {
                change(&mut member.label);
                member.label.sequence += 1;
                // Of a disk that the state knows no more nothing is in use behind AU 0.
                let size_aus = inner.state.disk(*number).map_or(1, |disk| disk.size_aus);
                let places = member.label.places(size_aus);
                labels.push((*number, member.label.clone(), places));
            }
        }
        let mut failed: Vec<(DiskNumber, u64, DeviceError)> = Vec::new();
        for copy in 0..LABEL_COPIES {
            let pages: Vec<(DiskNumber, u64, AlignedBuffer)> = (labels.iter())
                .filter_map(|(number, label, places)| {
                    let place = places[copy]?;
                    Some((*number, place, whole_blocks(&label.encode(place))))
                })
                .collect();
            let writes = (pages.iter()).map(|(number, place, page)| (*number, *place, &page[..]));
            for (number, why) in self.write_and_flush(writes) {
                let of_it = pages.iter().find(|(other, ..)| *other == number);
                failed.extend(of_it.map(|(_, place, _)| (number, *place, why)));
            }
        }
        for (number, _, places) in labels {
            let Some(member) = inner.members.get_mut(&number) else {
                continue;
            };
            let failures = |place: u64| {
                let mut of_it = failed.iter().filter(|(other, ..)| *other == number);
                of_it.find_map(|(_, at, why)| (*at == place).then_some(why))
            };
            let late = &mut member.late;
            late.keep(|place| places.contains(&Some(place)));
            for place in places.into_iter().flatten() {
                late.note(place, failures(place));
            }
            late.is_mixed &= LABEL_PLACES.iter().all(|place| failures(*place).is_some());
        }
        let in_front = |place: &u64| LABEL_PLACES.contains(place);
        match failed.iter().find(|(_, place, _)| in_front(place)) {
            None => Ok(()),
            Some((number, _, why)) => Err(refused(
                GroupErrorKind::Io,
                format!(
                    "the label of disk {} cannot be written",
                    self.disk_title(*number)
                ),
            )
            .during(Operation::Write)
            .on_disk(*number)
            .because(why.clone())),
        }
    }

    /// Writes these copies of the disk's label as it stands, one after the other.
    ///
    /// # Errors
    /// Why one of them cannot be written.
    pub(super) fn write_label_copies(
        &self,
        inner: &mut Inner,
        number: DiskNumber,
        places: &[u64],
    ) -> Result<(), String> {
        let size_aus = inner.state.disk(number).map_or(1, |disk| disk.size_aus);
        let Some(member) = inner.members.get_mut(&number) else {
            return Ok(());
        };
        let has = member.label.places(size_aus);
        let mut answer = Ok(());
        for place in places {
            if !has.contains(&Some(*place)) {
                member.late.note(*place, None);
                continue;
            }
            let page = whole_blocks(&member.label.encode(*place));
            let failed = self.write_and_flush(std::iter::once((number, *place, &page[..])));
            let failure = failed.first().map(|(_, why)| why);
            member.late.note(*place, failure);
            answer = answer.and(failure.map_or(Ok(()), |why| Err(why.to_string())));
        }
        answer
    }

    /// Writes labels again that do not say what the state says (a name that the group had before,
    /// another size), and copies that could not be written before. One that cannot be written is
    /// told of once, and tried again by the next call.
    pub(crate) fn bring_labels_up_to_date(&self) {
        let mut inner = self.inner.lock();
        if inner.broken.is_none() {
            self.write_late_labels(&mut inner);
            self.tell_of_late_labels(&mut inner);
        }
    }

    /// As [`Self::bring_labels_up_to_date`], telling nothing.
    pub(super) fn write_late_labels(&self, inner: &mut Inner) {
        let wanted: Vec<(DiskNumber, Label)> = (inner.members.iter())
            .filter(|(number, _)| self.is_online(**number))
            .map(|(number, member)| (*number, self.label_by(&inner.state, &member.label)))
            .collect();
        for (number, wanted) in wanted {
            let member = &inner.members[&number];
            if member.late.is_mixed || wanted != member.label {
                // What fails is noted, and the group state counts.
                let is_it = |other| other == number;
                let _ = self.write_labels(inner, is_it, |label| *label = wanted.clone());
            } else {
                let late: Vec<u64> = member.late.by_place.keys().copied().collect();
                let _ = self.write_label_copies(inner, number, &late);
            }
        }
    }

    /// Tells which copies could not be written, and which were written after all, where that is news.
    pub(super) fn tell_of_late_labels(&self, inner: &mut Inner) {
        for (number, member) in &mut inner.members {
            if !self.is_online(*number) {
                continue;
            }
            let late: BTreeSet<u64> = member.late.by_place.keys().copied().collect();
            let told = std::mem::replace(&mut member.late.told, late.clone());
            let title = self.disk_title(*number);
            let written: Vec<String> = (told.difference(&late))
                .map(|place| format!("at byte {place}"))
                .collect();
            let is_news = !written.is_empty() || late.difference(&told).next().is_some();
            if !written.is_empty() {
                let message = format!(
                    "disk {title}: its label was written after all {}",
                    written.join(", ")
                );
                self.disk_event(EventKind::LabelWritten, *number, message);
            }
            // Those that are left are told again: that one was written is not the end of it.
            if let Some(which) = member.late.described().filter(|_| is_news) {
                let message = format!(
                    "disk {title}: its label cannot be written {which}; the group state counts, \
                     and it is tried again"
                );
                self.disk_event(EventKind::LabelLate, *number, message);
            }
        }
    }

    /// The label as the state wants it.
    fn label_by(&self, state: &GroupState, label: &Label) -> Label {
        let mut wanted = label.clone();
        wanted.group_name = state.group_name.clone();
        wanted.redundancy = state.redundancy;
        let Some(disk) = state.disk(label.number) else {
            return wanted;
        };
        if !label.fits(disk.size_aus) {
            // A label that says more would refuse a disk that was cut to what the state says.
            let found = self
                .slot(label.number)
                .map(|slot| self.disks.size_bytes(slot));
            let found_bytes = found.unwrap_or(0);
            wanted.size_bytes = labelled_bytes(disk.size_aus.into(), self.au_size, found_bytes);
        }
        wanted
    }

    /// Gives a disk that is here another name: its label has it.
    ///
    /// # Errors
    /// [`GroupErrorKind::Io`] where the label cannot be written: it keeps its name.
    pub(crate) fn rename_disk(
        &self,
        number: DiskNumber,
        name: &DiskName,
    ) -> Result<(), GroupError> {
        self.change_label(number, |label| label.disk_name = name.clone())
    }

    /// Writes the disk's size into its label, where it is another one.
    ///
    /// # Errors
    /// [`GroupErrorKind::Io`] where the label cannot be written: it says what it said.
    pub(crate) fn label_size(&self, number: DiskNumber, size_bytes: u64) -> Result<(), GroupError> {
        self.change_label(number, |label| label.size_bytes = size_bytes)
    }

    fn change_label(
        &self,
        number: DiskNumber,
        change: impl Fn(&mut Label),
    ) -> Result<(), GroupError> {
        let mut inner = self.inner.lock();
        let Some(member) = inner.members.get(&number) else {
            return Ok(());
        };
        let before = member.label.clone();
        let mut after = before.clone();
        change(&mut after);
        if before == after {
            return Ok(());
        }
        let answer = self.write_labels(&mut inner, |other| other == number, change);
        if answer.is_err()
            && let Some(member) = inner.members.get_mut(&number)
        {
            // One copy may have it: the next round writes what the label said before over both.
            let sequence = member.label.sequence;
            member.label = Label { sequence, ..before };
            member.late.is_mixed = true;
        }
        answer
    }

    /// Writes label copies again that are damaged or older, from the good one. A disk that
    /// cannot take its label keeps the good copy; its next data write will tell what it is worth.
    /// What could not be written is told with the next round.
    pub(super) fn repair_labels(&self, members: &BTreeMap<DiskNumber, (&DiskLook, &Label)>) {
        for (number, (look, label)) in members {
            let LabelFound::Good { repairs, .. } = &look.label else {
                continue;
            };
            for (place, why) in repairs {
                if !self.is_online(*number) {
                    continue;
                }
                let place = *place;
                let page = whole_blocks(&label.encode(place));
                let failed = self.write_and_flush(std::iter::once((*number, place, &page[..])));
                let failure = failed.first().map(|(_, failure)| failure);
                if failure.is_some() {
                    if let Some(member) = self.inner.lock().members.get_mut(number) {
                        member.late.note(place, failure);
                    }
                    continue;
                }
                let title = self.disk_title(*number);
                let message = format!(
                    "disk {title}: the label at byte {place} was written again from another copy \
                     ({why})"
                );
                self.disk_event(EventKind::LabelRepaired, *number, message);
            }
        }
    }
}
