//! Processes that read and write a file by the shared map, and are killed anywhere, beside an owner
//! that moves its extents, closes and withdraws them, keeps writes of a mount in memory, and tells of
//! outages: every write that was answered is there, and none is in a place that was given up.
//!
//! Files in memory stand for the disks. A place that nothing lies in is all zeros: who reads there finds
//! less than was answered, and who writes there is found when the place is used again.
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use spindle_base::{DiskNumber, FileId};
use spindle_device::{ReadOnlyMemory, SeededRandom, SharedMemory};
use spindle_format::ExtentCopy;
use spindle_lease::map::{
    Allowed, CopyPlace, Disks, Entry, FileKey, Piece, Reason, SeenMap, SharedMap,
};
use spindle_lease::{Blocks, Client, ClientNumber, Leases, Mode, Patience, Refused, UnderWay};

const CHILD: &str = "SPINDLE_LEASE_MOVES_CHILD";
const FILE: FileKey = FileKey {
    file: FileId(3),
    incarnation: 1,
};
const EXTENTS_COUNT: u64 = 6;
/// Extents of four blocks.
const CLASS: u8 = 2;
const EXTENT_BLOCKS: u64 = 1 << CLASS;
const BLOCKS_COUNT: u64 = EXTENTS_COUNT * EXTENT_BLOCKS;
const DISKS_COUNT: u16 = 3;
/// Places for an extent on each disk, behind the first block.
const PLACES_COUNT: u64 = 8;
const DISK_BLOCKS: u64 = (1 + PLACES_COUNT) * EXTENT_BLOCKS;
const CLIENTS_MOST: usize = 4;
const BLOCK_BYTES: usize = 4096;
const WHOLE_FILE: Blocks = Blocks::new(FILE.file, 0, BLOCKS_COUNT);

/// What everybody notes, in memory that all share.
struct Notes(SharedMemory);

/// Operations of clients that went to the disks, or to the mount.
#[derive(Clone, Copy)]
enum Count {
    Reads,
    Writes,
    /// Reads that did not count, because the owner had said something else meanwhile.
    InVain,
    /// As one of [`Reason`]: the first of as many.
    ThroughMount,
}

impl Notes {
    const BEGUN: u64 = 0;
    const ANSWERED: u64 = BLOCKS_COUNT;
    const TICKET: u64 = 2 * BLOCKS_COUNT;
    const STANDING: u64 = Self::TICKET + 1;
    const COUNTS: u64 = Self::STANDING + 1;
    const WORDS: u64 = Self::COUNTS + 16;

    fn word(&self, word: u64) -> &AtomicU64 {
        &self.0.words()[usize::try_from(word).unwrap()]
    }

    /// A write of the block with this value was begun, under its lock: values only grow.
    fn begun(&self, block: u64) -> &AtomicU64 {
        self.word(Self::BEGUN + block)
    }

    /// One was answered.
    fn answered(&self, block: u64) -> &AtomicU64 {
        self.word(Self::ANSWERED + block)
    }

    fn next_value(&self) -> u64 {
        self.word(Self::TICKET).fetch_add(1, Ordering::SeqCst) + 1
    }

    /// What the clients were told of the disks.
    fn standing(&self) -> &AtomicU64 {
        self.word(Self::STANDING)
    }

    fn count(&self, count: Count) -> &AtomicU64 {
        self.word(Self::COUNTS + count as u64)
    }

    fn count_of(&self, reason: Reason) -> &AtomicU64 {
        self.word(Self::COUNTS + Count::ThroughMount as u64 + reason as u64)
    }

    /// Operations that asked disks.
    fn direct_count(&self) -> u64 {
        [Count::Reads, Count::Writes]
            .iter()
            .map(|count| self.count(*count).load(Ordering::SeqCst))
            .sum()
    }
}

struct DiskFiles(Vec<File>);

impl DiskFiles {
    fn write(&self, place: CopyPlace, blocks_count: u64, value: u64) {
        let bytes = value.to_le_bytes().repeat(BLOCK_BYTES / 8);
        for block in 0..blocks_count {
            let offset_bytes = place.offset_bytes + block * 4096;
            let disk = &self.0[usize::from(place.disk.0)];
            disk.write_all_at(&bytes, offset_bytes).unwrap();
        }
    }

    /// The smallest and the largest word of each block.
    fn read(&self, place: CopyPlace, blocks_count: u64) -> Vec<(u64, u64)> {
        let mut bytes = vec![0; usize::try_from(blocks_count).unwrap() * BLOCK_BYTES];
        let disk = &self.0[usize::from(place.disk.0)];
        disk.read_exact_at(&mut bytes, place.offset_bytes).unwrap();
        let range_of = |block: &[u8]| {
            let words = block.as_chunks().0.iter().map(|it| u64::from_le_bytes(*it));
            (words.clone().min().unwrap(), words.max().unwrap())
        };
        bytes.chunks(BLOCK_BYTES).map(range_of).collect()
    }
}

fn pause(micros: u64) {
    std::thread::sleep(Duration::from_micros(micros));
}

fn waits_a_turn() -> Patience {
    pause(10);
    Patience::Wait
}

fn blocks_of(index: u64) -> Blocks {
    Blocks::new(
        FILE.file,
        index * EXTENT_BLOCKS,
        (index + 1) * EXTENT_BLOCKS,
    )
}

/// Blocks that lie in one extent.
fn some_blocks(random: &mut SeededRandom) -> (Blocks, Piece) {
    let index = random.below(EXTENTS_COUNT);
    let inside_blocks = random.below(EXTENT_BLOCKS);
    let blocks = 1 + random.below(EXTENT_BLOCKS - inside_blocks);
    let first = index * EXTENT_BLOCKS + inside_blocks;
    let piece = Piece {
        file: FILE,
        index: u32::try_from(index).unwrap(),
        inside_blocks,
        blocks,
    };
    (Blocks::new(FILE.file, first, first + blocks), piece)
}

/// A client: it writes and reads until somebody ends it.
#[test]
fn child() {
    let Ok(told) = std::env::var(CHILD) else {
        return;
    };
    let told: Vec<u64> = told.split(' ').map(|it| it.parse().unwrap()).collect();
    let [leases, map, notes, number, seed, ref disks @ ..] = told[..] else {
        panic!("{told:?}");
    };
    let open = |descriptor: u64, writes: bool| {
        let path = format!("/proc/self/fd/{descriptor}");
        let file = OpenOptions::new().read(true).write(writes).open(path);
        file.unwrap()
    };
    let shared =
        |descriptor| SharedMemory::from_descriptor(OwnedFd::from(open(descriptor, true))).unwrap();
    let leases = Leases::new(shared(leases)).unwrap();
    let notes = Notes(shared(notes));
    let disks = DiskFiles(disks.iter().map(|disk| open(*disk, true)).collect());
    let number = ClientNumber::new(u16::try_from(number).unwrap()).unwrap();
    let client = loop {
        match leases.client(number) {
            Some(client) if client.process_id() == std::process::id() => break client,
            _ => pause(100),
        }
    };
    std::thread::scope(|scope| {
        for index in 0..2 {
            let memory = ReadOnlyMemory::from_descriptor(open(map, false).into()).unwrap();
            let seen = SeenMap::new(memory).unwrap();
            let mut worker = Worker {
                leases: &leases,
                client,
                index,
                seen,
                told: Disks::default(),
                notes: &notes,
                disks: &disks,
                random: SeededRandom::new(seed * 2 + index as u64),
            };
            scope.spawn(move || {
                loop {
                    worker.work();
                }
            });
        }
    });
}

struct Worker<'a> {
    leases: &'a Leases,
    client: Client,
    index: usize,
    seen: SeenMap,
    told: Disks,
    notes: &'a Notes,
    disks: &'a DiskFiles,
    random: SeededRandom,
}

impl Worker<'_> {
    fn work(&mut self) {
        let (blocks, piece) = some_blocks(&mut self.random);
        let through_mount = if self.random.chance(1, 2) {
            self.read(blocks, &piece)
        } else {
            self.write(blocks, &piece)
        };
        let Some(reason) = through_mount else {
            return;
        };
        self.notes.count_of(reason).fetch_add(1, Ordering::SeqCst);
        if reason == Reason::Standing {
            self.told = Disks {
                standing: self.notes.standing().load(Ordering::SeqCst),
                blocks: vec![DISK_BLOCKS; usize::from(DISKS_COUNT)],
            };
        }
        pause(100);
    }

    fn read(&mut self, blocks: Blocks, piece: &Piece) -> Option<Reason> {
        let range = blocks.first..blocks.end;
        let answered: Vec<u64> = range
            .map(|block| self.notes.answered(block).load(Ordering::SeqCst))
            .collect();
        let places = match self.seen.places_to_read(&self.told, piece) {
            Ok(places) => places,
            Err(reason) => return Some(reason),
        };
        let place = places.copies()[self.random.index(places.copies().len())];
        pause(20);
        let found = self.disks.read(place, piece.blocks);
        if !self.seen.stands(&places) {
            self.notes
                .count(Count::InVain)
                .fetch_add(1, Ordering::SeqCst);
            return None;
        }
        self.notes
            .count(Count::Reads)
            .fetch_add(1, Ordering::SeqCst);
        for ((smallest, _), answered) in found.iter().zip(&answered) {
            if smallest < answered {
                say_and_end(&format!(
                    "{blocks:?} at {place:?}: {found:?}, and {answered:?} was answered"
                ));
            }
        }
        None
    }

    fn write(&mut self, blocks: Blocks, piece: &Piece) -> Option<Reason> {
        let mut operation = self.leases.operation(self.client, self.index);
        let announced = operation.announce_write(blocks, |round| match round {
            0..1000 => waits_a_turn(),
            _ => Patience::GiveUp,
        });
        let announced = match announced {
            Ok(announced) => announced,
            Err(Refused::Gone) => say_and_end("it lives"),
            Err(_) => {
                pause(100);
                return None;
            }
        };
        match self.seen.places_to_write(&announced, &self.told, piece) {
            Ok(places) => {
                self.notes
                    .count(Count::Writes)
                    .fetch_add(1, Ordering::SeqCst);
                let value = self.notes.next_value();
                for block in blocks.first..blocks.end {
                    self.notes.begun(block).store(value, Ordering::SeqCst);
                }
                for place in places.copies() {
                    // As long as a disk takes: most kills come here.
                    pause(30);
                    self.disks.write(*place, piece.blocks, value);
                }
                for block in blocks.first..blocks.end {
                    self.notes.answered(block).store(value, Ordering::SeqCst);
                }
            }
            Err(reason) => {
                announced.done();
                return Some(reason);
            }
        }
        announced.done();
        None
    }
}

/// A client's panic would be one thread's: this the owner sees.
fn say_and_end(what: &str) -> ! {
    eprintln!("{what}");
    std::process::exit(77);
}

/// A running client. Its drop ends it, whatever became of the test.
struct Running {
    process: Child,
    client: Client,
}

impl Running {
    fn end(&mut self) {
        if let Some(ended) = self.process.try_wait().unwrap() {
            panic!("a client found something wrong: {ended}");
        }
        let _ = self.process.kill();
        self.process.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The owner of the group.
struct Owner {
    leases: Leases,
    client: Client,
    map: SharedMap,
    map_to_read: OwnedFd,
    notes: Notes,
    disks: DiskFiles,
    /// Of each extent, where its copies lie: the owner's own map.
    extents: Vec<[CopyPlace; 2]>,
    free: Vec<CopyPlace>,
    random: SeededRandom,
}

impl Owner {
    fn new(seed: u64) -> Self {
        let leases = Leases::create().unwrap();
        let client = leases.let_in_owner(std::process::id());
        let mut map = SharedMap::create().unwrap();
        map.reset();
        let map_to_read = map.memory().read_only_descriptor().unwrap();
        let notes = Notes(SharedMemory::create("notes", Notes::WORDS * 8).unwrap());
        let new_disk = || {
            let disk = File::from(memfd_create("disk", MemfdFlags::CLOEXEC).unwrap());
            disk.set_len(DISK_BLOCKS * 4096).unwrap();
            disk
        };
        let disks = DiskFiles((0..DISKS_COUNT).map(|_| new_disk()).collect());
        let places = (1..=PLACES_COUNT).flat_map(|place| {
            (0..DISKS_COUNT).map(move |disk| CopyPlace {
                disk: DiskNumber(disk),
                offset_bytes: place * EXTENT_BLOCKS * 4096,
            })
        });
        let mut free: Vec<CopyPlace> = places.collect();
        let extents: Vec<[CopyPlace; 2]> = (0..EXTENTS_COUNT)
            .map(|_| [free.remove(0), free.remove(0)])
            .collect();
        let mut owner = Self {
            leases,
            client,
            map,
            map_to_read,
            notes,
            disks,
            extents,
            free,
            random: SeededRandom::new(seed),
        };
        let value = owner.notes.next_value();
        for index in 0..EXTENTS_COUNT {
            owner.write_all(blocks_of(index), value);
            owner.publish(index, Allowed::ReadAndWrite);
        }
        owner.tell_standing();
        owner
    }

    fn start_client(&mut self) -> Running {
        let inherited = |descriptor: &dyn AsFd| {
            fcntl_setfd(descriptor, FdFlags::empty()).unwrap();
            descriptor.as_fd().as_raw_fd().to_string()
        };
        let taken: Vec<ClientNumber> = self.leases.clients().iter().map(|it| it.number()).collect();
        let mut numbers = (1..).filter_map(ClientNumber::new);
        let number = numbers.find(|it| !taken.contains(it)).unwrap().number();
        let mut told = vec![
            inherited(&self.leases.memory().descriptor()),
            inherited(&self.map_to_read),
            inherited(&self.notes.0.descriptor()),
            number.to_string(),
            (self.random.next_u64() >> 8).to_string(),
        ];
        told.extend(self.disks.0.iter().map(|disk| inherited(disk)));
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture"])
            .env(CHILD, told.join(" "))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let client = self.leases.let_in(process.id()).unwrap();
        assert_eq!(client.number().number(), number);
        Running { process, client }
    }

    fn publish(&mut self, index: u64, allowed: Allowed) {
        let copies = self.extents[usize::try_from(index).unwrap()]
            .map(|place| ExtentCopy::new(place.disk, place.offset_bytes / 4096, CLASS));
        let limit_blocks = u32::try_from(EXTENT_BLOCKS).unwrap();
        let entry = Entry::new(&copies, limit_blocks, allowed).unwrap();
        let index = u32::try_from(index).unwrap();
        self.map.set(FILE, index, &entry).unwrap();
    }

    fn places_of(&self, block: u64) -> [CopyPlace; 2] {
        let extent = self.extents[usize::try_from(block / EXTENT_BLOCKS).unwrap()];
        extent.map(|place| CopyPlace {
            offset_bytes: place.offset_bytes + block % EXTENT_BLOCKS * 4096,
            ..place
        })
    }

    /// Writes both copies and answers. The blocks are the owner's.
    fn write_all(&self, blocks: Blocks, value: u64) {
        for block in blocks.first..blocks.end {
            self.notes.begun(block).store(value, Ordering::SeqCst);
            for place in self.places_of(block) {
                self.disks.write(place, 1, value);
            }
            self.notes.answered(block).store(value, Ordering::SeqCst);
        }
    }

    /// Copies are equal, and have what was answered last, or begun. Nothing is under way there.
    fn check(&self, blocks: Blocks) {
        for block in blocks.first..blocks.end {
            let found = self.places_of(block).map(|it| self.disks.read(it, 1)[0]);
            let [begun, answered] = [self.notes.begun(block), self.notes.answered(block)]
                .map(|it| it.load(Ordering::SeqCst));
            let is_known = found[0].0 == begun || found[0].0 == answered;
            assert!(
                is_known && found.iter().all(|it| *it == (found[0].0, found[0].0)),
                "block {block}: {found:?}, where {begun} was begun and {answered} answered"
            );
            // What was left half done is settled by this.
            self.notes.begun(block).store(found[0].0, Ordering::SeqCst);
            self.notes
                .answered(block)
                .store(found[0].0, Ordering::SeqCst);
        }
    }

    /// Runs `work` with blocks that are the owner's alone.
    fn alone<T>(&mut self, blocks: Blocks, work: impl FnOnce(&mut Self) -> T) -> T {
        let memory = self.leases.memory().descriptor().try_clone_to_owned();
        // The same words, so that the revocation does not borrow what `work` changes.
        let leases = Leases::new(SharedMemory::from_descriptor(memory.unwrap()).unwrap()).unwrap();
        let revocation = leases.revoke(blocks).unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        while !revocation.under_way().is_empty() {
            assert!(Instant::now() < until, "{:?}", revocation.under_way());
            pause(10);
        }
        self.check(blocks);
        let done = work(self);
        drop(revocation);
        done
    }

    fn move_a_copy(&mut self) {
        let index = self.random.below(EXTENTS_COUNT);
        let at = usize::try_from(index).unwrap();
        let which = self.random.index(2);
        let old = self.alone(blocks_of(index), |owner| {
            let [old, other] = [which, 1 - which].map(|which| owner.extents[at][which]);
            let mut free = (0..owner.free.len()).collect::<Vec<_>>();
            free.retain(|it| owner.free[*it].disk != other.disk);
            let chosen = free[owner.random.index(free.len())];
            let new = owner.free.swap_remove(chosen);
            owner.check_is_free(new);
            for block in 0..EXTENT_BLOCKS {
                let moved = |place: CopyPlace| CopyPlace {
                    offset_bytes: place.offset_bytes + block * 4096,
                    ..place
                };
                let value = owner.disks.read(moved(old), 1)[0].0;
                owner.disks.write(moved(new), 1, value);
            }
            owner.extents[at][which] = new;
            owner.publish(index, Allowed::ReadAndWrite);
            old
        });
        // Somebody else's by now.
        self.disks.write(old, EXTENT_BLOCKS, 0);
        self.free.push(old);
    }

    fn check_is_free(&self, place: CopyPlace) {
        let found = self.disks.read(place, EXTENT_BLOCKS);
        let is_free = found.iter().all(|block| *block == (0, 0));
        assert!(
            is_free,
            "somebody wrote in the old place {place:?}: {found:?}"
        );
    }

    /// What has begun in these blocks.
    fn begun(&self, blocks: Blocks) -> Vec<u64> {
        (blocks.first..blocks.end)
            .map(|block| self.notes.begun(block).load(Ordering::SeqCst))
            .collect()
    }

    /// Nobody begins to write these blocks, though nothing is revoked.
    fn check_nobody_writes(&self, blocks: Blocks) {
        let before = self.begun(blocks);
        pause(300);
        assert_eq!(self.begun(blocks), before, "{blocks:?}");
    }

    fn close_for_writes(&mut self) {
        let index = self.random.below(EXTENTS_COUNT);
        let blocks = blocks_of(index);
        self.alone(blocks, |owner| owner.publish(index, Allowed::Read));
        self.check_nobody_writes(blocks);
        self.publish(index, Allowed::ReadAndWrite);
    }

    fn withdraw(&mut self) {
        self.alone(WHOLE_FILE, |owner| owner.map.withdraw(FILE.file));
        self.check_nobody_writes(WHOLE_FILE);
        for index in 0..EXTENTS_COUNT {
            self.publish(index, Allowed::ReadAndWrite);
        }
    }

    /// A write through the mount is answered from memory, and reaches the disks later.
    fn write_through_memory(&mut self) {
        let (blocks, piece) = some_blocks(&mut self.random);
        let memory = self.leases.memory().descriptor().try_clone_to_owned();
        let leases = Leases::new(SharedMemory::from_descriptor(memory.unwrap()).unwrap()).unwrap();
        let mut operation = leases.operation(self.client, 0);
        let announced = operation
            .announce_write(blocks, |_| waits_a_turn())
            .unwrap();
        self.publish(piece.index.into(), Allowed::WaitsInMemory);
        let value = self.notes.next_value();
        for block in blocks.first..blocks.end {
            self.notes.begun(block).store(value, Ordering::SeqCst);
            self.notes.answered(block).store(value, Ordering::SeqCst);
        }
        announced.done();
        self.check_nobody_writes(blocks);
        let announced = operation
            .announce_write(blocks, |_| waits_a_turn())
            .unwrap();
        self.write_all(blocks, value);
        self.publish(piece.index.into(), Allowed::ReadAndWrite);
        announced.done();
    }

    fn tell_standing(&self) {
        let standing = self.map.standing().number();
        self.notes.standing().store(standing, Ordering::SeqCst);
    }

    /// The disks are not as they were: who writes is overtaken, and nobody asks a disk until it is told.
    fn outage(&mut self) {
        self.map.standing().raise();
        self.leases.overtake_writes();
        // What was announced before ends; no owner would wait for that.
        let everything = self.leases.revoke(Blocks::ALL).unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        let is_torn = |found: &UnderWay<'_>| found.mode() == Mode::Torn;
        while !everything.under_way().iter().all(is_torn) {
            assert!(Instant::now() < until, "{:?}", everything.under_way());
            pause(10);
        }
        drop(everything);
        let before = self.notes.direct_count();
        pause(300);
        assert_eq!(self.notes.direct_count(), before, "nobody was told yet");
        self.settle_torn();
        self.tell_standing();
    }

    /// Compares what was overtaken.
    fn settle_torn(&self) {
        for client in self.leases.clients() {
            for torn in self.leases.left_by(client.number()) {
                if torn.mode() == Mode::Torn {
                    let revocation = self.leases.revoke(torn.blocks()).unwrap();
                    let writes =
                        |other: &UnderWay<'_>| matches!(other.mode(), Mode::Write | Mode::Waits);
                    while revocation.under_way().iter().any(writes) {
                        pause(10);
                    }
                    self.make_equal(torn.blocks());
                    torn.is_compared();
                }
            }
        }
    }

    fn make_equal(&self, blocks: Blocks) {
        for block in blocks.first..blocks.end {
            let [one, two] = self.places_of(block);
            self.disks.write(two, 1, self.disks.read(one, 1)[0].0);
        }
        self.check(blocks);
    }

    /// The owner's part when a client has died: what it left is compared, then all of it goes.
    fn bury(&self, mut dead: Running) {
        dead.end();
        let number = dead.client.number();
        for left in self.leases.left_by(number) {
            let revocation = self.leases.revoke(left.blocks()).unwrap();
            let writes = |other: &UnderWay<'_>| {
                matches!(other.mode(), Mode::Write | Mode::Waits) && other.client() != number
            };
            while revocation.under_way().iter().any(writes) {
                pause(10);
            }
            self.make_equal(left.blocks());
        }
        self.leases.let_go(number);
    }
}

#[test]
fn what_was_answered_is_there_and_nothing_is_in_an_old_place_whoever_is_killed() {
    let mut owner = Owner::new(11);
    let mut running: Vec<Running> = Vec::new();
    let begun = Instant::now();
    let mut kills_count = 0;
    while kills_count < 150 {
        assert!(
            begun.elapsed() < Duration::from_secs(120),
            "{kills_count} kills"
        );
        while running.len() < CLIENTS_MOST {
            running.push(owner.start_client());
        }
        for _ in 0..16 {
            match owner.random.below(8) {
                0..4 => owner.move_a_copy(),
                4 => owner.close_for_writes(),
                5 => owner.withdraw(),
                6 => owner.write_through_memory(),
                _ => owner.outage(),
            }
            pause(200);
        }
        let dead = running.swap_remove(owner.random.index(running.len()));
        owner.bury(dead);
        kills_count += 1;
    }
    for rest in running.drain(..) {
        owner.bury(rest);
    }
    owner.check(WHOLE_FILE);
    for place in &owner.free {
        owner.check_is_free(*place);
    }
    for (count, least) in [
        (Count::Reads, 1000),
        (Count::Writes, 1000),
        (Count::InVain, 20),
    ] {
        assert!(owner.notes.count(count).load(Ordering::SeqCst) > least);
    }
    for reason in [
        Reason::Standing,
        Reason::NotInMap,
        Reason::WaitsInMemory,
        Reason::ReadOnly,
    ] {
        let count = owner.notes.count_of(reason).load(Ordering::SeqCst);
        assert!(count > 5, "{reason:?}: {count}");
    }
    for reason in [Reason::Damaged, Reason::UnknownPlace, Reason::BeyondLimit] {
        let count = owner.notes.count_of(reason).load(Ordering::SeqCst);
        assert_eq!(count, 0, "{reason:?}");
    }
}
