//! What a person can ask for: one file a command.
//!
//! Every start first undoes what an earlier one left that was killed, so that no command has to be
//! remembered for it. Exit codes: 0 done, 1 done but with failed runs, 2 nothing was done.

mod doctor;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::measure::{interrupt, journal};

/// Which storage is faster for my database, and why.
#[derive(Debug, Parser)]
#[command(name = "spindle-lab", version, about, max_term_width = 100)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// What this machine can run, and what not and why
    Doctor,
}

/// Does what was asked for.
///
/// # Errors
/// A line for a person.
pub fn run(arguments: Arguments) -> Result<ExitCode> {
    interrupt::listen()?;
    clear_left_behind()?;
    match arguments.command {
        Command::Doctor => doctor::run(),
    }
}

fn clear_left_behind() -> Result<()> {
    let cleared = journal::clear_left_behind(&journal::directory())?;
    for line in cleared.undone {
        eprintln!("spindle-lab: removed what a killed run left: {line}");
    }
    for line in cleared.left {
        eprintln!("spindle-lab: a killed run left this, and it stays: {line}");
    }
    Ok(())
}
