//! Hard links; also how a file that was made without a name gets one.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use spindle_base::FileId;
use spindle_format::InodeKind;
use spindle_group::Wish;

use crate::attribute::{Asked, Attributes};
use crate::error::{FsError, FsResult};
use crate::node::Place;
use crate::row::{check_name, read_name};
use crate::system::FileSystem;

/// The most names that a file can have.
pub const LINKS_COUNT_MAX: u32 = 65_000;

impl FileSystem {
    /// Gives a file one more name.
    ///
    /// # Errors
    /// [`FsError::NotPermitted`] for a directory, [`FsError::TooManyLinks`], [`FsError::Exists`],
    /// an invalid name, no such file or directory, or what the group says.
    pub fn make_link<'a>(
        &'a self,
        id: FileId,
        parent: FileId,
        name: &OsStr,
        asked: impl Into<Asked<'a>>,
    ) -> FsResult<Attributes> {
        let Asked { now, request } = asked.into();
        let core = &self.core;
        let now = now.stamp()?;
        let name = name.as_bytes();
        self.core.group.make_room(Wish::More)?;
        let _names = core.names.write();
        let directory = core.node(parent)?;
        directory.check_living_directory()?;
        check_name(name)?;
        let node = core.node(id)?;
        if node.kind == InodeKind::Directory {
            return Err(FsError::NotPermitted("a directory has one name"));
        }
        if read_name(&core.group, parent, name)?.is_some() {
            return Err(FsError::Exists);
        }
        let record = {
            let operation = core.begin_for(request);
            operation.try_update(&node, true, |state| {
                if state.removed {
                    return Err(FsError::NotFound);
                }
                if state.inode.links_count >= LINKS_COUNT_MAX {
                    return Err(FsError::TooManyLinks);
                }
                state.inode.links_count += 1;
                state.inode.changed = now;
                state.place = Some(Place {
                    parent,
                    name: name.into(),
                });
                Ok(())
            })?;
            operation.add_entry(&directory, name, id, node.kind, now)
        };
        directory.list_entry(name, record);
        node.attributes(&core.group)
    }
}
