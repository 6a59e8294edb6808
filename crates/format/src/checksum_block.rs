//! The checksums of the catalog region, and where they lie in a run.
//!
//! A replica of the region is a list of runs of AUs. A run of B blocks begins with c = ⌈B/1002⌉
//! pairs of checksum blocks and goes on with B − 2c data blocks; pair g covers the run's data
//! blocks 1,000·g to 1,000·g + 999. The two blocks of a pair are written in turn, so that a torn
//! checksum block leaves the older one, whose sums are still right for every block that was not
//! in flight at the crash.
//!
//! A sum of zero stands for a block that was never written: it reads as zeros, whatever is there.

use spindle_base::{AuSize, Uuid, crc32c};

use crate::error::{FormatError, FormatErrorKind, Structure};
use crate::header::Header;

/// What a checksum block begins with.
pub const CHECKSUM_BLOCK_MAGIC: &[u8; 8] = b"SPNDSUMS";
/// The version of the checksum block that this program writes.
pub const CHECKSUM_BLOCK_VERSION: u32 = 1;
/// Bytes of a checksum block.
pub const CHECKSUM_BLOCK_BYTES: usize = 4096;
/// Where the sums begin in a checksum block.
pub const CHECKSUM_BLOCK_HEADER_BYTES: usize = 96;
/// Data blocks that one checksum block covers.
pub const SUMS_PER_BLOCK: usize = 1000;

const _: () = assert!(CHECKSUM_BLOCK_HEADER_BYTES + 4 * SUMS_PER_BLOCK == CHECKSUM_BLOCK_BYTES);

const HEADER: Header = Header {
    structure: Structure::ChecksumBlock,
    magic: CHECKSUM_BLOCK_MAGIC,
    version: CHECKSUM_BLOCK_VERSION,
};

/// The sums of up to 1,000 blocks of the catalog region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChecksumBlock {
    /// Rises with each writing; of the two slots the higher one is right.
    pub sequence: u64,
    /// The group's identity.
    pub group_uuid: Uuid,
    /// The disk's identity.
    pub disk_uuid: Uuid,
    /// The first block of the region that it covers.
    pub first_block: u64,
    /// The sum of each block, zero for one that was never written or is beyond the run's end.
    pub sums: Box<[u32; SUMS_PER_BLOCK]>,
}

impl ChecksumBlock {
    /// Checks 4 KiB that were read at `place`.
    ///
    /// # Errors
    /// [`FormatError`] where they are no checksum block, or one that was damaged.
    pub fn parse(bytes: &[u8], place: u64) -> Result<Self, FormatError> {
        let Some(bytes) = bytes.get(..CHECKSUM_BLOCK_BYTES) else {
            return Err(HEADER.error(bytes.len(), FormatErrorKind::TooShort));
        };
        let (sequence, mut reader) = HEADER.read(bytes, place)?;
        let group_uuid = reader.uuid()?;
        let disk_uuid = reader.uuid()?;
        let first_block = reader.u64()?;
        reader.reserved_until(CHECKSUM_BLOCK_HEADER_BYTES)?;
        let mut sums = Box::new([0; SUMS_PER_BLOCK]);
        for sum in sums.iter_mut() {
            *sum = reader.u32()?;
        }
        Ok(Self {
            sequence,
            group_uuid,
            disk_uuid,
            first_block,
            sums,
        })
    }

    /// The bytes of the block for `place`.
    #[must_use]
    pub fn encode(&self, place: u64) -> Vec<u8> {
        let mut writer = HEADER.begin(CHECKSUM_BLOCK_BYTES, place, self.sequence);
        writer.bytes(&self.group_uuid.0);
        writer.bytes(&self.disk_uuid.0);
        writer.u64(self.first_block);
        writer.reserved_until(CHECKSUM_BLOCK_HEADER_BYTES);
        for sum in self.sums.iter() {
            writer.u32(*sum);
        }
        Header::finish(writer)
    }
}

/// The sum of a block of the region: its number is part of it, so that a block's bytes in
/// another block's place are found out. Never zero, which means "never written".
#[must_use]
pub fn block_sum(block: u64, bytes: &[u8]) -> u32 {
    let sum = crc32c(bytes) ^ crc32c(&block.to_le_bytes());
    if sum == 0 { 1 } else { sum }
}

/// Pairs of checksum blocks at the start of a run of `aus` AUs.
#[must_use]
pub const fn run_checksum_pairs(aus: u32, au_size: AuSize) -> u64 {
    (aus as u64 * au_size.blocks()).div_ceil(SUMS_PER_BLOCK as u64 + 2)
}

/// Data blocks of a run of `aus` AUs.
#[must_use]
pub const fn run_data_blocks(aus: u32, au_size: AuSize) -> u64 {
    aus as u64 * au_size.blocks() - 2 * run_checksum_pairs(aus, au_size)
}
