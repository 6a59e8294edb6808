//! How long a daemon has shown no sign of life, as far as its keeper can know.
//!
//! The keeper may be stopped itself, or get no processor for minutes. What the daemon said meanwhile
//! waits in the socket or was left out, and the clock went on: only time in which the keeper looked
//! counts.

use std::time::{Duration, Instant};

use super::LOOK_INTERVAL;

/// Counted from one look to the next.
#[derive(Debug)]
pub(super) struct Silence {
    counted: Duration,
    looked_at: Instant,
}

impl Silence {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            counted: Duration::ZERO,
            looked_at: now,
        }
    }

    /// There was a sign of life.
    pub(super) const fn end(&mut self) {
        self.counted = Duration::ZERO;
    }

    /// How long there has been none. To be asked every [`LOOK_INTERVAL`].
    pub(super) fn look(&mut self, now: Instant) -> Duration {
        let since = now.saturating_duration_since(self.looked_at);
        self.looked_at = now;
        self.counted += since.min(LOOK_INTERVAL);
        self.counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_daemon_is_silent_for_as_long_as_its_keeper_looked_and_heard_nothing() {
        let mut now = Instant::now();
        let mut silence = Silence::new(now);
        let mut looked = |silence: &mut Silence| {
            now += SECOND;
            silence.look(now)
        };
        assert_eq!(looked(&mut silence), SECOND);
        assert_eq!(looked(&mut silence), 2 * SECOND);
        silence.end();
        assert_eq!(looked(&mut silence), SECOND);
    }

    #[test]
    fn a_keeper_that_slept_takes_its_daemon_for_no_more_silent_than_before() {
        let begun = Instant::now();
        let mut silence = Silence::new(begun);
        silence.look(begun + SECOND);
        // The timer makes up for every look that was missed.
        let woken = begun + 300 * SECOND;
        for _ in 0..300 {
            assert_eq!(silence.look(woken), 2 * SECOND);
        }
        assert_eq!(silence.look(woken + SECOND), 3 * SECOND);
    }
}
