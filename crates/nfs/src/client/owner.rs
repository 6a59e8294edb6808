//! How a server tells one client from another.

use super::Settings;
use crate::compound::Verifier;
use crate::wire::OPAQUE_BYTES_MAX;

/// The owner that is registered: one for each file, the same whoever holds it, so that only a
/// successor at this file ends what its former holder had. Who only lists is nobody's successor.
pub fn of(settings: &Settings, verifier: Verifier) -> Vec<u8> {
    let mut owner = settings.owner.clone();
    let mut add = |part: &[u8]| {
        // The length before each part: no two lists of parts are the same bytes.
        owner.extend_from_slice(&(part.len() as u64).to_be_bytes());
        owner.extend_from_slice(part);
    };
    for name in &settings.directory {
        add(name.as_bytes());
    }
    match &settings.file {
        Some(file) => add(file.name.as_bytes()),
        None => add(&verifier),
    }
    if owner.len() > OPAQUE_BYTES_MAX {
        // Longer than the protocol has room for: what does not fit goes in as its sum.
        let kept_bytes = OPAQUE_BYTES_MAX - 8;
        let sum = fnv(&owner[kept_bytes..]);
        owner.truncate(kept_bytes);
        owner.extend_from_slice(&sum.to_be_bytes());
    }
    owner
}

/// Fowler, Noll and Vo's 64-bit sum (FNV-1a), which is the same in every version of this program.
#[must_use]
pub fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
