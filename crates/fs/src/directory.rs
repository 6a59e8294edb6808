//! Looking names up and reading directories.
//!
//! An entry's cookie is a number that its directory never gave before; it stays with the entry
//! until it is removed. Reading goes in the order of the cookies, so entries that are there the
//! whole time come exactly once, whatever else comes and goes meanwhile, and without a snapshot
//! per open directory. The rows are in the order of the names; the order of the cookies is held
//! in memory for the directories read last, and kept up to date by every change of names.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use spindle_base::FileId;
use spindle_format::{InodeKind, NameRecord};

use crate::attribute::{Attributes, Entry};
use crate::error::{FsError, FsResult, corrupt_inode};
use crate::node::{Node, Place};
use crate::row::{NAME_BYTES_MAX, each_name, read_name};
use crate::system::{Core, FIRST_COOKIE, FileSystem};

/// Listings kept, and the entries that they may have together: some 100 MiB.
const LISTINGS_COUNT: usize = 64;
const LISTED_ENTRIES_COUNT: usize = 1 << 20;

const SELF_COOKIE: u64 = FIRST_COOKIE - 2;
const PARENT_COOKIE: u64 = FIRST_COOKIE - 1;

/// A directory's entries by cookie.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    entries: BTreeMap<u64, (Box<[u8]>, FileId, InodeKind)>,
}

impl Node {
    /// Keeps a listing up to date: `name` is new or leads elsewhere now.
    pub(crate) fn list_entry(&self, name: &[u8], record: NameRecord) {
        if let Some(listing) = self.listing.lock().as_mut() {
            listing
                .entries
                .insert(record.cookie, (name.into(), record.id, record.kind));
        }
    }

    /// Keeps a listing up to date: the entry is gone.
    pub(crate) fn unlist_entry(&self, cookie: u64) {
        if let Some(listing) = self.listing.lock().as_mut() {
            listing.entries.remove(&cookie);
        }
    }
}

impl FileSystem {
    /// What `name` leads to in the directory `parent`.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotADirectory`], [`FsError::NameTooLong`], or what the
    /// group says.
    pub fn lookup(&self, parent: FileId, name: &OsStr) -> FsResult<Attributes> {
        let core = &self.core;
        let _names = core.names.read();
        let directory = core.node(parent)?;
        directory.check_directory()?;
        let name = name.as_bytes();
        if name.len() > NAME_BYTES_MAX {
            return Err(FsError::NameTooLong);
        }
        let node = match name {
            b"." => directory,
            b".." => core.node(directory.parent())?,
            _ => {
                let Some(record) = read_name(&core.group, parent, name)? else {
                    return Err(FsError::NotFound);
                };
                let node = core.node_of_entry(record.id)?;
                node.note_place(parent, name);
                node
            }
        };
        node.attributes(&core.group)
    }

    /// Entries after `cookie` (0: from the start, "." and ".." included), at most `most`.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotADirectory`], or what the group says.
    pub fn read_directory(&self, id: FileId, cookie: u64, most: usize) -> FsResult<Vec<Entry>> {
        let core = &self.core;
        let _names = core.names.read();
        let node = core.node(id)?;
        node.check_directory()?;
        if node.state.lock().inode.links_count == 0 {
            // Removed while open: it has not even "." any more.
            return Ok(Vec::new());
        }
        let mut entries = Vec::new();
        for (own_cookie, name, id) in [
            (SELF_COOKIE, b".".to_vec(), id),
            (PARENT_COOKIE, b"..".to_vec(), node.parent()),
        ] {
            if own_cookie > cookie && entries.len() < most {
                entries.push(Entry {
                    name,
                    id,
                    kind: InodeKind::Directory.into(),
                    cookie: own_cookie,
                });
            }
        }
        let Some(after) = cookie.checked_add(1) else {
            return Ok(entries);
        };
        let mut listing = node.listing.lock();
        let mut loaded_count = None;
        if listing.is_none() {
            let mut fresh = Listing::default();
            each_name(&core.group, id, &mut |name, record| {
                let entry = (name.into(), record.id, record.kind);
                fresh.entries.insert(record.cookie, entry);
            })?;
            loaded_count = Some(fresh.entries.len());
            *listing = Some(fresh);
        }
        let rest = most - entries.len();
        let ordered = listing
            .iter()
            .flat_map(|listing| listing.entries.range(after..));
        entries.extend(ordered.take(rest).map(|(cookie, (name, id, kind))| Entry {
            name: name.to_vec(),
            id: *id,
            kind: (*kind).into(),
            cookie: *cookie,
        }));
        drop(listing);
        if let Some(count) = loaded_count {
            core.note_listed(id, count);
        }
        Ok(entries)
    }
}

impl Node {
    /// The directory above; the root is above itself.
    pub(crate) fn parent(&self) -> FileId {
        self.state.lock().inode.parent.unwrap_or(FileId::ROOT)
    }

    /// Notes where the node was found, for the templates.
    pub(crate) fn note_place(&self, parent: FileId, name: &[u8]) {
        let mut state = self.state.lock();
        let same = state
            .place
            .as_ref()
            .is_some_and(|place| place.parent == parent && *place.name == *name);
        if !same {
            state.place = Some(Place {
                parent,
                name: name.into(),
            });
        }
    }
}

impl Core {
    /// Notes a listing that was just loaded and lets the oldest go where there are too many.
    /// A reader whose listing went loads it again: slower, and the same cookies.
    fn note_listed(&self, id: FileId, count: usize) {
        let mut gone = Vec::new();
        {
            let mut listed = self.listed.lock();
            listed.retain(|(other, _)| *other != id);
            listed.push_back((id, count));
            let mut entries_count: usize = listed.iter().map(|(_, count)| count).sum();
            while listed.len() > 1
                && (listed.len() > LISTINGS_COUNT || entries_count > LISTED_ENTRIES_COUNT)
            {
                let oldest = listed.pop_front();
                entries_count -= oldest.map_or(0, |(_, count)| count);
                gone.extend(oldest.map(|(id, _)| id));
            }
        }
        for node in gone.into_iter().filter_map(|id| self.nodes.get(id)) {
            *node.listing.lock() = None;
        }
    }

    /// Whether `inner` is `outer` or lies below it. The caller holds the names.
    pub(crate) fn is_within(&self, inner: &Arc<Node>, outer: FileId) -> FsResult<bool> {
        let mut node = Arc::clone(inner);
        let mut climb = Climb::default();
        loop {
            climb.note(node.id)?;
            if node.id == outer {
                return Ok(true);
            }
            if node.id == FileId::ROOT {
                return Ok(false);
            }
            node = self.node_of_entry(node.parent())?;
        }
    }
}

/// A way from a directory up to the root. Directories of damaged or crafted disks may lie in one
/// another, and then no way ends: every so often one directory is remembered, twice as far on
/// each time, and met again the way leads in a circle.
#[derive(Debug, Default)]
pub(crate) struct Climb {
    remembered: Option<FileId>,
    steps_count: u64,
    next_at: u64,
}

impl Climb {
    /// The way has come to this directory.
    pub(crate) fn note(&mut self, id: FileId) -> FsResult<()> {
        if self.remembered == Some(id) {
            return Err(corrupt_inode(
                id,
                format!(
                    "directory {id} lies in itself: `spindle check` tells which names lead in a circle"
                ),
            ));
        }
        if self.steps_count == self.next_at {
            self.remembered = Some(id);
            self.next_at = 2 * self.next_at + 1;
        }
        self.steps_count += 1;
        Ok(())
    }
}
