//! Writes that a server lost or may have lost, each by hand: a flush tells of it, or makes them
//! durable.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod faulty;

use faulty::scene::{BLOCK_BYTES, Scene, asked, count, write};
use faulty::settings;
use spindle_nfs::wire::operation;
use spindle_nfs::{ErrorKind, Event, Outcome, Settings, Status, Work};

/// With several requests under way.
fn opened() -> Scene {
    Scene::opened_with(Settings {
        slots: 4,
        ..settings(1)
    })
}

fn is_lost(scene: &mut Scene) -> bool {
    match scene.run(Work::Flush) {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error.kind, ErrorKind::LostWrites, "{error}");
            true
        }
    }
}

/// The server forgets every unstable write, and its verifier tells of it.
fn forget(scene: &mut Scene) {
    let durable = scene.server.durable.clone();
    scene.server.current.copy_from_slice(&durable);
    scene.server.verifier += 1000;
}

#[test]
fn a_loss_that_a_flush_could_not_tell_in_time_is_told_by_the_next() {
    let mut scene = opened();
    scene.run(write(0, 1, false)).unwrap();
    scene.drops = Box::new(|asked| asked == operation::COMMIT);
    let flush = scene.begin(Work::Flush);
    forget(&mut scene);
    scene.run(write(1, 1, false)).unwrap();
    assert!(scene.events.contains(&Event::LostWrites));
    let error = scene.end(flush).unwrap_err();
    assert_eq!(error.kind, ErrorKind::TimedOut);
    scene.drops = Box::new(|_| false);
    assert!(is_lost(&mut scene), "nobody has been told");
    assert!(!is_lost(&mut scene), "it is told once");
}

#[test]
fn what_a_former_start_left_in_the_servers_memory_is_durable_before_it_is_read() {
    let mut scene = Scene::new(settings(1));
    scene.server.current[0] = 9;
    let read = Work::Read {
        offset_bytes: 0,
        length_bytes: 1,
    };
    assert_eq!(scene.run(read), Ok(Outcome::Data(vec![9])));
    assert_eq!(scene.server.durable[0], 9);
    assert!(!is_lost(&mut scene));
}

#[test]
fn a_commit_at_the_opening_that_is_refused_is_a_loss_and_the_disk_is_there() {
    let mut scene = Scene::new(settings(1));
    scene.server.current[0] = 9;
    scene.server.commits_to_refuse = 1;
    assert!(scene.run(Work::Size).is_ok());
    assert!(scene.events.contains(&Event::LostWrites));
    assert!(is_lost(&mut scene));
    assert!(!is_lost(&mut scene));
}

#[test]
fn a_restart_while_the_file_is_opened_is_no_loss() {
    let mut scene = Scene::new(settings(1));
    scene.drops = Box::new(|asked| asked == operation::COMMIT);
    let size = scene.begin(Work::Size);
    scene.until(|scene| count(scene, operation::COMMIT) > 0);
    scene.server.restart();
    scene.drops = Box::new(|_| false);
    assert!(scene.end(size).is_ok());
    assert!(!is_lost(&mut scene));
    assert!(!scene.events.contains(&Event::LostWrites));
}

/// A write was answered as late, and the server has done it since.
fn written_late(scene: &mut Scene) {
    scene.server.hangs_until_ms = scene.server.now_ms + 40_000;
    let error = scene.run(write(0, 1, false)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::TimedOut);
    scene.pass(15_000);
    assert_eq!((scene.server.current[0], scene.server.durable[0]), (1, 0));
}

#[test]
fn a_late_unstable_write_is_durable_after_the_next_flush() {
    let mut scene = opened();
    written_late(&mut scene);
    assert!(!is_lost(&mut scene));
    assert_eq!(scene.server.durable[0], 1);
}

#[test]
fn a_late_unstable_write_that_is_forgotten_is_a_loss() {
    let mut scene = opened();
    written_late(&mut scene);
    forget(&mut scene);
    assert!(is_lost(&mut scene), "it may have been read meanwhile");
}

/// An unstable write was given up, then the server did it behind a flush, and its answer is lost.
fn written_between_two_flushes() -> Scene {
    let mut scene = opened();
    // It lies on its way until long after its deadline.
    scene.held_path = Some(0);
    let late = scene.begin(write(0, 1, false));
    let call = scene.held.pop().unwrap();
    scene.held_path = None;
    scene.drops = Box::new(|asked| asked == operation::WRITE);
    let error = scene.end(late).unwrap_err();
    assert_eq!(error.kind, ErrorKind::TimedOut);
    assert!(!is_lost(&mut scene));
    scene.meddles = Box::new(|asked, reply| (asked != operation::WRITE).then_some(reply));
    scene.server.send(0, &call);
    scene.until(|scene| scene.server.current[0] == 1);
    assert_eq!(scene.client.late_count(), 1);
    scene
}

#[test]
fn a_late_unstable_write_that_the_server_does_between_two_flushes_is_durable_after_the_second() {
    let mut scene = written_between_two_flushes();
    assert!(!is_lost(&mut scene));
    assert_eq!(scene.server.durable[0], 1);
}

#[test]
fn a_late_unstable_write_that_the_server_does_between_two_flushes_and_forgets_is_a_loss() {
    let mut scene = written_between_two_flushes();
    forget(&mut scene);
    scene.meddles = Box::new(|_, reply| Some(reply));
    scene.drops = Box::new(|_| false);
    // Its answer comes from the server's memory of the slot, and then another write's.
    assert_eq!(scene.run(write(1, 1, false)), Ok(Outcome::Done));
    assert!(is_lost(&mut scene), "it may have been read meanwhile");
}

#[test]
fn an_unstable_write_that_was_late_after_its_session_was_lost_is_durable_after_the_next_flush() {
    let mut scene = opened();
    scene.meddles = Box::new(|asked, reply| (asked != operation::WRITE).then_some(reply));
    let late = scene.begin(write(0, 1, false));
    scene.until(|scene| scene.server.current[0] == 1);
    scene.server.sessions.clear();
    scene.server.exchange_refusal = Some(Status::DELAY);
    let error = scene.end(late).unwrap_err();
    assert_eq!(error.kind, ErrorKind::TimedOut);
    assert!(scene.events.contains(&Event::SessionLost));
    scene.server.exchange_refusal = None;
    assert!(!is_lost(&mut scene));
    assert_eq!(scene.server.durable[0], 1);
}

#[test]
fn a_loss_that_a_later_flush_could_not_tell_either_is_told_by_the_one_after_it() {
    let mut scene = opened();
    scene.run(write(0, 1, false)).unwrap();
    scene.server.restart();
    scene.until(|scene| scene.events.contains(&Event::LostWrites));
    scene.drops = Box::new(|asked| asked != operation::EXCHANGE_ID);
    let error = scene.run(Work::Flush).unwrap_err();
    assert_eq!(error.kind, ErrorKind::TimedOut, "no session could be had");
    scene.drops = Box::new(|_| false);
    assert!(is_lost(&mut scene));
    assert!(!is_lost(&mut scene));
}

#[test]
fn no_second_commit_is_asked_for_while_a_late_one_is_under_way() {
    let mut scene = opened();
    scene.run(write(0, 1, false)).unwrap();
    scene.held_path = Some(0);
    let late = scene.begin(Work::Flush);
    let call = scene.held.pop().unwrap();
    scene.held_path = None;
    scene.drops = Box::new(|asked| asked == operation::COMMIT);
    let error = scene.end(late).unwrap_err();
    assert_eq!(error.kind, ErrorKind::TimedOut);
    scene.drops = Box::new(|_| false);
    let next = scene.begin(Work::Flush);
    let commits = scene.sent.iter().map(|(_, call)| call);
    let mut commits = commits.filter(|call| asked(call) == operation::COMMIT);
    assert_eq!(
        commits.next_back(),
        Some(&call),
        "the same is sent again at most"
    );
    // The first one fails in the server, which takes everything for written.
    scene.server.commits_to_refuse = 1;
    scene.server.send(0, &call);
    let error = scene.end(next).unwrap_err();
    assert_eq!(error.kind, ErrorKind::LostWrites);
}

#[test]
fn a_write_whose_answer_broke_the_protocol_is_durable_after_the_next_flush() {
    let mut scene = opened();
    scene.meddles = Box::new(|asked, mut reply| {
        if asked == operation::WRITE {
            // The count stands before how durable it is, and the verifier.
            let at = reply.len() - 16;
            reply[at] = 0xff;
        }
        Some(reply)
    });
    let error = scene.run(write(0, 1, false)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Violation);
    assert_eq!((scene.server.current[0], scene.server.durable[0]), (1, 0));
    assert!(!is_lost(&mut scene));
    assert_eq!(scene.server.durable[0], 1);
}

#[test]
fn a_late_durable_write_that_was_none_is_durable_after_the_next_flush() {
    let mut scene = opened();
    scene.server.hangs_until_ms = scene.server.now_ms + 40_000;
    scene.meddles = Box::new(|asked, mut reply| {
        if asked == operation::WRITE {
            let at = reply.len() - 12;
            reply[at..at + 4].fill(0);
        }
        Some(reply)
    });
    let error = scene.run(write(0, 1, true)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::TimedOut);
    scene.pass(15_000);
    assert_eq!(scene.client.late_count(), 0);
    let before = count(&scene, operation::COMMIT);
    assert!(!is_lost(&mut scene));
    assert_eq!(count(&scene, operation::COMMIT), before + 1);
}

#[test]
fn a_commit_that_is_refused_is_a_loss_whatever_the_next_one_says() {
    let mut scene = opened();
    scene.run(write(0, 1, false)).unwrap();
    scene.server.commits_to_refuse = 1;
    let error = scene.run(Work::Flush).unwrap_err();
    assert_eq!(
        (error.kind, error.status),
        (ErrorKind::LostWrites, Some(Status::IO))
    );
    assert!(scene.events.contains(&Event::LostWrites));
    assert_eq!(
        scene.server.durable[0], 0,
        "the server takes it for written"
    );
    scene.run(write(0, 2, false)).unwrap();
    assert!(!is_lost(&mut scene));
    assert_eq!(scene.server.durable[0], 2);
}

#[test]
fn a_commit_that_is_refused_after_its_flush_was_late_is_told_by_the_next_flush() {
    let mut scene = opened();
    scene.run(write(0, 1, false)).unwrap();
    scene.server.commits_to_refuse = 1;
    scene.server.hangs_until_ms = scene.server.now_ms + 35_000;
    let error = scene.run(Work::Flush).unwrap_err();
    assert_eq!(error.kind, ErrorKind::TimedOut);
    assert!(
        is_lost(&mut scene),
        "the second COMMIT would have succeeded"
    );
}

#[test]
fn a_commit_that_a_server_remembers_without_its_answer_is_a_loss() {
    let mut scene = opened();
    scene.run(write(0, 1, false)).unwrap();
    scene.server.commits_to_refuse = 1;
    let mut is_first = true;
    scene.meddles = Box::new(move |asked, reply| {
        let is_it = asked == operation::COMMIT && std::mem::take(&mut is_first);
        (!is_it).then_some(reply)
    });
    let flush = scene.begin(Work::Flush);
    scene.until(|scene| scene.server.refused_commits == 1);
    for session in scene.server.sessions.values_mut() {
        session.slots.iter_mut().for_each(|slot| slot.reply = None);
    }
    scene.server.connections[0] = None;
    scene.client.disconnected(0, scene.server.now_ms);
    let error = scene.end(flush).unwrap_err();
    assert_eq!(error.kind, ErrorKind::LostWrites);
}

#[test]
fn a_commit_whose_answer_was_lost_together_with_the_session_is_a_loss() {
    let mut scene = opened();
    scene.run(write(0, 1, false)).unwrap();
    scene.server.commits_to_refuse = 1;
    let mut is_first = true;
    scene.meddles = Box::new(move |asked, reply| {
        let is_it = asked == operation::COMMIT && std::mem::take(&mut is_first);
        (!is_it).then_some(reply)
    });
    let flush = scene.begin(Work::Flush);
    scene.until(|scene| scene.server.refused_commits == 1);
    // The server knows the client and not the session.
    scene.server.sessions.clear();
    let error = scene.end(flush).unwrap_err();
    assert_eq!(error.kind, ErrorKind::LostWrites);
}

#[test]
fn an_unstable_write_that_is_answered_after_a_refused_commit_is_written_again() {
    let mut scene = opened();
    scene.run(write(0, 1, false)).unwrap();
    let mut is_first = true;
    scene.meddles = Box::new(move |asked, reply| {
        let is_it = asked == operation::WRITE && std::mem::take(&mut is_first);
        (!is_it).then_some(reply)
    });
    let second = scene.begin(write(1, 2, false));
    scene.until(|scene| scene.server.current[BLOCK_BYTES] == 2);
    scene.server.commits_to_refuse = 1;
    assert!(is_lost(&mut scene));
    // The answer comes only now, from the server's memory of the slot.
    scene.server.connections[0] = None;
    scene.client.disconnected(0, scene.server.now_ms);
    assert_eq!(scene.end(second), Ok(Outcome::Done));
    assert!(!is_lost(&mut scene));
    assert_eq!(scene.server.durable[BLOCK_BYTES], 2);
}

#[test]
fn a_durable_write_that_the_servers_disk_fails_is_a_loss_of_the_unstable_ones() {
    // The server's `fsync` for it may have told of pages that no later one will tell of.
    let mut scene = opened();
    scene.run(write(0, 1, false)).unwrap();
    scene.server.durable_refusal = Some(Status::IO);
    let error = scene.run(write(1, 1, true)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Io);
    assert!(is_lost(&mut scene));
}

#[test]
fn a_restart_that_shows_itself_with_an_equal_verifier_is_a_loss() {
    let mut scene = opened();
    scene.run(write(0, 1, false)).unwrap();
    scene.server.faults.keeps_verifier = true;
    scene.server.restart();
    assert!(is_lost(&mut scene));
    scene.server.restart();
    assert!(!is_lost(&mut scene), "nothing was written meanwhile");
}

#[test]
fn a_session_that_is_gone_where_the_server_knows_the_client_is_no_loss() {
    let mut scene = opened();
    scene.run(write(0, 1, false)).unwrap();
    scene.server.sessions.clear();
    assert!(!is_lost(&mut scene));
    assert_eq!(scene.server.durable[0], 1);
}

#[test]
fn a_flush_of_what_is_durable_already_asks_nothing() {
    let mut scene = opened();
    scene.run(write(0, 1, true)).unwrap();
    let before = scene.sent.len();
    assert!(!is_lost(&mut scene));
    assert_eq!(scene.sent.len(), before);
}
