//! What keeps a file in being without a name: open handles, and the kernel's references.

use std::sync::Arc;

use spindle_base::FileId;
use spindle_sync::atomic::Ordering;

use crate::error::{FsError, FsResult};
use crate::kept::KeptBytes;
use crate::node::Node;
use crate::system::{Core, FileSystem};

/// An open file: keeps an unlinked one alive until every handle is gone.
pub struct Handle {
    pub(crate) core: Arc<Core>,
    pub(crate) node: Arc<Node>,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").field("id", &self.node.id).finish()
    }
}

impl Handle {
    /// The file it is open on.
    #[must_use]
    pub fn id(&self) -> FileId {
        self.node.id
    }

    /// Where its end is.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.node.state.lock().inode.size_bytes
    }

    /// Whether a front door keeps bytes of the file.
    #[must_use]
    pub fn kept(&self) -> &Arc<KeptBytes> {
        &self.node.kept
    }

    /// Opens `node`, unless it is gone.
    pub(crate) fn open(core: &Arc<Core>, node: &Arc<Node>) -> FsResult<Arc<Self>> {
        let mut state = node.state.lock();
        if state.removed {
            return Err(FsError::NotFound);
        }
        state.handles_count += 1;
        Ok(Arc::new(Self {
            core: Arc::clone(core),
            node: Arc::clone(node),
        }))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let lost = {
            let mut state = self.node.state.lock();
            assert!(
                state.handles_count > 0,
                "a handle was counted when it was made"
            );
            state.handles_count -= 1;
            self.core.is_lost_or_doubtful(self.node.id, &state)
        };
        if lost {
            self.core.remove_lost(&self.node);
        }
    }
}

impl FileSystem {
    /// Opens a file (or a directory, which then stays readable as an empty one when removed).
    ///
    /// # Errors
    /// [`FsError::NotFound`], or what the group says.
    pub fn open_file(&self, id: FileId) -> FsResult<Arc<Handle>> {
        let node = self.core.node(id)?;
        Handle::open(&self.core, &node)
    }

    /// The kernel holds `count` more references to the id (made by lookup, create, ...): it may
    /// use the id although the last name is gone, until `forget`. An id that is gone meanwhile
    /// is no error: the kernel's next question about it is answered so.
    pub fn remember(&self, id: FileId, count: u64) {
        if let Ok(node) = self.core.node(id) {
            let mut state = node.state.lock();
            if !state.removed {
                state.kernel_count += count;
            }
        }
    }

    /// The kernel let go of `count` references.
    pub fn forget(&self, id: FileId, count: u64) {
        let Some(node) = self.core.nodes.get(id) else {
            return;
        };
        let lost = {
            let mut state = node.state.lock();
            state.kernel_count = state.kernel_count.saturating_sub(count);
            self.core.is_lost_or_doubtful(id, &state)
        };
        if lost {
            self.core.remove_lost(&node);
        }
    }

    /// The mount has ended, and nobody serves requests of it any more. The kernel does not say what it
    /// lets go of then. So nobody holds references, those that the kernel was given by an earlier
    /// process included, and what has no name and no handle is removed.
    ///
    /// A file system has one mount at a time, and the next one begins when this has returned: nodes do
    /// not know which mount holds a reference.
    pub fn end_kernel(&self) {
        for id in self.core.forget_references() {
            if let Some(node) = self.core.nodes.get(id) {
                self.core.remove_lost(&node);
            }
        }
        for id in self.doubtful_orphans() {
            self.disinherit(id);
        }
    }
}

impl Core {
    /// Has every node forget the kernel's references; those that nobody can reach now.
    fn forget_references(&self) -> Vec<FileId> {
        // First, so that a node which is loaded now and is not found below inherits nothing.
        self.inherits.store(false, Ordering::Release);
        let mut lost = Vec::new();
        self.nodes.each(&mut |node| {
            let mut state = node.state.lock();
            state.kernel_count = 0;
            state.inherited = false;
            if state.is_lost() {
                lost.push(node.id);
            }
        });
        lost
    }
}
