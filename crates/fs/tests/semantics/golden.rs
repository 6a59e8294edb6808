//! Groups that former programs left open for ever: see `testdata/groups`.

use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use spindle_base::GroupName;
use spindle_base::{DiskNumber, FileId, Uuid};
use spindle_device::{DiskSlot, Disks, SimulatedDisks};
use spindle_fs::FileSystem;
use spindle_group::{Group, Opener};

use crate::fixture::name;

/// A group as the program of a commit left it.
struct Left {
    commit: &'static str,
    /// It was away when the program was killed.
    away: Option<DiskNumber>,
    /// What was written while that was away.
    while_away: bool,
    /// How many numbered files of one copy there are.
    singles: u32,
    /// Those of which the disk that was away has the copy.
    singles_away: &'static [u32],
    /// Whether there is a file that was being written to while a disk lacked blocks of it.
    listed: bool,
}

/// Each has features that the ones before it do not use.
const LEFT: [Left; 3] = [
    Left {
        commit: "d4622fc",
        away: Some(DiskNumber(1)),
        while_away: true,
        singles: 0,
        singles_away: &[],
        listed: false,
    },
    Left {
        commit: "89763c4",
        away: Some(DiskNumber(2)),
        while_away: false,
        singles: 12,
        singles_away: &[3, 4, 5, 11],
        listed: false,
    },
    WITH_LISTED_REGIONS,
];

const WITH_LISTED_REGIONS: Left = Left {
    commit: "2aee5b5",
    away: None,
    while_away: false,
    singles: 0,
    singles_away: &[],
    listed: true,
};

/// What disk 0 missed of `/listed` before the program was killed, as blocks of the file.
const MISSED: [std::ops::Range<usize>; 2] = [5..12, 144..158];
/// What was written to `/listed` when that disk was back.
const DURING: std::ops::Range<usize> = 192..206;

/// The disks of a group, in the order of their letters.
fn disks_of(commit: &str) -> Arc<SimulatedDisks> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../testdata/groups")
        .join(commit);
    let disks = Arc::new(SimulatedDisks::new(1, &[]));
    for letter in ["a", "b", "c"] {
        let file = std::fs::File::open(folder.join(letter).with_extension("gz")).unwrap();
        let mut bytes = Vec::new();
        let mut packed = flate2::read::GzDecoder::new(file);
        packed.read_to_end(&mut bytes).unwrap();
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap());
        let slot = disks.attach(number(&bytes));
        for block in bytes[8..].chunks_exact(8 + 4096) {
            disks.overwrite(slot, number(block), &block[8..]);
        }
    }
    disks
}

fn open(disks: &Arc<SimulatedDisks>) -> FileSystem {
    let slots: Vec<DiskSlot> = (0..3)
        .map(DiskSlot)
        .filter(|slot| !disks.is_vanished(*slot))
        .collect();
    let opener = Opener {
        host: "here".to_owned(),
        origin: None,
        booted_s: None,
        boot: Uuid([9; 16]),
        process_id: 1,
        now_s: 1,
        // It was another host's, which was never heard of again.
        force: true,
        preferred_failure_group: None,
    };
    let group = Group::open(
        Arc::clone(disks) as Arc<dyn Disks>,
        &slots,
        &GroupName::new("golden").unwrap(),
        &opener,
    );
    FileSystem::open(Arc::new(group.unwrap())).unwrap()
}

/// The contents of `/listed`.
fn listed() -> Vec<u8> {
    let mut bytes = b"before ".repeat(149_797);
    bytes.truncate(1 << 20);
    let written = MISSED.map(|blocks| (blocks, b"missed "));
    for (blocks, word) in written.into_iter().chain([(DURING, b"during ")]) {
        let over = word.repeat(blocks.len() * 4096 / word.len());
        bytes[blocks.start * 4096..blocks.end * 4096].copy_from_slice(&over);
    }
    bytes
}

/// The first `length` bytes of numbered lines.
fn lines(length: usize, word: &str) -> Vec<u8> {
    let mut text: Vec<u8> = (0..length / 8)
        .flat_map(|number| format!("{word} {number:06}\n").into_bytes())
        .collect();
    text.truncate(length);
    text
}

fn contents(fs: &FileSystem, path: &str) -> Vec<u8> {
    let found = fs.resolve(OsStr::new(path)).unwrap();
    let handle = fs.open_file(found.id).unwrap();
    let mut bytes = vec![0xee; usize::try_from(found.size_bytes).unwrap()];
    assert_eq!(fs.read(&handle, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// Everything that the group was left with.
fn assert_as_it_was_left(fs: &FileSystem, left: &Left) {
    let mut mirrored = lines(120_000, "mirrored");
    if left.while_away {
        let over = b"overwritten while a disk was away\n".repeat(1000);
        mirrored[8192..8192 + over.len()].copy_from_slice(&over);
        assert!(contents(fs, "/late") == b"late ".repeat(2000), "/late");
    }
    let mut sparse = vec![0; 5 << 20];
    sparse[(5 << 20) - 3..].copy_from_slice(b"end");
    for (path, expected) in [
        ("/mirrored", mirrored),
        ("/external", lines(3000, "external")),
        ("/pg_wal/000000010000000000000001", lines(200_000, "log")),
        ("/directory/inner/small", lines(5000, "small")),
        ("/directory/second-name", lines(5000, "small")),
        ("/sparse", sparse),
    ] {
        assert!(contents(fs, path) == expected, "{path}");
    }
    if left.listed {
        assert!(contents(fs, "/listed") == listed(), "/listed");
    }
    let is_away = !fs.group().away_disks().is_empty();
    assert_singles(fs, left, is_away);
    let find = |path: &str| fs.resolve(OsStr::new(path)).unwrap();
    assert_eq!(
        find("/directory/inner/small").id,
        find("/directory/second-name").id
    );
    let link = fs.lookup(find("/directory").id, name("link")).unwrap();
    assert_eq!(fs.read_link(link.id).unwrap(), b"../mirrored");
    let mirrored: FileId = find("/mirrored").id;
    assert_eq!(
        fs.extended_attribute(mirrored, name("user.note")).unwrap(),
        b"golden"
    );
    assert_eq!(find("/mirrored").permissions & 0o777, 0o640);
    assert_eq!(fs.group().check().unwrap(), Vec::<String>::new());
    assert_eq!(fs.check().unwrap(), Vec::<String>::new());
}

/// The files of one copy are whole, or refuse to be read while their disk is away.
fn assert_singles(fs: &FileSystem, left: &Left, is_away: bool) {
    for single in 1..=left.singles {
        let found = fs
            .resolve(OsStr::new(&format!("/single/{single:02}")))
            .unwrap();
        let handle = fs.open_file(found.id).unwrap();
        let mut bytes = vec![0xee; usize::try_from(found.size_bytes).unwrap()];
        let read = fs.read(&handle, 0, &mut bytes);
        if is_away && left.singles_away.contains(&single) {
            read.unwrap_err();
        } else {
            assert_eq!(read.unwrap(), bytes.len());
            let mut expected = lines(4000, &format!("single{single:02}"));
            expected.resize(4096, 0);
            assert!(bytes == expected, "single {single}");
        }
    }
}

#[test]
fn a_group_of_every_former_format_opens_and_reads_as_it_was_left() {
    for left in &LEFT {
        let disks = disks_of(left.commit);
        let fs = open(&disks);
        assert_eq!(fs.group().away_disks(), Vec::from_iter(left.away));
        assert_as_it_was_left(&fs, left);
        if let Some(away) = left.away {
            let returned = fs.group().return_disks(&[DiskSlot(away.0)]);
            assert_eq!(returned.unwrap(), [away]);
            assert_as_it_was_left(&fs, left);
        }
        for now_ms in (0..60_000).step_by(6000) {
            while fs.step(now_ms).unwrap() {}
            while fs.group().work(now_ms).unwrap().did_something {}
        }
        assert_as_it_was_left(&fs, left);
        fs.close().unwrap();
        drop(fs);
        let fs = open(&disks);
        assert!(fs.group().away_disks().is_empty());
        assert_as_it_was_left(&fs, left);
    }
}

/// Were the row not there, or its blocks not read, disk 0 would give what it has of the blocks that
/// it missed; were all of the region stale there, it would give none of the others.
#[test]
fn an_open_row_that_a_former_program_left_lists_what_a_disk_lacks_and_no_more() {
    let disks = disks_of(WITH_LISTED_REGIONS.commit);
    let fs = open(&disks);
    disks.vanish(DiskSlot(2));
    let found = fs.resolve(OsStr::new("/listed")).unwrap();
    let handle = fs.open_file(found.id).unwrap();
    let expected = listed();
    // One copy of these extents was on the disk that is gone, and the other is on disk 0.
    let (mut read_count, mut lacking_count) = (0, 0);
    for block in (4..8).chain(128..256) {
        let mut bytes = vec![0xee; 4096];
        let read = fs.read(&handle, block as u64 * 4096, &mut bytes);
        if MISSED.iter().any(|missed| missed.contains(&block)) {
            read.unwrap_err();
            lacking_count += 1;
        } else {
            assert_eq!(read.unwrap(), 4096, "block {block}");
            assert!(bytes == expected[block * 4096..][..4096], "block {block}");
            read_count += 1;
        }
    }
    assert_eq!((read_count, lacking_count), (115, 17));
}
