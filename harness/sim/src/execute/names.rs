//! Operations on names and attributes.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use spindle_base::FileId;
use spindle_fs::{AttributeChange, FsError, RenameMode};

use crate::content::Content;
use crate::fault::pick;
use crate::model::{Inode, InodeKind, Names};
use crate::operation::NameOperation;
use crate::run::{Answer, OWNER, Run, Step};

/// What the names and values of one file's attributes may have together.
const EXTENDED_BYTES_MAX: usize = 1 << 20;

type EntryKey = (FileId, Vec<u8>);

fn name_text(name: u64) -> Vec<u8> {
    format!("n{name}").into_bytes()
}

fn new_inode(kind: InodeKind, permissions: u16) -> Arc<Inode> {
    Arc::new(Inode {
        links_count: u32::from(kind != InodeKind::Directory),
        kind,
        permissions,
        extended: BTreeMap::new(),
    })
}

impl Run {
    pub(super) fn execute_on_names(&mut self, operation: NameOperation) -> Step<()> {
        use NameOperation as Op;
        match operation {
            Op::Create {
                parent,
                name,
                keep_open,
            } => self.create_file(parent, name, keep_open),
            Op::MakeDirectory { parent, name } => self.make_directory(parent, name),
            Op::MakeSymlink { parent, name } => self.make_symlink(parent, name),
            Op::MakeLink { file, parent, name } => self.make_link(file, parent, name),
            Op::Unlink { entry } => self.unlink(entry),
            Op::RemoveDirectory { directory } => self.remove_directory(directory),
            Op::Rename {
                entry,
                parent,
                name,
                exchange,
            } => self.rename(entry, parent, name, exchange),
            Op::SetPermissions { file, permissions } => self.set_permissions(file, permissions),
            Op::SetExtended { file, name, length } => self.set_extended(file, name, length),
            Op::RemoveExtended { file } => self.remove_extended(file),
        }
    }

    /// A directory, and a name in it: the key of a new entry.
    fn place_for(&self, parent: u64, name: u64) -> EntryKey {
        let directories = self.model.names().directories();
        let directory = pick(&directories, parent).unwrap_or(FileId::ROOT);
        (directory, name_text(name))
    }

    fn entry(&self, number: u64) -> Option<(EntryKey, FileId)> {
        let names = self.model.names();
        let count = names.entries.len() as u64;
        let index = usize::try_from(number.checked_rem(count)?).ok()?;
        let (key, id) = names.entries.iter().nth(index)?;
        Some((key.clone(), *id))
    }

    /// Where the name is taken the answer must say so.
    fn taken<T>(&mut self, key: &EntryKey, result: &Result<T, FsError>) -> Step<bool> {
        if !self.model.names().entries.contains_key(key) {
            return Ok(false);
        }
        match result {
            Err(FsError::Exists) => Ok(true),
            Err(_) if !self.disks.is_powered() || self.may_be_lost() => Ok(true),
            Err(error) => Err(Self::wrong(&format!("a taken name answers: {error}"))),
            Ok(_) => Err(Self::wrong("a taken name was given again")),
        }
    }

    fn create_file(&mut self, parent: u64, name: u64, keep_open: bool) -> Step<()> {
        let key = self.place_for(parent, name);
        let now = self.now();
        let result = self
            .system()
            .create_file(key.0, OsStr::from_bytes(&key.1), 0o644, OWNER, now);
        if self.taken(&key, &result)? {
            return Ok(());
        }
        if let Answer::Done((attributes, handle)) = self.judge("create", result)? {
            let id = attributes.id;
            self.note(format!(
                "file {id}, tag {}, is {}/{name}",
                self.next_tag, key.0
            ));
            self.model.contents.insert(
                id,
                Content::new(self.next_tag, self.model.clock, Vec::new()),
            );
            self.next_tag += 1;
            self.model.change(|names| {
                names.entries.insert(key, id);
                names
                    .inodes
                    .insert(id, new_inode(InodeKind::Regular, 0o644));
            });
            if keep_open {
                self.kept.insert(id, handle);
            }
        }
        Ok(())
    }

    fn make_directory(&mut self, parent: u64, name: u64) -> Step<()> {
        let key = self.place_for(parent, name);
        let now = self.now();
        let result =
            self.system()
                .make_directory(key.0, OsStr::from_bytes(&key.1), 0o755, OWNER, now);
        if self.taken(&key, &result)? {
            return Ok(());
        }
        if let Answer::Done(attributes) = self.judge("mkdir", result)? {
            self.note(format!("directory {} is {}/{name}", attributes.id, key.0));
            self.model.change(|names| {
                names.entries.insert(key, attributes.id);
                let inode = new_inode(InodeKind::Directory, 0o755);
                names.inodes.insert(attributes.id, inode);
            });
        }
        Ok(())
    }

    fn make_symlink(&mut self, parent: u64, name: u64) -> Step<()> {
        let key = self.place_for(parent, name);
        let now = self.now();
        let target = format!("../target-{}", self.model.clock).into_bytes();
        let result = self.system().make_symlink(
            key.0,
            OsStr::from_bytes(&key.1),
            OsStr::from_bytes(&target),
            OWNER,
            now,
        );
        if self.taken(&key, &result)? {
            return Ok(());
        }
        if let Answer::Done(attributes) = self.judge("symlink", result)? {
            self.model.change(|names| {
                names.entries.insert(key, attributes.id);
                let inode = new_inode(InodeKind::Symlink(target), attributes.permissions & 0o7777);
                names.inodes.insert(attributes.id, inode);
            });
        }
        Ok(())
    }

    fn make_link(&mut self, file: u64, parent: u64, name: u64) -> Step<()> {
        let Some(id) = pick(&self.model.names().files(), file) else {
            return Ok(());
        };
        let key = self.place_for(parent, name);
        let now = self.now();
        let result = self
            .system()
            .make_link(id, key.0, OsStr::from_bytes(&key.1), now);
        if self.taken(&key, &result)? {
            return Ok(());
        }
        if let Answer::Done(_) | Answer::PowerLost = self.judge("link", result)? {
            self.model.change(|names| {
                names.entries.insert(key, id);
                names.inode_mut(id).links_count += 1;
            });
        }
        Ok(())
    }

    fn unlink(&mut self, entry: u64) -> Step<()> {
        let Some(((parent, name), id)) = self.entry(entry) else {
            return Ok(());
        };
        let is_directory = self.model.names().inodes[&id].kind == InodeKind::Directory;
        self.note(format!(
            "unlinks {parent}/{}: {id}",
            String::from_utf8_lossy(&name)
        ));
        let now = self.now();
        let result = self.system().unlink(parent, OsStr::from_bytes(&name), now);
        if is_directory {
            return match result {
                Err(FsError::IsADirectory) => Ok(()),
                Err(_) if !self.disks.is_powered() || self.may_be_lost() => Ok(()),
                other => Err(Self::wrong(&format!("unlink of a directory: {other:?}"))),
            };
        }
        if let Answer::Done(()) | Answer::PowerLost = self.judge("unlink", result)? {
            self.model.change(|names| names.unlink(parent, &name));
        }
        Ok(())
    }

    fn remove_directory(&mut self, directory: u64) -> Step<()> {
        let names = self.model.names();
        let found = names
            .entries
            .iter()
            .filter(|(_, id)| names.inodes[id].kind == InodeKind::Directory)
            .map(|(key, id)| (key.clone(), *id))
            .collect::<Vec<_>>();
        let count = found.len() as u64;
        let Some(index) = directory.checked_rem(count) else {
            return Ok(());
        };
        let ((parent, name), id) = found[usize::try_from(index).unwrap_or(0)].clone();
        let is_empty = names.is_empty_directory(id);
        let now = self.now();
        let result = self
            .system()
            .remove_directory(parent, OsStr::from_bytes(&name), now);
        if !is_empty {
            return match result {
                Err(FsError::NotEmpty) => Ok(()),
                Err(_) if !self.disks.is_powered() || self.may_be_lost() => Ok(()),
                other => Err(Self::wrong(&format!(
                    "rmdir of a full directory: {other:?}"
                ))),
            };
        }
        if let Answer::Done(()) | Answer::PowerLost = self.judge("rmdir", result)? {
            self.model.change(|names| names.unlink(parent, &name));
        }
        Ok(())
    }

    fn rename(&mut self, entry: u64, parent: u64, name: u64, exchange: bool) -> Step<()> {
        let Some((from, id)) = self.entry(entry) else {
            return Ok(());
        };
        let to = self.place_for(parent, name);
        let names = self.model.names();
        let target = names.entries.get(&to).copied();
        let mode = if exchange {
            RenameMode::Exchange
        } else {
            RenameMode::Replace
        };
        let expected = expected_rename_error(names, &from, id, &to, target, exchange);
        let now = self.now();
        let result = self.system().rename(
            from.0,
            OsStr::from_bytes(&from.1),
            to.0,
            OsStr::from_bytes(&to.1),
            mode,
            now,
        );
        self.note(format!(
            "{id}: {}/{} to {}/n{name}, over {target:?}",
            from.0,
            String::from_utf8_lossy(&from.1),
            to.0
        ));
        if expected {
            return match result {
                Err(FsError::Group(_)) if self.disks.is_powered() && !self.may_be_lost() => Err(
                    Self::wrong(&format!("a rename that cannot be answers: {result:?}")),
                ),
                Err(_) => Ok(()),
                Ok(()) => Err(Self::wrong("a rename that cannot be was done")),
            };
        }
        if let Answer::Done(()) | Answer::PowerLost = self.judge("rename", result)?
            && target != Some(id)
        {
            self.model.change(|names| {
                if let Some(other) = target {
                    if exchange {
                        names.entries.insert(from, other);
                        names.entries.insert(to, id);
                        return;
                    }
                    names.unlink(to.0, &to.1);
                }
                names.entries.remove(&from);
                names.entries.insert(to, id);
            });
        }
        Ok(())
    }

    fn set_permissions(&mut self, file: u64, permissions: u16) -> Step<()> {
        let Some(id) = pick(&self.model.names().files(), file) else {
            return Ok(());
        };
        let now = self.now();
        let change = AttributeChange {
            permissions: Some(permissions),
            ..AttributeChange::default()
        };
        let result = self.system().set_attributes(id, &change, now);
        if let Answer::Done(_) | Answer::PowerLost = self.judge("chmod", result)? {
            self.model
                .change(|names| names.inode_mut(id).permissions = permissions);
        }
        Ok(())
    }

    pub(super) fn set_extended(&mut self, file: u64, name: u64, length: u64) -> Step<()> {
        let Some(id) = pick(&self.model.names().files(), file) else {
            return Ok(());
        };
        let now = self.now();
        let name = format!("user.x{name}").into_bytes();
        let value: Vec<u8> = (0..length)
            .map(|byte| (byte ^ self.model.clock).to_le_bytes()[0])
            .collect();
        let result = self.system().set_extended_attribute(
            id,
            OsStr::from_bytes(&name),
            &value,
            false,
            false,
            now,
        );
        let held_bytes: usize = (self.model.names().inodes[&id].extended.iter())
            .filter(|(other, _)| **other != name)
            .map(|(other, value)| other.len() + 1 + value.len())
            .sum();
        let is_too_much = held_bytes + name.len() + 1 + value.len() > EXTENDED_BYTES_MAX;
        if is_too_much && matches!(result, Err(FsError::AttributesFull)) {
            return Ok(());
        }
        if let Answer::Done(()) | Answer::PowerLost = self.judge("setxattr", result)? {
            self.model.change(|names| {
                names.inode_mut(id).extended.insert(name, Arc::from(value));
            });
        }
        Ok(())
    }

    fn remove_extended(&mut self, file: u64) -> Step<()> {
        let Some(id) = pick(&self.model.names().files(), file) else {
            return Ok(());
        };
        let inode = &self.model.names().inodes[&id];
        let Some(name) = inode.extended.keys().next().cloned() else {
            return Ok(());
        };
        let now = self.now();
        let result = self
            .system()
            .remove_extended_attribute(id, OsStr::from_bytes(&name), now);
        if let Answer::Done(()) | Answer::PowerLost = self.judge("removexattr", result)? {
            self.model.change(|names| {
                names.inode_mut(id).extended.remove(&name);
            });
        }
        Ok(())
    }
}

/// Whether POSIX refuses this rename.
fn expected_rename_error(
    names: &Names,
    from: &EntryKey,
    id: FileId,
    to: &EntryKey,
    target: Option<FileId>,
    exchange: bool,
) -> bool {
    let is_directory = |id: FileId| names.inodes[&id].kind == InodeKind::Directory;
    if is_directory(id) && names.is_within(to.0, id) {
        return true;
    }
    let Some(target) = target else {
        return exchange;
    };
    if exchange {
        return is_directory(target) && names.is_within(from.0, target);
    }
    if target == id {
        return false;
    }
    // A directory is only ever replaced by one, and only where it is empty; an ancestor of the
    // source is not.
    is_directory(target) != is_directory(id)
        || (is_directory(target) && !names.is_empty_directory(target))
}
