//! What ends a daemon: a signal, a request, or its last mount's end.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::api::error::{ControlError, ControlResult};

/// Signals that mean "stop cleanly".
pub(super) struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    /// Catches them from now on.
    pub(super) fn catch() -> ControlResult<Self> {
        let fail = |error| ControlError::io("catch signals in", "the server", &error);
        Ok(Self {
            terminate: signal(SignalKind::terminate()).map_err(fail)?,
            interrupt: signal(SignalKind::interrupt()).map_err(fail)?,
        })
    }

    /// Waits for one of them, and says which, or for `stopped`.
    pub(super) async fn wait(mut self, mut stopped: watch::Receiver<bool>) -> Option<&'static str> {
        tokio::select! {
            _ = self.terminate.recv() => Some("told to stop by SIGTERM"),
            _ = self.interrupt.recv() => Some("told to stop by SIGINT"),
            // The sender lives as long as the daemon, so that an error cannot come before.
            _ = stopped.wait_for(|stop| *stop) => None,
        }
    }
}
