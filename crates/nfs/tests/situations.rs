//! Situations with one server and one client, each by hand: what the seeds found, and what they are
//! not sure to meet.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod faulty;

use std::collections::BTreeMap;

use faulty::{Due, Faults, GRACE_MS, Server, settings};
use spindle_nfs::{Action, Client, ErrorKind, Event, JobId, NfsError, Outcome, Settings, Work};

const BLOCK_BYTES: usize = 4096;
const DEADLINE_MS: u64 = 30_000;

/// Both ends, and what happened.
struct Scene {
    server: Server,
    client: Client,
    answers: BTreeMap<JobId, Result<Outcome, NfsError>>,
    events: Vec<Event>,
    /// What is sent on this path reaches the server only in the end.
    held_path: Option<usize>,
    held: Vec<Vec<u8>>,
    sent: Vec<(usize, Vec<u8>)>,
}

impl Scene {
    fn new(settings: Settings) -> Self {
        let paths = settings.paths;
        Self {
            server: Server::new(1, Faults::default(), 64 * BLOCK_BYTES, paths),
            client: Client::new(settings, 0),
            answers: BTreeMap::new(),
            events: Vec::new(),
            held_path: None,
            held: Vec::new(),
            sent: Vec::new(),
        }
    }

    /// With the file held, and every path up.
    fn opened(paths: usize) -> Self {
        Self::opened_with(settings(paths))
    }

    fn opened_with(settings: Settings) -> Self {
        let mut scene = Self::new(settings);
        scene.run(Work::Size).unwrap();
        scene.pass(100);
        scene
    }

    fn act(&mut self) {
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
                    } else {
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
    fn step(&mut self, until_ms: u64) {
        self.act();
        let wake_at_ms = self.client.wake_at_ms().clamp(self.server.now_ms, until_ms);
        match self.server.next(wake_at_ms) {
            Some(Due::Reply(path, _, bytes)) => {
                self.client.received(path, &bytes, self.server.now_ms);
            }
            Some(Due::Cut(path, _)) => self.client.disconnected(path, self.server.now_ms),
            _ => {
                self.server.now_ms = self.server.now_ms.max(wake_at_ms);
                self.client.tick(self.server.now_ms);
            }
        }
        self.act();
    }

    /// Lets so much time go by.
    fn pass(&mut self, duration_ms: u64) {
        let until_ms = self.server.now_ms + duration_ms;
        while self.server.now_ms < until_ms {
            self.step(until_ms);
        }
    }

    fn begin(&mut self, work: Work) -> JobId {
        let now_ms = self.server.now_ms;
        let id = self.client.submit(work, now_ms + DEADLINE_MS, now_ms);
        self.act();
        id
    }

    fn end(&mut self, id: JobId) -> Result<Outcome, NfsError> {
        loop {
            if let Some(result) = self.answers.remove(&id) {
                return result;
            }
            self.step(self.server.now_ms + 1000);
        }
    }

    fn run(&mut self, work: Work) -> Result<Outcome, NfsError> {
        let id = self.begin(work);
        self.end(id)
    }
}

fn write(block: u64, value: u8, is_durable: bool) -> Work {
    Work::Write {
        offset_bytes: block * BLOCK_BYTES as u64,
        data: vec![value; BLOCK_BYTES].into(),
        is_durable,
    }
}

#[test]
fn a_write_that_a_silent_path_holds_does_not_come_over_a_later_one() {
    let mut scene = Scene::opened(2);
    scene.held_path = Some(0);
    // Requests go to the first path where none is busy.
    let second = scene.begin(write(3, 2, true));
    assert_eq!(scene.held.len(), 1, "it is on its way on the silent path");
    assert_eq!(scene.end(second), Ok(Outcome::Done));
    assert!(scene.server.now_ms >= 5000, "it was waited for");
    let is_write = |bytes: &Vec<u8>| bytes.len() > BLOCK_BYTES;
    let mut writes = scene.sent.iter().filter(|(_, bytes)| is_write(bytes));
    let (first, again) = (writes.next().unwrap(), writes.next().unwrap());
    assert_eq!((first.0, again.0), (0, 1), "once on each path");
    assert_eq!(first.1, again.1, "the same slot and sequence");
    assert_eq!(scene.run(write(3, 3, true)), Ok(Outcome::Done));
    // The silent path heals, and what it held reaches the server.
    let path = scene.server.connections.len() - 1;
    for bytes in std::mem::take(&mut scene.held) {
        scene.server.send(path, &bytes);
    }
    scene.pass(1000);
    assert_eq!(scene.server.current[3 * BLOCK_BYTES], 3);
}

#[test]
fn a_path_whose_server_accepts_connections_and_answers_nothing_is_not_up() {
    let mut scene = Scene::new(settings(1));
    scene.server.hangs_until_ms = u64::MAX / 2;
    let error = scene.run(Work::Size).unwrap_err();
    assert_eq!(error.kind, ErrorKind::TimedOut);
    assert!(!scene.events.contains(&Event::PathUp(0)));
    assert!(
        scene.events.contains(&Event::PathDown(0)),
        "it was given up and tried again"
    );
}

#[test]
fn a_server_that_names_its_clients_as_before_its_restart_is_claimed_from_all_the_same() {
    let mut scene = Scene::opened(1);
    scene.server.restart();
    assert_eq!(scene.run(write(0, 1, true)), Ok(Outcome::Done));
    assert!(scene.events.contains(&Event::Reclaimed));
    assert!(
        scene.server.now_ms < GRACE_MS,
        "nothing waits for the end of the grace period"
    );
}

#[test]
fn a_client_that_comes_back_after_the_grace_period_writes_nothing_any_more() {
    let mut scene = Scene::opened(1);
    scene.server.restart();
    scene.server.grace_until_ms = 0;
    let error = scene.run(write(0, 1, true)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Fenced, "{error}");
    let error = scene.run(Work::Size).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Fenced, "{error}");
    assert_eq!(scene.server.current[0], 0);
}

#[test]
fn a_second_host_is_refused_and_a_new_start_of_the_first_is_not() {
    let mut scene = Scene::opened(1);
    let mut other = settings(1);
    other.owner = b"another host".to_vec();
    scene.client = Client::new(other, scene.server.now_ms);
    let error = scene.run(Work::Size).unwrap_err();
    assert_eq!(error.kind, ErrorKind::InUse, "{error}");
    let mut again = settings(1);
    again.verifier = [2; 8];
    scene.client = Client::new(again, scene.server.now_ms);
    assert!(scene.run(Work::Size).is_ok());
}

#[test]
fn what_the_server_says_is_told_by_its_kind() {
    let mut scene = Scene::opened(1);
    scene.server.faults.full = 1000;
    let error = scene.run(write(0, 1, true)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NoSpace);
    scene.server.faults.full = 0;
    scene.server.is_stale = true;
    let error = scene.run(write(0, 1, true)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Gone);
    scene.server.is_stale = false;
    let beyond = Work::Read {
        offset_bytes: 63 * BLOCK_BYTES as u64,
        length_bytes: 3 * 4096,
    };
    assert_eq!(scene.run(beyond).unwrap_err().kind, ErrorKind::Gone);
}

#[test]
fn a_server_that_asks_for_patience_is_given_it_until_the_deadline() {
    let mut scene = Scene::opened(1);
    scene.server.faults.delays = 1000;
    let id = scene.begin(write(0, 1, true));
    scene.pass(10_000);
    scene.server.faults.delays = 0;
    assert_eq!(scene.end(id), Ok(Outcome::Done));
    scene.server.faults.delays = 1000;
    let began_ms = scene.server.now_ms;
    let error = scene.run(write(0, 2, true)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::TimedOut);
    assert_eq!(scene.server.now_ms - began_ms, DEADLINE_MS);
}

#[test]
fn a_request_that_is_late_keeps_its_slot_until_it_is_answered() {
    let mut scene = Scene::opened(1);
    scene.server.hangs_until_ms = scene.server.now_ms + 40_000;
    let error = scene.run(write(0, 1, true)).unwrap_err();
    assert_eq!(
        (error.kind, scene.client.late_count()),
        (ErrorKind::TimedOut, 1)
    );
    scene.pass(15_000);
    assert_eq!(scene.client.late_count(), 0);
    assert_eq!(scene.run(write(0, 2, true)), Ok(Outcome::Done));
    scene.pass(60_000);
    assert_eq!(scene.server.current[0], 2);
}

#[test]
fn nothing_is_written_beside_a_write_that_was_given_up_and_may_still_be_done() {
    let mut scene = Scene::opened_with(Settings {
        slots: 4,
        // Nobody looks whether the path is silent.
        probe_after_ms: 100_000,
        silent_after_ms: 100_000,
        ..settings(1)
    });
    scene.server.hangs_until_ms = scene.server.now_ms + 40_000;
    let error = scene.run(write(0, 1, true)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::TimedOut);
    assert_eq!(scene.client.late_count(), 1);
    let id = scene.begin(write(0, 2, true));
    let is_sent = |scene: &Scene| {
        let has_data = |bytes: &[u8]| bytes.windows(64).any(|part| part == [2; 64]);
        scene.sent.iter().any(|(_, bytes)| has_data(bytes))
    };
    while !is_sent(&scene) {
        scene.step(u64::MAX / 2);
    }
    assert_eq!(scene.client.late_count(), 0, "it waits for the first one");
    assert_eq!(scene.end(id), Ok(Outcome::Done));
    assert_eq!(scene.server.current[0], 2);
}

#[test]
fn a_write_of_two_pieces_the_first_of_which_was_forgotten_is_written_again() {
    let mut scene = Scene::opened(1);
    let two_pieces = Work::Write {
        offset_bytes: 0,
        data: vec![7; 4 * BLOCK_BYTES].into(),
        is_durable: false,
    };
    let id = scene.begin(two_pieces);
    while scene.server.current[0] != 7 {
        scene.step(u64::MAX / 2);
    }
    // The answer has come, and the second piece is under way: the server forgets the first.
    while scene
        .sent
        .iter()
        .filter(|(_, bytes)| bytes.len() > BLOCK_BYTES)
        .count()
        < 2
    {
        scene.step(u64::MAX / 2);
    }
    scene
        .server
        .current
        .copy_from_slice(&scene.server.durable.clone());
    scene.server.verifier += 1000;
    assert_eq!(scene.end(id), Ok(Outcome::Done));
    assert!(scene.events.contains(&Event::LostWrites));
    assert_eq!(
        scene.server.current[..4 * BLOCK_BYTES],
        [7; 4 * BLOCK_BYTES]
    );
    assert_eq!(
        scene.run(Work::Flush).unwrap_err().kind,
        ErrorKind::LostWrites
    );
    assert_eq!(scene.run(Work::Flush), Ok(Outcome::Done));
    assert_eq!(
        scene.server.durable[..4 * BLOCK_BYTES],
        [7; 4 * BLOCK_BYTES]
    );
}

#[test]
fn a_client_without_work_keeps_its_lease() {
    let mut scene = Scene::opened(1);
    let before = scene.sent.len();
    scene.pass(u64::from(faulty::operations::LEASE_S) * 1000);
    let sent = scene.sent.len() - before;
    assert!((2..=4).contains(&sent), "{sent} requests in a lease");
}

#[test]
fn a_closed_disk_is_free_for_another_host_at_once() {
    let mut scene = Scene::opened(1);
    assert_eq!(scene.run(Work::Close), Ok(Outcome::Done));
    assert_eq!(
        (scene.server.holder, scene.server.sessions.len()),
        (None, 0)
    );
    assert_eq!(scene.run(Work::Size).unwrap_err().kind, ErrorKind::Closed);
}

#[test]
fn a_close_whose_answer_was_lost_together_with_the_session_is_a_close() {
    let mut scene = Scene::opened(1);
    scene.held_path = Some(0);
    let id = scene.begin(Work::Close);
    // It is done, and its answer goes nowhere: the connection and the session are lost.
    scene.server.holder = None;
    scene.server.sessions.clear();
    scene.server.connections[0] = None;
    scene.held_path = None;
    scene.client.disconnected(0, scene.server.now_ms);
    assert_eq!(scene.end(id), Ok(Outcome::Done));
    assert!(scene.server.sessions.is_empty());
}
