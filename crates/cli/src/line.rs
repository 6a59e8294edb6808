//! Lines on the standard output that may end early: a reader such as `head` has seen enough.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};

/// Prints a line; ends the process where nobody reads any more, as other tools do.
pub fn print(line: Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = writeln!(out, "{line}") {
        if error.kind() == ErrorKind::BrokenPipe {
            std::process::exit(0);
        }
        eprintln!("spindle: cannot print: {error}");
        std::process::exit(i32::from(spindle_base::ErrorClass::Environment.exit_code()));
    }
}

/// As `println!`, for a standard output that may be a pipe.
macro_rules! say {
    ($($piece:tt)*) => { $crate::line::print(format_args!($($piece)*)) };
}

pub(crate) use say;
