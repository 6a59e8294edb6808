//! Files without a name: removed when nobody can reach them, or at the next opening.

use std::collections::BTreeSet;
use std::sync::Arc;

use spindle_base::FileId;
use spindle_catalog::{Edit, Table, file_key};
use spindle_group::Wish;
use spindle_sync::atomic::Ordering;

use crate::error::{FsError, FsResult};
use crate::node::{Node, State};
use crate::row::{each_named, each_row, named_key, split_key};
use crate::system::{Core, FileSystem};

impl FileSystem {
    /// Files without a name and without a handle of this process; whether they are in use, only
    /// the kernel knows.
    #[must_use]
    pub fn doubtful_orphans(&self) -> Vec<FileId> {
        self.core.doubtful_orphans.lock().iter().copied().collect()
    }

    /// The kernel does not know this file: it is removed where it has no name.
    pub fn disinherit(&self, id: FileId) {
        self.core.doubtful_orphans.lock().remove(&id);
        let Ok(node) = self.core.node(id) else {
            return;
        };
        let lost = {
            let mut state = node.state.lock();
            state.inherited = false;
            state.is_lost()
        };
        if lost {
            self.core.remove_lost(&node);
        }
    }
}

impl Core {
    /// Removes a node that has no name, no handle and no reference, unless another did or
    /// somebody reached it meanwhile. What fails here is tried again at the next opening, which
    /// finds the orphan row: nobody is left who could be told.
    pub(crate) fn remove_lost(&self, node: &Arc<Node>) {
        if let Err(error) = self.try_remove_lost(node) {
            let error = format!("{error:#}");
            tracing::warn!(
                id = node.id.0,
                error,
                "a file without a name stays until the group is opened again"
            );
        }
    }

    fn try_remove_lost(&self, node: &Arc<Node>) -> FsResult<()> {
        // Its rows are copied before they give pages back: of a thousand orphans in one batch that
        // may be more than a full catalog has. Where no room can be made the commit says so.
        let _ = self.group.make_room(Wish::Less);
        // Nobody who is about to set an attribute may add a row after the rows were read.
        let _content = node.content.write();
        {
            let mut state = node.state.lock();
            if !state.is_lost() {
                return Ok(());
            }
            state.removed = true;
        }
        let mut edit = Edit::default();
        edit.delete(Table::Inode, file_key(node.id));
        edit.delete(Table::Orphan, file_key(node.id));
        each_named(
            &self.group,
            Table::ExtendedAttribute,
            node.id,
            &mut |name, _| {
                edit.delete(Table::ExtendedAttribute, named_key(node.id, name));
                Ok(())
            },
        )?;
        self.begin().remove(node, edit)?;
        self.nodes.remove(node.id);
        // Where that cannot be kept yet a kill would bring the file back: its blocks stay, and whoever
        // comes to write them forgets them.
        if self.group.keep_what_fell_out().is_ok() {
            self.discard(node, 0, u64::MAX);
        }
        Ok(())
    }

    /// Forgets the blocks of a node that was removed, when a kill would not bring it back. The caller
    /// holds nothing.
    pub(crate) fn discard_removed(&self, node: &Node) -> FsResult<()> {
        let _content = node.content.write();
        self.group.keep_what_fell_out()?;
        self.discard(node, 0, u64::MAX);
        Ok(())
    }

    /// Whether nobody can reach the node any more. Where only the kernel knows, it is noted to be
    /// asked. The caller holds the node's state.
    pub(crate) fn is_lost_or_doubtful(&self, id: FileId, state: &State) -> bool {
        if state.is_unused() && state.inherited {
            self.doubtful_orphans.lock().insert(id);
        }
        state.is_lost()
    }

    /// Files without a name stay where the kernel may know them from an earlier process.
    fn keep_orphans(&self) -> FsResult<()> {
        let mut found = BTreeSet::new();
        each_row(&self.group, Table::Orphan, &mut |key, _| {
            found.insert(split_key(key)?.0);
            Ok(())
        })?;
        self.doubtful_orphans.lock().extend(found);
        Ok(())
    }

    /// Removes what a crash left without a name. A file that cannot be removed stays, with a
    /// warning: it costs space, refusing to open would cost everything.
    pub(crate) fn remove_orphans(&self) -> FsResult<()> {
        if self.inherits.load(Ordering::Acquire) {
            return self.keep_orphans();
        }
        let mut ids = Vec::new();
        each_row(&self.group, Table::Orphan, &mut |key, _| {
            ids.push(split_key(key)?.0);
            Ok(())
        })?;
        for id in ids {
            if let Err(error) = self.remove_orphan(id) {
                let error = format!("{error:#}");
                tracing::warn!(id = id.0, error, "an orphan of the last run stays");
            }
        }
        Ok(())
    }

    fn remove_orphan(&self, id: FileId) -> FsResult<()> {
        match self.node(id) {
            Ok(node) => self.try_remove_lost(&node),
            Err(FsError::NotFound) => {
                let mut edit = Edit::default();
                edit.delete(Table::Orphan, file_key(id));
                self.begin().rows(edit);
                Ok(())
            }
            Err(other) => Err(other),
        }
    }
}
