//! Golden images: the bytes of each structure as the version that brought it wrote them. A program that reads them
//! differently, or writes others, cannot read the disks that are out there.
//!
//! With `SPINDLE_WRITE_GOLDEN` set, images that do not exist are written; one that exists is
//! never replaced.

use std::path::PathBuf;

use spindle_base::{DiskName, DiskNumber, FailureGroupName, FileId, Redundancy, Striping, Uuid};

use super::places::{checksum_block, journal, label, opener, state};
use crate::{
    BlockRun, DIRTY_REGION_BLOCKS, DirtyRecord, DiskRecord, EventRecord, ExtentCopy, FileRecord,
    InitialisedMark, Inode, InodeKind, JOURNAL_PLACE, LABEL_PLACES, NameRecord, OPENER_PLACE,
    STATE_PLACES, Severity, StaleDisk, Timestamp, encode_extent_row,
};

/// The place of the golden checksum block.
pub(super) const SUMS_PLACE: u64 = 0x0012_3000;

pub(super) struct Image {
    /// The format that brought these bytes.
    pub(super) format: u32,
    pub(super) name: &'static str,
    pub(super) bytes: Vec<u8>,
}

pub(super) fn inode() -> Inode {
    let time = |seconds| Timestamp {
        seconds,
        nanoseconds: 123_456_789,
    };
    Inode {
        kind: InodeKind::Symlink,
        permissions: 0o4755,
        flags: 0,
        user: 0x0102_0304,
        group: 0x0506_0708,
        links_count: 0x11,
        device: 0x2233,
        size_bytes: 0x4455_6677,
        parent: Some(FileId(0x8899)),
        next_cookie: 0xaabb,
        accessed: time(1),
        modified: time(-2),
        changed: time(3),
        created: time(4),
        target: b"../other".to_vec(),
    }
}

pub(super) fn disk_record() -> DiskRecord {
    DiskRecord {
        uuid: Uuid([0x22; 16]),
        name: DiskName::new("DATA_0003").unwrap(),
        failure_group: FailureGroupName::new("Cabinet-B").unwrap(),
        size_aus: 0x0001_2345,
        partners: vec![DiskNumber(1), DiskNumber(0x0102)],
    }
}

pub(super) fn event_record() -> EventRecord {
    EventRecord {
        severity: Severity::Critical,
        disk: Some(DiskNumber(0x0102)),
        time_ms: 0x0001_0203_0405_0607,
        file: Some(FileId(0x0809)),
        kind: "disk_offline".to_owned(),
        host: "db-07".to_owned(),
        message: "disk 258 goes offline".to_owned(),
    }
}

pub(super) fn dirty_record(open: bool) -> DirtyRecord {
    let stale = |disk, runs: &[(u16, u16)]| StaleDisk {
        disk: DiskNumber(disk),
        runs: (runs.iter())
            .filter(|_| !open)
            .map(|(first_block, blocks)| BlockRun {
                first_block: *first_block,
                blocks: *blocks,
            })
            .collect(),
    };
    DirtyRecord {
        open,
        stale: vec![
            stale(3, &[(0, 2), (0x0102, 0x0304)]),
            stale(0x0104, &[(0, DIRTY_REGION_BLOCKS)]),
        ],
    }
}

pub(super) fn row_parts() -> (Vec<ExtentCopy>, Vec<InitialisedMark>) {
    let on = |disk, start, class| ExtentCopy::new(DiskNumber(disk), start, class);
    let entries = vec![
        on(1, 0x100, 0),
        on(2, 0x200, 0),
        ExtentCopy::HOLE,
        ExtentCopy::HOLE,
        on(0x0102, 0x12_3456_789a, 18),
        ExtentCopy::MISSING,
    ];
    let marks = vec![InitialisedMark {
        index: 2,
        blocks: 0x0001_2345,
    }];
    (entries, marks)
}

pub(super) fn images() -> Vec<Image> {
    let image = |name, bytes| Image {
        format: 1,
        name,
        bytes,
    };
    let (entries, marks) = row_parts();
    vec![
        image("label", label().encode(LABEL_PLACES[1])),
        image("opener", opener().encode(OPENER_PLACE)),
        image(
            "group-state",
            state().encode(STATE_PLACES[0], Uuid([0x22; 16])),
        ),
        image("journal", journal().encode(JOURNAL_PLACE)),
        image("checksum-block", checksum_block().encode(SUMS_PLACE)),
        image(
            "extent-row",
            encode_extent_row(2, &entries, &marks).unwrap(),
        ),
        image(
            "file",
            FileRecord {
                redundancy: Redundancy::Normal,
                striping: Striping::Fine,
                rows_vary: false,
            }
            .encode(),
        ),
        Image {
            format: 2,
            name: "dirty-region",
            bytes: dirty_record(false).encode(),
        },
        Image {
            format: 2,
            name: "dirty-region-open",
            bytes: dirty_record(true).encode(),
        },
        image("disk", disk_record().encode()),
        image("event", event_record().encode()),
        image("inode", inode().encode()),
        image(
            "name",
            NameRecord {
                id: FileId(0x0102_0304),
                kind: InodeKind::Directory,
                cookie: 0x55,
            }
            .encode(),
        ),
    ]
}

fn folder(format: u32) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../../testdata/format-{format}"))
}

#[test]
fn every_structure_is_written_as_its_version_wrote_it() {
    for image in images() {
        let folder = folder(image.format);
        let path = folder.join(image.name).with_extension("bin");
        if std::env::var_os("SPINDLE_WRITE_GOLDEN").is_some() && !path.exists() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &image.bytes).unwrap();
        }
        let golden = std::fs::read(&path).unwrap();
        assert_eq!(image.bytes, golden, "{}", image.name);
    }
}

#[test]
fn a_dirty_region_of_version_1_is_read_as_an_open_one() {
    let golden = std::fs::read(folder(1).join("dirty-region.bin")).unwrap();
    assert_eq!(DirtyRecord::parse(&golden), Ok(dirty_record(true)));
}
