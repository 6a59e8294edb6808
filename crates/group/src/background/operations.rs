//! What `spindle operations` shows: ASM's columns, one line for each pass.

use serde::Serialize;

use crate::background::power::Power;

/// A pass of background work, in the order in which they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pass {
    /// What a returned disk missed is copied to it.
    Resync,
    /// Copies that files should not have any more are given back.
    Convert,
    /// Missing copies are made: after a loss, or because files should have more.
    Restore,
    /// Leaving disks are emptied, and every disk comes to its share.
    Rebalance,
    /// Every copy is read and compared; it has a power of its own.
    Scrub,
}

/// How far a pass is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationState {
    /// An earlier pass runs.
    Wait,
    /// It runs.
    Run,
    /// Its power is 0.
    Paused,
    /// It is at its end.
    Done,
    /// It cannot go on; `error` says why.
    Errors,
}

/// One line of the listing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OperationView {
    /// Which pass.
    pub pass: Pass,
    /// How far.
    pub state: OperationState,
    /// The power it runs at.
    pub power: Power,
    /// Bytes done.
    pub done_bytes: u64,
    /// Bytes that are left, as far as is known.
    pub left_bytes: u64,
    /// Bytes a second, over what was done since it began or its power changed.
    pub rate_bytes_per_s: u64,
    /// Seconds until its end at that rate; `None` while nothing was done.
    pub left_s: Option<u64>,
    /// Why it cannot go on.
    pub error: Option<String>,
}

/// Measures a rate from the beginning of a run at one power.
#[derive(Debug, Clone, Copy, Default)]
pub struct Meter {
    pub done_bytes: u64,
    pub planned_bytes: u64,
    since_ms: Option<u64>,
    since_bytes: u64,
    now_ms: u64,
}

impl Meter {
    /// Something was done.
    pub const fn add(&mut self, bytes: u64, now_ms: u64) {
        self.touch(now_ms);
        self.done_bytes += bytes;
    }

    /// The clock goes on.
    pub const fn touch(&mut self, now_ms: u64) {
        if self.since_ms.is_none() {
            self.since_ms = Some(now_ms);
        }
        if now_ms > self.now_ms {
            self.now_ms = now_ms;
        }
    }

    /// So much is done of so much; the rate counts from the first call on.
    pub const fn follow(&mut self, done_bytes: u64, planned_bytes: u64, now_ms: u64) {
        if self.since_ms.is_none() {
            self.since_bytes = done_bytes;
        }
        self.touch(now_ms);
        self.done_bytes = done_bytes;
        self.planned_bytes = planned_bytes;
    }

    /// The pace changes: what was measured so far tells nothing of what comes.
    pub const fn restart(&mut self) {
        self.since_ms = None;
        self.since_bytes = self.done_bytes;
    }

    /// Bytes that are left.
    pub const fn left_bytes(&self) -> u64 {
        self.planned_bytes.saturating_sub(self.done_bytes)
    }

    /// Bytes a second.
    pub fn rate_bytes_per_s(&self) -> u64 {
        let Some(since_ms) = self.since_ms else {
            return 0;
        };
        let took_ms = self.now_ms.saturating_sub(since_ms);
        let bytes = u128::from(self.done_bytes - self.since_bytes);
        u64::try_from(bytes * 1000 / u128::from(took_ms.max(1))).unwrap_or(u64::MAX)
    }

    /// Seconds until the end.
    pub fn left_s(&self) -> Option<u64> {
        let rate = self.rate_bytes_per_s();
        (rate > 0).then(|| self.left_bytes().div_ceil(rate))
    }
}

#[cfg(test)]
mod tests {
    use super::Meter;

    #[test]
    fn the_time_left_is_right_after_the_first_tenth() {
        let mut meter = Meter {
            planned_bytes: 1000 << 20,
            ..Meter::default()
        };
        // 2 MiB every 10 ms, with a hitch now and then.
        let mut now_ms = 0;
        for piece in 0..500_u64 {
            meter.touch(now_ms);
            now_ms += if piece % 17 == 0 { 18 } else { 10 };
            meter.add(2 << 20, now_ms);
            if piece >= 50 {
                let left_s = (500 - piece - 1) as f64 * 10.47 / 1000.0;
                let told_s = meter.left_bytes() as f64 / meter.rate_bytes_per_s() as f64;
                assert!(
                    (told_s - left_s).abs() <= left_s * 0.2 + 0.1,
                    "{told_s} s told where {left_s} s are left"
                );
            }
        }
        assert_eq!(meter.left_s(), Some(0));
    }

    #[test]
    fn a_new_power_is_measured_anew() {
        let mut meter = Meter {
            planned_bytes: 1 << 30,
            ..Meter::default()
        };
        meter.touch(0);
        meter.add(1 << 20, 10_000);
        meter.restart();
        meter.touch(10_000);
        meter.add(100 << 20, 11_000);
        assert_eq!(meter.rate_bytes_per_s(), 100 << 20);
    }
}
