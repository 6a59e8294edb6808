//! Writes that are announced and refused, and bad places that are written again.

use super::*;

#[test]
fn what_is_noted_for_a_refused_write_alone_is_taken_back() {
    let (dirty, file) = (DirtyRegions::default(), file());
    let mut applied = Applied::default();
    let begin = |applied: &mut Applied, first: u64, end: u64| {
        (dirty.begin_write(&file, &[(first, end)], true, &[AWAY], &mut applied.apply())).0
    };
    let stale = |first: u64, end: u64| {
        let is_stale = |block: &u64| dirty.is_stale(&file, AWAY, *block, block + 1);
        (first..end).filter(is_stale).collect::<Vec<_>>()
    };
    // One whose blocks another one writes as well, and of which a part goes out.
    let refused = begin(&mut applied, 10, 20);
    let other = begin(&mut applied, 18, 22);
    dirty.missed_by(&file, &[(18, 22)], &[AWAY], &mut applied.apply());
    dirty.end_write(file.id, &other);
    assert!(dirty.take_back(file.id, &refused, &[(12, 13)], &mut applied.apply()));
    assert_eq!(stale(0, 30), [12, 18, 19, 20, 21]);
    // Named before, and by an outage that lost what was copied.
    let refused = begin(&mut applied, 20, 30);
    assert!(dirty.take_back(file.id, &refused, &[], &mut applied.apply()));
    assert_eq!(stale(0, 40), [12, 18, 19, 20, 21]);
    assert_eq!(applied.newest(), open(&[AWAY]));
    let refused = begin(&mut applied, 40, 50);
    dirty.missed_by(&file, &[(42, 44)], &[AWAY], &mut applied.apply());
    assert!(dirty.take_back(file.id, &refused, &[], &mut applied.apply()));
    assert_eq!(stale(30, 60), [42, 43]);
    // Written lately by another one, before the disk went; and announced by two at once.
    let (written, _) = dirty.begin_write(&file, &[(60, 70)], true, &[], &mut applied.apply());
    dirty.end_write(file.id, &written);
    let refused = [begin(&mut applied, 62, 66), begin(&mut applied, 64, 68)];
    assert_eq!(stale(60, 70), [62, 63, 64, 65, 66, 67]);
    for refused in refused {
        dirty.take_back(file.id, &refused, &[], &mut applied.apply());
    }
    assert_eq!(stale(60, 70), []);
}

#[test]
fn a_disk_that_goes_before_a_write_that_is_refused_has_not_missed_it() {
    let (dirty, file) = (DirtyRegions::default(), file());
    let mut applied = Applied::default();
    let begin = |applied: &mut Applied, first: u64, end: u64| {
        (dirty.begin_write(&file, &[(first, end)], true, &[], &mut applied.apply())).0
    };
    let goes = |applied: &mut Applied, number: u32| {
        let gone = Life {
            disk: AWAY,
            incarnation: Incarnation::of_number(number),
        };
        let is_stale = |_| file.may_be_stale.store(true, Ordering::Release);
        let lately = lately(&dirty, &[]);
        dirty.went_offline(gone, &lately, &|_| false, &is_stale, &mut applied.apply());
    };
    let stale = || {
        let is_stale = |block: &u64| dirty.is_stale(&file, AWAY, *block, block + 1);
        (0..40).filter(is_stale).collect::<Vec<_>>()
    };
    let written = begin(&mut applied, 1, 3);
    dirty.end_write(file.id, &written);
    let refused = begin(&mut applied, 2, 6);
    // What is copied there is lost with it, whatever becomes of the write.
    let copy = dirty.begin_copy(&file, &[(5, 6)], AWAY, &|_| false);
    goes(&mut applied, 4);
    assert_eq!(stale(), [1, 2, 3, 4, 5]);
    assert!(dirty.take_back(file.id, &refused, &[], &mut applied.apply()));
    assert_eq!(stale(), [1, 2, 5]);
    dirty.end_copy(file.id, &copy, target(LIFE));
    // It did not go out, so it was not written lately; and what an earlier outage took is noted.
    dirty.keep_only_copy(file.id, (0, 40), AWAY);
    goes(&mut applied, 8);
    assert_eq!(stale(), [1, 2]);
}

#[test]
fn a_disk_under_suspicion_is_named_only_while_no_other_lacks_anything_or_is_away() {
    let (dirty, file) = (DirtyRegions::default(), file());
    let other = DiskNumber(5);
    let mut applied = Applied::default();
    let begin = |all_serve: bool, applied: &mut Applied| {
        let has_flushed = |_: Target| false;
        dirty.begin_mend(
            &file,
            &[(5, 6)],
            other,
            &has_flushed,
            &|| all_serve,
            &mut applied.apply(),
        )
    };
    let (mend, _) = begin(false, &mut applied);
    assert_eq!(applied.newest(), open(&[]), "another one is away");
    let newest = target(Life {
        disk: other,
        ..LIFE
    });
    dirty.end_mend(file.id, &mend, newest, &mut applied.apply());

    let (mend, _) = begin(true, &mut applied);
    assert_eq!(applied.newest(), open(&[other]));
    // A row with both would leave no copy that counts.
    dirty.missed_by(&file, &[(5, 7)], &[AWAY], &mut applied.apply());
    assert_eq!(applied.newest(), open(&[AWAY]));
    dirty.caught_up(&file, (5, 7), &[target(LIFE)], &[]);
    dirty.name_only_stale(file.id, true, &mut applied.apply());
    dirty.end_mend(file.id, &mend, newest, &mut applied.apply());

    let (mend, _) = begin(true, &mut applied);
    assert_eq!(applied.newest(), open(&[other]));
    // One that goes may have the only other copy of another block of the region.
    let gone = Life {
        incarnation: LIFE.incarnation.next(),
        ..LIFE
    };
    dirty.went_offline(
        gone,
        &lately(&dirty, &[]),
        &|_| true,
        &|_| {},
        &mut applied.apply(),
    );
    assert_eq!(applied.newest(), open(&[]));
    dirty.end_mend(file.id, &mend, newest, &mut applied.apply());
    assert_eq!(applied.newest(), open(&[]));
}

/// Whoever puts the row next finds it right.
#[test]
fn what_a_file_of_one_copy_has_alone_its_row_ceases_to_list_in_the_same_moment() {
    let (dirty, file) = (DirtyRegions::default(), file());
    let mut applied = Applied::default();
    dirty.lost_by(&file, &[(5, 9)], LIFE.disk, &mut applied.apply());
    assert_eq!(applied.newest().stale[0].runs.len(), 1);
    dirty.took_write(&file, (5, 7), &[target(LIFE)], false, &mut applied.apply());
    let listed = applied.newest();
    assert!(!listed.open);
    let run = &listed.stale[0].runs[0];
    assert_eq!((run.first_block, run.blocks), (7, 2));
}
