//! Group commit, failures, and what a crash between the two phases leaves.

use spindle_sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use crate::memory_region::{Arrival, MemoryRegion};
use crate::store::Store;
use crate::{Catalog, CatalogError, Edit, Rows, Sequence, Table, Wish};

const CACHE_BYTES: usize = 1 << 20;

fn put(key: &[u8], value: &[u8]) -> Edit {
    let mut edit = Edit::default();
    edit.put(Table::Inode, key.to_vec(), value.to_vec());
    edit
}

fn new_catalog() -> (Arc<MemoryRegion>, Catalog) {
    let region = Arc::new(MemoryRegion::new());
    let catalog = Catalog::create(region.clone(), CACHE_BYTES).unwrap();
    (region, catalog)
}

#[test]
fn callers_that_wait_for_a_running_commit_share_the_next_one() {
    let (region, catalog) = new_catalog();
    let callers = 8;
    let taken = Barrier::new(callers + 1);
    let begun = Barrier::new(callers + 1);
    let commits_count = AtomicU64::new(0);
    let first = catalog.apply(put(b"first", b"1"));
    thread::scope(|scope| {
        scope.spawn(|| {
            let batch = catalog.begin_commit(first).unwrap().take_batch();
            commits_count.fetch_add(1, Ordering::Relaxed);
            taken.wait();
            // Held open until every other caller is on its way into commit, also where the
            // machine has much else to do.
            begun.wait();
            thread::sleep(std::time::Duration::from_secs(1));
            batch.make_durable().unwrap();
        });
        for caller in 0..callers {
            let (catalog, begun, commits_count) = (&catalog, &begun, &commits_count);
            let taken = &taken;
            scope.spawn(move || {
                let key = caller.to_be_bytes();
                // What is applied before belongs to the first commit.
                taken.wait();
                let through = catalog.apply(put(&key, b"2"));
                begun.wait();
                if let Some(commit) = catalog.begin_commit(through) {
                    commits_count.fetch_add(1, Ordering::Relaxed);
                    commit.take_batch().make_durable().unwrap();
                }
                assert!(catalog.committed() >= through);
            });
        }
    });
    assert_eq!(commits_count.load(Ordering::Relaxed), 2);
    drop(catalog);
    let again = Catalog::open(region, CACHE_BYTES).unwrap();
    for caller in 0..callers {
        assert!(
            again
                .get(Table::Inode, &caller.to_be_bytes())
                .unwrap()
                .is_some()
        );
    }
}

#[test]
fn threads_that_apply_and_commit_find_their_rows_after_a_crash() {
    let (region, catalog) = new_catalog();
    thread::scope(|scope| {
        for thread in 0..4_u32 {
            let catalog = &catalog;
            scope.spawn(move || {
                for round in 0..40_u32 {
                    let key = (thread << 16 | round).to_be_bytes();
                    let through = catalog.apply(put(&key, &key));
                    assert_eq!(catalog.get(Table::Inode, &key).unwrap().unwrap(), key);
                    catalog.commit(through).unwrap();
                    assert_eq!(catalog.get(Table::Inode, &key).unwrap().unwrap(), key);
                }
            });
        }
    });
    drop(catalog);
    let again = Catalog::open(region, CACHE_BYTES).unwrap();
    assert_eq!(
        again.range(Table::Inode, &[], &[0xFF], 1000).unwrap().len(),
        160
    );
}

#[test]
fn a_commit_of_one_row_is_two_durable_writes_and_a_commit_of_none_is_none() {
    let (region, catalog) = new_catalog();
    for row in 0..1000_u32 {
        catalog.apply(put(&row.to_be_bytes(), &[1; 200]));
    }
    catalog.commit(catalog.applied()).unwrap();
    let (writes, blocks) = (region.writes_count(), region.written_blocks_count());
    let through = catalog.apply(put(&500_u32.to_be_bytes(), &[2; 200]));
    catalog.commit(through).unwrap();
    catalog.commit(Sequence(u64::MAX)).unwrap();
    assert_eq!(region.writes_count() - writes, 2);
    assert!(region.written_blocks_count() - blocks <= 16);
}

#[test]
fn what_is_applied_before_the_batch_is_taken_is_in_it_and_what_comes_after_in_the_next() {
    let (region, catalog) = new_catalog();
    let begun = catalog.begin_commit(Sequence(u64::MAX)).unwrap();
    catalog.apply(put(b"sealed", b"1"));
    let batch = begun.take_batch();
    catalog.apply(put(b"later", b"1"));
    assert!(catalog.get(Table::Inode, b"sealed").unwrap().is_some());
    batch.make_durable().unwrap();
    assert_eq!(catalog.committed(), Sequence(1));
    assert!(catalog.get(Table::Inode, b"later").unwrap().is_some());
    drop(catalog);
    let again = Catalog::open(region, CACHE_BYTES).unwrap();
    assert!(again.get(Table::Inode, b"sealed").unwrap().is_some());
    assert!(again.get(Table::Inode, b"later").unwrap().is_none());
}

#[test]
fn a_batch_whose_flush_failed_stays_below_the_edits_that_came_meanwhile() {
    let (_region, catalog) = new_catalog();
    catalog.apply(put(b"a", b"old"));
    let kept = catalog.apply(put(b"b", b"kept"));
    let batch = catalog.begin_commit(kept).unwrap().take_batch();
    catalog.apply(put(b"a", b"new"));
    drop(batch);
    assert_eq!(catalog.committed(), Sequence(0));
    assert_eq!(catalog.get(Table::Inode, b"a").unwrap().unwrap(), b"new");
    assert_eq!(catalog.get(Table::Inode, b"b").unwrap().unwrap(), b"kept");
    catalog.commit(catalog.applied()).unwrap();
    assert_eq!(catalog.get(Table::Inode, b"a").unwrap().unwrap(), b"new");
    assert_eq!(catalog.pending_bytes(), 0);
}

#[test]
fn a_commit_that_the_region_refused_succeeds_when_it_is_asked_again() {
    for good in 0..2 {
        let (region, catalog) = new_catalog();
        let through = catalog.apply(put(b"a", b"1"));
        region.fail_write_after(Some(good));
        assert!(catalog.commit(through).is_err());
        assert_eq!(catalog.get(Table::Inode, b"a").unwrap().unwrap(), b"1");
        region.fail_write_after(None);
        catalog.commit(through).unwrap();
        drop(catalog);
        let again = Catalog::open(region, CACHE_BYTES).unwrap();
        assert_eq!(again.get(Table::Inode, b"a").unwrap().unwrap(), b"1");
    }
}

/// A catalog that reads every page from the region.
fn uncached_catalog(journal_blocks: usize) -> (Arc<MemoryRegion>, Catalog) {
    let region = Arc::new(MemoryRegion::with_journal(journal_blocks));
    let catalog = Catalog::create(region.clone(), 0).unwrap();
    commit_row(&catalog, b"a", b"1");
    catalog.settle().unwrap();
    (region, catalog)
}

#[test]
fn a_read_that_failed_long_before_fails_no_later_commit_and_no_closing() {
    for (journal_blocks, is_closed) in [(0, false), (0, true), (4, false), (4, true)] {
        let (region, catalog) = uncached_catalog(journal_blocks);
        // While a commit is under way no reader can open the store anew.
        let committing = catalog
            .begin_commit(Sequence(u64::MAX))
            .unwrap()
            .take_batch();
        region.fail_reads(true);
        catalog.get(Table::Inode, b"a").unwrap_err();
        region.fail_reads(false);
        drop(committing);
        if !is_closed {
            commit_row(&catalog, b"b", b"2");
            catalog.settle().unwrap();
        }
        catalog.close().unwrap();
        drop(catalog);
        let again = Catalog::open(region, 0).unwrap();
        let rows = again.range(Table::Inode, &[], &[255], 9).unwrap();
        assert_eq!(rows.len(), if is_closed { 1 } else { 2 });
    }
}

#[test]
fn a_commit_that_the_journal_has_room_for_reads_nothing_whatever_failed_before() {
    let (region, catalog) = uncached_catalog(4);
    let committing = catalog
        .begin_commit(Sequence(u64::MAX))
        .unwrap()
        .take_batch();
    region.fail_reads(true);
    catalog.get(Table::Inode, b"a").unwrap_err();
    drop(committing);
    commit_row(&catalog, b"b", b"2");
}

#[test]
fn a_read_that_fails_once_behind_a_commit_fails_no_later_one() {
    let mut measured_count = 0;
    for reads in 0.. {
        let (region, catalog) = uncached_catalog(0);
        // Behind both writes of the transaction: its end, and a look at what is in use.
        region.fail_read_after(2, reads);
        let through = catalog.apply(put(b"b", b"2"));
        let answer = catalog.commit(through);
        if !region.has_failed_read() {
            assert!(measured_count > 0);
            break;
        }
        measured_count += u32::from(answer.is_ok());
        commit_row(&catalog, b"c", b"3");
        catalog.close().unwrap();
        drop(catalog);
        let again = Catalog::open(region, CACHE_BYTES).unwrap();
        assert_eq!(again.range(Table::Inode, &[], &[255], 9).unwrap().len(), 3);
    }
}

#[test]
fn a_closing_after_a_failed_commit_settles_the_region_or_says_that_it_could_not() {
    for (journal_blocks, length_bytes, is_over) in [
        (0, 1, true),
        (0, 1, false),
        (4, 1, true),
        (4, 1, false),
        (4, 40_000, true),
        (4, 40_000, false),
    ] {
        let what = format!("journal {journal_blocks}, {length_bytes} bytes, over {is_over}");
        let (region, catalog) = uncached_catalog(journal_blocks);
        let generation = |region: &Arc<MemoryRegion>| {
            let store = Store::open(region.clone(), 0).unwrap();
            let generation = store.journal_generation().unwrap();
            store.abandon();
            generation
        };
        let before = generation(&region);
        let failed = catalog.apply(put(b"b", &vec![7; length_bytes]));
        region.fail_write_after(Some(0));
        catalog.commit(failed).unwrap_err();
        if is_over {
            region.fail_write_after(None);
        }
        let closed = catalog.close();
        assert_eq!(closed.is_ok(), is_over, "{what}: {closed:?}");
        region.fail_write_after(None);
        assert_eq!(catalog.close().is_ok(), is_over, "{what}");
        drop(catalog);
        // What failed may be in the journal, and must not count once the region is closed.
        assert_eq!(generation(&region) > before, is_over, "{what}");
        let again = Catalog::open(region, CACHE_BYTES).unwrap();
        assert!(again.get(Table::Inode, b"a").unwrap().is_some(), "{what}");
        assert!(again.get(Table::Inode, b"b").unwrap().is_none(), "{what}");
    }
}

#[test]
fn a_full_region_says_so_and_takes_the_batch_once_there_is_room() {
    let (region, catalog) = new_catalog();
    region.limit(4 << 20);
    let mut edit = Edit::default();
    for row in 0..2000_u32 {
        edit.put(Table::Extent, row.to_be_bytes().to_vec(), vec![1; 2048]);
    }
    let through = catalog.apply(edit);
    let result = catalog.commit(through);
    assert!(matches!(result, Err(CatalogError::Full)), "{result:?}");
    assert_eq!(
        catalog
            .range(Table::Extent, &[], &[0xFF], 9999)
            .unwrap()
            .len(),
        2000
    );
    region.limit(u64::MAX);
    catalog.commit(through).unwrap();
    assert_eq!(
        catalog
            .range(Table::Extent, &[], &[0xFF], 9999)
            .unwrap()
            .len(),
        2000
    );
}

#[test]
fn a_crash_in_either_phase_of_a_commit_leaves_the_one_before_or_it_whole() {
    for lost_phase in 0..2 {
        let (region, catalog) = new_catalog();
        let first = catalog.apply(put(b"a", b"1"));
        catalog.commit(first).unwrap();
        let second = catalog.apply(put(b"a", b"2"));
        region.fail_write_after(Some(lost_phase + 1));
        let result = catalog.commit(second);
        assert_eq!(result.is_err(), lost_phase == 0);
        // The newest write is the first phase or the second: its pages as garbage, its header
        // there or lost.
        for header in [Arrival::Whole, Arrival::Lost] {
            let crashed = region.after_crash(|offset| match offset {
                0 => header,
                _ => Arrival::Garbage,
            });
            let again = Catalog::open(Arc::new(crashed), CACHE_BYTES).unwrap();
            let value = again.get(Table::Inode, b"a").unwrap().unwrap();
            let there = lost_phase == 1 && matches!(header, Arrival::Whole);
            assert_eq!(value, if there { b"2" } else { b"1" });
        }
    }
}

fn journaled_catalog() -> (Arc<MemoryRegion>, Catalog) {
    let region = Arc::new(MemoryRegion::with_journal(4));
    let catalog = Catalog::create(region.clone(), CACHE_BYTES).unwrap();
    (region, catalog)
}

fn commit_row(catalog: &Catalog, key: &[u8], value: &[u8]) {
    let through = catalog.apply(put(key, value));
    catalog.commit(through).unwrap();
}

#[test]
fn with_a_journal_a_commit_is_one_durable_write_of_one_block() {
    let (region, catalog) = journaled_catalog();
    let (writes, blocks) = (region.writes_count(), region.written_blocks_count());
    commit_row(&catalog, b"a", &[1; 200]);
    assert_eq!(region.writes_count() - writes, 1);
    assert_eq!(region.written_blocks_count() - blocks, 1);
    drop(catalog);
    let again = Catalog::open(region, CACHE_BYTES).unwrap();
    assert_eq!(again.get(Table::Inode, b"a").unwrap().unwrap(), [1; 200]);
}

#[test]
fn a_full_journal_goes_into_the_region_and_its_old_records_count_no_more() {
    let (region, catalog) = journaled_catalog();
    for value in 0..23_u8 {
        commit_row(&catalog, &[value % 3], &[value]);
    }
    let expected: Vec<_> = catalog.range(Table::Inode, &[], &[9], 9).unwrap();
    drop(catalog);
    let again = Catalog::open(region.clone(), CACHE_BYTES).unwrap();
    assert_eq!(again.range(Table::Inode, &[], &[9], 9).unwrap(), expected);
    assert_eq!(again.get(Table::Inode, &[22 % 3]).unwrap().unwrap(), [22]);
    again.close().unwrap();
    let closed = Catalog::open(region, CACHE_BYTES).unwrap();
    assert_eq!(closed.range(Table::Inode, &[], &[9], 9).unwrap(), expected);
}

#[test]
fn a_batch_larger_than_the_journal_goes_into_the_region_with_what_the_journal_holds() {
    let (region, catalog) = journaled_catalog();
    commit_row(&catalog, b"small", b"1");
    commit_row(&catalog, b"large", &[7; 40_000]);
    commit_row(&catalog, b"after", b"2");
    drop(catalog);
    let again = Catalog::open(region, CACHE_BYTES).unwrap();
    let length = |key: &[u8]| again.get(Table::Inode, key).unwrap().map(|row| row.len());
    assert_eq!(length(b"small"), Some(1));
    assert_eq!(length(b"large"), Some(40_000));
    assert_eq!(length(b"after"), Some(1));
}

#[test]
fn a_journal_that_lost_a_record_before_others_is_refused_and_a_lost_end_is_not() {
    for (damaged, opens) in [(0, false), (1, false), (2, true)] {
        let (region, catalog) = journaled_catalog();
        for value in 0..3_u8 {
            commit_row(&catalog, &[value], &[value]);
        }
        drop(catalog);
        region.damage_journal(damaged);
        let answer = Catalog::open(region, CACHE_BYTES);
        assert_eq!(answer.is_ok(), opens, "record {damaged}: {answer:?}");
        assert!(opens || matches!(answer, Err(CatalogError::Damaged(_))));
    }
}

/// Blocks of the journal that a replica does not give.
type Hidden<'a> = &'a [(usize, std::ops::Range<usize>)];

#[test]
fn a_journal_ends_only_where_a_replica_that_can_be_read_says_so() {
    // Which blocks each replica gives not; whether it opens without force, and with how many rows.
    let cases: [(Hidden<'_>, Option<usize>); 7] = [
        // Behind three records of a block, and in one of them.
        (&[(0, 3..4)], Some(3)),
        (&[(0, 3..4), (1, 3..4)], None),
        (&[(0, 2..3)], Some(3)),
        (&[(0, 2..3), (1, 2..3)], None),
        (&[(0, 0..4)], Some(3)),
        (&[(0, 0..4), (1, 3..4)], None),
        (&[(0, 1..2), (1, 1..2)], None),
    ];
    for (hidden, expected) in cases {
        let (region, catalog) = journaled_catalog();
        for value in 0..3_u8 {
            commit_row(&catalog, &[value], &[value]);
        }
        drop(catalog);
        for (replica, blocks) in hidden {
            region.hide_journal(*replica, blocks.clone());
        }
        let rows = |catalog: &Catalog| catalog.range(Table::Inode, &[], &[255], 99).unwrap().len();
        match Catalog::open(region.clone(), CACHE_BYTES) {
            Ok(catalog) => assert_eq!(Some(rows(&catalog)), expected, "{hidden:?}"),
            Err(CatalogError::Region { operation, .. }) => {
                assert_eq!((operation, expected), ("read", None), "{hidden:?}");
            }
            Err(error) => panic!("{hidden:?}: {error}"),
        }
        if expected.is_some() {
            continue;
        }
        // By force the prefix counts, and what is committed on top of it is what counts after.
        region.end_where_unread();
        let forced = Catalog::open(region.clone(), CACHE_BYTES).unwrap();
        let kept = rows(&forced);
        assert_eq!(kept, hidden.last().unwrap().1.start, "{hidden:?}");
        commit_row(&forced, b"z", b"1");
        drop(forced);
        let again = Catalog::open(region, CACHE_BYTES).unwrap();
        assert_eq!(rows(&again), kept + 1, "{hidden:?}");
    }
}

#[test]
fn a_journal_that_two_disks_have_together_is_whole() {
    // Behind a record of one block one of three, of which each disk gives a part.
    let cases: [(Hidden<'_>, bool); 6] = [
        (&[(0, 1..2), (1, 2..3)], true),
        (&[(0, 2..3), (1, 1..2)], true),
        (&[(0, 1..3), (1, 3..4)], true),
        (&[(0, 0..1), (1, 1..4)], true),
        (&[(0, 1..3), (1, 2..4)], false),
        (&[(0, 1..4), (1, 1..2)], false),
    ];
    for (hidden, is_there) in cases {
        let (region, catalog) = journaled_catalog();
        commit_row(&catalog, b"a", b"1");
        commit_row(&catalog, b"b", &[7; 10_000]);
        drop(catalog);
        for (replica, blocks) in hidden {
            region.hide_journal(*replica, blocks.clone());
        }
        let rows = |catalog: &Catalog| catalog.range(Table::Inode, &[], &[255], 99).unwrap().len();
        let opened = Catalog::open(region.clone(), CACHE_BYTES);
        assert_eq!(opened.is_ok(), is_there, "{hidden:?}: {opened:?}");
        // By force the journal ends where it has to, and that is told where it does.
        region.end_where_unread();
        let forced = Catalog::open(region.clone(), CACHE_BYTES).unwrap();
        assert_eq!(rows(&forced), if is_there { 2 } else { 1 }, "{hidden:?}");
        assert_eq!(region.cuts_count() > 0, !is_there, "{hidden:?}");
    }
}

#[test]
fn a_record_that_rotted_beside_one_that_cannot_be_read_does_not_end_the_journal() {
    for (length_bytes, damaged) in [(1, 1..2), (5000, 2..3)] {
        for is_cut_short in [false, true] {
            let (region, catalog) = journaled_catalog();
            commit_row(&catalog, b"a", b"1");
            commit_row(&catalog, b"b", &vec![7; length_bytes]);
            drop(catalog);
            // Behind its head, so that it is one which began there.
            region.rot_journal(0, damaged.start);
            region.hide_journal(1, damaged.clone());
            if is_cut_short {
                // A crash kept it from the other replica: nothing was acknowledged.
                region.lose_newest_journal_write(1);
                region.show_journals();
                region.hide_journal(1, 3..4);
            }
            let what = format!("{length_bytes} bytes, cut short {is_cut_short}");
            let opened = Catalog::open(region.clone(), CACHE_BYTES);
            assert_eq!(opened.is_ok(), is_cut_short, "{what}: {opened:?}");
            drop(opened);
            region.show_journals();
            let catalog = Catalog::open(region, CACHE_BYTES).unwrap();
            let is_there = catalog.get(Table::Inode, b"b").unwrap().is_some();
            assert_eq!(is_there, !is_cut_short, "{what}");
        }
    }
}

#[test]
fn a_record_in_flight_that_an_opening_did_not_count_does_not_come_back_at_the_next() {
    for commits_between in [false, true] {
        let (region, catalog) = journaled_catalog();
        commit_row(&catalog, b"a", b"1");
        drop(catalog);
        // A crash kept the journal's first record from one replica, and the other does not give it
        // for a moment.
        region.lose_newest_journal_write(1);
        region.hide_journal(0, 0..1);
        let rows = |catalog: &Catalog| catalog.range(Table::Inode, &[], &[255], 9).unwrap();
        let catalog = Catalog::open(region.clone(), CACHE_BYTES).unwrap();
        if commits_between {
            commit_row(&catalog, b"b", b"1");
        }
        let shown = rows(&catalog);
        drop(catalog);
        region.show_journals();
        let again = Catalog::open(region, CACHE_BYTES).unwrap();
        assert_eq!(rows(&again), shown, "commits between: {commits_between}");
    }
}

#[test]
fn the_torn_end_of_a_journal_is_one_only_where_all_of_it_could_be_read() {
    for (hidden, opens) in [(None, true), (Some(1..2), false), (Some(2..3), true)] {
        let (region, catalog) = journaled_catalog();
        let through = catalog.apply(put(b"a", &[7; 5000]));
        catalog.commit(through).unwrap();
        drop(catalog);
        // A record of two blocks, of which the second is torn on both replicas.
        region.damage_journal(1);
        if let Some(blocks) = &hidden {
            region.hide_journal(0, blocks.clone());
            region.hide_journal(1, blocks.clone());
        }
        let answer = Catalog::open(region, CACHE_BYTES);
        assert_eq!(answer.is_ok(), opens, "{hidden:?}: {answer:?}");
    }
}

#[test]
fn after_a_journal_write_that_failed_the_next_commit_goes_into_the_region() {
    let (region, catalog) = journaled_catalog();
    commit_row(&catalog, b"a", b"1");
    let through = catalog.apply(put(b"b", b"2"));
    region.fail_write_after(Some(0));
    assert!(catalog.commit(through).is_err());
    region.fail_write_after(None);
    let writes = region.writes_count();
    catalog.commit(through).unwrap();
    assert_eq!(region.writes_count() - writes, 2, "two phases");
    commit_row(&catalog, b"c", b"3");
    drop(catalog);
    let again = Catalog::open(region, CACHE_BYTES).unwrap();
    assert_eq!(again.range(Table::Inode, &[], &[255], 9).unwrap().len(), 3);
}

#[test]
fn settling_after_a_failed_commit_opens_the_store_anew_and_never_panics() {
    let (region, catalog) = journaled_catalog();
    commit_row(&catalog, b"small", b"1");
    let large = catalog.apply(put(b"large", &[7; 40_000]));
    region.fail_write_after(Some(0));
    assert!(catalog.commit(large).is_err());
    // Opening anew may fail as well, and leaves no store at all then.
    for _ in 0..3 {
        assert!(catalog.settle().is_err());
    }
    region.fail_write_after(None);
    catalog.settle().unwrap();
    let mut keys = Vec::new();
    let mut note = |key: &[u8], _: &[u8]| {
        keys.push(key.to_vec());
        Ok(())
    };
    catalog.scan(Table::Inode, &mut note).unwrap();
    assert!(keys.contains(&b"small".to_vec()), "{keys:?}");
    catalog.commit(large).unwrap();
    drop(catalog);
    let again = Catalog::open(region, CACHE_BYTES).unwrap();
    assert_eq!(again.range(Table::Inode, &[], &[255], 9).unwrap().len(), 2);
}

/// Finds room for one more change as the group does; whether there is any.
fn find_room(catalog: &Catalog, wish: Wish) -> bool {
    if catalog.room_bytes(Rows::default(), wish) > 0 {
        return true;
    }
    catalog.commit(catalog.applied()).unwrap();
    catalog.measure().unwrap();
    catalog.room_bytes(Rows::default(), wish) > 0
}

#[test]
fn what_was_told_to_have_room_is_committed_also_where_the_region_cannot_double() {
    for capacity in [5 << 20, 12 << 20, 19 << 20] {
        let (region, catalog) = journaled_catalog();
        region.set_capacity(capacity);
        let mut count = 0;
        while find_room(&catalog, Wish::More) {
            catalog.apply(put(&scattered(count), &[1; 300]));
            count += 1;
        }
        assert!(u64::from(count) * 300 > capacity / 4, "{count} rows");
        catalog.commit(catalog.applied()).unwrap();
        drop(catalog);
        let catalog = Catalog::open(region.clone(), CACHE_BYTES).unwrap();
        let rows = catalog.range(Table::Inode, &[], &[0xFF; 9], usize::MAX);
        assert_eq!(rows.unwrap().len(), count as usize);
        // Removed in the order in which they came, which is none of the keys.
        for number in 0..count {
            find_room(&catalog, Wish::Less);
            let mut edit = Edit::default();
            edit.delete(Table::Inode, scattered(number).to_vec());
            catalog.apply(edit);
        }
        catalog.commit(catalog.applied()).unwrap();
        catalog.measure().unwrap();
        let left = catalog.room_bytes(Rows::default(), Wish::More);
        assert!(left > capacity / 2, "{left} bytes of {capacity}");
    }
}

/// Keys far from each other, so that each change copies a leaf of its own.
fn scattered(number: u32) -> [u8; 4] {
    number.wrapping_mul(2_654_435_761).to_be_bytes()
}

#[test]
fn what_the_region_has_no_room_for_is_durable_in_no_journal() {
    for rows_count in [1, 40] {
        let region = Arc::new(MemoryRegion::with_journal(64));
        let catalog = Catalog::create(region.clone(), CACHE_BYTES).unwrap();
        region.set_capacity(5 << 20);
        // Nobody asks for room, as rows of regions and of owed errors do not.
        let mut count = 0;
        let refused = loop {
            let mut edit = Edit::default();
            for number in count..count + rows_count {
                edit.put(Table::DirtyRegion, scattered(number).to_vec(), vec![1; 300]);
            }
            match catalog.commit(catalog.apply(edit)) {
                Ok(()) => count += rows_count,
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, CatalogError::Full), "{refused:?}");
        assert!(count > 5000, "{count} rows");
        drop(catalog);
        let again = Catalog::open(region, CACHE_BYTES).unwrap();
        let rows = again.range(Table::DirtyRegion, &[], &[0xFF; 9], usize::MAX);
        assert_eq!(rows.unwrap().len(), count as usize, "{rows_count}");
        // Rows that are taken away one at a time make room again.
        for number in 0..count {
            let mut edit = Edit::default();
            edit.delete(Table::DirtyRegion, scattered(number).to_vec());
            again.commit(again.apply(edit)).unwrap();
        }
        again.measure().unwrap();
        assert!(again.room_bytes(Rows::default(), Wish::More) > 2 << 20);
    }
}

/// Commits that change every 24th row, each of them another leaf; they all are in the journal.
fn change_leaves(region: &MemoryRegion, catalog: &Catalog, rows_count: u32) {
    let writes_count = region.writes_count();
    let changed: Vec<u32> = (0..rows_count).step_by(24).collect();
    for numbers in changed.chunks(100) {
        let mut edit = Edit::default();
        for number in numbers {
            edit.put(Table::Inode, scattered(*number).to_vec(), vec![3; 300]);
        }
        catalog.commit(catalog.apply(edit)).unwrap();
    }
    let commits_count = changed.len().div_ceil(100) as u64;
    let in_the_journal = region.writes_count() - writes_count;
    assert_eq!(in_the_journal, commits_count, "they are in the journal");
}

#[test]
fn a_journal_has_the_pages_that_the_transaction_before_gave_up() {
    let region = Arc::new(MemoryRegion::with_journal(96));
    let catalog = Catalog::create(region.clone(), CACHE_BYTES).unwrap();
    let rows_count = 4400;
    region.set_capacity(3 << 20);
    for value in [1, 2] {
        let mut edit = Edit::default();
        for number in 0..rows_count {
            edit.put(Table::Inode, scattered(number).to_vec(), vec![value; 300]);
        }
        // All of the tree is copied at once.
        catalog.commit(catalog.apply(edit)).unwrap();
    }
    // What the bound allows for is no longer there at the next opening.
    region.set_capacity(64 << 20);
    change_leaves(&region, &catalog, rows_count);
    drop(catalog);
    region.set_capacity(3 << 20);
    let catalog = Catalog::open(region, CACHE_BYTES).unwrap();
    for number in 0..rows_count {
        let value = catalog.get(Table::Inode, &scattered(number)).unwrap();
        let expected = if number % 24 == 0 { 3 } else { 2 };
        assert!(value.unwrap() == [expected; 300], "row {number}");
    }
}

#[test]
fn a_journal_and_a_batch_that_find_no_room_together_go_into_the_region_one_after_the_other() {
    let region = Arc::new(MemoryRegion::with_journal(96));
    let catalog = Catalog::create(region.clone(), CACHE_BYTES).unwrap();
    region.set_capacity(3 << 20);
    let row = |number: u32, value: u8| {
        let mut edit = Edit::default();
        edit.put(Table::Inode, scattered(number).to_vec(), vec![value; 300]);
        edit
    };
    for number in 0..5600 {
        catalog.apply(row(number, 1));
    }
    catalog.commit(catalog.applied()).unwrap();
    catalog.settle_and_free().unwrap();
    region.set_capacity(64 << 20);
    change_leaves(&region, &catalog, 5600);
    region.set_capacity(3 << 20);
    for number in (12..5600).step_by(24) {
        catalog.apply(row(number, 4));
    }
    catalog.commit(catalog.applied()).unwrap();
    drop(catalog);
    let catalog = Catalog::open(region, CACHE_BYTES).unwrap();
    for number in 0..5600 {
        let value = catalog.get(Table::Inode, &scattered(number)).unwrap();
        let expected = match number % 24 {
            0 => 3,
            12 => 4,
            _ => 1,
        };
        assert!(value.unwrap() == [expected; 300], "row {number}");
    }
}

#[test]
fn a_region_that_cannot_double_takes_what_the_disks_have_beside() {
    let (region, catalog) = journaled_catalog();
    region.limit(5 << 20);
    let mut count = 0;
    while catalog
        .commit(catalog.apply(put(&scattered(count), &[1; 300])))
        .is_ok()
    {
        count += 1;
    }
    // Twice 4 MiB it may not have.
    assert!(region.contents().len() > 4 * 256, "{count} rows");
}

#[test]
fn what_the_journal_held_is_not_written_over_a_commit_that_failed_and_is_there() {
    for ends in [Catalog::settle, Catalog::measure, Catalog::close] {
        let (region, catalog) = journaled_catalog();
        commit_row(&catalog, b"a", b"1");
        let mut edit = put(b"a", b"2");
        edit.put(Table::Inode, b"b".to_vec(), vec![2; 40_000]);
        // Its header is durable, and the answer is a failure.
        region.fail_kept_write_after(1);
        let through = catalog.apply(edit);
        catalog.commit(through).unwrap_err();
        region.fail_write_after(None);
        let _ = ends(&catalog);
        drop(catalog);
        let again = Catalog::open(region, CACHE_BYTES).unwrap();
        let a = again.get(Table::Inode, b"a").unwrap().unwrap();
        let has_b = again.get(Table::Inode, b"b").unwrap().is_some();
        assert_eq!((a.as_slice(), has_b), (&b"2"[..], true));
    }
}
