//! The one binary `spindle`: arguments in, tables out. What the commands do is in
//! `spindle_control`; here it is asked for and printed.

mod arguments;
mod command;
mod line;
mod moment;
mod page;
mod progress;
mod screen;
mod table;
mod terminal;

use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches};
use spindle_control::{ControlError, ControlErrorKind};

use crate::arguments::Arguments;

fn main() -> ExitCode {
    let matches = Arguments::command().get_matches();
    let arguments = match Arguments::from_arg_matches(&matches) {
        Ok(arguments) => arguments,
        Err(error) => error.format(&mut Arguments::command()).exit(),
    };
    start_log(&arguments);
    spindle_control::raise_descriptor_limit();
    match command::run(&arguments) {
        Ok(code) => ExitCode::from(code),
        Err(error) => ExitCode::from(tell(&error, wants_json(&matches))),
    }
}

/// Whether the command was asked to answer in JSON.
fn wants_json(matches: &ArgMatches) -> bool {
    let own = matches.try_get_one::<bool>("json").ok().flatten();
    own == Some(&true)
        || matches
            .subcommand()
            .is_some_and(|(_, inner)| wants_json(inner))
}

/// One line, and the exit code of the error's class. The line is for a person, the whole chain of
/// what the failure came of on it; or a structure, where one was asked for.
fn tell(error: &anyhow::Error, as_json: bool) -> u8 {
    if let Some(error) = error.downcast_ref::<ControlError>() {
        return say(error, as_json);
    }
    let broken_pipe = error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe);
    if broken_pipe {
        // Whoever read the listing has seen enough.
        return 0;
    }
    let failed = ControlError::new(ControlErrorKind::Io, format!("{error:#}"));
    say(&failed, as_json)
}

fn say(error: &ControlError, as_json: bool) -> u8 {
    match serde_json::to_string(error) {
        Ok(json) if as_json => eprintln!("{json}"),
        _ => eprintln!("spindle: {error:#}"),
    }
    error.class.exit_code()
}

/// Processes that serve log what they do; commands only what a person must know.
fn start_log(arguments: &Arguments) {
    let usual = if arguments.serves() { "info" } else { "warn" };
    let filter = tracing_subscriber::EnvFilter::try_from_env("SPINDLE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(usual));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // A line that cannot be written is lost. To complain of it at the same place, which is what
        // the library does otherwise, panics: a full file system under the log would end the daemon
        // and its keeper.
        .log_internal_errors(false)
        // No colours: they are a feature of the library that is not built in, and a terminal that
        // asks for one gets a line of complaint before each answer.
        .with_ansi(false)
        .with_target(false)
        .init();
}
