//! Direct clients, which read the disks by the map that the group shows: what counts of it is what the file
//! holds, whatever the group does meanwhile.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use spindle_base::{AuSize, DiskNumber, FileId, Redundancy, Striping};
use spindle_device::{AlignedBuffer, DiskSlot, Disks, Request, SeededRandom, Work};
use spindle_extent::schedule::Schedule;
use spindle_group::{Attended, DiskChanges, File, Group, KeptJournal, ToldDisks};
use spindle_lease::map::{self, FileKey, Piece, Reason, SeenMap, SharedMap};

use crate::scene::{
    FINE, MIB, NORMAL, Scene, assert_sound, create, opener, pattern, read, remove, resync, spare,
};

const BLOCK_BYTES: u64 = 4096;

/// Opens the group as the daemon of a mount does, with the map that clients read.
fn open(scene: &Scene) -> (Group, SeenMap) {
    let client_map = SharedMap::create().unwrap();
    let seen = SeenMap::new(client_map.memory().read_only().unwrap()).unwrap();
    let slots = (0..u16::try_from(scene.disks.disk_count()).unwrap()).map(DiskSlot);
    let group = Group::open_attended(
        Arc::clone(&scene.disks) as Arc<dyn Disks>,
        &slots.collect::<Vec<_>>(),
        &scene.name,
        &opener(),
        &|_| false,
        Attended {
            journal: Some(Arc::new(KeptJournal::create().unwrap())),
            client_map: Some(client_map),
            ..Attended::default()
        },
    );
    let group = group.unwrap();
    group.begin_journal().unwrap();
    (group, seen)
}

/// A client: it has the map, the disks, and what it was told of them.
struct Client<'a> {
    scene: &'a Scene,
    seen: &'a SeenMap,
    told: ToldDisks,
    /// As which each disk was there then: a descriptor of one that went is of no use when it is back.
    appearances: Vec<Option<u64>>,
    disks: map::Disks,
}

/// Why nothing was read of the disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Detour {
    Map(Reason),
    Disk,
    Changed,
}

impl<'a> Client<'a> {
    fn new(scene: &'a Scene, seen: &'a SeenMap, group: &Group) -> Self {
        let told = group.tell_clients().unwrap();
        let mut client = Self {
            scene,
            seen,
            told: told.clone(),
            appearances: Vec::new(),
            disks: map::Disks::default(),
        };
        client.learn(told);
        client
    }

    fn learn(&mut self, told: ToldDisks) {
        let last = told.disks.iter().map(|disk| disk.number.0).max().unwrap();
        let mut blocks = vec![0; usize::from(last) + 1];
        for disk in &told.disks {
            blocks[usize::from(disk.number.0)] = disk.total_bytes / BLOCK_BYTES;
        }
        self.disks = map::Disks {
            standing: told.standing,
            blocks,
        };
        let slots = told.disks.iter().map(|disk| disk.slot);
        self.appearances = slots
            .map(|slot| self.scene.disks.appearance(slot))
            .collect();
        self.told = told;
    }

    /// Block `block` of the file by copy `which`, modulo how many there are.
    fn read(
        &self,
        (key, schedule): (FileKey, Schedule),
        block: u64,
        which: usize,
    ) -> Result<Vec<u8>, Detour> {
        let place = schedule.locate(block).unwrap();
        let piece = Piece {
            file: key,
            index: place.index,
            inside_blocks: place.inside_blocks,
            blocks: 1,
        };
        let places = self
            .seen
            .places_to_read(&self.disks, &piece)
            .map_err(Detour::Map)?;
        let copy = places.copies()[which % places.copies().len()];
        let disk = (self.told.disks.iter()).position(|disk| disk.number == copy.disk);
        let disk = disk.expect("the map names disks that it was told of");
        let slot = self.told.disks[disk].slot;
        std::thread::yield_now();
        let mut buffer = AlignedBuffer::zeroed(4096);
        let mut batch = [Request::new(
            slot,
            copy.offset_bytes,
            Work::Read(&mut buffer),
        )];
        self.scene.disks.run(&mut batch);
        let [Request { result, .. }] = batch;
        if !self.seen.stands(&places) {
            return Err(Detour::Changed);
        }
        if result.is_err() || self.scene.disks.appearance(slot) != self.appearances[disk] {
            return Err(Detour::Disk);
        }
        Ok(buffer.to_vec())
    }
}

fn schedule_of(striping: Striping) -> Schedule {
    Schedule::new(striping, AuSize::DEFAULT)
}

/// A shown file, of so many blocks.
fn shown(
    group: &Group,
    id: u64,
    striping: Striping,
    blocks: u64,
) -> (Arc<File>, (FileKey, Schedule)) {
    let layout = if striping == Striping::Fine {
        FINE
    } else {
        NORMAL
    };
    let file = create(group, id, layout);
    let data = pattern(id, usize::try_from(blocks * BLOCK_BYTES).unwrap());
    group.write(&file, 0, &data).unwrap();
    group.sync_file(&file, true).unwrap();
    let key = group
        .show_file(&file, &|| Some(blocks * BLOCK_BYTES))
        .unwrap();
    (file, (key, schedule_of(striping)))
}

#[test]
fn a_client_reads_what_lies_plainly_by_either_copy() {
    for striping in [Striping::Coarse, Striping::Fine] {
        let scene = Scene::mirrored(1);
        let (group, seen) = open(&scene);
        let blocks = 256 * 9 + 3;
        let (_, file) = shown(&group, 10, striping, blocks);
        let data = pattern(10, usize::try_from(blocks * BLOCK_BYTES).unwrap());
        let client = Client::new(&scene, &seen, &group);
        for block in 0..blocks {
            let at = usize::try_from(block * BLOCK_BYTES).unwrap();
            for which in 0..2 {
                assert_eq!(
                    client.read(file, block, which).unwrap(),
                    data[at..at + 4096]
                );
            }
        }
        let beyond = Err(Detour::Map(Reason::BeyondLimit));
        assert_eq!(client.read(file, blocks, 0), beyond, "behind the end");
        assert_sound(&group);
    }
}

/// What the group does, and whether block 300 and block 600 are shown behind it, and block 300 when the file is
/// shown again.
type Act = (&'static str, [bool; 2], bool, fn(&Group, &Arc<File>));

#[test]
fn whatever_changes_a_file_takes_what_it_changes_from_the_clients() {
    let length = 1024 * BLOCK_BYTES;
    let acts: [Act; 8] = [
        ("nothing", [true, true], true, |_, _| {}),
        ("a write", [false, true], true, |group, file| {
            group.write(file, 300 * BLOCK_BYTES, &[1; 4096]).unwrap();
        }),
        ("a write of a part", [false, true], true, |group, file| {
            group.write(file, 300 * BLOCK_BYTES + 7, &[1; 9]).unwrap();
        }),
        ("a hole", [false, false], false, |group, file| {
            group.punch(file, 256 * BLOCK_BYTES, MIB).unwrap();
        }),
        ("a cut", [false, false], false, |group, file| {
            group.truncate(file, 300 * BLOCK_BYTES).unwrap();
        }),
        ("withheld", [false, true], true, |group, file| {
            drop(group.withhold(file, 300, 301));
        }),
        ("hidden", [false, false], true, |group, file| {
            group.hide_file(file);
        }),
        ("a sync", [true, true], true, |group, file| {
            group.sync_file(file, true).unwrap();
        }),
    ];
    for (what, are_shown, is_shown_again, act) in acts {
        let scene = Scene::mirrored(1);
        let (group, seen) = open(&scene);
        let (handle, file) = shown(&group, 10, Striping::Coarse, 1024);
        let client = Client::new(&scene, &seen, &group);
        act(&group, &handle);
        let found = [300, 600].map(|block| client.read(file, block, 0).is_ok());
        assert_eq!(found, are_shown, "{what}");
        group.show_file(&handle, &|| Some(length)).unwrap();
        let found = client.read(file, 300, 1);
        assert_eq!(found.is_ok(), is_shown_again, "{what}: {found:?}");
        if let Ok(bytes) = found {
            assert_eq!(
                bytes,
                read(&group, &handle, 300 * BLOCK_BYTES, 4096),
                "{what}"
            );
        }
    }
}

#[test]
fn while_somebody_has_blocks_alone_or_memory_has_some_nothing_is_said() {
    let scene = Scene::mirrored(1);
    let (group, seen) = open(&scene);
    let (handle, file) = shown(&group, 10, Striping::Coarse, 1024);
    let client = Client::new(&scene, &seen, &group);
    let withheld = group.withhold(&handle, 300, 301);
    let end = || Some(1024 * BLOCK_BYTES);
    group.show_file(&handle, &end).unwrap();
    assert_eq!(group.files_to_show(), [FileId(10)]);
    assert_eq!(
        client.read(file, 300, 0),
        Err(Detour::Map(Reason::NotAllowed))
    );
    drop(withheld);
    // A write that came, and is in memory by the time that the file is asked for its size.
    group.show_file(&handle, &|| None).unwrap();
    assert_eq!(
        client.read(file, 300, 0),
        Err(Detour::Map(Reason::NotAllowed))
    );
    // One that comes between that question and the saying.
    let has_come = Cell::new(false);
    let size_bytes = || {
        if !has_come.replace(true) {
            drop(group.withhold(&handle, 300, 301));
        }
        end()
    };
    group.show_file(&handle, &size_bytes).unwrap();
    assert_eq!(
        client.read(file, 300, 0),
        Err(Detour::Map(Reason::NotAllowed))
    );
    group.show_file(&handle, &end).unwrap();
    assert!(client.read(file, 300, 0).is_ok());
    assert!(group.files_to_show().is_empty());
}

#[test]
fn a_change_that_was_under_way_when_the_file_was_marked_is_not_overlooked() {
    let scene = Scene::mirrored(1);
    let (group, seen) = open(&scene);
    let (handle, file) = shown(&group, 10, Striping::Coarse, 1024);
    let client = Client::new(&scene, &seen, &group);
    // It had taken block 300 before, and is done by the time that the file's size is asked for: what it
    // left in memory it left behind that question.
    let withheld = Cell::new(Some(group.withhold(&handle, 300, 301)));
    let size_bytes = || {
        drop(withheld.take());
        Some(1024 * BLOCK_BYTES)
    };
    group.show_file(&handle, &size_bytes).unwrap();
    let closed = Err(Detour::Map(Reason::NotAllowed));
    assert_eq!(client.read(file, 300, 0), closed);
}

#[test]
fn two_who_show_a_file_at_once_leave_nothing_out() {
    let scene = Scene::mirrored(1);
    let (group, seen) = open(&scene);
    let (handle, file) = shown(&group, 10, Striping::Coarse, 1024);
    let client = Client::new(&scene, &seen, &group);
    drop(group.withhold(&handle, 300, 301));
    let end = || Some(1024 * BLOCK_BYTES);
    let beside = || {
        group.show_file(&handle, &end).unwrap();
        end()
    };
    group.show_file(&handle, &beside).unwrap();
    for file in group.files_to_show() {
        assert_eq!(file, FileId(10));
        group.show_file(&handle, &end).unwrap();
    }
    assert!(client.read(file, 300, 0).is_ok());
}

#[test]
fn of_a_group_that_is_closed_or_has_stopped_nothing_is_shown() {
    for closes in [true, false] {
        let scene = Scene::mirrored(1);
        let (group, seen) = open(&scene);
        let (handle, file) = shown(&group, 10, Striping::Coarse, 1024);
        let client = Client::new(&scene, &seen, &group);
        assert!(client.read(file, 300, 0).is_ok());
        if closes {
            group.close().unwrap();
        } else {
            for slot in [0, 1] {
                scene.disks.vanish(DiskSlot(slot));
            }
            group.heartbeat(2_000).unwrap_err();
            for slot in [0, 1] {
                scene.disks.bring_back(DiskSlot(slot));
            }
        }
        assert_eq!(
            client.read(file, 300, 0),
            Err(Detour::Map(Reason::Standing))
        );
        assert_eq!(group.show_file(&handle, &|| Some(1024 * BLOCK_BYTES)), None);
        assert_eq!(group.tell_clients(), None);
    }
}

#[test]
fn a_disk_that_drops_what_it_was_given_is_not_read_from_its_answer_on() {
    let scene = Scene::mirrored(1);
    let (group, seen) = open(&scene);
    let (handle, file) = shown(&group, 10, Striping::Coarse, 1024);
    let end = || Some(1024 * BLOCK_BYTES);
    let mut client = Client::new(&scene, &seen, &group);
    group.write(&handle, 300 * BLOCK_BYTES, &[1; 4096]).unwrap();
    group.show_file(&handle, &end).unwrap();
    for which in 0..2 {
        assert_eq!(client.read(file, 300, which), Ok(vec![1; 4096]));
    }
    scene.disks.drop_at_flushes(DiskSlot(1), 1);
    scene.disks.fail_flushes(DiskSlot(1), 1);
    group.sync_file(&handle, true).unwrap();
    for _ in 0..3 {
        for which in 0..2 {
            let found = client.read(file, 300, which);
            assert!(
                found.is_err() || found == Ok(vec![1; 4096]),
                "the disk that dropped it"
            );
        }
        client.learn(group.tell_clients().unwrap());
        group.show_file(&handle, &end).unwrap();
        resync(&group);
    }
}

#[test]
fn a_disk_that_goes_and_comes_back_is_read_when_it_has_everything() {
    let scene = Scene::mirrored(1);
    let (group, seen) = open(&scene);
    let (handle, file) = shown(&group, 10, Striping::Coarse, 1024);
    let end = || Some(1024 * BLOCK_BYTES);
    let mut client = Client::new(&scene, &seen, &group);
    scene.disks.vanish(DiskSlot(1));
    group.write(&handle, 300 * BLOCK_BYTES, &[1; 4096]).unwrap();
    group.show_file(&handle, &end).unwrap();
    let standing = Err(Detour::Map(Reason::Standing));
    assert_eq!(client.read(file, 300, 0), standing);
    assert_eq!(client.read(file, 600, 0), standing);
    client.learn(group.tell_clients().unwrap());
    assert_eq!(client.told.disks.len(), 1);
    // Some of it is stale where it is away.
    group.show_file(&handle, &end).unwrap();
    assert_eq!(
        client.read(file, 600, 0),
        Err(Detour::Map(Reason::NotInMap))
    );
    scene.disks.bring_back(DiskSlot(1));
    assert_eq!(group.return_disks(&[DiskSlot(1)]).unwrap(), [DiskNumber(1)]);
    assert_eq!(client.read(file, 600, 0), standing);
    client.learn(group.tell_clients().unwrap());
    group.show_file(&handle, &end).unwrap();
    let before = client.read(file, 300, 1);
    assert!(before.is_err() || before == Ok(vec![1; 4096]), "{before:?}");
    resync(&group);
    client.learn(group.tell_clients().unwrap());
    group.show_file(&handle, &end).unwrap();
    for which in 0..2 {
        assert_eq!(client.read(file, 300, which), Ok(vec![1; 4096]));
    }
}

/// A file of which each block says whose it is, where it belongs and how often it was written.
struct Counted {
    id: u64,
    handle: Arc<File>,
    key: FileKey,
    schedule: Schedule,
    begun: Vec<AtomicU64>,
    answered: Vec<AtomicU64>,
}

impl Counted {
    const BLOCKS: u64 = 256 * 10;

    fn new(group: &Group, id: u64, striping: Striping) -> Self {
        let (handle, (key, schedule)) = shown(group, id, striping, Self::BLOCKS);
        let zeros = || (0..Self::BLOCKS).map(|_| AtomicU64::new(0)).collect();
        let file = Self {
            id,
            handle,
            key,
            schedule,
            begun: zeros(),
            answered: zeros(),
        };
        for block in 0..Self::BLOCKS {
            file.write(group, block, 1);
        }
        file
    }

    fn end(&self) -> Option<u64> {
        Some(Self::BLOCKS * BLOCK_BYTES)
    }

    fn bytes(&self, block: u64, turn: u64) -> Vec<u8> {
        let word = self.id << 48 | block << 24 | turn;
        word.to_le_bytes().repeat(512)
    }

    fn counts(&self, block: u64) -> [&AtomicU64; 2] {
        let block = usize::try_from(block).unwrap();
        [&self.begun[block], &self.answered[block]]
    }

    /// One thread writes a block.
    fn write(&self, group: &Group, block: u64, turn: u64) {
        let [begun, answered] = self.counts(block);
        begun.store(turn, Ordering::SeqCst);
        let bytes = self.bytes(block, turn);
        (group.write(&self.handle, block * BLOCK_BYTES, &bytes)).unwrap();
        answered.store(turn, Ordering::SeqCst);
    }

    /// What a client read, which began when `answered` was answered.
    fn judge(&self, block: u64, answered: u64, found: &[u8]) {
        let word = u64::from_le_bytes(*found.first_chunk().unwrap());
        let turn = word & 0xff_ffff;
        assert!(
            *found == self.bytes(block, turn)[..],
            "block {block} of file {} is torn or another's: {word:x}",
            self.id
        );
        let begun = self.counts(block)[0].load(Ordering::SeqCst);
        assert!(
            (answered..=begun).contains(&turn),
            "block {block} of file {}: {turn}, where {answered} was answered and {begun} begun",
            self.id
        );
    }
}

/// Its drop ends the threads, whatever became of the test.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Reads blocks of the files until the end, and counts those that counted.
fn read_until_the_end(
    client: &mut Client<'_>,
    (group, files): (&Group, &[Counted; 2]),
    (seed, is_over, count): (u64, &AtomicBool, &AtomicU64),
) {
    let mut random = SeededRandom::new(seed);
    while !is_over.load(Ordering::SeqCst) {
        let file = &files[random.index(2)];
        let block = random.below(Counted::BLOCKS);
        let answered = file.counts(block)[1].load(Ordering::SeqCst);
        match client.read((file.key, file.schedule), block, random.index(3)) {
            Ok(found) => {
                file.judge(block, answered, &found);
                count.fetch_add(1, Ordering::SeqCst);
            }
            Err(Detour::Map(Reason::Standing)) => client.learn(group.tell_clients().unwrap()),
            Err(_) => std::thread::yield_now(),
        }
    }
}

/// A disk goes, which the group sees, and comes back.
fn blink(scene: &Scene, group: &Group, disk: u16, round: u64) {
    // One that came back before has everything, or this one could not be done without.
    resync(group);
    scene.disks.vanish(DiskSlot(disk));
    // Else it may be back before the group has met its absence, without what it lost.
    let serves = || {
        let told = group.tell_clients().unwrap();
        told.disks.iter().any(|it| it.number.0 == disk)
    };
    for beat in 0.. {
        group.heartbeat(2_000 + round * 100 + beat).unwrap();
        std::thread::sleep(Duration::from_millis(5));
        if !serves() {
            break;
        }
        assert!(beat < 90, "{:?}", group.view());
    }
    group.step(round * 7_000).unwrap();
    scene.disks.bring_back(DiskSlot(disk));
    group.return_disks(&[DiskSlot(disk)]).unwrap();
}

/// Writes blocks of the files until the end.
fn write_until_the_end((group, files): (&Group, &[Counted; 2]), is_over: &AtomicBool) {
    let mut random = SeededRandom::new(9);
    let mut turn = 2;
    while !is_over.load(Ordering::SeqCst) {
        files[random.index(2)].write(group, random.below(Counted::BLOCKS), turn);
        turn += 1;
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn what_clients_read_is_what_was_answered_whatever_the_group_does() {
    let disks = [(0, 96), (0, 96), (1, 96), (1, 96)];
    let scene = Scene::new(1, Redundancy::Normal, &disks);
    let (group, seen) = open(&scene);
    let files = [
        Counted::new(&group, 10, Striping::Coarse),
        Counted::new(&group, 11, Striping::Fine),
    ];
    let is_over = AtomicBool::new(false);
    let read_counts = [(); 2].map(|()| AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (group, files, is_over) = (&group, &files, &is_over);
        let clients = (0..).zip(&read_counts).map(|(seed, count)| {
            let mut client = Client::new(&scene, &seen, group);
            let by = (seed, is_over, count);
            scope.spawn(move || read_until_the_end(&mut client, (group, files), by))
        });
        let clients: Vec<_> = clients.collect();
        let _end = End(is_over);
        scope.spawn(move || write_until_the_end((group, files), is_over));
        scope.spawn(move || {
            while !is_over.load(Ordering::SeqCst) {
                for file in files {
                    group.show_file(&file.handle, &|| file.end()).unwrap();
                }
                std::thread::sleep(Duration::from_micros(300));
            }
        });
        let mut random = SeededRandom::new(7);
        let until = Instant::now() + Duration::from_secs(120);
        for round in 0_u64.. {
            let counts = || read_counts.iter().map(|count| count.load(Ordering::SeqCst));
            if round >= 30 && counts().all(|count| count > 200) {
                break;
            }
            let goes_on = Instant::now() < until && !clients.iter().any(|it| it.is_finished());
            assert!(goes_on, "{read_counts:?} in {round} rounds");
            // What files give back, others take.
            for id in 100..103 {
                let data = pattern(round, 3 << 20);
                let file = create(group, id, [NORMAL, FINE][random.index(2)]);
                group.write(&file, 0, &data).unwrap();
            }
            let disk = u16::try_from(random.below(4)).unwrap();
            match round % 3 {
                0 => blink(&scene, group, disk, round),
                1 if group.view().disks.len() < 7 => {
                    let joins = spare(&scene.disks, u8::try_from(round % 2).unwrap(), 96);
                    let changes = DiskChanges {
                        add: vec![joins],
                        ..DiskChanges::default()
                    };
                    group.change_disks(&changes).unwrap();
                }
                _ => {}
            }
            for tick in 0..2_000 {
                if !group.work(round * 7_000 + tick).unwrap().did_something {
                    break;
                }
            }
            group.step(round * 7_000 + 6_000).unwrap();
            for id in 100..103 {
                remove(group, id);
            }
        }
    });
    assert_sound(&group);
}
