//! Sizes and the two choices of layout a file has.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The unit of addressing on disk, in bytes: the smallest run a file can own.
pub const BLOCK_SIZE_BYTES: u64 = 4096;

/// The size of an allocation unit: a power of two from 1 to 64 MiB, fixed when a group is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct AuSize {
    log2_bytes: u8,
}

/// A number of bytes that is no AU size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is no AU size: choose 1M, 2M, 4M, 8M, 16M, 32M or 64M")]
pub struct AuSizeError(pub String);

impl AuSize {
    /// 1 MiB: one AU is one request of the mount, so that every disk of a stripe is busy soonest.
    pub const DEFAULT: Self = Self { log2_bytes: 20 };

    /// From a number of bytes.
    ///
    /// # Errors
    /// [`AuSizeError`] unless it is a power of two from 1 MiB to 64 MiB.
    pub fn from_bytes(bytes: u64) -> Result<Self, AuSizeError> {
        for log2_bytes in 20..=26 {
            if bytes == 1 << log2_bytes {
                return Ok(Self { log2_bytes });
            }
        }
        Err(AuSizeError(bytes.to_string()))
    }

    /// In bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        1 << self.log2_bytes
    }

    /// In blocks of 4 KiB.
    #[must_use]
    pub const fn blocks(self) -> u64 {
        self.bytes() / BLOCK_SIZE_BYTES
    }

    /// The length class of an extent of one AU: an extent has 2^class blocks.
    #[must_use]
    pub const fn class(self) -> u8 {
        self.log2_bytes - 12
    }
}

impl FromStr for AuSize {
    type Err = AuSizeError;
    fn from_str(text: &str) -> Result<Self, AuSizeError> {
        let digits = text.strip_suffix(['M', 'm']).unwrap_or("");
        let mebibytes: u64 = digits.parse().map_err(|_| AuSizeError(text.to_owned()))?;
        mebibytes
            .checked_mul(1 << 20)
            .and_then(|bytes| Self::from_bytes(bytes).ok())
            .ok_or_else(|| AuSizeError(text.to_owned()))
    }
}

impl fmt::Display for AuSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}M", self.bytes() >> 20)
    }
}

impl TryFrom<u64> for AuSize {
    type Error = AuSizeError;
    fn try_from(bytes: u64) -> Result<Self, AuSizeError> {
        Self::from_bytes(bytes)
    }
}

impl From<AuSize> for u64 {
    fn from(size: AuSize) -> Self {
        size.bytes()
    }
}

/// How many copies of each extent there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Redundancy {
    /// One copy: the disks, or what is below them, guard themselves.
    External,
    /// Two copies in two failure groups.
    Normal,
    /// Three copies in three failure groups.
    High,
}

impl Redundancy {
    /// The number of copies.
    #[must_use]
    pub const fn copies(self) -> usize {
        match self {
            Self::External => 1,
            Self::Normal => 2,
            Self::High => 3,
        }
    }

    /// The redundancy with so many copies, 1 to 3.
    #[must_use]
    pub const fn of_copies(copies: usize) -> Option<Self> {
        match copies {
            1 => Some(Self::External),
            2 => Some(Self::Normal),
            3 => Some(Self::High),
            _ => None,
        }
    }
}

impl fmt::Display for Redundancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::External => "external",
            Self::Normal => "normal",
            Self::High => "high",
        })
    }
}

/// How a file's bytes go over its extents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Striping {
    /// Extent after extent: large transfers, one disk a request.
    Coarse,
    /// 128 KiB over eight columns: small writes in a row spread over eight disks.
    Fine,
}

impl Striping {
    /// The bytes of one column's turn under fine striping.
    pub const FINE_CHUNK_BYTES: u64 = 128 << 10;
    /// The columns of fine striping.
    pub const FINE_COLUMNS: u64 = 8;
}

impl fmt::Display for Striping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Coarse => "coarse",
            Self::Fine => "fine",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::AuSize;

    #[test]
    fn au_sizes_are_the_seven_powers_of_two_that_asm_has() {
        assert_eq!("4M".parse::<AuSize>().unwrap().bytes(), 4 << 20);
        assert_eq!(AuSize::DEFAULT.class(), 8);
        for bad in ["3M", "128M", "0M", "1G", "", "M"] {
            assert!(bad.parse::<AuSize>().is_err(), "{bad}");
        }
    }
}
