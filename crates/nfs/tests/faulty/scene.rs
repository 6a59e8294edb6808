//! One server and one client, whose every step a test can look at and meddle with.

use std::collections::BTreeMap;

use spindle_nfs::wire::operation;
use spindle_nfs::xdr::Reader;
use spindle_nfs::{Action, Client, Event, JobId, NfsError, Outcome, Settings, Work};

use super::{Due, Faults, Server, settings};

pub const BLOCK_BYTES: usize = 4096;
pub const DEADLINE_MS: u64 = 30_000;

/// Changes a reply to a call of this operation, or loses it.
pub type Meddle = Box<dyn FnMut(u32, Vec<u8>) -> Option<Vec<u8>>>;

/// Both ends, and what happened.
pub struct Scene {
    pub server: Server,
    pub client: Client,
    pub answers: BTreeMap<JobId, Result<Outcome, NfsError>>,
    pub events: Vec<Event>,
    /// What is sent on this path reaches the server only in the end.
    pub held_path: Option<usize>,
    pub held: Vec<Vec<u8>>,
    pub sent: Vec<(usize, Vec<u8>)>,
    /// Which calls the network loses.
    pub drops: Box<dyn FnMut(u32) -> bool>,
    pub meddles: Meddle,
    /// How often time came to a stand.
    idle: u32,
}

impl Scene {
    pub fn new(settings: Settings) -> Self {
        let paths = settings.paths;
        Self {
            server: Server::new(1, Faults::default(), 64 * BLOCK_BYTES, paths),
            client: Client::new(settings, [1; 8], 0),
            answers: BTreeMap::new(),
            events: Vec::new(),
            held_path: None,
            held: Vec::new(),
            sent: Vec::new(),
            drops: Box::new(|_| false),
            meddles: Box::new(|_, reply| Some(reply)),
            idle: 0,
        }
    }

    /// With the file held, and every path up.
    pub fn opened(paths: usize) -> Self {
        Self::opened_with(settings(paths))
    }

    pub fn opened_with(settings: Settings) -> Self {
        let mut scene = Self::new(settings);
        scene.run(Work::Size).unwrap();
        scene.pass(100);
        scene
    }

    pub fn act(&mut self) {
        while let Some(action) = self.client.next_action() {
            match action {
                Action::Connect(path) => {
                    self.server.connect(path);
                    self.client.connected(path, self.server.now_ms);
                }
                Action::Send(path, bytes) => {
                    self.sent.push((path, bytes.to_vec()));
                    if self.held_path == Some(path) {
                        self.held.push(bytes.to_vec());
                    } else if !(self.drops)(asked(&bytes)) {
                        self.server.send(path, &bytes);
                    }
                }
                Action::Reset(path) => self.server.reset(path),
                Action::Done(id, result) => {
                    self.answers.insert(id, result);
                }
                Action::Event(event) => self.events.push(event),
            }
        }
    }

    /// Lets the next thing happen, by `until_ms`.
    pub fn step(&mut self, until_ms: u64) {
        self.act();
        let now_ms = self.server.now_ms;
        let wake_at_ms = self.client.wake_at_ms().clamp(now_ms, until_ms);
        match self.server.next(wake_at_ms) {
            Some(Due::Reply(path, _, bytes)) => {
                let call = self.sent.iter().rev();
                let call = call
                    .map(|(_, call)| call)
                    .find(|call| call[4..8] == bytes[4..8]);
                if let Some(bytes) = (self.meddles)(asked(call.unwrap()), bytes) {
                    self.client.received(path, &bytes, self.server.now_ms);
                }
            }
            Some(Due::Cut(path, _)) => self.client.disconnected(path, self.server.now_ms),
            _ => {
                self.server.now_ms = self.server.now_ms.max(wake_at_ms);
                self.client.tick(self.server.now_ms);
            }
        }
        self.idle = if self.server.now_ms > now_ms {
            0
        } else {
            self.idle + 1
        };
        assert!(
            self.idle < 1000,
            "the client is woken for what it does not do"
        );
        self.act();
    }

    /// Lets so much time go by.
    pub fn pass(&mut self, duration_ms: u64) {
        let until_ms = self.server.now_ms + duration_ms;
        while self.server.now_ms < until_ms {
            self.step(until_ms);
        }
    }

    pub fn begin(&mut self, work: Work) -> JobId {
        let now_ms = self.server.now_ms;
        let id = self.client.submit(work, now_ms + DEADLINE_MS, now_ms);
        self.act();
        id
    }

    pub fn end(&mut self, id: JobId) -> Result<Outcome, NfsError> {
        loop {
            if let Some(result) = self.answers.remove(&id) {
                return result;
            }
            self.step(self.server.now_ms + 1000);
        }
    }

    /// Lets things happen until this is so.
    pub fn until(&mut self, mut is_so: impl FnMut(&Self) -> bool) {
        let latest_ms = self.server.now_ms + 200_000;
        while !is_so(self) {
            assert!(self.server.now_ms < latest_ms, "it does not happen");
            self.step(self.server.now_ms + 1000);
        }
    }

    pub fn run(&mut self, work: Work) -> Result<Outcome, NfsError> {
        let id = self.begin(work);
        self.end(id)
    }
}

/// What a call asks for: its first operation behind the slot and the file; 0 where it is none.
pub fn asked(call: &[u8]) -> u32 {
    first_operation(call).unwrap_or(0)
}

fn first_operation(call: &[u8]) -> Result<u32, spindle_nfs::xdr::Violation> {
    let mut reader = Reader::new(&call[4..]);
    reader.array::<28>()?;
    reader.opaque(400)?;
    reader.array::<8>()?;
    reader.opaque(100)?;
    reader.array::<8>()?;
    let mut number = reader.u32()?;
    if number == operation::SEQUENCE {
        reader.array::<32>()?;
        number = reader.u32().unwrap_or(number);
    }
    if number == operation::PUTFH {
        reader.opaque(128)?;
        number = reader.u32()?;
    }
    Ok(number)
}

/// How many calls of an operation were sent.
pub fn count(scene: &Scene, number: u32) -> usize {
    let calls = scene.sent.iter();
    calls.filter(|(_, call)| asked(call) == number).count()
}

pub fn write(block: u64, value: u8, is_durable: bool) -> Work {
    Work::Write {
        offset_bytes: block * BLOCK_BYTES as u64,
        data: vec![value; BLOCK_BYTES].into(),
        is_durable,
    }
}
