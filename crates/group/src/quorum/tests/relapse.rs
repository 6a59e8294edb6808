//! Disks that are put back to an older image while they serve.

use spindle_base::{DiskNumber, Redundancy};
use spindle_device::{AlignedBuffer, DeviceErrorKind, DiskSlot, FaultyOperation, SimulatedDisks};
use spindle_format::{Lost, OPENER_PLACE, STATE_PLACES};

use super::ownership::in_time;
use super::{DISK_BYTES, joining_last, make, new_group, online, open, uuid_of, voters};
use crate::event::EventKind;
use crate::quorum::{FaultOutcome, Joining, Membership, Standings};

/// Labels, openers and group states lie in it.
const HEAD_BYTES: usize = 1 << 20;

fn image(disks: &SimulatedDisks, slot: u16) -> Vec<u8> {
    disks.bytes(DiskSlot(slot), 0, HEAD_BYTES)
}

/// Disk 1 shows what it did one beat before; gives that.
fn set_back_by_a_beat(disks: &SimulatedDisks, membership: &Membership) -> Vec<u8> {
    membership.heartbeat(2001).unwrap();
    let older = image(disks, 1);
    membership.heartbeat(2003).unwrap();
    disks.overwrite(DiskSlot(1), 0, &older);
    older
}

/// One look at the structures, and what follows from it.
fn look(membership: &Membership) -> Vec<FaultOutcome> {
    let faults = membership.verify_structures(true);
    membership.give_up_set_back().unwrap();
    faults.into_iter().map(|fault| fault.outcome).collect()
}

/// What was told of disks that were set back.
fn told(membership: &Membership) -> Vec<EventKind> {
    (membership.take_events().into_iter())
        .filter(|event| event.message.contains("set back"))
        .map(|event| event.kind)
        .collect()
}

#[test]
fn a_disk_that_is_set_back_while_it_serves_goes_offline_and_has_lost_everything() {
    let older_states = |membership: &Membership| membership.change_state(|_| {}).unwrap();
    let older_marks = |membership: &Membership| membership.heartbeat(2001).unwrap();
    let changes: [&dyn Fn(&Membership); 2] = [&older_states, &older_marks];
    for change in changes {
        let disks = make("abc", Redundancy::Normal);
        let membership = open(&disks).unwrap();
        let older = image(&disks, 1);
        // Two, so that both slots of the state are older.
        change(&membership);
        change(&membership);
        assert_eq!(look(&membership), []);
        disks.overwrite(DiskSlot(1), 0, &older);
        assert!(look(&membership).contains(&FaultOutcome::SetBack));
        assert_eq!(online(&membership), [0, 2]);
        assert_eq!(told(&membership), [EventKind::DiskOffline]);
        let state = membership.state();
        assert_eq!(state.disk(DiskNumber(1)).unwrap().lost, Lost::EVERYTHING);
        let refused = (membership.judge_return(&[DiskSlot(1)], &|_| None)).unwrap_err();
        assert!(refused.message.contains("set back"), "{refused}");
        assert_eq!(look(&membership), []);
    }
}

#[test]
fn a_disk_that_is_set_back_goes_when_the_others_can_do_without_it_and_is_not_forgotten() {
    let disks = make("abc", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    membership.change_state(|_| {}).unwrap();
    let older = image(&disks, 1);
    membership.change_state(|_| {}).unwrap();
    let newest = image(&disks, 2);
    membership.take_offline(&[DiskNumber(2)], "test").unwrap();
    disks.overwrite(DiskSlot(1), 0, &older);
    assert_eq!(look(&membership), [FaultOutcome::SetBack]);
    assert_eq!(online(&membership), [0, 1]);
    assert_eq!(told(&membership), [EventKind::DamageFound]);
    // The next state and the next mark cover what showed it.
    membership.change_state(|_| {}).unwrap();
    membership.heartbeat(2001).unwrap();
    assert_eq!(look(&membership), []);
    assert_eq!(told(&membership), []);
    disks.overwrite(DiskSlot(2), 0, &newest);
    let returning = (membership.judge_return(&[DiskSlot(2)], &|_| None)).unwrap();
    assert_eq!(
        membership.return_disks(&returning).unwrap(),
        [DiskNumber(2)]
    );
    assert_eq!(look(&membership), []);
    assert_eq!(online(&membership), [0, 1, 2], "one lacks something yet");
    membership.caught_up(DiskNumber(2));
    assert_eq!(look(&membership), []);
    assert_eq!(online(&membership), [0, 2]);
    assert_eq!(told(&membership), [EventKind::DiskOffline]);
}

#[test]
fn a_heartbeat_sees_that_a_disk_was_set_back_before_it_writes_over_what_shows_it() {
    let disks = make("abc", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    set_back_by_a_beat(&disks, &membership);
    membership.heartbeat(2005).unwrap();
    assert_eq!(look(&membership), []);
    assert_eq!(online(&membership), [0, 2]);
    assert_eq!(told(&membership), [EventKind::DiskOffline]);
}

/// Somebody whose request was under way for long writes over one structure.
#[test]
fn one_structure_of_another_opening_does_not_cost_its_disk() {
    for place in [OPENER_PLACE, STATE_PLACES[0], STATE_PLACES[1]] {
        let disks = make("abc", Redundancy::Normal);
        let older = disks.bytes(DiskSlot(1), place, 4096);
        open(&disks).unwrap().close().unwrap();
        let membership = open(&disks).unwrap();
        membership.heartbeat(2001).unwrap();
        membership.change_state(|_| {}).unwrap();
        disks.overwrite(DiskSlot(1), place, &older);
        let outcomes = look(&membership);
        let is_mended = |outcome: &FaultOutcome| *outcome == FaultOutcome::Repaired;
        assert!(outcomes.iter().all(is_mended), "{outcomes:?}");
        disks.overwrite(DiskSlot(1), place, &older);
        membership.heartbeat(2003).unwrap();
        look(&membership);
        assert_eq!(online(&membership), [0, 1, 2]);
        assert_eq!(told(&membership), []);
    }
}

#[test]
fn an_image_of_an_earlier_opening_is_seen_at_a_heartbeat() {
    let disks = make("abc", Redundancy::Normal);
    let older = image(&disks, 1);
    open(&disks).unwrap().close().unwrap();
    let membership = open(&disks).unwrap();
    membership.heartbeat(2001).unwrap();
    disks.overwrite(DiskSlot(1), 0, &older);
    membership.heartbeat(2003).unwrap();
    look(&membership);
    assert_eq!(online(&membership), [0, 2]);
}

#[test]
fn neither_a_state_nor_a_beat_of_an_opening_hides_that_a_disk_was_set_back() {
    let disks = make("abc", Redundancy::Normal);
    let older = image(&disks, 1);
    let membership = open(&disks).unwrap();
    disks.overwrite(DiskSlot(1), 0, &older);
    membership.beat_while_opening(2001).unwrap();
    assert!(image(&disks, 1) == older, "a kill leaves what shows it");
    membership.give_up_set_back().unwrap();
    assert_eq!(online(&membership), [0, 2]);

    let disks = make("abc", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    let older = image(&disks, 1);
    membership.heartbeat(2001).unwrap();
    disks.overwrite(DiskSlot(1), 0, &older);
    membership.change_state(|_| {}).unwrap();
    membership.give_up_set_back().unwrap();
    assert_eq!(online(&membership), [0, 2]);
}

type Way<'a> = &'a dyn Fn(&Membership, &SimulatedDisks);

#[test]
fn whatever_takes_a_disk_offline_that_was_set_back_it_has_lost_everything() {
    let by_hand = |membership: &Membership, _: &SimulatedDisks| {
        membership.take_offline(&[DiskNumber(1)], "test").unwrap();
    };
    let at_a_heartbeat = |membership: &Membership, disks: &SimulatedDisks| {
        disks.fail_writes(DiskSlot(1), 0..u64::MAX, 1);
        membership.heartbeat(2003).unwrap();
        disks.clear_faults(DiskSlot(1));
    };
    let at_a_state = |membership: &Membership, disks: &SimulatedDisks| {
        disks.fail_writes(DiskSlot(1), 0..u64::MAX, 1);
        membership.change_state(|_| {}).unwrap();
        disks.clear_faults(DiskSlot(1));
    };
    let with_one_that_joins = |membership: &Membership, disks: &SimulatedDisks| {
        let joining = joining_last(membership, "abca");
        disks.fail_writes(DiskSlot(1), 0..u64::MAX, 1);
        disks.fail_writes(DiskSlot(3), 0..u64::MAX, 1);
        membership.change_standings(&joining).unwrap_err();
        disks.clear_faults(DiskSlot(1));
    };
    let ways: [Way<'_>; 4] = [&by_hand, &at_a_heartbeat, &at_a_state, &with_one_that_joins];
    for way in ways {
        let disks = make("abc", Redundancy::Normal);
        let membership = open(&disks).unwrap();
        disks.attach(DISK_BYTES);
        membership.change_state(|_| {}).unwrap();
        let older = image(&disks, 1);
        membership.begin_catching_up(std::iter::once(DiskNumber(2)));
        membership.change_state(|_| {}).unwrap();
        membership.change_state(|_| {}).unwrap();
        disks.overwrite(DiskSlot(1), 0, &older);
        assert!(look(&membership).contains(&FaultOutcome::SetBack));
        assert_eq!(online(&membership), [0, 1, 2]);
        membership.change_state(|_| {}).unwrap();
        membership.heartbeat(2001).unwrap();
        way(&membership, &disks);
        assert_eq!(online(&membership), [0, 2]);
        let state = membership.state();
        assert_eq!(state.disk(DiskNumber(1)).unwrap().lost, Lost::EVERYTHING);
        let refused = (membership.judge_return(&[DiskSlot(1)], &|_| None)).unwrap_err();
        assert!(refused.message.contains("set back"), "{refused}");
    }
}

#[test]
fn a_state_does_not_hide_that_a_disk_without_a_vote_was_set_back() {
    let disks = make("aabbcc", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    assert!(!voters(&membership).contains(&1));
    let older = image(&disks, 1);
    membership.change_state(|_| {}).unwrap();
    membership.change_state(|_| {}).unwrap();
    disks.overwrite(DiskSlot(1), 0, &older);
    membership.change_state(|_| {}).unwrap();
    look(&membership);
    assert_eq!(online(&membership), [0, 2, 3, 4, 5]);
}

#[test]
fn what_takes_a_disk_offline_does_not_hide_that_its_neighbour_was_set_back_too() {
    let disks = make("aabbcc", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    let older = [0, 1].map(|slot| image(&disks, slot));
    membership.change_state(|_| {}).unwrap();
    membership.change_state(|_| {}).unwrap();
    membership.heartbeat(2001).unwrap();
    membership.heartbeat(2003).unwrap();
    for (slot, older) in [0, 1].into_iter().zip(&older) {
        disks.overwrite(DiskSlot(slot), 0, older);
    }
    membership.heartbeat(2005).unwrap();
    membership.give_up_set_back().unwrap();
    look(&membership);
    assert_eq!(online(&membership), [2, 3, 4, 5]);
}

#[test]
fn a_kill_after_any_write_does_not_let_a_disk_that_was_set_back_pass() {
    let state = |membership: &Membership| membership.change_state(|_| {}).unwrap();
    let beat = |membership: &Membership| membership.heartbeat(2005).unwrap();
    let close = |membership: &Membership| membership.close().unwrap();
    let steps: [&dyn Fn(&Membership); 3] = [&state, &beat, &close];
    for (index, step) in steps.into_iter().enumerate() {
        let disks = make("abc", Redundancy::Normal);
        let membership = open(&disks).unwrap();
        let older = set_back_by_a_beat(&disks, &membership);
        step(&membership);
        assert!(
            image(&disks, 1) == older,
            "{index}: nothing is written there"
        );
        drop(membership);
        let membership = open(&disks).unwrap();
        assert_eq!(online(&membership), [0, 2], "{index}");
        let lost = membership.state().disk(DiskNumber(1)).unwrap().lost;
        assert_eq!(lost, Lost::EVERYTHING, "{index}");
    }
}

#[test]
fn a_mark_that_cannot_be_read_for_a_moment_is_not_written_over() {
    let places = OPENER_PLACE..OPENER_PLACE + 4096;
    // The first read is that of whoever asks whose the group is.
    for failures in [1, 2] {
        let disks = make("abc", Redundancy::Normal);
        let membership = open(&disks).unwrap();
        set_back_by_a_beat(&disks, &membership);
        let (place, kind) = (places.clone(), DeviceErrorKind::Gone);
        disks.fail(DiskSlot(1), FaultyOperation::Read, place, failures, kind);
        membership.heartbeat(2005).unwrap();
        disks.clear_faults(DiskSlot(1));
        look(&membership);
        assert_eq!(online(&membership), [0, 2], "{failures}");
        let refused = (membership.judge_return(&[DiskSlot(1)], &|_| None)).unwrap_err();
        assert!(refused.message.contains("set back"), "{refused}");
    }
}

/// A disk gives a bad sector again once it was written, and a path that blinks takes the next write.
#[test]
fn a_mark_that_cannot_be_read_is_written_and_costs_nothing() {
    for (kind, failures) in [(DeviceErrorKind::Medium, 20), (DeviceErrorKind::Gone, 2)] {
        for (groups, redundancy) in [("abc", Redundancy::Normal), ("a", Redundancy::External)] {
            let disks = make(groups, redundancy);
            let membership = open(&disks).unwrap();
            membership.heartbeat(2001).unwrap();
            let (places, read) = (OPENER_PLACE..OPENER_PLACE + 4096, FaultyOperation::Read);
            disks.fail(DiskSlot(0), read, places, failures, kind);
            let before = disks.bytes(DiskSlot(0), OPENER_PLACE, 4096);
            let answer = membership.heartbeat(2003);
            disks.clear_faults(DiskSlot(0));
            answer.unwrap_or_else(|error| panic!("{kind:?}, {groups}: {error}"));
            assert_eq!(
                online(&membership).len(),
                groups.len(),
                "{kind:?}, {groups}"
            );
            let after = disks.bytes(DiskSlot(0), OPENER_PLACE, 4096);
            assert!(after != before, "{kind:?}, {groups}");
        }
    }
}

#[test]
fn what_takes_a_disk_offline_does_not_read_it_before() {
    let disks = make("abc", Redundancy::Normal);
    disks.set_deadline(std::time::Duration::from_millis(100));
    let membership = open(&disks).unwrap();
    let disk = DiskNumber(1);
    membership.change_state(|_| {}).unwrap();
    membership.begin_catching_up(std::iter::once(DiskNumber(2)));
    let everywhere = 0..DISK_BYTES;
    let gone = DeviceErrorKind::Gone;
    disks.fail(
        DiskSlot(1),
        FaultyOperation::Write,
        everywhere.clone(),
        1,
        gone,
    );
    let page = AlignedBuffer::zeroed(4096);
    let writes = std::iter::once((disk, DISK_BYTES / 2, &page[..]));
    assert_eq!(membership.write_durably(writes).len(), 1);
    disks.hang(DiskSlot(1), FaultyOperation::Read, everywhere);
    let answer = in_time(move || {
        let answer = membership.take_offline(&[disk], "a write failed");
        answer.map(|()| online(&membership))
    });
    assert_eq!(answer.unwrap(), [0, 2]);
}

#[test]
fn a_number_that_comes_again_brings_nothing_of_the_disk_before() {
    let disks = make("ab", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    let [first, second, bad] = [0; 3].map(|_| disks.attach(DISK_BYTES));
    let joining = |number: u16, slot: DiskSlot| {
        let mut disk = new_group("abcd", Redundancy::Normal).disks[usize::from(number)].clone();
        disk.slot = slot;
        disk.uuid = uuid_of(slot.0 + 10);
        Joining {
            number: DiskNumber(number),
            failure_group: number,
            size_aus: u32::try_from(DISK_BYTES / membership.au_size().bytes()).unwrap(),
            disk,
        }
    };
    let join = |joining: Vec<Joining>| {
        membership.label_joining(&joining).unwrap();
        let states = STATE_PLACES[0]..STATE_PLACES[1] + 4096;
        disks.fail_writes(bad, states, u64::MAX);
        let answer = membership.change_standings(&Standings {
            joining,
            ..Standings::default()
        });
        disks.clear_faults(bad);
        answer
    };
    for slot in [first, second] {
        join(vec![joining(2, slot), joining(3, bad)]).unwrap_err();
        membership.heartbeat(2001).unwrap();
    }
    join(vec![joining(2, first)]).unwrap();
    look(&membership);
    assert_eq!(voters(&membership), [0, 1, 2]);
    assert_eq!(told(&membership), []);
}
