//! What a process before this one was answered for and had not written.
//!
//! From the moment on at which the journal is this process's, whoever takes over from it believes
//! every block that it finds named. So none stays named over which newer bytes could go to the
//! disks: a block is among its file's, or its file cannot be loaded and the block is taken when it
//! is, or it is lost. Lost it stays over any kill, until the error that its file owes is as lasting.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spindle_base::{BLOCK_SIZE_BYTES, FileId};
use spindle_group::{BlockSlot, LeftBlock, LostBlock, UnwrittenBlocks};

use crate::error::{FsError, FsResult};
use crate::node::Node;
use crate::system::Core;

const HAD_BY_OTHERS: &str = "what was written and not synced is lost: somebody else had the group";
const LOST_BEFORE: &str = "what was written and not synced is lost: somebody else had the group, or two versions of a block \
     were left";

/// Blocks of files that could not be loaded; of one that is just being loaded none are left.
#[derive(Debug, Default)]
pub(super) struct Parked(BTreeMap<FileId, BTreeMap<u64, BlockSlot>>);

impl Core {
    /// Takes what an earlier process left, before the journal begins. What is lost is owed at
    /// return, by edits that the beginning makes durable; its slots are to be given back after
    /// that, by [`Core::forget_lost`].
    pub(crate) fn take_unwritten(&self) -> Vec<LostBlock> {
        let Some(memory) = self.unwritten_memory() else {
            return Vec::new();
        };
        let takes_over = self.group.takes_over();
        for left in memory.left() {
            if takes_over {
                self.take_left(memory, left);
            } else {
                // It may be older than what the disks have.
                memory.lose(left);
            }
        }
        let lost = memory.lost();
        let message = if takes_over {
            LOST_BEFORE
        } else {
            HAD_BY_OTHERS
        };
        let files: BTreeSet<FileId> = lost.iter().map(|lost| lost.file).collect();
        // Of a file that was removed nobody asks.
        for file in files.into_iter().filter_map(|id| self.group.file(id)) {
            self.group.owe(&file, message);
        }
        lost
    }

    /// The journal has begun: what their files owe is as lasting as the slots were.
    pub(crate) fn forget_lost(&self, lost: Vec<LostBlock>) {
        let Some(memory) = self.unwritten_memory() else {
            return;
        };
        for lost in lost {
            memory.give_back(lost.slot);
        }
    }

    fn take_left(&self, memory: &UnwrittenBlocks, left: LeftBlock) {
        match self.node(left.file) {
            Ok(node) => {
                if self.insert_left(memory, &node, left) {
                    self.behind.note_waiting(&node);
                }
            }
            // It was removed, or its making was never answered.
            Err(FsError::NotFound) => memory.give_back(left.slot),
            Err(error) => {
                let error = format!("{error:#}");
                tracing::error!(
                    file = left.file.0,
                    error,
                    "what waits of a file cannot be written yet"
                );
                let second = self.behind.parked.lock().park(left);
                if let Some(second) = second {
                    lose_second(memory, second);
                }
            }
        }
    }

    /// Puts a block among its file's; whether it waits there now.
    fn insert_left(&self, memory: &UnwrittenBlocks, node: &Node, left: LeftBlock) -> bool {
        let LeftBlock { file, block, slot } = left;
        let size_bytes = node.state.lock().inode.size_bytes;
        // Of a write that was not answered, or behind the end of a file that was cut.
        if block >= size_bytes.div_ceil(BLOCK_SIZE_BYTES) {
            memory.give_back(slot);
            return false;
        }
        let mut blocks = node.unwritten.lock();
        match blocks.insert(block, slot) {
            Ok(()) => {
                self.behind.came(1);
                true
            }
            Err(slot) => {
                drop(blocks);
                lose_second(memory, LeftBlock { file, block, slot });
                false
            }
        }
    }

    /// Takes the blocks that waited for the node to be loaded, before anybody else has it; whether
    /// some did. Its file stays among those until [`Core::note_unparked`]: whoever syncs all meanwhile
    /// finds it there.
    pub(crate) fn take_parked(&self, node: &Node) -> bool {
        let Some(memory) = self.unwritten_memory() else {
            return false;
        };
        let blocks = (self.behind.parked.lock().0.get_mut(&node.id)).map(std::mem::take);
        let Some(blocks) = blocks else {
            return false;
        };
        for (block, slot) in blocks {
            let file = node.id;
            self.insert_left(memory, node, LeftBlock { file, block, slot });
        }
        true
    }

    /// A node whose blocks were parked has been loaded: it is among those that wait from now on.
    pub(crate) fn note_unparked(&self, node: &Arc<Node>) {
        self.behind.note_waiting(node);
        self.behind.forget_where_empty(node);
        self.behind.parked.lock().0.remove(&node.id);
    }

    /// Loads the files whose blocks wait for that.
    pub(super) fn load_parked(&self) -> FsResult<()> {
        let files: Vec<FileId> = self.behind.parked.lock().0.keys().copied().collect();
        let mut answer = Ok(());
        for file in files {
            match self.node(file) {
                // Another thread may have loaded it, and have come no further.
                Ok(node) => self.note_unparked(&node),
                Err(FsError::NotFound) => self.forget_parked(file),
                Err(error) => answer = Err(error),
            }
        }
        answer
    }

    fn forget_parked(&self, file: FileId) {
        let blocks = self.behind.parked.lock().0.remove(&file);
        if let Some(memory) = self.unwritten_memory() {
            (blocks.into_iter().flatten()).for_each(|(_, slot)| memory.give_back(slot));
        }
    }
}

impl Parked {
    /// Keeps the block until its file can be loaded; handed back where it is here already.
    pub(super) fn park(&mut self, left: LeftBlock) -> Option<LeftBlock> {
        let LeftBlock { file, block, slot } = left;
        match self.0.entry(file).or_default().entry(block) {
            Entry::Vacant(place) => {
                place.insert(slot);
                None
            }
            Entry::Occupied(_) => Some(LeftBlock { file, block, slot }),
        }
    }
}

/// A block has one slot. Where it has two all the same, nothing tells which is the newer one: the first
/// is kept, because the disks have older bytes than either, and the file owes the error.
fn lose_second(memory: &UnwrittenBlocks, second: LeftBlock) {
    let LeftBlock { file, block, .. } = &second;
    tracing::error!(
        file = file.0,
        block,
        "two versions of a block were left, one is lost"
    );
    memory.lose(second);
}
