//! Disks that leave a read unanswered.

use spindle_sync::atomic::Ordering;

use spindle_base::{BLOCK_SIZE_BYTES, DiskNumber};
use spindle_device::{AlignedBuffer, DeviceError, DeviceErrorKind, DiskSlot, Request, Work};

use crate::core::Core;
use crate::error::GroupError;
use crate::event::{Event, EventKind};

/// Reads in a row that a disk may leave unanswered before it is taken for gone.
const UNANSWERED_MOST: u32 = 3;

impl Core {
    /// Whether the first and the last block of the disk can be read.
    pub(crate) fn answers(&self, slot: DiskSlot) -> bool {
        let backend = self.membership.disks();
        let last = backend.size_bytes(slot).saturating_sub(BLOCK_SIZE_BYTES);
        let block = usize::try_from(BLOCK_SIZE_BYTES).expect("4096");
        let mut pages = [AlignedBuffer::zeroed(block), AlignedBuffer::zeroed(block)];
        let [first, other] = &mut pages;
        let mut batch = [
            Request::new(slot, 0, Work::Read(first)),
            Request::new(slot, last - last % BLOCK_SIZE_BYTES, Work::Read(other)),
        ];
        backend.run(&mut batch);
        batch.iter().all(|request| request.result.is_ok())
    }

    /// A disk left a read unanswered, which another copy answered. A path may blink; a disk that
    /// is still gone when it is asked again, or is silent time after time, goes offline, as one
    /// that failed a write.
    pub(crate) fn note_unanswered(
        &self,
        disk: DiskNumber,
        error: &DeviceError,
    ) -> Result<(), GroupError> {
        let Some(state) = self.disks.get(disk) else {
            return Ok(());
        };
        let count = state.unanswered_count.fetch_add(1, Ordering::Relaxed) + 1;
        // A disk that hung was given up; one that is gone says so at once when it is asked again.
        let answers = || {
            let answers = state.online_slot().is_some_and(|slot| self.answers(slot));
            if answers {
                self.membership.note_answers(disk);
            }
            answers
        };
        let is_gone = self.membership.is_given_up(disk)
            || (error.kind == DeviceErrorKind::Gone && !answers());
        if is_gone || count >= UNANSWERED_MOST {
            return self.take_offline(&[disk], &error.to_string());
        }
        if count == 1 {
            let message = format!(
                "{} left a read unanswered, which another copy answered: {error}",
                self.disks.describe(disk)
            );
            self.event(Event::new(EventKind::DiskBlinked, message).disk(disk));
        }
        Ok(())
    }
}

/// Whether the disk did not answer, where writing the place again would put nothing right.
pub(crate) const fn is_unanswered(error: &DeviceError) -> bool {
    matches!(
        error.kind,
        DeviceErrorKind::Gone | DeviceErrorKind::TimedOut
    )
}
