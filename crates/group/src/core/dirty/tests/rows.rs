//! What open rows list.

use super::*;

#[test]
fn an_open_row_lists_what_a_disk_lacks_unless_writes_are_announced_that_it_misses() {
    let (dirty, file) = (DirtyRegions::default(), file());
    let mut applied = Applied::default();
    let lists = |record: &DirtyRecord| -> Vec<(u16, u16)> {
        assert!(record.open);
        let runs = &record
            .stale
            .iter()
            .find(|stale| stale.disk == AWAY)
            .unwrap()
            .runs;
        runs.iter()
            .map(|run| (run.first_block, run.blocks))
            .collect()
    };
    let miss = |first: u64, end: u64, applied: &mut Applied| {
        dirty.missed_by(&file, &[(first, end)], &[AWAY], &mut applied.apply());
        applied.newest()
    };
    let first = miss(5, 7, &mut applied);
    assert_eq!(lists(&first), [], "the group has not the feature");
    assert!(dirty.would_list());
    dirty.list_blocks();
    assert!(!dirty.would_list());
    dirty.name_only_stale(file.id, true, &mut applied.apply());
    assert_eq!(lists(&applied.newest()), [(5, 2)]);
    assert_eq!(lists(&miss(9, 10, &mut applied)), [(5, 2), (9, 1)]);

    // One row for many writes.
    let (writer, needed) = applied.begin(&dirty, &file, 0, &[AWAY]);
    assert_eq!(needed, Sequence(applied.0.len() as u64));
    assert_eq!(lists(&applied.newest()), []);
    dirty.end_write(file.id, &writer);
    let puts_count = applied.0.len();
    let (writer, _) = applied.begin(&dirty, &file, 0, &[AWAY]);
    dirty.end_write(file.id, &writer);
    assert_eq!(applied.0.len(), puts_count);
    assert!(round(&dirty).0.is_empty());
    // Nothing is announced that a disk misses that is on its way back.
    drop(dirty.begin_resync());
    let (edit, _) = round(&dirty);
    assert_eq!(lists(&record(&edit)), [(5, 2), (9, 1)]);
    // Where two lack something a row lists each write.
    let other = DiskNumber(AWAY.0 + 1);
    dirty.missed_by(&file, &[(20, 21)], &[other], &mut applied.apply());
    assert_eq!(lists(&applied.newest()), [(5, 2), (9, 1)]);
    let blocks = [(30, 31)];
    let (writer, _) = dirty.begin_write(&file, &blocks, true, &[AWAY], &mut applied.apply());
    dirty.end_write(file.id, &writer);
    assert_eq!(lists(&applied.newest()), [(5, 2), (9, 1), (30, 1)]);
    dirty.keep_only_copy(file.id, (20, 21), other);
    dirty.keep_only_copy(file.id, (30, 31), AWAY);
    drop(dirty.begin_resync());
    // What it has got goes from the list.
    dirty.caught_up(&file, (5, 6), &[target(Life { disk: AWAY, ..LIFE })], &[]);
    dirty.name_only_stale(file.id, true, &mut applied.apply());
    assert_eq!(lists(&applied.newest()), [(6, 1), (9, 1)]);
    // As an opening finds it.
    let opened = DirtyRegions::default();
    opened.load(file.id, 0, &applied.newest(), &|_| true);
    let is_stale = |block: &u64| opened.is_stale(&file, AWAY, *block, block + 1);
    file.may_be_stale.store(true, Ordering::Release);
    assert_eq!((0..20).filter(is_stale).collect::<Vec<_>>(), [6, 9]);
}

/// A row that comes to say more without being waited for does not count as said by who writes next.
#[test]
fn a_row_that_is_put_anew_by_a_round_is_put_again_by_the_next_write_that_a_disk_misses() {
    let (dirty, file) = (DirtyRegions::default(), file());
    let mut applied = Applied::default();
    dirty.list_blocks();
    let other = DiskNumber(AWAY.0 + 1);
    let (writer, _) = applied.begin(&dirty, &file, 0, &[AWAY]);
    dirty.end_write(file.id, &writer);
    dirty.missed_by(&file, &[(100, 101)], &[other], &mut applied.apply());
    assert_eq!(applied.newest().stale.len(), 2);
    dirty.keep_only_copy(file.id, (100, 101), other);
    let (edit, _) = round(&dirty);
    assert!(
        record(&edit).stale[0].runs.is_empty(),
        "all of it, for writes go on"
    );
    let round_edit = applied.apply()(edit);
    let blocks = [(20, 21)];
    let (writer, needed) = dirty.begin_write(&file, &blocks, true, &[AWAY], &mut applied.apply());
    assert!(needed > round_edit, "{needed:?}");
    dirty.end_write(file.id, &writer);
    // And is not put for each.
    let (writer, again) = dirty.begin_write(&file, &blocks, true, &[AWAY], &mut applied.apply());
    assert_eq!(again, needed);
    dirty.end_write(file.id, &writer);
}

#[test]
fn a_place_that_is_written_again_makes_all_of_the_region_stale_beside_what_its_disk_lacks() {
    let (dirty, file) = (DirtyRegions::default(), file());
    let mut applied = Applied::default();
    dirty.list_blocks();
    dirty.missed_by(&file, &[(5, 7)], &[AWAY], &mut applied.apply());
    assert_eq!(applied.newest().stale[0].runs.len(), 1);
    let begun = {
        let apply = &mut applied.apply();
        dirty.begin_mend(&file, &[(100, 101)], AWAY, &|_| false, &|| true, apply)
    };
    let (mend, needed) = begun;
    assert_eq!(needed, Sequence(2));
    assert!(applied.newest().stale[0].runs.is_empty());
    dirty.name_only_stale(file.id, true, &mut applied.apply());
    assert!(round(&dirty).0.is_empty(), "it stays so");
    let newest = target(Life { disk: AWAY, ..LIFE });
    dirty.end_mend(file.id, &mend, newest, &mut applied.apply());
    assert_eq!(applied.newest().stale[0].runs.len(), 1);
}

fn lacks_nothing(dirty: &DirtyRegions, disk: DiskNumber) -> bool {
    let mut answer = false;
    dirty.if_it_lacks_only(disk, &|_, _| false, || answer = true);
    answer
}

/// The place on the one disk is named when the other one has caught up, and not any more when it is
/// mended.
#[test]
fn a_row_ceases_to_say_what_it_came_to_say_for_a_place_that_was_written_again() {
    let (dirty, file) = (DirtyRegions::default(), file());
    let mut applied = Applied::default();
    dirty.list_blocks();
    let other = DiskNumber(AWAY.0 + 1);
    let begun = {
        let apply = &mut applied.apply();
        dirty.begin_mend(&file, &[(100, 101)], AWAY, &|_| false, &|| true, apply)
    };
    dirty.missed_by(&file, &[(5, 7)], &[other], &mut applied.apply());
    assert_eq!(applied.newest().stale[0].disk, other);
    dirty.keep_only_copy(file.id, (5, 7), other);
    let (edit, _) = round(&dirty);
    assert_eq!(record(&edit), open(&[AWAY]));
    applied.apply()(edit);
    assert!(!lacks_nothing(&dirty, AWAY));
    let newest = target(Life { disk: AWAY, ..LIFE });
    dirty.end_mend(file.id, &begun.0, newest, &mut applied.apply());
    assert_eq!(applied.newest(), open(&[]));
    assert!(lacks_nothing(&dirty, AWAY));
}

/// The one that gave it all that may be the next to go, and be killed together with the process.
#[test]
fn a_disk_that_has_everything_again_is_named_no_more_when_another_goes_that_nothing_was_written_to()
{
    let (dirty, file) = (DirtyRegions::default(), file());
    let mut applied = Applied::default();
    dirty.list_blocks();
    dirty.missed_by(&file, &[(5, 9)], &[AWAY], &mut applied.apply());
    let (_, edit) = rounds_until_an_edit(&dirty);
    assert!(!record(&edit).open);
    applied.apply()(edit);
    // So long ago that no disk lacks it.
    for _ in 0..4 {
        round(&dirty);
    }
    let newest = target(Life { disk: AWAY, ..LIFE });
    dirty.caught_up(&file, (5, 9), &[newest], &[]);
    let other = Life {
        disk: DiskNumber(AWAY.0 + 1),
        incarnation: LIFE.incarnation.next(),
    };
    let lately = lately(&dirty, &[]);
    dirty.went_offline(other, &lately, &|_| true, &|_| {}, &mut applied.apply());
    assert_eq!(applied.newest(), open(&[]));
}
