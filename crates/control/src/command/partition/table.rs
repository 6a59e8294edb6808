//! What the GPTs on a device list, of which a disk of a group may be one.
//!
//! Nothing is asked of a table but that its header can be found: one whose checksums are wrong may
//! still say where a member lies. One that cannot be followed lists nothing; its mark says that it
//! is there. Looking never writes.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use uuid::Uuid;

/// What a header begins with.
const MAGIC: &[u8] = b"EFI PART";
const HEADER_BYTES: usize = 92;
/// Where in the header the sector of the entries is, their number, and the length of each.
const ENTRIES_OFFSET: usize = 72;
const COUNT_OFFSET: usize = 80;
const ENTRY_BYTES_OFFSET: usize = 84;
/// What an entry has at least.
const ENTRY_BYTES_MIN: usize = 128;
/// More than any table has; a header of garbage does not decide how much memory is taken.
const ENTRIES_BYTES_MAX: usize = 1 << 20;

/// A partition that a table lists.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) number: usize,
    pub(super) kind: Uuid,
    pub(super) start_bytes: u64,
    pub(super) length_bytes: u64,
}

/// What each header lists that stands on the device: the first and its copy at the end, of either
/// size of sectors, as an image keeps its table when a device over it has sectors of the other size.
pub(super) fn tables_of(path: &Path) -> Vec<Vec<Entry>> {
    let Ok(mut device) = File::open(path) else {
        return Vec::new();
    };
    let size_bytes = device.seek(SeekFrom::End(0)).unwrap_or(0);
    let mut tables = Vec::new();
    for sector_bytes in [512, 4096] {
        let last = (size_bytes / sector_bytes).saturating_sub(1) * sector_bytes;
        for place in [sector_bytes, last] {
            tables.extend(table_at(&device, place, sector_bytes));
        }
    }
    tables
}

/// What the header lists that stands there, where one does.
fn table_at(device: &File, place: u64, sector_bytes: u64) -> Option<Vec<Entry>> {
    let mut header = [0; HEADER_BYTES];
    device.read_exact_at(&mut header, place).ok()?;
    header.starts_with(MAGIC).then(|| {
        let bytes = entries_of(device, &header, sector_bytes);
        let (entries, entry_bytes) = bytes.unwrap_or((Vec::new(), ENTRY_BYTES_MIN));
        (entries.chunks_exact(entry_bytes).enumerate())
            .filter_map(|(index, entry)| parse(index + 1, entry, sector_bytes))
            .collect()
    })
}

/// The bytes of the entries, and how long each is.
fn entries_of(device: &File, header: &[u8], sector_bytes: u64) -> Option<(Vec<u8>, usize)> {
    let place = number_at(header, ENTRIES_OFFSET)?.checked_mul(sector_bytes)?;
    let count = usize::try_from(short_at(header, COUNT_OFFSET)?).ok()?;
    let entry_bytes = usize::try_from(short_at(header, ENTRY_BYTES_OFFSET)?).ok()?;
    let length = count.checked_mul(entry_bytes)?;
    if entry_bytes < ENTRY_BYTES_MIN || length > ENTRIES_BYTES_MAX {
        return None;
    }
    let mut entries = vec![0; length];
    device.read_exact_at(&mut entries, place).ok()?;
    Some((entries, entry_bytes))
}

fn parse(number: usize, entry: &[u8], sector_bytes: u64) -> Option<Entry> {
    let kind = Uuid::from_bytes_le(*entry.first_chunk()?);
    let (first, last) = (number_at(entry, 32)?, number_at(entry, 40)?);
    let sectors = last.checked_sub(first)?.checked_add(1)?;
    (!kind.is_nil()).then_some(Entry {
        number,
        kind,
        start_bytes: first.checked_mul(sector_bytes)?,
        length_bytes: sectors.checked_mul(sector_bytes)?,
    })
}

fn number_at(bytes: &[u8], offset: usize) -> Option<u64> {
    let bytes = bytes.get(offset..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

fn short_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let bytes = bytes.get(offset..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRIES_BYTES: usize = 128 * 256;

    /// A file with one partition in a table whose entries have 256 bytes.
    fn written(name: &str, entry_bytes: u32, count: u32) -> Vec<Vec<Entry>> {
        let path = std::env::temp_dir().join(format!("spindle-{name}-{}", std::process::id()));
        let mut bytes = vec![0; 1 << 20];
        let header = &mut bytes[512..][..HEADER_BYTES];
        header[..8].copy_from_slice(MAGIC);
        header[ENTRIES_OFFSET..][..8].copy_from_slice(&2_u64.to_le_bytes());
        header[COUNT_OFFSET..][..4].copy_from_slice(&count.to_le_bytes());
        header[ENTRY_BYTES_OFFSET..][..4].copy_from_slice(&entry_bytes.to_le_bytes());
        let entry = &mut bytes[1024..][..ENTRIES_BYTES][256..][..256];
        entry[..16].fill(7);
        entry[32..40].copy_from_slice(&100_u64.to_le_bytes());
        entry[40..48].copy_from_slice(&199_u64.to_le_bytes());
        std::fs::write(&path, bytes).unwrap();
        let tables = tables_of(&path);
        std::fs::remove_file(&path).unwrap();
        tables
    }

    #[test]
    fn a_table_with_longer_entries_than_usual_is_followed() {
        let entry = Entry {
            number: 2,
            kind: Uuid::from_bytes([7; 16]),
            start_bytes: 100 * 512,
            length_bytes: 100 * 512,
        };
        assert_eq!(written("longer", 256, 128), [[entry]]);
    }

    #[test]
    fn a_header_of_garbage_lists_nothing() {
        for (entry_bytes, count) in [(0, 128), (64, 128), (u32::MAX, u32::MAX), (256, u32::MAX)] {
            assert_eq!(written("garbage", entry_bytes, count), [[]]);
        }
    }
}
