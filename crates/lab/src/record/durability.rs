//! What a contender did with acknowledged writes: the class in which it may be ranked.

use std::collections::BTreeMap;

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
    /// Of the copies, how many had their device away for some of that time: these flushed nothing.
    #[serde(default)]
    pub copies_away: u32,
}

/// What came of cutting the power of each contender before anything was measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cuts {
    /// [`super::SCHEMA`].
    pub schema: u32,
    /// By the contender's name.
    pub contenders: BTreeMap<String, Cut>,
}

/// What came of it for one of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Cut {
    /// Its disks were rebuilt as after a loss of power, and it was started again on them.
    Made {
        /// As at how many moments.
        moments: u32,
        /// Writes that it had acknowledged.
        acknowledged: usize,
        /// What of these was not there, a sentence a moment.
        lost: Vec<String>,
        /// Commits of a journal in the record; none in cuts that an earlier lab made.
        #[serde(default)]
        commits: JournalCommits,
        /// What moments and losses were drawn from.
        seed: u64,
        /// How long all of it took.
        elapsed_s: f64,
    },
    /// They were not.
    NotMade {
        /// Why, in a clause.
        reason: String,
        /// Whether it could have been done, and the file asks for none.
        #[serde(default)]
        by_choice: bool,
    },
}

/// Commits of the journal of ext3 or ext4 that the recorded disks saw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalCommits {
    /// All.
    pub count: usize,
    /// Those that were written before each disk had been flushed after their descriptors.
    pub overtook_flush: usize,
}

impl Cut {
    /// Whether nobody asked for it.
    #[must_use]
    pub fn is_declined(&self) -> bool {
        matches!(
            self,
            Self::NotMade {
                by_choice: true,
                ..
            }
        )
    }

    /// Whether something was lost.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Made { lost, .. } if !lost.is_empty())
    }

    /// What came of it, in a clause.
    #[must_use]
    pub fn clause(&self) -> String {
        match self {
            Self::NotMade { reason, .. } => format!("its power was not cut: {reason}"),
            Self::Made {
                moments,
                acknowledged,
                lost,
                ..
            } => match lost.first() {
                None => format!(
                    "its power was cut at {moments} moments, and none of {acknowledged} acknowledged writes was lost"
                ),
                Some(first) => format!(
                    "its power was cut at {moments} moments, and after {} of them acknowledged writes were lost (the first: {first})",
                    lost.len()
                ),
            },
        }
    }
}
