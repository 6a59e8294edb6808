//! Signals that end a command which has changed its terminal, so that it can put that right first.

use tokio::signal::unix::{SignalKind, signal};

use crate::api::error::{ControlError, ControlResult};

/// Has `act` done, on a thread of its own, when SIGTERM, SIGHUP or SIGINT comes; none of them ends
/// this process by itself from then on.
///
/// # Errors
/// Where the signals cannot be caught or there can be no further thread.
pub fn on_termination(act: impl FnOnce() + Send + 'static) -> ControlResult<()> {
    let fail = |error| ControlError::io("catch", "signals", &error);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(fail)?;
    let caught = {
        let _context = runtime.enter();
        [
            SignalKind::terminate(),
            SignalKind::hangup(),
            SignalKind::interrupt(),
        ]
        .map(signal)
    };
    let [terminate, hangup, interrupt] = caught;
    let (mut terminate, mut hangup, mut interrupt) = (
        terminate.map_err(fail)?,
        hangup.map_err(fail)?,
        interrupt.map_err(fail)?,
    );
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = hangup.recv() => {}
                    _ = interrupt.recv() => {}
                }
            });
            act();
        })
        .map(|_| ())
        .map_err(fail)
}
