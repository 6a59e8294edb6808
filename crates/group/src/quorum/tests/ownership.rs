//! An owner that slept, and one that was fenced off.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use spindle_base::{DiskNumber, Redundancy, Uuid};
use spindle_catalog::{Claim, KeptJournal};
use spindle_device::{
    DeviceErrorKind, DiskSlot, Disks, FaultyOperation, Request, SimulatedDisks, Work,
};
use spindle_format::{DiskStatus, OPENER_BYTES, OPENER_PLACE, OpenerRecord, Origin, STATE_PLACES};

use super::contests::Delayed;
use super::{DISK_BYTES, forced, make, name, open, open_as, opener, present};
use crate::quorum::{Attendance, Membership, Moment, Watch};
use crate::{GroupErrorKind, Opener};

const DATA: u64 = 8 << 20;

/// Two clocks that a test sets.
#[derive(Debug, Default)]
struct Clocks {
    awake_ms: AtomicU64,
    booted_ms: AtomicU64,
    /// The clocks jump by this at the reading after the next.
    jump_ms: AtomicU64,
}

impl Clocks {
    fn watched(membership: &Membership) -> Arc<Self> {
        let clocks = Arc::new(Self::default());
        let Watch { clock, apart } = clocks.watch();
        membership.watch_clock(clock, apart);
        clocks
    }

    fn watch(self: &Arc<Self>) -> Watch {
        let read = Arc::clone(self);
        let clock = move || {
            let moment = Moment {
                awake_ms: read.awake_ms.load(Ordering::Relaxed),
                booted_ms: read.booted_ms.load(Ordering::Relaxed),
            };
            read.pass(read.jump_ms.swap(0, Ordering::Relaxed));
            moment
        };
        let apart = |work| {
            std::thread::spawn(work);
            Ok(())
        };
        Watch {
            clock: Box::new(clock),
            apart: Box::new(apart),
        }
    }

    fn pass(&self, milliseconds: u64) {
        self.awake_ms.fetch_add(milliseconds, Ordering::Relaxed);
        self.booted_ms.fetch_add(milliseconds, Ordering::Relaxed);
    }

    fn suspend(&self, milliseconds: u64) {
        self.booted_ms.fetch_add(milliseconds, Ordering::Relaxed);
    }
}

fn write(membership: &Membership, byte: u8) -> Result<(), DeviceErrorKind> {
    let block = [byte; 4096];
    let mut batch = [Request::new(DiskSlot(1), DATA, Work::Write(&block))];
    membership.disks().run(&mut batch);
    let [request] = batch;
    request.result.map_err(|error| error.kind)
}

fn data(disks: &SimulatedDisks) -> u8 {
    disks.bytes(DiskSlot(1), DATA, 4096)[0]
}

/// Opens it as the daemon of a mount that a keeper holds.
fn open_noting(disks: &Arc<SimulatedDisks>, journal: &Arc<KeptJournal>) -> Membership {
    Membership::open_attended(
        Arc::clone(disks) as Arc<dyn Disks>,
        &present(disks),
        &name("data"),
        &opener(),
        Attendance {
            journal: Some(Arc::clone(journal)),
            ..Attendance::of(&|_| false)
        },
    )
    .unwrap()
}

/// Another host takes the group by force.
pub(super) fn take(disks: &Arc<SimulatedDisks>) -> Membership {
    let other = Opener {
        host: "beta".to_owned(),
        boot: Uuid([0xb2; 16]),
        process_id: 200,
        ..forced()
    };
    open_as(disks, &other).unwrap()
}

#[test]
fn who_sleeps_behind_its_intent_writes_no_record_over_that_of_a_host_that_took_the_group_since() {
    let disks = make("abc", Redundancy::Normal);
    let older = disks.bytes(DiskSlot(2), 0, 1 << 20);
    open(&disks).unwrap().close().unwrap();
    // Put back: the state that leaves it out is written before the record.
    disks.overwrite(DiskSlot(2), 0, &older);
    for place in STATE_PLACES {
        let disks = Arc::new(disks.fork(place));
        let clocks = Arc::new(Clocks::default());
        let (asleep, shared) = (Arc::clone(&clocks), Arc::clone(&disks));
        let other: Arc<std::sync::Mutex<Option<Membership>>> = Arc::default();
        let taken = Arc::clone(&other);
        let way = Delayed::new(&disks, place, move || {
            asleep.pass(10_000);
            *taken.lock().unwrap() = Some(take(&shared));
        });
        let attendance = Attendance {
            watch: Some(clocks.watch()),
            ..Attendance::of(&|_| false)
        };
        let slots = present(&disks);
        let answer = Membership::open_attended(way, &slots, &name("data"), &opener(), attendance);
        let Some(other) = other.lock().unwrap().take() else {
            continue;
        };
        assert!(answer.is_err(), "{place}");
        for slot in [DiskSlot(0), DiskSlot(1)] {
            let record = disks.bytes(slot, OPENER_PLACE, OPENER_BYTES);
            let record = OpenerRecord::parse(&record, OPENER_PLACE).unwrap();
            assert_eq!(record.host, "beta", "{place}");
        }
        other.heartbeat(2_002).unwrap();
        return;
    }
    panic!("no state was written");
}

#[test]
fn what_another_host_s_taking_the_group_fails_for_an_opening_is_no_fault_of_the_disks() {
    for place in STATE_PLACES {
        let disks = make("abcde", Redundancy::Normal);
        open(&disks).unwrap().close().unwrap();
        // They are given their state again, by a group that is claimed.
        for slot in [DiskSlot(0), DiskSlot(3)] {
            disks.fail_flushes(slot, 1);
        }
        let clocks = Arc::new(Clocks::default());
        let (asleep, shared) = (Arc::clone(&clocks), Arc::clone(&disks));
        let way = Delayed::new(&disks, place, move || {
            asleep.pass(10_000);
            drop(take(&shared));
        });
        let attendance = Attendance {
            watch: Some(clocks.watch()),
            ..Attendance::of(&|_| false)
        };
        let slots = present(&disks);
        let answer = Membership::open_attended(way, &slots, &name("data"), &opener(), attendance);
        let error = answer.unwrap_err();
        assert_eq!(error.kind, GroupErrorKind::Busy, "{place}: {error}");
        assert!(error.message.contains("host beta"), "{place}: {error}");
    }
}

#[test]
fn an_owner_that_was_stopped_writes_nothing_when_another_host_has_taken_the_group() {
    let disks = make("ab", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    let clocks = Clocks::watched(&membership);
    write(&membership, 1).unwrap();
    let _other = take(&disks);
    disks.overwrite(DiskSlot(1), DATA, &[9; 4096]);
    clocks.pass(3_000);
    assert_eq!(write(&membership, 2), Err(DeviceErrorKind::Fenced));
    assert_eq!(data(&disks), 9);
    let error = membership.check().unwrap_err();
    assert_eq!(error.kind, GroupErrorKind::Busy);
    assert!(error.message.contains("host beta"), "{error}");
    assert!(membership.take_offline(&[DiskNumber(1)], "test").is_err());
    assert!(membership.heartbeat(3_000).is_err());
    assert!(membership.close().is_err(), "the other's records stay");
}

#[test]
fn an_owner_whose_machine_was_suspended_for_a_moment_looks_before_it_writes() {
    let disks = make("ab", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    let clocks = Clocks::watched(&membership);
    let _other = take(&disks);
    clocks.suspend(500);
    assert_eq!(write(&membership, 2), Err(DeviceErrorKind::Fenced));
    assert_eq!(data(&disks), 0);
}

#[test]
fn an_answer_that_slept_does_not_count_when_another_host_has_taken_the_group() {
    let disks = make("ab", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    let clocks = Clocks::watched(&membership);
    let _other = take(&disks);
    clocks.jump_ms.store(10_000, Ordering::Relaxed);
    assert_eq!(write(&membership, 2), Err(DeviceErrorKind::Fenced));
    assert_eq!(data(&disks), 2, "it was under way before");
}

#[test]
fn an_owner_that_slept_alone_goes_on() {
    let disks = make("ab", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    let clocks = Clocks::watched(&membership);
    for _ in 0..3 {
        clocks.pass(60_000);
        clocks.suspend(60_000);
        let reads = disks.counts().reads;
        write(&membership, 3).unwrap();
        assert_eq!(disks.counts().reads, reads + 2, "the record of each voter");
        write(&membership, 4).unwrap();
        assert_eq!(disks.counts().reads, reads + 2, "once");
    }
    membership.heartbeat(2_100).unwrap();
    membership.close().unwrap();
}

#[test]
fn a_damaged_owner_record_is_nobody_s() {
    let disks = make("ab", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    let clocks = Clocks::watched(&membership);
    for slot in [DiskSlot(0), DiskSlot(1)] {
        disks.overwrite(slot, OPENER_PLACE, &[0x55; 4096]);
    }
    clocks.pass(60_000);
    write(&membership, 3).unwrap();
    membership.heartbeat(2_100).unwrap();
    let _other = take(&disks);
    clocks.pass(60_000);
    assert_eq!(write(&membership, 2), Err(DeviceErrorKind::Fenced));
}

#[test]
fn a_reservation_conflict_stops_the_group_and_takes_no_disk_offline() {
    let disks = make("abc", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    let all = 0..DISK_BYTES;
    let kind = DeviceErrorKind::Fenced;
    disks.fail(DiskSlot(1), FaultyOperation::Write, all, 1, kind);
    assert_eq!(write(&membership, 2), Err(DeviceErrorKind::Fenced));
    let writes = disks.counts().writes;
    let error = membership
        .take_offline(&[DiskNumber(1)], "a write failed")
        .unwrap_err();
    assert!(error.message.contains("fenced"), "{error}");
    assert_eq!(membership.status(DiskNumber(1)), Some(DiskStatus::Online));
    assert!(write(&membership, 3).is_err());
    assert_eq!(disks.counts().writes, writes, "nothing went to any disk");
}

/// What it answers while a disk hangs.
pub(super) fn in_time<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, answer) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(what()));
    let longest = std::time::Duration::from_secs(10);
    answer
        .recv_timeout(longest)
        .expect("it does not wait for the disk that hangs")
}

#[test]
fn a_voter_that_hangs_and_cannot_be_given_up_keeps_nobody_from_the_other_disks() {
    let disks = make("aaa", Redundancy::External);
    disks.set_deadline(std::time::Duration::from_millis(100));
    let membership = Arc::new(open(&disks).unwrap());
    let clocks = Clocks::watched(&membership);
    disks.hang(DiskSlot(0), FaultyOperation::Read, 0..DISK_BYTES);
    disks.hang(DiskSlot(0), FaultyOperation::Write, 0..DISK_BYTES);
    for now_s in 3_000..3_004 {
        clocks.pass(60_000);
        let group = Arc::clone(&membership);
        in_time(move || write(&group, 3)).unwrap();
        let group = Arc::clone(&membership);
        in_time(move || group.heartbeat(now_s)).unwrap();
        let group = Arc::clone(&membership);
        in_time(move || group.members());
    }
    assert_eq!(membership.status(DiskNumber(0)), Some(DiskStatus::Online));
    // Who has taken the group is seen on the voters that answer.
    let record = disks.bytes(DiskSlot(1), OPENER_PLACE, 4096);
    disks.overwrite(DiskSlot(1), OPENER_PLACE, &taken(&record));
    clocks.pass(60_000);
    let group = Arc::clone(&membership);
    let answer = in_time(move || write(&group, 4));
    assert_eq!(answer, Err(DeviceErrorKind::Fenced));
}

/// The record as another host's, which took the group after it.
pub(super) fn taken(record: &[u8]) -> Vec<u8> {
    let ours = OpenerRecord::parse(record, OPENER_PLACE).unwrap();
    let theirs = OpenerRecord {
        sequence: ours.sequence + 1,
        host: "beta".to_owned(),
        boot: Uuid([0xb2; 16]),
        ..ours
    };
    theirs.encode(OPENER_PLACE).to_vec()
}

#[test]
fn a_voter_that_hung_hears_of_every_heartbeat_again_when_it_answers() {
    let disks = make("aaa", Redundancy::External);
    let membership = Arc::new(open(&disks).unwrap());
    let clocks = Clocks::watched(&membership);
    disks.hang(DiskSlot(0), FaultyOperation::Read, 0..DISK_BYTES);
    for now_s in 3_000..3_004 {
        clocks.pass(60_000);
        let group = Arc::clone(&membership);
        in_time(move || group.heartbeat(now_s)).unwrap();
    }
    assert_eq!(membership.opener().heartbeats_count, 0);
    disks.release(DiskSlot(0));
    while membership.opener().heartbeats_count == 0 {
        membership.heartbeat(3_010).unwrap();
    }
    let records = [0, 1, 2].map(|slot| {
        let bytes = disks.bytes(DiskSlot(slot), OPENER_PLACE, 4096);
        OpenerRecord::parse(&bytes, OPENER_PLACE)
            .unwrap()
            .heartbeat_s
    });
    assert_eq!(records, [3_010; 3]);
}

/// What it answers when the disk that it waits for is released, which is a while after it began.
fn when_released<T: Send>(
    disks: &SimulatedDisks,
    slot: DiskSlot,
    what: impl FnOnce() -> T + Send,
) -> T {
    std::thread::scope(|scope| {
        let answer = scope.spawn(what);
        std::thread::sleep(std::time::Duration::from_millis(100));
        disks.release(slot);
        answer.join().unwrap()
    })
}

#[test]
fn an_answer_that_another_has_the_group_counts_when_nobody_waits_for_it_any_more() {
    let disks = make("aaa", Redundancy::External);
    let membership = Arc::new(open(&disks).unwrap());
    let clocks = Clocks::watched(&membership);
    let record = disks.bytes(DiskSlot(2), OPENER_PLACE, 4096);
    disks.overwrite(DiskSlot(2), OPENER_PLACE, &taken(&record));
    disks.hang(DiskSlot(2), FaultyOperation::Read, 0..DISK_BYTES);
    clocks.pass(60_000);
    let group = Arc::clone(&membership);
    in_time(move || write(&group, 3)).unwrap();
    disks.release(DiskSlot(2));
    // Nobody reads a record from here on.
    let group = Arc::clone(&membership);
    let error = in_time(move || {
        loop {
            if let Err(error) = group.check() {
                return error;
            }
            std::thread::yield_now();
        }
    });
    assert_eq!(error.kind, GroupErrorKind::Busy);
    assert!(error.message.contains("host beta"), "{error}");
    assert_eq!(write(&membership, 4), Err(DeviceErrorKind::Fenced));
}

#[test]
fn an_answer_that_comes_when_the_group_is_closed_ends_nothing() {
    let disks = make("aaa", Redundancy::External);
    let membership = Arc::new(open(&disks).unwrap());
    let _clocks = Clocks::watched(&membership);
    disks.hang(DiskSlot(2), FaultyOperation::Read, 0..DISK_BYTES);
    let group = Arc::clone(&membership);
    in_time(move || group.heartbeat(3_000)).unwrap();
    membership.close().unwrap();
    let record = disks.bytes(DiskSlot(2), OPENER_PLACE, 4096);
    disks.overwrite(DiskSlot(2), OPENER_PLACE, &taken(&record));
    disks.release(DiskSlot(2));
    let slot = membership.slot(DiskNumber(2)).unwrap();
    in_time(move || {
        while membership.disks.is_silent(slot) {
            std::thread::yield_now();
        }
        assert!(membership.disks.lost().is_none());
    });
}

#[test]
fn a_silent_voter_is_waited_for_where_those_that_answer_fail() {
    let opener_record = OPENER_PLACE..OPENER_PLACE + 4096;
    for is_taken in [false, true] {
        let disks = make("aaa", Redundancy::External);
        let membership = Arc::new(open(&disks).unwrap());
        let clocks = Clocks::watched(&membership);
        disks.hang(DiskSlot(0), FaultyOperation::Read, 0..DISK_BYTES);
        clocks.pass(60_000);
        let group = Arc::clone(&membership);
        in_time(move || write(&group, 3)).unwrap();
        if is_taken {
            let record = disks.bytes(DiskSlot(0), OPENER_PLACE, 4096);
            disks.overwrite(DiskSlot(0), OPENER_PLACE, &taken(&record));
        }
        let (read, medium) = (FaultyOperation::Read, DeviceErrorKind::Medium);
        disks.fail(DiskSlot(2), read, opener_record.clone(), 1, medium);
        clocks.pass(60_000);
        let answer = when_released(&disks, DiskSlot(0), || write(&membership, 4));
        let (expected, byte) = match is_taken {
            false => (Ok(()), 4),
            true => (Err(DeviceErrorKind::Fenced), 3),
        };
        assert_eq!(answer, expected);
        assert_eq!(data(&disks), byte);
    }
}

#[test]
fn what_fewer_than_half_of_the_voters_say_is_not_known() {
    let disks = make("aaa", Redundancy::External);
    let membership = open(&disks).unwrap();
    let clocks = Clocks::watched(&membership);
    for slot in [DiskSlot(0), DiskSlot(2)] {
        let (read, medium) = (FaultyOperation::Read, DeviceErrorKind::Medium);
        disks.fail(slot, read, OPENER_PLACE..OPENER_PLACE + 4096, 1, medium);
    }
    clocks.pass(60_000);
    assert_eq!(write(&membership, 4), Err(DeviceErrorKind::Gone));
    write(&membership, 5).unwrap();
}

#[test]
fn a_process_of_another_namespace_sees_that_an_owner_with_a_silent_voter_lives() {
    let origin = |process_namespace| {
        Some(Origin {
            machine: Uuid([0xc1; 16]),
            process_namespace,
        })
    };
    for silent in 0..3 {
        let disks = make("aaa", Redundancy::External);
        let ours = Opener {
            origin: origin(1),
            ..opener()
        };
        let membership = Arc::new(open_as(&disks, &ours).unwrap());
        let _clocks = Clocks::watched(&membership);
        let slot = DiskSlot(silent);
        disks.hang(slot, FaultyOperation::Read, 0..DISK_BYTES);
        disks.hang(slot, FaultyOperation::Write, 0..DISK_BYTES);
        for now_s in [2_010, 2_020, 2_030] {
            let group = Arc::clone(&membership);
            in_time(move || group.heartbeat(now_s)).unwrap();
        }
        assert_eq!(membership.opener().heartbeats_count, 0);
        disks.release(slot);
        let other = Opener {
            origin: origin(2),
            process_id: 200,
            now_s: 2_031,
            ..opener()
        };
        let error = open_as(&disks, &other).unwrap_err();
        assert_eq!(error.kind, GroupErrorKind::Busy);
        assert!(error.message.contains("1 seconds old"), "{error}");
        // Who takes it when this process is dead does not take the silent voter for one put back.
        let after = Opener {
            now_s: 2_046,
            ..other
        };
        let after = open_as(&disks, &after).unwrap();
        assert_eq!(super::online(&after), [0, 1, 2]);
    }
}

#[test]
fn a_flush_that_no_disk_failed_is_not_noted_where_its_answer_does_not_count() {
    let flush = |membership: &Membership| {
        let mut batch = [0, 1].map(|slot| Request::new(DiskSlot(slot), 0, Work::Flush));
        membership.run(&mut batch);
        batch.map(|request| request.result.map_err(|error| error.kind))
    };
    let disks = make("aa", Redundancy::External);
    let journal = Arc::new(KeptJournal::create().unwrap());
    let membership = open_noting(&disks, &journal);
    journal.begin(Claim::numbered(1), false);
    let clocks = Clocks::watched(&membership);
    let unreadable = || {
        for slot in [DiskSlot(0), DiskSlot(1)] {
            let (read, medium) = (FaultyOperation::Read, DeviceErrorKind::Medium);
            disks.fail(slot, read, OPENER_PLACE..OPENER_PLACE + 4096, 1, medium);
        }
    };
    let noted = || {
        [0, 1].map(DiskNumber).map(|disk| {
            let stands = membership.failed_flushes().of(disk).stand();
            assert_eq!(journal.has_failed_flush(disk), stands);
            stands
        })
    };
    // Never sent.
    unreadable();
    clocks.pass(60_000);
    assert_eq!(flush(&membership), [Err(DeviceErrorKind::Gone); 2]);
    assert_eq!(noted(), [false; 2]);
    assert_eq!(flush(&membership), [Ok(()); 2]);
    // Answered well, late.
    unreadable();
    clocks.jump_ms.store(60_000, Ordering::Relaxed);
    assert_eq!(flush(&membership), [Err(DeviceErrorKind::Gone); 2]);
    assert_eq!(noted(), [false; 2]);
    assert_eq!(flush(&membership), [Ok(()); 2]);
    // Failed, late.
    unreadable();
    clocks.jump_ms.store(60_000, Ordering::Relaxed);
    disks.fail_flushes(DiskSlot(1), 1);
    assert_eq!(flush(&membership), [Err(DeviceErrorKind::Gone); 2]);
    assert_eq!(noted(), [false, true]);
}
