//! Files that direct clients read by themselves: when they may, and what is asked of them first.
//!
//! The group knows where blocks lie and who changes them; here is known what waits in memory, and where a
//! file ends. Nothing is shown of a file of which blocks wait: those that the disks have may be older. Whoever
//! puts bytes into memory withholds their blocks from before the first one until all are there, so that the
//! file is found waiting behind that.

use spindle_base::BLOCK_SIZE_BYTES;
use spindle_group::{ClientKey, File, Withheld};

use crate::error::FsResult;
use crate::handle::Handle;
use crate::node::Node;
use crate::system::{Core, FileSystem};

impl FileSystem {
    /// Lets direct clients read what is plain of the file: what it is called in their map, `None` where
    /// the group has none. What is not plain now is shown by a later [`FileSystem::show_again`].
    ///
    /// The caller knows that nobody has the file mapped for writing: such bytes come to the disks when the
    /// kernel likes.
    ///
    /// # Errors
    /// That it is no regular file.
    pub fn show(&self, handle: &Handle) -> FsResult<Option<ClientKey>> {
        handle.node.file()?;
        Ok(self.core.show(&handle.node))
    }

    /// Shows again what was changed of files that are shown, where it is plain by now. To be called at times.
    pub fn show_again(&self) {
        for id in self.core.group.files_to_show() {
            match self.core.nodes.get(id) {
                Some(node) => drop(self.core.show(&node)),
                // Nobody has it open.
                None => {
                    if let Some(file) = self.core.group.file(id) {
                        self.core.group.hide_file(&file);
                    }
                    // But for who opened it just now.
                    if let Some(node) = self.core.nodes.get(id) {
                        self.core.show(&node);
                    }
                }
            }
        }
    }
}

impl Core {
    /// No direct client reads the blocks of these bytes until the answer is dropped.
    pub(crate) fn withhold<'a>(
        &self,
        file: &'a File,
        offset_bytes: u64,
        end_bytes: u64,
    ) -> Withheld<'a> {
        let first = offset_bytes / BLOCK_SIZE_BYTES;
        let end = end_bytes.div_ceil(BLOCK_SIZE_BYTES);
        self.group.withhold(file, first, end)
    }

    fn show(&self, node: &Node) -> Option<ClientKey> {
        let file = node.file().ok()?;
        self.group.show_file(file, &|| {
            // In this order: what comes to wait behind the look has withheld its blocks.
            let is_waiting = !node.unwritten.is_empty();
            let state = node.state.lock();
            (!is_waiting && !state.removed).then_some(state.inode.size_bytes)
        })
    }
}

#[cfg(test)]
mod tests;
