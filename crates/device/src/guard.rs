//! What stands between a panic and memory that the kernel or another thread still writes to.

/// Ends the process when a panic unwinds past it: going on would free memory that is in use.
/// Code that gets through forgets it.
pub(crate) struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        eprintln!("spindle: a bug was met while memory was lent to the kernel; giving up");
        std::process::abort();
    }
}
