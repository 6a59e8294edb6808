//! What the lab asks of itself within a guest; nobody types these.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};

use crate::complain;
use crate::measure::guest::inside;

/// What an experiment in a guest takes.
#[derive(Debug, clap::Args)]
pub struct GuestArguments {
    /// The order that the host wrote
    order: PathBuf,
}

/// What a guest that is only to be seen takes.
#[derive(Debug, clap::Args)]
pub struct GreetArguments {
    /// Where the modules of its kernel are
    modules: PathBuf,
}

/// Becomes the first process; it switches the machine off at its end.
pub(super) fn first_process(arguments: &GuestArguments) -> ExitCode {
    as_the_first(|| inside::first_process(&arguments.order))
}

/// Becomes the first process of a guest that is only to be seen.
pub(super) fn greet(arguments: &GreetArguments) -> ExitCode {
    as_the_first(|| inside::greet(&arguments.modules))
}

fn as_the_first(act: impl FnOnce() -> ExitCode) -> ExitCode {
    // On a host nobody must be switched off by a word that was mistyped.
    if std::process::id() != 1 {
        complain!("this is for the first process of a guest");
        return ExitCode::from(2);
    }
    act()
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
