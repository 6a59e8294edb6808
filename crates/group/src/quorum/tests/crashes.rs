//! A power cut at any request: whatever was relied on before is what the next start finds.

use std::sync::Arc;

use spindle_base::{DiskNumber, Redundancy};
use spindle_device::{DiskSlot, Disks, SimulatedDisks};

use super::{make, name, new_group, online, open, opener, present};
use crate::quorum::Membership;

#[test]
fn a_crash_at_any_request_leaves_a_group_that_opens() {
    for failure_groups in ["ab", "aabb", "abc", "abcde"] {
        let original = make(failure_groups, Redundancy::Normal);
        for seed in 0..6 {
            for request in 1.. {
                let disks = Arc::new(original.fork(seed * 1_000 + request));
                let mut relied_on = online(&open(&disks).unwrap());
                let last = *relied_on.last().unwrap();
                disks.power_fails_after(request);
                let done = live(&disks, DiskNumber(last), &mut relied_on);
                disks.crash();
                disks.restart();
                let membership = open(&disks)
                    .unwrap_or_else(|e| panic!("{failure_groups} {seed} {request}: {e}"));
                let found = online(&membership);
                let lost: Vec<u16> = relied_on.iter().copied().filter(|d| *d != last).collect();
                assert!(
                    found == relied_on || found == lost,
                    "{failure_groups} {seed} {request}: {found:?} after {relied_on:?}"
                );
                if done {
                    assert!(membership.was_clean());
                    break;
                }
            }
        }
    }
}

/// Opens, takes the last disk offline, closes; true where power lasted to the end. `relied_on`
/// are the disks online as far as anybody was told.
fn live(disks: &Arc<SimulatedDisks>, last: DiskNumber, relied_on: &mut Vec<u16>) -> bool {
    let Ok(membership) = open(disks) else {
        return false;
    };
    if membership.take_offline(&[last], "test").is_err() {
        return false;
    }
    relied_on.retain(|disk| *disk != last.0);
    if membership.heartbeat(2_010).is_err() {
        return false;
    }
    membership.close().is_ok()
}

#[test]
fn a_stale_disk_is_never_served_whatever_crashes_and_whoever_is_away() {
    // A disk that missed an acknowledged step must not come back as online, whichever disks the
    // next starts see and wherever crashes interrupt them.
    let original = make("abc", Redundancy::Normal);
    let mut openings_count = 0;
    for seed in 0..300 {
        let disks = Arc::new(original.fork(seed));
        let mut random = spindle_device::SeededRandom::new(seed);
        let mut stale = [false; 3];
        for _ in 0..6 {
            let away = u16::try_from(random.below(4)).unwrap();
            if away < 3 {
                disks.vanish(DiskSlot(away));
            }
            disks.power_fails_after(1 + random.below(150));
            if let Ok(membership) = open(&disks) {
                openings_count += 1;
                for number in online(&membership) {
                    assert!(!stale[usize::from(number)], "seed {seed}: disk {number}");
                }
                for number in 0..3 {
                    stale[usize::from(number)] |= !membership.is_online(DiskNumber(number));
                }
                let victim = u16::try_from(random.below(3)).unwrap();
                if random.below(4) == 0
                    && membership.is_online(DiskNumber(victim))
                    && membership
                        .take_offline(&[DiskNumber(victim)], "test")
                        .is_ok()
                {
                    stale[usize::from(victim)] = true;
                }
            }
            disks.crash();
            disks.restart();
            for slot in 0..3 {
                if disks.is_vanished(DiskSlot(slot)) {
                    disks.bring_back(DiskSlot(slot));
                }
            }
        }
    }
    assert!(openings_count > 300, "{openings_count} of 1800");
}

#[test]
fn a_crash_while_a_group_is_made_leaves_nothing_or_the_group() {
    for seed in 0..4 {
        for request in 1.. {
            let disks = Arc::new(SimulatedDisks::new(seed, &[super::DISK_BYTES; 2]));
            disks.power_fails_after(request);
            let made = super::create(&disks, &new_group("ab", Redundancy::Normal));
            disks.crash();
            disks.restart();
            let shared: Arc<dyn Disks> = disks.clone();
            let slots = present(&disks);
            let opened = Membership::open(shared, &slots, &name("DATA"), &opener(), &|_| false);
            if let Ok(membership) = &opened {
                assert_eq!(online(membership), [0, 1]);
            }
            super::create(&disks, &new_group("ab", Redundancy::Normal)).unwrap();
            open(&disks).unwrap();
            if made.is_ok() {
                opened.unwrap();
                break;
            }
        }
    }
}
