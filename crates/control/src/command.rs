//! Floor 5 of 5, above `serving`: what each command does.
//!
//! A command asks the process that serves the group, and where there is none it opens the disks
//! here ([`mod@reach`]). Printing is for `cli`.

pub(crate) mod clearing;
pub(crate) mod closing;
pub(crate) mod console;
pub(crate) mod convert;
pub(crate) mod copy;
pub(crate) mod disk;
pub(crate) mod dump;
pub(crate) mod end;
pub(crate) mod estimate;
pub(crate) mod event;
pub(crate) mod features;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub(crate) mod group;
pub(crate) mod health;
pub(crate) mod iostat;
pub(crate) mod partition;
pub(crate) mod reach;
pub(crate) mod rebalance;
pub(crate) mod scrub;
pub(crate) mod setting;
pub(crate) mod start;
pub(crate) mod status;
pub(crate) mod top;
pub(crate) mod upgrade;
pub(crate) mod volume;
