//! Floor 4 of 7, above `core` and below `background`: reading and writing files. The plan executed,
//! and what failed put right.
//!
//! A crash finds nothing of this in the catalog but what a commit took: extents with their
//! marks, and dirty regions. Data may be there or not until a sync covered it.

pub(crate) mod allocate;
pub(crate) mod mend;
pub(crate) mod punch;
pub(crate) mod read;
pub(crate) mod recovery;
pub(crate) mod repair;
pub(crate) mod show;
pub(crate) mod write;

pub(crate) use mend::Mended;

use std::sync::LazyLock;

use spindle_base::BLOCK_SIZE_BYTES;
use spindle_device::AlignedBuffer;

/// The most that is zeroed by one request.
const ZERO_BLOCKS: u64 = (1 << 20) / BLOCK_SIZE_BYTES;

/// Zeros to write from.
static ZEROS: LazyLock<AlignedBuffer> =
    LazyLock::new(|| AlignedBuffer::zeroed(bytes_of(ZERO_BLOCKS)));

/// So many blocks as a length in memory.
pub(crate) fn bytes_of(blocks: u64) -> usize {
    usize::try_from(blocks * BLOCK_SIZE_BYTES).expect("a request fits the address space")
}

/// The blocks that a byte range touches, and whether it covers them whole. `None` where its end
/// is beyond all numbers.
fn blocks_of(offset_bytes: u64, length_bytes: usize) -> Option<(u64, u64, bool)> {
    let end_bytes = offset_bytes.checked_add(length_bytes as u64)?;
    let whole =
        offset_bytes.is_multiple_of(BLOCK_SIZE_BYTES) && end_bytes.is_multiple_of(BLOCK_SIZE_BYTES);
    Some((
        offset_bytes / BLOCK_SIZE_BYTES,
        end_bytes.div_ceil(BLOCK_SIZE_BYTES),
        whole,
    ))
}
