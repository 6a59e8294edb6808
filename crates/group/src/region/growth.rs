//! Room for a region that grows: a run on each replica, ready to be used before the group state
//! names it. A crash before that leaves AUs that nobody names, which the next start finds free.

use std::sync::Arc;

use spindle_base::DiskNumber;
use spindle_catalog::CatalogError;
use spindle_format::{AuRun, RUNS_MAX, SUMS_PER_BLOCK};

use crate::region::map::{BLOCK_BYTES, Map, ReplicaMap};
use crate::region::{RESERVE_BYTES_MAX, ReplicatedRegion, failed};

impl ReplicatedRegion {
    /// Allocates a run on every replica: as large as wished, or less, but at least `least` AUs.
    fn allocate_everywhere(
        &self,
        replicas: &[ReplicaMap],
        wished: u32,
        least: u32,
    ) -> Option<Vec<(DiskNumber, AuRun)>> {
        let mut aus = wished;
        loop {
            let mut runs = Vec::new();
            for replica in replicas {
                match self.allocate(replica.disk, aus) {
                    Some(run) => runs.push((replica.disk, run)),
                    None => break,
                }
            }
            if runs.len() == replicas.len() {
                return Some(runs);
            }
            for (disk, run) in runs {
                self.release(disk, &[run]);
            }
            if aus <= least {
                return None;
            }
            aus = (aus / 2).max(least);
        }
    }

    /// AUs whose run holds at least `blocks`.
    fn aus_for(map: &Map, blocks: u64) -> u32 {
        let pairs = blocks.div_ceil(SUMS_PER_BLOCK as u64);
        let aus = (blocks + 2 * pairs).div_ceil(map.au_size.blocks()).max(1);
        let mut aus = u32::try_from(aus).unwrap_or(u32::MAX);
        while map.next_run(aus).blocks < blocks && aus < u32::MAX {
            aus += 1;
        }
        aus
    }

    /// The group state names the map's size and the new runs, and they are used from then on.
    pub(super) fn take_runs(
        &self,
        map: Map,
        runs: &[(DiskNumber, AuRun)],
    ) -> Result<(), CatalogError> {
        (self.membership.record_region(map.size_bytes, runs))
            .map_err(|error| failed("written", error.report()))?;
        *self.map.write() = Arc::new(map);
        self.drop_offline();
        Ok(())
    }

    /// Adds a run that makes room for `bytes`, ready to be used, not yet in the group state.
    pub(super) fn prepare_run(
        &self,
        map: &mut Map,
        bytes: u64,
    ) -> Result<Vec<(DiskNumber, AuRun)>, CatalogError> {
        let blocks = bytes / BLOCK_BYTES;
        let needed = blocks.saturating_sub(map.capacity_blocks());
        // A run ahead of what is asked for, and none for the sake of little.
        let ahead = bytes.min(RESERVE_BYTES_MAX) / BLOCK_BYTES;
        let wished = if map.capacity_blocks() < blocks + ahead / 2 {
            blocks + ahead - map.capacity_blocks()
        } else {
            0
        };
        let room_left = map.runs.len() < RUNS_MAX && self.space.read().is_some();
        if wished == 0 || (needed == 0 && !room_left) {
            return Ok(Vec::new());
        }
        let wished = Self::aus_for(map, wished);
        let least = if needed == 0 {
            wished
        } else {
            Self::aus_for(map, needed)
        };
        let runs = room_left
            .then(|| self.allocate_everywhere(&map.replicas, wished, least))
            .flatten();
        let Some(runs) = runs else {
            return if needed == 0 {
                Ok(Vec::new())
            } else {
                Err(CatalogError::Full)
            };
        };
        let first_new = map.groups.len();
        map.add_run(runs[0].1.aus);
        for (replica, (_, run)) in map.replicas.iter_mut().zip(&runs) {
            let start = u64::from(run.start_au) * map.au_size.bytes();
            replica.starts_bytes.push(start);
        }
        let new: Vec<usize> = (first_new..map.groups.len()).collect();
        let unable = self.write_first_sums(map, &map.replicas, &new);
        self.go_on_without(&unable)?;
        (map.replicas).retain(|replica| self.membership.holds_replica(replica.disk));
        for (disk, run) in &runs {
            if !map.replicas.iter().any(|replica| replica.disk == *disk) {
                self.release(*disk, &[*run]);
            }
        }
        Ok(runs)
    }
}
