//! The 32 bytes that every structure at a fixed place begins with.
//!
//! | offset | what | guards against |
//! |---|---|---|
//! | 0 | magic | bytes that are something else, or nothing |
//! | 8 | version | a newer program's structure |
//! | 12 | CRC-32C of the structure with this field as zero | flipped bits, torn writes |
//! | 16 | its own place in bytes | misdirected writes |
//! | 24 | sequence or epoch | an old copy that looks as good as the new one |

use spindle_base::{Uuid, crc32c};

use crate::error::{FormatError, FormatErrorKind, Structure};
use crate::field::{Reader, Writer};

/// Bytes of the common header.
pub const HEADER_BYTES: usize = 32;
/// Where in the header the checksum is.
pub const HEADER_CHECKSUM_OFFSET: usize = 12;

/// Where in the header the place is.
pub(crate) const PLACE_OFFSET: usize = 16;

/// Whose label, opener record or group state the bytes are: the group's identity and the disk's.
/// In every version, of programs to come too, they follow the common header.
#[must_use]
pub fn identities(bytes: &[u8]) -> Option<(Uuid, Uuid)> {
    let (group, rest) = bytes.get(HEADER_BYTES..)?.split_first_chunk()?;
    let disk = rest.first_chunk()?;
    Some((Uuid(*group), Uuid(*disk)))
}

/// The place that the structure says it lies at. In every version it stands in the common header.
#[must_use]
pub fn said_place(bytes: &[u8]) -> Option<u64> {
    let place = bytes.get(PLACE_OFFSET..)?.first_chunk()?;
    Some(u64::from_le_bytes(*place))
}

/// What the common header of a kind of structure must be.
pub(crate) struct Header {
    pub(crate) structure: Structure,
    pub(crate) magic: &'static [u8; 8],
    pub(crate) version: u32,
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut whole = bytes.to_vec();
    whole[HEADER_CHECKSUM_OFFSET..HEADER_CHECKSUM_OFFSET + 4].fill(0);
    crc32c(&whole)
}

impl Header {
    pub(crate) const fn error(&self, offset_bytes: usize, kind: FormatErrorKind) -> FormatError {
        FormatError {
            structure: self.structure,
            kind,
            offset_bytes,
        }
    }

    /// Checks the magic alone, so that a structure can find out how long it is.
    pub(crate) fn check_magic(&self, bytes: &[u8]) -> Result<(), FormatError> {
        match bytes.get(..HEADER_BYTES) {
            None => Err(self.error(bytes.len(), FormatErrorKind::TooShort)),
            Some(header) if header[..8] != *self.magic => {
                Err(self.error(0, FormatErrorKind::Magic))
            }
            Some(_) => Ok(()),
        }
    }

    /// Checks the header against all of the structure's `bytes`, which were read at `place`;
    /// gives the sequence and a reader that stands behind the header.
    pub(crate) fn read<'a>(
        &self,
        bytes: &'a [u8],
        place: u64,
    ) -> Result<(u64, Reader<'a>), FormatError> {
        self.check_magic(bytes)?;
        let mut reader = Reader::new(self.structure, bytes);
        reader.bytes(8)?;
        let version = reader.u32()?;
        let stored = reader.u32()?;
        if checksum(bytes) != stored {
            return Err(self.error(HEADER_CHECKSUM_OFFSET, FormatErrorKind::Checksum));
        }
        if version != self.version {
            return Err(self.error(8, FormatErrorKind::Version(version)));
        }
        if reader.u64()? != place {
            return Err(self.error(16, FormatErrorKind::Place));
        }
        Ok((reader.u64()?, reader))
    }

    pub(crate) fn begin(&self, capacity_bytes: usize, place: u64, sequence: u64) -> Writer {
        let mut writer = Writer::with_capacity(capacity_bytes);
        writer.bytes(self.magic);
        writer.u32(self.version);
        writer.u32(0);
        writer.u64(place);
        writer.u64(sequence);
        writer
    }

    /// The bytes with their checksum.
    pub(crate) fn finish(writer: Writer) -> Vec<u8> {
        let mut bytes = writer.finish();
        Self::sum(&mut bytes);
        bytes
    }

    /// Gives the bytes their checksum, whatever stands in its field.
    pub(crate) fn sum(bytes: &mut [u8]) {
        let field = HEADER_CHECKSUM_OFFSET..HEADER_CHECKSUM_OFFSET + 4;
        bytes[field.clone()].fill(0);
        let sum = crc32c(bytes).to_le_bytes();
        bytes[field].copy_from_slice(&sum);
    }
}
