//! The heart: who is a member, mirroring, commits, recovery, and what goes on beside the users.
//!
//! Where to begin: the crate `spindle-extent` (where bytes lie, and the plan of requests that
//! follows), then here `core.rs` (what an open group is), `io/` (plans executed) and
//! `core/commit.rs` (what becomes durable when); `levels.rs` has the order of locks. Each folder is a floor
//! that names and calls only what lies below it: `quorum`, `region`, `core`, `io`, `background`,
//! `change`, `front`. `docs/architecture.md` has the whole on a page.

// So that the scene of the stories, which names the crate from outside, serves the units too.
#[cfg(test)]
extern crate self as spindle_group;

mod background;
mod by_number;
mod change;
mod core;
mod error;
mod event;
mod front;
mod incarnation;
mod io;
mod levels;
mod quorum;
mod region;
#[cfg(test)]
#[path = "../tests/stories/scene.rs"]
#[allow(dead_code, reason = "the stories use what the units here do not")]
mod scene;
#[cfg(test)]
#[path = "../tests/stories/waiting_disks.rs"]
mod waiting_disks;

pub use crate::core::clients::key_of as client_key;
#[cfg(feature = "loom")]
pub use crate::core::models;
pub use crate::core::{
    Change, Core, File, KeptEvent, Layout, ReadTotals, ToldBefore, ToldDisk, ToldDisks, Withheld,
};
pub use background::{
    Distrust, Finding, FindingKind, Group, Known, LeftOut, LeftOutReason, OperationState,
    OperationView, PageJudge, Pass, Power, RepairTime, ScrubScope, ScrubState, ScrubStep,
    ScrubView, ScrubWish, Worked, WorkersWanted,
};
#[doc(hidden)]
pub use background::{Planned, PlanningScene};
pub use change::{DiskAfter, DiskChanges, Estimate, Flow, PlannedChange, TimeAtPower};
pub use error::{GroupError, GroupErrorKind, Operation, Subject};
pub use event::{Event, EventKind, EventRecord, Severity};
pub use front::{Attended, DiskView, ExtentView, GroupFigures, GroupView};
pub use quorum::{
    Apart, CLAIM_PAUSE_MS, Clock, DiskLook, GroupFound, LabelFound, MemberView, Membership, Moment,
    NewDisk, NewGroup, Opener, Overwritten, Pulse, SlotFound, Waited, Watch, disk_bytes_min,
    groups, judge_new_group, look, newest_mark,
};
pub use region::{RegionSpace, ReplicatedRegion};
pub use spindle_catalog::{
    BlockSlot, Connection, KeptJournal, LeftBlock, LostBlock, RequestUnderWay, Touch, TouchSlot,
    UnwrittenBlocks, Wish,
};
pub use spindle_lease::map::FileKey as ClientKey;
