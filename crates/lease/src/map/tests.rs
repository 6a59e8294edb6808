//! One thread, which is the owner and a client.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use spindle_base::{DiskNumber, FileId};
use spindle_device::SeededRandom;
use spindle_device::words::SharedMemory;
use spindle_format::ExtentCopy;

use super::layout::{BUCKET_ROWS, ENTRIES_START, Place, RowState, WORDS_COUNT, row_of};
use super::{
    Allowed, CopyPlace, Disks, Entry, EntryError, FileKey, NoRoom, Piece, Reason, SeenMap,
    SharedMap,
};
use crate::{Blocks, Client, Leases, Patience};

const DISKS_COUNT: u16 = 5;
const DISK_BLOCKS: u64 = 1 << 20;

const fn key(file: u64) -> FileKey {
    FileKey {
        file: FileId(file),
        incarnation: 0,
    }
}

const fn piece(file: FileKey, index: u32, inside_blocks: u64, blocks: u64) -> Piece {
    Piece {
        file,
        index,
        inside_blocks,
        blocks,
    }
}

fn copy(disk: u16, start_block: u64, class: u8) -> ExtentCopy {
    ExtentCopy::new(DiskNumber(disk), start_block, class)
}

/// Two copies of 16 blocks, all of which hold data.
fn entry(start_block: u64) -> Entry {
    let copies = [copy(1, start_block, 4), copy(3, start_block + 100, 4)];
    Entry::new(&copies, 16, Allowed::ReadAndWrite).unwrap()
}

/// An owner, and a client of it.
struct Both {
    leases: Leases,
    client: Client,
    map: SharedMap,
    seen: SeenMap,
    disks: Disks,
}

impl Both {
    fn new() -> Self {
        let leases = Leases::create().unwrap();
        let client = leases.let_in(100).unwrap();
        let map = SharedMap::create().unwrap();
        let seen = SeenMap::new(map.memory().read_only().unwrap()).unwrap();
        let disks = disks(&map);
        Self {
            leases,
            client,
            map,
            seen,
            disks,
        }
    }

    /// What a client finds that would read, and one that would write.
    fn find(&self, piece: &Piece) -> [Result<Vec<CopyPlace>, Reason>; 2] {
        let mut operation = self.leases.operation(self.client, 0);
        let blocks = Blocks::new(piece.file.file, 0, 1);
        let found = self.seen.places_to_read(&self.disks, piece);
        let read = found.map(|places| places.copies().to_vec());
        let writes = operation.announce_write(blocks, |_| Patience::GiveUp);
        let writes = writes.unwrap();
        let found = self.seen.places_to_write(&writes, &self.disks, piece);
        let written = found.map(|places| places.copies().to_vec());
        writes.done();
        [read, written]
    }

    fn read(&self, piece: &Piece) -> Result<Vec<CopyPlace>, Reason> {
        self.find(piece)[0].clone()
    }
}

fn disks(map: &SharedMap) -> Disks {
    Disks {
        standing: map.standing().number(),
        blocks: vec![DISK_BLOCKS; usize::from(DISKS_COUNT)],
    }
}

fn at(disk: u16, block: u64) -> CopyPlace {
    CopyPlace {
        disk: DiskNumber(disk),
        offset_bytes: block * 4096,
    }
}

#[test]
fn what_the_owner_says_of_an_extent_a_client_finds_and_of_no_other() {
    let mut both = Both::new();
    both.map.set(key(7), 130, &entry(5000)).unwrap();
    let places = Ok(vec![at(1, 5003), at(3, 5103)]);
    let found = both.find(&piece(key(7), 130, 3, 13));
    assert_eq!(found, [places.clone(), places]);
    assert_eq!(
        both.read(&piece(key(7), 129, 3, 13)),
        Err(Reason::NotAllowed)
    );
    assert_eq!(both.read(&piece(key(7), 2, 0, 1)), Err(Reason::NotInMap));
    assert_eq!(both.read(&piece(key(8), 130, 0, 1)), Err(Reason::NotInMap));
    let other = FileKey {
        incarnation: 1,
        ..key(7)
    };
    assert_eq!(both.read(&piece(other, 130, 0, 1)), Err(Reason::NotInMap));
}

#[test]
fn whatever_is_not_plain_goes_through_the_mount() {
    let mut both = Both::new();
    let whole = piece(key(7), 0, 0, 8);
    let good = [copy(1, 5000, 4), copy(3, 5100, 4)];
    let read = Ok(vec![at(1, 5000), at(3, 5100)]);
    for (allowed, reading, writing) in [
        (Allowed::ReadAndWrite, read.clone(), read.clone()),
        (Allowed::Read, read.clone(), Err(Reason::ReadOnly)),
        (
            Allowed::WaitsInMemory,
            Err(Reason::WaitsInMemory),
            Err(Reason::WaitsInMemory),
        ),
        (
            Allowed::Nothing,
            Err(Reason::NotAllowed),
            Err(Reason::NotAllowed),
        ),
    ] {
        let entry = Entry::new(&good, 8, allowed).unwrap();
        both.map.set(key(7), 0, &entry).unwrap();
        assert_eq!(both.find(&whole), [reading, writing], "{allowed:?}");
        let same = Entry::new(&good, 8, Allowed::Read).unwrap().with(allowed);
        assert_eq!(same, entry);
    }
    // Beyond what holds data, by one block, and by a number that has no sum.
    both.map.set(key(7), 0, &entry(5000)).unwrap();
    for (inside_blocks, blocks) in [(0, 17), (16, 1), (u64::MAX, 1), (1, u64::MAX)] {
        let found = both.read(&piece(key(7), 0, inside_blocks, blocks));
        assert_eq!(found, Err(Reason::BeyondLimit));
    }
    // One copy is stale.
    let stale = Entry::new(&good[1..], 16, Allowed::Read).unwrap();
    both.map.set(key(7), 0, &stale).unwrap();
    let left = Ok(vec![at(3, 5100)]);
    assert_eq!(both.find(&whole), [left, Err(Reason::ReadOnly)]);
    // The file is cut.
    both.map.set(key(7), 0, &Entry::NOTHING).unwrap();
    assert_eq!(both.read(&whole), Err(Reason::NotAllowed));
}

#[test]
fn an_entry_that_cannot_be_is_not_made() {
    let new = |copies: &[ExtentCopy], limit_blocks| {
        Entry::new(copies, limit_blocks, Allowed::Read).map(|entry| entry.limit_blocks())
    };
    let good = copy(1, 5000, 4);
    assert_eq!(new(&[good, copy(2, 1, 4)], 16), Ok(16));
    for (copies, limit_blocks, why) in [
        (&[][..], 0, EntryError::CopiesCount(0)),
        (&[good; 4], 0, EntryError::CopiesCount(4)),
        (&[good, ExtentCopy::MISSING], 0, EntryError::Absent),
        (&[good, ExtentCopy::HOLE, good], 0, EntryError::Absent),
        (&[good, copy(2, 1, 5)], 0, EntryError::Length),
        (&[good], 17, EntryError::Length),
        (&[good, copy(1, 6000, 4)], 0, EntryError::SameDisk),
    ] {
        assert_eq!(new(copies, limit_blocks), Err(why), "{copies:?}");
    }
}

#[test]
fn a_client_goes_to_no_disk_that_it_does_not_know_and_not_beyond_its_end() {
    let mut both = Both::new();
    let whole = piece(key(7), 0, 0, 1);
    let unknown = Err(Reason::UnknownPlace);
    // Of a disk that it cannot reach it needs no copy to read, and to write it needs each.
    let reached = || [Ok(vec![at(1, 5000)]), unknown.clone()];
    for (disk, start_block, expected) in [
        (
            4,
            DISK_BLOCKS - 16,
            [1, 2].map(|_| Ok(vec![at(1, 5000), at(4, DISK_BLOCKS - 16)])),
        ),
        (4, DISK_BLOCKS - 15, [unknown.clone(), unknown.clone()]),
        (4, (1 << 40) - 1, [unknown.clone(), unknown.clone()]),
        (5, 1, reached()),
        (u16::MAX, 1, reached()),
    ] {
        let copies = [copy(1, 5000, 4), copy(disk, start_block, 4)];
        let entry = Entry::new(&copies, 16, Allowed::ReadAndWrite).unwrap();
        both.map.set(key(7), 0, &entry).unwrap();
        let found = both.find(&whole);
        assert_eq!(found, expected, "block {start_block} of disk {disk}");
    }
    let alone = Entry::new(&[copy(5, 1, 4)], 16, Allowed::Read).unwrap();
    both.map.set(key(7), 0, &alone).unwrap();
    assert_eq!(both.read(&whole), unknown);
}

#[test]
fn from_an_outage_on_a_client_asks_no_disk_until_it_is_told() {
    let mut both = Both::new();
    both.map.set(key(7), 0, &entry(5000)).unwrap();
    let whole = piece(key(7), 0, 0, 16);
    assert!(both.seen.is_current(&both.disks) && both.read(&whole).is_ok());
    both.map.standing().raise();
    assert!(!both.seen.is_current(&both.disks));
    assert_eq!(both.read(&whole), Err(Reason::Standing));
    both.disks = disks(&both.map);
    assert!(both.seen.is_current(&both.disks) && both.read(&whole).is_ok());
}

#[test]
fn a_file_that_is_withdrawn_is_not_found_and_its_memory_is_given_back() {
    let mut both = Both::new();
    let memory = both.map.memory().descriptor().try_clone_to_owned().unwrap();
    let length_bytes = || rustix::fs::fstat(&memory).unwrap().st_blocks * 512;
    let empty_bytes = length_bytes();
    let indices = [0, 1, 127, 128, 100_000, u32::MAX];
    let other = FileKey {
        incarnation: 3,
        ..key(7)
    };
    both.map.set(other, 9, &entry(4)).unwrap();
    both.map.set(key(8), 9, &entry(4)).unwrap();
    for index in indices {
        both.map.set(key(7), index, &entry(5000)).unwrap();
        assert!(both.read(&piece(key(7), index, 0, 1)).is_ok());
    }
    assert_eq!(length_bytes(), empty_bytes + 6 * 4096);
    both.map.withdraw(FileId(7));
    assert_eq!(length_bytes(), empty_bytes + 4096);
    for index in indices {
        let found = both.read(&piece(key(7), index, 0, 1));
        assert_eq!(found, Err(Reason::NotInMap));
    }
    let found = both.read(&piece(other, 9, 0, 1));
    assert_eq!(found, Err(Reason::NotInMap));
    assert!(both.read(&piece(key(8), 9, 0, 1)).is_ok());
    // It says nothing of what was there before.
    both.map.set(key(7), 1, &entry(6000)).unwrap();
    let found = both.read(&piece(key(7), 0, 0, 1));
    assert_eq!(found, Err(Reason::NotAllowed));
}

/// Files whose first rows share their places.
fn files_that_meet(count: usize) -> Vec<FileKey> {
    let places = |file| Place::all_of(file, 0).collect::<Vec<_>>();
    let meet = |file: &FileKey| places(*file) == places(key(1));
    (1..).map(key).filter(meet).take(count).collect()
}

/// What the owner says, whether what was read before counts behind it, and how it is said.
type Change = (&'static str, bool, fn(&mut SharedMap, Entry));

#[test]
fn what_is_read_counts_until_the_owner_says_less_or_other_copies() {
    let one = [copy(0, 100, 3), copy(1, 100, 3)];
    let entry =
        |copies: &[ExtentCopy], blocks, allowed| Entry::new(copies, blocks, allowed).unwrap();
    let before = entry(&one, 4, Allowed::Read);
    let changes: [Change; 9] = [
        ("nothing", true, |_, _| {}),
        ("the same", true, |map, before| {
            map.set(key(7), 0, &before).unwrap();
        }),
        ("leave to write", true, |map, before| {
            let more = before.with(Allowed::ReadAndWrite);
            map.set(key(7), 0, &more).unwrap();
        }),
        ("another extent", true, |map, before| {
            map.set(key(7), 1, &before).unwrap();
            map.close(key(7), 1);
            map.close(key(8), 0);
        }),
        ("closed, and the same again", false, |map, before| {
            map.close(key(7), 0);
            map.set(key(7), 0, &before).unwrap();
        }),
        (
            "a write in memory, and the same again",
            false,
            |map, before| {
                map.set(key(7), 0, &before.with(Allowed::WaitsInMemory))
                    .unwrap();
                map.set(key(7), 0, &before).unwrap();
            },
        ),
        ("withdrawn, and the same again", false, |map, before| {
            map.withdraw(FileId(7));
            map.set(key(7), 0, &before).unwrap();
        }),
        ("forgotten, and the same again", false, |map, before| {
            map.forget_all();
            map.set(key(7), 0, &before).unwrap();
        }),
        ("an outage", false, |map, _| map.standing().raise()),
    ];
    for (what, stands, change) in changes {
        let mut both = Both::new();
        both.map.set(key(7), 0, &before).unwrap();
        let places = (both.seen).places_to_read(&both.disks, &piece(key(7), 0, 0, 4));
        let places = places.unwrap();
        assert!(both.seen.stands(&places));
        change(&mut both.map, before);
        assert_eq!(both.seen.stands(&places), stands, "{what}");
    }
    let others = [
        ("fewer blocks", entry(&one, 3, Allowed::Read), false),
        ("more blocks", entry(&one, 8, Allowed::Read), true),
        ("a copy less", entry(&one[..1], 4, Allowed::Read), false),
        (
            "a copy elsewhere",
            entry(&[one[0], copy(2, 100, 3)], 4, Allowed::Read),
            false,
        ),
    ];
    for (what, other, stands) in others {
        let mut both = Both::new();
        both.map.set(key(7), 0, &before).unwrap();
        let places = (both.seen).places_to_read(&both.disks, &piece(key(7), 0, 0, 3));
        let places = places.unwrap();
        both.map.set(key(7), 0, &other).unwrap();
        assert_eq!(both.seen.stands(&places), stands, "{what}");
    }
}

#[test]
fn a_row_that_finds_no_place_goes_through_the_mount_until_there_is_one() {
    let mut both = Both::new();
    let files = files_that_meet(BUCKET_ROWS + 1);
    let (last, first) = files.split_last().unwrap();
    for file in first {
        both.map.set(*file, 0, &entry(file.file.0)).unwrap();
    }
    assert_eq!(both.map.set(*last, 0, &entry(5000)), Err(NoRoom));
    assert_eq!(both.map.set(*last, 0, &Entry::NOTHING), Ok(()));
    assert_eq!(both.read(&piece(*last, 0, 0, 1)), Err(Reason::NotInMap));
    for file in first {
        let found = both.read(&piece(*file, 0, 0, 1)).unwrap();
        assert_eq!(found[0], at(1, file.file.0));
    }
    both.map.withdraw(first[3].file);
    both.map.set(*last, 0, &entry(5000)).unwrap();
    assert!(both.read(&piece(*last, 0, 0, 1)).is_ok());
    assert_eq!(both.read(&piece(first[3], 0, 0, 1)), Err(Reason::NotInMap));
}

#[test]
fn a_new_owner_forgets_what_the_former_one_said_and_goes_on_from_there() {
    let mut both = Both::new();
    both.map.set(key(7), 0, &entry(5000)).unwrap();
    let memory = both.map.memory().descriptor().try_clone_to_owned().unwrap();
    let mut next = SharedMap::new(SharedMemory::from_descriptor(memory).unwrap()).unwrap();
    next.reset();
    let whole = piece(key(7), 0, 0, 1);
    assert_eq!(both.read(&whole), Err(Reason::Standing));
    both.disks = disks(&next);
    assert_eq!(both.read(&whole), Err(Reason::NotInMap));
    next.set(key(7), 0, &entry(6000)).unwrap();
    assert_eq!(both.read(&whole).unwrap()[0], at(1, 6000));
}

#[test]
fn memory_of_something_else_is_no_map() {
    let leases = Leases::create().unwrap();
    let short = leases.memory().read_only().unwrap();
    let why = SeenMap::new(short).unwrap_err();
    assert!(why.contains("words"), "{why}");
    let new = || SharedMemory::create("other", SharedMap::LENGTH_BYTES).unwrap();
    let why = SeenMap::new(new().read_only().unwrap()).unwrap_err();
    assert!(why.contains("version 1"), "{why}");
    let other = new();
    other.words()[0].store(5, Ordering::Relaxed);
    assert!(SharedMap::new(other).is_err());
    let short = SharedMemory::create("short", 4096).unwrap();
    assert!(SharedMap::new(short).unwrap_err().contains("512 words"));
}

#[test]
#[should_panic(expected = "the announced file")]
fn nobody_looks_for_another_file_than_is_announced() {
    let both = Both::new();
    let mut operation = both.leases.operation(both.client, 0);
    let blocks = Blocks::new(FileId(8), 0, 1);
    let announced = operation.announce_write(blocks, |_| Patience::GiveUp);
    let announced = announced.unwrap();
    let found = (both.seen).places_to_write(&announced, &both.disks, &piece(key(7), 0, 0, 1));
    drop(found);
}

#[test]
fn the_count_of_a_places_rows_comes_back_to_zero_without_a_panic() {
    let last = RowState(u64::MAX);
    assert!(last.is_there() && !last.gone().is_there());
    assert_eq!(last.next(), RowState(1));
}

/// What the owner has said: the model.
type Said = BTreeMap<(FileKey, u32), Entry>;

/// Few files, some of which share places, and few extents of each.
fn some_extent(random: &mut SeededRandom, files: &[FileKey]) -> (FileKey, u32) {
    let index = [0, 1, 127, 128, 300][random.index(5)];
    (files[random.index(files.len())], index)
}

fn some_entry(random: &mut SeededRandom) -> Entry {
    let class = u8::try_from(random.below(8)).unwrap();
    let first = random.below(DISKS_COUNT.into());
    let copies_count = 1 + random.below(3);
    let copies: Vec<ExtentCopy> = (first..first + copies_count)
        .map(|disk| {
            let disk = u16::try_from(disk % u64::from(DISKS_COUNT)).unwrap();
            copy(disk, 1 + random.below(DISK_BLOCKS - 128), class)
        })
        .collect();
    let limit_blocks = u32::try_from(random.below((1 << class) + 1)).unwrap();
    let allowed = [
        Allowed::Nothing,
        Allowed::WaitsInMemory,
        Allowed::Read,
        Allowed::ReadAndWrite,
    ];
    let allowed = allowed[random.index(4)];
    Entry::new(&copies, limit_blocks, allowed).unwrap()
}

/// What the model answers a reader and a writer.
fn expected(
    said: &Said,
    rows: &[(FileKey, u32)],
    piece: &Piece,
) -> [Result<Vec<CopyPlace>, Reason>; 2] {
    let both = |reason| [Err(reason), Err(reason)];
    let row = row_of(piece.index).0;
    if !rows.contains(&(piece.file, row)) {
        return both(Reason::NotInMap);
    }
    let Some(entry) = said.get(&(piece.file, piece.index)) else {
        return both(Reason::NotAllowed);
    };
    let is_inside = piece.inside_blocks + piece.blocks <= u64::from(entry.limit_blocks());
    let places = entry
        .copies()
        .map(|copy| at(copy.disk().0, copy.start_block() + piece.inside_blocks));
    let read = if is_inside {
        Ok(places.collect())
    } else {
        Err(Reason::BeyondLimit)
    };
    match entry.allowed() {
        Allowed::Nothing => both(Reason::NotAllowed),
        Allowed::WaitsInMemory => both(Reason::WaitsInMemory),
        Allowed::Read => [read, Err(Reason::ReadOnly)],
        Allowed::ReadAndWrite => [read.clone(), read],
    }
}

/// Some steps of an owner, with a client that looks after each.
fn run(seed: u64, steps_count: u32) -> (Both, Vec<FileKey>, usize) {
    let mut random = SeededRandom::new(seed);
    let mut both = Both::new();
    let mut files = files_that_meet(BUCKET_ROWS + 2);
    files.extend([5, 6].map(|incarnation| FileKey {
        incarnation,
        ..files[0]
    }));
    let (mut said, mut rows) = (Said::new(), Vec::new());
    let mut direct_count = 0;
    for _ in 0..steps_count {
        let (file, index) = some_extent(&mut random, &files);
        let row = (file, row_of(index).0);
        match random.below(40) {
            0 => {
                both.map.withdraw(file.file);
                said.retain(|(other, _), _| other.file != file.file);
                rows.retain(|(other, _): &(FileKey, u32)| other.file != file.file);
            }
            1 if random.chance(1, 8) => {
                both.map.reset();
                both.disks = disks(&both.map);
                said.clear();
                rows.clear();
            }
            2..6 => {
                let done = both.map.set(file, index, &Entry::NOTHING);
                assert_eq!(done, Ok(()), "to forget needs no room");
                said.remove(&(file, index));
            }
            _ => {
                let entry = match said.get(&(file, index)) {
                    Some(entry) if random.chance(1, 2) => entry.with(Allowed::ReadAndWrite),
                    _ => some_entry(&mut random),
                };
                let done = both.map.set(file, index, &entry);
                let meets = |other: &&(FileKey, u32)| {
                    Place::all_of(other.0, other.1).eq(Place::all_of(row.0, row.1))
                };
                let is_full = rows.iter().filter(meets).count() == BUCKET_ROWS;
                let has_room = rows.contains(&row) || !is_full;
                assert_eq!(done.is_ok(), has_room, "seed {seed}");
                if has_room {
                    said.insert((file, index), entry);
                    rows.push(row);
                    rows.sort_unstable();
                    rows.dedup();
                }
            }
        }
        let (file, index) = some_extent(&mut random, &files);
        let piece = piece(file, index, random.below(16), 1 + random.below(16));
        let found = both.find(&piece);
        assert_eq!(found, expected(&said, &rows, &piece), "seed {seed}");
        direct_count += found.iter().filter(|found| found.is_ok()).count();
    }
    (both, files, direct_count)
}

#[test]
fn a_client_finds_what_a_plain_model_of_the_map_says() {
    let direct_count: usize = (0..40).map(|seed| run(seed, 1000).2).sum();
    assert!(direct_count > 5000, "{direct_count}");
}

#[test]
fn bits_that_are_flipped_anywhere_are_no_panic_and_lead_nowhere_else() {
    let (mut found_count, mut damaged_count) = (0, 0);
    for seed in 0..20 {
        let (mut both, files, _) = run(seed, 300);
        let mut random = SeededRandom::new(1000 + seed);
        let memory = both.map.memory().descriptor().try_clone_to_owned().unwrap();
        let memory = SharedMemory::from_descriptor(memory).unwrap();
        let words = memory.words();
        // Where rows are: elsewhere damage does not show.
        let rows = files.iter().flat_map(|file| (0..3).map(|row| (*file, row)));
        let places: Vec<Place> = rows
            .flat_map(|(file, row)| Place::all_of(file, row))
            .collect();
        for round in 0..3000 {
            let place = places[random.index(places.len())];
            let word = match random.below(8) {
                0 => place.head()[random.index(4)],
                1 => ENTRIES_START + random.index(WORDS_COUNT - ENTRIES_START),
                _ => place.entry([0, 1, 44, 127][random.index(4)]).0 + random.index(4),
            };
            let wild = match random.below(4) {
                0 => random.next_u64(),
                _ => words[word].load(Ordering::Relaxed) ^ 1 << random.below(64),
            };
            words[word].store(wild, Ordering::Relaxed);
            let (file, index) = some_extent(&mut random, &files);
            let piece = piece(file, index, random.below(16), 1 + random.below(16));
            for found in both.find(&piece) {
                damaged_count += usize::from(found == Err(Reason::Damaged));
                for place in found.into_iter().flatten() {
                    found_count += 1;
                    let end = place.offset_bytes + piece.blocks * 4096;
                    let is_inside = place.disk.0 < DISKS_COUNT && end <= DISK_BLOCKS * 4096;
                    assert!(
                        is_inside && place.offset_bytes >= 4096,
                        "{place:?}, seed {seed}"
                    );
                }
            }
            if round % 10 == 0 {
                let _ = both.map.set(file, index, &some_entry(&mut random));
            }
            if round % 500 == 0 {
                both.map.withdraw(file.file);
            }
        }
        // A new owner makes all of it whole.
        both.map.reset();
        both.disks = disks(&both.map);
        for file in &files[..BUCKET_ROWS] {
            let whole = piece(*file, 0, 0, 16);
            assert_eq!(both.read(&whole), Err(Reason::NotInMap));
            both.map.set(*file, 0, &entry(5000)).unwrap();
            assert_eq!(both.read(&whole), Ok(vec![at(1, 5000), at(3, 5100)]));
        }
    }
    assert!(
        found_count > 1000 && damaged_count > 1000,
        "{found_count}, {damaged_count}"
    );
}
