//! What else can stand on a disk: file systems, volume managers, RAID members, partition tables,
//! ASM. A disk that bears such a mark is not ours and is refused.
//!
//! The places and the magic bytes are those that the formats' own documentation gives. A format
//! that is not known here is not seen; so nothing relies on a disk being empty. Labels of ours
//! are no foreign mark: [`crate::ParsedLabel`] judges them.

use serde::Serialize;

/// How much of a disk's start is looked at, where it has so much.
pub const SIGNATURE_START_BYTES: usize = (1 << 20) + (64 << 10);
/// How much of a disk's end is looked at, where it has so much.
pub const SIGNATURE_END_BYTES: usize = 768 << 10;

/// A format of somebody else's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the formats' own names, spelled out by `name`")]
pub enum ForeignFormat {
    AsmDisk,
    Bcache,
    Bcachefs,
    Bluestore,
    Btrfs,
    DosPartitions,
    ExFat,
    Ext2,
    Ext3,
    Ext4,
    F2fs,
    Fat,
    GptPartitions,
    Iso9660,
    Jfs,
    LinuxRaid,
    Luks,
    LvmPhysicalVolume,
    Ntfs,
    QemuImage,
    ReiserFs,
    SquashFs,
    Stratis,
    Swap,
    Vdo,
    Vmfs,
    Xfs,
    ZfsMember,
}

impl ForeignFormat {
    /// What a person calls it, with its article.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AsmDisk => "an Oracle ASM disk",
            Self::Bcache => "a bcache device",
            Self::Bcachefs => "a bcachefs file system",
            Self::Bluestore => "a Ceph OSD",
            Self::Btrfs => "a btrfs file system",
            Self::DosPartitions => "a DOS partition table",
            Self::ExFat => "an exFAT file system",
            Self::Ext2 => "an ext2 file system",
            Self::Ext3 => "an ext3 file system",
            Self::Ext4 => "an ext4 file system",
            Self::F2fs => "an F2FS file system",
            Self::Fat => "a FAT file system",
            Self::GptPartitions => "a GPT partition table",
            Self::Iso9660 => "an ISO 9660 file system",
            Self::Jfs => "a JFS file system",
            Self::LinuxRaid => "a Linux RAID member (md)",
            Self::Luks => "a LUKS encrypted volume",
            Self::LvmPhysicalVolume => "an LVM physical volume",
            Self::Ntfs => "an NTFS file system",
            Self::QemuImage => "a QEMU disk image",
            Self::ReiserFs => "a ReiserFS file system",
            Self::SquashFs => "a SquashFS file system",
            Self::Stratis => "a Stratis pool",
            Self::Swap => "a Linux swap area",
            Self::Vdo => "a VDO volume",
            Self::Vmfs => "a VMFS volume",
            Self::Xfs => "an XFS file system",
            Self::ZfsMember => "a ZFS pool member",
        }
    }
}

/// A mark that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Signature {
    /// Whose it is.
    pub format: ForeignFormat,
    /// Where its magic lies on the disk.
    pub offset_bytes: u64,
}

/// The two ends of a disk; on a small one they overlap.
#[derive(Debug, Clone, Copy)]
pub struct DiskEnds<'a> {
    /// The disk's size.
    pub size_bytes: u64,
    /// Its first bytes: [`SIGNATURE_START_BYTES`], or all.
    pub start: &'a [u8],
    /// Its last bytes: [`SIGNATURE_END_BYTES`], or all.
    pub end: &'a [u8],
}

/// Marks at fixed places. Of two formats that share a place the more telling one comes first.
const MAGICS: &[(ForeignFormat, u64, &[u8])] = &[
    (ForeignFormat::Xfs, 0, b"XFSB"),
    (ForeignFormat::Luks, 0, b"LUKS\xba\xbe"),
    (ForeignFormat::SquashFs, 0, b"hsqs"),
    (ForeignFormat::Bluestore, 0, b"bluestore block device"),
    (ForeignFormat::Vdo, 0, b"dmvdo001"),
    (ForeignFormat::QemuImage, 0, b"QFI\xfb"),
    (ForeignFormat::Ntfs, 3, b"NTFS    "),
    (ForeignFormat::ExFat, 3, b"EXFAT   "),
    (ForeignFormat::AsmDisk, 32, b"ORCLDISK"),
    (ForeignFormat::Fat, 54, b"FAT1"),
    (ForeignFormat::Fat, 82, b"FAT32   "),
    (ForeignFormat::GptPartitions, 512, b"EFI PART"),
    (ForeignFormat::GptPartitions, 4096, b"EFI PART"),
    (ForeignFormat::Stratis, 512, b"!Stra0tis"),
    (ForeignFormat::F2fs, 1024, &0xf2f5_2010_u32.to_le_bytes()),
    (ForeignFormat::Swap, 4086, b"SWAPSPACE2"),
    (ForeignFormat::Swap, 4086, b"SWAP-SPACE"),
    (
        ForeignFormat::Bcache,
        4120,
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
    ),
    (
        ForeignFormat::Bcachefs,
        4120,
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
    ),
    (ForeignFormat::Jfs, 32_768, b"JFS1"),
    (ForeignFormat::Iso9660, 32_769, b"CD001"),
    (ForeignFormat::ReiserFs, 65_588, b"ReIsEr"),
    (ForeignFormat::Btrfs, 65_600, b"_BHRfS_M"),
    (ForeignFormat::LinuxRaid, 0, &RAID_MAGIC),
    (ForeignFormat::LinuxRaid, 4096, &RAID_MAGIC),
    (ForeignFormat::Vmfs, 1 << 20, &0xc001_d00d_u32.to_le_bytes()),
];

/// What a superblock of Linux software RAID begins with.
const RAID_MAGIC: [u8; 4] = 0xa92b_4efc_u32.to_le_bytes();
/// What every uberblock of ZFS begins with; the uberblocks are a ring in each of four labels.
const UBERBLOCK_MAGIC: [u8; 4] = 0x00ba_b10c_u32.to_le_bytes();
const ZFS_LABEL_BYTES: u64 = 256 << 10;
/// What a `DOS` partition table and a boot sector end with.
const BOOT_SECTOR_END: &[u8] = &[0x55, 0xaa];

/// Every foreign mark on a disk.
#[must_use]
pub fn foreign_signatures(disk: DiskEnds<'_>) -> Vec<Signature> {
    let mut found = Vec::new();
    let mut note = |format, offset_bytes| {
        found.push(Signature {
            format,
            offset_bytes,
        });
    };
    for &(format, offset_bytes, magic) in MAGICS {
        if disk.has(offset_bytes, magic) {
            note(format, offset_bytes);
        }
    }
    if let Some(format) = ext(disk.start) {
        note(format, 1080);
    }
    for sector in [0, 512, 1024, 1536] {
        if disk.has(sector, b"LABELONE") && disk.has(sector + 24, b"LVM2 001") {
            note(ForeignFormat::LvmPhysicalVolume, sector);
        }
    }
    for offset_bytes in raid_places_at_the_end(disk.size_bytes) {
        if disk.has(offset_bytes, &RAID_MAGIC) {
            note(ForeignFormat::LinuxRaid, offset_bytes);
        }
    }
    for label in zfs_labels(disk.size_bytes) {
        let ring = label + ZFS_LABEL_BYTES / 2..label + ZFS_LABEL_BYTES;
        let uberblock = (ring.step_by(1024)).find(|place| disk.has(*place, &UBERBLOCK_MAGIC));
        if let Some(place) = uberblock {
            note(ForeignFormat::ZfsMember, place);
        }
    }
    for place in gpt_places_at_the_end(disk.size_bytes) {
        if disk.has(place, b"EFI PART") {
            note(ForeignFormat::GptPartitions, place);
        }
    }
    // A boot sector of something recognised is no partition table.
    if found.is_empty() && has_partitions(disk.start) {
        found.push(Signature {
            format: ForeignFormat::DosPartitions,
            offset_bytes: 510,
        });
    }
    found
}

impl DiskEnds<'_> {
    /// Whether the bytes lie there, in the part of either end that was read.
    fn has(&self, offset_bytes: u64, wanted: &[u8]) -> bool {
        let within = |part: &[u8], part_start: u64| {
            offset_bytes
                .checked_sub(part_start)
                .and_then(|offset| usize::try_from(offset).ok())
                .and_then(|offset| part.get(offset..)?.get(..wanted.len()))
                == Some(wanted)
        };
        let end_start = self.size_bytes.checked_sub(self.end.len() as u64);
        within(self.start, 0) || end_start.is_some_and(|start| within(self.end, start))
    }

    /// Whether all that was read is zero: nobody has used the disk, as far as can be seen.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        (self.start.iter().chain(self.end)).all(|byte| *byte == 0)
    }
}

/// Which of the three, by the features that tell them apart.
fn ext(start: &[u8]) -> Option<ForeignFormat> {
    if start.get(1080..1082) != Some(&[0x53, 0xef]) {
        return None;
    }
    let has_journal = start.get(1116).is_some_and(|flags| flags & 4 != 0);
    let has_extents = start.get(1120).is_some_and(|flags| flags & 0x40 != 0);
    Some(match (has_extents, has_journal) {
        (true, _) => ForeignFormat::Ext4,
        (false, true) => ForeignFormat::Ext3,
        (false, false) => ForeignFormat::Ext2,
    })
}

/// Where versions 1.0 and 0.90 of md's superblock lie.
fn raid_places_at_the_end(size_bytes: u64) -> impl Iterator<Item = u64> {
    let version_1 = (size_bytes / 512)
        .checked_sub(16)
        .map(|sectors| (sectors & !7) * 512);
    let version_0 = (size_bytes & !0xffff).checked_sub(64 << 10);
    // The version 1 superblocks at the start have rows of their own.
    (version_1.into_iter().chain(version_0)).filter(|place| *place > 4096)
}

/// Where the copy of a GPT's header lies: in the last whole sector, of either size.
fn gpt_places_at_the_end(size_bytes: u64) -> impl Iterator<Item = u64> {
    let last = [512, 4096].map(|sector_bytes| {
        let sectors = size_bytes / sector_bytes;
        Some(sectors.checked_sub(1)? * sector_bytes)
    });
    // The headers at the start have rows of their own.
    let places = last.into_iter().flatten();
    places.filter(|place| *place > 512 && *place != 4096)
}

/// Where the four labels of ZFS lie.
fn zfs_labels(size_bytes: u64) -> impl Iterator<Item = u64> {
    let whole = size_bytes - size_bytes % ZFS_LABEL_BYTES;
    let at_the_end = [2, 1].map(|labels| whole.checked_sub(labels * ZFS_LABEL_BYTES));
    [0, ZFS_LABEL_BYTES].into_iter().chain(
        at_the_end
            .into_iter()
            .flatten()
            .filter(|place| *place >= 2 * ZFS_LABEL_BYTES),
    )
}

/// The end mark of a boot sector, and an entry with a type and a length.
fn has_partitions(start: &[u8]) -> bool {
    let entries = start.get(446..510).unwrap_or_default();
    start.get(510..512) == Some(BOOT_SECTOR_END)
        && entries
            .as_chunks::<16>()
            .0
            .iter()
            .any(|entry| entry[4] != 0 && entry[12..16] != [0; 4])
}
