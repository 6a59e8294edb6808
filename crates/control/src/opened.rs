//! Floor 3 of 5, above `machine` and below `serving`: a group that this process has open, to serve
//! it, to change it or to look.
//!
//! What can be done with it is done by methods of [`open::Opened`], which are the same whether the
//! process that serves the group calls them or a command that found nobody serving it. Nothing here
//! knows a client, a mount or a thread of the daemon.

mod acknowledging;
pub(crate) mod activity;
mod attaching;
mod claiming;
mod conversion;
pub(crate) mod create;
mod disk_change;
mod disk_return;
pub(crate) mod dump;
mod estimate;
pub(crate) mod files;
pub(crate) mod label;
pub(crate) mod open;
mod refusal;
pub(crate) mod setting;
mod template;
