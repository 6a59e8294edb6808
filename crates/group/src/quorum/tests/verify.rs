//! Structures of an open group that are looked at and mended.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use spindle_base::Redundancy;
use spindle_device::{DiskSlot, Disks, Judge, Operation, Request, SimulatedDisks};
use spindle_format::{LABEL_PLACES, end_label_place};

use super::ownership::take;
use super::{DISK_BYTES, make, name, open, opener};
use crate::event::{Event, EventKind};
use crate::quorum::{FaultOutcome, Membership};

const NOISE: [u8; 4096] = [0x55; 4096];

fn damage_a_label(disks: &SimulatedDisks) {
    disks.overwrite(DiskSlot(1), LABEL_PLACES[0], &NOISE);
}

/// Simulated disks that ask something of the group whenever a label is read.
#[derive(Debug)]
struct Asking {
    disks: Arc<SimulatedDisks>,
    group: Mutex<Weak<Membership>>,
    answers_count: AtomicUsize,
}

impl Disks for Asking {
    fn run(&self, batch: &mut [Request<'_>]) {
        let reads_label = (batch.iter()).any(|request| {
            request.work.operation() == Operation::Read && request.offset_bytes == LABEL_PLACES[0]
        });
        if let Some(group) = self.group.lock().unwrap().upgrade().filter(|_| reads_label) {
            let (sender, answer) = channel();
            std::thread::spawn(move || sender.send(group.epoch()));
            answer
                .recv_timeout(Duration::from_secs(5))
                .expect("it is answered while the label is read");
            self.answers_count.fetch_add(1, Ordering::Relaxed);
        }
        self.disks.run(batch);
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

    fn is_fenced(&self, slot: DiskSlot) -> bool {
        self.disks.is_fenced(slot)
    }

    fn set_judge(&self, judge: Weak<dyn Judge>) {
        self.disks.set_judge(judge);
    }
}

#[test]
fn who_looks_at_structures_keeps_nobody_waiting() {
    let disks = make("abc", Redundancy::Normal);
    let asking = Arc::new(Asking {
        disks: Arc::clone(&disks),
        group: Mutex::default(),
        answers_count: AtomicUsize::new(0),
    });
    let slots = [0, 1, 2].map(DiskSlot);
    let access: Arc<dyn Disks> = asking.clone();
    let membership =
        Membership::open(access, &slots, &name("data"), &opener(), &|_| false).unwrap();
    let membership = Arc::new(membership);
    damage_a_label(&disks);
    *asking.group.lock().unwrap() = Arc::downgrade(&membership);
    let faults = membership.verify_structures(true);
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert_eq!(faults[0].outcome, FaultOutcome::Repaired);
    assert!(asking.answers_count.load(Ordering::Relaxed) > 0);
    assert!(membership.verify_structures(true).is_empty());
}

#[test]
fn an_owner_that_lost_the_group_while_it_slept_writes_no_structure_again() {
    let disks = make("abc", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    let _other = take(&disks);
    damage_a_label(&disks);
    let writes_count = disks.counts().writes;
    assert!(membership.verify_structures(true).is_empty());
    assert_eq!(disks.counts().writes, writes_count);
    assert!(membership.check().is_err());
}

#[test]
fn a_copy_at_the_end_that_cannot_be_written_is_not_told_as_repaired() {
    let disks = make("ab", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    let end = end_label_place(DISK_BYTES);
    disks.overwrite(DiskSlot(1), end, &NOISE);
    disks.fail_writes(DiskSlot(1), end..end + 4096, 1);
    let faults = membership.verify_structures(true);
    let outcomes: Vec<&FaultOutcome> = faults.iter().map(|fault| &fault.outcome).collect();
    assert!(
        matches!(outcomes[..], [FaultOutcome::Failed(_)]),
        "{faults:?}"
    );
    // What a failed write left there may be all of it.
    membership.verify_structures(true);
    assert!(membership.verify_structures(true).is_empty());
}

/// What was told of labels since the last call.
fn told_of_labels(membership: &Membership) -> Vec<(EventKind, String)> {
    let of_labels = [EventKind::LabelLate, EventKind::LabelWritten];
    (membership.take_events().into_iter())
        .filter(|event| of_labels.contains(&event.kind))
        .map(|event| (event.kind, event.message))
        .collect()
}

#[test]
fn copies_of_a_label_that_cannot_be_written_are_told_once_each() {
    let disks = make("ab", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    let end = end_label_place(DISK_BYTES);
    let front = LABEL_PLACES[1];
    let damage = |place: u64| {
        disks.overwrite(DiskSlot(1), place, &NOISE);
        disks.fail_writes(DiskSlot(1), place..place + 4096, u64::MAX);
    };
    // A failed write may reach the disk whole: it is damaged again before each round.
    let round = |places: &[u64]| {
        for place in places {
            disks.overwrite(DiskSlot(1), *place, &NOISE);
        }
        let before = disks.bytes(DiskSlot(1), LABEL_PLACES[0], 4096);
        membership.verify_structures(true);
        membership.bring_labels_up_to_date();
        let after = disks.bytes(DiskSlot(1), LABEL_PLACES[0], 4096);
        assert!(before == after, "good copies are not written again");
        told_of_labels(&membership)
    };
    let is_late_at = |told: &[(EventKind, String)], places: &[u64]| {
        let [(kind, message)] = told else {
            return false;
        };
        let names = |place: &u64| message.contains(&format!("at byte {place} ("));
        let count = message.matches("at byte").count();
        *kind == EventKind::LabelLate && places.iter().all(names) && count == places.len()
    };
    damage(end);
    let told = round(&[end]);
    assert!(is_late_at(&told, &[end]), "{told:?}");
    assert_eq!(round(&[end]), []);
    // It hides nothing of a copy at the beginning.
    damage(front);
    let told = round(&[end, front]);
    assert!(is_late_at(&told, &[end, front]), "{told:?}");
    assert_eq!(round(&[end, front]), []);
    // The one that can be written again does not speak for the other.
    disks.clear_faults(DiskSlot(1));
    damage(end);
    let told = round(&[end]);
    let (written, late) = told.split_at(1);
    assert!(
        written[0].0 == EventKind::LabelWritten && written[0].1.contains(&front.to_string()),
        "{told:?}"
    );
    assert!(is_late_at(late, &[end]), "{told:?}");
    disks.clear_faults(DiskSlot(1));
    let told = round(&[]);
    assert!(
        matches!(&told[..], [(EventKind::LabelWritten, _)]),
        "{told:?}"
    );
    assert_eq!(round(&[]), []);
    assert!(membership.verify_structures(true).is_empty());
}

#[test]
fn a_copy_that_an_opening_cannot_repair_is_told_as_late_and_not_as_repaired() {
    let disks = make("ab", Redundancy::Normal);
    for place in [LABEL_PLACES[0], end_label_place(DISK_BYTES)] {
        disks.overwrite(DiskSlot(1), place, &NOISE);
        disks.fail_writes(DiskSlot(1), place..place + 4096, 4);
        let membership = open(&disks).unwrap();
        let told = membership.take_events();
        let is_repaired = |event: &Event| event.kind == EventKind::LabelRepaired;
        assert!(!told.iter().any(is_repaired), "{told:?}");
        disks.overwrite(DiskSlot(1), place, &NOISE);
        membership.verify_structures(true);
        let told = told_of_labels(&membership);
        let is_late = matches!(&told[..], [(EventKind::LabelLate, _)]);
        assert!(is_late, "{told:?}");
        disks.clear_faults(DiskSlot(1));
        membership.verify_structures(true);
        let told = told_of_labels(&membership);
        let is_written = matches!(&told[..], [(EventKind::LabelWritten, _)]);
        assert!(is_written, "{told:?}");
        membership.close().unwrap();
    }
}

#[test]
fn a_group_has_its_new_redundancy_though_a_label_cannot_be_written() {
    let disks = make("ab", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    disks.fail_writes(DiskSlot(1), 0..4096, 1);
    membership.set_redundancy(Redundancy::External).unwrap();
    assert_eq!(membership.redundancy(), Redundancy::External);
    let told = told_of_labels(&membership);
    assert!(matches!(&told[..], [(EventKind::LabelLate, _)]), "{told:?}");
    membership.bring_labels_up_to_date();
    let told = told_of_labels(&membership);
    assert!(
        matches!(&told[..], [(EventKind::LabelWritten, _)]),
        "{told:?}"
    );
    for look in crate::quorum::look(&*disks, &[DiskSlot(0), DiskSlot(1)]) {
        assert_eq!(look.member().unwrap().redundancy, Redundancy::External);
    }
}
