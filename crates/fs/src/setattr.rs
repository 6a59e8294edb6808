//! Changing attributes: permissions, owners, times and the size.

use std::sync::Arc;

use spindle_base::{BLOCK_SIZE_BYTES, FileId};
use spindle_format::{InodeKind, Timestamp};
use spindle_group::{File, Wish};

use crate::attribute::{AttributeChange, Attributes, Time};
use crate::data::{Reach, checked_end};
use crate::error::{FsError, FsResult};
use crate::node::{Node, State};
use crate::system::{Core, FileSystem};

const SET_USER_ID: u16 = 0o4000;
pub(crate) const SET_GROUP_ID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o0010;

/// The times of a change, checked.
struct Stamps {
    accessed: Option<Timestamp>,
    modified: Option<Timestamp>,
    changed: Timestamp,
    now: Timestamp,
}

impl FileSystem {
    /// Changes what `change` names, all of it in one commit.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::TooLarge`] or [`FsError::IsADirectory`] for a size that
    /// cannot be, or what the group says.
    pub fn set_attributes(
        &self,
        id: FileId,
        change: &AttributeChange,
        now: Time,
    ) -> FsResult<Attributes> {
        self.core.group.make_room(Wish::Less)?;
        let node = self.core.node(id)?;
        let stamps = Stamps {
            accessed: change.accessed.map(Time::stamp).transpose()?,
            modified: change.modified.map(Time::stamp).transpose()?,
            changed: change.changed.unwrap_or(now).stamp()?,
            now: now.stamp()?,
        };
        match change.size_bytes {
            Some(size_bytes) => {
                let file = node.file()?;
                checked_end(size_bytes, 0)?;
                self.core
                    .set_size(&node, file, size_bytes, change, &stamps)?;
            }
            None => self.core.set_fields(&node, change, &stamps)?,
        }
        node.attributes(&self.core.group)
    }
}

impl Core {
    fn set_fields(
        &self,
        node: &Arc<Node>,
        change: &AttributeChange,
        stamps: &Stamps,
    ) -> FsResult<()> {
        let only_times = change.permissions.is_none()
            && change.user.is_none()
            && change.group.is_none()
            && !change.kill_privileges;
        if only_times {
            // The kernel sends the times of what it wrote back often; they may wait.
            return self.change_lagging(node, |state| {
                check_there(state)?;
                apply_fields(state, change, stamps);
                state.touch(false);
                Ok(())
            });
        }
        let operation = self.begin();
        operation.try_update(node, false, |state| {
            check_there(state)?;
            apply_fields(state, change, stamps);
            Ok(())
        })
    }

    /// Moves the end of the file. Down: the smaller size is in an edit before the bytes go, so
    /// a crash between both leaves bytes beyond the end, never a file that lost its bytes and
    /// kept its size. Whatever refuses comes before that edit: what waits of the bytes is nowhere
    /// else.
    fn set_size(
        &self,
        node: &Arc<Node>,
        file: &File,
        size_bytes: u64,
        change: &AttributeChange,
        stamps: &Stamps,
    ) -> FsResult<()> {
        let _content = self.content_for(node, file, Reach::Size(size_bytes))?;
        let (old_bytes, has_young_cut) = {
            let mut state = node.state.lock();
            check_there(&state)?;
            (state.inode.size_bytes, state.has_young_cut(&self.group))
        };
        if size_bytes <= old_bytes {
            self.group.check_serves()?;
        }
        // No direct client reads beyond a new end that lies before the old one.
        let _withheld = (size_bytes < old_bytes).then(|| self.withhold(file, 0, u64::MAX));
        self.begin()
            .try_update(node, true, |state| -> FsResult<()> {
                check_there(state)?;
                state.inode.size_bytes = size_bytes;
                state.inode.modified = stamps.now;
                apply_fields(state, change, stamps);
                if size_bytes < old_bytes {
                    state.note_cut();
                }
                Ok(())
            })?;
        if size_bytes < old_bytes {
            // Nobody asks before: the content is held alone, and the node is not let go of.
            (node.state.lock()).note_cut_through(self.group.applied());
        }
        // Where the cut cannot be kept yet a kill would take it back: what waits beyond the end stays
        // until the end moves the next time, as do bytes there that no disk could give back.
        if size_bytes <= old_bytes && self.group.keep_what_fell_out().is_ok() {
            self.discard(node, size_bytes.div_ceil(BLOCK_SIZE_BYTES), u64::MAX);
            self.cut(node, file, size_bytes, has_young_cut);
        }
        Ok(())
    }

    /// Gives the blocks beyond the end back, also those that were reserved there. The rest of the
    /// last block stays until the end moves over it. The cut has been made: where a disk is away it
    /// holds all the same, and the space goes when the end moves the next time.
    ///
    /// Extents that went whole nothing is written to until their removal is durable. So a cut that took
    /// no more than such ones holds nobody up, unless there was one before it; one that took all of the
    /// file took what that one had left too.
    fn cut(&self, node: &Node, file: &File, size_bytes: u64, had_young_cut: bool) {
        let end_bytes = size_bytes.next_multiple_of(BLOCK_SIZE_BYTES);
        match self.group.truncate(file, end_bytes) {
            Ok(takes_part) => {
                if end_bytes > size_bytes {
                    return;
                }
                let mut state = node.state.lock();
                state.clean_beyond_end = true;
                if size_bytes == 0 || !takes_part && !had_young_cut {
                    state.forget_cut();
                }
            }
            Err(error) => {
                tracing::warn!(id = node.id.0, %error, "a file was cut, and its space is not free yet");
            }
        }
    }
}

fn check_there(state: &State) -> FsResult<()> {
    if state.removed {
        return Err(FsError::NotFound);
    }
    Ok(())
}

fn apply_fields(state: &mut State, change: &AttributeChange, stamps: &Stamps) {
    let inode = &mut state.inode;
    if change.kill_privileges && inode.kind != InodeKind::Directory {
        inode.permissions &= !SET_USER_ID;
        // Without the group's execute bit it means mandatory locking, not a privilege.
        if inode.permissions & GROUP_EXECUTE != 0 {
            inode.permissions &= !SET_GROUP_ID;
        }
    }
    if let Some(permissions) = change.permissions {
        inode.permissions = permissions & 0o7777;
    }
    if let Some(user) = change.user {
        inode.user = user;
    }
    if let Some(group) = change.group {
        inode.group = group;
    }
    if let Some(accessed) = stamps.accessed {
        inode.accessed = accessed;
    }
    if let Some(modified) = stamps.modified {
        inode.modified = modified;
    }
    inode.changed = stamps.changed;
}
