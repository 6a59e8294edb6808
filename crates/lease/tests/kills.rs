//! Processes that write the same blocks, and are killed or stopped anywhere, beside an owner that
//! compares, moves and overtakes: in the end no two copies differ, and nothing waits for ever.
//!
//! The two copies are shared memory, in the place of two disks: a store is a write, and a kill comes
//! between any two.
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process};
use spindle_base::FileId;
use spindle_device::{SeededRandom, SharedMemory};
use spindle_lease::{Blocks, Client, ClientNumber, Leases, Mode, Patience, UnderWay};

const CHILD: &str = "SPINDLE_LEASE_CHILD";
const FILE: FileId = FileId(3);
/// So few that writers meet.
const BLOCKS_COUNT: u64 = 24;
const WORDS_PER_BLOCK: u64 = 16;
const CLIENTS_MOST: usize = 6;
const WHOLE_FILE: Blocks = Blocks::new(FILE, 0, BLOCKS_COUNT);

/// Both copies of the file's blocks, and behind them how many operations came to their end.
struct Copies(SharedMemory);

impl Copies {
    const WORDS: u64 = BLOCKS_COUNT * WORDS_PER_BLOCK;

    fn create() -> Self {
        Self(SharedMemory::create("copies", (2 * Self::WORDS + 1) * 8).unwrap())
    }

    fn words(&self, copy: u64, blocks: Blocks) -> &[AtomicU64] {
        let word =
            |block: u64| usize::try_from(copy * Self::WORDS + block * WORDS_PER_BLOCK).unwrap();
        &self.0.words()[word(blocks.first)..word(blocks.end)]
    }

    fn ended(&self) -> &AtomicU64 {
        &self.0.words()[usize::try_from(2 * Self::WORDS).unwrap()]
    }

    fn write(&self, blocks: Blocks, value: u64) {
        for copy in 0..2 {
            // As long as a disk takes: most kills come here.
            std::thread::sleep(Duration::from_micros(30));
            for word in self.words(copy, blocks) {
                word.store(value, Ordering::Relaxed);
            }
        }
    }

    fn differ(&self, blocks: Blocks) -> bool {
        let pairs = self.words(0, blocks).iter().zip(self.words(1, blocks));
        let mut values =
            pairs.map(|(one, two)| (one.load(Ordering::Relaxed), two.load(Ordering::Relaxed)));
        values.any(|(one, two)| one != two)
    }

    /// As a takeover does: the first copy counts.
    fn make_equal(&self, blocks: Blocks) {
        for (one, two) in self.words(0, blocks).iter().zip(self.words(1, blocks)) {
            let value = one.load(Ordering::Relaxed);
            // As long as a disk takes.
            std::thread::sleep(Duration::from_micros(1));
            two.store(value, Ordering::Relaxed);
        }
    }
}

fn waits_a_turn() -> Patience {
    std::thread::sleep(Duration::from_micros(10));
    Patience::Wait
}

fn some_blocks(random: &mut SeededRandom) -> Blocks {
    let first = random.below(BLOCKS_COUNT);
    let end = (first + 1 + random.below(4)).min(BLOCKS_COUNT);
    Blocks::new(FILE, first, end)
}

/// A client: it writes and reads until somebody ends it.
#[test]
fn child() {
    let Ok(told) = std::env::var(CHILD) else {
        return;
    };
    let told: Vec<u64> = told.split(' ').map(|it| it.parse().unwrap()).collect();
    let [leases, copies, number, seed] = told[..] else {
        panic!("{told:?}");
    };
    let map = |descriptor: u64| {
        let raw = i32::try_from(descriptor).unwrap();
        let path = format!("/proc/self/fd/{raw}");
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(path);
        SharedMemory::from_descriptor(OwnedFd::from(file.unwrap())).unwrap()
    };
    let leases = Leases::new(map(leases)).unwrap();
    let copies = Copies(map(copies));
    let number = ClientNumber::new(u16::try_from(number).unwrap()).unwrap();
    let client = loop {
        match leases.client(number) {
            Some(client) if client.process_id() == std::process::id() => break client,
            _ => std::thread::sleep(Duration::from_micros(100)),
        }
    };
    std::thread::scope(|scope| {
        for index in 0..2 {
            let (leases, copies) = (&leases, &copies);
            scope.spawn(move || work(leases, copies, client, index, seed));
        }
    });
}

fn work(leases: &Leases, copies: &Copies, client: Client, index: usize, seed: u64) {
    let mut random = SeededRandom::new(seed * 2 + index as u64);
    let mut operation = leases.operation(client, index);
    loop {
        let blocks = some_blocks(&mut random);
        let announced = operation.announce_write(blocks, |round| match round {
            0..1000 => waits_a_turn(),
            _ => Patience::GiveUp,
        });
        if let Ok(announced) = announced {
            copies.write(blocks, random.next_u64());
            announced.done();
            copies.ended().fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A running client. Its drop ends it, whatever became of the test.
struct Running {
    process: Child,
    client: Client,
}

impl Running {
    fn start(leases: &Leases, copies: &Copies, seed: u64) -> Self {
        let inherited = |descriptor: BorrowedFd<'_>| {
            fcntl_setfd(descriptor, FdFlags::empty()).unwrap();
            descriptor.as_raw_fd()
        };
        let leases_fd = inherited(leases.memory().descriptor());
        let copies_fd = inherited(copies.0.descriptor());
        let taken: Vec<ClientNumber> = leases.clients().iter().map(|it| it.number()).collect();
        let number = (1..)
            .filter_map(ClientNumber::new)
            .find(|it| !taken.contains(it));
        let number = number.unwrap().number();
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child"])
            .env(CHILD, format!("{leases_fd} {copies_fd} {number} {seed}"))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let client = leases.let_in(process.id()).unwrap();
        assert_eq!(client.number().number(), number);
        Self { process, client }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    fn end(&mut self) {
        let _ = self.process.kill();
        self.process.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// The owner's part when a client has died: what it left is compared, then all of it goes.
fn bury(leases: &Leases, copies: &Copies, mut dead: Running) {
    dead.end();
    let number = dead.client.number();
    for left in leases.left_by(number) {
        while !compare(leases, copies, &left, Some(number)) {}
    }
    leases.let_go(number);
}

/// Nobody else may write there meanwhile, whatever locks the dead one has. False where somebody does.
fn compare(
    leases: &Leases,
    copies: &Copies,
    left: &UnderWay<'_>,
    dead: Option<ClientNumber>,
) -> bool {
    let revocation = leases.revoke(left.blocks()).unwrap();
    let writes = |other: &UnderWay<'_>| {
        matches!(other.mode(), Mode::Write | Mode::Waits) && dead != Some(other.client())
    };
    if revocation.under_way().iter().any(writes) {
        return false;
    }
    copies.make_equal(left.blocks());
    true
}

/// What nobody writes has equal copies, whenever the owner looks.
fn look(leases: &Leases, copies: &Copies, blocks: Blocks, waits: bool) -> bool {
    let revocation = leases.revoke(blocks).unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    while !revocation.under_way().is_empty() {
        if !waits {
            return false;
        }
        assert!(Instant::now() < until, "{:?}", revocation.under_way());
        waits_a_turn();
    }
    // Long enough for one who does not see what is revoked to begin.
    for _ in 0..3 {
        assert!(!copies.differ(blocks), "{blocks:?}");
        std::thread::sleep(Duration::from_micros(50));
    }
    true
}

#[test]
fn processes_that_are_killed_anywhere_leave_equal_copies() {
    let (leases, copies) = (Leases::create().unwrap(), Copies::create());
    let owner = leases.let_in_owner(std::process::id());
    let mut random = SeededRandom::new(7);
    let mut running: Vec<Running> = Vec::new();
    let (mut looks_count, mut differing_count, mut kills_count) = (0, 0, 0);
    let begun = Instant::now();
    while kills_count < 200 || differing_count == 0 {
        assert!(
            begun.elapsed() < Duration::from_secs(120),
            "{kills_count} kills"
        );
        while running.len() < CLIENTS_MOST {
            running.push(Running::start(&leases, &copies, random.next_u64() >> 8));
        }
        for _ in 0..5 {
            looks_count += u64::from(look(&leases, &copies, some_blocks(&mut random), true));
            // Through the mount.
            let mut operation = leases.operation(owner, 0);
            let blocks = some_blocks(&mut random);
            let announced = operation
                .announce_write(blocks, |_| Patience::Wait)
                .unwrap();
            copies.write(blocks, random.next_u64());
            announced.done();
        }
        let mut dead = running.swap_remove(random.index(running.len()));
        dead.end();
        let left = leases.left_by(dead.client.number());
        differing_count += u64::from(left.iter().any(|left| copies.differ(left.blocks())));
        drop(left);
        bury(&leases, &copies, dead);
        kills_count += 1;
    }
    for rest in running.drain(..) {
        bury(&leases, &copies, rest);
    }
    assert!(look(&leases, &copies, WHOLE_FILE, false));
    let ended_count = copies.ended().load(Ordering::Relaxed);
    assert!(
        looks_count >= 1000 && ended_count > 1000,
        "{looks_count} looks, {ended_count} writes"
    );
}

#[test]
fn a_process_that_is_stopped_anywhere_keeps_nobody_waiting_and_leaves_equal_copies() {
    let (leases, copies) = (Leases::create().unwrap(), Copies::create());
    let owner = leases.let_in_owner(std::process::id());
    let mut random = SeededRandom::new(8);
    let running: Vec<Running> = (0..3)
        .map(|seed| Running::start(&leases, &copies, seed))
        .collect();
    let mut operation = leases.operation(owner, 0);
    let (mut overtaken_count, mut torn_count) = (0, 0);
    let begun = Instant::now();
    while torn_count < 50 {
        assert!(
            begun.elapsed() < Duration::from_secs(120),
            "{overtaken_count} overtaken"
        );
        let stopped = &running[random.index(running.len())];
        stopped.signal(Signal::STOP);
        for _ in 0..20 {
            let blocks = some_blocks(&mut random);
            let announced = operation.announce_write(blocks, |round| match round {
                0..100 => waits_a_turn(),
                _ => {
                    overtaken_count += 1;
                    Patience::Overtake
                }
            });
            let announced = announced.unwrap();
            if random.chance(1, 4) {
                // It goes on beside what overtakes it.
                stopped.signal(Signal::CONT);
            }
            copies.write(blocks, random.next_u64());
            announced.done();
        }
        stopped.signal(Signal::CONT);
        for client in leases.clients() {
            for left in leases.left_by(client.number()) {
                if left.mode() == Mode::Torn && compare(&leases, &copies, &left, None) {
                    left.is_compared();
                    torn_count += 1;
                }
            }
        }
        for first in 0..BLOCKS_COUNT {
            look(&leases, &copies, Blocks::new(FILE, first, first + 1), false);
        }
    }
    for rest in running {
        bury(&leases, &copies, rest);
    }
    assert!(look(&leases, &copies, WHOLE_FILE, false));
}
