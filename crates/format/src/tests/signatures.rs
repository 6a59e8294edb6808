//! Foreign formats: real ones where their tools are there, and their magics at every place.

use std::path::PathBuf;
use std::process::Command;

use crate::{
    DiskEnds, ForeignFormat, SIGNATURE_END_BYTES, SIGNATURE_START_BYTES, foreign_signatures,
};

fn formats(disk: &[u8]) -> Vec<ForeignFormat> {
    let signatures = foreign_signatures(DiskEnds {
        size_bytes: disk.len() as u64,
        start: &disk[..disk.len().min(SIGNATURE_START_BYTES)],
        end: &disk[disk.len().saturating_sub(SIGNATURE_END_BYTES)..],
    });
    signatures.iter().map(|found| found.format).collect()
}

const DISK_BYTES: usize = 4 << 20;

/// Bytes at an offset.
type Piece<'a> = (usize, &'a [u8]);

fn disk_with(pieces: &[Piece<'_>]) -> Vec<u8> {
    let mut disk = vec![0; DISK_BYTES];
    for (offset, bytes) in pieces {
        disk[*offset..offset + bytes.len()].copy_from_slice(bytes);
    }
    disk
}

/// A sparse file that is removed again.
struct Image(PathBuf);

impl Image {
    fn of(name: &str, size_bytes: u64) -> Self {
        let name = format!("spindle-signature-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(size_bytes).unwrap();
        Self(path)
    }

    fn formats(&self) -> Vec<ForeignFormat> {
        formats(&std::fs::read(&self.0).unwrap())
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A program of the system's.
fn program(name: &str) -> Command {
    let search_path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let mut command = Command::new(name);
    command.env("PATH", search_path);
    command
}

/// A loop device over an image, for tools that take no file.
struct Loop(String);

impl Loop {
    fn over(image: &Image) -> Option<Self> {
        let made = (program("losetup").args(["--find", "--show"]))
            .arg(&image.0)
            .output()
            .ok()?;
        let path = String::from_utf8(made.stdout).ok()?.trim().to_owned();
        made.status.success().then_some(Self(path))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = program("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn what_real_tools_make_is_recognised() {
    let cases: &[(&str, &[&str], u64, ForeignFormat)] = &[
        ("mkfs.ext2", &["-q", "-F"], 8, ForeignFormat::Ext2),
        ("mkfs.ext3", &["-q", "-F"], 16, ForeignFormat::Ext3),
        ("mkfs.ext4", &["-q", "-F"], 16, ForeignFormat::Ext4),
        ("mkfs.xfs", &["-q"], 320, ForeignFormat::Xfs),
        ("mkfs.btrfs", &["-q"], 128, ForeignFormat::Btrfs),
        ("mkswap", &["-q"], 1, ForeignFormat::Swap),
        ("mkfs.vfat", &[], 8, ForeignFormat::Fat),
        (
            "cryptsetup",
            &["luksFormat", "-q", "--key-file=/dev/zero"],
            32,
            ForeignFormat::Luks,
        ),
    ];
    for (tool, arguments, mebibytes, expected) in cases {
        let image = Image::of(tool, mebibytes << 20);
        if has_made(program(tool).args(*arguments).arg(&image.0)) {
            assert_eq!(image.formats(), [*expected], "{tool}");
        }
    }
}

#[test]
fn what_lvm_makes_is_recognised() {
    let image = Image::of("pvcreate", 16 << 20);
    let Some(device) = Loop::over(&image) else {
        println!("skipped: no loop device can be had");
        return;
    };
    let is_made = has_made(program("pvcreate").args(["-q", &device.0]));
    drop(device);
    if is_made {
        assert_eq!(image.formats(), [ForeignFormat::LvmPhysicalVolume]);
    }
}

/// Whether the tool is there, and did what it was told.
fn has_made(tool: &mut Command) -> bool {
    let name = tool.get_program().display().to_string();
    match tool.output() {
        Ok(made) if made.status.success() => true,
        Ok(made) => panic!("{name}: {}", String::from_utf8_lossy(&made.stderr)),
        Err(_) => {
            println!("skipped: {name} is not installed");
            false
        }
    }
}

#[test]
fn a_blank_disk_and_one_shorter_than_any_place_bear_no_mark() {
    for size in [0, 100, 512, 4096, DISK_BYTES] {
        let disk = vec![0; size];
        assert!(formats(&disk).is_empty());
        let ends = DiskEnds {
            size_bytes: size as u64,
            start: &disk,
            end: &[],
        };
        assert!(ends.is_blank());
    }
}

#[test]
fn a_mark_is_found_at_each_of_its_places() {
    let raid = 0xa92b_4efc_u32.to_le_bytes();
    let uberblock = 0x00ba_b10c_u32.to_le_bytes();
    let cases: &[(ForeignFormat, &[Piece<'_>])] = &[
        (ForeignFormat::AsmDisk, &[(32, b"ORCLDISK")]),
        (ForeignFormat::LinuxRaid, &[(0, &raid)]),
        (ForeignFormat::LinuxRaid, &[(4096, &raid)]),
        (ForeignFormat::LinuxRaid, &[(DISK_BYTES - 8192, &raid)]),
        (ForeignFormat::LinuxRaid, &[(DISK_BYTES - 65_536, &raid)]),
        (ForeignFormat::GptPartitions, &[(512, b"EFI PART")]),
        (ForeignFormat::GptPartitions, &[(4096, b"EFI PART")]),
        (
            ForeignFormat::GptPartitions,
            &[(DISK_BYTES - 512, b"EFI PART")],
        ),
        (
            ForeignFormat::ZfsMember,
            &[((128 << 10) + 5 * 1024, &uberblock)],
        ),
        (
            ForeignFormat::ZfsMember,
            &[((256 << 10) + (200 << 10), &uberblock)],
        ),
        (
            ForeignFormat::ZfsMember,
            &[(DISK_BYTES - (64 << 10), &uberblock)],
        ),
        (
            ForeignFormat::Vmfs,
            &[(1 << 20, &0xc001_d00d_u32.to_le_bytes())],
        ),
        (ForeignFormat::Luks, &[(0, b"LUKS\xba\xbe")]),
        (
            ForeignFormat::LvmPhysicalVolume,
            &[(512, b"LABELONE"), (536, b"LVM2 001")],
        ),
        (
            ForeignFormat::LvmPhysicalVolume,
            &[(1536, b"LABELONE"), (1560, b"LVM2 001")],
        ),
        (
            ForeignFormat::Bcache,
            &[(
                4120,
                b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
            )],
        ),
        (
            ForeignFormat::DosPartitions,
            &[(510, &[0x55, 0xaa]), (450, &[0x83]), (458, &[1])],
        ),
    ];
    for (expected, pieces) in cases {
        assert_eq!(formats(&disk_with(pieces)), [*expected], "{pieces:?}");
    }
}

#[test]
fn the_copy_of_a_partition_table_is_found_in_the_last_whole_sector_of_either_size() {
    for (sector_bytes, odd_bytes) in [(512, 0), (4096, 0), (4096, 1536), (512, 100), (4096, 100)] {
        let end = (DISK_BYTES + odd_bytes) / sector_bytes * sector_bytes;
        let mut disk = vec![0; DISK_BYTES + odd_bytes];
        disk[end - sector_bytes..][..8].copy_from_slice(b"EFI PART");
        let found = [ForeignFormat::GptPartitions];
        assert_eq!(formats(&disk), found, "{sector_bytes}, {odd_bytes}");
    }
    for size_bytes in [512, 1024, 4096, 8192] {
        assert!(formats(&vec![0; size_bytes]).is_empty());
    }
}

#[test]
fn a_boot_sector_without_partitions_is_no_partition_table() {
    assert!(formats(&disk_with(&[(510, &[0x55, 0xaa])])).is_empty());
}

#[test]
fn half_an_lvm_label_is_none() {
    assert!(formats(&disk_with(&[(512, b"LABELONE")])).is_empty());
}
