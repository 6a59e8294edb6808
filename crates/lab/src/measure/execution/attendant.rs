//! The one who sees to each run and outlives those that hang.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;

use super::{Bench, failed, note, unix_now_s};
use crate::measure::device::DeviceSet;
use crate::measure::patience::{Attended, attend};
use crate::measure::place::force_mounts_away;
use crate::measure::process;
use crate::record::{PlannedRun, Run, SCHEMA};

/// Does runs one after the other on the devices of an experiment.
pub struct Attendant {
    bench: Arc<Bench>,
    devices: Arc<DeviceSet>,
    is_stuck: bool,
}

impl Attendant {
    /// On these devices.
    #[must_use]
    pub fn new(bench: Bench, devices: Arc<DeviceSet>) -> Self {
        Self {
            bench: Arc::new(bench),
            devices,
            is_stuck: false,
        }
    }

    /// Whether a run was left behind that still holds the devices.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.is_stuck
    }

    /// On other devices, from now on.
    pub fn go_on_with(&mut self, devices: Arc<DeviceSet>) {
        self.devices = devices;
        self.is_stuck = false;
    }

    /// Does a planned run; its samples and its log go to `folder`. `arrivals_per_s` is the rate of
    /// a load that is open by a share of a peak, or why there is no peak.
    pub fn execute(
        &mut self,
        planned: &PlannedRun,
        folder: &Path,
        arrivals_per_s: Result<Option<f64>>,
    ) -> Run {
        let began = Instant::now();
        let began_unix_s = unix_now_s();
        let work = {
            let (bench, devices) = (Arc::clone(&self.bench), Arc::clone(&self.devices));
            let (planned, folder) = (planned.clone(), folder.to_owned());
            move || bench.execute(&devices, &planned, &folder, arrivals_per_s)
        };
        let attended = attend(
            &self.bench.watch,
            work,
            || self.bench.members(),
            || self.rescue(planned),
        );
        let reason = match attended {
            Ok(Attended::Ended(run)) => return run,
            Ok(Attended::Hung {
                reason,
                waits,
                is_left_behind,
            }) => {
                self.is_stuck = is_left_behind;
                for line in &waits {
                    note(folder, line);
                }
                if is_left_behind {
                    format!("{reason}, and cannot be ended: the kernel holds it")
                } else {
                    reason
                }
            }
            Ok(Attended::Broke) => "a mistake of the lab's own: its thread panicked".to_owned(),
            Err(error) => format!("{error:#}"),
        };
        Run {
            schema: SCHEMA,
            planned: planned.clone(),
            began_unix_s,
            elapsed_s: began.elapsed().as_secs_f64(),
            layout: None,
            outcome: failed(folder, &reason),
        }
    }

    /// Ends what the storage is served by, and takes its mounts away by force: what waits for them
    /// gets an error.
    fn rescue(&self, planned: &PlannedRun) {
        process::end(&self.bench.members());
        force_mounts_away(&self.bench.scratch(planned));
    }
}
