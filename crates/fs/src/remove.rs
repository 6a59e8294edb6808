//! Taking names away. The last name's removal makes an orphan, in the same edit; the orphan goes
//! at once where nobody has it open, usually with the same commit.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use spindle_base::FileId;
use spindle_format::{InodeKind, Timestamp};
use spindle_group::Wish;

use crate::attribute::Asked;
use crate::error::{FsError, FsResult, corrupt_inode};
use crate::node::Node;
use crate::row::{check_name, is_empty_directory, read_name};
use crate::system::{Core, FileSystem, Operation};

impl FileSystem {
    /// Removes a name that leads to no directory.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::IsADirectory`], or what the group says.
    pub fn unlink<'a>(
        &'a self,
        parent: FileId,
        name: &OsStr,
        asked: impl Into<Asked<'a>>,
    ) -> FsResult<()> {
        self.remove_name(parent, name.as_bytes(), false, asked.into())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotADirectory`], [`FsError::NotEmpty`], or what the
    /// group says.
    pub fn remove_directory<'a>(
        &'a self,
        parent: FileId,
        name: &OsStr,
        asked: impl Into<Asked<'a>>,
    ) -> FsResult<()> {
        self.remove_name(parent, name.as_bytes(), true, asked.into())
    }

    fn remove_name<'a>(
        &'a self,
        parent: FileId,
        name: &[u8],
        directory: bool,
        asked: Asked<'a>,
    ) -> FsResult<()> {
        let core = &self.core;
        let now = asked.now.stamp()?;
        self.core.group.make_room(Wish::Less)?;
        let node = {
            let _names = core.names.write();
            let parent = core.node(parent)?;
            parent.check_directory()?;
            check_name(name)?;
            let Some(record) = read_name(&core.group, parent.id, name)? else {
                return Err(FsError::NotFound);
            };
            match (record.kind == InodeKind::Directory, directory) {
                (true, false) => return Err(FsError::IsADirectory),
                (false, true) => return Err(FsError::NotADirectory),
                _ => {}
            }
            let node = core.node_of_entry(record.id)?;
            core.check_removable(&node)?;
            {
                let operation = core.begin_for(asked.request);
                operation.remove_entry(&parent, name, record.kind, now);
                operation.unname(&node, now);
            }
            parent.unlist_entry(record.cookie);
            node
        };
        core.remove_if_lost(&node);
        Ok(())
    }
}

impl Core {
    /// Answers with an error where the node cannot lose a name. The caller holds the names.
    pub(crate) fn check_removable(&self, node: &Node) -> FsResult<()> {
        if node.kind == InodeKind::Directory && !is_empty_directory(&self.group, node.id)? {
            return Err(FsError::NotEmpty);
        }
        if node.state.lock().inode.links_count == 0 {
            return Err(corrupt_inode(
                node.id,
                format!("inode {} has a name, and a count of none", node.id),
            ));
        }
        Ok(())
    }

    /// Removes the node where it has no name left and nobody has it open.
    pub(crate) fn remove_if_lost(&self, node: &Arc<Node>) {
        let lost = self.is_lost_or_doubtful(node.id, &node.state.lock());
        if lost {
            self.remove_lost(node);
        }
    }
}

impl Operation<'_> {
    /// Takes one name from the count; a directory has but one.
    pub(crate) fn unname(&self, node: &Node, now: Timestamp) {
        self.update(node, true, |state| {
            state.inode.changed = now;
            state.inode.links_count = match node.kind {
                InodeKind::Directory => 0,
                _ => state.inode.links_count - 1,
            };
        });
    }
}
