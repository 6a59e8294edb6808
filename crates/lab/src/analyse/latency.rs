//! Quantiles and merging of recorded latencies.

use std::collections::BTreeMap;

use crate::quantity::{as_float, whole};
use crate::record::Latency;

/// The quantiles that the report shows.
pub const QUANTILES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 1.0];

/// The latency that the share `quantile` of the operations did not exceed, in microseconds. `None`
/// where fewer than one operation lies beyond it: the p99 of five scans would be their longest. The
/// longest itself is that of the quantile 1.
#[must_use]
pub fn quantile_us(latency: &Latency, quantile: f64) -> Option<u64> {
    let total: u64 = latency.counts.iter().map(|(_, count)| count).sum();
    let beyond = as_float(total) * (1.0 - quantile);
    // The bound is a whole number that a rounding error must not miss.
    let is_in_the_tail = quantile > 0.5 && quantile < 1.0;
    if is_in_the_tail && beyond < 1.0 - 1e-6 {
        return None;
    }
    let wanted = whole((as_float(total) * quantile).ceil())?.max(1);
    let mut seen = 0;
    latency.counts.iter().find_map(|(value, count)| {
        seen += count;
        (seen >= wanted).then_some(*value)
    })
}

/// The mean, in microseconds.
#[must_use]
pub fn mean_us(latency: &Latency) -> Option<f64> {
    let total: u64 = latency.counts.iter().map(|(_, count)| count).sum();
    let sum: f64 = latency
        .counts
        .iter()
        .map(|(value, count)| as_float(*value) * as_float(*count))
        .sum();
    (total > 0).then(|| sum / as_float(total))
}

/// All of them together.
#[must_use]
pub fn merged<'a>(latencies: impl IntoIterator<Item = &'a Latency>) -> Latency {
    let mut counts = BTreeMap::new();
    for latency in latencies {
        for (value, count) in &latency.counts {
            *counts.entry(*value).or_insert(0) += count;
        }
    }
    Latency {
        counts: counts.into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_a_known_distribution() {
        let one = Latency {
            counts: (1..=50).map(|value| (value, 1)).collect(),
        };
        let other = Latency {
            counts: (51..=100).map(|value| (value, 1)).collect(),
        };
        let all = merged([&one, &other]);
        assert_eq!(quantile_us(&all, 0.5), Some(50));
        assert_eq!(quantile_us(&all, 0.99), Some(99));
        assert_eq!(quantile_us(&all, 1.0), Some(100));
        assert_eq!(mean_us(&all), Some(50.5));
        assert_eq!(quantile_us(&Latency::default(), 0.5), None);
    }

    #[test]
    fn what_has_too_few_operations_for_a_quantile_has_none() {
        let of = |count: u64| Latency {
            counts: (1..=count).map(|value| (value, 1)).collect(),
        };
        for (quantile, least) in [(0.9, 10), (0.95, 20), (0.99, 100), (0.999, 1000)] {
            assert_eq!(quantile_us(&of(least - 1), quantile), None, "{quantile}");
            assert!(quantile_us(&of(least), quantile).is_some(), "{quantile}");
        }
        // Of five scans there is a middle one and a longest one.
        assert_eq!(quantile_us(&of(5), 0.5), Some(3));
        assert_eq!(quantile_us(&of(5), 1.0), Some(5));
        assert_eq!(quantile_us(&of(5), 0.99), None);
    }
}
