//! `spindle-lab`: arguments in, an exit code out.

use std::process::ExitCode;

use clap::Parser as _;
use spindle_lab::command::{self, Arguments};
use spindle_lab::{complain, outlet};

/// As of a program that writes into a pipe without a reader: 128 and the number of SIGPIPE.
const READER_IS_GONE: u8 = 141;

fn main() -> ExitCode {
    let ended = command::run(Arguments::parse());
    if outlet::reader_is_gone() {
        return ExitCode::from(READER_IS_GONE);
    }
    match ended {
        Ok(code) => code,
        Err(error) => {
            complain!("{error:#}");
            ExitCode::from(2)
        }
    }
}
