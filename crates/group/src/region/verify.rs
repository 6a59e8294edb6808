//! Reading every replica again while the group is open: what is damaged on one is written again
//! from another.
//!
//! A block that is right on no replica is not told here. One that was in flight when the group
//! stopped uncleanly is right nowhere until it is written again, and nothing in the catalog refers
//! to it; which one is damage only a reader of the catalog can tell, and does, with an error.

use std::sync::Arc;

use spindle_base::DiskNumber;
use spindle_catalog::CatalogError;
use spindle_device::AlignedBuffer;
use spindle_format::{ChecksumBlock, JOURNAL_BYTES, JOURNAL_PLACE, block_sum};

use crate::region::map::{BLOCK_LENGTH, Map, ReplicaMap, SumGroup};
use crate::region::{ReplicatedRegion, aligned, failed};

/// A block of a replica that was not right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReplicaFault {
    pub disk: DiskNumber,
    /// The block of the region; `None` for its checksum block.
    pub block: Option<u64>,
    pub why: String,
}

impl ReplicatedRegion {
    /// How many parts [`ReplicatedRegion::verify`] takes.
    pub(crate) fn parts_count(&self) -> usize {
        self.map().groups.len()
    }

    /// Reads one part of every replica, and writes again what is wrong where `repair` says so.
    ///
    /// # Errors
    /// Where the group must stop because a disk could not be written.
    pub(crate) fn verify(
        &self,
        part: usize,
        repair: bool,
    ) -> Result<Vec<ReplicaFault>, CatalogError> {
        let map = self.map();
        if part >= map.groups.len() || self.faults(&map, part).is_empty() {
            return Ok(Vec::new());
        }
        // It may have been in flight: now nobody writes.
        let _gate = self.gate.lock();
        let map = self.map();
        let faults = self.faults(&map, part);
        if !repair {
            return Ok(faults);
        }
        let mut block_bytes = AlignedBuffer::zeroed(BLOCK_LENGTH);
        for fault in &faults {
            if let Some(block) = fault.block {
                // The gate is held: the first that is right counts, and those before it are
                // written again; those behind it here.
                self.read_judging(&map, block, &mut block_bytes, false)?;
                let bad: Vec<(&ReplicaMap, String)> = (map.replicas.iter())
                    .filter(|replica| replica.disk == fault.disk)
                    .filter(|replica| !self.is_right(&map, replica, block))
                    .map(|replica| (replica, fault.why.clone()))
                    .collect();
                self.repair(&map, block, &block_bytes, &bad)?;
            }
        }
        if faults.iter().any(|fault| fault.block.is_none()) {
            let mut settled = Map::clone(&self.map());
            let chosen = SumGroup::clone(&settled.groups[part]);
            self.write_settled(&mut settled, part, chosen, Vec::new())?;
            let mut guard = self.map.write();
            // A replica whose disk failed meanwhile is not in the map any more.
            let map = Arc::make_mut(&mut guard);
            map.groups[part] = Arc::clone(&settled.groups[part]);
            for replica in &mut map.replicas {
                let written = (settled.replicas.iter()).find(|other| other.disk == replica.disk);
                if let Some(written) = written {
                    replica.newest[part] = written.newest[part];
                }
            }
            drop(guard);
            self.drop_offline();
        }
        Ok(faults)
    }

    /// Gives every replica the same journal, where one differs: the records that count as they were
    /// written, and behind them what the first replica has that can be read. That counts nowhere,
    /// but a record that was overwritten on one disk would be missing where only that disk is
    /// left. One replica after the other, so that a crash damages the journal of one alone.
    ///
    /// # Errors
    /// Where none can be read whole, or the group must stop because a disk could not be written.
    pub(crate) fn make_journals_equal(&self) -> Result<bool, CatalogError> {
        let written = self.gate.lock();
        let map = self.map();
        // One that could be read only in part has zeros where another may have a record.
        let first = (map.replicas.iter()).find_map(|replica| {
            let mut bytes = AlignedBuffer::zeroed(JOURNAL_BYTES);
            let read = self.read_at(replica.slot, JOURNAL_PLACE, &mut bytes);
            read.is_ok().then_some(bytes)
        });
        let Some(mut wanted) = first else {
            return Err(failed("read", "its journal can be read whole on no disk"));
        };
        written.lay_over(&mut wanted);
        let mut is_written = false;
        for replica in &map.replicas {
            if self.journal_of(replica.slot).bytes == wanted[..] {
                continue;
            }
            let unable =
                self.write_and_flush(&[(replica.disk, replica.slot, JOURNAL_PLACE, &wanted)]);
            self.go_on_without(&unable)?;
            is_written = true;
        }
        Ok(is_written)
    }

    /// Whether the journals of all replicas are the same, and have the records that count.
    pub(crate) fn journals_agree(&self) -> bool {
        let written = self.gate.lock();
        let map = self.map();
        let mut journals = map
            .replicas
            .iter()
            .map(|replica| self.journal_of(replica.slot).bytes);
        let Some(first) = journals.next() else {
            return true;
        };
        written.is_in(&first) && journals.all(|journal| journal == first)
    }

    fn is_right(&self, map: &Map, replica: &ReplicaMap, block: u64) -> bool {
        let mut bytes = AlignedBuffer::zeroed(BLOCK_LENGTH);
        let place = map.data_place(replica, block);
        self.read_at(replica.slot, place, &mut bytes).is_ok()
            && block_sum(block, &bytes) == map.sum(block)
    }

    fn faults(&self, map: &Map, part: usize) -> Vec<ReplicaFault> {
        let (first, _) = map.blocks_of(part);
        let sums = &map.groups[part].sums;
        let used = (sums.iter())
            .rposition(|sum| *sum != 0)
            .map_or(0, |last| last + 1);
        let mut faults = Vec::new();
        for replica in &map.replicas {
            let mut note = |block, why: &str| {
                faults.push(ReplicaFault {
                    disk: replica.disk,
                    block,
                    why: why.to_owned(),
                });
            };
            if !self.has_right_sums(map, replica, part) {
                note(None, "its checksum was wrong");
            }
            if used == 0 {
                continue;
            }
            let mut bytes = AlignedBuffer::zeroed(used * BLOCK_LENGTH);
            let place = map.data_place(replica, first);
            self.read_blocks(replica.slot, place, &mut bytes);
            for (within, block_bytes) in bytes.chunks_exact(BLOCK_LENGTH).enumerate() {
                let block = first + within as u64;
                let sum = sums[within];
                let is_wrong = sum != 0 && block_sum(block, block_bytes) != sum;
                if is_wrong && !map.doubtful.contains(&block) {
                    note(Some(block), "its checksum was wrong");
                }
            }
        }
        let wrong_count = |block| faults.iter().filter(|fault| fault.block == block).count();
        let is_right_nowhere = |fault: &ReplicaFault| {
            fault.block.is_some() && wrong_count(fault.block) == map.replicas.len()
        };
        let left: Vec<bool> = faults.iter().map(is_right_nowhere).collect();
        let mut left = left.into_iter();
        faults.retain(|_| !left.next().unwrap_or(false));
        faults
    }

    fn has_right_sums(&self, map: &Map, replica: &ReplicaMap, part: usize) -> bool {
        let mut bytes = aligned(&[0; BLOCK_LENGTH]);
        let place = map.sums_place(replica, part, replica.newest[part]);
        let group = &map.groups[part];
        self.read_at(replica.slot, place, &mut bytes).is_ok()
            && ChecksumBlock::parse(&bytes, place).is_ok_and(|block| {
                block.group_uuid == map.group_uuid
                    && block.disk_uuid == replica.disk_uuid
                    && block.first_block == map.blocks_of(part).0
                    && block.sequence == group.sequence
                    && block.sums == group.sums
            })
    }
}
