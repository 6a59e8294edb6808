//! The region over simulated disks, against a model that knows which contents a block may have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use spindle_base::{AuSize, DiskName, DiskNumber, FailureGroupName, GroupName, Redundancy, Uuid};
use spindle_catalog::{Catalog, CatalogError, Edit, Region, Table};
use spindle_device::{DiskSlot, Disks, FaultyOperation, SeededRandom, SimulatedDisks};
use spindle_format::{AuRun, STATE_PLACES};
use spindle_sync::Mutex;

use super::{RegionSpace, ReplicatedRegion};
use crate::quorum::Membership;
use crate::{NewDisk, NewGroup, Opener};

mod lost;
mod unread;

const DISK_BYTES: u64 = 64 << 20;
const BLOCK: usize = 4096;

/// Free AUs, counted upwards on each disk.
#[derive(Debug, Default)]
struct Space {
    used: Mutex<BTreeMap<DiskNumber, u32>>,
    released: Mutex<Vec<(DiskNumber, AuRun)>>,
}

impl RegionSpace for Space {
    fn allocate_region_aus(&self, disk: DiskNumber, aus: u32) -> Option<u32> {
        let mut used = self.used.lock();
        let next = used.entry(disk).or_insert(20);
        let start = *next;
        (u64::from(start + aus) <= DISK_BYTES >> 20).then(|| *next += aus)?;
        Some(start)
    }
    fn release_region_aus(&self, disk: DiskNumber, run: AuRun) {
        self.released.lock().push((disk, run));
    }
}

fn name() -> GroupName {
    GroupName::new("DATA").unwrap()
}

/// A closed group of `count` disks, each its own failure group, with an empty region.
fn make(count: u16) -> Arc<SimulatedDisks> {
    make_of(count, Redundancy::Normal)
}

fn make_of(count: u16, redundancy: Redundancy) -> Arc<SimulatedDisks> {
    let disks = Arc::new(SimulatedDisks::new(
        1,
        &vec![DISK_BYTES; usize::from(count)],
    ));
    let new = NewGroup {
        name: name(),
        uuid: Uuid([9; 16]),
        redundancy,
        au_size: AuSize::DEFAULT,
        disks: (0..count)
            .map(|number| NewDisk {
                slot: DiskSlot(number),
                name: DiskName::new(format!("D{number}")).unwrap(),
                failure_group: FailureGroupName::new(format!("F{number}")).unwrap(),
                uuid: Uuid([u8::try_from(number + 1).unwrap(); 16]),
            })
            .collect(),
        profile: "plain".to_owned(),
        created_s: 1,
    };
    let shared: Arc<dyn Disks> = disks.clone();
    let membership = Arc::new(Membership::create(shared, &new).unwrap());
    ReplicatedRegion::create(Arc::clone(&membership)).unwrap();
    membership.finish_create().unwrap();
    disks
}

struct Open {
    membership: Arc<Membership>,
    region: Arc<ReplicatedRegion>,
}

fn open_recovering(disks: &Arc<SimulatedDisks>) -> Option<Open> {
    open_as(disks, false)
}

fn open_as(disks: &Arc<SimulatedDisks>, force: bool) -> Option<Open> {
    let opener = Opener {
        host: "alpha".to_owned(),
        origin: None,
        booted_s: None,
        boot: Uuid([7; 16]),
        process_id: 1,
        now_s: 2,
        force,
        preferred_failure_group: None,
    };
    let slots: Vec<DiskSlot> = (0..disks.disk_count())
        .map(|slot| DiskSlot(u16::try_from(slot).unwrap()))
        .filter(|slot| !disks.is_vanished(*slot))
        .collect();
    let shared: Arc<dyn Disks> = disks.clone();
    let membership = Arc::new(Membership::open(shared, &slots, &name(), &opener, &|_| false).ok()?);
    let region = Arc::new(ReplicatedRegion::open(Arc::clone(&membership)).ok()?);
    Some(Open { membership, region })
}

fn open(disks: &Arc<SimulatedDisks>) -> Open {
    let open = open_recovering(disks).unwrap();
    open.region.finish_recovery();
    open.region.set_space(Arc::new(Space::default()));
    open
}

fn block(seed: u64) -> Vec<u8> {
    let mut random = SeededRandom::new(seed);
    (0..BLOCK)
        .map(|_| u8::try_from(random.below(256)).unwrap())
        .collect()
}

fn write(region: &ReplicatedRegion, blocks: &[(u64, u64)]) -> Result<(), CatalogError> {
    let contents: Vec<(u64, Vec<u8>)> = (blocks.iter())
        .map(|(number, seed)| (number * BLOCK as u64, block(*seed)))
        .collect();
    let views: Vec<(u64, &[u8])> = (contents.iter())
        .map(|(offset, bytes)| (*offset, &bytes[..]))
        .collect();
    region.write_durably(&views)
}

fn read(region: &ReplicatedRegion, number: u64) -> Result<Vec<u8>, CatalogError> {
    let mut out = vec![0xee; BLOCK];
    region.read(number * BLOCK as u64, &mut out)?;
    Ok(out)
}

/// Where a block lies on a disk: the first run begins at AU 1, two checksum blocks a thousand.
fn place(number: u64) -> u64 {
    let pairs = 1024_u64.div_ceil(1002);
    (1 << 20) + (2 * pairs + number) * BLOCK as u64
}

#[test]
fn what_was_written_is_read_also_after_a_clean_and_an_unclean_stop() {
    let disks = make(3);
    let first = open(&disks);
    first.region.grow(2 << 20).unwrap();
    assert_eq!(read(&first.region, 5).unwrap(), vec![0; BLOCK]);
    write(&first.region, &[(5, 1), (6, 2), (300, 3)]).unwrap();
    write(&first.region, &[(6, 4)]).unwrap();
    let check = |region: &ReplicatedRegion| {
        for (number, seed) in [(5, 1), (6, 4), (300, 3)] {
            assert_eq!(read(region, number).unwrap(), block(seed));
        }
        assert_eq!(read(region, 301).unwrap(), vec![0; BLOCK]);
        assert_eq!(region.size_bytes(), 2 << 20);
    };
    check(&first.region);
    drop(first);
    disks.crash();
    disks.restart();
    let second = open(&disks);
    check(&second.region);
    second.membership.close().unwrap();
    drop(second);
    let writes = disks.counts().writes;
    let third = open_recovering(&disks).unwrap();
    check(&third.region);
    assert!(third.membership.was_clean());
    let opened = disks.counts().writes - writes;
    assert!(
        opened <= 9,
        "a clean opening writes openers and state alone: {opened}"
    );
}

#[test]
fn a_damaged_block_is_answered_from_another_disk_and_repaired() {
    let disks = make(2);
    let open = open(&disks);
    open.region.grow(1 << 20).unwrap();
    write(&open.region, &[(7, 1)]).unwrap();
    disks.flip_bits(DiskSlot(0), place(7)..place(7) + 4096, 1);
    // Replicas take turns, as their disks have more or less in flight.
    for _ in 0..32 {
        assert_eq!(read(&open.region, 7).unwrap(), block(1));
    }
    assert_eq!(disks.durable_bytes(DiskSlot(0), place(7), BLOCK), block(1));
    let events = open.membership.take_events();
    assert!(
        events[0].message.contains("catalog block 7 on disk 0"),
        "{events:?}"
    );
}

#[test]
fn every_replica_is_verified_and_written_again_from_one_that_is_right() {
    // The second disk is one that no read asks as long as the first is right.
    for slot in [DiskSlot(0), DiskSlot(1)] {
        let disks = make(2);
        let open = open(&disks);
        open.region.grow(1 << 20).unwrap();
        write(&open.region, &[(7, 1), (9, 2)]).unwrap();
        let verify = |repair| open.region.verify(0, repair).unwrap();
        assert_eq!(verify(false), []);
        disks.flip_bits(slot, place(7)..place(7) + 4096, 1);
        // Both slots of the checksum block.
        for at in [1 << 20, (1 << 20) + 4096] {
            disks.flip_bits(slot, at..at + 4096, 3);
        }
        let damaged = disks.durable_bytes(slot, place(7), BLOCK);
        let told: Vec<(u16, Option<u64>)> = verify(false)
            .iter()
            .map(|fault| (fault.disk.0, fault.block))
            .collect();
        assert_eq!(told, [(slot.0, None), (slot.0, Some(7))]);
        assert_eq!(disks.durable_bytes(slot, place(7), BLOCK), damaged);

        assert_eq!(verify(true).len(), 2);
        assert_eq!(disks.durable_bytes(slot, place(7), BLOCK), block(1));
        assert_eq!(verify(false), []);
        write(&open.region, &[(9, 3)]).unwrap();
        drop(open);
        disks.crash();
        disks.restart();
        for (number, seed) in [(7, 1), (9, 3)] {
            let bytes = disks.durable_bytes(slot, place(number), BLOCK);
            assert_eq!(bytes, block(seed));
        }
        let again = open_recovering(&disks).unwrap();
        assert_eq!(read(&again.region, 7).unwrap(), block(1));
        assert_eq!(read(&again.region, 9).unwrap(), block(3));
    }
}

#[test]
fn a_block_that_is_right_on_no_replica_is_left_to_who_reads_it() {
    let disks = make(2);
    let open = open(&disks);
    open.region.grow(1 << 20).unwrap();
    write(&open.region, &[(7, 1)]).unwrap();
    for slot in [DiskSlot(0), DiskSlot(1)] {
        disks.flip_bits(slot, place(7)..place(7) + 4096, 1);
    }
    let damaged = disks.durable_bytes(DiskSlot(0), place(7), BLOCK);
    // It may be what a crash left of a write that nothing refers to.
    assert_eq!(open.region.verify(0, true).unwrap(), []);
    assert_eq!(disks.durable_bytes(DiskSlot(0), place(7), BLOCK), damaged);
    assert!(read(&open.region, 7).is_err());
}

#[test]
fn a_read_that_a_disk_keeps_waiting_keeps_no_other_read_and_no_write_waiting() {
    let disks = make(2);
    let open = open(&disks);
    open.region.grow(1 << 20).unwrap();
    write(&open.region, &[(7, 1), (9, 2)]).unwrap();
    disks.set_deadline(Duration::from_secs(60));
    let slots = [DiskSlot(0), DiskSlot(1)];
    for slot in slots {
        disks.hang(slot, FaultyOperation::Read, place(7)..place(7) + 4096);
    }
    let (told, answered) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let region = &open.region;
        let waiting = scope.spawn(|| read(region, 7));
        // It has asked its disk by now; if not, this test shows less.
        std::thread::sleep(Duration::from_millis(200));
        scope.spawn(move || told.send((read(region, 9), write(region, &[(11, 3)]))));
        let answer = answered.recv_timeout(Duration::from_secs(20));
        slots.iter().for_each(|slot| disks.release(*slot));
        let (other, written) = answer.expect("another read, and a write, wait for that disk");
        assert_eq!(other.unwrap(), block(2));
        written.unwrap();
        assert_eq!(waiting.join().unwrap().unwrap(), block(1));
    });
}

#[test]
fn a_block_that_cannot_be_read_is_written_again() {
    let disks = make(2);
    let open = open(&disks);
    open.region.grow(1 << 20).unwrap();
    write(&open.region, &[(7, 1)]).unwrap();
    disks.fail_reads(DiskSlot(0), place(7)..place(7) + 4096, 2);
    for _ in 0..3 {
        assert_eq!(read(&open.region, 7).unwrap(), block(1));
    }
    assert!(open.membership.is_online(DiskNumber(0)));
}

#[test]
fn a_block_that_is_good_nowhere_is_an_error_once_recovery_is_over() {
    let disks = make(2);
    let open = open(&disks);
    open.region.grow(1 << 20).unwrap();
    write(&open.region, &[(7, 1)]).unwrap();
    for slot in [DiskSlot(0), DiskSlot(1)] {
        disks.flip_bits(slot, place(7)..place(7) + 4096, 1);
    }
    assert!(matches!(
        read(&open.region, 7),
        Err(CatalogError::Region { .. })
    ));
    drop(open);
    let open = open_recovering(&disks).unwrap();
    read(&open.region, 7).unwrap();
    open.region.finish_recovery();
    assert!(read(&open.region, 7).is_err());
    write(&open.region, &[(7, 2)]).unwrap();
    assert_eq!(read(&open.region, 7).unwrap(), block(2));
}

#[test]
fn a_disk_that_fails_a_write_is_offline_durably_before_the_write_is_answered() {
    for flush in [false, true] {
        let disks = make(3);
        let first = open(&disks);
        first.region.grow(1 << 20).unwrap();
        if flush {
            disks.fail_flushes(DiskSlot(1), 1);
        } else {
            disks.fail_writes(DiskSlot(1), 0..u64::MAX, 1);
        }
        write(&first.region, &[(7, 1)]).unwrap();
        assert!(!first.membership.is_online(DiskNumber(1)));
        drop(first);
        disks.crash();
        disks.restart();
        let second = open(&disks);
        assert!(!second.membership.is_online(DiskNumber(1)));
        assert_eq!(second.membership.catalog_runs().len(), 2);
        assert_eq!(read(&second.region, 7).unwrap(), block(1));
    }
}

#[test]
fn a_write_that_no_disk_takes_is_an_error() {
    let disks = make(2);
    let open = open(&disks);
    open.region.grow(1 << 20).unwrap();
    write(&open.region, &[(7, 1)]).unwrap();
    disks.vanish(DiskSlot(0));
    disks.vanish(DiskSlot(1));
    assert!(write(&open.region, &[(8, 1)]).is_err());
    assert!(read(&open.region, 7).is_err());
}

#[test]
fn a_region_takes_nothing_once_the_group_had_to_stop() {
    let disks = make(4);
    let open = open(&disks);
    open.region.grow(1 << 20).unwrap();
    write(&open.region, &[(7, 1)]).unwrap();
    for slot in 0..4 {
        let states = STATE_PLACES[0]..STATE_PLACES[1] + (128 << 10);
        disks.fail_writes(DiskSlot(slot), states, u64::MAX);
    }
    // A state that counts disk 3 in place of disk 2 may be on the disks, and be elected.
    let moved = open.region.move_replica(DiskNumber(2), DiskNumber(3));
    moved.unwrap_err();
    (0..4).for_each(|slot| disks.clear_faults(DiskSlot(slot)));
    let requests = disks.counts().writes;
    assert!(write(&open.region, &[(7, 2)]).is_err());
    assert!(open.region.write_journal(0, &[0; BLOCK]).is_err());
    assert_eq!(disks.counts().writes, requests);
}

#[test]
fn a_region_grows_over_many_runs_and_remembers_them() {
    let disks = make(3);
    let first = open(&disks);
    let mut size = 1 << 20;
    while size <= 16 << 20 {
        first.region.grow(size).unwrap();
        let last = size / BLOCK as u64 - 1;
        write(&first.region, &[(last, size), (last - 1, size + 1)]).unwrap();
        size *= 2;
    }
    assert!(first.membership.catalog_runs()[0].runs.len() > 1);
    assert_eq!(
        first.region.grow(1 << 40).unwrap_err().to_string(),
        CatalogError::Full.to_string()
    );
    drop(first);
    disks.crash();
    disks.restart();
    let second = open_recovering(&disks).unwrap();
    assert_eq!(second.region.size_bytes(), 16 << 20);
    // Ahead of the size in use, so that the catalog can grow while it is opened.
    second.region.grow(17 << 20).unwrap();
    let mut out = vec![0; 16 << 20];
    second.region.read(0, &mut out).unwrap();
    let mut size = 1 << 20;
    while size <= 16 << 20 {
        assert_eq!(out[size - BLOCK..size], block(size as u64));
        size *= 2;
    }
}

#[test]
fn a_new_replica_holds_everything_and_carries_on_alone() {
    let disks = make(4);
    let first = open(&disks);
    first.region.grow(6 << 20).unwrap();
    let numbers: Vec<(u64, u64)> = (0..40).map(|number| (number * 37, number)).collect();
    write(&first.region, &numbers).unwrap();
    assert_eq!(first.membership.replica_candidates(), []);
    first
        .membership
        .take_offline(&[DiskNumber(0)], "test")
        .unwrap();
    let candidate = first.membership.replica_candidates()[0];
    assert_eq!(candidate, DiskNumber(3));
    first.region.add_replica(candidate).unwrap();
    assert_eq!(first.membership.replica_candidates(), []);
    write(&first.region, &[(1, 99)]).unwrap();
    for disk in [1, 2] {
        disks.vanish(DiskSlot(disk));
        first
            .membership
            .take_offline(&[DiskNumber(disk)], "test")
            .unwrap();
    }
    drop(first);
    disks.vanish(DiskSlot(0));
    let second = open(&disks);
    assert_eq!(read(&second.region, 1).unwrap(), block(99));
    for (number, seed) in numbers {
        assert_eq!(read(&second.region, number).unwrap(), block(seed));
    }
}

#[test]
fn a_damaged_checksum_block_is_made_good_from_another_disk() {
    for clean in [false, true] {
        let disks = make(2);
        let first = open(&disks);
        first.region.grow(1 << 20).unwrap();
        write(&first.region, &[(7, 1)]).unwrap();
        write(&first.region, &[(8, 2)]).unwrap();
        if clean {
            first.membership.close().unwrap();
        }
        drop(first);
        // Both slots of disk 0: nothing there tells what its blocks should be.
        disks.flip_bits(DiskSlot(0), 1 << 20..(1 << 20) + 96, 3);
        disks.flip_bits(DiskSlot(0), (1 << 20) + 4096..(1 << 20) + 4096 + 96, 3);
        drop(open(&disks));
        disks.vanish(DiskSlot(1));
        let membership = open_forced(&disks);
        let region = ReplicatedRegion::open(membership).unwrap();
        region.finish_recovery();
        assert_eq!(read(&region, 7).unwrap(), block(1));
        assert_eq!(read(&region, 8).unwrap(), block(2));
    }
}

fn open_forced(disks: &Arc<SimulatedDisks>) -> Arc<Membership> {
    let opener = Opener {
        host: "alpha".to_owned(),
        origin: None,
        booted_s: None,
        boot: Uuid([7; 16]),
        process_id: 1,
        now_s: 2,
        force: true,
        preferred_failure_group: None,
    };
    let shared: Arc<dyn Disks> = disks.clone();
    let slots = [DiskSlot(0)];
    Arc::new(Membership::open(shared, &slots, &name(), &opener, &|_| false).unwrap())
}

/// What each block may hold: what was acknowledged, and what was in flight at the crash.
#[derive(Default)]
struct Model {
    acknowledged: BTreeMap<u64, u64>,
    in_flight: BTreeMap<u64, u64>,
}

impl Model {
    /// Writes random blocks until the power fails; every third write grows the region first.
    fn run(&mut self, region: &ReplicatedRegion, random: &mut SeededRandom) {
        for step in 0..40 {
            if step % 3 == 0 {
                let wanted = region.size_bytes() + (1 << 20);
                if wanted <= 12 << 20 && region.grow(wanted).is_err() {
                    return;
                }
            }
            let blocks = region.size_bytes() / BLOCK as u64;
            self.in_flight = BTreeMap::from([(blocks - 1, random.below(u64::MAX))]);
            for _ in 0..=random.below(5) {
                let number = 1 + random.below(blocks.min(40) - 1);
                self.in_flight.insert(number, random.below(u64::MAX));
            }
            let wanted: Vec<(u64, u64)> = (self.in_flight.clone()).into_iter().collect();
            if write(region, &wanted).is_err() {
                return;
            }
            self.acknowledged.append(&mut self.in_flight);
        }
    }

    fn check(&mut self, region: &ReplicatedRegion, what: &str) {
        let touched: BTreeSet<u64> = (self.acknowledged.keys().chain(self.in_flight.keys()))
            .copied()
            .collect();
        for number in touched {
            let before =
                (self.acknowledged.get(&number)).map_or(vec![0; BLOCK], |seed| block(*seed));
            let found = read(region, number);
            match self.in_flight.get(&number) {
                None => assert!(found.unwrap() == before, "{what}: block {number}"),
                Some(_) => {
                    // Old, new or torn, and from now on the same: a later crash elsewhere must
                    // not change it; the catalog rewrites it before it reads it again.
                    found.unwrap_or_else(|e| panic!("{what}: block {number}: {e}"));
                    let seed = number + 1_000_000;
                    write(region, &[(number, seed)]).unwrap();
                    self.acknowledged.insert(number, seed);
                }
            }
        }
        self.in_flight.clear();
    }
}

#[test]
fn blocks_that_were_not_in_flight_survive_any_crash() {
    let original = make(3);
    for seed in 0..150 {
        let disks = Arc::new(original.fork(seed));
        let mut random = SeededRandom::new(seed);
        let mut model = Model::default();
        for round in 0..3 {
            disks.power_fails_after(5 + random.below(400));
            let what = format!("seed {seed} round {round}");
            if let Some(open) = open_recovering(&disks) {
                // Recovery itself may be cut: the next round does it again.
                if model.in_flight.is_empty() {
                    open.region.finish_recovery();
                    open.region.set_space(Arc::new(Space::default()));
                    reserve(&open);
                    model.run(&open.region, &mut random);
                }
            }
            disks.crash();
            disks.restart();
            let open = open_recovering(&disks).unwrap();
            model.check(&open.region, &what);
            open.region.finish_recovery();
            disks.crash();
            disks.restart();
        }
    }
}

/// Tells the test's allocator what earlier lives of the group allocated.
fn reserve(open: &Open) {
    let space = Space::default();
    for replica in open.membership.catalog_runs() {
        let end = replica
            .runs
            .iter()
            .map(|run| run.start_au + run.aus)
            .max()
            .unwrap();
        space.used.lock().insert(replica.disk, end.max(20));
    }
    open.region.set_space(Arc::new(space));
}

#[test]
fn after_a_crash_at_any_request_every_block_is_old_or_new() {
    let original = make(2);
    {
        let open = open(&original);
        open.region.grow(1 << 20).unwrap();
        write(&open.region, &[(7, 1), (9, 2)]).unwrap();
    }
    for request in 1..60 {
        for seed in 0..8 {
            let disks = Arc::new(original.fork(request * 100 + seed));
            let first = open(&disks);
            disks.power_fails_after(request);
            let answered = write(&first.region, &[(7, 3), (8, 4)]).is_ok();
            drop(first);
            disks.crash();
            disks.restart();
            let recovering = open_recovering(&disks).unwrap();
            let found = [7, 8, 9].map(|number| read(&recovering.region, number).unwrap());
            assert_eq!(found[2], block(2));
            if answered {
                assert_eq!(found[..2], [block(3), block(4)]);
            }
            for (number, allowed) in [(0, [block(1), block(3)]), (1, [vec![0; BLOCK], block(4)])] {
                let sectors = found[number].chunks(512).enumerate();
                for (sector, bytes) in sectors {
                    let range = sector * 512..(sector + 1) * 512;
                    let known = allowed.iter().any(|block| block[range.clone()] == *bytes);
                    let leftover = *bytes == [0; 512];
                    assert!(known || leftover, "request {request} seed {seed}");
                }
            }
            // Both disks are equal now, whatever it is that they hold.
            for number in [7, 8, 9] {
                let on = |slot| disks.bytes(DiskSlot(slot), place(number), BLOCK);
                let seen = read(&recovering.region, number).unwrap();
                if seen != vec![0; BLOCK] {
                    assert_eq!((on(0), on(1)), (seen.clone(), seen), "request {request}");
                }
            }
        }
    }
}

#[test]
fn a_catalog_keeps_its_commits_through_crashes_and_a_lost_disk() {
    let original = make(3);
    for seed in 0..40 {
        let disks = Arc::new(original.fork(seed));
        let mut random = SeededRandom::new(seed);
        let mut committed = {
            let open = open(&disks);
            drop(Catalog::create(open.region, 1 << 20).unwrap());
            0_u64
        };
        for round in 0..4 {
            let open = open_recovering(&disks).unwrap();
            let region: Arc<dyn Region> = open.region.clone();
            let catalog = Catalog::open(region, 1 << 20)
                .unwrap_or_else(|e| panic!("seed {seed} round {round}: {e}"));
            open.region.finish_recovery();
            reserve(&open);
            let rows = |number: u64| number.to_be_bytes().to_vec();
            let held = catalog.get(Table::Attribute, b"count").unwrap();
            let held = held.map_or(0, |value| u64::from_be_bytes(value.try_into().unwrap()));
            assert!(
                held == committed || held == committed + 1,
                "seed {seed} round {round}"
            );
            committed = held;
            for number in 1..=held {
                let row = catalog.get(Table::Extent, &rows(number)).unwrap();
                assert_eq!(
                    row,
                    Some(vec![number.to_le_bytes()[0]; 3000]),
                    "seed {seed}"
                );
            }
            if round == 2 {
                disks.vanish_after(DiskSlot(2), 1 + random.below(100));
            }
            disks.power_fails_after(1 + random.below(600));
            for _ in 0..10 {
                let next = committed + 1;
                let mut edit = Edit::default();
                edit.put(Table::Attribute, b"count".to_vec(), rows(next));
                edit.put(Table::Extent, rows(next), vec![next.to_le_bytes()[0]; 3000]);
                let through = catalog.apply(edit);
                if catalog.commit(through).is_err() {
                    break;
                }
                committed = next;
            }
            drop(catalog);
            disks.crash();
            disks.restart();
        }
    }
}
