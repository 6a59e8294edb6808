//! How much of the disks the background may take.
//!
//! Power 1 gives way: pieces of 128 KiB, one at a time, and a pause after each that is a multiple
//! of the time it took, so the part of the disks' time that copying takes is fixed however slow
//! they are. From power 11 on nothing pauses; from there to 1024 pieces and the number of workers
//! grow until the disks are never idle.

use spindle_base::BLOCK_SIZE_BYTES;

use crate::error::{GroupError, GroupErrorKind};

/// The power of background work, 0 to 1024; 0 pauses it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(try_from = "u16", into = "u16")]
pub struct Power(u16);

impl Power {
    /// Nothing is copied.
    pub const PAUSED: Self = Self(0);
    /// What a group has until it is told otherwise.
    pub const DEFAULT: Self = Self(1);
    /// The highest.
    pub const MAX: Self = Self(1024);

    /// A power from its number.
    ///
    /// # Errors
    /// [`GroupErrorKind::Invalid`] above 1024.
    pub fn new(number: u16) -> Result<Self, GroupError> {
        if number > Self::MAX.0 {
            return Err(GroupError::new(
                GroupErrorKind::Invalid,
                format!("power {number} is out of range: give 0 (paused) to 1024"),
            ));
        }
        Ok(Self(number))
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }

    /// The blocks that are copied in one go.
    pub(crate) const fn piece_blocks(self) -> u64 {
        let bytes: u64 = match self.0 {
            0..=10 => 128 << 10,
            11..=63 => 1 << 20,
            _ => 4 << 20,
        };
        bytes / BLOCK_SIZE_BYTES
    }

    /// Threads that should call `work`.
    pub(crate) const fn workers_count(self) -> u32 {
        match self.0 {
            0 => 0,
            1..=10 => 1,
            11..=63 => 2,
            64..=255 => 4,
            256..=1023 => 8,
            _ => 16,
        }
    }

    /// The pause after a piece, in percent of the time that it took: the part of the time that
    /// copying takes is 8 % for each step of power while others use the disks, and half of it
    /// while nobody does.
    pub(crate) const fn pause_percent(self, is_busy: bool) -> u32 {
        if self.0 > 10 || self.0 == 0 {
            return 0;
        }
        let share = self.0 as u32 * 8;
        let busy = 100 * (100 - share) / share;
        if is_busy || busy < 100 { busy } else { 100 }
    }
}

impl TryFrom<u16> for Power {
    type Error = GroupError;

    fn try_from(number: u16) -> Result<Self, GroupError> {
        Self::new(number)
    }
}

impl From<Power> for u16 {
    fn from(power: Power) -> Self {
        power.0
    }
}
