//! The rows of this layer: their keys, and reading them with an error where they are not right.

use spindle_base::FileId;
use spindle_catalog::{Table, file_key};
use spindle_format::{FormatError, Inode, NameRecord};
use spindle_group::Group;

use crate::error::{FsError, FsResult, corrupt, corrupt_inode};

/// The longest name in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// The attribute row that says which file id was never used: a little-endian u64.
pub(crate) const NEXT_FILE_ID_KEY: &[u8] = b"next_file_id";

/// The attribute row of the templates, as text.
pub(crate) const TEMPLATES_KEY: &[u8] = b"templates";

/// The key of a name in a directory, or of an attribute of a file.
pub(crate) fn named_key(id: FileId, name: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(8 + name.len());
    key.extend_from_slice(&id.0.to_be_bytes());
    key.extend_from_slice(name);
    key
}

/// Checks that `name` can be an entry of a directory; "." and ".." cannot.
pub(crate) fn check_name(name: &[u8]) -> FsResult<()> {
    if name.len() > NAME_BYTES_MAX {
        return Err(FsError::NameTooLong);
    }
    if name.is_empty() || name == b"." || name == b".." {
        return Err(FsError::Invalid("a name is not empty, \".\" or \"..\""));
    }
    if name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        return Err(FsError::Invalid("a name has no '/' and no NUL"));
    }
    Ok(())
}

/// The inode's row, if there is one.
pub(crate) fn read_inode(group: &Group, id: FileId) -> FsResult<Option<Inode>> {
    let Some(bytes) = group.get(Table::Inode, &file_key(id))? else {
        return Ok(None);
    };
    match Inode::parse(&bytes) {
        Ok(inode) => Ok(Some(inode)),
        Err(error) => Err(corrupt_inode(id, format!("inode {id}: {error}"))),
    }
}

/// What `name` leads to in the directory `parent`, if it is there.
pub(crate) fn read_name(
    group: &Group,
    parent: FileId,
    name: &[u8],
) -> FsResult<Option<NameRecord>> {
    match group.get(Table::Name, &named_key(parent, name))? {
        Some(bytes) => parse_name(parent, name, &bytes).map(Some),
        None => Ok(None),
    }
}

/// An entry as it was read. Its name is checked as one that a person gives: whoever joins it to
/// a path relies on what a name can be, and the disks may be a stranger's.
pub(crate) fn parse_name(parent: FileId, name: &[u8], bytes: &[u8]) -> FsResult<NameRecord> {
    let wrong = |why: &dyn std::fmt::Display| {
        corrupt_inode(
            parent,
            format!(
                "entry {:?} of directory {parent}: {why}",
                String::from_utf8_lossy(name)
            ),
        )
    };
    check_name(name).map_err(|error| wrong(&error))?;
    parse_entry(bytes).map_err(|error| wrong(&error))
}

/// As [`parse_name`], for who judges the name itself.
pub(crate) fn parse_entry(bytes: &[u8]) -> Result<NameRecord, FormatError> {
    NameRecord::parse(bytes)
}

/// Calls `visit` with every name of the directory, in the order of the bytes.
pub(crate) fn each_name(
    group: &Group,
    directory: FileId,
    visit: &mut dyn FnMut(&[u8], NameRecord),
) -> FsResult<()> {
    each_named(group, Table::Name, directory, &mut |name, value| {
        visit(name, parse_name(directory, name, value)?);
        Ok(())
    })
}

/// The first name in the order of the bytes under which the directory has the file. What comes behind
/// it is not looked at.
pub(crate) fn name_of(group: &Group, directory: FileId, id: FileId) -> FsResult<Option<Vec<u8>>> {
    let (from, to) = (file_key(directory), file_key(FileId(directory.0 + 1)));
    let mut found = None;
    find_between(group, Table::Name, from, &to, &mut |key, value| {
        let name = key.get(8..).unwrap_or_default();
        let is_it = parse_name(directory, name, value)?.id == id;
        if is_it {
            found = Some(name.to_vec());
        }
        Ok(is_it)
    })?;
    Ok(found)
}

/// Takes a row's key, or the rest of it, and its value.
pub(crate) type RowVisit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> FsResult<()>;

/// As [`RowVisit`]; true where no more rows are wanted.
type RowSearch<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> FsResult<bool>;

/// Calls `visit` with the rest of the key and the value of every row that begins with `id`.
pub(crate) fn each_named(
    group: &Group,
    table: Table,
    id: FileId,
    visit: RowVisit<'_>,
) -> FsResult<()> {
    let (from, to) = (file_key(id), file_key(FileId(id.0 + 1)));
    each_between(group, table, from, &to, &mut |key, value| {
        visit(key.get(8..).unwrap_or_default(), value)
    })
}

/// Calls `visit` with the key and the value of every row of a table whose keys begin with an id.
pub(crate) fn each_row(group: &Group, table: Table, visit: RowVisit<'_>) -> FsResult<()> {
    each_between(group, table, Vec::new(), &file_key(FileId(u64::MAX)), visit)
}

fn each_between(
    group: &Group,
    table: Table,
    from: Vec<u8>,
    to: &[u8],
    visit: RowVisit<'_>,
) -> FsResult<()> {
    find_between(group, table, from, to, &mut |key, value| {
        visit(key, value)?;
        Ok(false)
    })
}

/// Calls `is_found` with the rows of a range until it says so.
fn find_between(
    group: &Group,
    table: Table,
    mut from: Vec<u8>,
    to: &[u8],
    is_found: RowSearch<'_>,
) -> FsResult<()> {
    const ROWS_AT_ONCE: usize = 1024;
    loop {
        let rows = group.range(table, &from, to, ROWS_AT_ONCE)?;
        for (key, value) in &rows {
            if is_found(key, value)? {
                return Ok(());
            }
        }
        match rows.into_iter().nth(ROWS_AT_ONCE - 1) {
            Some((mut last, _)) => {
                // The least key that is above it.
                last.push(0);
                from = last;
            }
            None => return Ok(()),
        }
    }
}

/// The file id that a key begins with, and the rest of the key.
pub(crate) fn split_key(key: &[u8]) -> FsResult<(FileId, &[u8])> {
    match key.split_first_chunk::<8>() {
        Some((id, rest)) => Ok((FileId(u64::from_be_bytes(*id)), rest)),
        None => Err(corrupt(format!("{key:?} is no key of a file's row"))),
    }
}

/// Whether the directory has no entry.
pub(crate) fn is_empty_directory(group: &Group, directory: FileId) -> FsResult<bool> {
    let from = named_key(directory, b"");
    let to = file_key(FileId(directory.0 + 1));
    Ok(group.range(Table::Name, &from, &to, 1)?.is_empty())
}
