//! The words every other layer speaks: units as types, names, checksums and error classes.
//!
//! Nothing here does I/O, reads a clock or is unsafe. A value that exists is valid: names and
//! sizes are checked where they are made.

mod causes;
mod checksum;
mod count_text;
mod error;
mod identity;
mod name;
mod size;
mod size_text;

pub use causes::causes;
pub use checksum::crc32c;
pub use count_text::count_text;
pub use error::ErrorClass;
pub use identity::{DiskNumber, FileId, Sequence, Uuid};
pub use name::{DiskName, FailureGroupName, GroupName, NameError};
pub use size::{AuSize, AuSizeError, BLOCK_SIZE_BYTES, Redundancy, Striping};
pub use size_text::{signed_size_text, size_text};
