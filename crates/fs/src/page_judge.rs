//! Which files a scrub can judge: their paths, and what their first bytes say.
//!
//! The group knows files by number. A path comes from the node where it is in memory, else from
//! an index over all names that is made once a scrub needs it and dropped when the scrub ends; one
//! that leads elsewhere by then is none. The judge holds no group: it would keep the group that
//! holds it alive.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::sync::{Arc, Weak};

use spindle_base::FileId;
use spindle_catalog::Table;
use spindle_format::InodeKind;
use spindle_group::{File, Known, PageJudge};
use spindle_pages::{HEAD_BYTES, PageFile, is_candidate, is_database};
use spindle_sync::level::DeepMutex;

use crate::levels;
use crate::row::{each_row, parse_name, split_key};
use crate::system::{Core, FileSystem};

/// So many first bytes tell whether a file of any name is a database.
const GLANCE_BYTES: usize = 4096;
/// Longer than every control file.
const CONTROL_BYTES: usize = 8192;

/// A directory and a name in it.
type Place = (FileId, Box<[u8]>);

/// See the module.
#[derive(Debug)]
pub(crate) struct PathJudge {
    core: Weak<Core>,
    index: DeepMutex<Option<BTreeMap<FileId, Place>>, levels::NameIndex>,
}

impl PathJudge {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Self {
            core: Arc::downgrade(core),
            index: DeepMutex::default(),
        }
    }

    fn path(&self, core: &Arc<Core>, id: FileId) -> Option<OsString> {
        let files = FileSystem {
            core: Arc::clone(core),
        };
        if let Some(path) = files.recent_path(id) {
            return Some(path);
        }
        let path = self.path_in_index(core, id)?;
        if leads_to(core, &path, id) {
            return Some(path);
        }
        // It is as old as the scrub, and something was moved since.
        *self.index.lock() = None;
        self.path_in_index(core, id)
    }

    fn path_in_index(&self, core: &Arc<Core>, id: FileId) -> Option<OsString> {
        let mut index = self.index.lock();
        let index = index.get_or_insert_with(|| names(core));
        let mut parts = Vec::new();
        let mut at = id;
        // A name that leads in a circle is damage, which the check tells of.
        while at != FileId::ROOT && parts.len() < 1000 {
            let (parent, name) = index.get(&at)?;
            parts.push(name);
            at = *parent;
        }
        let mut path = Vec::new();
        for name in parts.into_iter().rev() {
            path.push(b'/');
            path.extend(&name[..]);
        }
        Some(OsString::from_vec(path))
    }

    /// From each copy of the file and of its control file: a disk that lost writes may be the one
    /// that is read first.
    pub(crate) fn pages(core: &Arc<Core>, file: &File, path: &str) -> Option<PageFile> {
        if !is_candidate(path) {
            let mut glance = vec![0; GLANCE_BYTES];
            core.group.read(file, 0, &mut glance).ok()?;
            if !is_database(&glance) {
                return None;
            }
        }
        let heads = core.group.read_each_copy(file, HEAD_BYTES);
        let controls = PageFile::control_path(path).and_then(|path| {
            let files = FileSystem {
                core: Arc::clone(core),
            };
            let found = files.resolve(path.as_ref()).ok()?;
            let file = core.group.file(found.id)?;
            Some(core.group.read_each_copy(&file, CONTROL_BYTES))
        });
        let controls = controls.unwrap_or_default();
        PageFile::recognise_copies(path, &slices(&heads), &slices(&controls))
    }
}

fn leads_to(core: &Arc<Core>, path: &OsStr, id: FileId) -> bool {
    let files = FileSystem {
        core: Arc::clone(core),
    };
    files.resolve(path).is_ok_and(|found| found.id == id)
}

fn slices(copies: &[Vec<u8>]) -> Vec<&[u8]> {
    copies.iter().map(|copy| &copy[..]).collect()
}

impl PageJudge for PathJudge {
    fn look(&self, id: FileId) -> Known {
        let unknown = || Known {
            title: format!("file {id}"),
            pages: None,
        };
        let Some(core) = self.core.upgrade() else {
            return unknown();
        };
        let Some(file) = core.group.file(id) else {
            return unknown();
        };
        let path = self.path(&core, id);
        let title = match &path {
            Some(path) => path.to_string_lossy().into_owned(),
            None => unknown().title,
        };
        let pages = Self::pages(&core, &file, &title);
        // A cluster that was moved meanwhile may have another in its place: whoever is judged by a
        // control file must have been below it when it was read. Other files say themselves what
        // they are.
        if let (Some(path), Some(PageFile::PostgreSql { .. })) = (path, pages)
            && !leads_to(&core, &path, id)
        {
            return unknown();
        }
        Known { title, pages }
    }

    fn rest(&self) {
        *self.index.lock() = None;
    }
}

/// One place of each file and directory. What cannot be read is left out: its files have no
/// title then, and the check tells why.
fn names(core: &Core) -> BTreeMap<FileId, Place> {
    let mut index = BTreeMap::new();
    let walked = each_row(&core.group, Table::Name, &mut |key, value| {
        let (parent, name) = split_key(key)?;
        let Ok(record) = parse_name(parent, name, value) else {
            return Ok(());
        };
        if matches!(record.kind, InodeKind::Regular | InodeKind::Directory) {
            index.insert(record.id, (parent, name.into()));
        }
        Ok(())
    });
    if let Err(error) = walked {
        let error = format!("{error:#}");
        tracing::warn!(error, "not every name could be read for the scrub");
    }
    index
}
