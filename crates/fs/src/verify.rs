//! Reads of databases' files verify the pages that they return: one whose checksum is wrong is
//! looked at as a scrub would, every copy read and what is proven put right, and read again. What
//! is read again is verified as well: it may come from another copy.
//!
//! Only whole pages are judged, and only where it is known what the file is: by its path and its
//! head, asked once for each node and again where the answer no longer fits. Nobody who judges
//! holds a lock of the file system: what a file is has to be read from other files.
//!
//! What no copy proves is returned as it is, as without this; the database that reads it judges
//! it again, and the next scrub tells of it. A look that mended nothing is followed by one more
//! read, because another reader may have mended what was wrong, and by another look only where
//! that read met something else.

use std::sync::Arc;

use spindle_format::COPIES_MAX;
use spindle_group::File;
use spindle_pages::{PageFile, is_candidate, is_database};
use spindle_sync::atomic::{AtomicU32, Ordering};
use spindle_sync::level::LeafRwLock;

use crate::data::bytes_of;
use crate::node::Node;
use crate::page_judge::PathJudge;
use crate::system::FileSystem;

/// So often one read is looked at: once for each copy that an extent can have.
pub(crate) const LOOKS_MOST: usize = COPIES_MAX;
/// So many more looks than good reads may find a page wrong and mend nothing before a file's pages
/// are left to its database, until it has read good ones again: each look costs a read of every
/// copy, and most likely the file is something else.
const DOUBTS_MAX: u32 = 192;
/// A file that was no database's is asked again when it is so many times as long.
const GROWTH: u64 = 4;

/// What is known of the pages of a node's file.
#[derive(Debug, Default)]
pub(crate) struct PageWatch {
    looked: LeafRwLock<Looked>,
    doubts_count: AtomicU32,
}

#[derive(Debug, Default, Clone, Copy)]
enum Looked {
    /// Nobody has looked yet.
    #[default]
    Never,
    /// No database's, when it was as long as that.
    Other { size_bytes: u64 },
    /// A database's, and how its pages are judged.
    Pages(PageFile),
}

impl FileSystem {
    /// Reads verify the pages of databases, or do not. They do where nothing else was said.
    pub fn set_verify(&self, is_on: bool) {
        self.core.verifies.store(is_on, Ordering::Relaxed);
    }

    /// Whether a page among the bytes that were read was wrong and may be right by now, so that they
    /// have to be read again. `in_vain` is what the look before, of the same read, was at and did
    /// not mend.
    pub(crate) fn mend_what_was_read(
        &self,
        node: &Node,
        offset_bytes: u64,
        read: &[u8],
        in_vain: &mut Option<(u64, u64)>,
    ) -> bool {
        if !self.core.verifies.load(Ordering::Relaxed) {
            return false;
        }
        let Some(file) = &node.file else {
            return false;
        };
        let watch = &node.pages;
        let Some(pages) = self.pages_of(node, file, offset_bytes, read) else {
            return false;
        };
        let doubts = &watch.doubts_count;
        let Some(range) = bad_range(&pages, offset_bytes, read) else {
            // Nearly always there is none, and nothing is written that other readers share.
            if doubts.load(Ordering::Relaxed) > 0 {
                let less = |count: u32| count.checked_sub(1);
                let _ = doubts.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
            }
            return false;
        };
        if doubts.load(Ordering::Relaxed) >= DOUBTS_MAX || *in_vain == Some(range) {
            return false;
        }
        // Its server may have been stopped and its checksums switched off since it was looked at.
        let again = self.look(node, file);
        *watch.looked.write() = again;
        if !matches!(again, Looked::Pages(same) if same == pages) {
            return false;
        }
        match (self.core.group).mend_pages(file, range.0, range.1) {
            Ok(is_mended) => {
                *in_vain = (!is_mended).then_some(range);
                if !is_mended {
                    doubts.fetch_add(1, Ordering::Relaxed);
                }
                // Another reader, or the scrub, may have mended it a moment ago.
                true
            }
            Err(error) => {
                tracing::warn!(
                    error = error.report(),
                    "a page that looks wrong could not be looked at"
                );
                false
            }
        }
    }

    /// How the pages of a file are judged, where it is a database's.
    fn pages_of(
        &self,
        node: &Node,
        file: &Arc<File>,
        offset_bytes: u64,
        read: &[u8],
    ) -> Option<PageFile> {
        let size_bytes = || node.state.lock().inode.size_bytes;
        let looked = *node.pages.looked.read();
        let is_due = match looked {
            Looked::Pages(pages) => return Some(pages),
            Looked::Never => true,
            Looked::Other { size_bytes: then } => size_bytes() >= GROWTH * then.max(1),
        };
        if !is_due && offset_bytes > 0 {
            return None;
        }
        let has_name = is_due
            && (self.recent_path(node.id))
                .is_some_and(|path| is_candidate(&path.to_string_lossy()));
        let looked = if has_name || (offset_bytes == 0 && is_database(read)) {
            self.look(node, file)
        } else if is_due {
            Looked::Other {
                size_bytes: size_bytes(),
            }
        } else {
            return None;
        };
        *node.pages.looked.write() = looked;
        match looked {
            Looked::Pages(pages) => Some(pages),
            Looked::Never | Looked::Other { .. } => None,
        }
    }

    /// Looks what the file is.
    fn look(&self, node: &Node, file: &Arc<File>) -> Looked {
        let size_bytes = node.state.lock().inode.size_bytes;
        let pages = self
            .recent_path(node.id)
            .and_then(|path| PathJudge::pages(&self.core, file, &path.to_string_lossy()));
        pages.map_or(Looked::Other { size_bytes }, Looked::Pages)
    }
}

/// From the first page of them that looks wrong to the end of the last, in bytes of the file.
fn bad_range(pages: &PageFile, offset_bytes: u64, read: &[u8]) -> Option<(u64, u64)> {
    let page_bytes = pages.page_bytes();
    let page = bytes_of(page_bytes);
    let first = offset_bytes.div_ceil(page);
    let skipped = usize::try_from(first * page - offset_bytes).ok()?;
    let whole = read.get(skipped..)?.chunks_exact(page_bytes);
    let mut bad = (first..)
        .zip(whole)
        .filter(|(number, page)| pages.judge(*number, page).is_bad())
        .map(|(number, _)| number);
    let first_bad = bad.next()?;
    let last_bad = bad.last().unwrap_or(first_bad);
    Some((first_bad * page, (last_bad + 1) * page))
}
