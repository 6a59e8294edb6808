//! Round trips, and what decoders say of bytes that are not theirs.

mod fuzzing;
mod golden;
mod pages;
mod places;
mod records;
mod signatures;
