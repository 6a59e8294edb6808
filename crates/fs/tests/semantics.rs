//! The file system over a real group on simulated disks, through its public interface only.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::too_many_lines,
    reason = "a test tells by a panic what went wrong"
)]

#[path = "semantics/behind/mod.rs"]
mod behind;
#[path = "semantics/checking.rs"]
mod checking;
#[path = "semantics/contents.rs"]
mod contents;
#[path = "semantics/cutting.rs"]
mod cutting;
#[path = "semantics/extended.rs"]
mod extended;
#[path = "semantics/fixture.rs"]
mod fixture;
#[path = "semantics/full_catalog.rs"]
mod full_catalog;
#[path = "semantics/golden.rs"]
mod golden;
#[path = "semantics/lifetime.rs"]
mod lifetime;
#[path = "semantics/model.rs"]
mod model;
#[path = "semantics/names.rs"]
mod names;
#[path = "semantics/operations.rs"]
mod operations;
#[path = "semantics/redundancy.rs"]
mod redundancy;
#[path = "semantics/renaming.rs"]
mod renaming;
#[path = "semantics/requests.rs"]
mod requests;
#[path = "semantics/templates.rs"]
mod templates;
#[path = "semantics/threads.rs"]
mod threads;
#[path = "semantics/verifying.rs"]
mod verifying;
