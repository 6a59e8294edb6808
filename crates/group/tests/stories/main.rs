//! Stories of a whole group over simulated disks, one a file, by the public interface only.

#![allow(
    clippy::unwrap_used,
    reason = "a test may stop at what it did not expect"
)]

mod basics;
mod blinks;
mod changes;
mod clients;
mod conversion;
mod crash;
mod cut_off;
mod estimate;
mod events;
mod failed_beside_hanging;
mod faults;
mod hanging;
mod leaving;
mod one_copy;
mod opening;
mod outage;
mod owed_together;
mod rebalance;
mod scene;
mod scrub;
mod scrub_left_out;
mod scrub_structures;
mod set_back;
mod syncs;
mod takeover_flushes;
mod takeovers;
mod threads;
mod waiting_disks;
