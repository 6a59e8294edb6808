//! What statfs shows: what files can really get, copies and reserves taken off.

use spindle_base::{BLOCK_SIZE_BYTES, Striping};
use spindle_group::Layout;

use crate::error::FsResult;
use crate::system::FileSystem;

/// What statfs shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// The unit of the other fields.
    pub block_size_bytes: u64,
    /// Blocks that files of the group's redundancy have and can get.
    pub blocks: u64,
    /// Blocks that files of the group's redundancy can still get.
    pub blocks_free: u64,
    /// Files that there can be.
    pub files: u64,
    /// Files that can still be made.
    pub files_free: u64,
}

/// No table of inodes limits the number of files; programs want to see many free.
const FILES_COUNT: u64 = 1 << 40;

impl FileSystem {
    /// What statfs shows, for files of the group's own redundancy.
    ///
    /// # Errors
    /// What the group says.
    pub fn space(&self) -> FsResult<Space> {
        let view = self.core.group.view();
        let layout = Layout {
            redundancy: view.redundancy,
            striping: Striping::Coarse,
        };
        let copies = view.redundancy.copies() as u64;
        let used_bytes = view.total_bytes.saturating_sub(view.free_bytes) / copies;
        let free_bytes = self.core.group.usable_bytes(layout);
        let is_full = self.core.group.is_catalog_full();
        Ok(Space {
            block_size_bytes: BLOCK_SIZE_BYTES,
            blocks: (used_bytes + free_bytes) / BLOCK_SIZE_BYTES,
            // Where the catalog refuses new extents, no file gets what is left.
            blocks_free: if is_full {
                0
            } else {
                free_bytes / BLOCK_SIZE_BYTES
            },
            files: FILES_COUNT,
            files_free: if is_full { 0 } else { FILES_COUNT - 1 },
        })
    }
}
