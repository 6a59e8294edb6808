//! The redundancy of files, directories and the group, changed while they are used.
//!
//! A person may say of a file or a directory what its redundancy is; a directory says it for all
//! that is made below it later. These marks stand in one row, by the number of the file or
//! directory, so a mark goes where its directory is moved to. The nearest one decides: the file's
//! own, else that of the directory, else of the one above; where there is none the template does,
//! and where that says "as the group" the group. In a group without redundancy nothing else does.
//!
//! Files that are there are converted by the group; a crash before all is durable leaves marks
//! and files as they were, or the files converted and the mark missing: asking again sets it.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use spindle_base::{FileId, Redundancy};
use spindle_catalog::{Edit, Table};
use spindle_group::Group;

use crate::attribute::Kind;
use crate::directory::Climb;
use crate::error::{FsError, FsResult, corrupt};
use crate::node::Node;
use crate::row::read_inode;
use crate::system::{Core, FileSystem};
use crate::template::redundancy_of;

/// The attribute row of the marks, as text: a number and a redundancy in each line.
const MARKS_KEY: &[u8] = b"redundancies";
/// The first line of the text.
const VERSION_LINE: &str = "redundancies 1";

/// What people have said, by file or directory.
pub(crate) type Marks = BTreeMap<FileId, Redundancy>;

/// What a change of redundancy came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Converted {
    /// Files that get another number of copies.
    pub files_count: u64,
}

/// The marks of a group.
pub(crate) fn read_marks(group: &Group) -> FsResult<Marks> {
    let Some(bytes) = group.get(Table::Attribute, MARKS_KEY)? else {
        return Ok(Marks::new());
    };
    parse_marks(&bytes).ok_or_else(|| {
        corrupt(
            "the redundancies of files and directories cannot be read: they are damaged or of a \
             newer Spindle"
                .to_owned(),
        )
    })
}

fn parse_marks(bytes: &[u8]) -> Option<Marks> {
    let mut lines = std::str::from_utf8(bytes).ok()?.lines();
    if lines.next()? != VERSION_LINE {
        return None;
    }
    lines
        .map(|line| {
            let (id, redundancy) = line.split_once(' ')?;
            Some((FileId(id.parse().ok()?), redundancy_of(redundancy)?))
        })
        .collect()
}

fn write_marks(marks: &Marks) -> Vec<u8> {
    let mut text = format!("{VERSION_LINE}\n");
    for (id, redundancy) in marks {
        text.push_str(&format!("{} {redundancy}\n", id.0));
    }
    text.into_bytes()
}

impl FileSystem {
    /// Gives a file another redundancy; or a directory, for what is made below it from now on,
    /// and with `recursive` for what is there too. Durable at return; the copies follow as
    /// background work.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for anything else, or what the group says: then nothing has changed.
    pub fn set_redundancy(
        &self,
        id: FileId,
        redundancy: Redundancy,
        recursive: bool,
    ) -> FsResult<Converted> {
        let core = &self.core;
        let kind = self.attributes(id)?.kind;
        if !matches!(kind, Kind::Regular | Kind::Directory) {
            return Err(FsError::Invalid(
                "only files and directories have a redundancy",
            ));
        }
        let mut files: Vec<(FileId, Redundancy)> = Vec::new();
        let mut below: Vec<FileId> = Vec::new();
        if kind == Kind::Regular {
            files.push((id, redundancy));
        } else if recursive {
            self.walk(id, &mut |_, attributes| {
                below.push(attributes.id);
                if attributes.kind == Kind::Regular {
                    files.push((attributes.id, redundancy));
                }
                Ok(())
            })?;
        }
        core.group.check_redundancy(redundancy)?;
        let files_count = core.group.convert_files(&files)?;
        core.change_marks(|marks| {
            for id in &below {
                marks.remove(id);
            }
            marks.insert(id, redundancy);
        })?;
        Ok(Converted { files_count })
    }

    /// Gives the group another redundancy, and with it all files whose template says "as the
    /// group" and of which nobody has said anything else; all files where none is to be left.
    ///
    /// # Errors
    /// What the group says: then nothing has changed.
    pub fn convert_group(&self, redundancy: Redundancy) -> FsResult<Converted> {
        let group = &self.core.group;
        let files = self.files_as_the_group(redundancy)?;
        let mut files_count = group.convert_group(redundancy, &files)?;
        // Files that were made between the look and the change.
        let rest = self.files_as_the_group(redundancy)?;
        files_count += group.convert_files(&rest)?;
        Ok(Converted { files_count })
    }

    /// What [`FileSystem::convert_group`] would come to; nothing is changed.
    ///
    /// # Errors
    /// As there.
    pub fn estimate_conversion(&self, redundancy: Redundancy) -> FsResult<Converted> {
        let files = self.files_as_the_group(redundancy)?;
        let files_count = (self.core.group).estimate_conversion(redundancy, &files)?;
        Ok(Converted { files_count })
    }

    /// Gives the templates of that name another redundancy, `None` for "as the group", for files
    /// made from now on; false where there is none of that name. Durable at return.
    ///
    /// # Errors
    /// What the group says.
    pub fn set_template_redundancy(
        &self,
        name: &str,
        redundancy: Option<Redundancy>,
    ) -> FsResult<bool> {
        if let Some(redundancy) = redundancy {
            self.core.group.check_redundancy(redundancy)?;
        }
        let mut templates = self.templates();
        let mut found = false;
        for template in templates.iter_mut().filter(|one| one.name == name) {
            template.redundancy = redundancy;
            found = true;
        }
        if found {
            self.set_templates(templates)?;
            self.core.group.make_durable()?;
        }
        Ok(found)
    }

    /// The files that have the group's redundancy where it is this one.
    fn files_as_the_group(&self, redundancy: Redundancy) -> FsResult<Vec<(FileId, Redundancy)>> {
        let core = &self.core;
        let marks = Arc::clone(&core.marks.read());
        let templates = Arc::clone(&core.templates.read());
        // A directory before its contents: what holds for it holds below.
        let mut marked: BTreeMap<Vec<u8>, bool> = BTreeMap::new();
        let mut files = BTreeMap::new();
        let root_is_marked = marks.contains_key(&FileId::ROOT);
        self.walk(FileId::ROOT, &mut |path, attributes| {
            let bytes = path.as_bytes();
            let above = bytes.iter().rposition(|byte| *byte == b'/');
            let inherited = above.map_or(root_is_marked, |end| {
                marked.get(&bytes[..end]).copied().unwrap_or(false)
            });
            let is_marked = inherited || marks.contains_key(&attributes.id);
            match attributes.kind {
                Kind::Directory => {
                    marked.insert(bytes.to_vec(), is_marked);
                }
                Kind::Regular => {
                    let parts: Vec<Vec<u8>> = bytes
                        .split(|byte| *byte == b'/')
                        .map(<[u8]>::to_vec)
                        .collect();
                    let follows = redundancy == Redundancy::External
                        || (!is_marked && is_as_the_group(&templates, &parts));
                    if follows {
                        files.insert(attributes.id, redundancy);
                    }
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(files.into_iter().collect())
    }

    /// What somebody has said of this file or directory itself, if anybody has.
    #[must_use]
    pub fn redundancy_mark(&self, id: FileId) -> Option<Redundancy> {
        self.core.marks.read().get(&id).copied()
    }
}

/// Whether the template of this path leaves the redundancy to the group.
fn is_as_the_group(templates: &[crate::template::Template], path: &[Vec<u8>]) -> bool {
    let template = (templates.iter()).find(|one| crate::pattern::matches(&one.pattern, path));
    template.is_none_or(|template| template.redundancy.is_none())
}

impl Core {
    /// What is said of the nearest directory, from this one on up. The caller holds the names.
    pub(crate) fn mark_above(&self, directory: &Arc<Node>) -> FsResult<Option<Redundancy>> {
        let marks = Arc::clone(&self.marks.read());
        if marks.is_empty() {
            return Ok(None);
        }
        let mut node = Arc::clone(directory);
        let mut climb = Climb::default();
        loop {
            climb.note(node.id)?;
            if let Some(redundancy) = marks.get(&node.id) {
                return Ok(Some(*redundancy));
            }
            if node.id == FileId::ROOT {
                return Ok(None);
            }
            node = self.node_of_entry(node.parent())?;
        }
    }

    /// Changes the marks, durably. Those of files that are gone go with it.
    fn change_marks(&self, change: impl FnOnce(&mut Marks)) -> FsResult<()> {
        {
            // Under the lock, so that memory and rows agree on which of two came last.
            let _names = self.names.write();
            let mut marks = Marks::clone(&self.marks.read());
            change(&mut marks);
            let mut kept = Marks::new();
            for (id, redundancy) in marks {
                if read_inode(&self.group, id)?.is_some() {
                    kept.insert(id, redundancy);
                }
            }
            let mut edit = Edit::default();
            edit.put(Table::Attribute, MARKS_KEY.to_vec(), write_marks(&kept));
            self.begin().rows(edit);
            *self.marks.write() = Arc::new(kept);
        }
        self.group.make_durable()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use spindle_base::{FileId, Redundancy};

    use super::{Marks, parse_marks, write_marks};

    #[test]
    fn marks_read_back_as_they_were_written_and_anything_else_is_refused() {
        let marks = Marks::from([
            (FileId(7), Redundancy::High),
            (FileId(u64::MAX), Redundancy::External),
        ]);
        assert_eq!(parse_marks(&write_marks(&marks)), Some(marks));
        for wrong in ["", "redundancies 2\n", "redundancies 1\n7 great\n"] {
            assert_eq!(parse_marks(wrong.as_bytes()), None, "{wrong:?}");
        }
    }
}
