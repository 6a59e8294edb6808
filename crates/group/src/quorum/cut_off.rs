//! Disks that are smaller than their labels say: an image or a volume that was cut off.
//!
//! What lay behind the end is gone, and being made longer again does not bring it back: there are
//! zeros then. What lies before the end proves nothing either, since a write behind the end of a
//! plain file makes it longer before anybody looks. So such a disk is another one from then on:
//! it goes offline, and the same group state says that it lost what it held. Before it is online
//! again, all of it that other disks have counts as missed; what it alone had is kept where it
//! lay before the end, and unreadable behind it. A crash changes nothing of that.
//!
//! A disk is looked at when the group is opened, at each heartbeat, when it fails, and when it is
//! to come back. What was cut off and made whole between two looks is not seen.

use spindle_base::{AuSize, DiskNumber};
use spindle_device::{DiskSlot, Disks};
use spindle_format::{GroupState, Lost};

use crate::error::GroupError;
use crate::event::EventKind;
use crate::quorum::look::{GroupFound, LabelFound};
use crate::quorum::publish::{Quorum, set_offline};
use crate::quorum::{MemberView, Membership};

/// A disk that is smaller than its label says.
#[derive(Debug, Clone)]
pub(super) struct CutOff {
    number: DiskNumber,
    path: String,
    labelled_bytes: u64,
    found_bytes: u64,
}

impl CutOff {
    /// Says in the state what the disk lost, where it does not serve there; whether that is new.
    pub(super) fn note(&self, state: &mut GroupState, au_size: AuSize) -> bool {
        let Some(disk) = (state.disk_mut(self.number)).filter(|disk| !disk.status.is_served())
        else {
            return false;
        };
        let lost = Lost::from_au(self.found_bytes / au_size.bytes(), disk.size_aus).and(disk.lost);
        std::mem::replace(&mut disk.lost, lost) != lost
    }
}

/// Those of the group that were found cut off.
pub(super) fn among(found: &GroupFound<'_>) -> Vec<CutOff> {
    (found.members.iter())
        .filter_map(|(number, look)| match &look.label {
            LabelFound::Truncated { label } => Some(CutOff {
                number: *number,
                path: look.path.clone(),
                labelled_bytes: label.size_bytes,
                found_bytes: look.size_bytes,
            }),
            _ => None,
        })
        .collect()
}

/// What a refusal says of them.
pub(super) fn described(cut_off: &[CutOff]) -> String {
    (cut_off.iter())
        .map(|disk| {
            format!(
                "; {} is cut off: its label says {} bytes, and it has {}",
                disk.path, disk.labelled_bytes, disk.found_bytes
            )
        })
        .collect()
}

impl Membership {
    /// Those of the disks that are smaller now than their labels say. No lock is held while they
    /// are asked.
    pub(super) fn cut_off(&self, numbers: &[DiskNumber]) -> Vec<CutOff> {
        let asked: Vec<(DiskNumber, DiskSlot, u64)> = {
            let inner = self.inner.lock();
            (numbers.iter())
                .filter_map(|number| {
                    let member = inner.members.get(number)?;
                    Some((*number, self.slot(*number)?, member.label.size_bytes))
                })
                .collect()
        };
        (asked.into_iter())
            .filter_map(|(number, slot, labelled_bytes)| {
                // A disk that does not tell is gone, and found out to be so elsewhere. So is one
                // without any length: the kernel says that of a device that was pulled, which
                // still has all that it held. A file that was emptied has no label either, and
                // is not taken back.
                let found_bytes = self.disks.measure(slot).ok()?;
                (0 < found_bytes && found_bytes < labelled_bytes).then(|| CutOff {
                    number,
                    path: self.disks.path(slot),
                    labelled_bytes,
                    found_bytes,
                })
            })
            .collect()
    }

    /// Looks how large every disk is; those that are cut off go offline, durably, and that they
    /// lost what they held is known with it.
    ///
    /// # Errors
    /// Where too few voters or no replica of the catalog would be left: the group stops.
    pub(crate) fn notice_cut_off(&self) -> Result<(), GroupError> {
        let numbers: Vec<DiskNumber> = (self.members().iter())
            .filter(|member| member.slot.is_some())
            .map(MemberView::number)
            .collect();
        let cut_off = self.cut_off(&numbers);
        if cut_off.is_empty() {
            return Ok(());
        }
        let mut inner = self.inner.lock();
        let mut next = inner.state.clone();
        let serving = (cut_off.iter().map(|disk| disk.number))
            .filter(|number| self.serves(&inner.state, *number))
            .collect();
        set_offline(&mut next, &serving);
        let mut is_new = false;
        for disk in &cut_off {
            if disk.note(&mut next, self.au_size) {
                is_new = true;
                let what = described(std::slice::from_ref(disk));
                let message = format!(
                    "group {}: disk {} goes offline{what}; when it is whole again, all that it \
                     holds is copied again",
                    next.group_name, disk.number
                );
                self.disk_event(EventKind::DiskOffline, disk.number, message);
            }
        }
        if !is_new {
            return Ok(());
        }
        self.publish(&mut inner, next, Quorum::Half)?;
        self.claim_new_voters(&mut inner)
    }
}
