//! What changes: keys set and removed together.

use crate::Table;

/// Changes that become durable together or not at all.
#[derive(Debug, Default, Clone)]
pub struct Edit {
    /// Table, key, and the new value; `None` removes the key. Later entries win.
    pub changes: Vec<(Table, Vec<u8>, Option<Vec<u8>>)>,
}

impl Edit {
    /// Sets a key.
    pub fn put(&mut self, table: Table, key: Vec<u8>, value: Vec<u8>) {
        self.changes.push((table, key, Some(value)));
    }
    /// Removes a key.
    pub fn delete(&mut self, table: Table, key: Vec<u8>) {
        self.changes.push((table, key, None));
    }
    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}
