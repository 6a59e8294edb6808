//! `spindle-lab`: arguments in, an exit code out.

use std::process::ExitCode;

use clap::Parser as _;
use spindle_lab::command::{self, Arguments};

fn main() -> ExitCode {
    match command::run(Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("spindle-lab: {error:#}");
            ExitCode::from(2)
        }
    }
}
