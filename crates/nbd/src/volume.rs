//! What a server serves: anything that reads and writes at an offset.

use spindle_device::{ReadTarget, WriteSource};

use crate::wire::ErrorCode;

/// A block device, as far as the protocol goes. Several threads call it at once; ranges lie within
/// the size that [`Volume::size_bytes`] answered just before.
pub trait Volume: Send + Sync + std::fmt::Debug {
    /// Its size at this moment.
    fn size_bytes(&self) -> u64;

    /// Whether nobody may write to it.
    fn is_read_only(&self) -> bool;

    /// Fills all of `out`.
    ///
    /// # Errors
    /// What the disks say; `out` holds anything then.
    fn read_at(&self, offset_bytes: u64, out: ReadTarget<'_>) -> Result<(), VolumeError>;

    /// Writes all of `data`: whoever reads after the return sees it, through any connection.
    ///
    /// # Errors
    /// No room, or what the disks say; the range holds old or new bytes then.
    fn write_at(&self, offset_bytes: u64, data: WriteSource<'_>) -> Result<(), VolumeError>;

    /// Makes durable what was written, trimmed and zeroed before the call, through any connection.
    ///
    /// # Errors
    /// What the disks say; then nothing is promised of what came before.
    fn flush(&self) -> Result<(), VolumeError>;

    /// Gives the range up: it may be read as anything.
    ///
    /// # Errors
    /// What the disks say.
    fn trim(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), VolumeError>;

    /// Makes the range read as zeros; unless `may_be_hole`, its room stays reserved.
    ///
    /// # Errors
    /// No room, or what the disks say.
    fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        may_be_hole: bool,
    ) -> Result<(), VolumeError>;

    /// What lies in the range, from its beginning on: at least one stretch, at most `most`, none of
    /// them empty, and together no longer than the range.
    ///
    /// # Errors
    /// What the disks say.
    fn stretches(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        most: usize,
    ) -> Result<Vec<Stretch>, VolumeError>;
}

/// A piece of a volume of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// How long.
    pub length_bytes: u64,
    /// Nothing is stored for it, and it reads as zeros.
    pub is_hole: bool,
}

/// Why a volume did not do it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeError {
    /// What the client is told.
    pub code: ErrorCode,
    /// The same for a person, where the client takes texts.
    pub message: String,
}

impl VolumeError {
    /// With a text for a person.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}
