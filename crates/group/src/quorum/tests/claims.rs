//! Hosts that open a group in the same moment, in every order of their requests.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use spindle_base::{DiskNumber, Redundancy, Uuid};
use spindle_catalog::KeptJournal;
use spindle_device::{
    DeviceErrorKind, DiskSlot, Disks, FaultyOperation, Request, SeededRandom, SimulatedDisks, Work,
};
use spindle_format::{
    CLAIM_PLACE, INTENT_PLACE, OPENER_BYTES, OPENER_PLACE, OpenerRecord, STATE_PLACES,
};

use super::contests::{Delayed, record};
use super::ownership::taken;
use super::{forced, make, name, online, open, opener, present};
use crate::core::keeper_journal::claim_of;
use crate::quorum::Membership;
use crate::{Group, GroupError, GroupErrorKind, Opener};

/// A write to a disk.
#[derive(Debug, Clone, Copy)]
struct Written {
    host: usize,
    place: u64,
}

/// Who may send the next request.
#[derive(Debug, Default)]
struct Turns {
    /// Hosts that want to send one.
    waiting: Vec<bool>,
    ended: Vec<bool>,
    next: Option<usize>,
    /// Nobody waits for a turn any more.
    are_over: bool,
    written: Vec<Written>,
}

/// Disks that several hosts send requests to, one after another as they are told.
#[derive(Debug)]
struct Shared {
    disks: Arc<SimulatedDisks>,
    /// What is read from several disks at a time is read from one after another.
    splits_reads: bool,
    turns: Mutex<Turns>,
    changed: Condvar,
}

/// What one host sees of them.
#[derive(Debug)]
struct Way {
    shared: Arc<Shared>,
    host: usize,
}

impl Shared {
    fn new(disks: Arc<SimulatedDisks>, hosts: usize, splits_reads: bool) -> Arc<Self> {
        let turns = Turns {
            waiting: vec![false; hosts],
            ended: vec![false; hosts],
            ..Turns::default()
        };
        Arc::new(Self {
            disks,
            splits_reads,
            turns: Mutex::new(turns),
            changed: Condvar::new(),
        })
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, turns: MutexGuard<'a, Turns>) -> MutexGuard<'a, Turns> {
        let answer = self.changed.wait(turns);
        answer.unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends requests to one disk when it is the host's turn.
    fn run_in_turn(&self, host: usize, requests: &mut [Request<'_>]) {
        let mut turns = self.turns();
        turns.waiting[host] = true;
        self.changed.notify_all();
        while turns.next != Some(host) && !turns.are_over {
            turns = self.wait(turns);
        }
        self.disks.run(requests);
        let writes = (requests.iter()).filter(|request| !matches!(request.work, Work::Read(_)));
        let places = writes.map(|request| request.offset_bytes);
        (turns.written).extend(places.map(|place| Written { host, place }));
        turns.waiting[host] = false;
        turns.next = None;
        self.changed.notify_all();
    }

    fn end(&self, host: usize) {
        self.turns().ended[host] = true;
        self.changed.notify_all();
    }

    /// The hosts that wait for their turn, when none of them does anything; none when all ended.
    fn candidates(&self) -> Vec<usize> {
        let mut turns = self.turns();
        let hosts = 0..turns.waiting.len();
        let rests = |turns: &Turns, host: usize| turns.waiting[host] || turns.ended[host];
        while turns.next.is_some() || !hosts.clone().all(|host| rests(&turns, host)) {
            turns = self.wait(turns);
        }
        hosts.filter(|host| turns.waiting[*host]).collect()
    }

    fn give_turn(&self, host: usize) {
        self.turns().next = Some(host);
        self.changed.notify_all();
    }
}

impl Way {
    /// Whether another host may come between the two.
    fn is_split(&self, one: &Request<'_>, other: &Request<'_>) -> bool {
        let is_read = matches!(one.work, Work::Read(_));
        one.slot != other.slot && (self.shared.splits_reads || !is_read)
    }
}

impl Disks for Way {
    fn run(&self, batch: &mut [Request<'_>]) {
        for requests in batch.chunk_by_mut(|one, other| !self.is_split(one, other)) {
            match requests[0].work {
                // Of no meaning to whoever reads what another has written.
                Work::Flush => self.shared.disks.run(requests),
                _ => self.shared.run_in_turn(self.host, requests),
            }
        }
    }

    fn size_bytes(&self, slot: DiskSlot) -> u64 {
        self.shared.disks.size_bytes(slot)
    }

    fn path(&self, slot: DiskSlot) -> String {
        self.shared.disks.path(slot)
    }

    fn in_flight_count(&self, slot: DiskSlot) -> u32 {
        self.shared.disks.in_flight_count(slot)
    }

    fn appearance(&self, slot: DiskSlot) -> Option<u64> {
        self.shared.disks.appearance(slot)
    }
}

fn host(number: usize) -> Opener {
    Opener {
        host: format!("host-{number}"),
        boot: Uuid([0xc0 + u8::try_from(number).unwrap(); 16]),
        ..opener()
    }
}

/// What became of hosts that opened a group.
struct Outcome {
    answers: Vec<Result<Membership, GroupError>>,
    written: Vec<Written>,
}

/// Lets `hosts` open the group; `choose` says who of several is next.
fn race(
    disks: &Arc<SimulatedDisks>,
    hosts: &[Opener],
    splits_reads: bool,
    choose: impl FnMut(&[usize]) -> usize,
) -> Outcome {
    let all = vec![present(disks); hosts.len()];
    race_seeing(disks, hosts, &all, splits_reads, choose)
}

/// As [`race`], of hosts that do not see all disks.
fn race_seeing(
    disks: &Arc<SimulatedDisks>,
    hosts: &[Opener],
    seen: &[Vec<DiskSlot>],
    splits_reads: bool,
    mut choose: impl FnMut(&[usize]) -> usize,
) -> Outcome {
    let shared = Shared::new(Arc::clone(disks), hosts.len(), splits_reads);
    let answers = std::thread::scope(|scope| {
        let threads: Vec<_> = (hosts.iter().enumerate())
            .map(|(number, opener)| {
                let (shared, slots) = (&shared, &seen[number]);
                scope.spawn(move || {
                    let way = Way {
                        shared: Arc::clone(shared),
                        host: number,
                    };
                    let answer =
                        Membership::open(Arc::new(way), slots, &name("DATA"), opener, &|_| false);
                    shared.end(number);
                    answer
                })
            })
            .collect();
        loop {
            let candidates = shared.candidates();
            match candidates[..] {
                [] => break,
                [only] => shared.give_turn(only),
                _ => shared.give_turn(choose(&candidates)),
            }
        }
        let answers = threads.into_iter().map(|thread| thread.join().unwrap());
        answers.collect()
    });
    let mut turns = shared.turns();
    turns.are_over = true;
    let written = std::mem::take(&mut turns.written);
    drop(turns);
    Outcome { answers, written }
}

/// Holds what must be so in whatever order the requests came; who serves.
fn judge(outcome: &Outcome, what: &dyn std::fmt::Debug) -> Option<usize> {
    let serving: Vec<usize> = (outcome.answers.iter().enumerate())
        .filter_map(|(host, answer)| answer.is_ok().then_some(host))
        .collect();
    assert!(serving.len() <= 1, "{what:?}: {serving:?} serve");
    for (host, answer) in outcome.answers.iter().enumerate() {
        let Err(error) = answer else { continue };
        let expected = [GroupErrorKind::Busy, GroupErrorKind::Contended];
        assert!(expected.contains(&error.kind), "{what:?}: {error}");
        let marks = [OPENER_PLACE, CLAIM_PLACE, INTENT_PLACE];
        let is_mark = |written: &Written| marks.contains(&written.place);
        let writes = outcome.written.iter();
        let strays = writes.filter(|written| written.host == host && !is_mark(written));
        assert_eq!(strays.count(), 0, "{what:?}: host {host} let go and wrote");
    }
    serving.first().copied()
}

/// The newest record, of which the last disk's counts among equals.
fn newest_host(disks: &SimulatedDisks) -> String {
    (present(disks).into_iter())
        .filter_map(|slot| {
            let bytes = disks.bytes(slot, OPENER_PLACE, OPENER_BYTES);
            OpenerRecord::parse(&bytes, OPENER_PLACE).ok()
        })
        .max_by_key(|record| (record.sequence, record.heartbeats_count))
        .unwrap()
        .host
}

fn open_again(disks: &Arc<SimulatedDisks>, opener: &Opener) -> Result<Membership, GroupError> {
    Membership::open(
        Arc::clone(disks) as Arc<dyn Disks>,
        &present(disks),
        &name("DATA"),
        opener,
        &|_| false,
    )
}

/// Whoever serves goes on or hears that it does not any more; where nobody does, the one whose
/// record stands gets the group without force, and nobody else.
fn judge_after(disks: &Arc<SimulatedDisks>, outcome: Outcome, hosts: &[Opener]) {
    let serving = outcome.answers.into_iter().find_map(Result::ok);
    if let Some(serving) = serving {
        match serving.heartbeat(2_010) {
            Ok(()) => {
                serving.close().unwrap();
                return;
            }
            Err(error) => assert_eq!(error.kind, GroupErrorKind::Busy, "{error}"),
        }
    }
    let newest = newest_host(disks);
    for opener in hosts.iter().filter(|opener| opener.host != newest) {
        let error = open_again(disks, opener).unwrap_err();
        assert_eq!(error.kind, GroupErrorKind::Busy, "{error}");
    }
    let opener = hosts.iter().find(|opener| opener.host == newest).unwrap();
    open_again(disks, opener).unwrap().close().unwrap();
}

/// Every order of the requests of two hosts from the beginning, or from the moment when both have
/// looked at the disks; all disks are read at once. Of how many each host served, and neither.
fn in_every_order(letters: &str, redundancy: Redundancy, have_looked: bool) -> [usize; 3] {
    let original = make(letters, redundancy);
    let hosts = [host(0), host(1)];
    let looks_count = usize::from(have_looked);
    let mut serving_counts = [0; 3];
    // Who was chosen where both could be.
    let mut order: Vec<usize> = Vec::new();
    loop {
        let disks = Arc::new(original.fork(1));
        let mut chosen_count = 0;
        let mut looked = [0; 2];
        let outcome = race(&disks, &hosts, false, |_| {
            for (host, looked) in looked.iter_mut().enumerate() {
                if *looked < looks_count {
                    *looked += 1;
                    return host;
                }
            }
            if chosen_count == order.len() {
                order.push(0);
            }
            chosen_count += 1;
            order[chosen_count - 1]
        });
        let serving = judge(&outcome, &order);
        serving_counts[serving.unwrap_or(2)] += 1;
        judge_after(&disks, outcome, &hosts);
        while order.last() == Some(&1) {
            order.pop();
        }
        match order.last_mut() {
            Some(last) => *last = 1,
            None => return serving_counts,
        }
    }
}

#[test]
fn of_two_hosts_that_open_a_closed_group_in_the_same_moment_at_most_one_serves() {
    for (letters, redundancy, have_looked) in [
        ("a", Redundancy::External, false),
        ("ab", Redundancy::Normal, true),
    ] {
        let counts = in_every_order(letters, redundancy, have_looked);
        assert!(counts[0] > 0 && counts[1] > 0, "{letters}: {counts:?}");
    }
}

#[test]
fn of_three_hosts_of_which_some_use_force_at_most_one_serves_whatever_was_left_open() {
    for seed in 0..1_500 {
        let mut random = SeededRandom::new(seed);
        let letters = ["ab", "abc", "aabb"][usize::try_from(random.below(3)).unwrap()];
        let disks = make(letters, Redundancy::Normal);
        let left = open(&disks).unwrap();
        let voters_count = super::voters(&left).len();
        let is_closed = random.below(2) == 0;
        if is_closed {
            left.close().unwrap();
        }
        // One may look when another's record is there already, and no claim.
        let late = (random.below(2) == 0).then_some(2);
        let hosts = [0, 1, 2].map(|number| Opener {
            force: !is_closed || late == Some(number) || random.below(2) == 0,
            ..host(number)
        });
        let looks_count = letters.len();
        let claims_at = looks_count + 2 * voters_count;
        // Nobody uses force over somebody who serves already: it says what that risks.
        let mut rest = [0; 3];
        let mut drawn = |most: usize| usize::try_from(random.below(most as u64)).unwrap();
        // Who goes on until when, before the order is drawn turn by turn: else nobody comes to its end
        // while another one rests for long.
        let opens_at = claims_at + 2 * voters_count;
        let mut stretches = VecDeque::from(match late {
            Some(late) if drawn(2) == 0 => vec![
                (0, looks_count + drawn(claims_at - looks_count + 1)),
                (late, looks_count),
                (0, claims_at + drawn(opens_at - claims_at + 1)),
                (late, claims_at + drawn(opens_at - claims_at + 1)),
            ],
            _ => Vec::new(),
        });
        let outcome = race(&disks, &hosts, true, |candidates| {
            // All others look first; then each goes on for a while.
            let has_looked = |host: usize| rest[host] >= looks_count;
            let unlooked =
                (candidates.iter().copied()).find(|host| late != Some(*host) && !has_looked(*host));
            let is_late_under_way = late.is_some_and(|late| !has_looked(late));
            let may_go_on =
                |host: &usize| late == Some(*host) || !is_late_under_way || rest[*host] < claims_at;
            let going: Vec<usize> = candidates.iter().copied().filter(may_go_on).collect();
            let is_over =
                |(host, until): &(usize, usize)| rest[*host] >= *until || !going.contains(host);
            while stretches.front().is_some_and(is_over) {
                stretches.pop_front();
            }
            let stretch = stretches.front().map(|(host, _)| *host);
            let next = (unlooked.or(stretch)).unwrap_or_else(|| going[drawn(going.len())]);
            rest[next] += 1;
            next
        });
        judge(&outcome, &seed);
    }
}

/// A group of which a disk was put back to an older image: from before it was opened and closed, which
/// its states tell, or from an opening that did not end, which its heartbeats do.
pub(super) fn with_a_disk_put_back(letters: &str, is_closed: bool) -> Arc<SimulatedDisks> {
    let disks = make(letters, Redundancy::Normal);
    let slot = DiskSlot(1);
    let before = disks.bytes(slot, 0, 1 << 20);
    let left = open(&disks).unwrap();
    left.change_state(|_| {}).unwrap();
    let amidst = disks.bytes(slot, 0, 1 << 20);
    left.heartbeat(2_001).unwrap();
    left.heartbeat(2_002).unwrap();
    if is_closed {
        left.close().unwrap();
    }
    let older = if is_closed { &before } else { &amidst };
    disks.overwrite(slot, 0, older);
    disks
}

#[test]
fn of_hosts_that_find_a_disk_put_back_in_the_same_moment_one_leaves_it_out_at_most() {
    let (mut serving_count, mut none_count) = (0, 0);
    for seed in 0..1_000 {
        let mut random = SeededRandom::new(seed);
        let letters = ["abc", "abcd"][usize::try_from(random.below(2)).unwrap()];
        let is_closed = random.below(2) == 0;
        let disks = with_a_disk_put_back(letters, is_closed);
        let hosts = [0, 1, 2].map(|number| Opener {
            force: !is_closed,
            ..host(number)
        });
        // Who does not see the disk that was put back has no need of an intent.
        let others: Vec<DiskSlot> = present(&disks)
            .into_iter()
            .filter(|slot| slot.0 != 1)
            .collect();
        let seen = [0, 1, 2].map(|_| match random.below(3) {
            0 => others.clone(),
            _ => present(&disks),
        });
        let mut rest = [0; 3];
        let outcome = race_seeing(&disks, &hosts, &seen, true, |candidates| {
            let unlooked = candidates
                .iter()
                .find(|host| rest[**host] < seen[**host].len());
            let count = candidates.len() as u64;
            let next = unlooked
                .copied()
                .unwrap_or_else(|| candidates[usize::try_from(random.below(count)).unwrap()]);
            rest[next] += 1;
            next
        });
        match judge(&outcome, &seed) {
            Some(_) => serving_count += 1,
            None => {
                none_count += 1;
                // One of them gets it at the next try.
                let mut tries = hosts.iter().map(|opener| open_again(&disks, opener));
                let membership = tries.find_map(Result::ok).unwrap();
                // The record of who did not see the disk says no heartbeats any more.
                let is_proved = is_closed || !seen.contains(&others);
                assert!(!is_proved || !membership.is_online(DiskNumber(1)), "{seed}");
            }
        }
    }
    assert!(
        serving_count > 100 && none_count > 10,
        "{serving_count}, {none_count}"
    );
}

#[test]
fn an_opening_that_ends_before_its_record_has_the_group_by_its_intent() {
    let mut intents_count = 0;
    for request in 1.. {
        let disks = with_a_disk_put_back("abc", true);
        disks.power_fails_after(request);
        let answer = open_again(&disks, &host(0));
        disks.crash();
        disks.restart();
        let has_intent =
            (present(&disks).into_iter()).any(|slot| disks.bytes(slot, INTENT_PLACE, 1) != [0]);
        let other = open_again(&disks, &host(1));
        if has_intent {
            intents_count += 1;
            let error = other.unwrap_err();
            assert_eq!(error.kind, GroupErrorKind::Busy, "{request}: {error}");
            assert!(error.message.contains("host-0"), "{request}: {error}");
            let membership = open_again(&disks, &host(0)).unwrap();
            assert!(!membership.is_online(DiskNumber(1)), "{request}");
        } else {
            other.unwrap();
        }
        if answer.is_ok() {
            break;
        }
    }
    assert!(intents_count > 3, "{intents_count}");
}

#[test]
fn a_program_without_intents_that_beats_behind_one_has_the_group() {
    for (heartbeat_s, has_it) in [(2_050, true), (1_990, false)] {
        let disks = make("abc", Redundancy::Normal);
        open(&disks).unwrap().close().unwrap();
        for slot in present(&disks) {
            let closed = record(&disks, slot);
            let intent = OpenerRecord {
                sequence: closed.sequence + 2,
                open: true,
                heartbeat_s: 2_000,
                opened_s: 2_000,
                heartbeats_count: 0,
                ..closed.clone()
            };
            disks.overwrite(slot, INTENT_PLACE, &intent.encode(INTENT_PLACE));
            let beating = OpenerRecord {
                sequence: closed.sequence + 1,
                open: true,
                host: "beta".to_owned(),
                boot: Uuid([0xb2; 16]),
                heartbeats_count: 5,
                heartbeat_s,
                ..closed
            };
            disks.overwrite(slot, OPENER_PLACE, &beating.encode(OPENER_PLACE));
        }
        match open(&disks) {
            Err(error) if has_it => {
                assert_eq!(error.kind, GroupErrorKind::Busy, "{error}");
                assert!(error.message.contains("host beta"), "{error}");
            }
            answer => assert!(!has_it && answer.is_ok(), "{answer:?}"),
        }
    }
}

#[test]
fn a_closing_in_whose_midst_another_host_takes_the_group_behind_its_intent_leaves_it_to_that_one() {
    for place in STATE_PLACES {
        let disks = make("abcd", Redundancy::Normal);
        let older = disks.bytes(DiskSlot(3), 0, 1 << 20);
        open(&disks).unwrap().close().unwrap();
        let owner = open(&disks).unwrap();
        owner.heartbeat(2_001).unwrap();
        owner.heartbeat(2_002).unwrap();
        // Put back: who opens the group now leaves it out before it writes its record.
        disks.overwrite(DiskSlot(3), 0, &older);
        let answer = Arc::new(Mutex::new(None));
        let closing = Arc::clone(&answer);
        let way = Delayed::new(&disks, place, move || {
            *closing.lock().unwrap() = Some(owner.close());
        });
        let taker = Opener {
            host: "beta".to_owned(),
            boot: Uuid([0xb2; 16]),
            ..forced()
        };
        let slots = present(&disks);
        let taken = Membership::open(way, &slots, &name("data"), &taker, &|_| false).unwrap();
        let error = answer.lock().unwrap().take().unwrap().unwrap_err();
        assert_eq!(error.kind, GroupErrorKind::Busy, "{error}");
        assert!(error.message.contains("host beta"), "{error}");
        assert_eq!(online(&taken), [0, 1, 2]);
    }
}

#[test]
fn a_group_whose_records_cannot_be_read_again_is_not_served() {
    let disks = make("ab", Redundancy::Normal);
    let fail_reads = |count| {
        for slot in [DiskSlot(0), DiskSlot(1)] {
            let record = OPENER_PLACE..OPENER_PLACE + 4096;
            let kind = DeviceErrorKind::Medium;
            disks.fail(slot, FaultyOperation::Read, record, count, kind);
        }
    };
    fail_reads(u64::MAX);
    let error = open(&disks).unwrap_err();
    assert_eq!(error.kind, GroupErrorKind::NoMajority, "{error}");
    assert!(error.message.contains("whether another host"), "{error}");
    for slot in [DiskSlot(0), DiskSlot(1)] {
        disks.clear_faults(slot);
    }
    // For a moment: at the first look, and at the one that follows the record.
    fail_reads(2);
    open(&disks).unwrap();
}

/// Disks of which another host takes the group as soon as this one has written its record.
#[derive(Debug)]
struct Taken {
    disks: Arc<SimulatedDisks>,
    /// The first record that was written.
    record: Mutex<Option<OpenerRecord>>,
}

impl Disks for Taken {
    fn run(&self, batch: &mut [Request<'_>]) {
        self.disks.run(batch);
        let mut first = self.record.lock().unwrap();
        for request in batch.iter() {
            let is_write = !matches!(request.work, Work::Read(_) | Work::Flush);
            if is_write && request.offset_bytes == OPENER_PLACE && first.is_none() {
                let record = self.disks.bytes(request.slot, OPENER_PLACE, OPENER_BYTES);
                *first = OpenerRecord::parse(&record, OPENER_PLACE).ok();
                (self.disks).overwrite(request.slot, OPENER_PLACE, &taken(&record));
            }
        }
    }

    fn size_bytes(&self, slot: DiskSlot) -> u64 {
        self.disks.size_bytes(slot)
    }

    fn path(&self, slot: DiskSlot) -> String {
        self.disks.path(slot)
    }

    fn in_flight_count(&self, slot: DiskSlot) -> u32 {
        self.disks.in_flight_count(slot)
    }

    fn appearance(&self, slot: DiskSlot) -> Option<u64> {
        self.disks.appearance(slot)
    }
}

#[test]
fn a_process_that_let_go_of_a_group_takes_nothing_over_when_it_opens_it_at_last() {
    let disks = make("ab", Redundancy::Normal);
    let killed = open(&disks).unwrap();
    let journal = Arc::new(KeptJournal::create().unwrap());
    journal.begin(claim_of(&killed.opener()), false);
    drop(killed);
    let meddled = Arc::new(Taken {
        disks: Arc::clone(&disks),
        record: Mutex::default(),
    });
    let error = Group::open_kept(
        Arc::clone(&meddled) as Arc<dyn Disks>,
        &present(&disks),
        &name("DATA"),
        &opener(),
        &|_| false,
        Some(Arc::clone(&journal)),
    )
    .unwrap_err();
    assert_eq!(error.kind, GroupErrorKind::Contended, "{error}");
    assert!(error.message.contains("host beta"), "{error}");
    // Its record stands on one disk, and the other host may have written to any since.
    let record = meddled.record.lock().unwrap().clone().unwrap();
    assert!(!journal.is_heir(claim_of(&record)));
}
