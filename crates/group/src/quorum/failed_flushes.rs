//! Flushes that disks failed, as a process must know them that takes over from this one.
//!
//! A disk that failed a flush may have dropped what it held, and answer the next flush well. Who
//! asked for the first one tells everybody concerned, or takes the disk offline. Between the
//! disk's answer and that the process may be killed, or end because the group cannot do without
//! the disk. So where a keeper holds the group's journal, the failure stands there from the answer
//! on, whoever asked, until nobody needs it any more.

use spindle_base::DiskNumber;
use spindle_device::{DiskSlot, Operation, Request, Work};

use crate::quorum::Membership;

impl Membership {
    /// Asks every disk that serves for a flush, and does no more than note which fail it. To be
    /// called before anything else of an opening flushes, which would take such a disk offline,
    /// whatever it alone holds of a killed process; and before a state follows the elected one. A
    /// killed process may have sent that to a disk which shows it and would lose it with its power:
    /// once a newer one lies on others, the disk would look put back.
    pub(super) fn flush_and_note(&self) {
        let slots: Vec<DiskSlot> = (self.slots.read().iter())
            .filter(|(disk, _)| self.is_online(**disk))
            .map(|(_, slot)| *slot)
            .collect();
        let mut batch: Vec<Request<'_>> = (slots.into_iter())
            .map(|slot| Request::new(slot, 0, Work::Flush))
            .collect();
        self.run(&mut batch);
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
