//! Making files, directories, symbolic links and special nodes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use spindle_base::FileId;
use spindle_catalog::{Edit, Table};
use spindle_format::{Inode, InodeKind, NameRecord, SYMLINK_TARGET_BYTES_MAX, Timestamp};
use spindle_group::{RequestUnderWay, Wish};

use crate::attribute::{Asked, Attributes, Kind, Owner, Time};
use crate::error::{FsError, FsResult};
use crate::handle::Handle;
use crate::node::{Node, Place};
use crate::row::{check_name, named_key, read_name};
use crate::setattr::SET_GROUP_ID;
use crate::system::{Core, FileSystem, Operation, new_inode};

impl FileSystem {
    /// Makes a node of any kind but a directory or a symbolic link; its contents are empty.
    ///
    /// # Errors
    /// [`FsError::Exists`], an invalid name or kind, no such directory, or what the group says.
    #[allow(
        clippy::too_many_arguments,
        reason = "mknod(2) has as many, and the caller's identity and time"
    )]
    pub fn make_node<'a>(
        &'a self,
        parent: FileId,
        name: &OsStr,
        kind: Kind,
        permissions: u16,
        device: u32,
        owner: Owner,
        asked: impl Into<Asked<'a>>,
    ) -> FsResult<Attributes> {
        let asked = asked.into();
        if matches!(kind, Kind::Directory | Kind::Symlink) {
            return Err(FsError::Invalid("mknod makes no directory and no link"));
        }
        let mut inode = new_inode(kind.into(), permissions, owner, parent, asked.now)?;
        if matches!(kind, Kind::CharacterDevice | Kind::BlockDevice) {
            inode.device = device;
        }
        self.core.group.make_room(Wish::More)?;
        let _names = self.core.names.write();
        let node = self
            .core
            .make(parent, name.as_bytes(), inode, asked.request)?;
        node.attributes(&self.core.group)
    }

    /// Makes an empty directory.
    ///
    /// # Errors
    /// [`FsError::Exists`], an invalid name, no such directory, or what the group says.
    pub fn make_directory<'a>(
        &'a self,
        parent: FileId,
        name: &OsStr,
        permissions: u16,
        owner: Owner,
        asked: impl Into<Asked<'a>>,
    ) -> FsResult<Attributes> {
        let asked = asked.into();
        let mut inode = new_inode(InodeKind::Directory, permissions, owner, parent, asked.now)?;
        inode.links_count = 2;
        self.core.group.make_room(Wish::More)?;
        let _names = self.core.names.write();
        let node = self
            .core
            .make(parent, name.as_bytes(), inode, asked.request)?;
        node.attributes(&self.core.group)
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// [`FsError::NameTooLong`] for a target above 4,095 bytes, [`FsError::Exists`], an invalid
    /// name, no such directory, or what the group says.
    pub fn make_symlink<'a>(
        &'a self,
        parent: FileId,
        name: &OsStr,
        target: &OsStr,
        owner: Owner,
        asked: impl Into<Asked<'a>>,
    ) -> FsResult<Attributes> {
        let asked = asked.into();
        let target = target.as_bytes();
        if target.is_empty() {
            return Err(FsError::NotFound);
        }
        if target.len() > SYMLINK_TARGET_BYTES_MAX {
            return Err(FsError::NameTooLong);
        }
        if target.contains(&0) {
            return Err(FsError::Invalid("a link's target has no NUL"));
        }
        let mut inode = new_inode(InodeKind::Symlink, 0o777, owner, parent, asked.now)?;
        inode.size_bytes = target.len() as u64;
        inode.target = target.to_vec();
        self.core.group.make_room(Wish::More)?;
        let _names = self.core.names.write();
        let node = self
            .core
            .make(parent, name.as_bytes(), inode, asked.request)?;
        node.attributes(&self.core.group)
    }

    /// Makes and opens a regular file that did not exist.
    ///
    /// # Errors
    /// [`FsError::Exists`], an invalid name, no such directory, or what the group says.
    pub fn create_file<'a>(
        &'a self,
        parent: FileId,
        name: &OsStr,
        permissions: u16,
        owner: Owner,
        asked: impl Into<Asked<'a>>,
    ) -> FsResult<(Attributes, Arc<Handle>)> {
        let asked = asked.into();
        let inode = new_inode(InodeKind::Regular, permissions, owner, parent, asked.now)?;
        // Opened before somebody else can remove it.
        self.core.group.make_room(Wish::More)?;
        let _names = self.core.names.write();
        let node = self
            .core
            .make(parent, name.as_bytes(), inode, asked.request)?;
        let handle = Handle::open(&self.core, &node)?;
        Ok((node.attributes(&self.core.group)?, handle))
    }

    /// Makes and opens a file without a name (`O_TMPFILE`); its layout is that of a file in the
    /// directory `parent`. A link can give it a name later.
    ///
    /// # Errors
    /// No such directory, or what the group says.
    pub fn create_unnamed(
        &self,
        parent: FileId,
        permissions: u16,
        owner: Owner,
        now: Time,
    ) -> FsResult<(Attributes, Arc<Handle>)> {
        let core = &self.core;
        let mut inode = new_inode(InodeKind::Regular, permissions, owner, parent, now)?;
        inode.links_count = 0;
        self.core.group.make_room(Wish::More)?;
        let _names = core.names.write();
        let directory = core.node(parent)?;
        directory.check_living_directory()?;
        inherit_group(&directory, &mut inode);
        let layout = core.layout_at(&directory, b"")?;
        let node = {
            let operation = core.begin();
            let id = operation.next_id();
            let file = operation.create_file(id, layout)?;
            let node = Arc::new(Node::fresh(id, inode, Some(file)));
            operation.write_back(&node);
            node
        };
        core.nodes.insert(Arc::clone(&node));
        let handle = Handle::open(core, &node)?;
        Ok((node.attributes(&core.group)?, handle))
    }

    /// A symbolic link's target.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for something else, or what the group says.
    pub fn read_link(&self, id: FileId) -> FsResult<Vec<u8>> {
        let node = self.core.node(id)?;
        if node.kind != InodeKind::Symlink {
            return Err(FsError::Invalid("not a symbolic link"));
        }
        let state = node.state.lock();
        Ok(state.inode.target.clone())
    }
}

/// A set-group-id directory gives its group to what is made in it, to directories also the bit.
fn inherit_group(directory: &Node, inode: &mut Inode) {
    let state = directory.state.lock();
    if state.inode.permissions & SET_GROUP_ID != 0 {
        inode.group = state.inode.group;
        if inode.kind == InodeKind::Directory {
            inode.permissions |= SET_GROUP_ID;
        }
    }
}

impl Core {
    /// Makes a node with a name. The caller holds the names alone.
    fn make(
        &self,
        parent: FileId,
        name: &[u8],
        mut inode: Inode,
        request: Option<RequestUnderWay<'_>>,
    ) -> FsResult<Arc<Node>> {
        let directory = self.node(parent)?;
        directory.check_living_directory()?;
        check_name(name)?;
        if read_name(&self.group, parent, name)?.is_some() {
            return Err(FsError::Exists);
        }
        inherit_group(&directory, &mut inode);
        let layout = match inode.kind {
            InodeKind::Regular => Some(self.layout_at(&directory, name)?),
            _ => None,
        };
        let kind = inode.kind;
        let now = inode.created;
        let (node, record) = {
            let operation = self.begin_for(request);
            let id = operation.next_id();
            let file = layout
                .map(|layout| operation.create_file(id, layout))
                .transpose()?;
            let node = Arc::new(Node::fresh(id, inode, file));
            node.state.lock().place = Some(Place {
                parent,
                name: name.into(),
            });
            operation.write_back(&node);
            let record = operation.add_entry(&directory, name, id, kind, now);
            (node, record)
        };
        self.nodes.insert(Arc::clone(&node));
        directory.list_entry(name, record);
        Ok(node)
    }
}

impl Operation<'_> {
    /// Adds an entry with a new cookie; the directory's times and links follow.
    pub(crate) fn add_entry(
        &self,
        directory: &Node,
        name: &[u8],
        id: FileId,
        kind: InodeKind,
        now: Timestamp,
    ) -> NameRecord {
        let cookie = self.update(directory, true, |state| {
            state.inode.modified = now;
            state.inode.changed = now;
            if kind == InodeKind::Directory {
                state.inode.links_count += 1;
            }
            let cookie = state.inode.next_cookie;
            state.inode.next_cookie += 1;
            cookie
        });
        let record = NameRecord { id, kind, cookie };
        self.put_entry(directory.id, name, record);
        record
    }

    /// Puts an entry's row.
    pub(crate) fn put_entry(&self, directory: FileId, name: &[u8], record: NameRecord) {
        let mut edit = Edit::default();
        edit.put(Table::Name, named_key(directory, name), record.encode());
        self.rows(edit);
    }

    /// Removes an entry; the directory's times and links follow.
    pub(crate) fn remove_entry(
        &self,
        directory: &Node,
        name: &[u8],
        kind: InodeKind,
        now: Timestamp,
    ) {
        self.update(directory, true, |state| {
            state.inode.modified = now;
            state.inode.changed = now;
            if kind == InodeKind::Directory {
                state.inode.links_count -= 1;
            }
        });
        let mut edit = Edit::default();
        edit.delete(Table::Name, named_key(directory.id, name));
        self.rows(edit);
    }
}
