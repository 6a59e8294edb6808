//! What a client is answered in the transmission phase.
//!
//! Where structured replies were negotiated a read is always answered by chunks, an error by a chunk
//! with a text; "done" without data is a simple reply, which is allowed there and shorter.

use crate::negotiation::Agreed;
use crate::request::Request;
use crate::volume::{Stretch, VolumeError};
use crate::wire::{CHUNK_MAGIC, SIMPLE_REPLY_MAGIC, STRING_BYTES_MAX, chunk, state};

/// The number of `base:allocation` in replies.
pub(crate) const ALLOCATION_ID: u32 = 1;
/// Stretches told in one reply.
pub const STRETCHES_MOST: usize = 4096;

fn simple(error: u32, cookie: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16);
    bytes.extend(SIMPLE_REPLY_MAGIC.to_be_bytes());
    bytes.extend(error.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes
}

/// The head of the only chunk of a reply.
fn only_chunk(kind: u16, cookie: u64, length_bytes: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(32);
    bytes.extend(CHUNK_MAGIC.to_be_bytes());
    bytes.extend(chunk::DONE.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(length_bytes.to_be_bytes());
    bytes
}

/// It is done.
#[must_use]
pub fn done(cookie: u64) -> Vec<u8> {
    simple(0, cookie)
}

/// What comes before the bytes of a read; all of them must follow.
#[must_use]
pub fn before_data(agreed: Agreed, request: &Request) -> Vec<u8> {
    if !agreed.is_structured {
        return simple(0, request.cookie);
    }
    if request.length_bytes == 0 {
        // A chunk of data has at least one byte.
        return only_chunk(chunk::NONE, request.cookie, 0);
    }
    let length_bytes = request.length_bytes + 8;
    let mut bytes = only_chunk(chunk::OFFSET_DATA, request.cookie, length_bytes);
    bytes.extend(request.offset_bytes.to_be_bytes());
    bytes
}

/// It is not done.
#[must_use]
pub fn failed(agreed: Agreed, cookie: u64, error: &VolumeError) -> Vec<u8> {
    if !agreed.is_structured {
        return simple(error.code.number(), cookie);
    }
    let text = cut(&error.message);
    let text_bytes = u16::try_from(text.len()).unwrap_or(0);
    let mut bytes = only_chunk(chunk::ERROR, cookie, 6 + u32::from(text_bytes));
    bytes.extend(error.code.number().to_be_bytes());
    bytes.extend(text_bytes.to_be_bytes());
    bytes.extend(text.as_bytes());
    bytes
}

/// As much of a text as a string may have.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(STRING_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// What lies in a range. Stretches that are empty or beyond `length_bytes` are not told; where none
/// is left all of it is told as data, which is always true enough.
#[must_use]
pub fn status(cookie: u64, length_bytes: u32, stretches: &[Stretch], most: usize) -> Vec<u8> {
    let mut told: Vec<(u32, u32)> = Vec::new();
    let mut left = length_bytes;
    for stretch in stretches {
        let length = u32::try_from(stretch.length_bytes).unwrap_or(u32::MAX);
        let length = length.min(left);
        let flags = if stretch.is_hole {
            state::HOLE | state::ZERO
        } else {
            0
        };
        left -= length;
        let is_full = told.len() == most;
        match told.last_mut() {
            _ if length == 0 => {}
            Some(last) if last.1 == flags => last.0 += length,
            _ if is_full => break,
            _ => told.push((length, flags)),
        }
    }
    if told.is_empty() {
        told.push((length_bytes, 0));
    }
    let payload_bytes = u32::try_from(4 + 8 * told.len()).unwrap_or(u32::MAX);
    let mut bytes = only_chunk(chunk::BLOCK_STATUS, cookie, payload_bytes);
    bytes.extend(ALLOCATION_ID.to_be_bytes());
    for (length, flags) in told {
        bytes.extend(length.to_be_bytes());
        bytes.extend(flags.to_be_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests;
