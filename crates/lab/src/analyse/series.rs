//! One run's samples in time: moving average, whether it had settled, how alike neighbours are.

use crate::quantity::{as_float, whole};

/// The average of `values`; `None` for none.
#[must_use]
pub fn mean(values: &[f64]) -> Option<f64> {
    let count = as_float(u64::try_from(values.len()).ok()?);
    (count > 0.0).then(|| values.iter().sum::<f64>() / count)
}

/// The middle value.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut ordered = values.to_vec();
    ordered.sort_by(f64::total_cmp);
    let middle = ordered.len() / 2;
    match ordered.len() {
        0 => None,
        count if count % 2 == 1 => Some(ordered[middle]),
        _ => Some(f64::midpoint(ordered[middle - 1], ordered[middle])),
    }
}

/// Each point's average with those before it, over at most `window` points.
#[must_use]
pub fn moving_average(points: &[(f64, f64)], window: usize) -> Vec<(f64, f64)> {
    (0..points.len())
        .filter_map(|end| {
            let from = (end + 1).saturating_sub(window.max(1));
            let values: Vec<f64> = points[from..=end].iter().map(|point| point.1).collect();
            Some((points[end].0, mean(&values)?))
        })
        .collect()
}

/// How alike each value is to the one before it, from -1 to 1; `None` for fewer than eight values
/// or where nothing varies.
#[must_use]
pub fn autocorrelation(values: &[f64]) -> Option<f64> {
    if values.len() < 8 {
        return None;
    }
    let mean = mean(values)?;
    let spread: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let shared: f64 = values
        .windows(2)
        .map(|pair| (pair[0] - mean) * (pair[1] - mean))
        .sum();
    (spread > 0.0).then(|| shared / spread)
}

/// How many independent values `values` are worth, by the autocorrelation of neighbours: 60
/// seconds that follow each other are not 60 measurements.
#[must_use]
pub fn effective_count(values: &[f64]) -> u64 {
    let count = as_float(values.len() as u64);
    let alike = autocorrelation(values).unwrap_or(0.0).clamp(0.0, 0.99);
    whole(count * (1.0 - alike) / (1.0 + alike)).unwrap_or(0)
}

/// A trend over time (Mann 1945, Kendall): how many standard deviations the count of rising over
/// falling pairs lies from what chance gives. Beyond 2.6 either way chance is below one in a
/// hundred. `None` for fewer than eight values.
#[must_use]
pub fn trend(values: &[f64]) -> Option<f64> {
    let count = as_float(u64::try_from(values.len()).ok()?);
    if values.len() < 8 {
        return None;
    }
    let mut rising = 0.0;
    for (index, one) in values.iter().enumerate() {
        for later in &values[index + 1..] {
            rising += match later.total_cmp(one) {
                std::cmp::Ordering::Less => -1.0,
                std::cmp::Ordering::Equal => 0.0,
                std::cmp::Ordering::Greater => 1.0,
            };
        }
    }
    let deviation = (count * (count - 1.0) * (2.0 * count + 5.0) / 18.0).sqrt();
    Some(rising / deviation)
}

/// The beyond-chance bound of [`trend`].
pub const TREND_AT_MOST: f64 = 2.6;

/// SNIA's bound of [`slope`].
pub const SLOPE_AT_MOST: f64 = 0.10;

/// SNIA's bound of [`spread`].
pub const SPREAD_AT_MOST: f64 = 0.20;

/// The averages of the five fifths of a run, relative to its mean; `None` for fewer than five
/// values or where nothing was done.
#[must_use]
pub fn rounds(values: &[f64]) -> Option<[f64; 5]> {
    let all = mean(values).filter(|mean| *mean > 0.0)?;
    let mut rounds = [0.0; 5];
    for (index, round) in rounds.iter_mut().enumerate() {
        let bound = |index: usize| index * values.len() / 5;
        *round = mean(&values[bound(index)..bound(index + 1)])? / all;
    }
    Some(rounds)
}

/// By how much the best straight line through five rounds rises from the first to the last,
/// relative to their mean.
#[must_use]
pub fn slope(rounds: &[f64; 5]) -> f64 {
    let sum: f64 = rounds.iter().sum();
    let weighted: f64 = rounds
        .iter()
        .zip([-2.0, -1.0, 0.0, 1.0, 2.0])
        .map(|(round, place)| round * place)
        .sum();
    // Of the places -2 to 2 the squares add up to 10, and the line runs over four of them.
    4.0 * (weighted / 10.0) / (sum / 5.0)
}

/// How far the highest of five rounds lies from the lowest, relative to their mean.
#[must_use]
pub fn spread(rounds: &[f64; 5]) -> f64 {
    let low = rounds.iter().copied().fold(f64::INFINITY, f64::min);
    let high = rounds.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    5.0 * (high - low) / rounds.iter().sum::<f64>()
}

/// By how much the last third lies above the first (0.1 for 10 %), where a trend is beyond chance.
#[must_use]
pub fn unsettled(values: &[f64]) -> Option<f64> {
    if trend(values)?.abs() < TREND_AT_MOST {
        return None;
    }
    let third = values.len() / 3;
    let first = mean(&values[..third])?;
    let last = mean(&values[values.len() - third..])?;
    (first > 0.0).then(|| last / first - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moving_average_looks_back_over_its_window() {
        let points = [(0.0, 2.0), (1.0, 4.0), (2.0, 9.0)];
        assert_eq!(
            moving_average(&points, 2),
            [(0.0, 2.0), (1.0, 3.0), (2.0, 6.5)]
        );
    }

    #[test]
    fn rounds_have_their_slope_and_their_spread() {
        let rising: Vec<f64> = (0..10).map(f64::from).collect();
        // Fifths of 0.5, 2.5, 4.5, 6.5, 8.5 around 4.5: the line runs over 8 of them.
        let found = rounds(&rising).unwrap();
        assert!((found[0] - 0.5 / 4.5).abs() < 1e-12);
        assert!((slope(&found) - 8.0 / 4.5).abs() < 1e-12);
        assert!((spread(&found) - 8.0 / 4.5).abs() < 1e-12);
        let dent = [1.0, 1.0, 0.5, 1.0, 1.0];
        assert!(slope(&dent).abs() < 1e-12);
        assert!((spread(&dent) - 0.5 / 0.9).abs() < 1e-12);
        assert_eq!(rounds(&rising[..4]), None);
        assert_eq!(rounds(&[0.0; 8]), None);
    }

    #[test]
    fn alternating_values_are_unlike_and_slow_waves_are_alike() {
        let alternating: Vec<f64> = (0..40).map(|index| f64::from(index % 2)).collect();
        assert!(autocorrelation(&alternating).unwrap() < -0.9);
        let waves: Vec<f64> = (0..60)
            .map(|index| (f64::from(index) / 8.0).sin())
            .collect();
        assert!(autocorrelation(&waves).unwrap() > 0.9);
        assert!(effective_count(&waves) < 6);
        assert_eq!(autocorrelation(&[1.0; 20]), None);
    }

    #[test]
    fn a_trend_is_seen_and_noise_is_not() {
        // Kendall's score of an ascending series of ten is 45; its deviation the root of 125.
        let ascending: Vec<f64> = (0..10).map(f64::from).collect();
        assert!((trend(&ascending).unwrap() - 45.0 / 125.0_f64.sqrt()).abs() < 1e-12);
        assert!(unsettled(&ascending).unwrap() > 1.0);
        let mut random = fastrand::Rng::with_seed(5);
        let beyond = (0..2000)
            .filter(|_| {
                let noise: Vec<f64> = (0..30).map(|_| random.f64()).collect();
                trend(&noise).unwrap().abs() > TREND_AT_MOST
            })
            .count();
        assert!((5..=40).contains(&beyond), "{beyond} of 2000");
    }
}
