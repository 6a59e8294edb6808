//! Where the bytes of a file lie, and where new ones go: arithmetic over memory, no I/O.
//!
//! Where to begin: [`schedule`] (which extent a byte belongs to), [`map`] (where the extents
//! lie), [`plan`] (from both to disk requests), [`space`] (what is free), [`placement`] (which
//! disks get the next extent), [`fair_share`] and [`capacity`] (how much each should hold, and how
//! much fits). Nothing here knows of a catalog, a commit or a daemon, so that whoever reads and
//! writes by the map, in whatever process, plans alike.

pub mod capacity;
pub mod fair_share;
pub mod map;
pub mod placement;
pub mod plan;
pub mod schedule;
pub mod space;
