//! What a person reads: lines on the standard output, complaints on the standard error.
//!
//! Who reads may go: `doctor | head -1` has enough after a line, a terminal is closed. That is a way
//! to end a command like a signal, and never a panic: what was made has to be removed first. A full
//! disk below the standard output is none; the folder of the results tells of its own.

use std::fmt::Arguments;
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use spindle_testbed::interrupt;

static READER_IS_GONE: AtomicBool = AtomicBool::new(false);

/// A line.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => {
        $crate::outlet::put(format_args!("{}\n", format_args!($($words)*)))
    };
}

/// A complaint.
#[macro_export]
macro_rules! complain {
    ($($words:tt)*) => {
        $crate::outlet::put_complaint(format_args!($($words)*))
    };
}

/// Shows a piece of text now.
pub fn put(text: Arguments<'_>) {
    let mut output = io::stdout().lock();
    let shown = output.write_fmt(text).and_then(|()| output.flush());
    if shown.is_err_and(|error| means_gone(&error)) && !READER_IS_GONE.swap(true, Ordering::Relaxed)
    {
        interrupt::ask();
    }
}

/// Shows a complaint; there is nowhere to complain that it cannot be shown.
pub fn put_complaint(text: Arguments<'_>) {
    let _ = writeln!(io::stderr(), "spindle-lab: {text}");
}

/// Whether nobody reads the standard output any more.
#[must_use]
pub fn reader_is_gone() -> bool {
    READER_IS_GONE.load(Ordering::Relaxed)
}

/// A pipe without a reader, or a terminal that was closed.
fn means_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
        || error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}
