//! Floor 4 of 5, above `opened` and below `command`: the processes that serve a group.
//!
//! The daemon with its mounts, its exports, its socket, its threads and its metrics, and the keeper that holds a
//! mount beyond the daemon's death. What a command does with them stands above.

pub(crate) mod daemon;
mod exports;
pub(crate) mod formats;
mod hook;
pub(crate) mod keeper;
pub(crate) mod last_word;
mod metrics;
pub(crate) mod mount;
pub(crate) mod notices;
pub(crate) mod openapi;
pub(crate) mod route;
pub(crate) mod served;
mod service_manager;
mod space_history;
mod write_limit;
