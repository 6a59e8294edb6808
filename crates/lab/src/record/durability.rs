//! What a contender did with acknowledged writes: the class in which it may be ranked.

use serde::{Deserialize, Serialize};

/// The probe of durable writes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Durability {
    /// Writes of 8 KiB, each followed by fdatasync, a second, one after the other.
    pub fdatasyncs_per_s: f64,
    /// What was found of its acknowledgements; none in a record from before this was looked at.
    #[serde(default)]
    pub gate: Option<Gate>,
}

/// Only what is of one class is ranked together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DurabilityClass {
    /// Each acknowledgement came with the flushes that it needs.
    Durable,
    /// It cannot be seen from here whether they did.
    CannotBeSeen,
    /// It acknowledges what a loss of power takes away.
    NotDurable,
}

impl DurabilityClass {
    /// As a person reads it.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Durable => "durable",
            Self::CannotBeSeen => "cannot be seen",
            Self::NotDurable => "not durable",
        }
    }
}

/// The class of a contender, with what it rests on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gate {
    /// The class.
    pub class: DurabilityClass,
    /// Why, in a clause, with the figures.
    pub reason: String,
    /// What was counted.
    pub ways: Vec<WayCount>,
}

/// One way to make writes durable, as it was counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WayCount {
    /// Such as `fdatasync`, or `commit` for those of the database.
    pub way: String,
    /// How many wrote at once; each waits for its answer before it writes again.
    pub writers: u32,
    /// Answers.
    pub acknowledged: u64,
    /// Flushes that the leaf devices finished meanwhile, all together.
    pub flushes: f64,
    /// Writes that they finished meanwhile.
    pub writes: f64,
}
