//! What a disk does not answer at an opening, or at the last write of a closing, and what the next
//! opening makes of it.

use std::sync::Arc;

use spindle_base::{DiskNumber, Redundancy};
use spindle_catalog::{Catalog, CatalogError, Edit, Region, Table};
use spindle_device::{DiskSlot, SimulatedDisks};
use spindle_format::{JOURNAL_BYTES, JOURNAL_PLACE, STATE_PLACES};

use crate::event::EventKind;

use super::{
    BLOCK, Open, Space, block, make, make_of, open, open_as, open_recovering, place, read, reserve,
    write,
};

const JOURNAL: std::ops::Range<u64> = JOURNAL_PLACE..JOURNAL_PLACE + JOURNAL_BYTES as u64;
/// The first sums of the region: two slots.
const SUMS: std::ops::Range<u64> = 1 << 20..(1 << 20) + 2 * BLOCK as u64;

fn put(catalog: &Catalog, number: u64) {
    let mut edit = Edit::default();
    let value = vec![number.to_le_bytes()[0]; 3000];
    edit.put(Table::Extent, number.to_be_bytes().to_vec(), value);
    catalog.commit(catalog.apply(edit)).unwrap();
}

pub(super) fn held(catalog: &Catalog, number: u64) -> Result<bool, CatalogError> {
    Ok(catalog.get(Table::Extent, &number.to_be_bytes())?.is_some())
}

/// As the front does it.
pub(super) fn open_catalog(disks: &Arc<SimulatedDisks>) -> Result<(Open, Catalog), String> {
    let open = open_recovering(disks).ok_or("the region")?;
    let region: Arc<dyn Region> = open.region.clone();
    let catalog = Catalog::open(region, 1 << 20).map_err(|error| error.to_string())?;
    open.region.finish_recovery();
    reserve(&open);
    Ok((open, catalog))
}

/// A group of one disk with ten commits in the journal, which a crash left.
pub(super) fn crashed(count: u16, redundancy: Redundancy) -> Arc<SimulatedDisks> {
    let disks = make_of(count, redundancy);
    let made = open(&disks);
    let catalog = Catalog::create(made.region.clone(), 1 << 20).unwrap();
    (0..10).for_each(|number| put(&catalog, number));
    drop((catalog, made));
    disks.crash();
    disks.restart();
    disks
}

#[test]
fn a_journal_that_no_disk_could_read_is_not_taken_for_an_empty_one() {
    let disks = crashed(1, Redundancy::External);
    // Its path is away for the moment at which the journal is asked for.
    disks.fail_reads(DiskSlot(0), JOURNAL, u64::MAX);
    let opened = open_catalog(&disks);
    disks.clear_faults(DiskSlot(0));
    if let Ok((_, catalog)) = opened {
        for number in 0..10 {
            assert!(held(&catalog, number).unwrap(), "commit {number} is lost");
        }
    }
    let (_, catalog) = open_catalog(&disks).unwrap();
    for number in 0..10 {
        assert!(held(&catalog, number).unwrap(), "commit {number} is lost");
    }
}

#[test]
fn a_bad_block_in_the_newest_record_is_told_and_not_taken_for_no_record() {
    let disks = crashed(1, Redundancy::External);
    // A record of 3,000 bytes is one block.
    let newest = JOURNAL_PLACE + 9 * BLOCK as u64;
    disks.fail_reads(DiskSlot(0), newest..newest + BLOCK as u64, u64::MAX);
    if let Ok((_, catalog)) = open_catalog(&disks) {
        assert!(
            held(&catalog, 9).unwrap(),
            "commit 9 is lost without a word"
        );
    }
}

#[test]
fn a_forced_opening_tells_of_commits_that_may_be_lost_and_of_no_others() {
    let newest = JOURNAL_PLACE + 9 * BLOCK as u64;
    let behind = newest + BLOCK as u64;
    // A bad block behind the records' end; the newest record, where no disk gives it and where one
    // does.
    for (bad, disks_count, kept) in [
        (behind + 8 * BLOCK as u64, 1, 10),
        (newest, 1, 9),
        (newest, 2, 10),
    ] {
        let redundancy = match disks_count {
            1 => Redundancy::External,
            _ => Redundancy::Normal,
        };
        let disks = crashed(disks_count, redundancy);
        disks.fail_reads(DiskSlot(0), bad..bad + BLOCK as u64, u64::MAX);
        let forced = open_as(&disks, true).unwrap();
        let region: Arc<dyn Region> = forced.region.clone();
        let catalog = Catalog::open(region, 1 << 20).unwrap();
        for number in 0..10 {
            assert_eq!(
                held(&catalog, number).unwrap(),
                number < kept,
                "{number} of {kept}"
            );
        }
        let events = forced.membership.take_events();
        let is_told = events
            .iter()
            .any(|event| event.kind == EventKind::DamageFound);
        assert_eq!(is_told, kept < 10, "{events:?}");
    }
}

#[test]
fn sums_that_could_not_be_read_for_a_moment_are_not_replaced_by_those_before() {
    let original = make_of(1, Redundancy::External);
    let made = open(&original);
    made.region.grow(1019 * BLOCK as u64).unwrap();
    // The second group of sums; both of its slots are written.
    write(&made.region, &[(1005, 1)]).unwrap();
    write(&made.region, &[(1005, 2)]).unwrap();
    drop(made);
    for (slot, is_clean) in [(0, false), (1, false), (0, true), (1, true)] {
        let disks = Arc::new(original.fork(slot));
        if is_clean {
            open(&disks).membership.close().unwrap();
        }
        disks.crash();
        disks.restart();
        let start = SUMS.end + slot * BLOCK as u64;
        disks.fail_reads(DiskSlot(0), start..start + BLOCK as u64, u64::MAX);
        if let Some(opened) = open_recovering(&disks) {
            disks.clear_faults(DiskSlot(0));
            opened.region.finish_recovery();
            write(&opened.region, &[(1006, 3)]).unwrap();
            opened.membership.close().unwrap();
        }
        disks.clear_faults(DiskSlot(0));
        let opened = open(&disks);
        let found = read(&opened.region, 1005);
        let found = found.unwrap_or_else(|why| panic!("slot {slot}, clean {is_clean}: {why}"));
        assert_eq!(found, block(2), "slot {slot}, clean {is_clean}");
    }
}

#[test]
fn by_force_blocks_whose_newest_sums_are_bad_for_good_are_taken_as_they_are() {
    let original = make_of(1, Redundancy::External);
    let made = open(&original);
    made.region.grow(1019 * BLOCK as u64).unwrap();
    write(&made.region, &[(1004, 4), (1005, 1)]).unwrap();
    // Of the last block only the newest sums know that it was written.
    write(&made.region, &[(1005, 2), (1006, 3)]).unwrap();
    drop(made);
    for is_clean in [false, true] {
        let mut refused_count = 0;
        for slot in 0..2 {
            let disks = Arc::new(original.fork(slot));
            if is_clean {
                open(&disks).membership.close().unwrap();
            }
            disks.crash();
            disks.restart();
            let start = SUMS.end + slot * BLOCK as u64;
            disks.fail_reads(DiskSlot(0), start..start + BLOCK as u64, u64::MAX);
            if open_recovering(&disks).is_some() {
                continue;
            }
            refused_count += 1;
            let forced = open_as(&disks, true).unwrap();
            forced.region.finish_recovery();
            for (number, seed) in [(1004, 4), (1005, 2), (1006, 3)] {
                assert!(read(&forced.region, number).unwrap() == block(seed));
            }
        }
        assert_eq!(refused_count, 1, "only one of the two is the newest");
    }
}

#[test]
fn a_block_that_could_not_be_read_for_a_moment_is_not_overwritten_by_the_recovery() {
    let original = make_of(1, Redundancy::External);
    let made = open(&original);
    made.region.grow(1 << 20).unwrap();
    write(&made.region, &[(0, 1), (7, 2), (8, 3)]).unwrap();
    drop(made);
    for (number, seed) in [(0, 1), (7, 2)] {
        let disks = Arc::new(original.fork(number));
        disks.crash();
        disks.restart();
        disks.fail_reads(
            DiskSlot(0),
            place(number)..place(number) + BLOCK as u64,
            u64::MAX,
        );
        // Whether it is refused or not.
        drop(open_recovering(&disks));
        disks.clear_faults(DiskSlot(0));
        let opened = open(&disks);
        let found = read(&opened.region, number);
        let found = found.unwrap_or_else(|why| panic!("block {number}: {why}"));
        assert!(found == block(seed), "block {number} is another one");
    }
}

#[test]
fn a_block_that_rotted_on_the_only_disk_with_sums_is_not_written_over_the_good_one() {
    for (is_damaged, without_sums, rotten) in [(true, 0, 1), (true, 1, 0), (false, 0, 1)] {
        let disks = make_of(2, Redundancy::Normal);
        let made = open(&disks);
        made.region.grow(1 << 20).unwrap();
        write(&made.region, &[(7, 1)]).unwrap();
        write(&made.region, &[(8, 2)]).unwrap();
        drop(made);
        disks.crash();
        disks.restart();
        let (without_sums, rotten) = (DiskSlot(without_sums), DiskSlot(rotten));
        if is_damaged {
            disks.flip_bits(without_sums, SUMS.start..SUMS.start + 96, 3);
            let second = SUMS.start + BLOCK as u64;
            disks.flip_bits(without_sums, second..second + 96, 3);
        } else {
            disks.fail_reads(without_sums, SUMS, u64::MAX);
        }
        disks.flip_bits(rotten, place(7)..place(7) + BLOCK as u64, 3);
        let opened = open(&disks);
        let found = read(&opened.region, 7);
        let found = found.unwrap_or_else(|why| panic!("damaged {is_damaged}: {why}"));
        assert!(
            found == block(1),
            "damaged {is_damaged}: not what was acknowledged"
        );
        assert!(read(&opened.region, 8).unwrap() == block(2));
    }
}

#[test]
fn a_rotten_checksum_block_beside_one_that_could_not_be_read_does_not_put_back_the_sums_before_them()
 {
    for (rotten, slot, is_clean) in [(0, 0, false), (0, 1, false), (1, 1, false), (0, 1, true)] {
        let disks = make_of(2, Redundancy::Normal);
        let made = open(&disks);
        made.region.grow(1 << 20).unwrap();
        write(&made.region, &[(0, 1), (7, 1), (8, 2)]).unwrap();
        write(&made.region, &[(0, 3), (7, 3)]).unwrap();
        if slot == 1 {
            write(&made.region, &[(7, 4), (9, 5)]).unwrap();
        }
        if is_clean {
            made.membership.close().unwrap();
        }
        drop(made);
        disks.crash();
        disks.restart();
        let newest = SUMS.start + slot * BLOCK as u64;
        let newest = newest..newest + BLOCK as u64;
        disks.flip_bits(DiskSlot(rotten), newest.clone(), 3);
        disks.fail_reads(DiskSlot(1 - rotten), newest, u64::MAX);
        let refused = open_recovering(&disks).is_none();
        disks.clear_faults(DiskSlot(1 - rotten));
        let opened = open(&disks);
        let what = format!("disk {rotten}, slot {slot}, clean {is_clean}, refused {refused}");
        let expected = if slot == 1 {
            [(0, 3), (7, 4), (9, 5)]
        } else {
            [(0, 3), (7, 3), (8, 2)]
        };
        for (number, seed) in expected {
            let found = read(&opened.region, number);
            let found = found.unwrap_or_else(|why| panic!("{what}: {why}"));
            assert!(found == block(seed), "{what}: block {number}");
        }
        assert!(refused, "{what}");
    }
}

#[test]
fn a_crash_beside_sums_that_cannot_be_read_is_refused_only_where_an_acknowledged_write_may_be_lost()
{
    let original = make(2);
    let made = open(&original);
    made.region.grow(1 << 20).unwrap();
    write(&made.region, &[(7, 1), (9, 2)]).unwrap();
    drop(made);
    let (mut opened_count, mut refused_count) = (0, 0);
    for request in 1..9 {
        for seed in 0..25 {
            let disks = Arc::new(original.fork(request * 100 + seed));
            let first = open(&disks);
            disks.power_fails_after(request);
            // Their sums lie in two sectors, so that the checksum block can be torn.
            let answered = write(&first.region, &[(7, 3), (200, 4)]).is_ok();
            drop(first);
            disks.crash();
            disks.restart();
            disks.fail_reads(DiskSlot(1), SUMS, u64::MAX);
            let what = format!("request {request}, seed {seed}, answered {answered}");
            let opened = open_recovering(&disks);
            if let Some(opened) = &opened {
                opened_count += 1;
                assert_eq!(read(&opened.region, 9).unwrap(), block(2), "{what}");
            } else {
                refused_count += 1;
                // What is refused was torn, and with it nothing was acknowledged.
                assert!(!answered, "{what}");
            }
            drop(opened);
            disks.clear_faults(DiskSlot(1));
            let opened = open_recovering(&disks).unwrap();
            assert_eq!(read(&opened.region, 9).unwrap(), block(2), "{what}");
            if answered {
                assert_eq!(read(&opened.region, 7).unwrap(), block(3), "{what}");
                assert_eq!(read(&opened.region, 200).unwrap(), block(4), "{what}");
            }
        }
    }
    assert!(
        refused_count > 0 && refused_count * 20 < opened_count,
        "{refused_count} {opened_count}"
    );
}

#[test]
fn a_block_that_could_not_be_read_for_a_moment_is_not_unwritten_by_older_sums() {
    for slot in 0..2 {
        let disks = make_of(2, Redundancy::Normal);
        let made = open(&disks);
        made.region.grow(1 << 20).unwrap();
        write(&made.region, &[(8, 2)]).unwrap();
        // By the sums before this one the block was never written.
        write(&made.region, &[(7, 1)]).unwrap();
        drop(made);
        disks.crash();
        disks.restart();
        let sums = SUMS.start + slot * BLOCK as u64;
        disks.flip_bits(DiskSlot(1), sums..sums + 96, 3);
        for disk in [DiskSlot(0), DiskSlot(1)] {
            disks.fail_reads(disk, place(7)..place(7) + BLOCK as u64, u64::MAX);
        }
        // Whether it is refused or not.
        drop(open_recovering(&disks));
        disks.clear_faults(DiskSlot(0));
        disks.clear_faults(DiskSlot(1));
        let opened = open(&disks);
        assert!(read(&opened.region, 7).unwrap() == block(1), "slot {slot}");
    }
}

#[test]
fn a_good_block_that_could_not_be_read_is_not_replaced_by_what_a_disk_has_that_lied() {
    for number in [0, 7] {
        let disks = make_of(2, Redundancy::Normal);
        let made = open(&disks);
        made.region.grow(1 << 20).unwrap();
        write(&made.region, &[(0, 1), (7, 1), (8, 2)]).unwrap();
        let before = disks.image(DiskSlot(1));
        write(&made.region, &[(0, 3), (7, 3)]).unwrap();
        drop(made);
        disks.crash();
        disks.restart();
        // The disk answered the last write well, and has neither its sums nor its blocks.
        disks.put_back(DiskSlot(1), &before);
        let unread = place(number)..place(number) + BLOCK as u64;
        disks.fail_reads(DiskSlot(0), unread, u64::MAX);
        let opened = open_recovering(&disks);
        assert_eq!(
            opened.is_some(),
            number != 0,
            "the catalog's first block is asked for"
        );
        if let Some(opened) = opened {
            read(&opened.region, number).unwrap_err();
            assert!(read(&opened.region, 0).unwrap() == block(3));
            assert!(read(&opened.region, 8).unwrap() == block(2));
        }
        disks.clear_faults(DiskSlot(0));
        let opened = open(&disks);
        assert!(read(&opened.region, 0).unwrap() == block(3));
        assert!(read(&opened.region, 7).unwrap() == block(3));
    }
}

#[test]
fn by_force_a_first_block_that_is_bad_for_good_is_the_one_before_it() {
    let disks = make_of(2, Redundancy::Normal);
    let made = open(&disks);
    made.region.grow(1 << 20).unwrap();
    write(&made.region, &[(0, 1), (7, 1)]).unwrap();
    let before = disks.image(DiskSlot(1));
    write(&made.region, &[(0, 3)]).unwrap();
    drop(made);
    disks.crash();
    disks.restart();
    disks.put_back(DiskSlot(1), &before);
    disks.fail_reads(DiskSlot(0), place(0)..place(0) + BLOCK as u64, u64::MAX);
    assert!(open_recovering(&disks).is_none());
    let forced = open_as(&disks, true).unwrap();
    forced.region.finish_recovery();
    assert!(read(&forced.region, 0).unwrap() == block(1));
    assert!(read(&forced.region, 7).unwrap() == block(1));
    let events = forced.membership.take_events();
    assert!(
        events
            .iter()
            .any(|event| event.kind == EventKind::DamageFound)
    );
}

#[test]
fn sums_in_flight_that_an_opening_did_not_see_do_not_count_at_the_next() {
    let disks = make_of(2, Redundancy::Normal);
    let made = open(&disks);
    made.region.grow(1 << 20).unwrap();
    write(&made.region, &[(7, 1)]).unwrap();
    let before = disks.image(DiskSlot(1));
    // A crash keeps this from the second disk.
    write(&made.region, &[(7, 3)]).unwrap();
    drop(made);
    disks.crash();
    disks.restart();
    disks.put_back(DiskSlot(1), &before);
    disks.fail_reads(DiskSlot(0), SUMS, u64::MAX);
    let opened = open(&disks);
    assert!(read(&opened.region, 7).unwrap() == block(1));
    drop(opened);
    disks.clear_faults(DiskSlot(0));
    let unread = place(7)..place(7) + BLOCK as u64;
    disks.fail_reads(DiskSlot(1), unread, u64::MAX);
    let opened = open(&disks);
    assert!(read(&opened.region, 7).unwrap() == block(1));
}

#[test]
fn a_catalog_that_could_not_be_read_for_a_moment_is_there_afterwards() {
    for (count, redundancy) in [(3, Redundancy::Normal), (1, Redundancy::External)] {
        let disks = crashed(count, redundancy);
        // All disks lie behind one path.
        for slot in 0..count {
            let header = place(0)..place(0) + BLOCK as u64;
            disks.fail_reads(DiskSlot(slot), header, u64::MAX);
        }
        drop(open_catalog(&disks));
        (0..count).for_each(|slot| disks.clear_faults(DiskSlot(slot)));
        let opened = open_catalog(&disks);
        let (_, catalog) = opened.unwrap_or_else(|why| panic!("{count} disks: {why}"));
        for number in 0..10 {
            assert!(held(&catalog, number).unwrap(), "commit {number} is lost");
        }
    }
}

#[test]
fn a_region_whose_last_write_failed_is_not_closed() {
    let cases = [(false, 1), (true, 1), (false, 2)];
    // A write that failed has reached the disk whole, in part or not at all: the seed says.
    for ((of_sums, count), seed) in cases
        .into_iter()
        .flat_map(|case| (0..8).map(move |s| (case, s)))
    {
        let redundancy = match count {
            1 => Redundancy::External,
            _ => Redundancy::Normal,
        };
        let disks = Arc::new(crashed(count, redundancy).fork(seed));
        let (opened, catalog) = open_catalog(&disks).unwrap();
        catalog.settle().unwrap();
        // The library writes once more while it is dropped: one write fails, on all disks in the
        // same moment, and the next one is taken.
        for slot in 0..count {
            let range = if of_sums {
                SUMS
            } else {
                place(0)..place(0) + BLOCK as u64
            };
            disks.fail_writes(DiskSlot(slot), range, 1);
        }
        let closed = catalog.close();
        for slot in 0..count {
            disks.clear_faults(DiskSlot(slot));
        }
        if closed.is_ok() {
            // As the front does.
            opened.membership.close().unwrap();
        }
        drop((catalog, opened));
        let (_, catalog) = open_catalog(&disks)
            .unwrap_or_else(|why| panic!("sums {of_sums}, {count} disks, seed {seed}: {why}"));
        for number in 0..10 {
            assert!(held(&catalog, number).unwrap());
        }
    }
}

#[test]
fn a_catalog_that_could_not_be_closed_is_not_closed_when_asked_again() {
    let disks = crashed(1, Redundancy::External);
    let (opened, catalog) = open_catalog(&disks).unwrap();
    put(&catalog, 10);
    disks.fail_writes(DiskSlot(0), place(0)..place(1 << 10), 1);
    catalog.close().unwrap_err();
    if catalog.close().is_ok() {
        opened.membership.close().unwrap();
    }
    drop((catalog, opened));
    let (_, catalog) = open_catalog(&disks).unwrap();
    assert!(
        held(&catalog, 10).unwrap(),
        "an acknowledged commit is lost"
    );
}

#[test]
fn a_new_replica_gets_no_journal_that_only_one_disk_has_damaged() {
    let disks = crashed(3, Redundancy::Normal);
    let (opened, catalog) = open_catalog(&disks).unwrap();
    put(&catalog, 10);
    put(&catalog, 11);
    let holders: Vec<DiskNumber> = (opened.membership.catalog_runs().iter())
        .map(|replica| replica.disk)
        .collect();
    assert_eq!(holders.len(), 3);
    // Bits of the newest record turn on one disk, unseen.
    let newest = JOURNAL_PLACE + BLOCK as u64;
    disks.overwrite(DiskSlot(holders[0].0), newest + 100, &[0x55; 64]);
    // The other replicas are made anew, one after the other.
    for disk in &holders[1..] {
        opened.region.remove_replica(*disk).unwrap();
        opened.region.add_replica(*disk).unwrap();
    }
    drop((catalog, opened));
    disks.crash();
    disks.restart();
    let (_, catalog) = open_catalog(&disks).unwrap();
    assert!(
        held(&catalog, 11).unwrap(),
        "an acknowledged commit is lost"
    );
}

#[test]
fn a_record_that_one_disk_has_damaged_goes_to_no_other_when_journals_are_made_equal() {
    for damaged in 0..3 {
        let disks = crashed(3, Redundancy::Normal);
        let (opened, catalog) = open_catalog(&disks).unwrap();
        put(&catalog, 10);
        put(&catalog, 11);
        let holders = opened.membership.catalog_runs();
        let newest = JOURNAL_PLACE + BLOCK as u64;
        let slot = DiskSlot(holders[damaged].disk.0);
        disks.overwrite(slot, newest + 100, &[0x55; 64]);
        assert!(!opened.region.journals_agree());
        // A commit came between the emptying and this.
        assert!(opened.region.make_journals_equal().unwrap());
        assert!(opened.region.journals_agree());
        drop((catalog, opened));
        disks.crash();
        disks.restart();
        let (_, catalog) = open_catalog(&disks).unwrap();
        assert!(held(&catalog, 11).unwrap(), "disk {damaged}: commit 11");
    }
}

#[test]
fn aus_that_a_state_may_name_are_not_given_to_others() {
    let original = make_of(3, Redundancy::Normal);
    let made = open(&original);
    made.region.grow(1 << 20).unwrap();
    write(&made.region, &[(7, 1)]).unwrap();
    drop(made);
    for seed in 0..2000 {
        let disks = Arc::new(original.fork(seed));
        let opened = open_recovering(&disks).unwrap();
        opened.region.finish_recovery();
        let space = Arc::new(Space::default());
        opened.region.set_space(space.clone());
        opened.region.remove_replica(DiskNumber(2)).unwrap();
        space.released.lock().clear();
        // No disk answers that it took the state, and each may have it all the same.
        for slot in 0..3 {
            let states = STATE_PLACES[0]..STATE_PLACES[1] + (128 << 10);
            disks.fail_writes(DiskSlot(slot), states, u64::MAX);
        }
        opened.region.add_replica(DiskNumber(2)).unwrap_err();
        (0..3).for_each(|slot| disks.clear_faults(DiskSlot(slot)));
        let released: Vec<(DiskNumber, u32)> = (space.released.lock().iter())
            .map(|(disk, run)| (*disk, run.start_au))
            .collect();
        drop(opened);
        disks.crash();
        disks.restart();
        let Some(opened) = open_recovering(&disks) else {
            continue;
        };
        for replica in opened.membership.catalog_runs() {
            for run in &replica.runs {
                assert!(
                    !released.contains(&(replica.disk, run.start_au)),
                    "seed {seed}: AU {} of disk {} is a file's and the catalog's",
                    run.start_au,
                    replica.disk
                );
            }
        }
    }
}
