//! What the file system must show: names and attributes after each operation that a power cut
//! may bring back, and each file's content.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spindle_base::FileId;

use crate::content::Content;

/// What a name leads to, sizes left out: those are the content's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Inode {
    pub(crate) kind: InodeKind,
    pub(crate) permissions: u16,
    pub(crate) links_count: u32,
    /// Shared, because each state keeps a copy of the inode.
    pub(crate) extended: BTreeMap<Vec<u8>, Arc<[u8]>>,
}

impl Inode {
    /// In short: values are given by their lengths, because they can be large and candidates many.
    fn text(&self) -> String {
        let lengths: Vec<String> = (self.extended.iter())
            .take(12)
            .map(|(name, value)| format!("{}={}", String::from_utf8_lossy(name), value.len()))
            .collect();
        format!(
            "{:?} {:o} with {} names and {} attributes [{}]",
            self.kind,
            self.permissions,
            self.links_count,
            self.extended.len(),
            lengths.join(" ")
        )
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InodeKind {
    Regular,
    Directory,
    Symlink(Vec<u8>),
}

/// A whole tree, without the bytes in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) entries: BTreeMap<(FileId, Vec<u8>), FileId>,
    pub(crate) inodes: BTreeMap<FileId, Arc<Inode>>,
}

impl Names {
    pub(crate) fn inode_mut(&mut self, id: FileId) -> &mut Inode {
        let inode = self.inodes.get_mut(&id).expect("the model knows its files");
        Arc::make_mut(inode)
    }

    pub(crate) fn ids(&self, wanted: impl Fn(&InodeKind) -> bool) -> Vec<FileId> {
        self.inodes
            .iter()
            .filter(|(_, inode)| wanted(&inode.kind))
            .map(|(id, _)| *id)
            .collect()
    }

    pub(crate) fn files(&self) -> Vec<FileId> {
        self.ids(|kind| *kind == InodeKind::Regular)
    }

    pub(crate) fn directories(&self) -> Vec<FileId> {
        self.ids(|kind| *kind == InodeKind::Directory)
    }

    pub(crate) fn is_empty_directory(&self, id: FileId) -> bool {
        self.entries
            .range((id, Vec::new())..)
            .next()
            .is_none_or(|((parent, _), _)| *parent != id)
    }

    /// Whether `id` is `root` or lies below it.
    pub(crate) fn is_within(&self, mut id: FileId, root: FileId) -> bool {
        loop {
            if id == root {
                return true;
            }
            let above = self.entries.iter().find(|(_, child)| **child == id);
            match above {
                Some(((parent, _), _)) => id = *parent,
                None => return false,
            }
        }
    }

    /// Takes a name away, and the inode with its last one.
    pub(crate) fn unlink(&mut self, parent: FileId, name: &[u8]) {
        let removed = self.entries.remove(&(parent, name.to_vec()));
        let id = removed.expect("the model knows its names");
        let inode = self.inode_mut(id);
        inode.links_count = inode.links_count.saturating_sub(1);
        if inode.links_count == 0 || inode.kind == InodeKind::Directory {
            self.inodes.remove(&id);
        }
    }

    /// The first contradiction, in words.
    pub(crate) fn difference(&self, found: &Self) -> Option<String> {
        if self == found {
            return None;
        }
        for (key, id) in &self.entries {
            match found.entries.get(key) {
                None => return Some(format!("{} is missing", entry_text(key, *id))),
                Some(other) if other != id => {
                    return Some(format!("{} leads to {other}", entry_text(key, *id)));
                }
                Some(_) => {}
            }
        }
        for (key, id) in &found.entries {
            if !self.entries.contains_key(key) {
                return Some(format!("{} should not be there", entry_text(key, *id)));
            }
        }
        for (id, inode) in &self.inodes {
            let other = found.inodes.get(id);
            if other != Some(inode) {
                let found = other.map_or_else(|| "missing".to_owned(), |other| other.text());
                return Some(format!("inode {id} is {found}, expected {}", inode.text()));
            }
        }
        Some("inodes without names".to_owned())
    }
}

fn entry_text((parent, name): &(FileId, Vec<u8>), id: FileId) -> String {
    format!("{parent}/{} -> {id}", String::from_utf8_lossy(name))
}

/// A file that was synced: states in which it is otherwise are no longer allowed.
#[derive(Debug, Clone)]
struct Demand {
    operation: u64,
    id: FileId,
    inode: Arc<Inode>,
    data_only: bool,
}

/// All that may be found.
#[derive(Debug)]
pub(crate) struct Model {
    /// The number of the newest operation.
    pub(crate) clock: u64,
    /// From the last state that was made durable on: after which operation, and what then.
    states: Vec<(u64, Arc<Names>)>,
    pub(crate) contents: BTreeMap<FileId, Content>,
    demands: Vec<Demand>,
}

impl Model {
    pub(crate) fn new(names: Names) -> Self {
        Self {
            clock: 1,
            states: vec![(1, Arc::new(names))],
            contents: BTreeMap::new(),
            demands: Vec::new(),
        }
    }

    pub(crate) fn names(&self) -> &Names {
        &self.states.last().expect("there is always a state").1
    }

    /// Records what the operation under way makes of the names.
    pub(crate) fn change(&mut self, action: impl FnOnce(&mut Names)) {
        let mut names = self.names().clone();
        action(&mut names);
        self.states.push((self.clock, Arc::new(names)));
    }

    /// Everything up to now is durable. `kept` are files that are open without a name.
    pub(crate) fn synced(&mut self, kept: &BTreeSet<FileId>) {
        let (_, names) = self.states.pop().expect("there is always a state");
        self.contents
            .retain(|id, _| names.inodes.contains_key(id) || kept.contains(id));
        for content in self.contents.values_mut() {
            content.settle(self.clock);
        }
        self.states = vec![(self.clock, names)];
        self.demands.clear();
    }

    /// The file and its bytes are durable.
    pub(crate) fn file_synced(&mut self, id: FileId, data_only: bool) {
        let inode = self.names().inodes.get(&id).cloned();
        if let Some(inode) = inode {
            self.demands.push(Demand {
                operation: self.clock,
                id,
                inode,
                data_only,
            });
        }
        if let Some(content) = self.contents.get_mut(&id) {
            content.synced_at = self.clock;
        }
    }

    /// The states that may be found, the newest first.
    pub(crate) fn candidates(&self) -> impl Iterator<Item = (u64, &Arc<Names>)> {
        // A state lasts until the operation before the next one: writes in between count.
        let ends = self.states[1..]
            .iter()
            .map(|(operation, _)| operation - 1)
            .chain([self.clock]);
        let mut all: Vec<(u64, &Arc<Names>)> = Vec::new();
        for ((begin, names), end) in self.states.iter().zip(ends) {
            for operation in *begin..=end.max(*begin) {
                all.push((operation, names));
            }
        }
        all.into_iter().rev()
    }

    /// Whether the state contradicts a sync that was acknowledged.
    pub(crate) fn broken_demand(&self, candidate: u64, names: &Names) -> Option<String> {
        self.demands
            .iter()
            .filter(|demand| demand.operation > candidate)
            .find_map(|demand| {
                let kept = names.inodes.get(&demand.id).is_some_and(|inode| {
                    demand.data_only
                        || (inode.permissions == demand.inode.permissions
                            && inode.extended == demand.inode.extended)
                });
                (!kept).then(|| {
                    format!(
                        "file {} was synced by operation {}",
                        demand.id, demand.operation
                    )
                })
            })
    }

    /// What was found is what holds from now on.
    pub(crate) fn adopt(&mut self, names: Arc<Names>, found: BTreeMap<FileId, Vec<u8>>) {
        let former = std::mem::take(&mut self.contents);
        for (id, bytes) in found {
            let content = match former.get(&id) {
                Some(content) => content.adopted(self.clock, bytes),
                None => Content::new(0, self.clock, bytes),
            };
            self.contents.insert(id, content);
        }
        self.states = vec![(self.clock, names)];
        self.demands.clear();
    }
}
