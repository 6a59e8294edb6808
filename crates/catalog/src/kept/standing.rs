//! What the journal says of the group's states: which one is in force, and which ones may be on disks.
//!
//! Where a process is killed while a disk hangs, the next one cannot read that disk, which may be half
//! of those that vote. With these words it knows what the others prove alone: that no state came after
//! theirs, and that the disk which is not seen has nothing that they lack.
//!
//! The words belong to a claim, as those of [`super::disk_words`] do: a program that does not know them
//! begins with a claim of its own, and what they say is nobody's then. A process that follows writes
//! them for the claim before it until it begins.

use std::sync::atomic::Ordering;

use super::Claim;
use super::header::Header;
use super::layout::HEIRS_START;
use spindle_device::words::SharedMemory;

/// Whose states these are.
const STATES_CLAIM: usize = 8;
/// No state of a higher epoch was ever sent to a disk.
const EPOCH_TRIED: usize = 9;
/// The state that is relied on.
const EPOCH_IN_FORCE: usize = 10;
/// No disk that serves lacks anything that another one has.
const ALL_IS_EQUAL: usize = 11;
const _: () = assert!(ALL_IS_EQUAL < HEIRS_START);

/// The group's states, as the process knew them whose journal this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// No state of a higher epoch was ever sent to a disk.
    pub epoch_tried: u64,
    /// The epoch of the state that was relied on.
    pub epoch_in_force: u64,
    /// No disk that served lacked anything that another one had.
    pub all_is_equal: bool,
}

/// The words.
pub(super) struct States<'a>(&'a SharedMemory);

impl<'a> States<'a> {
    pub(super) const fn in_memory(memory: &'a SharedMemory) -> Self {
        Self(memory)
    }

    fn get(&self, word: usize) -> u64 {
        self.0.words()[word].load(Ordering::Acquire)
    }

    fn set(&self, word: usize, value: u64) {
        self.0.words()[word].store(value, Ordering::Release);
    }

    pub(super) fn begin(&self, claim: Claim) {
        self.set(STATES_CLAIM, claim.0);
    }

    /// None where they are of a process that is not the one whose journal this is, nor followed it.
    pub(super) fn standing(&self) -> Option<Standing> {
        let claim = Claim(self.get(STATES_CLAIM));
        (Header::of(self.0).is_heir(claim)).then(|| Standing {
            epoch_tried: self.get(EPOCH_TRIED),
            epoch_in_force: self.get(EPOCH_IN_FORCE),
            all_is_equal: self.get(ALL_IS_EQUAL) != 0,
        })
    }

    pub(super) fn try_epoch(&self, epoch: u64) {
        self.set(EPOCH_TRIED, epoch);
    }

    pub(super) fn rely_on_epoch(&self, epoch: u64) {
        self.set(EPOCH_IN_FORCE, epoch);
    }

    pub(super) fn set_all_is_equal(&self, is_equal: bool) {
        self.set(ALL_IS_EQUAL, u64::from(is_equal));
    }
}
