//! Runs that could not be written or did not give back what was written: never given out again.
//!
//! When a copy is moved within its disk because its place is bad, the run it leaves is not freed
//! but noted here, in one row of the catalog that reaches the same commit as the map's change.
//! So a crash finds either the copy at its old place, or the place noted. A run that did not take a
//! copy which was to move there is noted too: no map ever named it. Noted runs count as used; those
//! of a disk that left the group are passed over at the next opening.

use std::collections::BTreeSet;

use spindle_base::DiskNumber;
use spindle_catalog::{Catalog, CatalogError, Edit, Table};
use spindle_extent::space::{Run, Space};
use spindle_sync::level::LeafMutex;

/// The attribute row: 16 bytes for each run.
const KEY: &[u8] = b"bad_runs";
const RUN_BYTES: usize = 16;

/// Runs of a disk that are noted when a copy does not go there. A disk that has so many takes nothing
/// anywhere, and its room is not to be used up by that.
const NOTED_MOST: usize = 64;

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

    /// Notes a run; the caller has a change open, to which `apply` gives the edit. An edit is the
    /// whole set, so it is applied under the set's lock: in the order in which they were made.
    pub fn note(&self, run: Run, apply: impl FnOnce(Edit)) {
        let mut runs = self.runs.lock();
        runs.insert(run);
        apply(edit_of(&runs));
    }

    /// Forgets the runs of the disk at `from_block` or behind it, because the disk leaves the
    /// group or is to end there, and gives them. As [`Self::note`].
    pub fn forget(&self, disk: DiskNumber, from_block: u64, apply: impl FnOnce(Edit)) -> Vec<Run> {
        let mut runs = self.runs.lock();
        let goes = |run: &Run| run.disk == disk && run.start_block >= from_block;
        let gone: Vec<Run> = runs.iter().copied().filter(goes).collect();
        runs.retain(|run| !goes(run));
        if !gone.is_empty() {
            apply(edit_of(&runs));
        }
        gone
    }

    /// Whether one more run that did not take a copy is to be noted.
    pub fn may_note(&self, disk: DiskNumber) -> bool {
        let runs = self.runs.lock();
        runs.iter().filter(|run| run.disk == disk).count() < NOTED_MOST
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
    use std::sync::Mutex;
    use std::time::Duration;

    use spindle_base::DiskNumber;

    use super::{BadRuns, Run, decode, encode};

    #[test]
    fn a_run_comes_back_as_it_was_noted() {
        let run = Run {
            disk: DiskNumber(513),
            start_block: 0x12_3456_789a,
            class: 12,
        };
        assert_eq!(decode(&encode(&run)), run);
    }

    #[test]
    fn of_runs_noted_at_once_the_row_that_is_applied_last_has_all() {
        let run = |start_block| Run {
            disk: DiskNumber(1),
            start_block,
            class: 8,
        };
        let bad = BadRuns::default();
        let applied = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            bad.note(run(256), |edit| {
                scope.spawn(|| bad.note(run(512), |edit| applied.lock().unwrap().push(edit)));
                // So that the other one is applied meanwhile, where it can be.
                std::thread::sleep(Duration::from_millis(100));
                applied.lock().unwrap().push(edit);
            });
        });
        let applied = applied.into_inner().unwrap();
        let row = applied.last().unwrap().changes[0].2.as_ref().unwrap();
        let runs: Vec<Run> = row.as_chunks().0.iter().map(decode).collect();
        assert_eq!(runs, [run(256), run(512)]);
    }
}
