//! Threads of the daemon whose end is heard without waiting for the kernel.
//!
//! A thread that had a request under way to a disk that hangs ends only when the kernel has done
//! with it, and whoever joins it waits as long. What it had to do is done before.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::api::error::{ControlError, ControlErrorKind, ControlResult};

/// A thread that was started.
#[derive(Debug)]
pub(super) struct Worker {
    ended: Receiver<bool>,
}

/// Says that the thread ends, and whether by a panic.
struct Ending(SyncSender<bool>);

impl Drop for Ending {
    fn drop(&mut self) {
        // Nobody may be waiting any more.
        let _ = self.0.send(std::thread::panicking());
    }
}

/// Starts a thread.
pub(super) fn start(name: &str, work: impl FnOnce() + Send + 'static) -> ControlResult<Worker> {
    let (sender, ended) = sync_channel(1);
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            let _ending = Ending(sender);
            work();
        })
        .map_err(|error| ControlError::io("start", format!("the thread {name}"), &error))?;
    Ok(Worker { ended })
}

/// Does `work` on a thread of its own and waits for what comes of it.
pub(super) fn run<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> ControlResult<T> + Send + 'static,
) -> ControlResult<T> {
    let (sender, done) = sync_channel(1);
    start(name, move || {
        // Whoever asked waits below.
        let _ = sender.send(work());
    })?;
    done.recv().unwrap_or_else(|_| {
        Err(ControlError::new(
            ControlErrorKind::Bug,
            format!("the thread {name} ended by a panic; see the log"),
        ))
    })
}

impl Worker {
    /// Waits until its work has ended; whether it ended by a panic.
    pub(super) fn wait(self) -> bool {
        self.ended.recv().unwrap_or(true)
    }
}

#[cfg(test)]
mod tests {
    use super::{run, start};
    use crate::api::error::ControlErrorKind;

    #[test]
    fn the_end_of_a_thread_is_heard_and_a_panic_told_from_it() {
        assert!(!start("works", || {}).unwrap().wait());
        assert!(
            start("panics", || panic!("as the test wants"))
                .unwrap()
                .wait()
        );
    }

    #[test]
    fn what_comes_of_work_on_a_thread_of_its_own_is_handed_on_and_a_panic_is_a_bug() {
        assert_eq!(run("works", || Ok(7)).unwrap(), 7);
        let failed = run::<()>("panics", || panic!("as the test wants"));
        assert_eq!(failed.unwrap_err().kind, ControlErrorKind::Bug);
    }
}
