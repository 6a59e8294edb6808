//! What is read from and written to each file, for who watches a running group.
//!
//! This layer has no clock, so whoever serves a request and has one notes it on the handle.
//! Figures begin at zero when a file is loaded into memory; a file that nobody has used for long
//! is forgotten with its figures.

use spindle_sync::atomic::{AtomicU64, Ordering};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use spindle_base::FileId;
use spindle_format::InodeKind;

use crate::handle::Handle;
use crate::system::FileSystem;

/// Requests of one direction, added up.
#[derive(Debug, Default)]
struct Direction {
    count: AtomicU64,
    bytes: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Direction {
    fn note(&self, length_bytes: usize, elapsed: Duration) {
        let elapsed_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(length_bytes as u64, Ordering::Relaxed);
        self.nanoseconds.fetch_add(elapsed_ns, Ordering::Relaxed);
    }
}

/// The live figures of one node.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    reads: Direction,
    writes: Direction,
}

/// What one file was asked for since it was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileActivity {
    /// The file.
    pub id: FileId,
    /// Reads.
    pub reads_count: u64,
    /// Writes.
    pub writes_count: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Time that the reads took, added up.
    pub read_time_us: u64,
    /// Time that the writes took, added up.
    pub write_time_us: u64,
}

impl Handle {
    /// Notes a read that was served.
    pub fn note_read(&self, length_bytes: usize, elapsed: Duration) {
        self.node.activity.reads.note(length_bytes, elapsed);
    }

    /// Notes a write that was served.
    pub fn note_write(&self, length_bytes: usize, elapsed: Duration) {
        self.node.activity.writes.note(length_bytes, elapsed);
    }
}

impl FileSystem {
    /// Every regular file in memory that was read or written, in the order of the ids.
    #[must_use]
    pub fn activity(&self) -> Vec<FileActivity> {
        let mut found = Vec::new();
        self.core.nodes.each(&mut |node| {
            let (reads, writes) = (&node.activity.reads, &node.activity.writes);
            let load = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
            let activity = FileActivity {
                id: node.id,
                reads_count: load(&reads.count),
                writes_count: load(&writes.count),
                read_bytes: load(&reads.bytes),
                written_bytes: load(&writes.bytes),
                read_time_us: load(&reads.nanoseconds) / 1000,
                write_time_us: load(&writes.nanoseconds) / 1000,
            };
            let used = activity.reads_count + activity.writes_count > 0;
            if used && node.kind == InodeKind::Regular {
                found.push(activity);
            }
        });
        found.sort_by_key(|activity| activity.id);
        found
    }

    /// The path from the root under which the file was found last; `None` where it was not found
    /// by a name since it was loaded, or has none any more.
    #[must_use]
    pub fn recent_path(&self, id: FileId) -> Option<OsString> {
        let _names = self.core.names.read();
        let node = self.core.nodes.get(id)?;
        let place = {
            let state = node.state.lock();
            (state.inode.links_count > 0).then(|| state.place.clone())??
        };
        let directory = self.core.node(place.parent).ok()?;
        let path = self.core.path_at(&directory, &place.name).ok()?;
        let mut bytes = vec![b'/'];
        bytes.extend(path.join(&b'/'));
        Some(OsString::from_vec(bytes))
    }
}
