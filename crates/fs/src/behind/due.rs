//! Which files have blocks that wait to be written, and whose turn it is.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use spindle_base::{BLOCK_SIZE_BYTES, FileId};
use spindle_sync::Condvar;
use spindle_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use spindle_sync::level::{DeepMutex, LeafMutex};

use super::left::Parked;
use crate::levels;
use crate::node::Node;

/// Blocks wait for so long at most, where nobody asks for them before.
const AGE_MS: u64 = 5000;
/// After a failure the blocks of a file are left for so long.
const RETRY_MS: u64 = 10_000;
/// What may wait before anything else was said.
const WAITING_BYTES_MOST: u64 = 128 << 20;
/// From this part of the most on blocks are written although they are young.
const BEGIN_SHARE: u64 = 4;
/// Files that are looked at for one that has a run which nobody writes.
const CANDIDATES_COUNT: usize = 16;

/// What is to be written of all files.
#[derive(Debug)]
pub(crate) struct Behind {
    files: DeepMutex<Files, levels::UnwrittenFiles>,
    /// Stretches that a program has filled: it will hardly write them again soon.
    filled: LeafMutex<VecDeque<(Arc<Node>, u64)>>,
    /// Blocks of files whose rows cannot be read, as an earlier process left them.
    pub(super) parked: LeafMutex<Parked>,
    blocks_count: AtomicU64,
    blocks_most: AtomicU64,
    /// Nobody holds the memory beyond this process: nothing more is kept in it.
    is_alone: AtomicBool,
    /// Files that waited then are due, however young.
    hurried_ms: AtomicU64,
    /// On the clock of [`crate::FileSystem::step`].
    now_ms: AtomicU64,
    /// There is something to write, or there is room again.
    changed: Condvar,
    turns: LeafMutex<()>,
    /// A writer has waited for room for long, and nothing has gone since.
    is_stalled: AtomicBool,
}

#[derive(Debug, Default)]
struct Files {
    by_id: BTreeMap<FileId, Waiting>,
    /// The same, those first that have waited longest.
    by_age: BTreeSet<(u64, FileId)>,
}

#[derive(Debug)]
struct Waiting {
    node: Arc<Node>,
    since_ms: u64,
    /// Zero where nothing of it failed since something of it was written.
    not_before_ms: u64,
}

/// Which files are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    /// Those that wait for long.
    Old,
    /// However young, where so much waits that it has to go.
    WherePressed,
}

/// A file that may be written.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) node: Arc<Node>,
    /// All that it has is due, not just some of it to make room.
    pub(super) is_old: bool,
}

impl Default for Behind {
    fn default() -> Self {
        Self {
            files: DeepMutex::default(),
            filled: LeafMutex::default(),
            parked: LeafMutex::default(),
            blocks_count: AtomicU64::new(0),
            blocks_most: AtomicU64::new(WAITING_BYTES_MOST / BLOCK_SIZE_BYTES),
            is_alone: AtomicBool::new(false),
            hurried_ms: AtomicU64::new(0),
            now_ms: AtomicU64::new(0),
            changed: Condvar::default(),
            turns: LeafMutex::default(),
            is_stalled: AtomicBool::new(false),
        }
    }
}

impl Behind {
    /// What the clock of [`crate::FileSystem::step`] shows. Zero is before all clocks.
    pub(crate) fn note_time(&self, now_ms: u64) {
        self.now_ms.store(now_ms + 1, Ordering::Relaxed);
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.now_ms.load(Ordering::Relaxed)
    }

    /// What waits now is due.
    pub(crate) fn hurry(&self) {
        self.hurried_ms.store(self.now_ms(), Ordering::Relaxed);
        self.notify();
    }

    pub(super) fn go_on_alone(&self) {
        self.is_alone.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_alone(&self) -> bool {
        self.is_alone.load(Ordering::Relaxed)
    }

    pub(super) fn set_most(&self, blocks_most: u64) {
        self.blocks_most.store(blocks_most, Ordering::Relaxed);
        self.notify();
    }

    pub(super) fn blocks_count(&self) -> u64 {
        self.blocks_count.load(Ordering::Relaxed)
    }

    pub(super) fn is_full(&self) -> bool {
        self.blocks_count() >= self.blocks_most.load(Ordering::Relaxed)
    }

    /// Whether so much waits that it is written although it is young.
    fn is_pressed(&self) -> bool {
        self.blocks_count() >= self.blocks_most.load(Ordering::Relaxed) / BEGIN_SHARE
    }

    /// Whether all that waits failed. Nobody waits for it to be tried again: a daemon that ends
    /// tries it no more.
    pub(crate) fn is_stuck(&self) -> bool {
        let files = self.files.lock();
        (files.by_id.values()).all(|waiting| waiting.not_before_ms > 0)
    }

    /// Nothing has gone for long, though somebody waits for room.
    pub(super) fn note_stalled(&self) {
        self.is_stalled.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_stalled(&self) -> bool {
        self.is_stalled.load(Ordering::Relaxed)
    }

    /// Whether the file's last run failed.
    pub(super) fn has_failed(&self, id: FileId) -> bool {
        let files = self.files.lock();
        (files.by_id.get(&id)).is_some_and(|waiting| waiting.not_before_ms > 0)
    }

    pub(super) fn notify(&self) {
        self.changed.notify_all();
    }

    pub(super) fn wait(&self, most: Duration) {
        let mut turn = self.turns.lock();
        let _ = turn.wait_for(&self.changed, most);
    }

    /// So many more blocks wait. To be counted under the lock of the file's blocks, before anybody
    /// can write them.
    pub(super) fn came(&self, count: u64) {
        self.blocks_count.fetch_add(count, Ordering::Relaxed);
    }

    /// So many blocks wait no more.
    pub(super) fn went(&self, count: u64) {
        let before = self.blocks_count.fetch_sub(count, Ordering::Relaxed);
        if count > 0 && self.is_stalled() {
            self.is_stalled.store(false, Ordering::Relaxed);
        }
        // Somebody waits for that only where as much waited as may.
        let most = self.blocks_most.load(Ordering::Relaxed);
        if before >= most && before - count < most {
            self.notify();
        }
    }

    /// Blocks of the node wait.
    pub(crate) fn note_waiting(&self, node: &Arc<Node>) {
        let now_ms = self.now_ms();
        let mut files = self.files.lock();
        node.unwritten.lock().is_noted = true;
        let Files { by_id, by_age } = &mut *files;
        by_id.entry(node.id).or_insert_with(|| {
            by_age.insert((now_ms, node.id));
            Waiting {
                node: Arc::clone(node),
                since_ms: now_ms,
                not_before_ms: 0,
            }
        });
    }

    /// Blocks of the node went.
    pub(super) fn forget_where_empty(&self, node: &Node) {
        let mut files = self.files.lock();
        {
            let mut blocks = node.unwritten.lock();
            if blocks.len() > 0 {
                return;
            }
            blocks.is_noted = false;
        }
        if let Some(waiting) = files.by_id.remove(&node.id) {
            files.by_age.remove(&(waiting.since_ms, node.id));
        }
    }

    /// All that the file had then is written or under way; what it has now came later.
    pub(super) fn begin_anew(&self, id: FileId, then_ms: u64) {
        let mut files = self.files.lock();
        let Files { by_id, by_age } = &mut *files;
        if let Some(waiting) = by_id.get_mut(&id) {
            by_age.remove(&(waiting.since_ms, id));
            waiting.since_ms = then_ms;
            by_age.insert((then_ms, id));
        }
    }

    /// A run of the file failed.
    pub(super) fn leave_for_later(&self, id: FileId) {
        let not_before_ms = self.now_ms() + RETRY_MS;
        if let Some(waiting) = self.files.lock().by_id.get_mut(&id) {
            waiting.not_before_ms = not_before_ms;
        }
    }

    /// A run of the file went well.
    pub(super) fn leave_no_more(&self, id: FileId) {
        if let Some(waiting) = self.files.lock().by_id.get_mut(&id) {
            waiting.not_before_ms = 0;
        }
    }

    /// Some of the files that are due, those first that have waited longest.
    pub(super) fn due(&self, which: Which) -> Vec<Due> {
        let now_ms = self.now_ms();
        let hurried_ms = self.hurried_ms.load(Ordering::Relaxed);
        if which == Which::WherePressed && !self.is_pressed() {
            return Vec::new();
        }
        let files = self.files.lock();
        let all = (files.by_age.iter()).filter_map(|(_, id)| files.by_id.get(id));
        let due = all.filter(|waiting| waiting.not_before_ms <= now_ms);
        let due = due.map(|waiting| Due {
            node: Arc::clone(&waiting.node),
            is_old: waiting.since_ms + AGE_MS <= now_ms || waiting.since_ms <= hurried_ms,
        });
        due.take_while(|due| which != Which::Old || due.is_old)
            .take(CANDIDATES_COUNT)
            .collect()
    }

    /// All files with blocks that wait.
    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        let files = self.files.lock();
        let nodes = files.by_id.values();
        nodes.map(|waiting| Arc::clone(&waiting.node)).collect()
    }

    /// Stretches were filled, each named by its first block.
    pub(super) fn note_filled(&self, node: &Arc<Node>, firsts: impl Iterator<Item = u64>) {
        let firsts = firsts.map(|first| (Arc::clone(node), first));
        self.filled.lock().extend(firsts);
        self.notify();
    }

    pub(super) fn take_filled(&self) -> Option<(Arc<Node>, u64)> {
        self.filled.lock().pop_front()
    }
}
