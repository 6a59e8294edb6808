//! How a run ended.

use std::fmt;

/// A broken promise.
#[derive(Debug, Clone)]
pub struct Violation {
    /// The run's seed.
    pub seed: u64,
    /// The step of the plan that met it.
    pub step: usize,
    /// What was found and what was expected.
    pub message: String,
    /// What the run did, the newest last.
    pub trace: Vec<String>,
}

/// How many of the last steps a violation shows.
const TRACE_LINES_SHOWN: usize = 30;

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left_out = self.trace.len().saturating_sub(TRACE_LINES_SHOWN);
        for line in self
            .trace
            .iter()
            .take(1)
            .chain(self.trace.iter().skip(left_out.max(1)))
        {
            writeln!(f, "    {line}")?;
        }
        writeln!(
            f,
            "seed {} step {}: {}\nmake sim SEED={}",
            self.seed, self.step, self.message, self.seed
        )
    }
}

/// What runs met, so that a simulator that no longer reaches something is noticed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Operations that were carried out.
    pub operations: u64,
    /// Power cuts.
    pub power_cuts: u64,
    /// Power cuts while a group was being opened.
    pub power_cuts_in_recovery: u64,
    /// Processes killed with the power on.
    pub kills: u64,
    /// Faults put on disks.
    pub faults: u64,
    /// Openings refused for want of a majority, and repeated with the disks or by force.
    pub refused_openings: u64,
    /// Groups that stopped because most voters failed in one moment.
    pub lost_majorities: u64,
    /// Operations that found no room.
    pub full: u64,
    /// Runs ended early by more faults than the redundancy bears.
    pub lost_groups: u64,
}

impl Coverage {
    /// Adds what another run met.
    pub fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.power_cuts += other.power_cuts;
        self.power_cuts_in_recovery += other.power_cuts_in_recovery;
        self.kills += other.kills;
        self.faults += other.faults;
        self.refused_openings += other.refused_openings;
        self.lost_majorities += other.lost_majorities;
        self.full += other.full;
        self.lost_groups += other.lost_groups;
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} operations, {} power cuts ({} in recovery), {} kills, {} faults, {} refused openings, {} lost majorities, {} times full, {} groups lost",
            self.operations,
            self.power_cuts,
            self.power_cuts_in_recovery,
            self.kills,
            self.faults,
            self.refused_openings,
            self.lost_majorities,
            self.full,
            self.lost_groups
        )
    }
}
