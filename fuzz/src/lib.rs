//! What the fuzz targets share.
//!
//! A decoder answers any bytes with a value or an error; a panic is a failure. What it accepts it
//! must encode to the same bytes again: there is one way to write each value.

use spindle_base::crc32c;
use spindle_format::HEADER_CHECKSUM_OFFSET;

/// Makes the common header of `bytes` right, so that the fuzzer's work is behind it: a checksum
/// would turn nearly every input away. Only for three inputs of four, that the header's own
/// checks are tried too. `length_bytes` is how much the checksum covers.
pub fn seal(bytes: &mut [u8], magic: &[u8; 8], version: u32, place: u64, length_bytes: usize) {
    if bytes.first().is_none_or(|byte| byte & 3 == 0) || bytes.len() < 32 {
        return;
    }
    bytes[..8].copy_from_slice(magic);
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    bytes[16..24].copy_from_slice(&place.to_le_bytes());
    let checksum = HEADER_CHECKSUM_OFFSET..HEADER_CHECKSUM_OFFSET + 4;
    bytes[checksum.clone()].fill(0);
    let covered = length_bytes.min(bytes.len());
    let sum = crc32c(&bytes[..covered]);
    bytes[checksum].copy_from_slice(&sum.to_le_bytes());
}

/// The input, cut or filled with zeros to `length_bytes`.
pub fn sized(input: &[u8], length_bytes: usize) -> Vec<u8> {
    let mut bytes = input.to_vec();
    bytes.resize(length_bytes, 0);
    bytes
}
