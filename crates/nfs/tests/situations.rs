//! Situations with one server and one client, each by hand: what the seeds found, and what they are
//! not sure to meet.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod faulty;

use faulty::scene::{BLOCK_BYTES, DEADLINE_MS, Scene, write};
use faulty::{GRACE_MS, settings};
use spindle_nfs::{Client, ErrorKind, Event, Outcome, Settings, Work};

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
    scene.client = Client::new(other, [1; 8], scene.server.now_ms);
    let error = scene.run(Work::Size).unwrap_err();
    assert_eq!(error.kind, ErrorKind::InUse, "{error}");
    scene.client = Client::new(settings(1), [2; 8], scene.server.now_ms);
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
