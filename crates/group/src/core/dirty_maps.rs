//! Maps with rows that the catalog lacks: which files the next seal looks at, and what it adds.

use std::collections::BTreeMap;

use spindle_base::FileId;
use spindle_catalog::Rows;
use spindle_extent::map::Map;

/// A row's key: file id and number, and what the tree keeps of it.
const KEY_BYTES: u64 = 16;

/// The dirty maps, each with what its seal adds as of its newest change. A file stays among them
/// until all of its rows are in an edit.
#[derive(Debug, Default)]
pub(crate) struct DirtyMaps {
    files: BTreeMap<FileId, Rows>,
    /// Of all files.
    rows: Rows,
}

impl DirtyMaps {
    /// This map is as follows; whoever says so holds it locked, so that the newest word counts.
    pub(crate) fn note(&mut self, id: FileId, map: &Map) {
        let count = map.dirty_rows_count() as u64;
        if count == 0 {
            return self.forget(id);
        }
        let rows = Rows {
            count,
            bytes: map.dirty_rows_bytes() as u64 + count * KEY_BYTES,
        };
        let before = self.files.insert(id, rows).unwrap_or_default();
        self.rows = self.rows - before + rows;
    }

    /// The file is gone.
    pub(crate) fn forget(&mut self, id: FileId) {
        if let Some(before) = self.files.remove(&id) {
            self.rows = self.rows - before;
        }
    }

    /// What the next seal adds to the catalog at most.
    pub(crate) const fn rows(&self) -> Rows {
        self.rows
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    pub(crate) fn first(&self) -> Option<FileId> {
        self.files.keys().next().copied()
    }

    /// The files, as they stand.
    pub(crate) fn files(&self) -> Vec<FileId> {
        self.files.keys().copied().collect()
    }

    #[cfg(test)]
    pub(crate) fn contains(&self, id: FileId) -> bool {
        self.files.contains_key(&id)
    }
}
