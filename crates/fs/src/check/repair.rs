//! What a check may put right by itself: only what loses nothing.
//!
//! Counts and rows that merely repeat what the names say follow the names; a name that leads to
//! nothing goes; a file that no name leads to is given one in `/lost+found`. Everything else is
//! told and left: a directory that cannot be reached, a group file without an inode, an inode
//! without its file. Each repair is one operation, and a crash between two leaves the rest for
//! the next check.

use std::ffi::OsString;

use spindle_base::FileId;
use spindle_catalog::{Edit, Table, file_key};

use crate::attribute::{Owner, Time};
use crate::error::{FsError, FsResult};
use crate::row::named_key;
use crate::system::FileSystem;

/// Where files are found again that had lost their name.
const LOST_AND_FOUND: &str = "lost+found";
/// Repairs can show others: a name that goes makes a directory count fewer below it.
const PASSES_MOST: usize = 4;

/// Something that can be put right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Repair {
    /// The names say that the inode has so many links.
    Links { id: FileId, count: u32 },
    /// The names say that this is the directory above.
    Parent { id: FileId, parent: FileId },
    /// An orphan row of something that is not there, or has a name.
    StrayOrphan { id: FileId },
    /// Something unlinked has no orphan row.
    MissingOrphan { id: FileId },
    /// An attribute of something that is not there.
    Attribute { key: Vec<u8> },
    /// A name that leads to nothing.
    Name { parent: FileId, name: Vec<u8> },
    /// The next id to be given is one that is in use.
    NextId { above: FileId },
    /// A file that no name leads to.
    Reattach { id: FileId },
}

/// What a check found and put right.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checked {
    /// What is not as it should be, a line each.
    pub contradictions: Vec<String>,
    /// What was not and is now.
    pub repaired: Vec<String>,
}

impl FileSystem {
    /// As [`FileSystem::check`], and puts right what can be without losing anything.
    ///
    /// # Errors
    /// What the group says, or a row that cannot be read.
    pub fn check_and_repair(&self, owner: Owner, now: Time) -> FsResult<Checked> {
        let mut found = self.examine()?;
        let mut seen = found.lines.clone();
        for _ in 0..PASSES_MOST {
            if found.repairs.is_empty() {
                break;
            }
            for repair in &found.repairs {
                self.repair(repair, owner, now)?;
            }
            found = self.examine()?;
            for line in &found.lines {
                if !seen.contains(line) {
                    seen.push(line.clone());
                }
            }
        }
        seen.retain(|line| !found.lines.contains(line));
        Ok(Checked {
            contradictions: found.lines,
            repaired: seen,
        })
    }

    fn repair(&self, repair: &Repair, owner: Owner, now: Time) -> FsResult<()> {
        if let Repair::Reattach { id } = repair {
            return self.reattach(*id, owner, now);
        }
        let core = &self.core;
        let _names = core.names.write();
        let mut edit = Edit::default();
        match repair {
            Repair::Links { id, count } => {
                let node = core.node(*id)?;
                let operation = core.begin();
                operation.update(&node, true, |state| state.inode.links_count = *count);
            }
            Repair::Parent { id, parent } => {
                let node = core.node(*id)?;
                let operation = core.begin();
                operation.update(&node, true, |state| state.inode.parent = Some(*parent));
            }
            Repair::StrayOrphan { id } => edit.delete(Table::Orphan, file_key(*id)),
            Repair::MissingOrphan { id } => edit.put(Table::Orphan, file_key(*id), Vec::new()),
            Repair::Attribute { key } => edit.delete(Table::ExtendedAttribute, key.clone()),
            Repair::Name { parent, name } => {
                edit.delete(Table::Name, named_key(*parent, name));
                if let Some(directory) = core.nodes.get(*parent) {
                    *directory.listing.lock() = None;
                }
            }
            Repair::NextId { above } => core.give_ids_above(*above),
            Repair::Reattach { .. } => {}
        }
        core.begin().rows(edit);
        Ok(())
    }

    /// Gives a file a name again, that of its number. The count of its links follows with the
    /// next pass.
    fn reattach(&self, id: FileId, owner: Owner, now: Time) -> FsResult<()> {
        let found = match self.lookup(FileId::ROOT, LOST_AND_FOUND.as_ref()) {
            Err(FsError::NotFound) => {
                let name = LOST_AND_FOUND.as_ref();
                self.make_directory(FileId::ROOT, name, 0o700, owner, now)?
            }
            found => found?,
        };
        let name = OsString::from(format!("file-{id}"));
        match self.make_link(id, found.id, &name, now) {
            Ok(_) | Err(FsError::Exists) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
