//! What else can stand on a disk: file systems, volume managers, RAID members, partition
//! tables, ASM. A disk that bears such a mark is not ours and is refused.
//!
//! The places and the magic bytes are those that the formats' own documentation gives. A
//! format that is not known here is not seen; so nothing relies on a disk being empty.

use serde::Serialize;

use crate::error::ControlResult;

/// A mark that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Signature {
    /// Whose it is, in words.
    pub name: String,
    /// Where its magic lies.
    pub offset_bytes: u64,
}

/// A format that is recognised by bytes in one place.
struct Magic {
    name: &'static str,
    offset_bytes: u64,
    bytes: &'static [u8],
}

const fn magic(name: &'static str, offset_bytes: u64, bytes: &'static [u8]) -> Magic {
    Magic {
        name,
        offset_bytes,
        bytes,
    }
}

/// Of two formats that share a place the more telling one comes first.
const MAGICS: &[Magic] = &[
    magic("an XFS file system", 0, b"XFSB"),
    magic("a LUKS encrypted volume", 0, b"LUKS\xba\xbe"),
    magic("a SquashFS file system", 0, b"hsqs"),
    magic("a Ceph OSD", 0, b"bluestore block device"),
    magic("a VDO volume", 0, b"dmvdo001"),
    magic("a QEMU disk image", 0, b"QFI\xfb"),
    magic("an NTFS file system", 3, b"NTFS    "),
    magic("an exFAT file system", 3, b"EXFAT   "),
    magic("an Oracle ASM disk", 32, b"ORCLDISK"),
    magic("a FAT file system", 54, b"FAT1"),
    magic("a FAT file system", 82, b"FAT32   "),
    magic("a GPT partition table", 512, b"EFI PART"),
    magic("a GPT partition table", 4096, b"EFI PART"),
    magic("a Stratis pool", 512, b"!Stra0tis"),
    magic("an F2FS file system", 1024, &0xf2f5_2010_u32.to_le_bytes()),
    magic("a Linux swap area", 4086, b"SWAPSPACE2"),
    magic("a Linux swap area", 4086, b"SWAP-SPACE"),
    magic(
        "a bcache device",
        4120,
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
    ),
    magic(
        "a bcachefs file system",
        4120,
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
    ),
    magic("a JFS file system", 32_768, b"JFS1"),
    magic("an ISO 9660 file system", 32_769, b"CD001"),
    magic("a ReiserFS file system", 65_588, b"ReIsEr"),
    magic("a btrfs file system", 65_600, b"_BHRfS_M"),
];

/// What a `DOS` partition table and a boot sector end with.
const BOOT_SECTOR_END: &[u8] = &[0x55, 0xaa];
/// What a superblock of Linux software RAID begins with.
const RAID_MAGIC: [u8; 4] = 0xa92b_4efc_u32.to_le_bytes();
/// What every uberblock of ZFS begins with.
const UBERBLOCK_MAGIC: [u8; 4] = 0x00ba_b10c_u32.to_le_bytes();
/// The reading of so much from the start serves every format but those at the end and ZFS.
const START_BYTES: usize = 68 << 10;

/// Reads a part of the disk; fewer bytes where it ends before.
type Reader<'a> = &'a mut dyn FnMut(u64, usize) -> ControlResult<Vec<u8>>;

/// Every mark on a disk of that size.
///
/// # Errors
/// Where the disk cannot be read.
pub fn find(size_bytes: u64, read: Reader<'_>) -> ControlResult<Vec<Signature>> {
    let start = read(0, START_BYTES)?;
    let mut found = Vec::new();
    let mut note = |name: &str, offset_bytes: u64| {
        found.push(Signature {
            name: name.to_owned(),
            offset_bytes,
        });
    };
    for magic in MAGICS {
        if at(&start, magic.offset_bytes, magic.bytes) {
            note(magic.name, magic.offset_bytes);
        }
    }
    if let Some(name) = ext(&start) {
        note(name, 1080);
    }
    for sector in 0..4 {
        if at(&start, sector * 512, b"LABELONE") && at(&start, sector * 512 + 24, b"LVM2 001") {
            note("an LVM physical volume", sector * 512);
        }
    }
    for offset_bytes in [0, 4096] {
        if at(&start, offset_bytes, &RAID_MAGIC) {
            note("a Linux RAID member (md)", offset_bytes);
        }
    }
    for offset_bytes in raid_places_at_the_end(size_bytes) {
        if read(offset_bytes, 4)? == RAID_MAGIC {
            note("a Linux RAID member (md)", offset_bytes);
        }
    }
    let uberblocks = read(128 << 10, 128 << 10)?;
    let uberblock = uberblocks
        .chunks(1024)
        .position(|block| block.starts_with(&UBERBLOCK_MAGIC));
    if let Some(index) = uberblock {
        note("a ZFS pool member", (128 << 10) + 1024 * index as u64);
    }
    // A boot sector of something recognised is no partition table.
    if found.is_empty() && has_partitions(&start) {
        found.push(Signature {
            name: "a DOS partition table".to_owned(),
            offset_bytes: 510,
        });
    }
    Ok(found)
}

fn at(start: &[u8], offset_bytes: u64, wanted: &[u8]) -> bool {
    let found = usize::try_from(offset_bytes)
        .ok()
        .and_then(|offset| start.get(offset..offset + wanted.len()));
    found == Some(wanted)
}

/// Which of the three, by the features that tell them apart.
fn ext(start: &[u8]) -> Option<&'static str> {
    if !at(start, 1080, &[0x53, 0xef]) {
        return None;
    }
    let has_journal = start.get(1116).is_some_and(|flags| flags & 4 != 0);
    let has_extents = start.get(1120).is_some_and(|flags| flags & 0x40 != 0);
    Some(match (has_extents, has_journal) {
        (true, _) => "an ext4 file system",
        (false, true) => "an ext3 file system",
        (false, false) => "an ext2 file system",
    })
}

/// Where versions 1.0 and 0.90 of the superblock lie.
fn raid_places_at_the_end(size_bytes: u64) -> Vec<u64> {
    let mut places = Vec::new();
    if let Some(sectors) = (size_bytes / 512).checked_sub(16) {
        places.push((sectors & !7) * 512);
    }
    if let Some(place) = (size_bytes & !0xffff).checked_sub(64 << 10) {
        places.push(place);
    }
    places
}

/// The end mark of a boot sector, and an entry with a type and a length.
fn has_partitions(start: &[u8]) -> bool {
    let entries = start.get(446..510).unwrap_or_default();
    at(start, 510, BOOT_SECTOR_END)
        && entries
            .chunks_exact(16)
            .any(|entry| entry[4] != 0 && entry[12..16] != [0; 4])
}

#[cfg(test)]
mod tests {
    use super::find;

    fn names(disk: &[u8]) -> Vec<String> {
        let mut read = |offset: u64, length: usize| {
            let offset = usize::try_from(offset).unwrap().min(disk.len());
            let end = (offset + length).min(disk.len());
            Ok(disk[offset..end].to_vec())
        };
        let found = find(disk.len() as u64, &mut read).unwrap();
        found.into_iter().map(|signature| signature.name).collect()
    }

    fn disk_with(offset: usize, bytes: &[u8]) -> Vec<u8> {
        let mut disk = vec![0; 4 << 20];
        disk[offset..offset + bytes.len()].copy_from_slice(bytes);
        disk
    }

    #[test]
    fn an_empty_disk_and_one_shorter_than_any_place_bear_no_mark() {
        assert!(names(&vec![0; 4 << 20]).is_empty());
        assert!(names(&[0; 100]).is_empty());
        assert!(names(&[]).is_empty());
    }

    #[test]
    fn the_header_of_asm_is_recognised() {
        assert_eq!(names(&disk_with(32, b"ORCLDISK")), ["an Oracle ASM disk"]);
    }

    #[test]
    fn a_raid_superblock_is_found_at_each_of_its_four_places() {
        let size = 4 << 20;
        for place in [0, 4096, size - 8192, size - 65_536] {
            let found = names(&disk_with(place, &0xa92b_4efc_u32.to_le_bytes()));
            assert_eq!(found, ["a Linux RAID member (md)"], "at {place}");
        }
    }

    #[test]
    fn a_partition_table_needs_a_partition() {
        let mut disk = disk_with(510, &[0x55, 0xaa]);
        assert!(names(&disk).is_empty());
        disk[450] = 0x83;
        disk[458] = 1;
        assert_eq!(names(&disk), ["a DOS partition table"]);
    }

    #[test]
    fn a_zfs_uberblock_is_found_anywhere_in_its_ring() {
        let disk = disk_with((128 << 10) + 5 * 1024, &0x00ba_b10c_u32.to_le_bytes());
        assert_eq!(names(&disk), ["a ZFS pool member"]);
    }
}
