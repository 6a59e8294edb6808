//! Reading every replica again while the group is open: what is damaged on one is written again
//! from another.

use std::sync::Arc;

use spindle_base::DiskNumber;
use spindle_catalog::CatalogError;
use spindle_device::AlignedBuffer;
use spindle_format::{ChecksumBlock, JOURNAL_PLACE, block_sum};

use super::map::{BLOCK_LENGTH, Map, ReplicaMap, SumGroup};
use super::{ReplicatedRegion, aligned};

/// A block of a replica that was not right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReplicaFault {
    pub disk: DiskNumber,
    /// The block of the region; `None` for its checksum block.
    pub block: Option<u64>,
    pub why: String,
    /// Whether another replica has it right.
    pub is_repairable: bool,
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
        for fault in faults.iter().filter(|fault| fault.is_repairable) {
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
            let mut map = Map::clone(&self.map());
            let chosen = SumGroup::clone(&map.groups[part]);
            self.write_settled(&mut map, part, chosen, Vec::new())?;
            *self.map.write() = Arc::new(map);
            self.drop_offline();
        }
        Ok(faults)
    }

    /// Gives every replica the journal of the first, where one differs; the caller has emptied it.
    /// What lies behind its records counts nowhere, but a record that was overwritten on one disk
    /// would be missing where only that disk is left.
    ///
    /// # Errors
    /// Where the group must stop because a disk could not be written.
    pub(crate) fn make_journals_equal(&self) -> Result<bool, CatalogError> {
        let _gate = self.gate.lock();
        let map = self.map();
        let journals: Vec<(&ReplicaMap, Vec<u8>)> = (map.replicas.iter())
            .map(|replica| (replica, self.journal_of(replica.slot)))
            .collect();
        let Some(((_, first), others)) = journals.split_first() else {
            return Ok(false);
        };
        let bytes = aligned(first);
        let writes: Vec<_> = (others.iter())
            .filter(|(_, journal)| journal != first)
            .map(|(replica, _)| (replica.disk, replica.slot, JOURNAL_PLACE, &bytes[..]))
            .collect();
        let unable = self.write_and_flush(&writes);
        self.take_offline(&unable)?;
        Ok(!writes.is_empty())
    }

    /// Whether the journals of all replicas are the same.
    pub(crate) fn journals_agree(&self) -> bool {
        let _gate = self.gate.lock();
        let map = self.map();
        let mut journals = map
            .replicas
            .iter()
            .map(|replica| self.journal_of(replica.slot));
        let Some(first) = journals.next() else {
            return true;
        };
        journals.all(|journal| journal == first)
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
                    is_repairable: true,
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
            if self.read_at(replica.slot, place, &mut bytes).is_err() {
                self.read_one_by_one(replica.slot, place, &mut bytes);
            }
            for (within, block_bytes) in bytes.chunks_exact(BLOCK_LENGTH).enumerate() {
                let block = first + within as u64;
                let sum = sums[within];
                let is_wrong = sum != 0 && block_sum(block, block_bytes) != sum;
                if is_wrong && !map.doubtful.contains(&block) {
                    note(Some(block), "its checksum was wrong");
                }
            }
        }
        let replicas_count = map.replicas.len();
        let wrong_everywhere = |fault: &ReplicaFault, all: &[ReplicaFault]| {
            fault.block.is_some()
                && all
                    .iter()
                    .filter(|other| other.block == fault.block)
                    .count()
                    == replicas_count
        };
        let all = faults.clone();
        for fault in &mut faults {
            fault.is_repairable = !wrong_everywhere(fault, &all);
        }
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
