//! Everything that touches the machine: devices, contenders, databases, load and counters.
//!
//! What is made is recorded first and undone in the reverse order ([`journal`]): after success,
//! after a failure, after Ctrl-C, and by the next start after a SIGKILL. A run ends as a record of
//! [`crate::record`], measured or failed, and what went wrong in one run never ends the experiment.

pub mod agreement;
pub mod companion;
pub mod contender;
pub mod control_group;
pub mod counters;
pub mod cuts;
pub mod database;
pub mod device;
pub mod durability;
pub mod environment;
pub mod execution;
pub mod guest;
pub mod journal;
pub mod load;
pub mod patience;
pub mod peak;
pub mod place;
pub mod plan;
pub mod preparation;
pub mod process;
pub mod program;
pub mod recorder;
pub mod run;
mod sameness;
pub mod sampler;
pub mod stacking;
pub mod throttle;
pub mod workload;
