//! Processes of one host that die while another host takes the group.

use std::sync::{Arc, Mutex};

use spindle_base::{Redundancy, Uuid};
use spindle_catalog::KeptJournal;
use spindle_device::{DiskSlot, Disks, Request, SimulatedDisks, Work};
use spindle_format::{OPENER_BYTES, OPENER_PLACE, OpenerRecord, STATE_PLACES};

use super::ownership::take;
use super::{make, name, online, open, opener, present};
use crate::core::keeper_journal::claim_of;
use crate::quorum::{Attendance, Membership, Waited};
use crate::{GroupError, GroupErrorKind, Opener};

type Happening = Box<dyn FnOnce() + Send>;

/// Disks at which something happens before the first write to a place, or after it.
pub(super) struct Delayed {
    disks: Arc<SimulatedDisks>,
    place: u64,
    is_after: bool,
    happening: Mutex<Option<Happening>>,
}

impl Delayed {
    pub(super) fn new(
        disks: &Arc<SimulatedDisks>,
        place: u64,
        happening: impl FnOnce() + Send + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            disks: Arc::clone(disks),
            place,
            is_after: false,
            happening: Mutex::new(Some(Box::new(happening))),
        })
    }

    pub(super) fn after(
        disks: &Arc<SimulatedDisks>,
        place: u64,
        happening: impl FnOnce() + Send + 'static,
    ) -> Arc<Self> {
        let mut delayed = Self::new(disks, place, happening);
        Arc::get_mut(&mut delayed).unwrap().is_after = true;
        delayed
    }
}

impl std::fmt::Debug for Delayed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Delayed")
    }
}

impl Disks for Delayed {
    fn run(&self, batch: &mut [Request<'_>]) {
        let is_meant = |request: &Request<'_>| {
            let is_write = !matches!(request.work, Work::Read(_) | Work::Flush);
            is_write && request.offset_bytes == self.place
        };
        let is_meant = batch.iter().any(is_meant);
        if self.is_after {
            self.disks.run(batch);
        }
        if is_meant && let Some(happening) = self.happening.lock().unwrap().take() {
            // The order of locks is one for each process.
            std::thread::spawn(happening).join().unwrap();
        }
        if !self.is_after {
            self.disks.run(batch);
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

/// Opens the group as a daemon does whose keeper holds the journal, and is killed before it can take
/// back what it noted there.
fn open_noting(
    disks: Arc<dyn Disks>,
    opener: &Opener,
    journal: &KeptJournal,
    waited: Option<&Waited>,
) -> Result<Membership, GroupError> {
    let slots = [DiskSlot(0), DiskSlot(1)];
    let announce = |before: Option<&OpenerRecord>, own: &OpenerRecord| {
        if let Some(before) = before {
            journal.note_claim(claim_of(before), claim_of(own));
        }
    };
    let attendance = Attendance {
        announce: &announce,
        has_served: &|record| journal.is_of(claim_of(record)),
        waited,
        ..Attendance::of(&|_| false)
    };
    Membership::open_attended(disks, &slots, &name("data"), opener, attendance)
}

/// A process that is as another one but for its number.
fn process(process_id: u32) -> Opener {
    Opener {
        process_id,
        ..opener()
    }
}

/// What stands where an opening writes.
fn heads(disks: &SimulatedDisks) -> Vec<Vec<u8>> {
    let slots = present(disks).into_iter();
    slots.map(|slot| disks.bytes(slot, 0, 1 << 20)).collect()
}

/// A group whose daemon was killed, and the journal that its keeper holds. The next daemon was delayed
/// before its first mark, let go, and was killed; another host has opened the group meanwhile.
struct Scene {
    disks: Arc<SimulatedDisks>,
    journal: KeptJournal,
    other: Membership,
}

impl Scene {
    fn new() -> Self {
        let disks = make("ab", Redundancy::Normal);
        let killed = open(&disks).unwrap();
        let journal = KeptJournal::create().unwrap();
        journal.begin(claim_of(&killed.opener()), false);
        drop(killed);
        let other: Arc<Mutex<Option<Membership>>> = Arc::default();
        let (shared, taken) = (Arc::clone(&disks), Arc::clone(&other));
        let delayed = Delayed::new(&disks, OPENER_PLACE, move || {
            *taken.lock().unwrap() = Some(take(&shared));
        });
        let error = open_noting(delayed, &process(101), &journal, None).unwrap_err();
        assert_eq!(error.kind, GroupErrorKind::Contended, "{error}");
        let other = other.lock().unwrap().take().unwrap();
        Self {
            disks,
            journal,
            other,
        }
    }

    fn open(&self, process_id: u32, waited: &Waited) -> Result<Membership, GroupError> {
        let disks = Arc::clone(&self.disks) as Arc<dyn Disks>;
        open_noting(disks, &process(process_id), &self.journal, Some(waited))
    }
}

#[test]
fn the_next_process_of_a_host_leaves_a_group_to_the_one_that_has_it_though_a_dead_one_s_record_stands()
 {
    let scene = Scene::new();
    let before = heads(&scene.disks);
    let waited = Waited::default();
    let error = scene.open(102, &waited).unwrap_err();
    assert_eq!(error.kind, GroupErrorKind::Contended, "{error}");
    assert!(error.message.contains("host beta"), "{error}");
    assert!(heads(&scene.disks) == before, "nothing was written");
    // The record is another's for whoever looks at it.
    let error = scene.other.heartbeat(2_002).unwrap_err();
    assert_eq!(error.kind, GroupErrorKind::Busy, "{error}");
    let membership = scene.open(102, &waited).unwrap();
    let own = claim_of(&membership.opener());
    assert!(
        !scene.journal.is_heir(own),
        "the other host may have written"
    );
}

#[test]
fn a_process_that_let_go_itself_has_waited_for_its_own_record() {
    let disks = make("ab", Redundancy::Normal);
    let other: Arc<Mutex<Option<Membership>>> = Arc::default();
    let (shared, taken) = (Arc::clone(&disks), Arc::clone(&other));
    let delayed = Delayed::new(&disks, OPENER_PLACE, move || {
        *taken.lock().unwrap() = Some(take(&shared));
    });
    let (journal, waited) = (KeptJournal::create().unwrap(), Waited::default());
    let delayed: Arc<dyn Disks> = delayed;
    let open = || open_noting(Arc::clone(&delayed), &opener(), &journal, Some(&waited));
    let error = open().unwrap_err();
    assert_eq!(error.kind, GroupErrorKind::Contended, "{error}");
    let other = other.lock().unwrap().take().unwrap();
    other.heartbeat(2_002).unwrap_err();
    open().unwrap();
}

#[test]
fn an_owner_that_writes_its_record_again_keeps_the_group_from_who_waited() {
    let scene = Scene::new();
    let waited = Waited::default();
    scene.open(102, &waited).unwrap_err();
    // It had looked before the record came over its own, and beat after that.
    for slot in present(&scene.disks) {
        let disk_uuid = record(&scene.disks, slot).disk_uuid;
        let theirs = OpenerRecord {
            disk_uuid,
            heartbeats_count: 1,
            ..scene.other.opener()
        };
        (scene.disks).overwrite(slot, OPENER_PLACE, &theirs.encode(OPENER_PLACE));
    }
    let error = scene.open(102, &waited).unwrap_err();
    assert_eq!(error.kind, GroupErrorKind::Busy, "{error}");
    scene.other.heartbeat(2_002).unwrap();
}

#[test]
fn a_wait_counts_for_the_record_that_was_seen_and_no_other() {
    let scene = Scene::new();
    let waited = Waited::default();
    scene.open(102, &waited).unwrap_err();
    // Another process of the host was delayed as the first one.
    for slot in present(&scene.disks) {
        let before = record(&scene.disks, slot);
        let theirs = OpenerRecord {
            process_id: 103,
            ..before
        };
        (scene.disks).overwrite(slot, OPENER_PLACE, &theirs.encode(OPENER_PLACE));
    }
    for expected in [false, true] {
        let answer = scene.open(102, &waited);
        assert_eq!(answer.is_ok(), expected);
    }
}

pub(super) fn record(disks: &SimulatedDisks, slot: DiskSlot) -> OpenerRecord {
    let bytes = disks.bytes(slot, OPENER_PLACE, OPENER_BYTES);
    OpenerRecord::parse(&bytes, OPENER_PLACE).unwrap()
}

#[test]
fn a_daemon_that_dies_at_any_request_of_its_opening_leaves_the_journal_to_the_next_one() {
    // The group moved here from another host.
    let moved = make("ab", Redundancy::Normal);
    take(&moved).close().unwrap();
    let mut dead_count = 0;
    for request in 1.. {
        let disks = Arc::new(moved.fork(request));
        let journal = KeptJournal::create().unwrap();
        let killed = open_noting(Arc::clone(&disks) as _, &process(100), &journal, None).unwrap();
        journal.begin(claim_of(&killed.opener()), false);
        drop(killed);
        disks.power_fails_after(request);
        let next = open_noting(Arc::clone(&disks) as _, &process(101), &journal, None);
        let has_ended = next.is_ok();
        drop(next);
        // As after a kill: all that was answered is there, because every write is durable.
        disks.crash();
        disks.restart();
        let waited = Waited::default();
        let heir = open_noting(
            Arc::clone(&disks) as _,
            &process(102),
            &journal,
            Some(&waited),
        );
        let heir = heir.unwrap_or_else(|error| panic!("request {request}: {error}"));
        assert!(journal.is_heir(claim_of(&heir.opener())), "{request}");
        if has_ended {
            break;
        }
        dead_count += 1;
    }
    assert!(dead_count > 5, "{dead_count}");
}

#[test]
fn a_takeover_that_is_refused_for_its_disks_leaves_the_journal_to_the_next_one() {
    for place in [OPENER_PLACE, STATE_PLACES[0]] {
        let disks = make("ab", Redundancy::External);
        let journal = KeptJournal::create().unwrap();
        let killed = open_noting(Arc::clone(&disks) as _, &process(100), &journal, None).unwrap();
        journal.begin(claim_of(&killed.opener()), false);
        drop(killed);
        let last = STATE_PLACES[1] + 4096;
        disks.fail_writes(DiskSlot(1), place..last, 2);
        let refused = open_noting(Arc::clone(&disks) as _, &process(101), &journal, None);
        assert_eq!(refused.unwrap_err().kind, GroupErrorKind::NotEnough);
        disks.clear_faults(DiskSlot(1));
        let waited = Waited::default();
        let heir = open_noting(
            Arc::clone(&disks) as _,
            &process(102),
            &journal,
            Some(&waited),
        );
        let heir = heir.unwrap();
        assert!(journal.is_heir(claim_of(&heir.opener())), "{place}");
        assert_eq!(online(&heir), [0, 1]);
    }
}

#[test]
fn a_claim_that_came_over_an_owner_s_own_keeps_no_heir_from_what_the_owner_left() {
    let disks = make("ab", Redundancy::Normal);
    let journal = KeptJournal::create().unwrap();
    let killed = open_noting(Arc::clone(&disks) as _, &process(100), &journal, None).unwrap();
    journal.begin(claim_of(&killed.opener()), false);
    // Another host contended with it, and let go when its claim was sent already.
    for slot in present(&disks) {
        let theirs = OpenerRecord {
            host: "beta".to_owned(),
            boot: Uuid([0xb2; 16]),
            ..record(&disks, slot)
        };
        let place = spindle_format::CLAIM_PLACE;
        disks.overwrite(slot, place, &theirs.encode(place));
    }
    drop(killed);
    let waited = Waited::default();
    let heir = open_noting(
        Arc::clone(&disks) as _,
        &process(101),
        &journal,
        Some(&waited),
    );
    assert!(journal.is_heir(claim_of(&heir.unwrap().opener())));
}
