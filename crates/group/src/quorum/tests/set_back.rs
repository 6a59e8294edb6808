//! Disks that were put back to an older image while the others went on.

use std::sync::Arc;

use spindle_base::{DiskNumber, Redundancy};
use spindle_device::{AlignedBuffer, DiskSlot, Disks, Request, SimulatedDisks, Work};
use spindle_format::{Lost, STATE_PLACES};

use super::{make, online, open, present};
use crate::error::{GroupError, GroupErrorKind};
use crate::event::EventKind;
use crate::quorum::Membership;
use crate::quorum::publish::set_offline;

/// Labels, openers and group states lie in it.
const HEAD_BYTES: usize = 1 << 20;

fn image(disks: &SimulatedDisks, slot: u16) -> Vec<u8> {
    disks.bytes(DiskSlot(slot), 0, HEAD_BYTES)
}

fn put_back(disks: &SimulatedDisks, slot: u16, image: &[u8]) {
    disks.overwrite(DiskSlot(slot), 0, image);
}

fn cut(disks: &SimulatedDisks) {
    disks.crash();
    disks.restart();
}

/// The disk is named, goes offline, and does not come back; the others go on.
fn assert_left_out(disks: &Arc<SimulatedDisks>, slot: u16, others: &[u16]) -> Membership {
    let membership = open(disks).unwrap();
    assert_eq!(online(&membership), others);
    let events = membership.take_events();
    let named = (events.iter()).filter(|event| event.kind == EventKind::DiskPassedOver);
    let lines: Vec<&str> = named.map(|event| event.message.as_str()).collect();
    assert_eq!(lines.len(), 1, "{events:?}");
    assert!(lines[0].contains("older image"), "{lines:?}");
    let error = refuse_return(&membership, slot);
    assert!(error.message.contains("older image"), "{error}");
    assert!(!error.message.contains('\n'), "{error}");
    membership
}

fn refuse_return(membership: &Membership, slot: u16) -> GroupError {
    membership
        .judge_return(&[DiskSlot(slot)], &|_| None)
        .map(drop)
        .unwrap_err()
}

#[test]
fn a_disk_put_back_to_an_older_image_is_left_out_and_the_others_mount() {
    // Taken while the group was closed; it was open and closed since.
    let disks = make("abc", Redundancy::Normal);
    let older = image(&disks, 2);
    open(&disks).unwrap().close().unwrap();
    put_back(&disks, 2, &older);
    let membership = assert_left_out(&disks, 2, &[0, 1]);
    drop(membership);
    // Once left out it stays so.
    cut(&disks);
    let membership = open(&disks).unwrap();
    assert_eq!(online(&membership), [0, 1]);
}

#[test]
fn a_disk_put_back_has_lost_everything_for_whoever_comes_after_the_opening_that_saw_it() {
    let disks = make("abc", Redundancy::Normal);
    let older = image(&disks, 2);
    open(&disks).unwrap().close().unwrap();
    put_back(&disks, 2, &older);
    drop(assert_left_out(&disks, 2, &[0, 1]));
    for _ in 0..3 {
        cut(&disks);
        // Nothing proves it any more: the disk is one that went offline and holds what it held.
        let membership = open(&disks).unwrap();
        assert_eq!(online(&membership), [0, 1]);
        let returning = membership.judge_return(&[DiskSlot(2)], &|_| None).unwrap();
        assert_eq!(returning[0].lost, Lost::EVERYTHING);
    }
}

#[test]
fn an_image_from_before_an_opening_that_a_crash_ended_is_left_out() {
    let disks = make("abc", Redundancy::Normal);
    let older = image(&disks, 0);
    drop(open(&disks).unwrap());
    cut(&disks);
    put_back(&disks, 0, &older);
    assert_left_out(&disks, 0, &[1, 2]);
}

#[test]
fn an_image_that_is_two_heartbeats_old_is_left_out() {
    let disks = make("abc", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    membership.change_state(|_| {}).unwrap();
    let older = image(&disks, 1);
    membership.heartbeat(2001).unwrap();
    membership.heartbeat(2002).unwrap();
    drop(membership);
    cut(&disks);
    put_back(&disks, 1, &older);
    assert_left_out(&disks, 1, &[0, 2]);
}

#[test]
fn a_disk_that_was_set_back_to_an_image_of_the_same_state_does_not_come_back() {
    let disks = make("abc", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    membership.change_state(|_| {}).unwrap();
    let older = image(&disks, 1);
    membership.heartbeat(2001).unwrap();
    let newest = image(&disks, 1);
    membership.take_offline(&[DiskNumber(1)], "test").unwrap();
    put_back(&disks, 1, &older);
    let come_back = || {
        let returning = membership.judge_return(&[DiskSlot(1)], &|_| None)?;
        membership.return_disks(&returning)
    };
    let refused = come_back().unwrap_err();
    assert!(refused.message.contains("set back"), "{refused}");
    put_back(&disks, 1, &newest);
    assert_eq!(come_back().unwrap(), [DiskNumber(1)]);
}

#[test]
fn a_disk_given_away_by_its_heartbeats_is_left_out_wherever_the_opening_that_saw_it_ends() {
    for (letters, slot) in [("abc", 1), ("aabb", 3), ("abcde", 4)] {
        for request in 1.. {
            let disks = make(letters, Redundancy::Normal);
            let membership = open(&disks).unwrap();
            membership.change_state(|_| {}).unwrap();
            let older = image(&disks, slot);
            membership.heartbeat(2001).unwrap();
            membership.heartbeat(2002).unwrap();
            drop(membership);
            cut(&disks);
            put_back(&disks, slot, &older);
            disks.power_fails_after(request);
            let has_ended = open(&disks).is_ok();
            cut(&disks);
            let membership = open(&disks).unwrap();
            let what = format!("{letters}, request {request}");
            assert!(!membership.is_online(DiskNumber(slot)), "{what}");
            let lost = membership.state().disk(DiskNumber(slot)).unwrap().lost;
            assert_eq!(lost, Lost::EVERYTHING, "{what}");
            if has_ended {
                break;
            }
        }
    }
}

#[test]
fn a_disk_that_lost_its_vote_is_behind_by_heartbeats_and_was_not_put_back() {
    for took_the_next in [&[3_u16][..], &[1, 3]] {
        let disks = make("aabb", Redundancy::Normal);
        let membership = open(&disks).unwrap();
        membership.take_offline(&[DiskNumber(3)], "test").unwrap();
        assert_eq!(super::voters(&membership), [0, 2]);
        for now_s in 2001..2004 {
            membership.heartbeat(now_s).unwrap();
        }
        let before: Vec<Vec<u8>> = (0..4).map(|slot| image(&disks, slot)).collect();
        let returning = membership.judge_return(&[DiskSlot(3)], &|_| None).unwrap();
        membership.return_disks(&returning).unwrap();
        // The power failed when the state of the return had reached no voter of the one before; it
        // lies beside one that is older than that where the returning disk has it.
        let states = usize::try_from(STATE_PLACES[0]).unwrap()..HEAD_BYTES / 2;
        let after: Vec<Vec<u8>> = (0..4).map(|slot| image(&disks, slot)).collect();
        drop(membership);
        for slot in 0..4_u16 {
            let mut head = before[usize::from(slot)].clone();
            if took_the_next.contains(&slot) {
                let taken = &after[usize::from(slot)][states.clone()];
                head[states.clone()].copy_from_slice(taken);
            }
            put_back(&disks, slot, &head);
        }
        cut(&disks);
        assert_eq!(
            online(&open(&disks).unwrap()),
            [0, 1, 2],
            "{took_the_next:?}"
        );
    }
}

#[test]
fn a_kill_between_the_two_states_of_a_first_feature_makes_no_new_voter_look_put_back() {
    for request in 1.. {
        let disks = make("abcd", Redundancy::Normal);
        let membership = open(&disks).unwrap();
        // It has voted, and has not heard of the last heartbeats.
        membership.take_offline(&[DiskNumber(2)], "test").unwrap();
        let returning = membership.judge_return(&[DiskSlot(2)], &|_| None).unwrap();
        membership.return_disks(&returning).unwrap();
        for now_s in 2001..2004 {
            membership.heartbeat(now_s).unwrap();
        }
        assert_eq!(super::voters(&membership), [0, 1, 3]);
        disks.power_fails_after(request);
        let answer = membership.change_state(|state| {
            set_offline(state, &[DiskNumber(0)].into());
            state.disk_mut(DiskNumber(0)).unwrap().lost = Lost::EVERYTHING;
        });
        drop(membership);
        cut(&disks);
        let membership = open(&disks).unwrap();
        assert!(membership.is_online(DiskNumber(2)), "request {request}");
        if answer.is_ok() {
            break;
        }
    }
}

#[test]
fn a_disk_without_a_vote_that_was_put_back_is_left_out() {
    let disks = make("aabbc", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    let voters = super::voters(&membership);
    let slot = (0..5).find(|number| !voters.contains(number)).unwrap();
    membership.close().unwrap();
    let older = image(&disks, slot);
    open(&disks).unwrap().close().unwrap();
    put_back(&disks, slot, &older);
    let others: Vec<u16> = (0..5).filter(|number| *number != slot).collect();
    assert_left_out(&disks, slot, &others);
}

#[test]
fn half_of_a_mirror_is_no_majority_over_a_half_that_was_put_back() {
    let disks = make("ab", Redundancy::Normal);
    let older = image(&disks, 1);
    open(&disks).unwrap().close().unwrap();
    let newer = image(&disks, 1);
    put_back(&disks, 1, &older);
    let error = open(&disks).unwrap_err();
    assert_eq!(error.kind, GroupErrorKind::NoMajority, "{error}");
    assert!(error.message.contains("different times"), "{error}");
    put_back(&disks, 1, &newer);
    assert_eq!(online(&open(&disks).unwrap()), [0, 1]);
}

#[test]
fn more_disks_put_back_than_the_rest_outvotes_are_refused() {
    let disks = make("abc", Redundancy::Normal);
    let older = [image(&disks, 0), image(&disks, 1)];
    open(&disks).unwrap().close().unwrap();
    put_back(&disks, 0, &older[0]);
    put_back(&disks, 1, &older[1]);
    let error = open(&disks).unwrap_err();
    assert_eq!(error.kind, GroupErrorKind::NoMajority, "{error}");
}

/// All disks serve, and none has lost anything.
fn assert_whole(disks: &Arc<SimulatedDisks>, what: &str) {
    let membership = open(disks).unwrap();
    let all: Vec<u16> = present(disks).into_iter().map(|slot| slot.0).collect();
    assert_eq!(online(&membership), all, "{what}");
    let state = membership.state();
    let mut lost = state.disks.iter().map(|disk| disk.lost);
    assert!(lost.all(|lost| lost == Lost::NOTHING), "{what}");
}

#[test]
fn a_disk_that_was_only_missing_at_an_opening_that_failed_was_not_put_back() {
    // The opening's first state reaches some of the disks that are there.
    for (letters, away, failing) in [("abc", 2, 1), ("abcd", 1, 2), ("abcd", 1, 3)] {
        let disks = make(letters, Redundancy::Normal);
        disks.vanish(DiskSlot(away));
        let slots = STATE_PLACES[0]..2 * STATE_PLACES[1] - STATE_PLACES[0];
        let length = usize::try_from(slots.end - slots.start).unwrap();
        let states = disks.bytes(DiskSlot(failing), slots.start, length);
        disks.fail_writes(DiskSlot(failing), slots.clone(), u64::MAX);
        open(&disks).unwrap_err();
        disks.clear_faults(DiskSlot(failing));
        // A write that failed may have come to the disk all the same: not here.
        disks.overwrite(DiskSlot(failing), slots.start, &states);
        disks.bring_back(DiskSlot(away));
        assert_whole(&disks, &format!("{letters}, without {away} and {failing}"));
    }
}

/// A power cut keeps the state from a disk by which it comes back. The opening that follows misses the
/// disk, and is broken off when some of the others have its first state.
#[test]
fn a_disk_that_never_took_the_state_of_its_return_was_not_put_back() {
    let slots = STATE_PLACES[0]..2 * STATE_PLACES[1] - STATE_PLACES[0];
    let length = usize::try_from(slots.end - slots.start).unwrap();
    for (away, failing) in [(1, 0), (1, 2), (1, 3), (3, 0), (3, 2)] {
        let disks = make("abcd", Redundancy::Normal);
        disks.vanish(DiskSlot(away));
        let membership = open(&disks).unwrap();
        disks.bring_back(DiskSlot(away));
        let held = image(&disks, away);
        let returning = membership.judge_return(&[DiskSlot(away)], &|_| None);
        let back = membership.return_disks(&returning.unwrap()).unwrap();
        assert_eq!(back, [DiskNumber(away)]);
        drop(membership);
        cut(&disks);
        put_back(&disks, away, &held);
        disks.vanish(DiskSlot(away));
        let states = disks.bytes(DiskSlot(failing), slots.start, length);
        disks.fail_writes(DiskSlot(failing), slots.clone(), u64::MAX);
        open(&disks).unwrap_err();
        disks.clear_faults(DiskSlot(failing));
        disks.overwrite(DiskSlot(failing), slots.start, &states);
        let membership = open(&disks).unwrap();
        disks.bring_back(DiskSlot(away));
        let judged = membership.judge_return(&[DiskSlot(away)], &|_| None);
        assert!(
            judged.is_ok(),
            "without {away} and {failing}: {}",
            judged.unwrap_err()
        );
    }
}

#[test]
fn a_disk_that_was_only_missing_at_an_opening_that_a_power_cut_ended_was_not_put_back() {
    for (letters, away) in [("abc", 2), ("abcd", 1)] {
        let original = make(letters, Redundancy::Normal);
        original.vanish(DiskSlot(away));
        for seed in 0..4 {
            for request in 1.. {
                let disks = Arc::new(original.fork(seed));
                disks.power_fails_after(request);
                if open(&disks).is_ok() {
                    break;
                }
                cut(&disks);
                disks.bring_back(DiskSlot(away));
                let membership = open(&disks).unwrap();
                let what = format!("{letters}, seed {seed}, request {request}");
                // Where every voter took the state, the disk is away by right.
                let state = membership.state();
                let disk = state.disk(DiskNumber(away)).unwrap();
                assert_eq!(disk.lost, Lost::NOTHING, "{what}");
                let judged = membership.judge_return(&[DiskSlot(away)], &|_| None);
                let is_here = membership.is_online(DiskNumber(away));
                assert!(is_here || judged.is_ok(), "{what}");
            }
        }
    }
}

#[test]
fn a_disk_that_was_missing_when_it_was_put_back_does_not_come_back() {
    let disks = make("abc", Redundancy::Normal);
    let older = image(&disks, 2);
    open(&disks).unwrap().close().unwrap();
    disks.vanish(DiskSlot(2));
    let membership = open(&disks).unwrap();
    disks.bring_back(DiskSlot(2));
    put_back(&disks, 2, &older);
    let error = refuse_return(&membership, 2);
    assert!(error.message.contains("older image"), "{error}");
}

/// Disks of which one shows a state that a killed process had only sent it, and loses it with its
/// power.
fn with_a_state_only_sent(letters: &str, slot: u16) -> Arc<SimulatedDisks> {
    let disks = make(letters, Redundancy::Normal);
    let membership = open(&disks).unwrap();
    let before = image(&disks, slot);
    membership.change_state(|_| {}).unwrap();
    let sent = image(&disks, slot);
    drop(membership);
    put_back(&disks, slot, &before);
    for place in STATE_PLACES {
        let at = usize::try_from(place).unwrap();
        let mut page = AlignedBuffer::zeroed(4096);
        page.copy_from_slice(&sent[at..at + 4096]);
        disks.run(&mut [Request::new(DiskSlot(slot), place, Work::Write(&page))]);
    }
    disks
}

#[test]
fn a_state_that_a_killed_process_had_only_sent_makes_no_disk_look_put_back() {
    for (letters, slot) in [("abc", 0), ("aabb", 0), ("aabb", 3), ("aabbc", 1)] {
        for (request, fails) in (1..).flat_map(|request| [(request, false), (request, true)]) {
            let disks = with_a_state_only_sent(letters, slot);
            // Whatever the disk answers to the opening's flush.
            disks.fail_flushes(DiskSlot(slot), u64::from(fails));
            disks.power_fails_after(request);
            let has_ended = open(&disks).is_ok();
            cut(&disks);
            let membership = open(&disks).unwrap();
            let what = format!("{letters}, disk {slot}, request {request}, fails {fails}");
            assert_eq!(online(&membership).len(), letters.len(), "{what}");
            if has_ended && fails {
                break;
            }
        }
    }
}

#[test]
fn a_disk_that_fails_a_flush_and_goes_comes_back_without_a_state_that_it_was_only_sent() {
    for requests in 1..40 {
        for seed in 0..4 {
            let disks = Arc::new(with_a_state_only_sent("abc", 0).fork(seed));
            disks.fail_flushes(DiskSlot(0), 1);
            disks.vanish_after(DiskSlot(0), requests);
            let membership = open(&disks).unwrap();
            if membership.is_online(DiskNumber(0)) {
                continue;
            }
            let what = format!("request {requests}, seed {seed}");
            let events = membership.take_events().into_iter();
            let offline = events.filter(|event| event.kind == EventKind::DiskOffline);
            assert_eq!(offline.count(), 1, "{what}");
            disks.bring_back(DiskSlot(0));
            let judged = membership.judge_return(&[DiskSlot(0)], &|_| None);
            assert!(judged.is_ok(), "{what}: {}", judged.unwrap_err());
        }
    }
}

#[test]
fn no_crash_of_openings_makes_a_disk_look_put_back() {
    // Crashes one after another, each in the midst of the opening after the last one.
    for letters in ["abc", "aabb", "aabbc"] {
        for first in 1..40 {
            let disks = make(letters, Redundancy::Normal);
            for request in [first, first / 2 + 1, first % 7 + 1] {
                disks.power_fails_after(request);
                if let Ok(membership) = open(&disks) {
                    let _ = membership.heartbeat(2001);
                    let _ = membership.close();
                }
                cut(&disks);
            }
            let membership = open(&disks).unwrap();
            assert_eq!(
                online(&membership).len(),
                letters.len(),
                "{letters} {first}"
            );
            let numbers = (0_u16..).take(letters.len()).map(DiskNumber);
            assert!(
                numbers
                    .into_iter()
                    .all(|number| membership.is_online(number))
            );
        }
    }
}
