//! The check: names, inodes, orphans, attributes and group files against each other.
//!
//! It reads and never repairs, and holds changes of names off while it looks.

use std::collections::{BTreeMap, BTreeSet};

use spindle_base::FileId;
use spindle_catalog::Table;
use spindle_format::{Inode, InodeKind};

use crate::error::FsResult;
use crate::row::{each_row, parse_name, split_key};
use crate::system::FileSystem;

/// What the names say of an inode.
#[derive(Debug, Default)]
struct Named {
    names_count: u32,
    subdirectories_count: u32,
    /// The directory of the name that was seen last.
    parent: Option<FileId>,
}

impl FileSystem {
    /// Compares the rows of this layer with each other and with the group's files; one line for
    /// each contradiction. `Group::check` is the layer below's own.
    ///
    /// # Errors
    /// What the group says, or a row that cannot be read.
    pub fn check(&self) -> FsResult<Vec<String>> {
        self.core.write_dirty_nodes();
        let _names = self.core.names.write();
        let group = &self.core.group;
        let mut lines = Vec::new();
        let mut inodes: BTreeMap<FileId, Inode> = BTreeMap::new();
        each_row(group, Table::Inode, &mut |key, value| {
            let (id, _) = split_key(key)?;
            match Inode::parse(value) {
                Ok(inode) => {
                    inodes.insert(id, inode);
                }
                Err(error) => lines.push(format!("inode {id}: {error}")),
            }
            Ok(())
        })?;
        let named = self.check_names(&inodes, &mut lines)?;
        let mut orphans = BTreeSet::new();
        each_row(group, Table::Orphan, &mut |key, _| {
            orphans.insert(split_key(key)?.0);
            Ok(())
        })?;
        for id in orphans.iter().filter(|id| !inodes.contains_key(id)) {
            lines.push(format!("orphan {id} has no inode"));
        }
        let nothing = Named::default();
        for (id, inode) in &inodes {
            let named = named.get(id).unwrap_or(&nothing);
            check_inode(*id, inode, named, orphans.contains(id), &mut lines);
            if (inode.kind == InodeKind::Regular) != group.file(*id).is_some() {
                lines.push(format!(
                    "inode {id} is of kind {:?}, and the group has {} file of that number",
                    inode.kind,
                    if inode.kind == InodeKind::Regular {
                        "no"
                    } else {
                        "a"
                    }
                ));
            }
        }
        each_row(group, Table::File, &mut |key, _| {
            let (id, _) = split_key(key)?;
            if !inodes.contains_key(&id) {
                lines.push(format!("file {id} of the group has no inode"));
            }
            Ok(())
        })?;
        each_row(group, Table::ExtendedAttribute, &mut |key, _| {
            let (id, _) = split_key(key)?;
            if !inodes.contains_key(&id) {
                lines.push(format!(
                    "an attribute belongs to inode {id}, which is missing"
                ));
            }
            Ok(())
        })?;
        Ok(lines)
    }

    fn check_names(
        &self,
        inodes: &BTreeMap<FileId, Inode>,
        lines: &mut Vec<String>,
    ) -> FsResult<BTreeMap<FileId, Named>> {
        let mut named: BTreeMap<FileId, Named> = BTreeMap::new();
        let mut cookies: BTreeSet<(FileId, u64)> = BTreeSet::new();
        each_row(&self.core.group, Table::Name, &mut |key, value| {
            let (parent, name) = split_key(key)?;
            let text = String::from_utf8_lossy(name);
            let record = parse_name(parent, name, value)?;
            let place = format!("the name {text:?} in directory {parent}");
            match inodes.get(&parent) {
                Some(inode) if inode.kind != InodeKind::Directory => {
                    lines.push(format!("{place} lies in no directory"));
                }
                Some(inode) if record.cookie >= inode.next_cookie => {
                    lines.push(format!("{place} has a cookie that was never given"));
                }
                Some(_) => {}
                None => lines.push(format!("{place} lies in a directory that is missing")),
            }
            if !cookies.insert((parent, record.cookie)) {
                lines.push(format!("{place} has the cookie of another"));
            }
            match inodes.get(&record.id) {
                Some(inode) if inode.kind != record.kind => {
                    lines.push(format!("{place} says {:?}, not its inode", record.kind));
                }
                Some(_) => {}
                None => lines.push(format!("{place} leads to inode {}: missing", record.id)),
            }
            let found = named.entry(record.id).or_default();
            found.names_count += 1;
            found.parent = Some(parent);
            if record.kind == InodeKind::Directory {
                named.entry(parent).or_default().subdirectories_count += 1;
            }
            Ok(())
        })?;
        Ok(named)
    }
}

fn check_inode(id: FileId, inode: &Inode, named: &Named, orphan: bool, lines: &mut Vec<String>) {
    let names_count = named.names_count + u32::from(id == FileId::ROOT);
    let links_count = match inode.kind {
        InodeKind::Directory if names_count == 0 => 0,
        InodeKind::Directory => 2 + named.subdirectories_count,
        _ => names_count,
    };
    if inode.links_count != links_count {
        lines.push(format!(
            "inode {id} counts {} links, and there are {links_count}",
            inode.links_count
        ));
    }
    if orphan != (links_count == 0) {
        lines.push(format!(
            "inode {id} has {names_count} names and {} orphan row",
            if orphan { "an" } else { "no" }
        ));
    }
    if inode.kind == InodeKind::Directory && id != FileId::ROOT {
        if names_count > 1 {
            lines.push(format!("directory {id} has {names_count} names"));
        }
        if names_count > 0 && inode.parent != named.parent {
            lines.push(format!(
                "directory {id} lies in {:?} and names {:?} as the one above",
                named.parent, inode.parent
            ));
        }
    }
}
