//! Paths: what templates look at, and what works without a mount.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

use spindle_base::{FileId, Redundancy};
use spindle_format::InodeKind;
use spindle_group::Layout;

use crate::attribute::{Attributes, Kind, Owner, Time};
use crate::directory::Climb;
use crate::error::{FsError, FsResult, corrupt_inode};
use crate::node::Node;
use crate::row::name_of;
use crate::system::{Core, FileSystem};
use crate::template::{Caching, TemplateCaching, caching_of, layout_of};

/// Entries that a walk asks for at once.
const ENTRIES_AT_ONCE: usize = 1024;

impl FileSystem {
    /// What the template says of the file's caching, by the name under which it was found last.
    ///
    /// # Errors
    /// [`FsError::NotFound`], or what the group says.
    pub fn caching(&self, id: FileId) -> FsResult<Caching> {
        let templates = Arc::clone(&*self.core.templates.read());
        if templates
            .iter()
            .all(|template| template.caching != TemplateCaching::Direct)
        {
            return Ok(Caching::Cached);
        }
        let _names = self.core.names.read();
        let node = self.core.node(id)?;
        let place = node.state.lock().place.clone();
        let Some(place) = place else {
            return Ok(Caching::Cached);
        };
        // The directory of an unlinked file can be gone.
        let directory = self.core.node(place.parent);
        let path = directory.and_then(|directory| self.core.path_at(&directory, &place.name));
        Ok(path.map_or(Caching::Cached, |path| caching_of(&templates, &path)))
    }

    /// What a new file at this path would get (profile and templates).
    ///
    /// # Errors
    /// No such directory, or what the group says.
    pub fn layout_for(&self, parent: FileId, name: &OsStr) -> FsResult<Layout> {
        let _names = self.core.names.read();
        let directory = self.core.node(parent)?;
        directory.check_living_directory()?;
        self.core.layout_at(&directory, name.as_bytes())
    }

    /// Walks a path from the root; symbolic links are not followed.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotADirectory`], or what the group says.
    pub fn resolve(&self, path: &OsStr) -> FsResult<Attributes> {
        let mut attributes = self.attributes(FileId::ROOT)?;
        for name in components(path) {
            attributes = self.lookup(attributes.id, name)?;
        }
        Ok(attributes)
    }

    /// A path of the file from the root, by the directory in which it was made or to which it was
    /// moved; `None` where it has no name there, or is not there any more.
    ///
    /// # Errors
    /// What the group says.
    pub fn path_of(&self, id: FileId) -> FsResult<Option<OsString>> {
        let _names = self.core.names.read();
        let named = || -> FsResult<Option<Vec<Vec<u8>>>> {
            let node = self.core.node(id)?;
            // Of what was removed while it is open the directory would be read to its end in vain.
            if node.state.lock().inode.links_count == 0 {
                return Ok(None);
            }
            let parent = node.parent();
            let Some(name) = name_of(&self.core.group, parent, id)? else {
                return Ok(None);
            };
            let directory = self.core.node(parent)?;
            // Whoever asks again need not look for it again.
            node.note_place(parent, &name);
            self.core.path_at(&directory, &name).map(Some)
        };
        match named() {
            Ok(parts) => Ok(parts.map(|parts| {
                let mut path = Vec::new();
                for part in parts {
                    path.push(b'/');
                    path.extend(part);
                }
                OsString::from_vec(path)
            })),
            Err(FsError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Walks a path from the root and makes the directories that are missing.
    ///
    /// # Errors
    /// [`FsError::NotADirectory`], an invalid name, or what the group says.
    pub fn make_path(
        &self,
        path: &OsStr,
        permissions: u16,
        owner: Owner,
        now: Time,
    ) -> FsResult<Attributes> {
        let mut attributes = self.attributes(FileId::ROOT)?;
        for name in components(path) {
            attributes = match self.lookup(attributes.id, name) {
                Err(FsError::NotFound) => {
                    self.make_directory(attributes.id, name, permissions, owner, now)?
                }
                found => found?,
            };
            if attributes.kind != Kind::Directory {
                return Err(FsError::NotADirectory);
            }
        }
        Ok(attributes)
    }

    /// Calls `visit` with everything below the directory `id`, a directory before its contents:
    /// the path relative to `id`, and the attributes. What vanishes meanwhile is left out.
    ///
    /// # Errors
    /// [`FsError::NotADirectory`], what `visit` says, or what the group says.
    pub fn walk(
        &self,
        id: FileId,
        visit: &mut dyn FnMut(&OsStr, &Attributes) -> FsResult<()>,
    ) -> FsResult<()> {
        let mut waiting = vec![(id, Vec::new())];
        let mut seen = BTreeSet::new();
        while let Some((directory, path)) = waiting.pop() {
            // Moved meanwhile, or damaged: directories may lie in one another then.
            if !seen.insert(directory) {
                continue;
            }
            let mut below = Vec::new();
            let mut cookie = 0;
            loop {
                let entries = match self.read_directory(directory, cookie, ENTRIES_AT_ONCE) {
                    Err(FsError::NotFound) if directory != id => break,
                    found => found?,
                };
                let Some(last) = entries.last() else {
                    break;
                };
                cookie = last.cookie;
                for entry in entries {
                    if entry.name == b"." || entry.name == b".." {
                        continue;
                    }
                    let attributes = match self.attributes(entry.id) {
                        Err(FsError::NotFound) => continue,
                        found => found?,
                    };
                    let path = joined(&path, &entry.name);
                    visit(OsStr::from_bytes(&path), &attributes)?;
                    if attributes.kind == Kind::Directory {
                        below.push((entry.id, path));
                    }
                }
            }
            waiting.extend(below.into_iter().rev());
        }
        Ok(())
    }
}

fn components(path: &OsStr) -> impl Iterator<Item = &OsStr> {
    path.as_bytes()
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty())
        .map(OsStr::from_bytes)
}

fn joined(path: &[u8], name: &[u8]) -> Vec<u8> {
    let mut joined = path.to_vec();
    if !joined.is_empty() {
        joined.push(b'/');
    }
    joined.extend_from_slice(name);
    joined
}

impl Core {
    /// The layout of a new file. The caller holds the names.
    pub(crate) fn layout_at(&self, directory: &Arc<Node>, name: &[u8]) -> FsResult<Layout> {
        let templates = Arc::clone(&*self.templates.read());
        let path = self.path_at(directory, name)?;
        let group = self.group.redundancy();
        let mut layout = layout_of(&templates, &path, group);
        if group != Redundancy::External
            && let Some(redundancy) = self.mark_above(directory)?
        {
            layout.redundancy = redundancy;
        }
        Ok(layout)
    }

    /// The components of a path from the root. The caller holds the names.
    pub(crate) fn path_at(&self, directory: &Arc<Node>, name: &[u8]) -> FsResult<Vec<Vec<u8>>> {
        let mut path = vec![name.to_vec()];
        let mut node = Arc::clone(directory);
        let mut climb = Climb::default();
        while node.id != FileId::ROOT {
            climb.note(node.id)?;
            let parent = self.node_of_entry(node.parent())?;
            path.push(self.name_in(&parent, &node)?);
            node = parent;
        }
        path.reverse();
        Ok(path)
    }

    /// The name of a directory in the one above it.
    fn name_in(&self, parent: &Node, node: &Node) -> FsResult<Vec<u8>> {
        assert!(node.kind == InodeKind::Directory, "others have many names");
        if let Some(place) = &node.state.lock().place
            && place.parent == parent.id
        {
            return Ok(place.name.to_vec());
        }
        // Loaded by its id since the last opening: look for it once.
        let Some(name) = name_of(&self.group, parent.id, node.id)? else {
            return Err(corrupt_inode(
                node.id,
                format!(
                    "directory {} is not in directory {}, which it names as the one above",
                    node.id, parent.id
                ),
            ));
        };
        node.note_place(parent.id, &name);
        Ok(name)
    }
}
