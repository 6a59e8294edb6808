//! What the lab asks of itself within a guest; nobody types these.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};

use crate::measure::guest::inside;

/// What both take.
#[derive(Debug, clap::Args)]
pub struct GuestArguments {
    /// The order that the host wrote
    order: PathBuf,
}

/// Becomes the first process; it switches the machine off at its end.
pub(super) fn first_process(arguments: &GuestArguments) -> ExitCode {
    // On a host nobody must be switched off by a word that was mistyped.
    if std::process::id() != 1 {
        eprintln!("spindle-lab: this is for the first process of a guest");
        return ExitCode::from(2);
    }
    inside::first_process(&arguments.order)
}

/// Runs the experiment of the order.
pub(super) fn work(arguments: &GuestArguments) -> Result<ExitCode> {
    ensure!(
        inside::is_guest(),
        "this is for a guest; use `run FILE --guest`"
    );
    inside::work(&arguments.order)?;
    Ok(ExitCode::SUCCESS)
}
