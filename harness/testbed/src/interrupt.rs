//! Ctrl-C, and the other polite ways to be asked to stop.
//!
//! A signal only sets a flag; every wait of this crate looks at it and returns an error, so that
//! the drops run and clean up. Children are started in process groups of their own, so that a
//! terminal's Ctrl-C reaches them through us, in order.
//!
//! One wish to stop may arrive as several signals: `timeout` sends its own to the process and to its
//! group, a terminal that is closed sends SIGHUP behind the shell's, a service manager SIGHUP behind
//! SIGTERM. What comes within a second of the first is the same wish. A later signal is another
//! one: it ends the process at once.

use std::cell::Cell;
use std::fs;
use std::io::Write as _;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

static ASKED_TO_STOP: AtomicBool = AtomicBool::new(false);

/// What follows the first signal within this time belongs to it.
const SAME_WISH_WITHIN: Duration = Duration::from_secs(1);

/// The exit code of a process that was ended at once.
const ENDED_AT_ONCE: i32 = 130;

thread_local! {
    /// Whether this thread cleans up, and so must come to its end although we were asked to stop.
    static CLEANS_UP: Cell<bool> = const { Cell::new(false) };
}

/// What a signal means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Stop,
    SameAgain,
    EndAtOnce,
}

/// The signals that came so far.
#[derive(Debug, Default)]
struct Heard {
    first: Option<Instant>,
}

impl Heard {
    fn signal(&mut self, now: Instant) -> Wish {
        match self.first {
            None => {
                self.first = Some(now);
                Wish::Stop
            }
            Some(first) if now.saturating_duration_since(first) < SAME_WISH_WITHIN => {
                Wish::SameAgain
            }
            Some(_) => Wish::EndAtOnce,
        }
    }
}

/// Begins to listen. A second Ctrl-C, more than a second after the first, ends the process at once.
///
/// # Errors
/// Where the signals cannot be caught.
pub fn listen() -> Result<()> {
    static LISTENS: Once = Once::new();
    let mut result = Ok(());
    LISTENS.call_once(|| result = begin_to_listen());
    result
}

fn begin_to_listen() -> Result<()> {
    // Who was started by `nohup` is to outlive its terminal.
    let caught = [SIGINT, SIGTERM, SIGHUP]
        .into_iter()
        .filter(|signal| *signal != SIGHUP || !is_ignored(SIGHUP));
    let mut signals = Signals::new(caught).context("signals cannot be caught")?;
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            let mut heard = Heard::default();
            for _ in signals.forever() {
                match heard.signal(Instant::now()) {
                    Wish::Stop => {
                        ask();
                        // The terminal that would show this may be what went.
                        let _ = writeln!(
                            std::io::stderr(),
                            "stopping: what was made is being removed (once more ends at once)"
                        );
                    }
                    Wish::SameAgain => {}
                    Wish::EndAtOnce => signal_hook::low_level::exit(ENDED_AT_ONCE),
                }
            }
        })
        .context("signals need a thread")?;
    Ok(())
}

/// Whether this process was started with a signal ignored.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

/// Asks to stop, as a signal does.
pub fn ask() {
    ASKED_TO_STOP.store(true, Ordering::Relaxed);
}

/// Whether we were asked to stop.
#[must_use]
pub fn is_asked() -> bool {
    ASKED_TO_STOP.load(Ordering::Relaxed)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_within_a_second_of_the_first_are_one_wish_and_a_later_one_is_another() {
        let mut heard = Heard::default();
        let began = Instant::now();
        let after = |ms| began + Duration::from_millis(ms);
        assert_eq!(heard.signal(after(0)), Wish::Stop);
        assert_eq!(heard.signal(after(0)), Wish::SameAgain);
        assert_eq!(heard.signal(after(999)), Wish::SameAgain);
        assert_eq!(heard.signal(after(1000)), Wish::EndAtOnce);
    }
}
