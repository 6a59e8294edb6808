//! The heart: allocation, extent maps, mirroring and recovery.
//!
//! Where to begin: the crate `spindle-extent` (where bytes lie, and the plan of requests that
//! follows), then here `io/` (plans executed) and `commit.rs` (what becomes durable when, and the
//! order of locks). `docs/architecture.md` has the whole on a page.

// So that the scene of the stories, which names the crate from outside, serves the units too.
#[cfg(test)]
extern crate self as spindle_group;

mod bad_runs;
mod by_number;
mod commit;
mod dirty;
mod disks;
mod error;
mod event;
mod event_log;
mod file;
mod group;
mod incarnation;
mod io;
mod membership;
mod range_lock;
mod rebalance;
mod region;
mod resync;
#[cfg(test)]
#[path = "../tests/stories/scene.rs"]
#[allow(dead_code, reason = "the stories use what the units here do not")]
mod scene;
mod scrub;
mod view;

pub use commit::Change;
pub use disks::ReadTotals;
pub use error::{GroupError, GroupErrorKind};
pub use event::{Event, EventKind, Severity};
pub use event_log::KeptEvent;
pub use file::{File, Layout};
pub use group::{DiskChanges, Group, NewDisk, NewGroup, Opener, RepairTime};
pub use membership::{
    Clock, DiskLook, GroupFound, LabelFound, MemberView, Membership, Moment, SlotFound, groups,
    look,
};
pub use rebalance::{
    DiskAfter, Estimate, Flow, OperationState, OperationView, Pass, PlannedChange, Power,
    TimeAtPower, Worked, WorkersWanted,
};
#[doc(hidden)]
pub use rebalance::{Planned, PlanningScene};
pub use region::{RegionSpace, ReplicatedRegion};
pub use scrub::{
    Distrust, Finding, FindingKind, Known, LeftOut, LeftOutReason, PageJudge, ScrubScope,
    ScrubState, ScrubStep, ScrubView, ScrubWish,
};
pub use spindle_catalog::{Connection, KeptJournal, RequestUnderWay, Touch, TouchSlot, Wish};
pub use view::{DiskView, ExtentView, GroupFigures, GroupView};
