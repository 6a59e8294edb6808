//! Extended attributes: rows of their own, keyed by file and name.
//!
//! `user.`, `trusted.` and `security.` are stored; who may set which is the kernel's business.
//! POSIX access control lists are refused: stored without being obeyed they would deceive. How much
//! a file may have is bounded, or one file could fill the catalog and could not be listed.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use spindle_base::FileId;
use spindle_catalog::{Edit, Table};
use spindle_group::Wish;

use crate::attribute::Asked;
use crate::error::{FsError, FsResult};
use crate::row::{NAME_BYTES_MAX, each_named, named_key};
use crate::system::FileSystem;

/// The largest value, as the kernel has it.
const VALUE_BYTES_MAX: usize = 64 << 10;

/// The most bytes of all names of a file, each with its NUL: more could not be listed, since the
/// kernel takes no longer list.
const NAMES_BYTES_MAX: usize = 64 << 10;
/// The most bytes of all names and values of a file: they stand in the catalog, whose room every
/// user of the group shares.
const TOTAL_BYTES_MAX: usize = 1 << 20;

const PREFIXES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];

fn check_name(name: &[u8]) -> FsResult<()> {
    let prefix = PREFIXES.iter().find(|prefix| name.starts_with(prefix));
    let Some(prefix) = prefix else {
        return Err(FsError::Unsupported);
    };
    if name.len() == prefix.len() || name.contains(&0) {
        return Err(FsError::Invalid(
            "an attribute's name is not empty and has no NUL",
        ));
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(FsError::NameTooLong);
    }
    Ok(())
}

impl FileSystem {
    /// An attribute's value.
    ///
    /// # Errors
    /// [`FsError::NoAttribute`], [`FsError::Unsupported`] for a name that cannot be set,
    /// [`FsError::NotFound`], or what the group says.
    pub fn extended_attribute(&self, id: FileId, name: &OsStr) -> FsResult<Vec<u8>> {
        let name = name.as_bytes();
        check_name(name)?;
        let node = self.core.node(id)?;
        {
            let state = node.state.lock();
            if state.removed {
                return Err(FsError::NotFound);
            }
            // The kernel asks for security.capability before each write.
            if state.no_extended {
                return Err(FsError::NoAttribute);
            }
        }
        if let Some(value) = self
            .core
            .group
            .get(Table::ExtendedAttribute, &named_key(id, name))?
        {
            return Ok(value);
        }
        // Its content alone, so that nobody adds one between the look and the note.
        if let Some(_content) = node.content.try_write() {
            let none = self.list(id)?.is_empty();
            node.state.lock().no_extended = none;
        }
        Err(FsError::NoAttribute)
    }

    /// Sets an attribute. `create`: it must not exist (`XATTR_CREATE`); `replace`: it must
    /// (`XATTR_REPLACE`).
    ///
    /// # Errors
    /// [`FsError::Exists`] and [`FsError::NoAttribute`] as asked for, [`FsError::Unsupported`]
    /// for a name outside of `user.`, `trusted.` and `security.`, [`FsError::TooLarge`] for one
    /// value, [`FsError::AttributesFull`] for all of the file's, or what the group says.
    #[allow(
        clippy::too_many_arguments,
        reason = "setxattr(2) has as many, and the time"
    )]
    pub fn set_extended_attribute<'a>(
        &'a self,
        id: FileId,
        name: &OsStr,
        value: &[u8],
        create: bool,
        replace: bool,
        asked: impl Into<Asked<'a>>,
    ) -> FsResult<()> {
        let name = name.as_bytes();
        check_name(name)?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(FsError::TooLarge);
        }
        self.core.group.make_room(Wish::More)?;
        let key = named_key(id, name);
        self.change_extended(id, &key, asked.into(), |exists| match exists {
            true if create => Err(FsError::Exists),
            false if replace => Err(FsError::NoAttribute),
            _ => Ok(Some(value.to_vec())),
        })
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// [`FsError::NoAttribute`], [`FsError::Unsupported`], [`FsError::NotFound`], or what the
    /// group says.
    pub fn remove_extended_attribute<'a>(
        &'a self,
        id: FileId,
        name: &OsStr,
        asked: impl Into<Asked<'a>>,
    ) -> FsResult<()> {
        let name = name.as_bytes();
        check_name(name)?;
        self.core.group.make_room(Wish::Less)?;
        let key = named_key(id, name);
        self.change_extended(id, &key, asked.into(), |exists| match exists {
            true => Ok(None),
            false => Err(FsError::NoAttribute),
        })
    }

    /// Names, each ended by a NUL.
    ///
    /// # Errors
    /// [`FsError::NotFound`], or what the group says.
    pub fn list_extended_attributes(&self, id: FileId) -> FsResult<Vec<u8>> {
        let node = self.core.node(id)?;
        {
            let state = node.state.lock();
            if state.removed {
                return Err(FsError::NotFound);
            }
            if state.no_extended {
                return Ok(Vec::new());
            }
        }
        self.list(id)
    }

    fn list(&self, id: FileId) -> FsResult<Vec<u8>> {
        let mut names = Vec::new();
        each_named(
            &self.core.group,
            Table::ExtendedAttribute,
            id,
            &mut |name, _| {
                names.extend_from_slice(name);
                names.push(0);
                Ok(())
            },
        )?;
        Ok(names)
    }

    fn change_extended<'a>(
        &'a self,
        id: FileId,
        key: &[u8],
        asked: Asked<'a>,
        decide: impl FnOnce(bool) -> FsResult<Option<Vec<u8>>>,
    ) -> FsResult<()> {
        let core = &self.core;
        let now = asked.now.stamp()?;
        let node = core.node(id)?;
        let _content = node.content.write();
        let old = core.group.get(Table::ExtendedAttribute, key)?;
        let value = decide(old.is_some())?;
        if let Some(value) = &value {
            let name = key.get(size_of::<u64>()..).unwrap_or_default();
            self.check_room(id, name, old.map(|old| old.len()), value.len())?;
        }
        let mut edit = Edit::default();
        edit.changes
            .push((Table::ExtendedAttribute, key.to_vec(), value));
        let operation = core.begin_for(asked.request);
        operation.try_update(&node, false, |state| {
            if state.removed {
                return Err(FsError::NotFound);
            }
            state.inode.changed = now;
            state.no_extended = false;
            Ok(())
        })?;
        operation.rows(edit);
        Ok(())
    }

    /// Whether the file's attributes have room for this one, in place of one of `old_bytes`. What
    /// makes them no longer than they are is let in, also where an earlier version let in too many.
    fn check_room(
        &self,
        id: FileId,
        name: &[u8],
        old_bytes: Option<usize>,
        new_bytes: usize,
    ) -> FsResult<()> {
        if old_bytes.is_some_and(|old_bytes| new_bytes <= old_bytes) {
            return Ok(());
        }
        let (mut names_bytes, mut values_bytes) = (name.len() + 1, new_bytes);
        let mut count = |other: &[u8], value: &[u8]| {
            if other != name {
                names_bytes += other.len() + 1;
                values_bytes += value.len();
            }
            Ok(())
        };
        each_named(&self.core.group, Table::ExtendedAttribute, id, &mut count)?;
        let is_new = old_bytes.is_none();
        if is_new && names_bytes > NAMES_BYTES_MAX || names_bytes + values_bytes > TOTAL_BYTES_MAX {
            return Err(FsError::AttributesFull);
        }
        Ok(())
    }
}
