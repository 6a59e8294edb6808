//! The simulator must be able to fail: disks that break the contract are noticed soon.

use spindle_sim::{Breakage, Plan, simulate};

/// The first seed up to `last` at which the simulator notices the breakage.
fn first_noticed(breakage: Breakage, last: u64) -> Option<u64> {
    let noticed = (1..=last).find(|seed| simulate(&Plan::new(*seed), Some(breakage)).is_err());
    println!("{breakage:?}: seed {noticed:?}");
    noticed
}

#[test]
fn disks_that_ignore_flushes_are_noticed_within_40_seeds() {
    assert!(first_noticed(Breakage::FlushIsIgnored, 40).is_some());
}

#[test]
fn disks_that_lose_every_20th_write_are_noticed_within_40_seeds() {
    assert!(first_noticed(Breakage::WritesAreLost(20), 40).is_some());
}

#[test]
fn disks_that_misplace_every_20th_write_are_noticed_within_40_seeds() {
    assert!(first_noticed(Breakage::WritesAreMisplaced(20), 40).is_some());
}

#[test]
fn disks_whose_durable_writes_are_not_are_noticed_within_200_seeds() {
    assert!(first_noticed(Breakage::DurableWriteIsNot, 200).is_some());
}

#[test]
fn true_disks_pass_the_seeds_at_which_broken_ones_were_noticed() {
    for seed in 1..=40 {
        if let Err(violation) = simulate(&Plan::new(seed), None) {
            panic!("{violation}");
        }
    }
}
