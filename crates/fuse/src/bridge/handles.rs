//! Open files by the number that the kernel names them by.
//!
//! Numbers are unique over restarts of the daemon: each starts from its clock. So a number that
//! is not in the table comes from a daemon before this one, and its file is opened anew.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::RwLock;
use spindle_base::FileId;
use spindle_fs::{FileSystem, FsResult, Handle};

const SHARDS_COUNT: u64 = 64;

/// The table, in shards so that workers seldom meet.
#[derive(Debug)]
pub(crate) struct Handles {
    next: AtomicU64,
    shards: Vec<RwLock<HashMap<u64, Arc<Handle>>>>,
}

impl Handles {
    pub(crate) fn new() -> Self {
        let seconds = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        Self {
            // No daemon opens 16 million files a second, so ranges of two never meet.
            next: AtomicU64::new(seconds << 24),
            shards: (0..SHARDS_COUNT).map(|_| RwLock::default()).collect(),
        }
    }

    fn shard(&self, number: u64) -> &RwLock<HashMap<u64, Arc<Handle>>> {
        let index = usize::try_from(number % SHARDS_COUNT).expect("64 shards");
        &self.shards[index]
    }

    /// A number for an open file.
    pub(crate) fn insert(&self, handle: Arc<Handle>) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.shard(number).write().insert(number, handle);
        number
    }

    /// The open file of that number.
    pub(crate) fn get(
        &self,
        number: u64,
        id: FileId,
        file_system: &FileSystem,
    ) -> FsResult<Arc<Handle>> {
        let shard = self.shard(number);
        if let Some(handle) = shard.read().get(&number) {
            return Ok(Arc::clone(handle));
        }
        let opened = file_system.open_file(id)?;
        Ok(Arc::clone(shard.write().entry(number).or_insert(opened)))
    }

    /// Forgets a number; the file closes with its last request.
    pub(crate) fn remove(&self, number: u64) {
        let removed = self.shard(number).write().remove(&number);
        // Closing may free an unlinked file's space: not under the table's lock.
        drop(removed);
    }
}
