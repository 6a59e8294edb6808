//! The load itself against the flushes: what was acknowledged of it, and what the leaf devices saw.
//!
//! The bound is one that group commit cannot violate. A session has one commit under way and waits
//! for its answer, so that a flush answers at most one commit of each session: so many commits of so
//! many sessions need their quotient of flushes at least, on as many devices as there are copies.
//!
//! All of the load is counted from before its first operation until after its last answer, so that
//! no answer lies outside of what was counted; background writes add flushes and take none away. The
//! warm-up's flushes could hide a measured time without any, so that the measured time is counted by
//! itself, too. Its ends are read while clients work: what may have been answered by a flush before
//! them, or counted after them, is given to the contender.

use crate::quantity::{as_float, whole};
use crate::record::WayCount;

/// As the report knows all of the load.
pub const NAME: &str = "load";
/// And the measured part.
const MEASURED: &str = "load while it was measured";

/// Of the measured time, the part that its counters surely cover, with room for a mix of operations
/// that changes by chance.
const COVERED: f64 = 0.8;
/// Rounds of all writers that may have been under way at both ends.
const ROUNDS_AT_THE_ENDS: f64 = 2.0;

/// What a load did.
#[derive(Debug, Clone, PartialEq)]
pub struct Worked {
    /// Transactions that wrote and were acknowledged, warm-up and drain included; none where the load
    /// does not count them.
    pub commits: Option<u64>,
    /// Sessions, each with one commit under way.
    pub writers: u32,
    /// The share of all acknowledged operations that lies in the measured time; none where arrivals
    /// are served after it.
    pub measured_share: Option<f64>,
    /// Flushes and writes of the leaf devices in the measured time; none where these are not the
    /// lab's.
    pub in_the_measured_time: Option<(f64, f64)>,
}

impl Worked {
    /// The measured part, with what is given to the contender taken off.
    pub(super) fn measured(&self) -> Option<WayCount> {
        let commits = as_float(self.commits?) * self.measured_share? * COVERED;
        let at_the_ends = ROUNDS_AT_THE_ENDS * f64::from(self.writers);
        let (flushes, writes) = self.in_the_measured_time?;
        Some(WayCount {
            way: MEASURED.to_owned(),
            writers: self.writers,
            acknowledged: whole((commits - at_the_ends).max(0.0)).unwrap_or(0),
            flushes,
            writes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::ground::{Cache, Ground};
    use super::super::judgement::{is_flushed, judge};
    use super::*;
    use crate::record::DurabilityClass;

    fn all_of_it(writers: u32, commits: u64, flushes: f64) -> WayCount {
        WayCount {
            way: NAME.to_owned(),
            writers,
            acknowledged: commits,
            flushes,
            writes: 2.0 * as_float(commits),
        }
    }

    #[test]
    fn a_flush_that_serves_every_session_is_honest_and_one_that_serves_more_is_not() {
        assert!(is_flushed(&all_of_it(8, 8000, 1000.0), 1));
        assert!(!is_flushed(&all_of_it(8, 8000, 999.0), 1));
        assert!(!is_flushed(&all_of_it(8, 8000, 1999.0), 2));
        assert!(is_flushed(&all_of_it(1, 967, 967.0), 1));
        assert!(!is_flushed(&all_of_it(1, 967, 2.0), 1));
    }

    #[test]
    fn what_was_honest_while_it_was_probed_and_forgets_under_the_load_is_not_durable() {
        let ground = Ground {
            caches: vec![Cache::Volatile],
            ..Ground::default()
        };
        let probe = WayCount {
            way: "commit".to_owned(),
            ..all_of_it(1, 48, 48.0)
        };
        let honest = [probe.clone(), all_of_it(4, 9000, 4000.0)];
        assert_eq!(judge(&ground, &honest, 1).0, DurabilityClass::Durable);
        let (class, why) = judge(&ground, &[probe.clone(), all_of_it(4, 9000, 2.0)], 1);
        assert_eq!(class, DurabilityClass::NotDurable);
        assert!(
            why.contains("load by 4 writers: 9000 acknowledged, its devices saw 2 flushes"),
            "{why}"
        );
        // A device without a volatile cache gets no flushes, and nobody is accused for that.
        let ground = Ground {
            caches: vec![Cache::None("zram0".to_owned())],
            ..Ground::default()
        };
        let class = judge(&ground, &[probe, all_of_it(4, 9000, 2.0)], 1).0;
        assert_eq!(class, DurabilityClass::CannotBeSeen);
    }

    #[test]
    fn flushes_of_the_warm_up_do_not_hide_a_measured_time_without_any() {
        let worked = Worked {
            commits: Some(10_000),
            writers: 8,
            measured_share: Some(0.5),
            in_the_measured_time: Some((3.0, 20_000.0)),
        };
        // All together there are enough: 5,000 commits of the warm-up flushed each by itself.
        assert!(is_flushed(&all_of_it(8, 10_000, 5003.0), 1));
        let measured = worked.measured().unwrap();
        assert_eq!(measured.acknowledged, 3984);
        assert!(!is_flushed(&measured, 1));
        let honest = Worked {
            in_the_measured_time: Some((5000.0 / 8.0, 20_000.0)),
            ..worked.clone()
        };
        assert!(is_flushed(&honest.measured().unwrap(), 1));
        // Few commits say nothing: all of them may have been under way at the ends.
        let few = Worked {
            commits: Some(20),
            ..worked.clone()
        };
        assert!(is_flushed(&few.measured().unwrap(), 1));
        let open = Worked {
            measured_share: None,
            ..worked
        };
        assert_eq!(open.measured(), None);
    }
}
