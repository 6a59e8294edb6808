//! Runs that could not be written or did not give back what was written: never given out again.
//!
//! When a copy is moved within its disk because its place is bad, the run it leaves is not freed
//! but noted here, in one row of the catalog that reaches the same commit as the map's change.
//! So a crash finds either the copy at its old place, or the place noted. Noted runs count as
//! used; those of a disk that left the group are passed over at the next opening.

use std::collections::BTreeSet;

use spindle_base::DiskNumber;
use spindle_catalog::{Catalog, CatalogError, Edit, Table};
use spindle_extent::space::{Run, Space};
use spindle_sync::level::LeafMutex;

/// The attribute row: 16 bytes for each run.
const KEY: &[u8] = b"bad_runs";
const RUN_BYTES: usize = 16;

/// The bad runs of a group.
#[derive(Debug, Default)]
pub struct BadRuns {
    runs: LeafMutex<BTreeSet<Run>>,
}

impl BadRuns {
    /// Reads the row and marks the runs as used. A run of a disk that is not there any more is
    /// passed over, and so is one that a map has: the map's row is newer.
    pub fn load(catalog: &Catalog, space: &Space) -> Result<Self, CatalogError> {
        let Some(bytes) = catalog.get(Table::Attribute, KEY)? else {
            return Ok(Self::default());
        };
        let (entries, rest) = bytes.as_chunks::<RUN_BYTES>();
        if !rest.is_empty() {
            return Err(CatalogError::Damaged(
                "the row of bad runs ends in the midst of one".to_owned(),
            ));
        }
        let runs = entries
            .iter()
            .map(decode)
            .filter(|run| space.mark_used(*run).is_ok())
            .collect();
        Ok(Self {
            runs: LeafMutex::new(runs),
        })
    }

    /// Notes a run; the caller has a change open and gives the edit to it.
    pub fn note(&self, run: Run) -> Edit {
        let mut runs = self.runs.lock();
        runs.insert(run);
        edit_of(&runs)
    }

    /// Forgets the runs of the disk at `from_block` or behind it, because the disk leaves the
    /// group or is to end there; they, and the edit that the caller gives to its change.
    pub fn forget(&self, disk: DiskNumber, from_block: u64) -> (Vec<Run>, Edit) {
        let mut runs = self.runs.lock();
        let goes = |run: &Run| run.disk == disk && run.start_block >= from_block;
        let gone: Vec<Run> = runs.iter().copied().filter(goes).collect();
        runs.retain(|run| !goes(run));
        let edit = if gone.is_empty() {
            Edit::default()
        } else {
            edit_of(&runs)
        };
        (gone, edit)
    }

    /// Every bad run.
    pub fn all(&self) -> Vec<Run> {
        self.runs.lock().iter().copied().collect()
    }
}

fn edit_of(runs: &BTreeSet<Run>) -> Edit {
    let mut edit = Edit::default();
    if runs.is_empty() {
        edit.delete(Table::Attribute, KEY.to_vec());
    } else {
        let bytes: Vec<u8> = runs.iter().flat_map(encode).collect();
        edit.put(Table::Attribute, KEY.to_vec(), bytes);
    }
    edit
}

fn encode(run: &Run) -> [u8; RUN_BYTES] {
    let mut bytes = [0; RUN_BYTES];
    bytes[..2].copy_from_slice(&run.disk.0.to_le_bytes());
    bytes[2] = run.class;
    bytes[8..].copy_from_slice(&run.start_block.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8; RUN_BYTES]) -> Run {
    let [low, high, class, _, _, _, _, _, start @ ..] = *bytes;
    Run {
        disk: DiskNumber(u16::from_le_bytes([low, high])),
        start_block: u64::from_le_bytes(start),
        class,
    }
}

#[cfg(test)]
mod tests {
    use super::{Run, decode, encode};
    use spindle_base::DiskNumber;

    #[test]
    fn a_run_comes_back_as_it_was_noted() {
        let run = Run {
            disk: DiskNumber(513),
            start_block: 0x12_3456_789a,
            class: 12,
        };
        assert_eq!(decode(&encode(&run)), run);
    }
}
