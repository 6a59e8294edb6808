//! The load itself against the flushes: what was acknowledged of it, and what the leaf devices saw.
//!
//! The bound is one that group commit cannot violate. A session has one commit under way and waits
//! for its answer, so that a flush answers at most one commit of each session: so many commits of so
//! many sessions need their quotient of flushes at least, on as many devices as there are copies.
//!
//! All of the load is counted from before its first operation until after its last answer, so that
//! no answer lies outside of what was counted; background writes add flushes and take none away. The
//! warm-up's flushes could hide a measured time without any, so that the measured time is counted by
//! itself, too. Its commits are counted after the devices at its beginning and before them at its end:
//! what was under way at the beginning may have been flushed before it, and is given to the contender.

use crate::record::WayCount;

/// As the report knows all of the load.
pub const NAME: &str = "load";
/// And the measured part.
const MEASURED: &str = "load while it was measured";

/// Rounds of all writers that are given to the contender: one may have been under way at the beginning.
const ROUNDS_GIVEN: u64 = 2;

/// What a load did.
#[derive(Debug, Clone, PartialEq)]
pub struct Worked {
    /// Transactions that wrote and were acknowledged, warm-up and drain included; none where the load
    /// does not count them.
    pub commits: Option<u64>,
    /// Sessions, each with one commit under way.
    pub writers: u32,
    /// Of the copies, how many were away for some of the time.
    pub copies_away: u32,
    /// The measured time; none where the load does not count, or the devices are not the lab's.
    pub while_measured: Option<WhileMeasured>,
}

/// What happened in the measured time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WhileMeasured {
    /// Transactions that wrote and were acknowledged between the two readings of the devices.
    pub commits: u64,
    /// Flushes of the leaf devices.
    pub flushes: f64,
    /// Their writes.
    pub writes: f64,
}

impl Worked {
    /// The measured part, with what is given to the contender taken off.
    pub(super) fn measured(&self) -> Option<WayCount> {
        let measured = self.while_measured?;
        let given = ROUNDS_GIVEN * u64::from(self.writers);
        Some(WayCount {
            way: MEASURED.to_owned(),
            writers: self.writers,
            acknowledged: measured.commits.saturating_sub(given),
            flushes: measured.flushes,
            writes: measured.writes,
            copies_away: self.copies_away,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::ground::{Cache, Ground};
    use super::super::judgement::{is_flushed, judge};
    use super::*;
    use crate::quantity::as_float;
    use crate::record::DurabilityClass;

    fn all_of_it(writers: u32, commits: u64, flushes: f64) -> WayCount {
        WayCount {
            way: NAME.to_owned(),
            writers,
            acknowledged: commits,
            flushes,
            writes: 2.0 * as_float(commits),
            copies_away: 0,
        }
    }

    #[test]
    fn a_mirror_whose_second_device_was_away_is_held_to_the_first_alone() {
        let count = all_of_it(1, 1000, 1500.0);
        assert!(!is_flushed(&count, 2));
        let away = WayCount {
            copies_away: 1,
            ..count
        };
        assert!(is_flushed(&away, 2));
        assert!(!is_flushed(
            &WayCount {
                flushes: 999.0,
                ..away
            },
            2
        ));
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
        let worked = |commits, flushes| Worked {
            commits: Some(10_000),
            writers: 8,
            copies_away: 0,
            while_measured: Some(WhileMeasured {
                commits,
                flushes,
                writes: 20_000.0,
            }),
        };
        // All together there are enough: 5,000 commits of the warm-up flushed each by itself.
        assert!(is_flushed(&all_of_it(8, 10_000, 5003.0), 1));
        let measured = worked(5000, 3.0).measured().unwrap();
        assert_eq!(measured.acknowledged, 4984);
        assert!(!is_flushed(&measured, 1));
        assert!(is_flushed(&worked(5000, 623.0).measured().unwrap(), 1));
        assert!(!is_flushed(&worked(5000, 622.0).measured().unwrap(), 1));
        // Few commits say nothing: all of them may have been under way at the beginning.
        assert!(is_flushed(&worked(16, 0.0).measured().unwrap(), 1));
        let uncounted = Worked {
            while_measured: None,
            ..worked(0, 0.0)
        };
        assert_eq!(uncounted.measured(), None);
    }

    /// One session that commits again and again, each commit flushed before it is answered, and is looked
    /// at between any two steps of it.
    #[test]
    fn whoever_flushes_each_commit_is_accused_by_no_two_readings() {
        for commits in 0_u64..40 {
            // At the first reading one may be flushed and not answered; at the second none that is
            // answered lacks its flush.
            for flushed_ahead in 0..=1 {
                let worked = Worked {
                    commits: Some(commits),
                    writers: 1,
                    copies_away: 0,
                    while_measured: Some(WhileMeasured {
                        commits,
                        flushes: as_float(commits.saturating_sub(flushed_ahead)),
                        writes: as_float(commits),
                    }),
                };
                assert!(is_flushed(&worked.measured().unwrap(), 1), "{worked:?}");
            }
        }
    }
}
