//! The check: names, inodes, orphans, attributes and group files against each other.
//!
//! It holds changes of names off while it looks. What it may put right stands in `repair.rs`.

mod repair;

use std::collections::{BTreeMap, BTreeSet};

use spindle_base::FileId;
use spindle_catalog::Table;
use spindle_format::{Inode, InodeKind};

use crate::error::{FsResult, corrupt};
use crate::row::{check_name, each_row, parse_entry, split_key};
use crate::system::FileSystem;
pub use repair::Checked;
use repair::Repair;

/// What is not as it should be, and what of it can be put right.
#[derive(Debug, Default)]
struct Examined {
    lines: Vec<String>,
    repairs: Vec<Repair>,
}

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
        Ok(self.examine()?.lines)
    }

    fn examine(&self) -> FsResult<Examined> {
        self.core.write_dirty_nodes();
        let _names = self.core.names.write();
        let group = &self.core.group;
        let mut found = Examined::default();
        let lines = &mut found.lines;
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
        let named = self.check_names(&inodes, &mut found)?;
        let mut orphans = BTreeSet::new();
        each_row(group, Table::Orphan, &mut |key, _| {
            orphans.insert(split_key(key)?.0);
            Ok(())
        })?;
        for id in orphans.iter().filter(|id| !inodes.contains_key(id)) {
            found.lines.push(format!("orphan {id} has no inode"));
            found.repairs.push(Repair::StrayOrphan { id: *id });
        }
        let nothing = Named::default();
        for (id, inode) in &inodes {
            let named = named.get(id).unwrap_or(&nothing);
            check_inode(*id, inode, named, orphans.contains(id), &mut found);
            if (inode.kind == InodeKind::Regular) != group.file(*id).is_some() {
                found.lines.push(format!(
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
        check_reachable(&inodes, &named, &mut found.lines);
        each_row(group, Table::File, &mut |key, _| {
            let (id, _) = split_key(key)?;
            if !inodes.contains_key(&id) {
                let line = format!("file {id} of the group has no inode");
                found.lines.push(line);
            }
            Ok(())
        })?;
        each_row(group, Table::ExtendedAttribute, &mut |key, _| {
            let (id, _) = split_key(key)?;
            if !inodes.contains_key(&id) {
                found.lines.push(format!(
                    "an attribute belongs to inode {id}, which is missing"
                ));
                found.repairs.push(Repair::Attribute { key: key.to_vec() });
            }
            Ok(())
        })?;
        if let Some((last, _)) = inodes.last_key_value()
            && self.core.next_id_to_give() <= last.0
        {
            found.lines.push(format!(
                "the next file would get the number of one that is there, up to {last}"
            ));
            found.repairs.push(Repair::NextId { above: *last });
        }
        Ok(found)
    }

    fn check_names(
        &self,
        inodes: &BTreeMap<FileId, Inode>,
        found: &mut Examined,
    ) -> FsResult<BTreeMap<FileId, Named>> {
        let mut named: BTreeMap<FileId, Named> = BTreeMap::new();
        let mut cookies: BTreeSet<(FileId, u64)> = BTreeSet::new();
        each_row(&self.core.group, Table::Name, &mut |key, value| {
            let (parent, name) = split_key(key)?;
            let text = String::from_utf8_lossy(name);
            let place = format!("the name {text:?} in directory {parent}");
            let record =
                parse_entry(value).map_err(|error| corrupt(format!("{place}: {error}")))?;
            if let Err(why) = check_name(name) {
                found.lines.push(format!("{place} cannot be a name: {why}"));
            }
            match inodes.get(&parent) {
                Some(inode) if inode.kind != InodeKind::Directory => {
                    found.lines.push(format!("{place} lies in no directory"));
                }
                Some(inode) if record.cookie >= inode.next_cookie => {
                    found
                        .lines
                        .push(format!("{place} has a cookie that was never given"));
                }
                Some(_) => {}
                None => found
                    .lines
                    .push(format!("{place} lies in a directory that is missing")),
            }
            if !cookies.insert((parent, record.cookie)) {
                found
                    .lines
                    .push(format!("{place} has the cookie of another"));
            }
            match inodes.get(&record.id) {
                Some(inode) if inode.kind != record.kind => {
                    found
                        .lines
                        .push(format!("{place} says {:?}, not its inode", record.kind));
                }
                Some(_) => {}
                None => {
                    let line = format!("{place} leads to inode {}: missing", record.id);
                    found.lines.push(line);
                    found.repairs.push(Repair::Name {
                        parent,
                        name: name.to_vec(),
                    });
                }
            }
            let named_inode = named.entry(record.id).or_default();
            named_inode.names_count += 1;
            named_inode.parent = Some(parent);
            if record.kind == InodeKind::Directory {
                named.entry(parent).or_default().subdirectories_count += 1;
            }
            Ok(())
        })?;
        Ok(named)
    }
}

fn check_inode(id: FileId, inode: &Inode, named: &Named, orphan: bool, found: &mut Examined) {
    let names_count = named.names_count + u32::from(id == FileId::ROOT);
    let links_count = match inode.kind {
        InodeKind::Directory if names_count == 0 => 0,
        InodeKind::Directory => 2 + named.subdirectories_count,
        _ => names_count,
    };
    let is_lost = names_count == 0 && inode.links_count > 0;
    if inode.links_count != links_count {
        found.lines.push(format!(
            "inode {id} counts {} links, and there are {links_count}",
            inode.links_count
        ));
        if !is_lost {
            let count = links_count;
            found.repairs.push(Repair::Links { id, count });
        }
    }
    if orphan != (links_count == 0) {
        found.lines.push(format!(
            "inode {id} has {names_count} names and {} orphan row",
            if orphan { "an" } else { "no" }
        ));
        if names_count == 0 && !is_lost {
            found.repairs.push(Repair::MissingOrphan { id });
        }
    }
    if orphan && (names_count > 0 || is_lost) {
        found.repairs.push(Repair::StrayOrphan { id });
    }
    if is_lost && inode.kind != InodeKind::Directory {
        found.repairs.push(Repair::Reattach { id });
    }
    if inode.kind == InodeKind::Directory && id != FileId::ROOT {
        if names_count > 1 {
            found
                .lines
                .push(format!("directory {id} has {names_count} names"));
        }
        if names_count > 0 && inode.parent != named.parent {
            found.lines.push(format!(
                "directory {id} lies in {:?} and names {:?} as the one above",
                named.parent, inode.parent
            ));
            if let (1, Some(parent)) = (names_count, named.parent) {
                found.repairs.push(Repair::Parent { id, parent });
            }
        }
    }
}

/// Directories that have a name, but no way leads to them from the root.
fn check_reachable(
    inodes: &BTreeMap<FileId, Inode>,
    named: &BTreeMap<FileId, Named>,
    lines: &mut Vec<String>,
) {
    let mut reached = BTreeSet::from([FileId::ROOT]);
    for (id, inode) in inodes {
        if inode.kind != InodeKind::Directory {
            continue;
        }
        let mut way = vec![*id];
        while let Some(at) = way.last().copied()
            && !reached.contains(&at)
        {
            match named.get(&at).and_then(|named| named.parent) {
                // A directory without a name is told of as such.
                None => break,
                Some(parent) if way.contains(&parent) => {
                    lines.push(format!(
                        "directory {id} cannot be reached from the root: its way leads in a circle"
                    ));
                    break;
                }
                Some(parent) => way.push(parent),
            }
        }
        if way.last().is_some_and(|last| reached.contains(last)) {
            reached.extend(way);
        }
    }
}
