//! Floor 1 of 5, below `machine`: what a process that serves a group is asked, in which words, and
//! what it answers.
//!
//! Requests, reports, errors, and the client that carries them. Nothing here knows a disk, a group
//! that is open, or who serves it, so both ends of a conversation stand on it.

pub(crate) mod call;
pub(crate) mod calls;
pub(crate) mod channel_body;
pub(crate) mod clearing;
pub(crate) mod client;
pub(crate) mod conversion;
pub(crate) mod disk_request;
pub(crate) mod door;
pub(crate) mod ending;
pub(crate) mod error;
pub(crate) mod estimate;
pub(crate) mod event_filter;
pub(crate) mod files;
pub(crate) mod forecast;
pub(crate) mod group_settings;
pub(crate) mod health;
pub(crate) mod health_report;
pub(crate) mod location;
pub(crate) mod nearness;
pub(crate) mod operations;
pub(crate) mod query;
pub(crate) mod scrub;
pub(crate) mod scrub_log;
pub(crate) mod status;
pub(crate) mod top;
pub(crate) mod trust;
pub(crate) mod version;
pub mod view;
pub(crate) mod volume;
