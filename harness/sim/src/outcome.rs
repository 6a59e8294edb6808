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
    /// Changes of the disks that were made.
    pub disk_changes: u64,
    /// Changes of the disks that were refused, with nothing changed.
    pub refused_changes: u64,
    /// Disks that joined.
    pub disks_added: u64,
    /// Disks that were emptied or made anew elsewhere, and forgotten.
    pub disks_dropped: u64,
    /// Disks that were kept after all.
    pub undrops: u64,
    /// Disks that others took the place of.
    pub replacements: u64,
    /// Disks that got another size.
    pub resizes: u64,
    /// Disks that were taken offline.
    pub offlines: u64,
    /// Disks that came back to an open group.
    pub returns: u64,
    /// Disks whose repair time was over.
    pub given_up: u64,
    /// Disks that were found slow.
    pub slow_disks: u64,
    /// Units of background work.
    pub work_units: u64,
    /// Bytes that they copied.
    pub copied_bytes: u64,
    /// Returned disks that were given what they missed.
    pub resyncs: u64,
    /// Runs of the making of missing copies.
    pub restores: u64,
    /// Rebalances that came to their end.
    pub rebalances: u64,
    /// Files that got another number of copies.
    pub conversions: u64,
    /// Scrubs that came to their end.
    pub scrubs: u64,
    /// Runs that came to rest: all work done, every copy whole and where it belongs.
    pub rests: u64,
    /// Bits of single copies that were flipped and found.
    pub flipped_copies: u64,
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
        self.disk_changes += other.disk_changes;
        self.refused_changes += other.refused_changes;
        self.disks_added += other.disks_added;
        self.disks_dropped += other.disks_dropped;
        self.undrops += other.undrops;
        self.replacements += other.replacements;
        self.resizes += other.resizes;
        self.offlines += other.offlines;
        self.returns += other.returns;
        self.given_up += other.given_up;
        self.slow_disks += other.slow_disks;
        self.work_units += other.work_units;
        self.copied_bytes += other.copied_bytes;
        self.resyncs += other.resyncs;
        self.restores += other.restores;
        self.rebalances += other.rebalances;
        self.conversions += other.conversions;
        self.scrubs += other.scrubs;
        self.rests += other.rests;
        self.flipped_copies += other.flipped_copies;
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
        )?;
        write!(
            f,
            "; disks: {} changes, {} refused, {} added, {} dropped, {} undropped, {} replaced, \
             {} resized, {} taken offline, {} returned, {} given up, {} slow",
            self.disk_changes,
            self.refused_changes,
            self.disks_added,
            self.disks_dropped,
            self.undrops,
            self.replacements,
            self.resizes,
            self.offlines,
            self.returns,
            self.given_up,
            self.slow_disks
        )?;
        write!(
            f,
            "; background: {} units, {} MiB copied, {} resyncs, {} restores, {} rebalances, \
             {} conversions, {} scrubs, {} flipped copies found; {} runs came to rest",
            self.work_units,
            self.copied_bytes >> 20,
            self.resyncs,
            self.restores,
            self.rebalances,
            self.conversions,
            self.scrubs,
            self.flipped_copies,
            self.rests
        )
    }
}
