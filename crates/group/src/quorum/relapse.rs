//! Disks that serve and show an older image of themselves: a snapshot or a backup that was written
//! back below the open group, or a disk that said "durable" of what it then dropped.
//!
//! What proves it is a structure of the group's own that is whole, and older than what the disk has
//! taken durably since: the group state in the slot that holds the last one, or the opener record of
//! a voter. A disk that lost this may have lost anything, so nothing that it holds is relied on. It
//! goes offline, and the same state says that it lost all of it; as one that was found so at an opening
//! (`set_back.rs`) it does not come back while this opening lasts.
//!
//! Where the group cannot do without it, it serves on, because nobody else can, and this is told once;
//! it goes as soon as the others bear that. The next state, or the next heartbeat, is written over what
//! proves it, so the disk is remembered here; a process that is killed meanwhile forgets it.

use std::collections::{BTreeMap, BTreeSet};

use spindle_base::DiskNumber;
use spindle_format::Lost;

use crate::error::GroupError;
use crate::event::EventKind;
use crate::quorum::Membership;
use crate::quorum::publish::{Quorum, set_offline};
use crate::quorum::set_back::NEVER_AGAIN;

impl Membership {
    /// Takes disks offline that serve and show an older image of themselves: those of `shown`, with what
    /// shows it, and those that the group could not do without when they were found.
    ///
    /// # Errors
    /// As [`Membership::take_offline`].
    pub(crate) fn give_up_set_back(
        &self,
        shown: BTreeMap<DiskNumber, String>,
    ) -> Result<(), GroupError> {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        for (number, why) in shown {
            inner.set_back.entry(number).or_insert(SetBack {
                why,
                is_told: false,
            });
        }
        let numbers: Vec<DiskNumber> = (inner.set_back.keys().copied())
            .filter(|number| self.is_online(*number))
            .collect();
        for number in numbers {
            self.refuse_stopped(inner)?;
            let disks = BTreeSet::from([number]);
            let going = self.hanging.reserve(&disks);
            let title = format!(
                "group {}: disk {}",
                inner.state.group_name,
                self.disk_title(number)
            );
            let Some(found) = inner.set_back.get_mut(&number) else {
                continue;
            };
            let why = &found.why;
            let Some(_going) = going else {
                if !std::mem::replace(&mut found.is_told, true) {
                    let message = format!(
                        "{title} was set back to an older image while it served: {why}. The group \
                         cannot do without it now, so what is read there may be old; it goes offline \
                         as soon as the other disks have all that it should hold"
                    );
                    self.disk_event(EventKind::DamageFound, number, message);
                }
                continue;
            };
            let message = format!(
                "{title} goes offline: it was set back to an older image while it served: {why}; drop \
                 it with --force and add it as a new disk"
            );
            self.disk_event(EventKind::DiskOffline, number, message);
            if let Some(member) = inner.members.get_mut(&number) {
                member.held_epoch = NEVER_AGAIN;
            }
            let mut next = inner.state.clone();
            set_offline(&mut next, &disks);
            if let Some(disk) = next.disk_mut(number) {
                disk.lost = Lost::EVERYTHING;
            }
            self.publish(inner, next, Quorum::Half)?;
            self.claim_new_voters(inner)?;
        }
        Ok(())
    }
}

/// A disk that was set back while it served.
#[derive(Debug)]
pub(super) struct SetBack {
    /// What shows it.
    why: String,
    /// The group could not do without it, and this was told.
    is_told: bool,
}
