//! Many disks and many extents in memory, to measure how long a plan takes and how much memory:
//! disks that are numbers only, but real maps. Nothing else uses it.

use std::collections::BTreeMap;

use spindle_base::{AuSize, DiskNumber, FileId, Striping};
use spindle_catalog::Sequence;
use spindle_extent::map::{Extent, Map};
use spindle_extent::schedule::Schedule;
use spindle_format::ExtentCopy;

use crate::background::planner::{FileEntry, Goal, Maps, Plan, PlanDisk, Role};

/// A file has so many extents: a gigabyte, as databases cut their tables.
const EXTENTS_PER_FILE: u32 = 1024;
/// Disks in a failure group.
const DISKS_PER_GROUP: u16 = 10;
const COPIES: usize = 2;
/// Moves that are asked for in one go.
const MOVES_MOST: usize = 64;

/// Disks and maps.
#[derive(Debug)]
pub struct PlanningScene {
    disks: Vec<PlanDisk>,
    maps: BTreeMap<FileId, Map>,
    extents_count: u64,
}

/// What a plan came to.
#[derive(Debug, Clone, Copy)]
pub struct Planned {
    /// Moves of one copy each.
    pub moves_count: u64,
    /// What they move.
    pub moved_blocks: u64,
    /// What the plan says that it moves, before any move is asked for.
    pub planned_blocks: u64,
}

impl PlanningScene {
    /// So many disks, evenly filled with about so many extents of two copies each.
    #[must_use]
    pub fn new(disks_count: u16, extents_count: u64) -> Self {
        let mut scene = Self {
            disks: Vec::new(),
            maps: BTreeMap::new(),
            extents_count: 0,
        };
        for number in 0..disks_count {
            scene.add_disk(number);
        }
        let schedule = Schedule::new(Striping::Coarse, AuSize::DEFAULT);
        let mut next_block = vec![1_u64; usize::from(disks_count)];
        let mut turn: u64 = 0;
        for file in 1.. {
            if scene.extents_count >= extents_count {
                break;
            }
            let mut map = Map::new(schedule, COPIES);
            for index in 0..EXTENTS_PER_FILE {
                let class = schedule.class(index);
                let mut place = |disk: u64| {
                    let disk = disk % u64::from(disks_count);
                    let number = u16::try_from(disk).expect("below the number of disks");
                    let block = &mut next_block[usize::from(number)];
                    let copy = ExtentCopy::new(DiskNumber(number), *block, class);
                    *block += 1 << class;
                    copy
                };
                let copies = [place(turn), place(turn + u64::from(DISKS_PER_GROUP))];
                let length = u32::try_from(schedule.length_blocks(index)).expect("an extent");
                map.insert(index, &Extent::new(&copies, length));
                turn += 1;
            }
            // As after a commit: nothing is remembered of what is in the catalog.
            map.seal(Sequence(0), usize::MAX, |_| Sequence(0));
            scene.extents_count += map.extents_count();
            scene.maps.insert(FileId(file), map);
        }
        scene
    }

    /// Extents of all files.
    #[must_use]
    pub const fn extents_count(&self) -> u64 {
        self.extents_count
    }

    /// Adds an empty disk.
    pub fn add_disk(&mut self, number: u16) {
        self.disks.push(PlanDisk {
            number: DiskNumber(number),
            failure_group: number / DISKS_PER_GROUP,
            weight_blocks: 1 << 28,
            capacity_blocks: 1 << 28,
            role: Role::Shares,
            begin_block: 0,
        });
    }

    /// A disk is to leave.
    pub fn drop_disk(&mut self, number: u16) {
        for disk in &mut self.disks {
            if disk.number.0 == number {
                disk.role = Role::Leaves;
            }
        }
    }

    /// Plans, and takes every move out of the plan.
    #[must_use]
    pub fn plan(&self) -> Planned {
        let mut plan = Plan::new(self.disks.clone(), Goal::Rebalance, 0, self);
        let mut planned = Planned {
            moves_count: 0,
            moved_blocks: 0,
            planned_blocks: plan.planned_blocks(),
        };
        while !plan.is_exhausted() {
            for moved in plan.next_moves(self, MOVES_MOST) {
                planned.moves_count += 1;
                planned.moved_blocks += moved.blocks;
            }
        }
        planned
    }
}

impl Maps for PlanningScene {
    fn files(&self) -> Vec<FileEntry> {
        let entry = |(id, map): (&FileId, &Map)| FileEntry {
            id: *id,
            extents_count: u32::try_from(map.extents_count()).unwrap_or(u32::MAX),
            copies: u8::try_from(map.copies()).expect("at most three"),
        };
        self.maps.iter().map(entry).collect()
    }

    fn extents(
        &self,
        file: FileId,
        first: u32,
        visit: &mut dyn FnMut(u32, &[ExtentCopy], u64) -> bool,
    ) {
        let Some(map) = self.maps.get(&file) else {
            return;
        };
        map.walk(first, u32::MAX, |index, extent| {
            visit(index, extent.copies(), map.schedule().length_blocks(index))
        });
    }
}
