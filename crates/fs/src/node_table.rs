//! The nodes in memory, found by id.
//!
//! A node is loaded under the lock of its shard, so that there is never a second one of the same
//! file. Nodes that nobody refers to and whose rows are up to date are forgotten when the table
//! is full, those without a recent use first (second chance).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use spindle_base::FileId;
use spindle_group::Group;
use spindle_sync::level::DeepMutex;

use crate::error::FsResult;
use crate::levels;
use crate::node::Node;

const SHARDS_COUNT: usize = 64;

/// Candidates that one insertion looks at; bounds its cost where nearly all nodes are pinned.
const CANDIDATES_COUNT: usize = 8;

#[derive(Debug, Default)]
struct Shard {
    nodes: HashMap<FileId, Arc<Node>>,
    /// Ids in the order of the clock; those of nodes that are gone are skipped.
    clock: VecDeque<FileId>,
}

/// The table.
#[derive(Debug)]
pub(crate) struct NodeTable {
    group: Arc<Group>,
    shards: Vec<DeepMutex<Shard, levels::Shard>>,
    nodes_per_shard: usize,
}

impl NodeTable {
    /// A table that tries to hold at most `nodes_count` nodes; pinned ones stay beyond it.
    pub(crate) fn new(group: Arc<Group>, nodes_count: usize) -> Self {
        Self {
            group,
            shards: (0..SHARDS_COUNT).map(|_| DeepMutex::default()).collect(),
            nodes_per_shard: nodes_count.div_ceil(SHARDS_COUNT),
        }
    }

    fn shard(&self, id: FileId) -> &DeepMutex<Shard, levels::Shard> {
        let shards_count = self.shards.len() as u64;
        let index = usize::try_from(id.0 % shards_count).expect("below the number of shards");
        &self.shards[index]
    }

    /// The node, loaded with `load` where it is not here.
    pub(crate) fn get_or_load(
        &self,
        id: FileId,
        load: impl FnOnce() -> FsResult<Node>,
    ) -> FsResult<Arc<Node>> {
        let mut shard = self.shard(id).lock();
        if let Some(node) = shard.nodes.get(&id) {
            node.note_use();
            return Ok(Arc::clone(node));
        }
        let node = Arc::new(load()?);
        shard.insert(Arc::clone(&node), self.nodes_per_shard, &self.group);
        Ok(node)
    }

    /// The node, if it is here.
    pub(crate) fn get(&self, id: FileId) -> Option<Arc<Node>> {
        self.shard(id).lock().nodes.get(&id).cloned()
    }

    /// Calls `visit` with every node that is here, in no order.
    pub(crate) fn each(&self, visit: &mut dyn FnMut(&Node)) {
        for shard in &self.shards {
            shard.lock().nodes.values().for_each(|node| visit(node));
        }
    }

    /// Adds a node that was just made.
    pub(crate) fn insert(&self, node: Arc<Node>) {
        self.shard(node.id)
            .lock()
            .insert(node, self.nodes_per_shard, &self.group);
    }

    /// Takes a node out whose rows are gone.
    pub(crate) fn remove(&self, id: FileId) {
        self.shard(id).lock().nodes.remove(&id);
    }
}

impl Shard {
    fn insert(&mut self, node: Arc<Node>, at_most: usize, group: &Group) {
        let id = node.id;
        let before = self.nodes.insert(id, node);
        assert!(before.is_none(), "a file has one node");
        self.clock.push_back(id);
        for _ in 0..CANDIDATES_COUNT {
            if self.nodes.len() <= at_most && self.clock.len() <= 2 * at_most.max(1) {
                break;
            }
            let Some(candidate) = self.clock.pop_front() else {
                break;
            };
            let Some(node) = self.nodes.get(&candidate) else {
                continue;
            };
            // One reference means the table's own: whoever wants another needs this shard's lock.
            let keep = candidate == id
                || Arc::strong_count(node) > 1
                || node.take_use()
                || self.nodes.len() <= at_most
                || node.is_pinned(group);
            if keep {
                self.clock.push_back(candidate);
            } else {
                self.nodes.remove(&candidate);
            }
        }
    }
}
