//! Where the region's blocks and their checksums lie on each replica, and what the sums are.

use std::collections::BTreeSet;
use std::sync::Arc;

use spindle_base::{AuSize, DiskNumber, Uuid};
use spindle_device::DiskSlot;
use spindle_format::{
    CHECKSUM_BLOCK_BYTES, ChecksumBlock, GroupState, Replica, SUMS_PER_BLOCK, run_checksum_pairs,
    run_data_blocks,
};

pub(super) const BLOCK_BYTES: u64 = 4096;
pub(super) const BLOCK_LENGTH: usize = 4096;

/// A run, the same on every replica but for its start.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunShape {
    /// The region's block that is its first.
    pub(super) first_block: u64,
    pub(super) blocks: u64,
    /// The region's checksum group that is its first.
    pub(super) first_group: usize,
    pub(super) pairs: u64,
    pub(super) aus: u32,
}

/// One replica: where its runs begin, and which slot of each pair holds its newest sums.
#[derive(Debug, Clone)]
pub(super) struct ReplicaMap {
    pub(super) disk: DiskNumber,
    pub(super) slot: DiskSlot,
    pub(super) disk_uuid: Uuid,
    pub(super) starts_bytes: Vec<u64>,
    pub(super) newest: Vec<u8>,
}

/// The sums of 1,000 blocks, equal on all replicas.
#[derive(Debug, Clone)]
pub(super) struct SumGroup {
    pub(super) run: usize,
    pub(super) pair: u64,
    pub(super) sequence: u64,
    pub(super) sums: Box<[u32; SUMS_PER_BLOCK]>,
}

#[derive(Debug, Clone)]
pub(super) struct Map {
    pub(super) group_uuid: Uuid,
    pub(super) au_size: AuSize,
    pub(super) size_bytes: u64,
    pub(super) runs: Vec<RunShape>,
    /// Shared with the maps before and after: a write changes few of them.
    pub(super) groups: Vec<Arc<SumGroup>>,
    pub(super) replicas: Vec<ReplicaMap>,
    /// Blocks that were in flight at a crash or a failed write: their sums are right on no
    /// replica, and that is no damage.
    pub(super) doubtful: BTreeSet<u64>,
}

pub(super) fn index(number: u64) -> usize {
    usize::try_from(number).expect("a region's blocks can be counted in memory")
}

impl Map {
    /// The map of the state's replicas, without sums and slots.
    pub(super) fn of(
        state: &GroupState,
        place: impl Fn(DiskNumber) -> Option<(DiskSlot, Uuid)>,
    ) -> Self {
        let mut map = Self {
            group_uuid: state.group_uuid,
            au_size: state.au_size,
            size_bytes: state.region_size_bytes,
            runs: Vec::new(),
            groups: Vec::new(),
            replicas: Vec::new(),
            doubtful: BTreeSet::new(),
        };
        for run in state
            .replicas
            .first()
            .map_or(&[][..], |replica| &replica.runs)
        {
            map.add_run(run.aus);
        }
        for replica in &state.replicas {
            if let Some((slot, disk_uuid)) = place(replica.disk) {
                let replica = map.replica(replica, slot, disk_uuid);
                map.replicas.push(replica);
            }
        }
        map
    }

    pub(super) fn replica(&self, replica: &Replica, slot: DiskSlot, disk_uuid: Uuid) -> ReplicaMap {
        ReplicaMap {
            disk: replica.disk,
            slot,
            disk_uuid,
            starts_bytes: (replica.runs.iter())
                .map(|run| u64::from(run.start_au) * self.au_size.bytes())
                .collect(),
            newest: vec![0; self.groups.len()],
        }
    }

    /// Adds a run at the end, its sums all "never written".
    pub(super) fn add_run(&mut self, aus: u32) {
        let run = self.next_run(aus);
        for pair in 0..run.pairs {
            self.groups.push(Arc::new(SumGroup {
                run: self.runs.len(),
                pair,
                sequence: 1,
                sums: Box::new([0; SUMS_PER_BLOCK]),
            }));
        }
        for replica in &mut self.replicas {
            replica.newest.resize(self.groups.len(), 0);
        }
        self.runs.push(run);
    }

    /// The shape of a run of `aus` AUs behind the last one.
    pub(super) fn next_run(&self, aus: u32) -> RunShape {
        RunShape {
            first_block: self.capacity_blocks(),
            blocks: run_data_blocks(aus, self.au_size),
            first_group: self.groups.len(),
            pairs: run_checksum_pairs(aus, self.au_size),
            aus,
        }
    }

    pub(super) fn capacity_blocks(&self) -> u64 {
        (self.runs.last()).map_or(0, |run| run.first_block + run.blocks)
    }

    /// The run of a block.
    pub(super) fn run_of(&self, block: u64) -> usize {
        assert!(block < self.capacity_blocks(), "a block lies in the region");
        self.runs
            .partition_point(|run| run.first_block + run.blocks <= block)
    }

    /// The checksum group of a block, and the block's index in it.
    pub(super) fn group_of(&self, block: u64) -> (usize, usize) {
        let run = &self.runs[self.run_of(block)];
        let within = block - run.first_block;
        let pair = within / SUMS_PER_BLOCK as u64;
        (
            run.first_group + index(pair),
            index(within % SUMS_PER_BLOCK as u64),
        )
    }

    pub(super) fn sum(&self, block: u64) -> u32 {
        let (group, within) = self.group_of(block);
        self.groups[group].sums[within]
    }

    /// The blocks that a group covers: the first, and how many.
    pub(super) fn blocks_of(&self, group: usize) -> (u64, u64) {
        let SumGroup { run, pair, .. } = *self.groups[group];
        let run = &self.runs[run];
        let skip = pair * SUMS_PER_BLOCK as u64;
        (
            run.first_block + skip,
            (run.blocks - skip).min(SUMS_PER_BLOCK as u64),
        )
    }

    /// The blocks of a group that the region's size lets be written.
    pub(super) fn blocks_in_use(&self, group: usize) -> usize {
        let (first, count) = self.blocks_of(group);
        let end = self.size_bytes.div_ceil(BLOCK_BYTES);
        index(end.saturating_sub(first).min(count))
    }

    /// Where a block lies on the replica's disk, in bytes.
    pub(super) fn data_place(&self, replica: &ReplicaMap, block: u64) -> u64 {
        let number = self.run_of(block);
        let run = &self.runs[number];
        replica.starts_bytes[number] + (2 * run.pairs + block - run.first_block) * BLOCK_BYTES
    }

    /// Where one of the two checksum blocks of a group lies on the replica's disk, in bytes.
    pub(super) fn sums_place(&self, replica: &ReplicaMap, group: usize, slot: u8) -> u64 {
        let SumGroup { run, pair, .. } = *self.groups[group];
        replica.starts_bytes[run] + (2 * pair + u64::from(slot)) * BLOCK_BYTES
    }

    /// The bytes of a checksum block for the slot that is written next, and its place.
    pub(super) fn next_sums(
        &self,
        replica: &ReplicaMap,
        group: usize,
        sequence: u64,
        sums: &[u32; SUMS_PER_BLOCK],
    ) -> (u64, Vec<u8>) {
        let place = self.sums_place(replica, group, 1 - replica.newest[group]);
        let block = ChecksumBlock {
            sequence,
            group_uuid: self.group_uuid,
            disk_uuid: replica.disk_uuid,
            first_block: self.blocks_of(group).0,
            sums: Box::new(*sums),
        };
        let bytes = block.encode(place);
        assert!(bytes.len() == CHECKSUM_BLOCK_BYTES);
        (place, bytes)
    }
}
