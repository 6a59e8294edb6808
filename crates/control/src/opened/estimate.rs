//! What a change would cost, told before anything starts: of a group that a process serves, or
//! of one that nobody has open. Then its disks are opened to be looked at, and nothing is written.

use spindle_base::DiskNumber;
use spindle_group::{Estimate, PlannedChange, Power};

use crate::api::error::ControlResult;
use crate::api::estimate::{
    DiskAfterReport, EstimateReport, EstimateRequest, FlowReport, PaceReport,
};
use crate::machine::settings::Settings;
use crate::opened::open::Opened;

fn report_of(opened: &Opened, estimate: &Estimate) -> EstimateReport {
    let before = opened.group().view();
    let name = |disk: DiskNumber| {
        let known = estimate.disks.iter().find(|then| then.number == disk);
        let name = known.map(|then| then.name.to_string());
        let former = || opened.group().disk_name(disk).map(|name| name.to_string());
        name.or_else(former).unwrap_or_else(|| disk.to_string())
    };
    let own = opened.group().default_power();
    let time = |time: &spindle_group::TimeAtPower| PaceReport {
        power: Power::number(time.power),
        seconds: time.seconds,
        is_default: time.power == own,
    };
    let disk = |then: &spindle_group::DiskAfter| DiskAfterReport {
        number: then.number.0,
        name: then.name.to_string(),
        failure_group: then.failure_group.to_string(),
        total_bytes: then.total_bytes,
        free_bytes: then.free_bytes,
        free_before_bytes: (before.disks.iter())
            .find(|disk| disk.number == then.number)
            .map(|disk| disk.free_bytes),
        receives: then.receives,
        rate_bytes_per_s: then.rate_bytes_per_s,
        rate_is_measured: then.rate_is_measured,
    };
    EstimateReport {
        group: opened.group_name().to_owned(),
        moved_bytes: estimate.moved_bytes,
        restored_bytes: estimate.restored_bytes,
        resynced_bytes: estimate.resynced_bytes,
        stuck_bytes: estimate.stuck_bytes,
        flows: (estimate.flows.iter())
            .map(|flow| FlowReport {
                from: name(flow.from),
                to: name(flow.to),
                bytes: flow.bytes,
            })
            .collect(),
        times: estimate.times.iter().map(time).collect(),
        disks: estimate.disks.iter().map(disk).collect(),
        free_bytes: estimate.free_bytes,
        free_before_bytes: before.free_bytes,
        required_mirror_free_bytes: estimate.required_mirror_free_bytes,
        usable_bytes: estimate.usable_bytes,
        usable_before_bytes: before.usable_bytes,
    }
}

impl Opened {
    /// Tells what a change would cost.
    ///
    /// # Errors
    /// What the change itself would be refused with.
    pub fn estimate(
        &self,
        settings: &Settings,
        request: &EstimateRequest,
    ) -> ControlResult<EstimateReport> {
        request.check_size()?;
        if let Some(disks) = &request.disks {
            // Disks that were opened for it are let go at the end, and files made are removed.
            let (changes, _borrowed) = self.prepare_changes(disks)?;
            return self.tell(&PlannedChange::Disks(changes));
        }
        if let Some(names) = &request.offline {
            return self.tell(&PlannedChange::Offline(self.numbers(names)?));
        }
        if let Some(names) = &request.online {
            let slots = self.slots_of_away(settings, names)?;
            let told = self.tell(&PlannedChange::Online(slots.clone()));
            self.release_untaken(&slots);
            return told;
        }
        self.tell(&PlannedChange::Rebalance)
    }

    fn tell(&self, change: &PlannedChange) -> ControlResult<EstimateReport> {
        let estimate = self.group().estimate(change)?;
        Ok(report_of(self, &estimate))
    }
}
