//! What loom tries: the code itself, over words of loom's. A thread here stands for a process.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use spindle_base::FileId;
use spindle_sync::atomic::AtomicU64;
use spindle_sync::thread;

use crate::{Blocks, Leases, Mode, Patience};

fn new_leases() -> Arc<Leases> {
    Arc::new(Leases::create().expect("memory"))
}

fn blocks(first: u64) -> Blocks {
    Blocks::new(FileId(1), first, first + 1)
}

/// Who announced blocks touches them, or the owner who revoked them does, and never both.
pub fn what_is_revoked_is_touched_by_one() {
    let leases = new_leases();
    let client = leases.let_in(2).expect("a place");
    let touched = Arc::new(AtomicU64::new(0));
    let (shared, seen) = (Arc::clone(&leases), Arc::clone(&touched));
    let writer = thread::spawn(move || {
        let mut operation = shared.operation(client, 0);
        if let Ok(announced) = operation.announce_write(blocks(0), |_| Patience::GiveUp) {
            let before = seen.load(Ordering::Relaxed);
            assert_eq!(
                seen.load(Ordering::Relaxed),
                before,
                "it moved under a writer"
            );
            announced.done();
        }
    });
    let revocation = leases.revoke(blocks(0)).expect("a place");
    if revocation.under_way().is_empty() {
        touched.store(1, Ordering::Relaxed);
    }
    drop(revocation);
    writer.join().expect("no panic");
}

/// What a client wrote before its announcement ended, the owner finds when it finds none.
pub fn what_ended_is_seen() {
    let leases = new_leases();
    let client = leases.let_in(2).expect("a place");
    let copies = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let (shared, seen) = (Arc::clone(&leases), Arc::clone(&copies));
    let owner = thread::spawn(move || {
        let revocation = shared.revoke(blocks(0)).expect("a place");
        if revocation.under_way().is_empty() {
            let [one, two] = [0, 1].map(|copy: usize| seen[copy].load(Ordering::Relaxed));
            assert_eq!(one, two, "copies differ, and nobody is at it");
        }
    });
    let mut operation = leases.operation(client, 0);
    if let Ok(announced) = operation.announce_write(blocks(0), |_| Patience::GiveUp) {
        for copy in &*copies {
            copy.store(1, Ordering::Relaxed);
        }
        announced.done();
    }
    owner.join().expect("no panic");
}

/// Two writers of one block come one after the other.
pub fn two_writers_leave_equal_copies() {
    let leases = new_leases();
    let owner = leases.let_in_owner(1);
    let client = leases.let_in(2).expect("a place");
    let copies = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let write = |leases: &Leases, copies: &[AtomicU64; 2], client, value| {
        let mut operation = leases.operation(client, 0);
        let announced = operation.announce_write(blocks(0), |_| Patience::GiveUp);
        if let Ok(announced) = announced {
            let [one, two] = [0, 1].map(|copy: usize| copies[copy].load(Ordering::Relaxed));
            assert_eq!(one, two, "another write is under way");
            for copy in copies {
                copy.store(value, Ordering::Relaxed);
            }
            announced.done();
        }
    };
    let (shared, seen) = (Arc::clone(&leases), Arc::clone(&copies));
    let other = thread::spawn(move || write(&shared, &seen, client, 2));
    write(&leases, &copies, owner, 1);
    other.join().expect("no panic");
}

/// An operation that is found is one that was announced, whole.
pub fn an_operation_is_found_whole() {
    let leases = new_leases();
    let client = leases.let_in(2).expect("a place");
    let shared = Arc::clone(&leases);
    let owner = thread::spawn(move || {
        for found in shared.left_by(client.number()) {
            let of = found.blocks();
            // A look that met a change each time says that it counts as everything.
            assert!(
                of == blocks(5) || of == blocks(9) || of == Blocks::ALL,
                "{of:?}"
            );
        }
    });
    let mut operation = leases.operation(client, 0);
    for first in [5, 9] {
        let _ = operation.announce_write(blocks(first), |_| Patience::GiveUp);
    }
    owner.join().expect("no panic");
}

/// A write that the owner overtakes ends as torn, or had ended before.
pub fn what_is_overtaken_is_torn() {
    let leases = new_leases();
    let client = leases.let_in(2).expect("a place");
    let shared = Arc::clone(&leases);
    let owner = thread::spawn(move || {
        let left = shared.left_by(client.number());
        left.first().is_some_and(crate::UnderWay::overtake)
    });
    let mut operation = leases.operation(client, 0);
    let mut is_given_up = false;
    match operation.announce_write(blocks(0), |_| Patience::GiveUp) {
        Ok(announced) => announced.done(),
        Err(_) => is_given_up = true,
    }
    let is_overtaken = owner.join().expect("no panic");
    let left = leases.left_by(client.number());
    let modes: Vec<Mode> = left.iter().map(crate::UnderWay::mode).collect();
    assert_eq!(modes.contains(&Mode::Torn), is_overtaken && !is_given_up);
}

/// What the former owner had revoked is refused at every moment of a takeover.
pub fn a_takeover_leaves_no_moment() {
    let leases = new_leases();
    let client = leases.let_in(2).expect("a place");
    std::mem::forget(leases.revoke(blocks(0)).expect("a place"));
    let shared = Arc::clone(&leases);
    let writer = thread::spawn(move || {
        let mut operation = shared.operation(client, 0);
        let announced = operation.announce_write(blocks(0), |_| Patience::GiveUp);
        assert!(announced.is_err());
    });
    let everything = leases.take_over();
    writer.join().expect("no panic");
    drop(everything);
}
