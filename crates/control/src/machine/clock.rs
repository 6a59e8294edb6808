//! The time of day.

use spindle_fs::Time;

/// The time of day, of the clock by which the kernel stamps what it changes itself.
#[must_use]
pub(crate) fn now() -> Time {
    let now = nix::time::ClockId::CLOCK_REALTIME_COARSE.now();
    let now = now.expect("every Linux has this clock");
    Time {
        seconds: now.tv_sec(),
        nanoseconds: u32::try_from(now.tv_nsec()).unwrap_or(0),
    }
}

/// The time of day in milliseconds since 1970.
#[must_use]
pub(crate) fn now_ms() -> u64 {
    let now = now();
    u64::try_from(now.seconds).unwrap_or(0) * 1000 + u64::from(now.nanoseconds) / 1_000_000
}
