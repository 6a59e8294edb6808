//! Round trips, and what decoders say of bytes that are not theirs.

mod places;
mod records;
mod signatures;
