//! Open files by the number that the kernel names them by.
//!
//! A number says which daemon gave it: the keeper counts the daemons of a mount, and a count
//! cannot repeat where a clock can. So a number of an earlier daemon is told from our own, and its
//! file is opened anew.
//!
//! **Invariant.** A request never reaches another file than the one that it names: the kernel
//! sends the file's id beside the number, and both must agree.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use rustix::io::Errno;
use spindle_base::FileId;
use spindle_fs::{FileSystem, FsError, Handle};

use super::Refusal;

const SHARDS_COUNT: u64 = 64;

/// In every number that holds a generation. Programs up to 0.1 numbered by the seconds of their
/// clock, which never reach this bit; they may have served the mount before us.
const HAS_GENERATION: u64 = 1 << 63;
/// What lies below the generation counts the files that one daemon opened.
const GENERATION_SHIFT: u32 = 40;
/// More daemons than a keeper can start in a machine's life.
const GENERATIONS_COUNT: u64 = 1 << (63 - GENERATION_SHIFT);

/// The table, in shards so that workers seldom meet.
#[derive(Debug)]
pub(crate) struct Handles {
    /// The first number of this daemon.
    first: u64,
    given_count: AtomicU64,
    shards: Vec<RwLock<HashMap<u64, Arc<Handle>>>>,
}

impl Handles {
    /// An empty table of the daemon that the keeper started as number `generation`.
    pub(crate) fn new(generation: u64) -> Self {
        assert!(
            generation < GENERATIONS_COUNT,
            "a keeper counts its daemons from zero"
        );
        Self {
            first: HAS_GENERATION | generation << GENERATION_SHIFT,
            given_count: AtomicU64::new(0),
            shards: (0..SHARDS_COUNT).map(|_| RwLock::default()).collect(),
        }
    }

    fn shard(&self, number: u64) -> &RwLock<HashMap<u64, Arc<Handle>>> {
        let index = usize::try_from(number % SHARDS_COUNT).expect("64 shards");
        &self.shards[index]
    }

    /// A number for an open file.
    pub(crate) fn insert(&self, handle: Arc<Handle>) -> u64 {
        let count = self.given_count.fetch_add(1, Ordering::Relaxed);
        assert!(
            count < 1 << GENERATION_SHIFT,
            "no daemon opens a million million files"
        );
        let number = self.first + count;
        self.shard(number).write().insert(number, handle);
        number
    }

    /// The open file of that number, which must be `id`.
    ///
    /// # Errors
    /// `ESTALE` where the number belongs to another file, or to one of an earlier daemon that is
    /// gone; `EBADF` for a number of this daemon that is not in use.
    pub(crate) fn get(
        &self,
        number: u64,
        id: FileId,
        file_system: &FileSystem,
    ) -> Result<Arc<Handle>, Refusal> {
        let shard = self.shard(number);
        if let Some(handle) = shard.read().get(&number) {
            return checked(handle, id);
        }
        if number >= self.first {
            return Err(Errno::BADF.into());
        }
        let opened = match file_system.open_file(id) {
            Err(FsError::NotFound) => return Err(Errno::STALE.into()),
            other => other?,
        };
        checked(shard.write().entry(number).or_insert(opened), id)
    }

    /// Forgets a number; the file closes with its last request.
    pub(crate) fn remove(&self, number: u64) {
        let removed = self.shard(number).write().remove(&number);
        // Closing may free an unlinked file's space: not under the table's lock.
        drop(removed);
    }
}

fn checked(handle: &Arc<Handle>, id: FileId) -> Result<Arc<Handle>, Refusal> {
    if handle.id() == id {
        return Ok(Arc::clone(handle));
    }
    tracing::error!(
        asked = %id, open = %handle.id(),
        "a request names one file and the handle of another; it is refused"
    );
    Err(Errno::STALE.into())
}

#[cfg(test)]
mod tests;
