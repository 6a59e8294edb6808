//! rename(2) and renameat2(2).
//!
//! All checks come first, under the names; then one change has every row. The inode of what is
//! renamed goes with it, its dirty size included: a file that is written and then renamed over
//! another is never found empty after a crash that kept the rename.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use spindle_base::FileId;
use spindle_format::{InodeKind, NameRecord, Timestamp};
use spindle_group::Wish;

use crate::attribute::{Asked, RenameMode};
use crate::error::{FsError, FsResult};
use crate::node::{Node, Place};
use crate::row::{check_name, read_name};
use crate::system::{Core, FileSystem, Operation};

/// A name, where it is, and what it leads to.
struct Found {
    directory: Arc<Node>,
    name: Vec<u8>,
    record: NameRecord,
    node: Arc<Node>,
}

/// Where a name is to be.
struct Target {
    directory: Arc<Node>,
    name: Vec<u8>,
    found: Option<Found>,
}

impl FileSystem {
    /// Renames in the way that `mode` says.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::Exists`], [`FsError::NotEmpty`], a kind that does not
    /// match, [`FsError::Invalid`] for a directory that would come to lie in itself, or what the
    /// group says. Nothing has changed then.
    pub fn rename<'a>(
        &'a self,
        parent: FileId,
        name: &OsStr,
        new_parent: FileId,
        new_name: &OsStr,
        mode: RenameMode,
        asked: impl Into<Asked<'a>>,
    ) -> FsResult<()> {
        let core = &self.core;
        let asked = asked.into();
        self.core.group.make_room(Wish::More)?;
        self.write_out_before((parent, name), (new_parent, new_name), mode)?;
        let replaced = {
            let _names = core.names.write();
            let source = core.target(parent, name.as_bytes())?;
            let target = core.target(new_parent, new_name.as_bytes())?;
            let Some(source) = source.found else {
                return Err(FsError::NotFound);
            };
            target.directory.check_living_directory()?;
            match mode {
                RenameMode::Exchange => {
                    let Some(target) = target.found else {
                        return Err(FsError::NotFound);
                    };
                    core.exchange(&source, &target, asked)?;
                    None
                }
                RenameMode::NoReplace if target.found.is_some() => return Err(FsError::Exists),
                RenameMode::Replace | RenameMode::NoReplace => {
                    core.replace(&source, target, asked)?
                }
            }
        };
        if let Some(node) = replaced {
            core.remove_if_lost(&node);
        }
        Ok(())
    }
}

impl FileSystem {
    /// Programs put a new file in the place of an old one by its name, and some do not ask for a
    /// sync between: what they wrote is on the disks before the name leads to it, so that no power
    /// cut after the commit leaves neither the old contents nor the new ones.
    fn write_out_before(
        &self,
        (parent, name): (FileId, &OsStr),
        (new_parent, new_name): (FileId, &OsStr),
        mode: RenameMode,
    ) -> FsResult<()> {
        if self.unwritten_bytes() == 0 {
            return Ok(());
        }
        let (Ok(source), Ok(target)) =
            (self.lookup(parent, name), self.lookup(new_parent, new_name))
        else {
            return Ok(());
        };
        let both = [source, target];
        let written = if mode == RenameMode::Exchange {
            &both[..]
        } else {
            &both[..1]
        };
        for named in written {
            if let Some(node) = self.core.nodes.get(named.id) {
                self.core.write_out_all(&node)?;
            }
        }
        Ok(())
    }
}

impl Core {
    fn target(&self, parent: FileId, name: &[u8]) -> FsResult<Target> {
        let directory = self.node(parent)?;
        directory.check_directory()?;
        check_name(name)?;
        let found = match read_name(&self.group, parent, name)? {
            Some(record) => Some(Found {
                directory: Arc::clone(&directory),
                name: name.to_vec(),
                record,
                node: self.node_of_entry(record.id)?,
            }),
            None => None,
        };
        Ok(Target {
            directory,
            name: name.to_vec(),
            found,
        })
    }

    /// A directory must not come to lie in itself.
    fn check_not_within(&self, node: &Node, new_parent: &Arc<Node>) -> FsResult<()> {
        if node.kind == InodeKind::Directory && self.is_within(new_parent, node.id)? {
            return Err(FsError::Invalid("a directory cannot lie in itself"));
        }
        Ok(())
    }

    /// Moves `source` to the target; answers with the node that lost its name there.
    fn replace(
        &self,
        source: &Found,
        target: Target,
        asked: Asked<'_>,
    ) -> FsResult<Option<Arc<Node>>> {
        let now = asked.now.stamp()?;
        self.check_not_within(&source.node, &target.directory)?;
        if let Some(old) = &target.found {
            if old.node.id == source.node.id {
                // Two names of one file: POSIX wants nothing to happen.
                return Ok(None);
            }
            match (source.node.kind, old.node.kind) {
                (InodeKind::Directory, InodeKind::Directory) => {}
                (InodeKind::Directory, _) => return Err(FsError::NotADirectory),
                (_, InodeKind::Directory) => return Err(FsError::IsADirectory),
                _ => {}
            }
            self.check_removable(&old.node)?;
        }
        let kind = source.node.kind;
        let record = {
            let operation = self.begin_for(asked.request);
            operation.remove_entry(&source.directory, &source.name, kind, now);
            let record = match &target.found {
                Some(old) => {
                    // The name stays and so does its cookie: who reads the directory meanwhile
                    // sees it once.
                    operation.unname(&old.node, now);
                    operation.lead_elsewhere(old, &source.node, now)
                }
                None if source.directory.id == target.directory.id => {
                    let record = source.record;
                    operation.put_entry(target.directory.id, &target.name, record);
                    if kind == InodeKind::Directory {
                        operation.update(&target.directory, true, |state| {
                            state.inode.links_count += 1;
                        });
                    }
                    record
                }
                None => {
                    operation.add_entry(&target.directory, &target.name, source.node.id, kind, now)
                }
            };
            operation.settle(&source.node, target.directory.id, &target.name, now);
            record
        };
        source.directory.unlist_entry(source.record.cookie);
        target.directory.list_entry(&target.name, record);
        Ok(target.found.map(|old| old.node))
    }

    fn exchange(&self, left: &Found, right: &Found, asked: Asked<'_>) -> FsResult<()> {
        let now = asked.now.stamp()?;
        self.check_not_within(&left.node, &right.directory)?;
        self.check_not_within(&right.node, &left.directory)?;
        if left.node.id == right.node.id {
            return Ok(());
        }
        let (left_record, right_record) = {
            let operation = self.begin_for(asked.request);
            let left_record = operation.lead_elsewhere(left, &right.node, now);
            let right_record = operation.lead_elsewhere(right, &left.node, now);
            operation.settle(&left.node, right.directory.id, &right.name, now);
            operation.settle(&right.node, left.directory.id, &left.name, now);
            (left_record, right_record)
        };
        left.directory.list_entry(&left.name, left_record);
        right.directory.list_entry(&right.name, right_record);
        Ok(())
    }
}

impl Operation<'_> {
    /// Lets an existing name lead to `node`, with the cookie that it has.
    fn lead_elsewhere(&self, found: &Found, node: &Node, now: Timestamp) -> NameRecord {
        let record = NameRecord {
            id: node.id,
            kind: node.kind,
            cookie: found.record.cookie,
        };
        self.put_entry(found.directory.id, &found.name, record);
        self.update(&found.directory, true, |state| {
            let inode = &mut state.inode;
            inode.modified = now;
            inode.changed = now;
            if found.node.kind == InodeKind::Directory {
                inode.links_count -= 1;
            }
            if node.kind == InodeKind::Directory {
                inode.links_count += 1;
            }
        });
        record
    }

    /// Notes where a node is now.
    fn settle(&self, node: &Node, parent: FileId, name: &[u8], now: Timestamp) {
        self.update(node, true, |state| {
            state.inode.parent = Some(parent);
            state.inode.changed = now;
            state.place = Some(Place {
                parent,
                name: name.into(),
            });
        });
    }
}
