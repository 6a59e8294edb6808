//! What a change would cost, told before anything starts.
//!
//! The planner that a rebalance uses plans over the maps as they are, with the change applied;
//! its moves are entered in a layer over the maps ([`Foreseen`]), and it plans again with more
//! effort, as the rebalance would, until nothing moves any more. So the bytes told are those that
//! are moved, as long as nobody writes meanwhile and every disk keeps the room that the planner
//! counts on. Nothing is changed, in memory or on disk; a crash has nothing to find.
//!
//! Left to others: whether the change can be made at all, and what the disks are like then
//! (`change/foresight.rs`).

mod foreseen;
mod pace;

use std::collections::BTreeMap;

use serde::Serialize;
use spindle_base::{BLOCK_SIZE_BYTES, DiskName, DiskNumber, FailureGroupName, Redundancy};
use spindle_device::DiskSlot;

use crate::background::Group;
use crate::background::mover::is_followed;
use crate::background::planner::{Goal, Maps, Plan, PlanDisk, Role};
use crate::background::power::Power;
use crate::change::DiskChanges;

pub(crate) use foreseen::Foreseen;
use pace::Pace;

/// Moves that are taken from the plan in one go, as the rebalance does.
const MOVES_MOST: usize = 64;

/// Something that could be done, to be judged beforehand.
#[derive(Debug, Clone)]
pub enum PlannedChange {
    /// A rebalance of what is there.
    Rebalance,
    /// Changes of the disks, with the rebalance that they start.
    Disks(DiskChanges),
    /// Disks go offline.
    Offline(Vec<DiskNumber>),
    /// Disks that are away come back, open in these slots.
    Online(Vec<DiskSlot>),
}

/// Bytes that are read from one disk to be written to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Flow {
    /// Where from: where the copy lies, or another copy where it is missing.
    pub from: DiskNumber,
    /// Where to.
    pub to: DiskNumber,
    /// How much.
    pub bytes: u64,
}

/// How long it takes at a power.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TimeAtPower {
    /// The power.
    pub power: Power,
    /// Seconds, while others use the disks.
    pub seconds: u64,
}

/// A disk as it is when all is done.
#[derive(Debug, Clone, Serialize)]
pub struct DiskAfter {
    /// Its number.
    pub number: DiskNumber,
    /// Its name.
    pub name: DiskName,
    /// Its failure group.
    pub failure_group: FailureGroupName,
    /// What the group uses of it.
    pub total_bytes: u64,
    /// Of this, what no extent uses.
    pub free_bytes: u64,
    /// Whether new extents can go there.
    pub receives: bool,
    /// Bytes a second that the times count on.
    pub rate_bytes_per_s: u64,
    /// Whether that was measured; else it is an assumption.
    pub rate_is_measured: bool,
}

/// What a change would cost, and what the group is like afterwards.
#[derive(Debug, Clone, Serialize)]
pub struct Estimate {
    /// Copies that lie elsewhere afterwards.
    pub moved_bytes: u64,
    /// Copies that are made from others, because they are missing or given up.
    pub restored_bytes: u64,
    /// What disks that come back have missed.
    pub resynced_bytes: u64,
    /// Copies for which no place would be found: the change would not come to its end.
    pub stuck_bytes: u64,
    /// All of it from disk to disk.
    pub flows: Vec<Flow>,
    /// How long it takes.
    pub times: Vec<TimeAtPower>,
    /// The disks when all is done, without those that have left.
    pub disks: Vec<DiskAfter>,
    /// Sum over the disks.
    pub free_bytes: u64,
    /// What must stay free so that redundancy can be restored after a failure.
    pub required_mirror_free_bytes: u64,
    /// May be negative: then a failure could not be repaired from the free space.
    pub usable_bytes: i64,
}

/// A disk as it would be, before anything was moved.
#[derive(Debug, Clone)]
pub(crate) struct DiskThen {
    pub(crate) number: DiskNumber,
    pub(crate) name: DiskName,
    pub(crate) failure_group: FailureGroupName,
    pub(crate) group_index: u16,
    pub(crate) total_blocks: u64,
    /// Blocks that extents and the catalog take.
    pub(crate) used_blocks: u64,
    pub(crate) receives: bool,
    /// It is forgotten when nothing lies there any more.
    pub(crate) leaves: bool,
}

/// What moves: blocks by source and target, and how the disks' contents change.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    by_pair: BTreeMap<(DiskNumber, DiskNumber), u64>,
    came: BTreeMap<DiskNumber, u64>,
    went: BTreeMap<DiskNumber, u64>,
    pub(crate) moved_blocks: u64,
    pub(crate) restored_blocks: u64,
    pub(crate) resynced_blocks: u64,
}

impl Flows {
    /// What a disk that comes back has missed is copied to it.
    pub(crate) fn resync(&mut self, from: DiskNumber, to: DiskNumber, blocks: u64) {
        *self.by_pair.entry((from, to)).or_default() += blocks;
        self.resynced_blocks += blocks;
    }

    /// What a disk holds afterwards of `used_blocks` before.
    pub(crate) fn used_after(&self, disk: DiskNumber, used_blocks: u64) -> u64 {
        let of = |blocks: &BTreeMap<DiskNumber, u64>| blocks.get(&disk).copied().unwrap_or(0);
        (used_blocks + of(&self.came)).saturating_sub(of(&self.went))
    }

    fn list(&self) -> Vec<Flow> {
        (self.by_pair.iter())
            .map(|((from, to), blocks)| Flow {
                from: *from,
                to: *to,
                bytes: blocks * BLOCK_SIZE_BYTES,
            })
            .collect()
    }
}

/// Lets a pass plan until nothing moves any more, as `mover.rs` does.
pub(crate) fn foresee(disks: &[PlanDisk], goal: Goal, maps: &mut Foreseen<'_>, flows: &mut Flows) {
    let is_source = |disk: DiskNumber| {
        (disks.iter())
            .filter(|known| known.begin_block == 0)
            .any(|known| known.number == disk && matches!(known.role, Role::Shares | Role::Leaves))
    };
    for effort in 0.. {
        let mut plan = Plan::new(disks.to_vec(), goal, effort, maps);
        let mut moved_any = false;
        loop {
            let moves = plan.next_moves(maps, MOVES_MOST);
            if moves.is_empty() {
                break;
            }
            for moved in moves {
                let others = maps.copies_of(moved.file, moved.index);
                let held = Some(moved.from).filter(|copy| copy.is_present());
                let readable = held.filter(|copy| is_source(copy.disk()));
                let source = readable.or_else(|| {
                    (others.iter())
                        .find(|copy| copy.is_present() && is_source(copy.disk()))
                        .copied()
                });
                let Some(source) = source else {
                    // No copy can be read: it would stay where it is.
                    continue;
                };
                maps.enter(&moved);
                moved_any = true;
                *flows.by_pair.entry((source.disk(), moved.to)).or_default() += moved.blocks;
                *flows.came.entry(moved.to).or_default() += moved.blocks;
                if let Some(held) = held {
                    *flows.went.entry(held.disk()).or_default() += moved.blocks;
                }
                match goal {
                    Goal::Restore => flows.restored_blocks += moved.blocks,
                    Goal::Rebalance => flows.moved_blocks += moved.blocks,
                }
            }
        }
        if !is_followed(&plan, effort, moved_any) {
            return;
        }
    }
}

/// Blocks of copies that lie where they must not, or nowhere.
pub(crate) fn stuck_blocks(disks: &[PlanDisk], maps: &Foreseen<'_>) -> u64 {
    let roles: BTreeMap<DiskNumber, Role> = (disks.iter())
        .filter(|disk| disk.begin_block == 0)
        .map(|disk| (disk.number, disk.role))
        .collect();
    let mut stuck = 0;
    for file in maps.files() {
        maps.extents(file.id, 0, &mut |_, copies, blocks| {
            let is_stuck = |copy: &&spindle_format::ExtentCopy| {
                !copy.is_present()
                    || matches!(
                        roles.get(&copy.disk()),
                        None | Some(Role::Leaves | Role::Lost)
                    )
            };
            stuck += blocks * copies.iter().filter(is_stuck).count() as u64;
            true
        });
    }
    stuck
}

impl Group {
    /// Puts together what is told.
    pub(crate) fn estimate_of(
        &self,
        disks: &[DiskThen],
        flows: &Flows,
        stuck_blocks: u64,
        redundancy: Redundancy,
    ) -> Estimate {
        let pace = Pace::new(self.disk_rates());
        let bytes = |blocks: u64| blocks * BLOCK_SIZE_BYTES;
        let au_blocks = self.membership.au_size().blocks();
        let mut after = Vec::new();
        let mut capacities = Vec::new();
        for disk in disks {
            let used = flows.used_after(disk.number, disk.used_blocks);
            if disk.leaves && stuck_blocks == 0 {
                continue;
            }
            // The first AU is never given out.
            let data_blocks = disk.total_blocks.saturating_sub(au_blocks);
            let free_blocks = data_blocks.saturating_sub(used);
            capacities.push(spindle_extent::capacity::DiskCapacity {
                failure_group: u32::from(disk.group_index),
                total_blocks: disk.total_blocks,
                free_blocks,
                online: disk.receives,
            });
            let (rate_bytes_per_s, rate_is_measured) = pace.rate_of(disk.number);
            after.push(DiskAfter {
                number: disk.number,
                name: disk.name.clone(),
                failure_group: disk.failure_group.clone(),
                total_bytes: bytes(disk.total_blocks),
                free_bytes: bytes(free_blocks),
                receives: disk.receives,
                rate_bytes_per_s,
                rate_is_measured,
            });
        }
        let list = flows.list();
        Estimate {
            moved_bytes: bytes(flows.moved_blocks),
            restored_bytes: bytes(flows.restored_blocks),
            resynced_bytes: bytes(flows.resynced_blocks),
            stuck_bytes: bytes(stuck_blocks),
            times: pace.times(&list, self.default_power()),
            flows: list,
            free_bytes: after.iter().map(|disk| disk.free_bytes).sum(),
            disks: after,
            required_mirror_free_bytes: bytes(
                spindle_extent::capacity::required_mirror_free_blocks(redundancy, &capacities),
            ),
            usable_bytes: spindle_extent::capacity::usable_blocks(redundancy, &capacities)
                .saturating_mul(BLOCK_SIZE_BYTES.cast_signed()),
        }
    }
}
