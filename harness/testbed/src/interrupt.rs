//! Ctrl-C, and the other polite ways to be asked to stop.
//!
//! A signal only sets a flag; every wait of this crate looks at it and returns an error, so that
//! the drops run and clean up. Children are started in process groups of their own, so that a
//! terminal's Ctrl-C reaches them through us, in order.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

static ASKED_TO_STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

thread_local! {
    /// Whether this thread cleans up, and so must come to its end although we were asked to stop.
    static CLEANS_UP: Cell<bool> = const { Cell::new(false) };
}

/// Begins to listen. A second Ctrl-C ends the process at once.
///
/// # Errors
/// Where the signals cannot be caught.
pub fn listen() -> Result<()> {
    let flag = ASKED_TO_STOP.get_or_init(|| Arc::new(AtomicBool::new(false)));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // Registered first, so that it sees the flag as the first signal left it.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(flag))?;
        signal_hook::flag::register(signal, Arc::clone(flag))?;
    }
    Ok(())
}

/// Whether we were asked to stop.
#[must_use]
pub fn is_asked() -> bool {
    ASKED_TO_STOP
        .get()
        .is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// An error once we were asked to stop.
///
/// # Errors
/// Then.
pub fn check() -> Result<()> {
    if is_asked() && !CLEANS_UP.get() {
        bail!("stopped on request");
    }
    Ok(())
}

/// Runs what undoes things: inside of it nobody is asked to stop.
pub fn clean_up<T>(undo: impl FnOnce() -> T) -> T {
    let before = CLEANS_UP.replace(true);
    let result = undo();
    CLEANS_UP.set(before);
    result
}

/// Waits, unless we are asked to stop.
///
/// # Errors
/// Where we were.
pub fn sleep(duration: Duration) -> Result<()> {
    let until = Instant::now() + duration;
    loop {
        check()?;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(20)));
    }
}

/// Asks again and again until there is an answer.
///
/// # Errors
/// Where `ask` fails, where we are asked to stop, or after `limit` with `what` in the message.
pub fn wait_for<T>(
    what: &str,
    limit: Duration,
    mut ask: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let began = Instant::now();
    loop {
        check()?;
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if began.elapsed() > limit {
            bail!("waited {} s for {what}, in vain", limit.as_secs());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
