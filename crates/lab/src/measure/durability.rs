//! The gate before anything is measured: what a contender does with a write that it acknowledges.
//!
//! Single writes are made durable in each way that a database uses ([`ways`]), by one writer and by
//! eight, and so are commits of the database itself ([`commits`]); what the leaf devices counted
//! meanwhile is held against the answers ([`judgement`]). One writer waits for each answer, so that
//! an honest storage flushes at least once for each, on as many devices as there are copies; of
//! several writers each has one write under way, so that a flush answers at most all of them.
//!
//! The load itself is held against them, too ([`load`]): what was honest while it was probed may
//! forget when it counts.
//!
//! What the counts cannot show is said and never held against anybody: a device without a volatile
//! cache gets no flushes, one that takes forced writes (FUA) needs none for some of them, and what
//! lies on another machine has no devices here ([`ground`]).

mod commits;
pub mod cut;
mod ground;
mod judgement;
mod load;
mod ways;

use std::path::Path;

use anyhow::Result;

pub use self::ground::{decisive, mounted};

use self::ground::Ground;
pub use self::load::{WhileMeasured, Worked};
use super::contender::{Place, Standing};
use super::database::{Server, Settings};
use super::device::Leaf;
use crate::record::{DeviceActivity, Durability, DurabilityClass, Gate, WayCount};

/// How many write at once where they may share their flushes.
const WRITERS: u32 = 8;

/// What was found so far of a contender.
#[derive(Debug)]
pub struct Findings {
    ground: Ground,
    copies: u32,
    fdatasyncs_per_s: f64,
    ways: Vec<WayCount>,
    uncounted: Option<String>,
}

/// Probes the place of a contender on these devices; the files of the probe are gone afterwards.
/// `simulated` says that the devices stand for disks wherever their bytes are: nothing beside them
/// is compared.
///
/// # Errors
/// Where the place cannot be written.
pub fn probe(standing: &Standing, leaves: &[Leaf], simulated: bool) -> Result<Findings> {
    // What has none of the devices is a directory that was there before.
    let ground = if standing.layout.devices == 0 {
        Ground::of_directory(&standing.place)
    } else {
        Ground::of_devices(&standing.place, leaves, simulated)
    };
    on(ground, &standing.place, standing.layout.copies)
}

/// Probes a directory that nobody of the lab made.
///
/// # Errors
/// Where it cannot be written.
pub fn probe_directory(directory: &Path) -> Result<Durability> {
    let place = Place::Directory(directory.to_owned());
    Ok(on(Ground::of_directory(&place), &place, 1)?.concluded())
}

fn on(ground: Ground, place: &Place, copies: u32) -> Result<Findings> {
    let mut findings = Findings {
        fdatasyncs_per_s: ways::pace(place)?,
        ground,
        copies,
        ways: Vec::new(),
        uncounted: None,
    };
    for writers in [1, WRITERS] {
        for way in ways::all(place) {
            if let Some(count) =
                findings.counted(|ground| ways::count(ground, place, *way, writers))?
            {
                findings.ways.push(count);
            }
        }
    }
    Ok(findings)
}

impl Findings {
    /// Adds commits of the database, which was started as it will be measured. `alone` keeps to one
    /// session.
    ///
    /// # Errors
    /// What the database says.
    pub fn add_commits(
        &mut self,
        server: &dyn Server,
        settings: &Settings,
        members: &[u32],
        alone: bool,
    ) -> Result<()> {
        self.ground.name_settings(server.kind(), settings);
        self.ground.look_at_processes(members);
        commits::with_table(server, |server| {
            for writers in [1, if alone { 1 } else { WRITERS }] {
                let count = self.counted(|ground| commits::count(ground, server, writers))?;
                self.ways.extend(count);
            }
            Ok(())
        })
    }

    /// The counters of the leaf devices, before a load.
    #[must_use]
    pub fn before_the_load(&self) -> Vec<DeviceActivity> {
        self.ground.read()
    }

    /// Adds the load: all of it, and the measured part where that falls short by itself. `before` is
    /// what the counters said before its first operation. A load that counted nothing was held
    /// against nothing, and stands nowhere.
    pub fn add_load(&mut self, before: &[DeviceActivity], worked: &Worked) {
        let whole = |acknowledged| WayCount {
            copies_away: worked.copies_away,
            ..(self.ground).since(before, load::NAME, worked.writers, acknowledged)
        };
        let counted = worked.commits.filter(|commits| *commits > 0);
        self.ways.extend(counted.map(whole));
        let measured = worked.measured();
        self.ways
            .extend(measured.filter(|count| !judgement::is_flushed(count, self.copies)));
    }

    /// Why the load was not all counted: what was not is neither durable nor accused.
    pub fn add_uncounted(&mut self, reason: Option<String>) {
        self.uncounted = reason;
    }

    /// Counts; what falls short is counted once more, so that nobody is accused by one reading.
    fn counted(
        &self,
        count: impl Fn(&Ground) -> Result<Option<WayCount>>,
    ) -> Result<Option<WayCount>> {
        let Some(first) = count(&self.ground)? else {
            return Ok(None);
        };
        if judgement::is_flushed(&first, self.copies) {
            return Ok(Some(first));
        }
        let second = count(&self.ground)?;
        Ok(second
            .filter(|second| judgement::is_better(second, &first))
            .or(Some(first)))
    }

    /// The class, for the record.
    #[must_use]
    pub fn concluded(self) -> Durability {
        let judged = judgement::judge(&self.ground, &self.ways, self.copies);
        let (class, reason) = judgement::as_far_as_counted(judged, self.uncounted);
        Durability {
            fdatasyncs_per_s: self.fdatasyncs_per_s,
            gate: Some(Gate {
                class,
                reason,
                ways: self.ways,
            }),
        }
    }
}

/// What is recorded where the probe itself failed.
#[must_use]
pub fn unseen(error: &anyhow::Error) -> Durability {
    Durability {
        fdatasyncs_per_s: 0.0,
        gate: Some(Gate {
            class: DurabilityClass::CannotBeSeen,
            reason: format!("the probe of its durability failed: {error:#}"),
            ways: Vec::new(),
        }),
    }
}
