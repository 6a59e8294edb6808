//! The files of a group that this process has open.
//!
//! What the kernel has cached of a mount beside is written back before a file is read here, and
//! forgotten where a name comes to mean another file.

mod volumes;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use spindle_base::FileId;
use spindle_fs::{
    AttributeChange, Attributes, FileSystem, FsError, Handle, Kind, Owner, RenameMode, Time,
};

use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::api::files::{Files, NewEntry, PIECE_BYTES};
use crate::api::nearness::suggestion;
use crate::api::view::{CopyReport, ExtentReport, FileReport, MapReport, ShareReport, UsageReport};
use crate::machine::clock::now;

/// Zeros in whole pieces of this size become holes.
const HOLE_BYTES: usize = 64 << 10;
/// Entries asked for in one call.
const ENTRIES_MOST: usize = 1024;

/// Told before and after a file system is used past the kernel that has it mounted.
pub trait KernelCache: Send + Sync + std::fmt::Debug {
    /// Changed pages of the file are wanted on the disks before it is read.
    fn write_back(&self, id: FileId);
    /// Bytes of the file were changed here: readers are to see them. Whether all that is kept of it was
    /// forgotten in time; else it is soon.
    fn bytes_changed(&self, id: FileId) -> bool;
    /// Attributes of the file were changed here: who asks for them is to be told anew. Whether what is kept
    /// of them was forgotten.
    fn attributes_changed(&self, id: FileId) -> bool;
    /// The entry `name` of `parent` means something else now.
    fn entry_changed(&self, parent: FileId, name: &OsStr);

    /// Attributes of this file were changed here, as [`Self::attributes_changed`] says it, where anybody was
    /// told of them.
    fn forget_attributes(&self, handle: &Handle) {
        if let Some(forgetting) = handle.forget_attributes()
            && !self.attributes_changed(handle.id())
        {
            forgetting.failed();
        }
    }
}

/// The files of a group that this process has open.
#[derive(Debug, Clone)]
pub struct OpenFiles {
    file_system: Arc<FileSystem>,
    group_name: String,
    kernel: Option<Arc<dyn KernelCache>>,
}

impl OpenFiles {
    /// Over `file_system`; `kernel` is told of what goes past its caches.
    #[must_use]
    pub fn new(
        file_system: Arc<FileSystem>,
        group_name: String,
        kernel: Option<Arc<dyn KernelCache>>,
    ) -> Self {
        Self {
            file_system,
            group_name,
            kernel,
        }
    }

    fn resolve(&self, path: &Path) -> ControlResult<Attributes> {
        let path = normal(path)?;
        self.file_system
            .resolve(path.as_os_str())
            .map_err(|error| self.explain(&path, error))
    }

    /// The directory that `path` is in, and its last component.
    fn parent_of<'a>(&self, path: &'a Path) -> ControlResult<(FileId, &'a OsStr)> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(ControlError::invalid(format!(
                "{} is a directory: name a file in it",
                self.display(path)
            )));
        };
        let attributes = self.resolve(parent)?;
        if attributes.kind != Kind::Directory {
            return Err(ControlError::invalid(format!(
                "{} is no directory",
                self.display(parent)
            )));
        }
        Ok((attributes.id, name))
    }

    fn display(&self, path: &Path) -> String {
        format!("{}:{}", self.group_name, path.display())
    }

    /// The failure told with the path; for an unknown name, with the nearest ones.
    fn explain(&self, path: &Path, error: FsError) -> ControlError {
        if !matches!(error, FsError::NotFound) {
            return ControlError::from(error).about(self.display(path));
        }
        let mut names = Vec::new();
        if let (Some(parent), Some(_)) = (path.parent(), path.file_name())
            && let Ok(attributes) = self.file_system.resolve(parent.as_os_str())
            && let Ok(entries) = self.entries(attributes.id)
        {
            names = entries
                .into_iter()
                .map(|(name, _)| String::from_utf8_lossy(&name).into_owned())
                .collect();
        } else if let Some(parent) = path.parent() {
            return ControlError::not_found(format!(
                "there is no directory {}",
                self.display(parent)
            ));
        }
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let hint = suggestion(&name, "other entry", names.iter().map(String::as_str));
        ControlError::not_found(format!("there is no {}; {hint}", self.display(path)))
    }

    /// Names and ids in a directory without "." and "..".
    fn entries(&self, directory: FileId) -> Result<Vec<(Vec<u8>, FileId)>, FsError> {
        let mut found = Vec::new();
        let mut cookie = 0;
        loop {
            let entries = self
                .file_system
                .read_directory(directory, cookie, ENTRIES_MOST)?;
            let Some(last) = entries.last() else {
                break;
            };
            cookie = last.cookie;
            found.extend(
                entries
                    .into_iter()
                    .filter(|entry| entry.name != b"." && entry.name != b"..")
                    .map(|entry| (entry.name, entry.id)),
            );
        }
        found.sort();
        Ok(found)
    }

    fn report(&self, path: &Path, attributes: &Attributes) -> FileReport {
        let name = path.file_name().unwrap_or_else(|| OsStr::new("/"));
        let regular = attributes.kind == Kind::Regular;
        let layout = self
            .file_system
            .group()
            .file(attributes.id)
            .filter(|_| regular)
            .map(|file| self.file_system.group().layout(&file));
        let target = (attributes.kind == Kind::Symlink)
            .then(|| self.file_system.read_link(attributes.id).ok())
            .flatten();
        let (target, target_bytes) = FileReport::target_from(target);
        FileReport {
            path: path.display().to_string(),
            name: name.to_string_lossy().into_owned(),
            name_bytes: name.to_str().is_none().then(|| name.as_bytes().to_vec()),
            id: attributes.id.0,
            kind: kind_name(attributes.kind).to_owned(),
            permissions: attributes.permissions,
            links_count: attributes.links_count,
            user: attributes.user,
            group: attributes.group,
            size_bytes: attributes.size_bytes,
            allocated_bytes: attributes.allocated_bytes,
            redundancy: layout.map(|layout| layout.redundancy),
            striping: layout.map(|layout| layout.striping),
            target,
            target_bytes,
            accessed: attributes.accessed.into(),
            modified: attributes.modified.into(),
            changed: attributes.changed.into(),
            created: attributes.created.into(),
        }
    }

    fn write_back(&self, id: FileId) {
        if let Some(kernel) = &self.kernel {
            kernel.write_back(id);
        }
    }

    /// `former` is what the name led to, if it did: that has a link less, and the directory is another.
    fn entry_changed(&self, parent: FileId, name: &OsStr, former: Option<FileId>) {
        let Some(kernel) = &self.kernel else {
            return;
        };
        // Counted, and not only told: an answer with the attributes from before may be on its way.
        for id in former.into_iter().chain([parent]) {
            match self.file_system.open_file(id) {
                Ok(handle) => kernel.forget_attributes(&handle),
                // The last name went, and the kernel has nothing of it: else it would be there.
                Err(FsError::NotFound) => {}
                Err(error) => {
                    tracing::warn!(%id, %error, "the kernel is told without a count that a name changed");
                    kernel.attributes_changed(id);
                }
            }
        }
        kernel.entry_changed(parent, name);
    }

    /// What the name leads to.
    fn led_to(&self, parent: FileId, name: &OsStr) -> Option<FileId> {
        let found = self.file_system.lookup(parent, name);
        found.ok().map(|attributes| attributes.id)
    }

    fn regular(&self, path: &Path) -> ControlResult<Attributes> {
        let attributes = self.resolve(path)?;
        if attributes.kind == Kind::Regular {
            return Ok(attributes);
        }
        Err(ControlError::invalid(format!(
            "{} is a {}, no regular file",
            self.display(path),
            kind_name(attributes.kind)
        )))
    }

    /// Adds up everything below the entry and returns the sum; directories down to `depth` join `out`.
    fn add_up(
        &self,
        path: &Path,
        attributes: &Attributes,
        depth: usize,
        out: &mut Vec<UsageReport>,
    ) -> ControlResult<UsageReport> {
        let mut level = Level::of(path.to_owned(), attributes, depth);
        if attributes.kind != Kind::Directory {
            level.sum.files_count = 1;
            level.sum.size_bytes = attributes.size_bytes;
            return Ok(level.sum);
        }
        level.entries = self.entries(attributes.id)?.into_iter();
        let mut seen = BTreeSet::from([attributes.id]);
        // The directories that lead to the present one: they may lie in one another to any depth.
        let mut above: Vec<Level> = Vec::new();
        loop {
            let Some((name, id)) = level.entries.next() else {
                let Some(mut parent) = above.pop() else {
                    return Ok(level.sum);
                };
                parent.sum.files_count += level.sum.files_count;
                parent.sum.size_bytes += level.sum.size_bytes;
                parent.sum.allocated_bytes += level.sum.allocated_bytes;
                if parent.depth > 0 {
                    out.push(level.sum);
                }
                level = parent;
                continue;
            };
            // What was removed meanwhile is no error.
            let Ok(child) = self.file_system.attributes(id) else {
                continue;
            };
            let is_directory = child.kind == Kind::Directory;
            // A second name takes no second space; directories are damaged where they have one.
            if (is_directory || child.links_count > 1) && !seen.insert(id) {
                continue;
            }
            if !is_directory {
                level.sum.files_count += 1;
                level.sum.size_bytes += child.size_bytes;
                level.sum.allocated_bytes += child.allocated_bytes;
                continue;
            }
            let below = match level.depth {
                0 => PathBuf::new(),
                _ => level.path.join(OsStr::from_bytes(&name)),
            };
            let mut below = Level::of(below, &child, level.depth.saturating_sub(1));
            below.entries = match self.entries(id) {
                Err(FsError::NotFound) => continue,
                found => found?.into_iter(),
            };
            above.push(std::mem::replace(&mut level, below));
        }
    }

    /// Refuses where a file copied here would not take the place of another file: a directory stays,
    /// and so does a volume, whose clients would go on with a file that has no name.
    fn refuse_irreplaceable(&self, path: &Path, parent: FileId, name: &OsStr) -> ControlResult<()> {
        let Ok(there) = self.file_system.lookup(parent, name) else {
            return Ok(());
        };
        let what = if there.kind == Kind::Directory {
            "is a directory"
        } else if self.is_volume(there.id)? {
            "is a volume: write to it through its export or on a mount, or remove it with \
             `spindle volume drop` first"
        } else {
            return Ok(());
        };
        Err(ControlError::new(
            ControlErrorKind::Exists,
            format!("{} {what}", self.display(path)),
        ))
    }

    /// Gives the unnamed file its name, in place of a file that has it.
    fn give_name(
        &self,
        id: FileId,
        path: &Path,
        (parent, name): (FileId, &OsStr),
    ) -> ControlResult<()> {
        let now = now();
        let fail = |error: FsError| ControlError::from(error).about(self.display(path));
        loop {
            match self.file_system.make_link(id, parent, name, now) {
                Err(FsError::Exists) => {}
                other => return other.map(|_| ()).map_err(fail),
            }
            self.refuse_irreplaceable(path, parent, name)?;
            match self.replace(id, parent, name, now) {
                // What had the name is gone.
                Err(FsError::NotFound) => {}
                other => return other.map_err(fail),
            }
        }
    }

    fn replace(&self, id: FileId, parent: FileId, name: &OsStr, now: Time) -> Result<(), FsError> {
        let mut passing = std::ffi::OsString::from(format!(".spindle-copy-{id}-"));
        passing.push(OsStr::from_bytes(
            &name.as_bytes()[..name.as_bytes().len().min(200)],
        ));
        self.file_system.make_link(id, parent, &passing, now)?;
        let renamed =
            self.file_system
                .rename(parent, &passing, parent, name, RenameMode::Replace, now);
        if renamed.is_err() {
            // The name that was there stays; ours must not.
            self.file_system.unlink(parent, &passing, now)?;
        }
        renamed
    }
}

/// A directory that is being added up.
struct Level {
    /// Empty where nobody is told it.
    path: PathBuf,
    depth: usize,
    sum: UsageReport,
    /// What is still to be looked at.
    entries: std::vec::IntoIter<(Vec<u8>, FileId)>,
}

impl Level {
    fn of(path: PathBuf, attributes: &Attributes, depth: usize) -> Self {
        Self {
            sum: UsageReport {
                path: path.display().to_string(),
                files_count: 0,
                size_bytes: 0,
                allocated_bytes: attributes.allocated_bytes,
            },
            path,
            depth,
            entries: Vec::new().into_iter(),
        }
    }
}

impl Files for OpenFiles {
    fn stat(&self, path: &Path) -> ControlResult<FileReport> {
        let path = normal(path)?;
        let mut attributes = self.resolve(&path)?;
        if attributes.kind == Kind::Regular {
            self.write_back(attributes.id);
            attributes = self.resolve(&path)?;
        }
        Ok(self.report(&path, &attributes))
    }

    fn list(&self, path: &Path) -> ControlResult<Vec<FileReport>> {
        let path = normal(path)?;
        let attributes = self.resolve(&path)?;
        if attributes.kind != Kind::Directory {
            return Ok(vec![self.report(&path, &attributes)]);
        }
        let mut reports = Vec::new();
        for (name, id) in self.entries(attributes.id)? {
            // Removed between the listing and now: no longer an entry.
            if let Ok(child) = self.file_system.attributes(id) {
                reports.push(self.report(&path.join(OsStr::from_bytes(&name)), &child));
            }
        }
        Ok(reports)
    }

    fn map(&self, path: &Path) -> ControlResult<MapReport> {
        let path = normal(path)?;
        let attributes = self.regular(&path)?;
        self.write_back(attributes.id);
        let attributes = self.regular(&path)?;
        let group = self.file_system.group();
        let Some(file) = group.file(attributes.id) else {
            return Err(ControlError::not_found(format!(
                "{} was removed",
                self.display(&path)
            )));
        };
        let layout = group.layout(&file);
        let names: std::collections::BTreeMap<u16, String> = group
            .view()
            .disks
            .into_iter()
            .map(|disk| (disk.number.0, disk.name.to_string()))
            .collect();
        let name_of = |disk: u16| names.get(&disk).cloned().unwrap_or_default();
        let mut shares: std::collections::BTreeMap<u16, (u64, u64)> = Default::default();
        let mut extents = Vec::new();
        for extent in group.map(&file) {
            for (disk, _) in extent.copies.iter().flatten() {
                let share = shares.entry(disk.0).or_default();
                share.0 += 1;
                share.1 += extent.length_bytes;
            }
            extents.push(ExtentReport {
                index: extent.index,
                offset_bytes: extent.offset_bytes,
                length_bytes: extent.length_bytes,
                initialised_bytes: extent.initialised_bytes,
                copies: extent
                    .copies
                    .iter()
                    .map(|copy| {
                        copy.map(|(disk, offset_bytes)| CopyReport {
                            disk: disk.0,
                            disk_name: name_of(disk.0),
                            offset_bytes,
                        })
                    })
                    .collect(),
            });
        }
        Ok(MapReport {
            path: path.display().to_string(),
            id: attributes.id.0,
            size_bytes: attributes.size_bytes,
            redundancy: layout.redundancy,
            striping: layout.striping,
            extents,
            disks: shares
                .into_iter()
                .map(|(disk, (extents_count, bytes))| ShareReport {
                    disk,
                    disk_name: name_of(disk),
                    extents_count,
                    bytes,
                })
                .collect(),
        })
    }

    fn usage(&self, path: &Path, depth: usize) -> ControlResult<Vec<UsageReport>> {
        let path = normal(path)?;
        let attributes = self.resolve(&path)?;
        let mut reports = Vec::new();
        let sum = self.add_up(&path, &attributes, depth, &mut reports)?;
        reports.push(sum);
        Ok(reports)
    }

    fn read_to(&self, path: &Path, out: &mut dyn Write) -> ControlResult<u64> {
        let path = normal(path)?;
        let attributes = self.regular(&path)?;
        self.write_back(attributes.id);
        let handle = self
            .file_system
            .open_file(attributes.id)
            .map_err(|error| self.explain(&path, error))?;
        let mut piece = vec![0; PIECE_BYTES];
        let mut offset_bytes = 0;
        loop {
            let count = self
                .file_system
                .read(&handle, offset_bytes, &mut piece)
                .map_err(|error| self.explain(&path, error))?;
            if count == 0 {
                return Ok(offset_bytes);
            }
            out.write_all(&piece[..count])
                .map_err(|error| ControlError::io("pass on", self.display(&path), &error))?;
            offset_bytes += count as u64;
        }
    }

    fn write_from(&self, path: &Path, new: NewEntry, input: &mut dyn Read) -> ControlResult<u64> {
        let path = normal(path)?;
        let (parent, name) = self.parent_of(&path)?;
        self.refuse_irreplaceable(&path, parent, name)?;
        let fail = |error: FsError| ControlError::from(error).about(self.display(&path));
        let (attributes, handle) = self
            .file_system
            .create_unnamed(parent, new.permissions, owner_of(new), now())
            .map_err(fail)?;
        let mut piece = vec![0; PIECE_BYTES];
        let mut offset_bytes = 0;
        loop {
            let count = fill(input, &mut piece).map_err(|error| {
                ControlError::io("read the bytes for", self.display(&path), &error)
            })?;
            write_without_holes(&self.file_system, &handle, offset_bytes, &piece[..count])
                .map_err(fail)?;
            offset_bytes += count as u64;
            if count < piece.len() {
                break;
            }
        }
        let change = AttributeChange {
            size_bytes: Some(offset_bytes),
            modified: Some(new.modified.map_or_else(now, Time::from)),
            ..AttributeChange::default()
        };
        self.file_system
            .set_attributes(attributes.id, &change, now())
            .map_err(fail)?;
        let former = self.led_to(parent, name);
        self.give_name(attributes.id, &path, (parent, name))?;
        self.entry_changed(parent, name, former);
        Ok(offset_bytes)
    }

    fn make_directory(&self, path: &Path, new: NewEntry) -> ControlResult<()> {
        let path = normal(path)?;
        if path == Path::new("/") {
            return Ok(());
        }
        let (parent, name) = self.parent_of(&path)?;
        let made =
            self.file_system
                .make_directory(parent, name, new.permissions, owner_of(new), now());
        match made {
            Ok(_) => {
                self.entry_changed(parent, name, None);
                Ok(())
            }
            Err(FsError::Exists) => match self.file_system.lookup(parent, name) {
                Ok(there) if there.kind == Kind::Directory => Ok(()),
                _ => Err(ControlError::from(FsError::Exists).about(self.display(&path))),
            },
            Err(error) => Err(ControlError::from(error).about(self.display(&path))),
        }
    }

    fn make_symlink(&self, path: &Path, target: &Path, new: NewEntry) -> ControlResult<()> {
        let path = normal(path)?;
        let (parent, name) = self.parent_of(&path)?;
        let mut former = None;
        if let Ok(there) = self.file_system.lookup(parent, name)
            && there.kind == Kind::Symlink
        {
            self.file_system.unlink(parent, name, now())?;
            former = Some(there.id);
        }
        let made =
            (self.file_system).make_symlink(parent, name, target.as_os_str(), owner_of(new), now());
        // Also where none was made: one that was there has gone.
        self.entry_changed(parent, name, former);
        made.map_err(|error| ControlError::from(error).about(self.display(&path)))?;
        Ok(())
    }

    fn sync(&self, written: &[&Path]) -> ControlResult<()> {
        self.file_system.sync()?;
        written.iter().try_for_each(|path| self.tell_lost(path))
    }
}

impl OpenFiles {
    /// What a sync of everything found lost of the file, where it was told to somebody else.
    ///
    /// # Errors
    /// What was lost.
    pub(crate) fn tell_lost(&self, path: &Path) -> ControlResult<()> {
        let path = normal(path)?;
        let fail = |error: FsError| ControlError::from(error).about(self.display(&path));
        let opened = (self.file_system.resolve(path.as_os_str()))
            .and_then(|attributes| self.file_system.open_file(attributes.id));
        match opened {
            Ok(handle) => self.file_system.tell_lost(&handle).map_err(fail),
            Err(FsError::NotFound) => Ok(()),
            Err(error) => Err(fail(error)),
        }
    }
}

const fn owner_of(new: NewEntry) -> Owner {
    Owner {
        user: new.user,
        group: new.group,
    }
}

/// Reads until `piece` is full or the input ends.
fn fill(input: &mut dyn Read, piece: &mut [u8]) -> std::io::Result<usize> {
    let mut count = 0;
    while count < piece.len() {
        match input.read(&mut piece[count..]) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

/// Writes runs that hold anything but zeros; what is left out reads as zeros and takes no space.
fn write_without_holes(
    file_system: &FileSystem,
    handle: &spindle_fs::Handle,
    offset_bytes: u64,
    data: &[u8],
) -> Result<(), FsError> {
    let mut start = 0;
    while start < data.len() {
        let zero = is_zero(data, start);
        let mut end = start;
        while end < data.len() && is_zero(data, end) == zero {
            end = (end + HOLE_BYTES).min(data.len());
        }
        if !zero {
            let at = offset_bytes + start as u64;
            file_system.write(handle, at, &data[start..end], false, now())?;
        }
        start = end;
    }
    Ok(())
}

fn is_zero(data: &[u8], start: usize) -> bool {
    let end = (start + HOLE_BYTES).min(data.len());
    data[start..end].iter().all(|byte| *byte == 0)
}

/// The path from the root without `.` and `//`; `..` goes up.
pub(crate) fn normal(path: &Path) -> ControlResult<std::path::PathBuf> {
    let mut components: Vec<&OsStr> = Vec::new();
    for component in path.components() {
        match component {
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            Component::ParentDir => {
                components.pop();
            }
            Component::Normal(name) if name.len() > 255 => {
                return Err(ControlError::invalid(format!(
                    "the name {:?} has {} bytes; at most 255 are possible: choose a shorter one",
                    name.to_string_lossy(),
                    name.len()
                )));
            }
            Component::Normal(name) => components.push(name),
        }
    }
    let mut bytes = Vec::new();
    for name in components {
        bytes.push(b'/');
        bytes.extend_from_slice(name.as_bytes());
    }
    if bytes.is_empty() {
        bytes.push(b'/');
    }
    Ok(std::ffi::OsString::from_vec(bytes).into())
}

/// The kind's name in JSON.
const fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Regular => "file",
        Kind::Directory => "directory",
        Kind::Symlink => "symlink",
        Kind::Fifo => "fifo",
        Kind::Socket => "socket",
        Kind::CharacterDevice => "character_device",
        Kind::BlockDevice => "block_device",
    }
}

#[cfg(test)]
mod tests;
