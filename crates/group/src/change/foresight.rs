//! What a change of the disks would come to, before anything is written: it is judged as the
//! change itself would be, with the same refusals, and then planned over a copy of the state.
//!
//! Nothing here changes the group, in memory or on a disk.

use std::collections::BTreeMap;

use spindle_base::{BLOCK_SIZE_BYTES, DiskNumber};
use spindle_device::DiskSlot;
use spindle_extent::plan::{self, Serving, TooFar};
use spindle_format::DiskStatus;

use crate::background::Group;
use crate::background::{Goal, PlanDisk, Role};
use crate::change::judgement::Judged;
use crate::change::{DiskThen, Estimate, Flows, Foreseen, PlannedChange, foresee, stuck_blocks};
use crate::core::Core;
use crate::core::dirty::{REGION_BLOCKS, StaleRegion};
use crate::error::GroupError;

impl Group {
    /// What the change would cost: bytes from disk to disk, the time at some powers, the space
    /// afterwards. Nothing is changed.
    ///
    /// # Errors
    /// What the change itself would be refused with.
    pub fn estimate(&self, change: &PlannedChange) -> Result<Estimate, GroupError> {
        self.check_fence()?;
        let mut disks = self.disks_now();
        let mut plan_disks = self.plan_disks();
        let mut flows = Flows::default();
        let mut plans = true;
        match change {
            PlannedChange::Rebalance => {}
            PlannedChange::Disks(changes) => {
                let judged = self.judge_changes(changes)?;
                self.put_change(&judged, &mut disks, &mut plan_disks);
            }
            PlannedChange::Offline(numbers) => {
                self.judge_offline(numbers)?;
                self.refuse_last_copies(numbers, "go offline")?;
                self.membership.judge_offline(numbers)?;
                for disk in &mut disks {
                    disk.receives &= !numbers.contains(&disk.number);
                }
                // It keeps its place until its repair time is over.
                plans = false;
            }
            PlannedChange::Online(slots) => {
                let back = self.judge_online(slots)?;
                for disk in &mut disks {
                    disk.receives |= back.contains(&disk.number);
                }
                self.foresee_resync(&back, &mut flows);
                plans = false;
            }
        }
        let mut maps = Foreseen::new(self, BTreeMap::new());
        let mut stuck = 0;
        if plans {
            for goal in [Goal::Restore, Goal::Rebalance] {
                foresee(&plan_disks, goal, &mut maps, &mut flows);
            }
            stuck = stuck_blocks(&plan_disks, &maps);
        }
        let redundancy = self.membership.redundancy();
        Ok(self.estimate_of(&disks, &flows, stuck, redundancy))
    }

    fn judge_online(&self, slots: &[DiskSlot]) -> Result<Vec<DiskNumber>, GroupError> {
        let held = self.held_epochs();
        let returning = self.membership.judge_return(slots, &held)?;
        Ok(returning.iter().map(|disk| disk.number).collect())
    }

    fn disks_now(&self) -> Vec<DiskThen> {
        (self.disks.iter().filter(|disk| disk.holds_data))
            .map(|disk| {
                let status = self.membership.status(disk.number);
                let used = self.space.used_blocks(disk.number);
                DiskThen {
                    number: disk.number,
                    name: disk.name(),
                    failure_group: disk.failure_group.clone(),
                    group_index: disk.group_index,
                    total_blocks: disk.total_bytes() / BLOCK_SIZE_BYTES,
                    used_blocks: used.saturating_sub(self.space.quarantined_blocks(disk.number)),
                    receives: disk.may_receive(),
                    leaves: matches!(status, Some(DiskStatus::Dropping | DiskStatus::Absent)),
                }
            })
            .collect()
    }

    /// The disks as they are when the change is made and nothing has moved yet.
    fn put_change(
        &self,
        judged: &Judged,
        disks: &mut Vec<DiskThen>,
        plan_disks: &mut Vec<PlanDisk>,
    ) {
        for (number, status) in &judged.statuses {
            let stays = *status == DiskStatus::Online;
            for disk in disks.iter_mut().filter(|disk| disk.number == *number) {
                disk.receives = stays;
                disk.leaves = matches!(status, DiskStatus::Dropping | DiskStatus::Absent);
            }
            let mut own = plan_disks.iter_mut().filter(|disk| disk.number == *number);
            if let Some(disk) = own.find(|disk| disk.begin_block == 0) {
                disk.role = match status {
                    DiskStatus::Dropping => Role::Leaves,
                    DiskStatus::Absent => Role::Lost,
                    // It is away, and nothing moves there or from there.
                    DiskStatus::Offline => Role::Stays,
                    DiskStatus::Online | DiskStatus::Adding => Role::Shares,
                };
            }
            // All of it leaves, or nothing does: it has no part that ends earlier any more.
            plan_disks.retain(|disk| disk.number != *number || disk.begin_block == 0);
        }
        for (number, size_aus) in &judged.sizes_aus {
            self.put_size(*number, u64::from(*size_aus), disks, plan_disks);
        }
        let au_blocks = self.membership.au_size().blocks();
        let first_tail = plan_disks.partition_point(|disk| disk.begin_block == 0);
        for (place, joining) in judged.joining.iter().enumerate() {
            let size_aus = u64::from(joining.size_aus);
            let data_blocks = size_aus.saturating_sub(1) * au_blocks;
            disks.push(DiskThen {
                number: joining.number,
                name: joining.disk.name.clone(),
                failure_group: joining.disk.failure_group.clone(),
                group_index: joining.failure_group,
                total_blocks: size_aus * au_blocks,
                used_blocks: 0,
                receives: true,
                leaves: false,
            });
            let file_aus = Core::file_aus(size_aus, 0);
            let plan_disk = PlanDisk {
                number: joining.number,
                failure_group: joining.failure_group,
                weight_blocks: data_blocks.max(au_blocks),
                capacity_blocks: file_aus * au_blocks,
                role: Role::Shares,
                begin_block: 0,
            };
            plan_disks.insert(first_tail + place, plan_disk);
        }
    }

    /// A disk has another size; what lies behind a smaller end leaves.
    fn put_size(
        &self,
        number: DiskNumber,
        size_aus: u64,
        disks: &mut [DiskThen],
        plan_disks: &mut Vec<PlanDisk>,
    ) {
        let au_blocks = self.membership.au_size().blocks();
        for disk in disks.iter_mut().filter(|disk| disk.number == number) {
            disk.total_blocks = size_aus * au_blocks;
        }
        plan_disks.retain(|disk| disk.number != number || disk.begin_block == 0);
        let Some(disk) = plan_disks.iter_mut().find(|disk| disk.number == number) else {
            return;
        };
        disk.weight_blocks = size_aus.saturating_sub(1).max(1) * au_blocks;
        disk.capacity_blocks = Core::file_aus(size_aus, self.catalog_aus()(number)) * au_blocks;
        if self.space.is_used_behind(number, size_aus * au_blocks) {
            let tail = PlanDisk {
                weight_blocks: 0,
                capacity_blocks: 0,
                role: Role::Leaves,
                begin_block: (size_aus * au_blocks).max(1),
                ..*disk
            };
            plan_disks.push(tail);
        }
    }

    /// What disks that come back have missed, from where it would be read.
    fn foresee_resync(&self, back: &[DiskNumber], flows: &mut Flows) {
        for stale in self.dirty.stale_regions(&|disk| back.contains(&disk)) {
            if let Some(from) = self.source_of(&stale) {
                flows.resync(from, stale.disk, u64::from(stale.blocks));
            }
        }
    }

    /// A disk that has other copies of a region's first extent that the disk has.
    fn source_of(&self, stale: &StaleRegion) -> Option<DiskNumber> {
        let file = self.file(stale.file)?;
        let first = u64::from(stale.region) * REGION_BLOCKS;
        let mut source = None;
        // The last region may end beyond what extents can reach.
        let _ =
            plan::segments::<TooFar>(&file.map.read(), first, first + REGION_BLOCKS, |segment| {
                let Some(extent) = segment.extent.filter(|_| source.is_none()) else {
                    return Ok(());
                };
                if extent.present().any(|copy| copy.disk() == stale.disk) {
                    let mut others = extent.present().filter(|copy| copy.disk() != stale.disk);
                    source = others
                        .find(|copy| self.disks.slot_of(*copy).is_some())
                        .map(|copy| copy.disk());
                }
                Ok(())
            });
        source
    }
}
