//! What a change would cost, told before anything starts: of a group that a process serves, or
//! of one that nobody has open. Then its disks are opened to be looked at, and nothing is written.

use serde::{Deserialize, Serialize};
use spindle_base::{DiskNumber, GroupName};
use spindle_group::{Estimate, PlannedChange, Power};
use utoipa::ToSchema;

use crate::disk_changes::{DiskChangesRequest, DiskNames};
use crate::error::ControlResult;
use crate::opening::{Access, Opened};
use crate::settings::Settings;
use crate::sockets;
use crate::starting::absolute;

/// What to tell the costs of: one of these, or a rebalance of what is there where none is given.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EstimateRequest {
    /// Changes of the disks.
    pub disks: Option<DiskChangesRequest>,
    /// Names of disks that go offline.
    pub offline: Option<Vec<String>>,
    /// Names of disks that come back; all that are away where the list is empty.
    pub online: Option<Vec<String>>,
}

impl EstimateRequest {
    /// Refuses what names more disks than a group can have.
    ///
    /// # Errors
    /// Where that is so.
    fn check_size(&self) -> ControlResult<()> {
        for names in [&self.offline, &self.online].into_iter().flatten() {
            DiskNames::of(names)?;
        }
        self.disks
            .as_ref()
            .map_or(Ok(()), DiskChangesRequest::check_size)
    }
}

/// Bytes that go from one disk to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FlowReport {
    /// The name of the disk that is read.
    pub from: String,
    /// The name of the disk that is written.
    pub to: String,
    /// How much.
    pub bytes: u64,
}

/// How long it takes at a power.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PaceReport {
    /// The power.
    pub power: u16,
    /// Seconds, while databases use the disks.
    pub seconds: u64,
    /// Whether it is the group's own power.
    pub is_default: bool,
}

/// A disk when all is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiskAfterReport {
    /// Its number in the group.
    pub number: u16,
    /// Its name.
    pub name: String,
    /// Disks that one fault can take away together.
    pub failure_group: String,
    /// What the group uses of it.
    pub total_bytes: u64,
    /// What no extent uses then; the catalog is counted where it is now.
    pub free_bytes: u64,
    /// What is free now; `null` for a disk that joins.
    pub free_before_bytes: Option<u64>,
    /// Whether new extents go there then.
    pub receives: bool,
    /// Bytes a second that the times count on.
    pub rate_bytes_per_s: u64,
    /// Whether the rate was measured, by the disk's own large reads; else it is an assumption.
    pub rate_is_measured: bool,
}

/// What a change would cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EstimateReport {
    /// The group.
    pub group: String,
    /// Copies that lie on another disk afterwards.
    pub moved_bytes: u64,
    /// Copies that are made from others, because they are missing or given up.
    pub restored_bytes: u64,
    /// What disks that come back have missed.
    pub resynced_bytes: u64,
    /// Copies for which there would be no place: the change would not come to its end.
    pub stuck_bytes: u64,
    /// All of it from disk to disk.
    pub flows: Vec<FlowReport>,
    /// How long it takes at some powers.
    pub times: Vec<PaceReport>,
    /// The disks when all is done, without those that have left.
    pub disks: Vec<DiskAfterReport>,
    /// What no extent uses then.
    pub free_bytes: u64,
    /// What is free now.
    pub free_before_bytes: u64,
    /// What must stay free then, so that redundancy can be restored after a failure.
    pub required_mirror_free_bytes: u64,
    /// What can be written then; negative where a failure could not be repaired any more.
    pub usable_bytes: i64,
    /// The same now.
    pub usable_before_bytes: i64,
}

impl EstimateReport {
    fn new(opened: &Opened, estimate: &Estimate) -> Self {
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
        Self {
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
}

/// Tells what a change would cost; nothing is changed.
///
/// # Errors
/// What the change itself would be refused with.
pub fn estimate(
    settings: &Settings,
    group: &GroupName,
    request: &EstimateRequest,
) -> ControlResult<EstimateReport> {
    let mut request = request.clone();
    if let Some(disks) = &mut request.disks {
        let replacing = disks.replace.iter_mut().map(|item| &mut item.with);
        for disk in disks.add.iter_mut().chain(replacing) {
            disk.path = absolute(&disk.path)?;
        }
    }
    request.check_size()?;
    let Some(client) = sockets::find(settings, group.as_str())? else {
        let opened = Opened::open(settings, group, &Access::Look { force: false })?;
        return opened.estimate(settings, &request);
    };
    client.post_json("/estimate", &request)
}

impl Opened {
    /// Tells what a change would cost.
    ///
    /// # Errors
    /// As [`estimate`].
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
        Ok(EstimateReport::new(self, &estimate))
    }
}
