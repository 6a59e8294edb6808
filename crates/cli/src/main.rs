//! The one binary `spindle`: arguments in, tables out. What the commands do is in
//! `spindle_control`; here it is asked for and printed.

mod arguments;
mod command;
mod line;
mod moment;
mod page;
mod progress;
mod table;

use std::process::ExitCode;

use clap::Parser;
use spindle_control::ControlError;

use crate::arguments::Arguments;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    start_log(&arguments);
    spindle_control::raise_descriptor_limit();
    match command::run(&arguments) {
        Ok(code) => ExitCode::from(code),
        Err(error) => ExitCode::from(tell(&error)),
    }
}

/// One line for a person, and the exit code of the error's class.
fn tell(error: &anyhow::Error) -> u8 {
    if let Some(error) = error.downcast_ref::<ControlError>() {
        eprintln!("spindle: {error}");
        return error.class.exit_code();
    }
    let broken_pipe = error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe);
    if broken_pipe {
        // Whoever read the listing has seen enough.
        return 0;
    }
    eprintln!("spindle: {error:#}");
    spindle_base::ErrorClass::Environment.exit_code()
}

/// Processes that serve log what they do; commands only what a person must know.
fn start_log(arguments: &Arguments) {
    let usual = if arguments.serves() { "info" } else { "warn" };
    let filter = tracing_subscriber::EnvFilter::try_from_env("SPINDLE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(usual));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // No colours: they are a feature of the library that is not built in, and a terminal that
        // asks for one gets a line of complaint before each answer.
        .with_ansi(false)
        .with_target(false)
        .init();
}
