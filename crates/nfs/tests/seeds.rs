//! A client and a faulty server by hundreds of seeds: what was acknowledged or read, and flushed, is
//! there, or its loss was told; and a read gives nothing older than what was acknowledged before. Now
//! and then the client dies, and a successor goes on.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is a failure")]

mod faulty;

use std::collections::BTreeMap;

use faulty::tally::{Sector, Tally, add};
use faulty::{Due, Faults, Server};
use spindle_device::SeededRandom;
use spindle_nfs::{Action, Client, ErrorKind, Event, JobId, NfsError, Outcome, Settings, Work};

const SECTOR_BYTES: usize = 512;
const BLOCK_SECTORS: usize = 8;
const SECTORS: usize = 64 * BLOCK_SECTORS;

fn settings(paths: usize) -> Settings {
    Settings {
        transfer_bytes: 16 << 10,
        slots: 6,
        ..faulty::settings(paths)
    }
}

const READ: &str = "read of sector";

enum Asked {
    Write {
        sectors: std::ops::Range<usize>,
        value: u64,
        is_durable: bool,
    },
    Read {
        sectors: std::ops::Range<usize>,
        floors: Vec<usize>,
    },
    Flush {
        covers: Vec<Option<usize>>,
    },
    Other,
}

struct Run {
    server: Server,
    client: Client,
    random: SeededRandom,
    sectors: Vec<Sector>,
    asked: BTreeMap<JobId, Asked>,
    values: u64,
    tally: Tally,
    failure: Option<NfsError>,
    deadline_ms: u64,
    verifier: u8,
}

impl Run {
    fn new(seed: u64, faults: Faults) -> Self {
        let paths = 1 + usize::try_from(seed % 3).unwrap();
        let empty = Sector {
            values: vec![0],
            ..Sector::default()
        };
        let mut server = Server::new(seed, faults, SECTORS * SECTOR_BYTES, paths);
        server.checks_binding = seed.is_multiple_of(7);
        Self {
            server,
            client: Client::new(settings(paths), [1; 8], 0),
            random: SeededRandom::new(seed ^ 0x5eed),
            sectors: vec![empty; SECTORS],
            asked: BTreeMap::new(),
            values: 0,
            tally: Tally::default(),
            failure: None,
            // Where the deadline is short requests are late that a server has only taken its time for.
            deadline_ms: if seed % 5 < 2 { 5000 } else { 30_000 },
            verifier: 1,
        }
    }

    fn submit(&mut self, work: Work, asked: Asked) {
        let now_ms = self.server.now_ms;
        let id = self.client.submit(work, now_ms + self.deadline_ms, now_ms);
        self.asked.insert(id, asked);
    }

    /// A range of blocks that nothing under way touches.
    fn free_range(&mut self) -> Option<std::ops::Range<usize>> {
        let blocks = SECTORS / BLOCK_SECTORS;
        let first = self.random.index(blocks);
        let last = (first + 1 + self.random.index(12)).min(blocks);
        let range = first * BLOCK_SECTORS..last * BLOCK_SECTORS;
        let touches = |asked: &Asked| match asked {
            Asked::Write { sectors, .. } | Asked::Read { sectors, .. } => {
                sectors.start < range.end && range.start < sectors.end
            }
            _ => false,
        };
        (!self.asked.values().any(touches)).then_some(range)
    }

    fn begin(&mut self, durable: (u64, u64)) {
        let kind = self.random.below(10);
        if kind == 0 {
            let covers = self.sectors.iter().map(Sector::covered).collect();
            return self.submit(Work::Flush, Asked::Flush { covers });
        }
        let Some(sectors) = self.free_range() else {
            return;
        };
        let offset_bytes = (sectors.start * SECTOR_BYTES) as u64;
        let length_bytes = sectors.len() * SECTOR_BYTES;
        if kind < 4 {
            let floors = self.sectors[sectors.clone()].iter();
            let floors = floors.map(|sector| sector.floor).collect();
            let work = Work::Read {
                offset_bytes,
                length_bytes: u32::try_from(length_bytes).unwrap(),
            };
            return self.submit(work, Asked::Read { sectors, floors });
        }
        self.values += 1;
        let value = self.values;
        for sector in &mut self.sectors[sectors.clone()] {
            sector.values.push(value);
        }
        let is_durable = self.random.chance(durable.0, durable.1);
        let work = Work::Write {
            offset_bytes,
            data: value.to_be_bytes().repeat(length_bytes / 8).into(),
            is_durable,
        };
        self.submit(
            work,
            Asked::Write {
                sectors,
                value,
                is_durable,
            },
        );
    }

    fn judge(&mut self, at: usize, data: &[u8], floor: usize, what: &str) {
        let value = u64::from_be_bytes(*data.first_chunk().unwrap());
        let sector = &self.sectors[at];
        let lived = sector
            .acknowledged
            .filter(|(_, life)| *life == self.server.restarts);
        let floor = lived.map_or(floor, |(newest, _)| floor.max(newest));
        let is_whole = data.chunks(8).all(|word| word == value.to_be_bytes());
        if is_whole && !sector.is_lost && what == READ {
            let seen = sector.values.iter().rposition(|one| *one == value);
            self.sectors[at].seen = seen.max(sector.seen);
        }
        let sector = &self.sectors[at];
        if !is_whole || !sector.values[floor..].contains(&value) {
            let possible = &sector.values[floor..];
            self.tally
                .bad
                .push(format!("{what} {at}: {value}, possible {possible:?}"));
        }
    }

    fn done(&mut self, id: JobId, result: Result<Outcome, NfsError>) {
        let asked = self.asked.remove(&id).expect("each is answered once");
        match &result {
            Err(error) if error.kind == ErrorKind::TimedOut => self.tally.late += 1,
            Err(error) if error.kind == ErrorKind::NoSpace => self.tally.full += 1,
            _ => {}
        }
        match (asked, result) {
            (
                Asked::Write {
                    sectors,
                    value,
                    is_durable,
                },
                Ok(_),
            ) => {
                self.tally.written += 1;
                for sector in &mut self.sectors[sectors] {
                    let at = sector.values.iter().rposition(|one| *one == value).unwrap();
                    sector.acknowledged = Some((at, self.server.restarts));
                    sector.is_lost = false;
                    if is_durable {
                        sector.floor = at;
                    }
                }
            }
            (Asked::Read { sectors, floors }, Ok(Outcome::Data(data))) => {
                self.tally.read += 1;
                assert_eq!(data.len(), sectors.len() * SECTOR_BYTES);
                let sectors = sectors.zip(floors).zip(data.chunks(SECTOR_BYTES));
                for ((at, floor), data) in sectors {
                    self.judge(at, data, floor, READ);
                }
            }
            (Asked::Flush { covers }, Ok(_)) => {
                self.tally.flushed += 1;
                for (sector, covered) in self.sectors.iter_mut().zip(covers) {
                    sector.floor = sector.floor.max(covered.unwrap_or(0));
                }
            }
            _ => {}
        }
    }

    /// Lets time go by, to the next thing that happens.
    fn step(&mut self) {
        self.act();
        let now_ms = self.server.now_ms;
        let wake_at_ms = self.client.wake_at_ms().clamp(now_ms, now_ms + 60_000);
        match self.server.next(wake_at_ms) {
            Some(Due::Reply(path, _, bytes)) => {
                // As TCP gives it: in pieces.
                let cut = self.random.index(bytes.len());
                let now_ms = self.server.now_ms;
                self.client.received(path, &bytes[..cut], now_ms);
                self.client.received(path, &bytes[cut..], now_ms);
            }
            Some(Due::Cut(path, _)) if self.server.connections[path].is_none() => {
                self.client.disconnected(path, self.server.now_ms);
            }
            Some(_) => {}
            None => {
                if self.server.due.is_empty() {
                    self.server.now_ms = self.server.now_ms.max(wake_at_ms);
                }
                self.client.tick(self.server.now_ms);
            }
        }
        self.act();
    }

    fn act(&mut self) {
        while let Some(action) = self.client.next_action() {
            match action {
                Action::Connect(path) => {
                    self.server.connect(path);
                    self.client.connected(path, self.server.now_ms);
                }
                Action::Send(path, bytes) => self.server.send(path, &bytes),
                Action::Reset(path) => self.server.reset(path),
                Action::Done(id, result) => self.done(id, result),
                Action::Event(Event::LostWrites) => {
                    self.tally.losses += 1;
                    self.sectors.iter_mut().for_each(Sector::lose);
                }
                Action::Event(Event::Reclaimed) => self.tally.reclaims += 1,
                Action::Event(Event::PathDown(_)) => self.tally.failovers += 1,
                Action::Event(Event::Failed(error)) => self.failure = Some(error),
                Action::Event(_) => {}
            }
        }
    }

    /// The client dies with all it has under way, and its successor comes.
    fn succeed(&mut self) {
        // A COMMIT that is refused to who is dead by then is told to nobody, and the successor's
        // succeeds: no client can see that.
        let is_flush = |asked: &Asked| matches!(asked, Asked::Flush { .. });
        let has_commit = self.asked.values().any(is_flush)
            || self.client.late_count() > 0
            || !self.client.is_ready();
        self.verifier += 1;
        self.tally.successors += 1;
        let settings = settings(self.server.connections.len());
        let now_ms = self.server.now_ms;
        self.client = Client::new(settings, [self.verifier; 8], now_ms);
        self.server.connections.fill(None);
        self.asked.clear();
        // Nobody knows any more what was written and not flushed.
        for sector in &mut self.sectors {
            sector.acknowledged = None;
            sector.seen = None;
            sector.is_lost |= has_commit;
        }
        self.submit(Work::Size, Asked::Other);
    }

    /// Until nothing is under way.
    fn settle(&mut self) {
        let until_ms = self.server.now_ms + 200_000;
        while !self.asked.is_empty() || self.client.late_count() > 0 {
            self.step();
            assert!(
                self.server.now_ms < until_ms,
                "each is answered by its deadline"
            );
        }
    }

    fn finish(mut self) -> Tally {
        self.settle();
        self.server.faults = Faults {
            keeps_verifier: self.server.faults.keeps_verifier,
            ..Faults::default()
        };
        self.server.hangs_until_ms = 0;
        if self.failure.is_none() {
            let covers = self.sectors.iter().map(Sector::covered).collect();
            self.submit(Work::Flush, Asked::Flush { covers });
            self.settle();
        }
        // What is judged is what a restart leaves, whatever it forgets.
        self.server.restart();
        let left = std::mem::take(&mut self.server.durable);
        for (at, data) in left.chunks(SECTOR_BYTES).enumerate() {
            let floor = self.sectors[at].floor;
            self.judge(at, data, floor, "at the end sector");
        }
        self.tally.fenced = u64::from(self.failure.is_some());
        self.tally.replays = self.server.replays;
        self.tally.dropped = self.server.dropped;
        self.tally.refused_commits = self.server.refused_commits;
        self.tally.restarts = self.server.restarts - 1;
        self.tally.lost_blocks = self.server.lost_blocks;
        self.tally
    }
}

/// Runs a seed. So many in so many writes are durable before they are answered.
fn run(seed: u64, faults: Faults, durable: (u64, u64)) -> Tally {
    let mut run = Run::new(seed, faults);
    run.submit(Work::Size, Asked::Other);
    for _ in 0..600 {
        if run.random.chance(1, 400) && run.failure.is_none() {
            run.succeed();
        }
        let is_free = run.asked.len() < 5;
        if is_free && run.failure.is_none() && run.random.chance(1, 2) {
            run.begin(durable);
        }
        run.step();
    }
    run.finish()
}

fn faults(seed: u64) -> Faults {
    let on = |bit: u64, rate: u64| if seed >> bit & 1 == 0 { rate } else { 0 };
    Faults {
        restarts: 6,
        keeps_verifier: seed.is_multiple_of(3),
        cuts: on(0, 30),
        late: on(1, 30),
        short: on(2, 100),
        delays: on(3, 60),
        hangs: on(4, 3),
        full: on(5, 10),
        confused: on(6, 5),
        // Not beside a server that has each request twice: it would refuse one and run the other.
        failing: if seed >> 1 & 1 == 1 { 4 } else { 0 },
        drops: on(7, 20),
        refused_commits: on(8, 40),
        forgets: 0,
    }
}

/// 400, or as many as `SPINDLE_NFS_SEEDS` says.
fn seeds() -> u64 {
    let asked = std::env::var("SPINDLE_NFS_SEEDS");
    asked.map_or(400, |asked| asked.parse().expect("a number of seeds"))
}

#[test]
fn what_was_flushed_is_there_or_its_loss_is_told() {
    let mut sum = Tally::default();
    for seed in 0..seeds() {
        let one = run(seed, faults(seed), (1, 4));
        assert!(one.bad.is_empty(), "seed {seed}: {:?}", one.bad);
        assert_eq!(
            one.fenced, 0,
            "seed {seed}: the server gives the file back to who had it"
        );
        add(&mut sum, one);
    }
    println!("{sum:?}");
    // What the seeds are there for has happened.
    let happened = [
        sum.late,
        sum.full,
        sum.losses,
        sum.failovers,
        sum.reclaims,
        sum.replays,
        sum.lost_blocks,
        sum.dropped,
        sum.refused_commits,
        sum.successors,
    ];
    assert!(happened.iter().all(|count| *count > 20), "{sum:?}");
    assert!(
        sum.written > 5000 && sum.read > 3000 && sum.flushed > 500,
        "{sum:?}"
    );
}

#[test]
fn what_was_written_durably_is_there_though_the_server_keeps_its_verifier() {
    let mut sum = Tally::default();
    for seed in 0..200 {
        let faults = Faults {
            keeps_verifier: true,
            // Whatever is refused, or ends without an answer, leaves a doubt that a restart makes a
            // loss: here is none.
            refused_commits: 0,
            confused: 0,
            failing: 0,
            full: 0,
            ..faults(seed)
        };
        let one = run(seed, faults, (1, 1));
        assert!(one.bad.is_empty(), "seed {seed}: {:?}", one.bad);
        add(&mut sum, one);
    }
    assert!(sum.restarts > 50 && sum.losses == 0, "{sum:?}");
}

#[test]
fn a_server_that_forgets_without_a_sign_is_found_by_the_judge_of_these_tests() {
    let mut bad = 0;
    for seed in 0..100 {
        let faults = Faults {
            forgets: 3,
            ..faults(seed)
        };
        bad += run(seed, faults, (0, 1)).bad.len();
    }
    assert!(
        bad > 0,
        "no client can see such a loss, and the judge has to"
    );
}
