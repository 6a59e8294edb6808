//! Features: what a group's disks may hold that earlier programs do not know.
//!
//! Each is a bit in the group state, set when the feature is first used and never taken away
//! again. So an older program goes on with a group until then; afterwards it finds a bit that it
//! does not know and refuses the group, before it has written anything. Whatever changes what a
//! structure or a record may hold gets a bit here, in the same commit.

use std::fmt;

use serde::{Serialize, Serializer};

/// Something that disks may hold since a later format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Feature {
    /// The group state can say of a disk that is away that it lost what it held.
    LostContents,
    /// The catalog can say in one row that several files owe an error.
    OwedTogether,
    /// The row of a region that is written to can list the blocks that a disk lacks.
    ListedRegions,
}

impl Feature {
    /// Every feature, in the order of the bits.
    pub const ALL: [Self; 3] = [Self::LostContents, Self::OwedTogether, Self::ListedRegions];

    const fn bit(self) -> u32 {
        match self {
            Self::LostContents => 1,
            Self::OwedTogether => 2,
            Self::ListedRegions => 4,
        }
    }

    /// Its name, as listings show it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LostContents => "lost_contents",
            Self::OwedTogether => "owed_together",
            Self::ListedRegions => "listed_regions",
        }
    }

    /// What sets it.
    #[must_use]
    pub const fn set_when(self) -> &'static str {
        match self {
            Self::LostContents => "a disk is seen smaller than its label says",
            Self::OwedTogether => {
                "a daemon is killed, and a disk may have lost what only it had of files"
            }
            Self::ListedRegions => "a disk lacks blocks of a file that is written to",
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The features that a group uses; all of them are known to this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features(u32);

impl Features {
    /// The features of these bits.
    ///
    /// # Errors
    /// The bits that this program does not know.
    pub(crate) fn of_bits(bits: u32) -> Result<Self, u32> {
        let known = Self::known().0;
        if bits & !known == 0 {
            Ok(Self(bits))
        } else {
            Err(bits & !known)
        }
    }

    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    /// All that this program knows.
    #[must_use]
    pub fn known() -> Self {
        (Feature::ALL.into_iter()).fold(Self::default(), Self::with)
    }

    /// Whether the feature is among them.
    #[must_use]
    pub const fn contains(self, feature: Feature) -> bool {
        self.0 & feature.bit() != 0
    }

    /// These and one more.
    #[must_use]
    pub const fn with(self, feature: Feature) -> Self {
        Self(self.0 | feature.bit())
    }

    /// The features one by one.
    pub fn iter(self) -> impl Iterator<Item = Feature> {
        (Feature::ALL.into_iter()).filter(move |feature| self.contains(*feature))
    }
}

impl Serialize for Features {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(Feature::name))
    }
}
