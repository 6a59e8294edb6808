//! Volumes: regular files that carry a mark.
//!
//! The mark is an extended attribute, so that it goes with the file wherever that is moved in the
//! group, and so that a person sets it on a file that is there (`setfattr -n user.spindle.volume`). A
//! volume is an ordinary file in everything else: mirrored, moved, scrubbed and shown as one.
//!
//! A volume becomes visible whole: marked, of its size, and with its space where that was asked for.
//! What a call here has answered is durable.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use spindle_base::{BLOCK_SIZE_BYTES, FileId, size_text};
use spindle_fs::{AttributeChange, Attributes, FILE_SIZE_BYTES_MAX, FsError, Kind, Owner};

use super::{OpenFiles, normal};
use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::api::volume::VolumeReport;
use crate::machine::clock::now;
use crate::machine::user::{own_group, own_user};

/// The attribute that marks a file as a volume; its value means nothing.
const MARK: &str = "user.spindle.volume";
/// Only who owns it opens the file on a mount.
const PERMISSIONS: u16 = 0o600;

impl OpenFiles {
    /// The volumes at `path` and below it, in the order of their paths.
    ///
    /// # Errors
    /// Where there is no such path, or it is a file and no volume.
    pub(crate) fn volumes(&self, path: Option<&Path>) -> ControlResult<Vec<VolumeReport>> {
        let path = normal(path.unwrap_or(Path::new("/")))?;
        let attributes = self.resolve(&path)?;
        if attributes.kind != Kind::Directory {
            let (attributes, path) = self.volume(&path)?;
            return Ok(vec![self.volume_report(&path, &attributes)]);
        }
        let mut found = Vec::new();
        (self.file_system)
            .walk(attributes.id, &mut |below, attributes| {
                if attributes.kind == Kind::Regular && self.is_volume(attributes.id)? {
                    found.push(self.volume_report(&path.join(below), attributes));
                }
                Ok(())
            })
            .map_err(|error| self.explain(&path, error))?;
        found.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(found)
    }

    /// Makes one.
    ///
    /// # Errors
    /// Where something has the path already, the directory is not there, the size cannot be, or
    /// there is no room; the group then holds what it held before.
    pub(crate) fn create_volume(
        &self,
        path: &Path,
        size_bytes: u64,
        reserve: bool,
    ) -> ControlResult<VolumeReport> {
        let path = normal(path)?;
        check_size(size_bytes)?;
        let (parent, name) = self.parent_of(&path)?;
        let exists = || {
            let told = format!(
                "{} is there already: choose another path",
                self.display(&path)
            );
            ControlError::new(ControlErrorKind::Exists, told)
        };
        match self.file_system.lookup(parent, name) {
            Ok(_) => return Err(exists()),
            Err(FsError::NotFound) => {}
            Err(error) => return Err(self.explain(&path, error)),
        }
        let fail = |error: FsError| match error {
            FsError::Exists => exists(),
            error => ControlError::from(error).about(self.display(&path)),
        };
        let owner = Owner {
            user: own_user(),
            group: own_group(),
        };
        // Without a name it goes by itself where anything fails.
        let file_system = &self.file_system;
        let (attributes, handle) =
            (file_system.create_unnamed(parent, PERMISSIONS, owner, now())).map_err(fail)?;
        let id = attributes.id;
        let change = AttributeChange {
            size_bytes: Some(size_bytes),
            ..AttributeChange::default()
        };
        (file_system.set_attributes(id, &change, now())).map_err(fail)?;
        if reserve {
            (file_system.allocate(&handle, 0, size_bytes, 0, now())).map_err(fail)?;
        }
        let mark = OsStr::new(MARK);
        (file_system.set_extended_attribute(id, mark, b"1", true, false, now())).map_err(fail)?;
        (file_system.make_link(id, parent, name, now())).map_err(fail)?;
        (file_system.sync_file(&handle, false)).map_err(fail)?;
        self.entry_changed(parent, name, None);
        let attributes = file_system.attributes(id).map_err(fail)?;
        Ok(self.volume_report(&path, &attributes))
    }

    /// Gives one another size; smaller only where `shrink` says so.
    ///
    /// # Errors
    /// Where it is no volume, or the size cannot be.
    pub(crate) fn resize_volume(
        &self,
        path: &Path,
        size_bytes: u64,
        shrink: bool,
    ) -> ControlResult<VolumeReport> {
        check_size(size_bytes)?;
        let (attributes, path) = self.volume(path)?;
        let refuse_to_shrink = |found: &Attributes| {
            if size_bytes >= found.size_bytes || shrink {
                return Ok(());
            }
            Err(ControlError::invalid(format!(
                "{} has {}, and what lies beyond {} would be lost: give --shrink to lose it",
                self.display(&path),
                size_text(found.size_bytes),
                size_text(size_bytes)
            )))
        };
        refuse_to_shrink(&attributes)?;
        let fail = |error: FsError| ControlError::from(error).about(self.display(&path));
        // What the kernel holds of it would be written beyond the new end.
        self.write_back(attributes.id);
        // That takes a while, in which a program on a mount may have made it larger.
        refuse_to_shrink(&self.volume(&path)?.0)?;
        let change = AttributeChange {
            size_bytes: Some(size_bytes),
            ..AttributeChange::default()
        };
        let file_system = &self.file_system;
        let resized = (file_system.set_attributes(attributes.id, &change, now())).map_err(fail)?;
        let handle = file_system.open_file(attributes.id).map_err(fail)?;
        (file_system.sync_file(&handle, false)).map_err(fail)?;
        // And the size that it knows is another: also what an answer on its way says.
        if let Some(kernel) = &self.kernel {
            kernel.forget_attributes(&handle);
        }
        self.write_back(attributes.id);
        Ok(self.volume_report(&path, &resized))
    }

    /// Removes one.
    ///
    /// # Errors
    /// Where it is no volume.
    pub(crate) fn drop_volume(&self, path: &Path) -> ControlResult<VolumeReport> {
        let (attributes, path) = self.volume(path)?;
        let report = self.volume_report(&path, &attributes);
        let (parent, name) = self.parent_of(&path)?;
        let fail = |error: FsError| ControlError::from(error).about(self.display(&path));
        (self.file_system.unlink(parent, name, now())).map_err(fail)?;
        self.entry_changed(parent, name, Some(attributes.id));
        self.file_system.make_durable().map_err(fail)?;
        Ok(report)
    }

    /// The volume at `path`, and the path from the root.
    ///
    /// # Errors
    /// Where there is none, or it is a file without the mark.
    pub(crate) fn volume(&self, path: &Path) -> ControlResult<(Attributes, PathBuf)> {
        let path = normal(path)?;
        let attributes = self.regular(&path)?;
        let is_volume = self.is_volume(attributes.id);
        if is_volume.map_err(|error| self.explain(&path, error))? {
            return Ok((attributes, path));
        }
        Err(ControlError::invalid(format!(
            "{} is a file and no volume: `spindle volume create` makes one",
            self.display(&path)
        )))
    }

    /// As in `GROUP:/path`.
    pub(crate) fn volume_name(&self, path: &Path) -> String {
        self.display(path)
    }

    pub(super) fn is_volume(&self, id: FileId) -> Result<bool, FsError> {
        let mark = OsStr::from_bytes(MARK.as_bytes());
        match self.file_system.extended_attribute(id, mark) {
            Ok(_) => Ok(true),
            // Removed meanwhile, or not marked.
            Err(FsError::NoAttribute | FsError::NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn volume_report(&self, path: &Path, attributes: &Attributes) -> VolumeReport {
        let file = self.report(path, attributes);
        VolumeReport {
            path: file.path,
            id: file.id,
            size_bytes: file.size_bytes,
            allocated_bytes: file.allocated_bytes,
            redundancy: file.redundancy,
            striping: file.striping,
        }
    }
}

/// A disk has whole blocks.
fn check_size(size_bytes: u64) -> ControlResult<()> {
    if size_bytes == 0 || !size_bytes.is_multiple_of(BLOCK_SIZE_BYTES) {
        return Err(ControlError::invalid(format!(
            "a volume has a size in whole blocks of 4K, one at least, and not {size_bytes} bytes"
        )));
    }
    if size_bytes > FILE_SIZE_BYTES_MAX {
        return Err(ControlError::invalid(format!(
            "a volume has at most {FILE_SIZE_BYTES_MAX} bytes, not {size_bytes}"
        )));
    }
    Ok(())
}
