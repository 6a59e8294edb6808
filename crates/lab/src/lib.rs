//! The lab: which storage is faster for a database, and why, measured fairly on one's own disks.
//!
//! Three parts that know little of each other. [`measure`] makes each contender, drives the load
//! and writes a folder per run; [`analyse`] reads folders and says what may be said; [`render`]
//! draws it. [`record`] is what they hand on: plain values, as they lie in the folders.
//! [`experiment`] is the file that a person writes.
//!
//! The lab sees Spindle as its user does, by the command `spindle`: nothing of the workspace is
//! imported. A crash loses at most the run that was under way: what is complete is in its folder,
//! and what was made on the machine is in a journal that the next start clears away
//! ([`measure::journal`]).

pub mod analyse;

pub mod command;
pub mod experiment;
pub mod measure;
pub mod nearness;
pub mod outlet;
pub mod quantity;
pub mod record;
pub mod render;
