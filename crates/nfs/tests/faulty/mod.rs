//! An NFSv4.1 server without sockets and without a clock, faulty by a seed.
//!
//! The fault model: a restart forgets sessions, opens and (some of) what was written unstable, and
//! changes its verifier, or keeps it where it lies. A request may be run late, twice, or not before
//! its connection is cut; an answer may be short, be lost, or say `DELAY`; the server may hang, have
//! no room, or not know the file any more. A request may be dropped while others are answered; a
//! `COMMIT` may be refused, and what it was to write is then taken for written, as a kernel takes the
//! pages of a failed `fsync`; data may be forgotten without any sign. The slots themselves are right: they are what is relied on.

#![allow(dead_code, reason = "each story uses another part of it")]

mod memory;
pub mod operations;
pub mod scene;
pub mod tally;

use std::collections::{BTreeMap, BTreeSet};

use spindle_device::SeededRandom;
use spindle_nfs::rpc::Credentials;
use spindle_nfs::wire::operation;
use spindle_nfs::xdr::{Put, Reader, Violation};
use spindle_nfs::{Access, FileWanted, Settings, Status};

/// What the server does wrong.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// Restarts, by thousands of requests.
    pub restarts: u64,
    /// A restart keeps the verifier, and so nobody can see what is lost.
    pub keeps_verifier: bool,
    /// Connections that are cut, by thousands of requests.
    pub cuts: u64,
    /// Requests that are run late, or twice.
    pub late: u64,
    /// Answers that are short.
    pub short: u64,
    /// Answers that say `DELAY`.
    pub delays: u64,
    /// Times of no answer at all.
    pub hangs: u64,
    /// Answers that say `NOSPC`.
    pub full: u64,
    /// Requests that are refused as out of their slot's order, which they are not: the client gives
    /// up a session that lives on.
    pub confused: u64,
    /// Requests that are refused before they are looked at, for a reason of the server's own.
    pub failing: u64,
    /// Requests that are dropped, while others of the connection are answered.
    pub drops: u64,
    /// Refused `COMMIT`s.
    pub refused_commits: u64,
    /// Requests before which unstable data is forgotten, and nothing tells of it.
    pub forgets: u64,
}

/// How long a restarted server lets files be claimed only as they were.
pub const GRACE_MS: u64 = 90_000;

#[derive(Debug, Default)]
pub struct SlotState {
    pub sequence: u32,
    pub reply: Option<Vec<u8>>,
}

#[derive(Debug)]
pub struct SessionState {
    pub client: u64,
    pub slots: Vec<SlotState>,
}

#[derive(Debug, Clone)]
pub struct ClientState {
    pub id: u64,
    pub verifier: [u8; 8],
    pub is_confirmed: bool,
    pub is_complete: bool,
}

/// Something that happens at a time.
#[derive(Debug)]
pub enum Due {
    /// A request reaches the server: on which connection, of which server's life.
    Request(usize, u64, Vec<u8>),
    /// A reply reaches the client.
    Reply(usize, u64, Vec<u8>),
    /// The client sees that its connection is cut.
    Cut(usize, u64),
}

/// A client of one file, which it makes, with so many paths and one slot.
pub fn settings(paths: usize) -> Settings {
    Settings {
        paths,
        credentials: Credentials {
            machine_name: "here".to_owned(),
            uid: 0,
            gid: 0,
        },
        owner: b"a host and a group".to_vec(),
        directory: vec!["disks".to_owned()],
        file: Some(FileWanted {
            name: "a".to_owned(),
            makes: true,
            access: Access::Own,
        }),
        transfer_bytes: 8 << 10,
        slots: 1,
        probe_after_ms: 2000,
        silent_after_ms: 5000,
        dropped_after_ms: 10_000,
    }
}

/// The server and the network to it.
pub struct Server {
    pub random: SeededRandom,
    pub faults: Faults,
    pub now_ms: u64,
    pub due: BTreeMap<(u64, u64), Due>,
    /// Which connection each path has, counted.
    pub connections: Vec<Option<u64>>,
    pub hangs_until_ms: u64,
    pub grace_until_ms: u64,
    pub is_stale: bool,
    pub durable: Vec<u8>,
    pub current: Vec<u8>,
    pub verifier: u64,
    pub clients: BTreeMap<Vec<u8>, ClientState>,
    /// Those that have no session yet.
    pub unconfirmed: BTreeMap<Vec<u8>, ClientState>,
    pub sessions: BTreeMap<[u8; 16], SessionState>,
    /// Who has the file open, keeping writers out.
    pub holder: Option<u64>,
    /// Who had it open before the restart.
    pub former_holder: Option<Vec<u8>>,
    pub restarts: u64,
    pub lost_blocks: u64,
    pub replays: u64,
    /// Blocks that are taken for written, and are not.
    pub unwritable: BTreeSet<usize>,
    /// So many more `COMMIT`s are refused.
    pub commits_to_refuse: u64,
    pub refused_commits: u64,
    pub dropped: u64,
    /// What durable writes are told.
    pub durable_refusal: Option<Status>,
    /// What the next request in a slot is told, which is not looked at.
    pub sequence_refusal: Option<Status>,
    /// What whoever registers is told.
    pub exchange_refusal: Option<Status>,
    /// How a session was bound to which connection; asked for only where a session ends.
    pub bound: BTreeSet<([u8; 16], u64)>,
    pub checks_binding: bool,
    /// The connection whose request is run.
    pub serving: u64,
    numbers: u64,
    /// Of clients, in this life: a server that starts again may call its clients as before.
    pub clients_named: u64,
}

impl Server {
    pub fn new(seed: u64, faults: Faults, size_bytes: usize, paths: usize) -> Self {
        Self {
            random: SeededRandom::new(seed),
            faults,
            now_ms: 0,
            due: BTreeMap::new(),
            connections: vec![None; paths],
            hangs_until_ms: 0,
            grace_until_ms: 0,
            is_stale: false,
            durable: vec![0; size_bytes],
            current: vec![0; size_bytes],
            verifier: 1,
            clients: BTreeMap::new(),
            unconfirmed: BTreeMap::new(),
            sessions: BTreeMap::new(),
            holder: None,
            former_holder: None,
            restarts: 0,
            lost_blocks: 0,
            replays: 0,
            unwritable: BTreeSet::new(),
            commits_to_refuse: 0,
            refused_commits: 0,
            dropped: 0,
            durable_refusal: None,
            sequence_refusal: None,
            exchange_refusal: None,
            bound: BTreeSet::new(),
            checks_binding: false,
            serving: 0,
            numbers: 100,
            clients_named: 0,
        }
    }

    pub fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn plan(&mut self, after_ms: u64, due: Due) {
        let number = self.number();
        self.due.insert((self.now_ms + after_ms, number), due);
    }

    fn meets(&mut self, per_thousand: u64) -> bool {
        self.random.chance(per_thousand, 1000)
    }

    /// A new connection of the path.
    pub fn connect(&mut self, path: usize) {
        let number = self.number();
        self.connections[path] = Some(number);
    }

    /// The client cut the path. What was under way on it may still reach the server.
    pub fn reset(&mut self, path: usize) {
        self.connections[path] = None;
    }

    /// The client sends bytes, which are one call.
    pub fn send(&mut self, path: usize, bytes: &[u8]) {
        let Some(connection) = self.connections[path] else {
            return;
        };
        let late = self.faults.late;
        if self.meets(self.faults.cuts) {
            // Whether what was sent before the cut is run is not known.
            if self.random.chance(1, 2) {
                let after_ms = self.random.below(4000);
                self.plan(after_ms, Due::Request(path, connection, bytes.to_vec()));
            }
            self.connections[path] = None;
            self.plan(1, Due::Cut(path, connection));
            return;
        }
        if self.meets(self.faults.drops) {
            self.dropped += 1;
            return;
        }
        let travel_ms = 1 + self.random.below(3);
        let is_late = self.meets(late);
        let after_ms = travel_ms + if is_late { self.random.below(9000) } else { 0 };
        self.plan(after_ms, Due::Request(path, connection, bytes.to_vec()));
        if self.meets(late) {
            let after_ms = travel_ms + self.random.below(3000);
            self.plan(after_ms, Due::Request(path, connection, bytes.to_vec()));
        }
    }

    /// The next that reaches the client, up to `until_ms`; the time is then that of it.
    pub fn next(&mut self, until_ms: u64) -> Option<Due> {
        loop {
            let (&(at_ms, number), _) = self.due.first_key_value()?;
            if at_ms > until_ms {
                self.now_ms = self.now_ms.max(until_ms);
                return None;
            }
            self.now_ms = self.now_ms.max(at_ms);
            match self.due.remove(&(at_ms, number))? {
                Due::Request(path, connection, bytes) => self.run(path, connection, bytes),
                Due::Reply(path, connection, bytes) => {
                    if self.connections[path] == Some(connection) {
                        return Some(Due::Reply(path, connection, bytes));
                    }
                }
                Due::Cut(path, connection) => return Some(Due::Cut(path, connection)),
            }
        }
    }

    fn run(&mut self, path: usize, connection: u64, bytes: Vec<u8>) {
        if self.now_ms < self.hangs_until_ms {
            let after_ms = self.hangs_until_ms - self.now_ms;
            self.plan(after_ms, Due::Request(path, connection, bytes));
            return;
        }
        if self.meets(self.faults.hangs) {
            self.hangs_until_ms = self.now_ms + 1000 + self.random.below(40_000);
        }
        if self.meets(self.faults.restarts) {
            self.restart();
            return;
        }
        if self.meets(self.faults.forgets) {
            self.forget();
        }
        self.serving = connection;
        let reply = self.answer(&bytes).expect("calls of ours can be read");
        let travel_ms = 1 + self.random.below(3);
        self.plan(travel_ms, Due::Reply(path, connection, reply));
    }

    /// The server dies and is there again, having forgotten what it held in memory.
    pub fn restart(&mut self) {
        self.restarts += 1;
        self.forget();
        if !self.faults.keeps_verifier {
            self.verifier = self.number();
        }
        self.sessions.clear();
        let holder = self.holder.take();
        let mut owners = self.clients.iter();
        let former = owners.find(|(_, client)| Some(client.id) == holder);
        if let Some((owner, _)) = former {
            self.former_holder = Some(owner.clone());
        }
        self.clients.clear();
        self.unconfirmed.clear();
        self.clients_named = 0;
        self.grace_until_ms = self.now_ms + GRACE_MS;
        for path in 0..self.connections.len() {
            if let Some(connection) = self.connections[path].take() {
                self.plan(1, Due::Cut(path, connection));
            }
        }
        // What a dead process had in its sockets is gone.
        self.due.retain(|_, due| matches!(due, Due::Cut(..)));
    }

    /// Runs a call, and gives the reply as a record.
    fn answer(&mut self, call: &[u8]) -> Result<Vec<u8>, Violation> {
        let mut reader = Reader::new(&call[4..]);
        let xid = reader.u32()?;
        reader.array::<16>()?;
        let procedure = reader.u32()?;
        reader.u32()?;
        reader.opaque(400)?;
        reader.array::<8>()?;
        let mut bytes = vec![0; 4];
        for word in [xid, 1, 0, 0, 0, 0] {
            bytes.put_u32(word);
        }
        if procedure == 1 {
            reader.opaque(100)?;
            assert_eq!(reader.u32()?, 1, "the minor version");
            let count = reader.u32()?;
            let results = self.compound(&mut reader, count)?;
            bytes.extend_from_slice(&results);
        }
        spindle_nfs::rpc::finish_record(&mut bytes);
        Ok(bytes)
    }

    fn compound(&mut self, reader: &mut Reader<'_>, count: u32) -> Result<Vec<u8>, Violation> {
        let first = reader.u32()?;
        if first != operation::SEQUENCE {
            let (status, body) = self.outside_a_session(first, reader)?;
            return Ok(results(&[(first, status, body)]));
        }
        let session: [u8; 16] = reader.array()?;
        let sequence = reader.u32()?;
        let slot = reader.u32()?;
        reader.u32()?;
        let is_cached = reader.bool()?;
        let refused = |status| Ok(results(&[(first, status, Vec::new())]));
        if self.meets(self.faults.delays) {
            return refused(Status::DELAY);
        }
        if let Some(status) = self.sequence_refusal.take() {
            return refused(status);
        }
        if self.meets(self.faults.failing) {
            return refused(Status::SERVERFAULT);
        }
        if self.meets(self.faults.confused) {
            return refused(Status::SEQ_MISORDERED);
        }
        let Some(state) = self.sessions.get_mut(&session) else {
            return refused(Status::BADSESSION);
        };
        let client = state.client;
        let Some(place) = state.slots.get_mut(slot as usize) else {
            return refused(Status::BADSLOT);
        };
        if sequence == place.sequence && sequence > 0 {
            self.replays += 1;
            return match &place.reply {
                Some(reply) => Ok(reply.clone()),
                None => refused(Status::RETRY_UNCACHED_REP),
            };
        }
        if sequence != place.sequence.wrapping_add(1) {
            return refused(Status::SEQ_MISORDERED);
        }
        let mut body = session.to_vec();
        for word in [sequence, slot, 7, 7, 0] {
            body.put_u32(word);
        }
        let mut done = vec![(first, Status::OK, body)];
        for _ in 1..count {
            let number = reader.u32()?;
            let (status, body) = self.in_a_session(client, number, reader)?;
            done.push((number, status, body));
            if status != Status::OK {
                break;
            }
        }
        let is_done = done.iter().all(|(_, status, _)| *status == Status::OK);
        assert!(
            !is_done || reader.rest().is_empty(),
            "nothing follows the last operation"
        );
        let reply = results(&done);
        if let Some(state) = self.sessions.get_mut(&session) {
            let place = &mut state.slots[slot as usize];
            place.sequence = sequence;
            place.reply = is_cached.then(|| reply.clone());
        }
        Ok(reply)
    }
}

fn results(done: &[(u32, Status, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let status = done.last().map_or(Status::OK, |(_, status, _)| *status);
    bytes.put_u32(status.0);
    bytes.put_u32(0);
    bytes.put_u32(u32::try_from(done.len()).unwrap());
    for (number, status, body) in done {
        bytes.put_u32(*number);
        bytes.put_u32(status.0);
        bytes.extend_from_slice(body);
    }
    bytes
}
