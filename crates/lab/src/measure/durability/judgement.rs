//! What the counts say. Pure: every case is a row of the tests.
//!
//! | named | seen at the leaf devices | class |
//! |---|---|---|
//! | a setting, a mount option or a place in memory that forgets | whatever | not durable |
//! | | the disks are not known | cannot be seen |
//! | | as many flushes as are needed, in each way | durable |
//! | | fewer writes than are needed | not durable: what was acknowledged never came there |
//! | | fewer flushes, and a device has no volatile cache | cannot be seen |
//! | | fewer flushes, and a device takes forced writes | cannot be seen; the ways of a single forced write are not held against it where the others show their flushes |
//! | | fewer flushes, all devices have a volatile cache | not durable |
//! | | as many flushes, and the load wrote more than was counted | cannot be seen |

use super::ground::{Cache, Ground};
use crate::quantity::as_float;
use crate::record::{DurabilityClass, WayCount};

/// At least so many flushes, and as many writes, belong to what was acknowledged.
fn needed(count: &WayCount, copies: u32) -> f64 {
    // Each of them waits for its answer, so that one flush answers at most one write of each.
    let flushes = count.acknowledged.div_ceil(u64::from(count.writers.max(1)));
    let there = copies.saturating_sub(count.copies_away).max(1);
    as_float(flushes) * f64::from(there)
}

/// Whether the flushes that it needs were seen.
pub fn is_flushed(count: &WayCount, copies: u32) -> bool {
    count.flushes >= needed(count, copies)
}

/// Whether a second count speaks rather for the contender than the first.
pub fn is_better(second: &WayCount, first: &WayCount) -> bool {
    let share = |count: &WayCount| {
        let acknowledged = as_float(count.acknowledged.max(1));
        (count.flushes / acknowledged, count.writes / acknowledged)
    };
    share(second) > share(first)
}

/// The class, and why.
pub fn judge(ground: &Ground, counts: &[WayCount], copies: u32) -> (DurabilityClass, String) {
    let short = counts.iter().find(|count| !is_flushed(count, copies));
    if let Some(named) = ground.forgets() {
        let figures = short.map_or_else(String::new, |count| format!(": {}", figures(count)));
        return (DurabilityClass::NotDurable, format!("{named}{figures}"));
    }
    if let Some(reason) = ground.hidden() {
        return (DurabilityClass::CannotBeSeen, reason);
    }
    let Some(first) = counts.first() else {
        let reason = "no way to make a write durable could be tried".to_owned();
        return (DurabilityClass::CannotBeSeen, reason);
    };
    let mut unseen = None;
    for count in counts {
        if is_flushed(count, copies) {
            continue;
        }
        if count.writes < needed(count, copies) {
            return (
                DurabilityClass::NotDurable,
                ground.explained(figures(count)),
            );
        }
        match ground.cache() {
            Cache::Volatile => {
                return (
                    DurabilityClass::NotDurable,
                    ground.explained(figures(count)),
                );
            }
            Cache::Forced(_) if is_forced(count) => {}
            Cache::Forced(device) => {
                unseen.get_or_insert_with(|| {
                    format!(
                        "{device} takes forced writes, which the kernel does not count apart ({})",
                        figures(count)
                    )
                });
            }
            Cache::None(device) => {
                unseen.get_or_insert_with(|| {
                    format!(
                        "{device} has no volatile cache, so that the kernel sends it no flushes"
                    )
                });
            }
        }
    }
    match unseen {
        Some(reason) => (DurabilityClass::CannotBeSeen, reason),
        None => (
            DurabilityClass::Durable,
            counts
                .iter()
                .rev()
                .find(|count| count.writers == 1)
                .map_or_else(|| figures(first), figures),
        ),
    }
}

/// The class of a load of which a part was not counted: that part was held against nothing.
pub fn as_far_as_counted(
    judged: (DurabilityClass, String),
    uncounted: Option<String>,
) -> (DurabilityClass, String) {
    match (judged, uncounted) {
        ((DurabilityClass::Durable, _), Some(reason)) => (DurabilityClass::CannotBeSeen, reason),
        (judged, _) => judged,
    }
}

/// A single write that may be forced and then needs no flush.
fn is_forced(count: &WayCount) -> bool {
    count.way.ends_with("DSYNC")
}

fn figures(count: &WayCount) -> String {
    let writers = if count.writers == 1 {
        "1 writer".to_owned()
    } else {
        format!("{} writers", count.writers)
    };
    format!(
        "{} by {writers}: {} acknowledged, its devices saw {} flushes and {} writes",
        count.way, count.acknowledged, count.flushes, count.writes
    )
}

#[cfg(test)]
mod tests;
