//! What a request has changed of what the kernel keeps, for one that is answered with an error
//! although it was made, or a part of it: the kernel goes on with what was there before.
//!
//! Whoever has the kernel drop bytes waits for pages that are being read, so that is left to the
//! process that sends notices. Names and attributes are forgotten at once.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use spindle_base::FileId;

use super::{Refusal, arguments, name, node};
use crate::abi::{
    CopyRangeIn, CreateIn, InHeader, LinkIn, MakeDirectoryIn, MakeNodeIn, NotifyInodeOut, Opcode,
    Rename2In, RenameIn, SetAttributesIn, set_attributes,
};
use crate::notices::Dropped;
use crate::stale::Stale;
use crate::transport::Transport;

/// Whether it changes a name, or attributes of a file other than by writing it.
pub(super) const fn changes_what_the_kernel_keeps(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::SetAttributes
            | Opcode::Symlink
            | Opcode::MakeNode
            | Opcode::MakeDirectory
            | Opcode::Unlink
            | Opcode::RemoveDirectory
            | Opcode::Rename
            | Opcode::Rename2
            | Opcode::Link
            | Opcode::Create
            | Opcode::TemporaryFile
            | Opcode::Allocate
            | Opcode::SetExtendedAttribute
            | Opcode::RemoveExtendedAttribute
    )
}

/// The names and attributes.
pub(super) fn changed_by<T: Transport>(header: &InHeader, transport: &T) -> Vec<Stale> {
    let from = node(header);
    let entry = |parent: FileId, name: &OsStr| Stale::Entry {
        parent,
        name: name.as_bytes().to_vec(),
    };
    let one = |after_bytes: usize| -> Result<Vec<Stale>, Refusal> {
        Ok(vec![entry(from, name(transport.tail(after_bytes))?.0)])
    };
    let two = |new_parent: u64, after_bytes: usize| -> Result<Vec<Stale>, Refusal> {
        let (old, rest) = name(transport.tail(after_bytes))?;
        let (new, _) = name(rest)?;
        Ok(vec![entry(from, old), entry(FileId(new_parent), new)])
    };
    let changed = match Opcode::from_number(header.opcode) {
        Some(Opcode::Unlink | Opcode::RemoveDirectory | Opcode::Symlink) => one(0),
        Some(Opcode::MakeNode) => one(size_of::<MakeNodeIn>()),
        Some(Opcode::MakeDirectory) => one(size_of::<MakeDirectoryIn>()),
        Some(Opcode::Link) => one(size_of::<LinkIn>()),
        Some(Opcode::Create) => one(size_of::<CreateIn>()),
        Some(Opcode::Rename) => arguments::<RenameIn, T>(transport)
            .and_then(|request| two(request.new_parent, size_of::<RenameIn>())),
        Some(Opcode::Rename2) => arguments::<Rename2In, T>(transport)
            .and_then(|request| two(request.new_parent, size_of::<Rename2In>())),
        Some(Opcode::SetAttributes | Opcode::Allocate) => Ok(vec![Stale::Attributes(from)]),
        _ => Ok(Vec::new()),
    };
    // What cannot be read has changed nothing.
    changed.unwrap_or_default()
}

/// The bytes, but for those of a write, which knows itself whether the kernel keeps any.
pub(super) fn bytes_changed_by<T: Transport>(header: &InHeader, transport: &T) -> Option<Dropped> {
    let from = node(header);
    let (file, offset_bytes, length_bytes) = match Opcode::from_number(header.opcode)? {
        Opcode::SetAttributes => {
            let request: SetAttributesIn = arguments(transport).ok()?;
            (request.valid & set_attributes::SIZE != 0).then_some((from, 0, 0))?
        }
        Opcode::Allocate => (from, 0, 0),
        Opcode::CopyRange | Opcode::CopyRange64 => {
            let request: CopyRangeIn = arguments(transport).ok()?;
            let to = FileId(request.to_node);
            (to, request.to_offset_bytes, request.length_bytes)
        }
        _ => return None,
    };
    let notice = NotifyInodeOut {
        node: file.0,
        // Beyond that there is no page.
        offset_bytes: i64::try_from(offset_bytes).ok()?,
        // A range without a length goes to the end of the file.
        length_bytes: i64::try_from(length_bytes).unwrap_or(0),
    };
    Some(Dropped {
        notice,
        and_all: None,
    })
}
