//! What those who may be at a scrub, or copy, have read and written of each disk since it began.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};

use spindle_base::DiskNumber;
use spindle_sync::thread::{self, ThreadId};

use crate::history::BLOCK_BYTES;

#[derive(Debug, Default)]
struct State {
    threads: Vec<ThreadId>,
    is_on: bool,
    /// Disk, block of the disk.
    touched: BTreeSet<(u16, u64)>,
}

/// See the module. No call has a point in it.
#[derive(Debug, Default)]
pub struct Watch {
    state: Mutex<State>,
}

impl Watch {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The thread that calls this may be at a scrub from here on.
    pub fn scrubs(&self) {
        let id = thread::current().id();
        self.state().threads.push(id);
    }

    /// A scrub begins.
    pub fn begin(&self) {
        let mut state = self.state();
        state.touched.clear();
        state.is_on = true;
    }

    /// Notes a read of the current thread, or a write: a copy may move away and come back to the
    /// same place, where the scrub looked before it was there.
    pub fn note(&self, disk: u16, offset_bytes: u64, length_bytes: u64) {
        let mut state = self.state();
        if !state.is_on {
            return;
        }
        let id = thread::current().id();
        if state.threads.contains(&id) {
            let blocks = offset_bytes / BLOCK_BYTES as u64
                ..(offset_bytes + length_bytes).div_ceil(BLOCK_BYTES as u64);
            state.touched.extend(blocks.map(|block| (disk, block)));
        }
    }

    /// Whether the block there was read or given anew since the scrub began.
    pub fn has_seen(&self, disk: DiskNumber, at_bytes: u64) -> bool {
        let block = (disk.0, at_bytes / BLOCK_BYTES as u64);
        self.state().touched.contains(&block)
    }
}
