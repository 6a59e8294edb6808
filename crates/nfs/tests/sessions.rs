//! Requests that nobody answers, and sessions that are hard to get, each by hand.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod faulty;

use faulty::scene::{BLOCK_BYTES, DEADLINE_MS, Scene, count, write};
use faulty::settings;
use spindle_nfs::wire::operation;
use spindle_nfs::{Access, Client, ErrorKind, Event, FileWanted, Outcome, Settings, Status, Work};

fn read() -> Work {
    Work::Read {
        offset_bytes: 0,
        length_bytes: 512,
    }
}

/// Drops the first call of an operation.
fn drops_one(number: u32) -> Box<dyn FnMut(u32) -> bool> {
    let mut is_first = true;
    Box::new(move |asked| asked == number && std::mem::take(&mut is_first))
}

#[test]
fn a_request_that_a_server_dropped_alone_is_asked_again_long_before_its_deadline() {
    let mut scene = Scene::opened_with(Settings {
        slots: 4,
        ..settings(1)
    });
    scene.drops = drops_one(operation::WRITE);
    let began_ms = scene.server.now_ms;
    let id = scene.begin(write(0, 1, true));
    while !scene.answers.contains_key(&id) {
        scene.run(read()).unwrap();
        scene.pass(500);
        assert!(scene.server.now_ms < began_ms + DEADLINE_MS);
    }
    assert_eq!(scene.end(id), Ok(Outcome::Done));
    let took_ms = scene.server.now_ms - began_ms;
    assert!((5000..DEADLINE_MS / 2).contains(&took_ms), "{took_ms}");
}

#[test]
fn a_request_that_takes_long_is_asked_again_ever_more_rarely() {
    let mut scene = Scene::opened_with(Settings {
        slots: 4,
        ..settings(1)
    });
    scene.drops = Box::new(|asked| asked == operation::WRITE);
    let now_ms = scene.server.now_ms;
    let work = write(0, 1, true);
    scene.client.submit(work, now_ms + 300_000, now_ms);
    scene.pass(300_000);
    let sent = count(&scene, operation::WRITE);
    assert!((4..=6).contains(&sent), "{sent} times in five minutes");
}

#[test]
fn a_first_call_that_is_dropped_where_the_server_answers_probes_is_made_again() {
    let mut scene = Scene::new(settings(1));
    scene.drops = drops_one(operation::EXCHANGE_ID);
    assert!(scene.run(Work::Size).is_ok());
    assert!(scene.server.now_ms < DEADLINE_MS / 2);
}

#[test]
fn a_slots_number_is_not_used_again_where_a_copy_lies_on_a_dead_path() {
    let mut scene = Scene::opened(2);
    scene.held_path = Some(0);
    let second = scene.begin(write(3, 2, true));
    assert_eq!(scene.held.len(), 1, "it is on its way on the silent path");
    scene.server.sequence_refusal = Some(Status::SERVERFAULT);
    assert!(
        scene.end(second).is_err(),
        "it was refused on the other path"
    );
    // The silent path heals, and what it held reaches the server before anything else.
    for bytes in std::mem::take(&mut scene.held) {
        scene.server.send(1, &bytes);
    }
    scene.held_path = None;
    scene.pass(1000);
    assert_eq!(scene.run(write(3, 3, true)), Ok(Outcome::Done));
    assert_eq!(scene.server.current[3 * BLOCK_BYTES], 3);
}

#[test]
fn a_broken_answer_while_a_session_is_made_is_asked_for_again() {
    for number in [operation::EXCHANGE_ID, operation::CREATE_SESSION] {
        let mut scene = Scene::new(settings(1));
        let mut is_first = true;
        scene.meddles = Box::new(move |asked, mut reply| {
            if asked == number && std::mem::take(&mut is_first) {
                reply.truncate(60);
                spindle_nfs::rpc::finish_record(&mut reply);
            }
            Some(reply)
        });
        assert!(scene.run(Work::Size).is_ok(), "operation {number}");
        assert!(scene.server.now_ms < DEADLINE_MS / 2);
    }
}

#[test]
fn a_session_that_is_given_up_is_ended_on_a_connection_that_is_bound_to_it_first() {
    let mut scene = Scene::opened(1);
    scene.server.checks_binding = true;
    scene.server.bound.clear();
    scene.server.sequence_refusal = Some(Status::SEQ_MISORDERED);
    assert_eq!(scene.run(write(0, 1, true)), Ok(Outcome::Done));
    assert!(scene.events.contains(&Event::SessionLost));
    assert_eq!(scene.server.sessions.len(), 1, "the former one is ended");
}

#[test]
fn a_server_that_refuses_while_it_starts_is_asked_again() {
    let mut scene = Scene::opened(1);
    scene.server.restart();
    scene.server.exchange_refusal = Some(Status::ACCESS);
    let id = scene.begin(write(0, 1, true));
    scene.pass(5000);
    scene.server.exchange_refusal = None;
    assert_eq!(scene.end(id), Ok(Outcome::Done));
    // So where it does not even take the call.
    scene.server.restart();
    scene.meddles = Box::new(|asked, mut reply| {
        if asked == operation::EXCHANGE_ID {
            reply.truncate(28);
            reply[24..28].copy_from_slice(&1u32.to_be_bytes());
            spindle_nfs::rpc::finish_record(&mut reply);
        }
        Some(reply)
    });
    let id = scene.begin(write(0, 2, true));
    scene.pass(5000);
    scene.meddles = Box::new(|_, reply| Some(reply));
    assert_eq!(scene.end(id), Ok(Outcome::Done));
}

#[test]
fn a_fault_of_the_servers_own_while_the_file_is_claimed_does_not_end_the_hold() {
    let mut scene = Scene::opened(1);
    scene.server.restart();
    scene.server.sequence_refusal = Some(Status::SERVERFAULT);
    assert_eq!(scene.run(write(0, 1, true)), Ok(Outcome::Done));
    assert!(scene.events.contains(&Event::Reclaimed));
}

#[test]
fn a_server_that_refuses_whoever_opens_is_told_at_once() {
    let mut scene = Scene::new(settings(1));
    scene.server.exchange_refusal = Some(Status::ACCESS);
    assert_eq!(scene.run(Work::Size).unwrap_err().kind, ErrorKind::Access);
    assert!(scene.server.now_ms < 1000);
}

#[test]
fn an_instance_that_was_paused_is_fenced_and_leaves_its_successor_the_file() {
    let mut scene = Scene::opened(1);
    let now_ms = scene.server.now_ms;
    let paused = std::mem::replace(&mut scene.client, Client::new(settings(1), [2; 8], now_ms));
    assert!(scene.run(Work::Size).is_ok());
    let successor = std::mem::replace(&mut scene.client, paused);
    scene.client.disconnected(0, scene.server.now_ms);
    let error = scene.run(write(0, 1, true)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Fenced, "{error}");
    scene.client = successor;
    scene.client.disconnected(0, scene.server.now_ms);
    assert_eq!(scene.run(write(0, 2, true)), Ok(Outcome::Done));
    assert_eq!(scene.server.current[0], 2);
}

#[test]
fn two_files_of_one_owner_do_not_end_each_others_sessions() {
    let mut scene = Scene::opened(1);
    let mut other = settings(1);
    other.file = Some(FileWanted {
        name: "b".to_owned(),
        makes: true,
        access: Access::Own,
    });
    scene.client = Client::new(other, [2; 8], scene.server.now_ms);
    scene.begin(Work::Size);
    scene.pass(100);
    assert_eq!(scene.server.clients.len(), 2);
    assert_eq!(scene.server.sessions.len(), 2);
}
