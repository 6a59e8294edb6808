//! Flushes that disks failed, as a process must know them that takes over from this one.
//!
//! A disk that failed a flush may have dropped what it held, and answer the next flush well. Who
//! asked for the first one tells everybody concerned, or takes the disk offline. Between the
//! disk's answer and that the process may be killed, or end because the group cannot do without
//! the disk. So where a keeper holds the group's journal, the failure stands there from the answer
//! on, whoever asked, until nobody needs it any more.

use std::sync::Arc;

use spindle_base::DiskNumber;
use spindle_catalog::KeptJournal;
use spindle_device::{Operation, Request};

use crate::quorum::Membership;

impl Membership {
    /// From now on failed flushes are noted there.
    pub(crate) fn note_failed_flushes_in(&mut self, journal: Arc<KeptJournal>) {
        self.failed_flushes = Some(journal);
    }

    /// Notes the flushes that failed in a batch.
    pub(super) fn note_failed_flushes(&self, batch: &[Request<'_>]) {
        let Some(journal) = &self.failed_flushes else {
            return;
        };
        for request in batch {
            if request.result.is_ok() || request.work.operation() != Operation::Flush {
                continue;
            }
            let slots = self.slots.read();
            let mut open = slots.iter();
            if let Some((disk, _)) = open.find(|(_, slot)| **slot == request.slot) {
                journal.note_failed_flush(*disk);
            }
        }
    }

    /// Everybody whom the disk's failed flush concerns owes the error, or the disk is offline, of
    /// which the group state tells.
    pub(crate) fn forget_failed_flush(&self, disk: DiskNumber) {
        if let Some(journal) = &self.failed_flushes {
            journal.forget_failed_flush(disk);
        }
    }
}
