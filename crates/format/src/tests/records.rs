//! The catalog's records and the extent row.

use proptest::prelude::*;
use spindle_base::{DiskName, DiskNumber, FailureGroupName, FileId, Redundancy, Striping, Uuid};

use crate::{
    BlockRun, DirtyRecord, DiskRecord, EVENT_MESSAGE_BYTES_MAX, EXTENTS_PER_ROW, EventRecord,
    ExtentCopy, ExtentRow, FileRecord, FormatErrorKind, InitialisedMark, Inode, InodeKind,
    NameRecord, Severity, StaleDisk, Timestamp, encode_extent_row,
};

fn timestamp() -> impl Strategy<Value = Timestamp> {
    (any::<i64>(), 0..1_000_000_000_u32).prop_map(|(seconds, nanoseconds)| Timestamp {
        seconds,
        nanoseconds,
    })
}

fn inode_kind() -> impl Strategy<Value = InodeKind> {
    prop_oneof![
        Just(InodeKind::Regular),
        Just(InodeKind::Directory),
        Just(InodeKind::Symlink),
        Just(InodeKind::Fifo),
        Just(InodeKind::Socket),
        Just(InodeKind::CharacterDevice),
        Just(InodeKind::BlockDevice),
    ]
}

fn inode() -> impl Strategy<Value = Inode> {
    (
        inode_kind(),
        0..=0o7777_u16,
        any::<[u32; 4]>(),
        any::<[u64; 3]>(),
        [timestamp(), timestamp(), timestamp(), timestamp()],
        prop::collection::vec(any::<u8>(), 1..200),
    )
        .prop_map(|(kind, permissions, small, large, times, target)| Inode {
            kind,
            permissions,
            flags: 0,
            user: small[0],
            group: small[1],
            links_count: small[2],
            device: small[3],
            size_bytes: large[0],
            parent: (large[1] != 0).then_some(FileId(large[1])),
            next_cookie: large[2],
            accessed: times[0],
            modified: times[1],
            changed: times[2],
            created: times[3],
            target: if kind == InodeKind::Symlink {
                target
            } else {
                Vec::new()
            },
        })
}

/// An extent of a row: `None` is a hole, else its class, whether each further copy is there, and
/// how far it is initialised where it is not full.
type Extent = Option<(u8, [bool; 2], Option<u32>)>;

fn row() -> impl Strategy<Value = (usize, Vec<Extent>)> {
    let extent = prop::option::of((
        0..=18_u8,
        any::<[bool; 2]>(),
        prop::option::of(any::<u32>()),
    ));
    (
        1..=3_usize,
        prop::collection::vec(extent, 0..=EXTENTS_PER_ROW),
    )
}

fn build(copies: usize, extents: &[Extent]) -> (Vec<ExtentCopy>, Vec<InitialisedMark>) {
    let mut entries = Vec::new();
    let mut marks = Vec::new();
    for (index, extent) in extents.iter().enumerate() {
        let Some((class, there, mark)) = extent else {
            entries.extend(std::iter::repeat_n(ExtentCopy::HOLE, copies));
            continue;
        };
        for copy in 0..copies {
            entries.push(if copy == 0 || there[copy - 1] {
                let disk = DiskNumber(u16::try_from(copy * 1000 + index).unwrap());
                ExtentCopy::new(disk, (index as u64 + 1) << 30, *class)
            } else {
                ExtentCopy::MISSING
            });
        }
        if let Some(mark) = mark {
            marks.push(InitialisedMark {
                index: u8::try_from(index).unwrap(),
                blocks: mark % (1 << class),
            });
        }
    }
    (entries, marks)
}

proptest! {
    #[test]
    fn a_row_reads_back_as_it_was_written((copies, extents) in row()) {
        let (entries, marks) = build(copies, &extents);
        let bytes = encode_extent_row(copies, &entries, &marks);
        let used = extents.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        match bytes {
            None => prop_assert_eq!(used, 0),
            Some(bytes) => {
                let row = ExtentRow::parse(&bytes).unwrap();
                prop_assert_eq!(row.copies(), copies);
                prop_assert_eq!(row.extents_count(), used);
                let read: Vec<_> = row.entries().collect();
                prop_assert_eq!(&read[..], &entries[..used * copies]);
                prop_assert_eq!(row.marks().collect::<Vec<_>>(), marks);
            }
        }
    }

    #[test]
    fn an_inode_reads_back_as_it_was_written(inode in inode()) {
        prop_assert_eq!(Inode::parse(&inode.encode()).unwrap(), inode);
    }

    #[test]
    fn a_directory_entry_reads_back_as_it_was_written(
        kind in inode_kind(), id in 1_u64.., cookie in any::<u64>()
    ) {
        let name = NameRecord { id: FileId(id), kind, cookie };
        prop_assert_eq!(NameRecord::parse(&name.encode()).unwrap(), name);
    }

    #[test]
    fn a_dirty_region_reads_back_as_it_was_written(
        open in any::<bool>(),
        lists in prop::collection::vec(any::<bool>(), 6),
        disks in prop::collection::btree_map(
            0..u16::MAX, prop::collection::vec((1..100_u16, 1..100_u16), 1..20), 1..6)
    ) {
        let stale = disks.into_iter().zip(lists).map(|((disk, gaps), lists)| {
            let mut end = 0;
            let runs = gaps.into_iter().map(|(gap, blocks)| {
                let first_block = end + gap;
                end = first_block + blocks;
                BlockRun { first_block, blocks }
            });
            StaleDisk {
                disk: DiskNumber(disk),
                runs: runs.filter(|_| lists || !open).collect(),
            }
        });
        let dirty = DirtyRecord { open, stale: stale.collect() };
        prop_assert_eq!(DirtyRecord::parse(&dirty.encode()).unwrap(), dirty);
    }

    #[test]
    fn what_parses_encodes_to_the_same_bytes(bytes in prop::collection::vec(any::<u8>(), 0..130)) {
        if let Ok(inode) = Inode::parse(&bytes) {
            prop_assert_eq!(inode.encode(), bytes);
        }
    }
}

#[test]
fn a_disk_record_reads_back_as_it_was_written() {
    for partners in [vec![], vec![DiskNumber(3), DiskNumber(9)]] {
        let record = DiskRecord {
            uuid: Uuid([7; 16]),
            name: DiskName::new("DATA_0001").unwrap(),
            failure_group: FailureGroupName::new("cabinet-a").unwrap(),
            size_aus: 4096,
            partners,
        };
        assert_eq!(DiskRecord::parse(&record.encode()), Ok(record));
    }
}

#[test]
fn every_layout_of_a_file_reads_back_as_it_was_written() {
    for redundancy in [Redundancy::External, Redundancy::Normal, Redundancy::High] {
        for striping in [Striping::Coarse, Striping::Fine] {
            for rows_vary in [false, true] {
                let record = FileRecord {
                    redundancy,
                    striping,
                    rows_vary,
                };
                assert_eq!(FileRecord::parse(&record.encode()), Ok(record));
            }
        }
    }
}

#[test]
fn a_hole_and_a_missing_copy_are_told_from_an_extent() {
    let copy = ExtentCopy::new(DiskNumber(513), 0x12_3456_789a, 18);
    assert!(copy.is_present() && !copy.is_hole() && !copy.is_missing());
    assert_eq!(
        (copy.disk(), copy.start_block(), copy.class(), copy.blocks()),
        (DiskNumber(513), 0x12_3456_789a, 18, 1 << 18)
    );
    assert_eq!(ExtentCopy::from_bits(copy.to_bits()), copy);
    assert!(ExtentCopy::HOLE.is_hole() && !ExtentCopy::HOLE.is_present());
    assert!(ExtentCopy::MISSING.is_missing() && !ExtentCopy::MISSING.is_present());
}

#[test]
fn a_row_that_breaks_an_invariant_is_refused_by_name() {
    let on = |disk, class| ExtentCopy::new(DiskNumber(disk), 512, class);
    let raw = |copies: u8, entries: &[ExtentCopy], marks: &[[u8; 4]]| {
        let extents = u8::try_from(entries.len() / usize::from(copies)).unwrap();
        let mut bytes = vec![1, copies, extents, u8::try_from(marks.len()).unwrap()];
        for entry in entries {
            bytes.extend(entry.to_bits().to_le_bytes());
        }
        bytes.extend(marks.iter().flatten());
        bytes
    };
    let hole = ExtentCopy::HOLE;
    let missing = ExtentCopy::MISSING;
    let cases: &[(&str, Vec<u8>)] = &[
        (
            "an extent (a hole in some copies only)",
            raw(2, &[on(1, 8), hole], &[]),
        ),
        (
            "an extent (no copy is there)",
            raw(2, &[missing, missing], &[]),
        ),
        (
            "an extent (two copies on one disk)",
            raw(2, &[on(1, 8), on(1, 8)], &[]),
        ),
        (
            "the length class of an extent",
            raw(2, &[on(1, 8), on(2, 9)], &[]),
        ),
        (
            "the length class of an extent",
            raw(1, &[ExtentCopy::from_bits((19 << 40) | 1)], &[]),
        ),
        (
            "the start of an extent",
            raw(1, &[ExtentCopy::from_bits(8 << 40)], &[]),
        ),
        ("the last extent (a hole)", raw(1, &[on(1, 8), hole], &[])),
        ("mark", raw(1, &[on(1, 0)], &[[0, 1, 0, 0]])),
        ("mark", raw(1, &[on(1, 8)], &[[1, 1, 0, 0]])),
        ("mark", raw(1, &[hole, on(1, 8)], &[[0, 0, 0, 0]])),
        (
            "mark",
            raw(1, &[on(1, 8), on(2, 8)], &[[1, 1, 0, 0], [0, 1, 0, 0]]),
        ),
    ];
    for (what, bytes) in cases {
        let error = ExtentRow::parse(bytes).unwrap_err();
        assert_eq!(error.kind, FormatErrorKind::Value(what), "{bytes:?}");
    }
    let good = raw(1, &[on(1, 8)], &[[0, 255, 0, 0]]);
    ExtentRow::parse(&good).unwrap();
    let short = ExtentRow::parse(&good[..good.len() - 1]).unwrap_err();
    assert_eq!(short.kind, FormatErrorKind::TooShort);
    let long = ExtentRow::parse(&[&good[..], &[0]].concat()).unwrap_err();
    assert_eq!(
        (long.kind, long.offset_bytes),
        (FormatErrorKind::TooLong, good.len())
    );
}

#[test]
fn a_dirty_region_that_breaks_an_invariant_is_refused_by_name() {
    let disk = |runs: &[[u16; 2]]| {
        let count = u16::try_from(runs.len()).unwrap();
        let words = [7, count].into_iter().chain(runs.iter().flatten().copied());
        words.flat_map(u16::to_le_bytes).collect::<Vec<u8>>()
    };
    let cases: &[(&str, Vec<u8>)] = &[
        ("state", vec![2, 0, 0, 0]),
        ("disks count", vec![2, 2, 0, 0]),
        ("runs count", [&[2, 2, 1, 0][..], &disk(&[])].concat()),
        ("run", [&[2, 2, 1, 0][..], &disk(&[[3, 0]])].concat()),
        ("run", [&[2, 2, 1, 0][..], &disk(&[[16_383, 2]])].concat()),
        (
            "run",
            [&[2, 2, 1, 0][..], &disk(&[[0, 2], [2, 1]])].concat(),
        ),
        (
            "run",
            [&[2, 2, 1, 0][..], &disk(&[[5, 2], [1, 1]])].concat(),
        ),
        (
            "disk number",
            [&[2, 2, 2, 0][..], &disk(&[[0, 2]]), &disk(&[[0, 2]])].concat(),
        ),
    ];
    for (what, bytes) in cases {
        let error = DirtyRecord::parse(bytes).unwrap_err();
        assert_eq!(error.kind, FormatErrorKind::Value(what), "{bytes:?}");
    }
    let good = [&[2, 2, 1, 0][..], &disk(&[[0, 2], [3, 16_381]])].concat();
    assert!(!DirtyRecord::parse(&good).unwrap().open);
    let open = [&[2, 1, 1, 0][..], &disk(&[[0, 2]])].concat();
    assert!(DirtyRecord::parse(&open).unwrap().open);
    let error = DirtyRecord::parse(&[3, 1, 0, 0]).unwrap_err();
    assert_eq!(error.kind, FormatErrorKind::Version(3));
}

#[test]
fn a_newer_version_is_told_from_damage() {
    let mut bytes = NameRecord {
        id: FileId(5),
        kind: InodeKind::Regular,
        cookie: 1,
    }
    .encode();
    bytes[0] = 2;
    let error = NameRecord::parse(&bytes).unwrap_err();
    assert_eq!(error.kind, FormatErrorKind::Version(2));
}

#[test]
fn an_event_reads_back_as_it_was_written_and_a_message_too_long_is_cut() {
    let mut event = EventRecord {
        severity: Severity::Warning,
        disk: None,
        time_ms: 1,
        file: None,
        kind: "a_kind_of_tomorrow".to_owned(),
        host: String::new(),
        message: "ü".repeat(EVENT_MESSAGE_BYTES_MAX),
    };
    let read = EventRecord::parse(&event.encode()).unwrap();
    event.message = "ü".repeat(EVENT_MESSAGE_BYTES_MAX / 2);
    assert_eq!(read, event);
}
