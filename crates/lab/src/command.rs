//! What a person can ask for: one file a command.
//!
//! Every start first undoes what an earlier one left that was killed, so that no command has to be
//! remembered for it. Exit codes: 0 done, 1 done but with failed runs, 2 not done.

mod compare;
mod doctor;
mod gallery;
mod guest;
mod init;
mod progress;
mod quick;
mod recorder;
mod report;
mod run;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use spindle_testbed::interrupt;

use crate::complain;
use crate::measure::journal;

/// Which storage is faster for my database, and why.
#[derive(Debug, Parser)]
#[command(name = "spindle-lab", version, about, max_term_width = 100)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Ask seven questions (or take the answers from flags) and write the file of an experiment
    Init(init::InitArguments),
    /// Run the experiment of a file; started again, it goes on where it was stopped
    Run(run::RunArguments),
    /// Write report.html, summary.json and samples.csv of a folder, and print the table
    Report(report::ReportArguments),
    /// Set two folders side by side, or say why they cannot be compared
    Compare {
        /// The first folder
        first: PathBuf,
        /// The second folder
        second: PathBuf,
    },
    /// What this machine can run, and what not and why
    Doctor,
    /// The two-minute answer on loop devices, with nothing to decide
    Quick(quick::QuickArguments),
    /// Run every experiment file of a folder and put its report and its figures beside it
    Gallery(gallery::GalleryArguments),
    /// The first process of a guest; for the lab itself
    #[command(hide = true)]
    GuestInit(guest::GuestArguments),
    /// The first process of a guest that is only to be seen; for the lab itself
    #[command(hide = true)]
    GuestGreet(guest::GreetArguments),
    /// Disks that are recorded; for the lab itself
    #[command(hide = true)]
    Recorder(recorder::RecorderArguments),
    /// The experiment in a guest; for the lab itself
    #[command(hide = true)]
    GuestWork(guest::GuestArguments),
}

impl Command {
    /// Whether it has something to remove at its end. One that has nothing ends where it is, as any
    /// program does: at a question, too.
    fn makes_something(&self) -> bool {
        !matches!(self, Self::Init(_) | Self::Report(_) | Self::Compare { .. })
    }
}

/// Does what was asked for.
///
/// # Errors
/// A line for a person.
pub fn run(arguments: Arguments) -> Result<ExitCode> {
    // A first process has nothing behind it, and nobody who would interrupt it.
    match &arguments.command {
        Command::GuestInit(arguments) => return Ok(guest::first_process(arguments)),
        Command::GuestGreet(arguments) => return Ok(guest::greet(arguments)),
        Command::Recorder(arguments) => return recorder::serve(arguments),
        _ => {}
    }
    if arguments.command.makes_something() {
        interrupt::listen()?;
    }
    clear_left_behind()?;
    match arguments.command {
        Command::Init(arguments) => init::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Compare { first, second } => compare::run(&first, &second),
        Command::Doctor => doctor::run(),
        Command::Quick(arguments) => quick::run(&arguments),
        Command::Gallery(arguments) => gallery::run(&arguments),
        Command::GuestInit(arguments) => Ok(guest::first_process(&arguments)),
        Command::GuestGreet(arguments) => Ok(guest::greet(&arguments)),
        Command::Recorder(arguments) => recorder::serve(&arguments),
        Command::GuestWork(arguments) => guest::work(&arguments),
    }
}

fn clear_left_behind() -> Result<()> {
    let cleared = journal::clear_left_behind(&journal::directory())?;
    for line in cleared.undone {
        complain!("removed what a killed run left: {line}");
    }
    for line in cleared.left {
        complain!("a killed run left this, and it stays: {line}");
    }
    Ok(())
}
