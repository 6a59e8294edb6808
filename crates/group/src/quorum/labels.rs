//! The labels of an open group's disks: how they are written, and how they follow the group state.
//!
//! Where label and state differ the state counts, so a label that cannot be written is no reason
//! to refuse anything: it is told of, and written again at the next round or opening. A crash
//! leaves one of the two copies whole, and labels with a former name or size, which the next
//! opening writes again. The one thing that a label alone knows is the disk's name.

use std::collections::BTreeMap;

use spindle_base::{DiskName, DiskNumber};
use spindle_device::{AlignedBuffer, Disks};
use spindle_format::{GroupState, LABEL_BYTES, LABEL_COPIES, LABEL_PLACES, Label};

use crate::error::{GroupError, GroupErrorKind};
use crate::event::EventKind;
use crate::quorum::look::{DiskLook, LabelFound};
use crate::quorum::{Inner, Membership, refused, whole_blocks};

impl Membership {
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
        let mut failed = Vec::new();
        let mut failed_at_end = Vec::new();
        for copy in 0..LABEL_COPIES {
            let pages: Vec<(DiskNumber, u64, AlignedBuffer)> = (labels.iter())
                .filter_map(|(number, label, places)| {
                    let place = places[copy]?;
                    Some((*number, place, whole_blocks(&label.encode(place))))
                })
                .collect();
            let writes = (pages.iter()).map(|(number, place, page)| (*number, *place, &page[..]));
            let unable = self.write_durably(writes);
            if copy < LABEL_PLACES.len() {
                failed.extend(unable);
            } else {
                failed_at_end = unable;
            }
        }
        for (number, _, _) in labels {
            if let Some(member) = inner.members.get_mut(&number) {
                let mut unable = failed.iter().chain(&failed_at_end);
                member.label_is_late = unable.any(|(other, _)| *other == number);
            }
        }
        match failed.first() {
            None => Ok(()),
            Some((number, why)) => Err(refused(
                GroupErrorKind::Io,
                format!(
                    "the label of disk {} cannot be written: {why}",
                    self.disk_title(*number)
                ),
            )
            .because(why.clone())),
        }
    }

    /// Writes labels again that do not say what the state says (a name that the group had before,
    /// another size) or could not be written whole before. A label that
    /// cannot be written is told of once, and tried again by the next call.
    pub(crate) fn bring_labels_up_to_date(&self) {
        let mut inner = self.inner.lock();
        if inner.broken.is_some() {
            return;
        }
        let wanted: Vec<(DiskNumber, Label, bool)> = (inner.members.iter())
            .filter(|(number, _)| self.is_online(**number))
            .map(|(number, member)| {
                let label = self.label_by(&inner.state, &member.label);
                (*number, label, member.label_is_late)
            })
            .filter(|(number, label, is_late)| *is_late || *label != inner.members[number].label)
            .collect();
        for (number, wanted, was_late) in wanted {
            let answer = self.write_labels(
                &mut inner,
                |other| other == number,
                |label| {
                    label.group_name = wanted.group_name.clone();
                    label.size_bytes = wanted.size_bytes;
                },
            );
            let title = self.disk_title(number);
            match answer {
                Ok(()) if was_late && !inner.members[&number].label_is_late => {
                    let message = format!("disk {title}: its label was written after all");
                    self.disk_event(EventKind::LabelRepaired, number, message);
                }
                Err(error) if !was_late => {
                    let message = format!(
                        "disk {title}: its label is older than the group state, which counts: \
                         {error}; it is tried again"
                    );
                    self.disk_event(EventKind::LabelLate, number, message);
                }
                Ok(()) | Err(_) => {}
            }
        }
    }

    /// The label as the state wants it.
    fn label_by(&self, state: &GroupState, label: &Label) -> Label {
        let mut wanted = label.clone();
        wanted.group_name = state.group_name.clone();
        let Some(disk) = state.disk(label.number) else {
            return wanted;
        };
        if !label.fits(disk.size_aus) {
            // A label that says more would refuse a disk that was cut to what the state says.
            let found = self
                .slot(label.number)
                .map(|slot| self.disks.size_bytes(slot));
            let used_bytes = u64::from(disk.size_aus) * self.au_size.bytes();
            let with_copy_bytes = used_bytes + LABEL_BYTES as u64;
            let has_room = found.is_some_and(|found_bytes| with_copy_bytes <= found_bytes);
            wanted.size_bytes = if has_room {
                with_copy_bytes
            } else {
                used_bytes
            };
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
        }
        answer
    }

    /// Writes label copies again that are damaged or older, from the good one. A disk that
    /// cannot take its label keeps the good copy; its next data write will tell what it is worth.
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
                let failed = self.write_durably(std::iter::once((*number, place, &page[..])));
                let what = match failed.first() {
                    None => "was written again from another copy".to_owned(),
                    Some((_, failure)) => format!("could not be repaired: {failure}"),
                };
                let title = self.disk_title(*number);
                let message = format!("disk {title}: the label at byte {place} {what} ({why})");
                self.disk_event(EventKind::LabelRepaired, *number, message);
            }
        }
    }
}
