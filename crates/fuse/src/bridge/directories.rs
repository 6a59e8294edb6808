//! Reading directories, with or without the attributes of what is in them.

use rustix::io::Errno;
use spindle_fs::Entry;
use zerocopy::IntoBytes;

use super::attributes::kind_bits;
use super::{Answer, Bridge, Served, arguments, node};
use crate::abi::{DirectoryEntry, EntryOut, InHeader, ReadIn};
use crate::transport::Transport;

/// A record's length: multiples of 8 bytes.
fn record_bytes(name_bytes: usize, plus: bool) -> usize {
    let before = if plus { size_of::<EntryOut>() } else { 0 };
    (before + size_of::<DirectoryEntry>() + name_bytes).next_multiple_of(8)
}

/// Appends `entry` at `at`; the caller saw that it fits.
fn put(out: &mut [u8], at: usize, entry: &Entry, attributes: Option<&EntryOut>) -> usize {
    let end = at + record_bytes(entry.name.len(), attributes.is_some());
    let record = &mut out[at..end];
    record.fill(0);
    let mut rest = record;
    if let Some(attributes) = attributes {
        let (head, tail) = rest.split_at_mut(size_of::<EntryOut>());
        head.copy_from_slice(attributes.as_bytes());
        rest = tail;
    }
    let head = DirectoryEntry {
        inode: entry.id.0,
        cookie: entry.cookie,
        name_length_bytes: u32::try_from(entry.name.len()).expect("at most 255 bytes"),
        kind: kind_bits(entry.kind) >> 12,
    };
    rest[..size_of::<DirectoryEntry>()].copy_from_slice(head.as_bytes());
    rest[size_of::<DirectoryEntry>()..][..entry.name.len()].copy_from_slice(&entry.name);
    end
}

impl Bridge {
    /// With `plus` each entry carries its attributes and a reference of the kernel to it; "."
    /// and ".." carry none.
    pub(super) fn read_directory<T: Transport>(
        &self,
        header: &InHeader,
        transport: &mut T,
        plus: bool,
    ) -> Served {
        let request: ReadIn = arguments(transport)?;
        let room = usize::try_from(request.size_bytes).map_err(|_| Errno::INVAL)?;
        let most = room / record_bytes(1, plus);
        let entries =
            self.file_system
                .read_directory(node(header), request.offset_bytes, most.max(1))?;
        let out = transport.payload(room).ok_or(Errno::INVAL)?;
        let mut used = 0;
        let mut told = Vec::new();
        for entry in &entries {
            if used + record_bytes(entry.name.len(), plus) > room {
                break;
            }
            if !plus {
                used = put(out, used, entry, None);
                continue;
            }
            let unknown = EntryOut::default();
            let special = entry.name == b"." || entry.name == b"..";
            // Removed since it was listed: without attributes the kernel asks by name.
            let found = (!special).then(|| self.file_system.attributes(entry.id).ok());
            let attributes = found.flatten().map_or(unknown, |attributes| {
                told.push(attributes.id);
                self.entry(&attributes)
            });
            used = put(out, used, entry, Some(&attributes));
        }
        Ok(Answer::Entries(told, used))
    }
}
