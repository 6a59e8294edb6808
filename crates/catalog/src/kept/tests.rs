use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use spindle_base::{DiskNumber, FileId};
use spindle_device::SharedMemory;
use spindle_format::Timestamp;

use super::log::BRACKET_MASK;
use super::{Bracket, Claim, KeptJournal, Recovered, Touch};
use crate::{Edit, Table, file_key};

fn claim(number: u64) -> Claim {
    Claim::numbered(number)
}

fn live() -> KeptJournal {
    let journal = KeptJournal::create().unwrap();
    journal.begin(claim(1), false);
    journal
}

fn next_of(journal: &KeptJournal) -> KeptJournal {
    let memory = journal.memory().descriptor().try_clone_to_owned().unwrap();
    KeptJournal::new(SharedMemory::from_descriptor(memory).unwrap()).unwrap()
}

/// What the next process finds after this one was killed.
fn next(journal: &KeptJournal) -> (KeptJournal, Recovered) {
    let next = next_of(journal);
    let recovered = next.recover(claim(1)).unwrap();
    (next, recovered)
}

/// Ends the operation that fulfils the request.
fn done(journal: &KeptJournal, worker: usize, unique: u64, bracket: Bracket) {
    (journal.request(journal.connection(), worker, unique)).end(bracket);
}

fn put(id: u64, value: &[u8]) -> Edit {
    let mut edit = Edit::default();
    edit.put(Table::Inode, file_key(FileId(id)), value.to_vec());
    edit
}

fn touch_of(id: u64, size_bytes: u64) -> Touch {
    let time = |seconds| Timestamp {
        seconds,
        nanoseconds: 999_999_999,
    };
    Touch {
        id: FileId(id),
        size_bytes,
        accessed: time(-1),
        modified: time(2),
        changed: time(3),
    }
}

#[test]
fn what_no_commit_took_is_found_by_the_next_process() {
    let journal = live();
    let mut edit = put(5, b"an inode that fills more than one word");
    edit.delete(Table::Name, b"gone".to_vec());
    journal.edit(None, &edit);
    journal.extent(FileId(9), 3, 77, &[1, 2, 3]);
    journal.extent(FileId(9), 3, 78, &[1, 2, 3]);
    let (_, recovered) = next(&journal);
    assert_eq!(recovered.edits.len(), 1);
    assert_eq!(recovered.edits[0].changes, edit.changes);
    let extent = &recovered.extents[&(FileId(9), 3)];
    assert_eq!(
        (extent.mark_blocks, &extent.copies[..]),
        (78, &[1, 2, 3][..])
    );
    journal.cut(journal.place());
    assert!(next(&journal).1.is_empty());
}

#[test]
fn an_extent_that_was_a_hole_since_the_last_commit_is_told_from_one_that_grew() {
    let journal = live();
    journal.extent(FileId(9), 3, 5, &[1, 2]);
    journal.extent(FileId(9), 4, 77, &[1, 2]);
    journal.extent(FileId(9), 4, 0, &[]);
    journal.extent(FileId(9), 4, 10, &[3, 4]);
    journal.extent(FileId(9), 4, 20, &[3, 4]);
    let was_hole = |index| next(&journal).1.extents[&(FileId(9), index)].was_hole;
    assert!(!was_hole(3) && was_hole(4));
    // The commit has the new one.
    journal.cut(journal.place());
    journal.extent(FileId(9), 4, 30, &[3, 4]);
    assert!(!was_hole(4));
}

#[test]
fn an_operation_that_was_cut_off_counts_as_if_it_had_not_begun() {
    let journal = live();
    let first = journal.bracket();
    journal.edit(Some(first), &put(1, b"whole"));
    done(&journal, 0, 42, first);
    let second = journal.bracket();
    journal.edit(Some(second), &put(2, b"half"));
    journal.edit(None, &put(3, b"of no operation"));
    let (next_journal, recovered) = next(&journal);
    assert_eq!(recovered.edits.len(), 2);
    assert_eq!(recovered.done, BTreeSet::from([42]));
    // A later process must not end it by chance.
    next_journal.end(next_journal.bracket());
    assert_eq!(next(&next_journal).1.edits.len(), 2);
}

/// The numbers of operations begin again after the highest one.
#[test]
fn no_operation_has_the_number_of_another_whose_end_is_in_the_log() {
    let journal = live();
    (journal.last_bracket).store(BRACKET_MASK - 3, Ordering::Relaxed);
    for id in 1..=4 {
        let bracket = journal.bracket();
        journal.edit(Some(bracket), &put(id, b"whole"));
        journal.end(bracket);
    }
    journal.edit(Some(journal.bracket()), &put(5, b"half"));
    let (next_journal, recovered) = next(&journal);
    assert_eq!(recovered.edits.len(), 4);
    // Nor has one of the next process, though the highest number is in the log.
    next_journal.edit(Some(next_journal.bracket()), &put(6, b"half"));
    assert_eq!(next(&next_journal).1.edits.len(), 4);
}

#[test]
fn a_request_that_is_done_stays_known_after_a_commit_and_over_further_processes() {
    let journal = live();
    let request = journal.request(journal.connection(), 3, 7);
    let bracket = journal.bracket();
    journal.edit(Some(bracket), &put(1, b"row"));
    request.end(bracket);
    journal.cut(journal.place());
    let (second, recovered) = next(&journal);
    assert_eq!(recovered.done, BTreeSet::from([7]));
    second.take(&recovered.done);
    second.begin(claim(1), false);
    let _other = second.request(second.connection(), 3, 8);
    assert_eq!(next(&second).1.done, BTreeSet::from([7]));
}

#[test]
fn the_newest_of_rows_and_touches_counts() {
    let journal = live();
    let mut early = None;
    let mut late = None;
    assert!(journal.touch(&mut early, &touch_of(1, 10)));
    journal.edit(None, &put(1, b"a row with the size 20"));
    journal.edit(None, &put(2, b"a row with the size 30"));
    assert!(journal.touch(&mut late, &touch_of(2, 40)));
    assert!(journal.touch(&mut late, &touch_of(2, 50)));
    assert_eq!(next(&journal).1.touches, [touch_of(2, 50)]);
    journal.free_touch(late.unwrap());
    assert!(next(&journal).1.touches.is_empty());
}

#[test]
fn extents_of_a_file_that_was_removed_are_not_found() {
    let journal = live();
    journal.extent(FileId(1), 0, 1, &[5]);
    journal.extent(FileId(2), 0, 1, &[6]);
    let mut edit = Edit::default();
    edit.delete(Table::File, file_key(FileId(1)));
    journal.edit(None, &edit);
    let (_, recovered) = next(&journal);
    assert_eq!(recovered.extents.len(), 1);
}

#[test]
fn writes_under_way_are_named_until_they_end() {
    let journal = live();
    let one = journal.write(FileId(1), 8, 16);
    drop(journal.write(FileId(2), 0, 1));
    let (_, recovered) = next(&journal);
    assert_eq!(recovered.writes, [(FileId(1), 8, 16)]);
    drop(one);
    let all: Vec<_> = (0..2000)
        .map(|id| journal.write(FileId(id), 0, 1))
        .collect();
    let (_, recovered) = next(&journal);
    assert!(recovered.compare_everything, "more than can be named");
    assert_eq!(recovered.writes.len(), 1024);
    drop(all);
}

#[test]
fn the_ring_goes_round_many_times_and_keeps_what_was_not_cut() {
    let journal = live();
    let value = vec![0xff; 4000];
    for round in 0..100_000_u64 {
        let kept = journal.place();
        journal.edit(None, &put(round, &value));
        journal.cut(kept);
        if round % 9973 == 0 {
            let (_, recovered) = next(&journal);
            assert_eq!(recovered.edits.len(), 1);
            assert_eq!(recovered.edits[0].changes[0].1, file_key(FileId(round)));
        }
    }
}

#[test]
fn a_cut_gives_no_memory_back_that_the_log_has_gone_round_into() {
    let journal = live();
    // So little is not given back at once.
    journal.edit(None, &put(0, &vec![1; 20_000 * 8]));
    journal.cut(journal.place());
    let value = vec![2; 32 << 10];
    let (mut kept, mut left_count) = (None, 0);
    while journal.log.lock().end() < super::layout::LOG_WORDS + 10_000 {
        if journal.log.lock().end() > super::layout::LOG_WORDS / 8 && kept.is_none() {
            kept = Some(journal.place());
        }
        left_count += usize::from(kept.is_some());
        journal.edit(None, &put(1, &value));
    }
    assert!(!journal.is_overflowed());
    journal.cut(kept.unwrap());
    assert_eq!(next(&journal).1.edits.len(), left_count);
    journal.cut(journal.place());
    assert!(next(&journal).1.is_empty());
}

#[test]
fn a_log_that_is_full_says_so_until_a_commit_has_cut_it() {
    let journal = live();
    let value = vec![1; 1 << 20];
    for id in 0..200 {
        journal.edit(None, &put(id, &value));
    }
    assert!(next(&journal).1.overflowed);
    journal.cut(journal.place());
    journal.edit(None, &put(1, b"fits"));
    let (_, recovered) = next(&journal);
    assert!(!recovered.overflowed);
    assert_eq!(recovered.edits.len(), 1);
}

#[test]
fn what_a_process_left_is_taken_by_its_heirs_only() {
    let journal = live();
    journal.begin(claim(5), false);
    journal.edit(None, &put(1, b"row"));
    // Somebody else had the group in between, be it as number 6.
    journal.note_claim(claim(66), claim(7));
    assert!(journal.recover(claim(7)).is_none());
    // And the next one after that is no heir either.
    journal.note_claim(claim(7), claim(8));
    assert!(journal.recover(claim(8)).is_none());
    journal.note_claim(claim(5), claim(6));
    assert!(journal.recover(claim(6)).is_some());
    journal.close();
    assert!(journal.recover(claim(6)).is_none());
    assert!(journal.is_heir(claim(6)) && !journal.is_heir(claim(8)));
}

#[test]
fn processes_that_die_between_their_claim_and_their_taking_over_leave_heirs() {
    let journal = live();
    journal.edit(None, &put(1, b"row"));
    // Each of these claimed the group; none has looked at the journal.
    for number in 1..500 {
        journal.note_claim(claim(number), claim(number + 1));
    }
    assert!(journal.recover(claim(500)).is_some());
    // Each of these died before its claim was on a disk.
    for number in 1000..1500 {
        journal.note_claim(claim(500), claim(number));
    }
    journal.note_claim(claim(500), claim(501));
    assert!(journal.recover(claim(501)).is_some());
    // What an heir began is its own, and no earlier one's.
    journal.begin(claim(501), false);
    assert!(journal.recover(claim(500)).is_none());
    assert!(journal.recover(claim(501)).is_some());
}

#[test]
fn a_process_that_let_go_of_the_group_is_no_heir_and_leaves_none() {
    let journal = live();
    journal.edit(None, &put(1, b"row"));
    journal.note_claim(claim(1), claim(2));
    journal.note_claim(claim(2), claim(3));
    journal.forget_claim(claim(3));
    assert!(journal.recover(claim(3)).is_none());
    // The next one finds the record of the one that let go.
    journal.note_claim(claim(3), claim(4));
    assert!(journal.recover(claim(4)).is_none());
    assert!(journal.recover(claim(2)).is_some());
}

#[test]
fn what_is_too_large_for_the_log_is_told_until_a_commit_has_it() {
    let journal = live();
    journal.edit(None, &put(1, &vec![1; 129 << 20]));
    assert!(journal.is_overflowed());
    journal.edit(None, &put(2, b"small"));
    assert!(journal.is_overflowed());
    // What fell out after a commit had taken its batch is not in it.
    let place = journal.place();
    journal.edit(None, &put(3, &vec![1; 129 << 20]));
    journal.cut(place);
    assert!(journal.is_overflowed());
    journal.cut(journal.place());
    assert!(!journal.is_overflowed());
}

/// More than the log can ever take.
fn huge(id: u64) -> Edit {
    put(id, &vec![1; 129 << 20])
}

#[test]
fn nothing_after_a_record_that_did_not_fit_counts_until_a_commit_has_it() {
    let journal = live();
    let first = journal.bracket();
    journal.edit(Some(first), &put(1, b"whole"));
    done(&journal, 0, 41, first);
    // The middle of an operation falls out; its ends would fit.
    let second = journal.bracket();
    journal.edit(Some(second), &put(2, b"half"));
    journal.edit(Some(second), &huge(3));
    journal.edit(Some(second), &put(4, b"other half"));
    done(&journal, 1, 42, second);
    // What follows from it would fit too.
    let third = journal.bracket();
    journal.edit(Some(third), &put(5, b"after it"));
    done(&journal, 2, 43, third);
    journal.extent(FileId(9), 3, 77, &[1, 2, 3]);
    let (_, recovered) = next(&journal);
    assert!(recovered.overflowed);
    assert_eq!(recovered.edits.len(), 1);
    assert!(recovered.extents.is_empty());
    assert_eq!(recovered.done, BTreeSet::from([41]));
    // A commit that has none of it changes nothing.
    let fourth = journal.bracket();
    let before = journal.place();
    journal.edit(Some(fourth), &put(6, b"fell out as well"));
    journal.cut(before);
    let (_, recovered) = next(&journal);
    assert!(recovered.edits.is_empty() && recovered.overflowed);
    assert_eq!(recovered.done, BTreeSet::from([41]));
    // One that has all of it makes it done, and the log goes on.
    done(&journal, 3, 44, fourth);
    journal.cut(journal.place());
    let fifth = journal.bracket();
    journal.edit(Some(fifth), &put(7, b"fits"));
    done(&journal, 4, 45, fifth);
    let (_, recovered) = next(&journal);
    assert!(!recovered.overflowed);
    assert_eq!(recovered.edits.len(), 1);
    assert_eq!(recovered.done, (41..46).collect());
}

#[test]
fn a_touch_whose_row_did_not_fit_counts_until_a_commit_has_the_row() {
    let journal = live();
    let mut touched = None;
    assert!(journal.touch(&mut touched, &touch_of(1, 40)));
    journal.edit(None, &huge(2));
    // Its row is written by an operation, of which nothing is in the log.
    let bracket = journal.bracket();
    journal.edit(Some(bracket), &put(1, b"a row with the size 40"));
    journal.end(bracket);
    journal.free_touch(touched.unwrap());
    assert_eq!(next(&journal).1.touches, [touch_of(1, 40)]);
    journal.cut(journal.place());
    assert!(next(&journal).1.touches.is_empty());
    // The place is free again.
    let mut places: Vec<_> = (0..super::TOUCHES_COUNT).map(|_| None).collect();
    assert!((places.iter_mut()).all(|place| journal.touch(place, &touch_of(3, 1))));
}

#[test]
fn what_a_commit_has_of_a_full_log_does_not_come_back_where_a_kill_came_before_the_cut() {
    let journal = live();
    let (mut first, mut second, mut later) = (None, None, None);
    journal.edit(None, &put(1, b"a row before all"));
    journal.edit(None, &huge(2));
    // Two rows of an inode, each after its touch. All of it fell out.
    assert!(journal.touch(&mut first, &touch_of(1, 10)));
    let bracket = journal.bracket();
    journal.edit(Some(bracket), &put(1, b"a row with the size 10"));
    journal.end(bracket);
    journal.free_touch(first.unwrap());
    assert!(journal.touch(&mut second, &touch_of(1, 40)));
    assert_eq!(next(&journal).1.touches, [touch_of(1, 40)]);
    let bracket = journal.bracket();
    journal.edit(Some(bracket), &put(1, b"a row with the size 40"));
    done(&journal, 0, 7, bracket);
    journal.free_touch(second.unwrap());
    // The commit takes its batch here.
    let covered = journal.covered(journal.place()).unwrap();
    let (_, _, covered) = &covered.changes[0];
    assert!(journal.touch(&mut later, &touch_of(3, 50)));
    let bracket = journal.bracket();
    journal.edit(Some(bracket), &put(3, b"a row with the size 50"));
    done(&journal, 1, 8, bracket);
    journal.free_touch(later.unwrap());
    // One process after the other dies at its beginning.
    for _ in 0..2 {
        let next = next_of(&journal);
        next.cut_what_is_covered(covered.as_ref().unwrap());
        let recovered = next.recover(claim(1)).unwrap();
        assert!(recovered.edits.is_empty());
        assert_eq!(recovered.touches, [touch_of(3, 50)]);
        assert_eq!(recovered.done, BTreeSet::from([7]));
        assert!(recovered.overflowed);
    }
    // Of another process's journal it says nothing.
    let other = live();
    other.edit(None, &put(1, b"row"));
    other.begin(claim(2), false);
    other.cut_what_is_covered(covered.as_ref().unwrap());
    assert_eq!(other.left().edits.len(), 1);
}

#[test]
fn a_log_that_is_full_to_the_last_word_goes_on_behind_the_gap() {
    let journal = live();
    for round in 0..3_u64 {
        journal.edit(None, &put(round, &vec![1; 100 << 20]));
        // The record's head, the value's and the key's with its own, and the two words behind.
        let used = journal.log.lock().length_words(&journal.memory) + 2 + 3 + 2;
        let left = usize::try_from((super::layout::LOG_WORDS - used) * 8).unwrap();
        journal.edit(None, &put(round, &vec![1; left]));
        assert!(!journal.is_overflowed());
        let bracket = journal.bracket();
        journal.edit(Some(bracket), &put(100 + round, b"row"));
        done(&journal, 0, round + 1, bracket);
        let (_, recovered) = next(&journal);
        assert_eq!(recovered.edits.len(), 2);
        assert!(!recovered.done.contains(&(round + 1)));
        journal.cut(journal.place());
        let (_, recovered) = next(&journal);
        assert!(recovered.is_empty() && recovered.done.contains(&(round + 1)));
        journal.edit(None, &put(round, b"row"));
        assert_eq!(next(&journal).1.edits.len(), 1);
        journal.cut(journal.place());
    }
}

#[test]
fn a_request_that_waits_for_its_answer_stays_known_however_many_were_done_since() {
    let journal = live();
    for unique in std::iter::once(5).chain(6..1200) {
        let bracket = journal.bracket();
        journal.edit(Some(bracket), &put(unique, b"row"));
        done(&journal, usize::from(unique > 5), unique, bracket);
    }
    let (second, recovered) = next(&journal);
    assert!(recovered.done.contains(&5));
    second.take(&recovered.done);
    assert!(second.left().done.contains(&5));
}

#[test]
fn a_list_of_done_requests_that_a_kill_cuts_off_leaves_the_one_before() {
    let journal = live();
    journal.take(&(1..=1000).collect());
    journal.begin(claim(2), false);
    let killed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let list = (2001..=3000).rev().inspect(|unique| {
            assert!(*unique > 2500, "killed in the midst, as the test wants it");
        });
        super::layout::write_done(journal.memory.words(), list);
    }));
    killed.unwrap_err();
    assert_eq!(journal.left().done, (1..=1000).collect());
    journal.take(&(2001..=3000).collect());
    assert_eq!(journal.left().done, (2001..=3000).collect());
}

#[test]
fn a_kill_at_any_step_of_a_takeover_brings_nothing_old_back_and_forgets_nothing() {
    let journal = live();
    // A touch that is older than its row, and was not given up yet; one that is newer.
    let (mut older, mut newer) = (None, None);
    assert!(journal.touch(&mut older, &touch_of(1, 10)));
    journal.edit(None, &put(2, b"a row with the size 30"));
    journal.edit(None, &put(1, b"a row with the size 20"));
    assert!(journal.touch(&mut newer, &touch_of(2, 40)));
    // A request that only the log names, one that fell out of it, and a write under way.
    let bracket = journal.bracket();
    journal.edit(Some(bracket), &put(3, b"row"));
    done(&journal, 3, 7, bracket);
    let bracket = journal.bracket();
    journal.edit(Some(bracket), &huge(4));
    done(&journal, 3, 8, bracket);
    let write = journal.write(FileId(5), 8, 16);
    let (second, recovered) = next(&journal);
    assert_eq!(recovered.done, BTreeSet::from([7]));
    let mut steps = 0;
    second.take_in_steps(&recovered.done, &mut || {
        steps += 1;
        let (_, left) = next(&second);
        assert_eq!(left.done, recovered.done, "step {steps}");
        assert_eq!(left.writes, recovered.writes, "step {steps}");
        // All of it once more, or nothing.
        if left.edits.is_empty() {
            assert!(left.touches.is_empty(), "step {steps}");
        } else {
            assert_eq!(left.edits.len(), 3, "step {steps}");
            assert_eq!(left.touches, [touch_of(2, 40)], "step {steps}");
        }
    });
    second.begin_in_steps(claim(2), true, &mut || {
        steps += 1;
        let left = next_of(&second).left();
        assert!(left.is_empty() && left.compare_everything, "step {steps}");
        assert_eq!(left.done, recovered.done, "step {steps}");
    });
    assert_eq!(steps, 8);
    assert!(second.recover(claim(2)).is_some());
    drop(write);
}

#[test]
fn which_appearance_of_a_disk_was_served_is_known_of_the_last_process_alone() {
    let journal = KeptJournal::create().unwrap();
    let (disk, other) = (DiskNumber(3), DiskNumber(u16::MAX));
    let another = |journal: &KeptJournal, appearance| {
        let next = next_of(journal);
        [disk, other].map(|disk| next.served_another(disk, appearance))
    };
    assert_eq!(another(&journal, 1), [false, false]);
    let seen = [(disk, Some(1)), (other, None)];
    journal.note_appearances(claim(1), seen.into_iter());
    journal.begin(claim(1), false);
    assert_eq!(another(&journal, 1), [false, false]);
    assert_eq!(another(&journal, 2), [true, false]);
    journal.note_appearance(other, Some(2));
    assert_eq!(another(&journal, 2), [true, false]);
    assert_eq!(another(&journal, 1), [false, true]);
    // The heir has not begun.
    let second = next_of(&journal);
    second.note_claim(claim(1), claim(2));
    let seen = [(disk, Some(2)), (other, Some(2))];
    second.note_appearances(claim(2), seen.into_iter());
    assert_eq!(another(&second, 2), [false, false]);
    assert_eq!(another(&second, 3), [true, true]);
    // A program that knows nothing of this began: the disks may have come back since.
    second.note_claim(claim(2), claim(3));
    second.begin(claim(3), false);
    assert_eq!(another(&second, 3), [false, false]);
}

#[test]
fn appearances_are_known_however_many_disks_came_and_went_before() {
    let journal = KeptJournal::create().unwrap();
    let all = |numbers: std::ops::Range<u16>| numbers.map(|number| (DiskNumber(number), Some(1)));
    let is_known =
        |journal: &KeptJournal, number| next_of(journal).served_another(DiskNumber(number), 2);
    journal.note_appearances(claim(1), all(0..200));
    journal.begin(claim(1), false);
    // Others take the place of those that left, while this process serves and when the next one does.
    journal.note_appearance(DiskNumber(5), None);
    journal.note_appearance(DiskNumber(200), Some(1));
    assert!(!is_known(&journal, 5) && is_known(&journal, 200));
    let second = next_of(&journal);
    second.note_claim(claim(1), claim(2));
    second.note_appearances(claim(2), all(500..520));
    assert!((500..520).all(|number| is_known(&second, number)));
    assert!(!is_known(&second, 6));
}

/// What a panic leaves: nothing that follows is in the log.
#[test]
fn nothing_is_given_up_or_forgotten_after_half_an_operation() {
    let journal = live();
    let (mut touched, disk) = (None, DiskNumber(3));
    assert!(journal.touch(&mut touched, &touch_of(1, 40)));
    journal.note_failed_flush(disk);
    journal.end_at_half();
    assert!(journal.has_ended() && !journal.is_overflowed());
    // The row and what is owed would be in the log; and no commit has what is missing there.
    journal.edit(None, &put(1, b"a row with the size 40"));
    journal.free_touch(touched.unwrap());
    journal.forget_failed_flush(disk);
    journal.cut(journal.place());
    let (next_journal, recovered) = next(&journal);
    assert_eq!(recovered.touches.len(), 1);
    assert!(next_journal.has_failed_flush(disk) && !recovered.overflowed);
    // The next process is whole again when it has taken what was left.
    next_journal.take(&BTreeSet::new());
    assert!(!next_journal.has_ended());
}

#[test]
fn a_failed_flush_that_a_full_log_has_no_room_to_tell_of_is_known_until_a_commit_has_that() {
    let memory = SharedMemory::create("journal", KeptJournal::length_bytes(1 << 10)).unwrap();
    let journal = KeptJournal::new(memory).unwrap();
    journal.begin(claim(1), false);
    let disks = [DiskNumber(0), DiskNumber(1)];
    let knows = |journal: &KeptJournal| disks.map(|disk| next_of(journal).has_failed_flush(disk));
    journal.edit(None, &put(1, &[7; 2048]));
    for disk in disks {
        journal.note_failed_flush(disk);
    }
    let before = journal.place();
    journal.edit(None, &put(2, b"the error that is owed"));
    for disk in disks {
        journal.forget_failed_flush(disk);
    }
    // A commit that does not have all of it.
    journal.cut(before);
    assert_eq!(knows(&journal), [true; 2]);
    // Failed again, and nobody told.
    journal.note_failed_flush(disks[1]);
    journal.cut(journal.place());
    assert_eq!(knows(&journal), [false, true]);
    journal.forget_failed_flush(disks[1]);
    assert_eq!(knows(&journal), [false; 2]);
}

#[test]
fn a_disk_that_failed_a_flush_is_known_to_the_next_processes_until_one_has_taken_all() {
    let journal = live();
    let disks = [DiskNumber(0), DiskNumber(7), DiskNumber(u16::MAX)];
    for disk in disks {
        journal.note_failed_flush(disk);
        journal.note_failed_flush(disk);
    }
    journal.forget_failed_flush(disks[0]);
    let knows = |journal: &KeptJournal| disks.map(|disk| journal.has_failed_flush(disk));
    let second = next_of(&journal);
    assert_eq!(knows(&second), [false, true, true]);
    // It does not know the files of the one before.
    second.forget_failed_flush(disks[1]);
    second.note_failed_flush(disks[0]);
    let third = next_of(&second);
    assert_eq!(knows(&third), [true; 3]);
    third.take(&BTreeSet::new());
    assert_eq!(knows(&next_of(&third)), [false; 3]);
    // What a process that knows no such words left behind is none of the next one's.
    third.note_failed_flush(disks[1]);
    third.begin(claim(9), false);
    assert_eq!(knows(&next_of(&third)), [false; 3]);
    for number in 0..1000 {
        third.note_failed_flush(DiskNumber(number));
    }
    assert_eq!(knows(&next_of(&third)), [true; 3], "more than can be named");
}

#[test]
fn many_files_that_came_and_went_are_taken_over_in_a_moment() {
    let journal = live();
    const FILES: u64 = 60_000;
    for id in 10..10 + FILES {
        for index in 0..2 {
            journal.extent(FileId(id), index, 1, &[7, 8]);
        }
    }
    for id in 10..10 + FILES {
        let mut edit = Edit::default();
        edit.delete(Table::File, file_key(FileId(id)));
        journal.edit(None, &edit);
    }
    assert!(!journal.is_overflowed() && !journal.is_nearly_full());
    let began = std::time::Instant::now();
    let (_, recovered) = next(&journal);
    assert!(recovered.extents.is_empty());
    let took = began.elapsed();
    // Seconds where each removal looks at its own extents, minutes where it looks at all.
    assert!(took.as_secs() < 10, "{took:?}");
}
