//! The simulator: a whole group and its file system on simulated disks, against a model.
//!
//! From one seed follow the disks, the operations, the faults (as many as the redundancy
//! bears), the power cuts and what they leave. After each operation the answer is compared; after
//! each power cut the whole file system is. In two of three runs disks join, leave, are replaced,
//! resized, taken offline, become slow and come back meanwhile, units of background work are done between the
//! operations, and copies are scrubbed. What must hold:
//! - names and attributes are those after some prefix of the operations, no shorter than what
//!   was acknowledged as synced;
//! - a size is one that the file had, no older than its last sync or truncation;
//! - each 512-byte sector has what that prefix gave it or what a later write put over it, never
//!   anything else; all data say which file, place and write they are of;
//! - `Group::check` finds nothing;
//! - when all disks are back and the background work is done, every copy is there and the same,
//!   each disk has its share, and no more was moved than had to be.
//!
//! Nothing here is shipped. A seed and a commit reproduce a run; a failed run is repeated with
//! fewer operations until none can be left out.

mod broken_disks;
mod content;
mod disk_operation;
mod execute;
mod fault;
mod model;
mod operation;
mod outcome;
mod plan;
mod recovery;
mod rest;
mod run;
mod shelf;
mod shrink;

pub use broken_disks::{Breakage, BrokenDisks};
pub use outcome::{Coverage, Violation};
pub use plan::Plan;
pub use run::simulate;
pub use shrink::shrink;
