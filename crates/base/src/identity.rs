//! Identities: which disk, which file, which group.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A disk's number within its group, from 0. It is never reused while a map may name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DiskNumber(pub u16);

impl fmt::Display for DiskNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A file's number within its group, from 1; the root directory is 1. It is the inode number
/// that `stat` shows and is never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FileId(pub u64);

impl FileId {
    /// The root directory of every group.
    pub const ROOT: Self = Self(1);
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Counts the edits of a group's catalog; a later edit has a larger number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sequence(pub u64);

/// 128 random bits that tell one group or disk from every other, copies of images apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Uuid;

    #[test]
    fn a_uuid_prints_in_the_usual_five_groups() {
        let uuid = Uuid([0xab; 16]);
        assert_eq!(uuid.to_string(), "abababab-abab-abab-abab-abababababab");
    }
}
