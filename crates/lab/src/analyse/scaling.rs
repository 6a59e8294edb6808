//! How the rate grows with the number of users, and where it stops growing: the knee.
//!
//! The curve is fitted by the universal scalability law (Gunther 1993): `n` users reach
//! `n r / (1 + s (n - 1) + k n (n - 1))`, where `r` is what one user would reach alone, `s` the
//! share of the work that only one can do at a time (contention), and `k` what users cost each other
//! (coherency: with it the rate falls again). The law is linear in `1/r`, `s/r` and `k/r` once it is
//! written for `n` over the rate, so that the fit is a least square of relative errors with none of
//! the three below zero; there is nothing to iterate and nothing to start from.
//!
//! The knee is where the two straight lines meet that bound the curve: the one through the origin
//! with the slope of a user alone, and the ceiling, which is the highest rate of the fitted curve.
//! Below it another user adds nearly his own rate, above it mostly waiting time. Where a storage
//! carries `r` for each user up to a hard limit, that is exactly the limit over `r`. A knee beyond
//! the largest number of users that was measured is not told: nobody has seen it.

use serde::{Deserialize, Serialize};

use super::interval::{Interval, interval};

/// Fewer points than the law has parameters fit anything.
pub const POINTS_AT_LEAST: usize = 3;

/// A fitted curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// What one user would reach alone.
    pub per_user: f64,
    /// The share of the work that only one can do at a time.
    pub contention: f64,
    /// What each pair of users costs.
    pub coherency: f64,
}

impl Fit {
    /// What so many users reach.
    #[must_use]
    pub fn rate(&self, users: f64) -> f64 {
        let others = users - 1.0;
        users * self.per_user / (1.0 + self.contention * others + self.coherency * users * others)
    }

    /// The highest rate that the curve comes to; none where it grows for ever.
    #[must_use]
    pub fn ceiling(&self) -> Option<f64> {
        if self.contention >= 1.0 {
            // More users never reach more than one.
            return Some(self.per_user);
        }
        if self.coherency > 0.0 {
            let most_users = ((1.0 - self.contention) / self.coherency).sqrt().max(1.0);
            return Some(self.rate(most_users));
        }
        (self.contention > 0.0).then(|| self.per_user / self.contention)
    }

    /// The number of users at which the slope of one meets the ceiling.
    #[must_use]
    pub fn knee(&self) -> Option<f64> {
        self.ceiling().map(|ceiling| ceiling / self.per_user)
    }
}

/// Fits (users, rate) points; `None` for fewer than [`POINTS_AT_LEAST`] numbers of users or rates
/// of nothing.
#[must_use]
pub fn fit(points: &[(f64, f64)]) -> Option<Fit> {
    let mut users: Vec<f64> = points.iter().map(|point| point.0).collect();
    users.sort_by(f64::total_cmp);
    users.dedup();
    if users.len() < POINTS_AT_LEAST || points.iter().any(|(_, rate)| *rate <= 0.0) {
        return None;
    }
    // Each row is divided by the value it is to reach: relative errors weigh alike.
    let rows: Vec<[f64; 3]> = points
        .iter()
        .map(|(users, rate)| {
            let value = users / rate;
            [1.0, users - 1.0, users * (users - 1.0)].map(|term| term / value)
        })
        .collect();
    let candidates = [
        [true, true, true],
        [true, true, false],
        [true, false, true],
        [true, false, false],
    ];
    candidates
        .into_iter()
        .filter_map(|used| {
            let found = least_squares(&rows, used)?;
            let is_possible = found[0] > 0.0 && found.iter().all(|value| *value >= 0.0);
            is_possible.then(|| (residual(&rows, &found), found))
        })
        .min_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, [alone, contention, coherency])| Fit {
            per_user: 1.0 / alone,
            contention: contention / alone,
            coherency: coherency / alone,
        })
}

/// The sum of squares of what is missing to one.
fn residual(rows: &[[f64; 3]], values: &[f64; 3]) -> f64 {
    rows.iter()
        .map(|row| {
            let sum: f64 = row
                .iter()
                .zip(values)
                .map(|(term, value)| term * value)
                .sum();
            (sum - 1.0).powi(2)
        })
        .sum()
}

/// The values of the terms that are used, so that the rows come nearest to one; the others are zero.
fn least_squares(rows: &[[f64; 3]], used: [bool; 3]) -> Option<[f64; 3]> {
    // The normal equations; a term that is not used gets an equation that makes it zero.
    let mut equations = [[0.0_f64; 4]; 3];
    for (index, equation) in equations.iter_mut().enumerate() {
        if !used[index] {
            equation[index] = 1.0;
            continue;
        }
        for row in rows {
            for (other, is_used) in used.iter().enumerate() {
                if *is_used {
                    equation[other] += row[index] * row[other];
                }
            }
            equation[3] += row[index];
        }
    }
    solve(equations)
}

/// Gauss's elimination with the largest element as the pivot.
fn solve(mut equations: [[f64; 4]; 3]) -> Option<[f64; 3]> {
    for column in 0..3 {
        let pivot = (column..3).max_by(|one, other| {
            equations[*one][column]
                .abs()
                .total_cmp(&equations[*other][column].abs())
        })?;
        equations.swap(column, pivot);
        let top = equations[column];
        if top[column].abs() < 1e-14 {
            return None;
        }
        for (index, equation) in equations.iter_mut().enumerate() {
            if index != column {
                let factor = equation[column] / top[column];
                for (value, above) in equation.iter_mut().zip(top) {
                    *value -= factor * above;
                }
            }
        }
    }
    Some([0, 1, 2].map(|index| equations[index][3] / equations[index][index]))
}

/// The interval of the knee over blocks, each fitted by itself; `None` where a block's curve has no
/// knee or there are too few blocks.
#[must_use]
pub fn knee_interval(blocks: &[Vec<(f64, f64)>]) -> Option<Interval> {
    let knees: Option<Vec<f64>> = blocks
        .iter()
        .map(|points| Some(fit(points)?.knee()?.ln()))
        .collect();
    interval(&knees?).map(Interval::exp)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(fit: &Fit, users: &[f64]) -> Vec<(f64, f64)> {
        users
            .iter()
            .map(|users| (*users, fit.rate(*users)))
            .collect()
    }

    const USERS: [f64; 5] = [1.0, 2.0, 4.0, 8.0, 16.0];

    fn near(one: f64, other: f64, share: f64) -> bool {
        (one / other - 1.0).abs() <= share
    }

    #[test]
    fn a_curve_of_the_law_is_found_again_with_its_knee() {
        for (contention, coherency) in [(0.05, 0.001), (0.2, 0.0), (0.0, 0.01), (0.02, 0.02)] {
            let law = Fit {
                per_user: 120.0,
                contention,
                coherency,
            };
            let found = fit(&curve(&law, &USERS)).unwrap();
            assert!(near(found.per_user, 120.0, 1e-6), "{found:?}");
            assert!((found.contention - contention).abs() < 1e-6, "{found:?}");
            assert!((found.coherency - coherency).abs() < 1e-6, "{found:?}");
            assert!(near(found.knee().unwrap(), law.knee().unwrap(), 1e-6));
        }
        // By hand: without coherency the ceiling is r / s, so that the knee is 1 / s.
        let law = Fit {
            per_user: 50.0,
            contention: 0.125,
            coherency: 0.0,
        };
        assert!(near(law.knee().unwrap(), 8.0, 1e-12));
        // With it alone the highest rate is at its root's inverse: n = 10 of k = 0.01.
        let law = Fit {
            per_user: 1.0,
            contention: 0.0,
            coherency: 0.01,
        };
        assert!(near(law.ceiling().unwrap(), 10.0 / 1.9, 1e-12));
    }

    #[test]
    fn a_hard_limit_has_its_knee_where_the_users_reach_it() {
        for limit in [2.0, 4.0, 6.0] {
            let points: Vec<(f64, f64)> = [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0]
                .iter()
                .map(|users: &f64| (*users, 100.0 * users.min(limit)))
                .collect();
            let knee = fit(&points).unwrap().knee().unwrap();
            assert!(near(knee, limit, 0.25), "limit {limit}: {knee}");
        }
    }

    #[test]
    fn what_grows_for_ever_has_no_knee_and_what_falls_at_once_has_it_at_one() {
        let points = USERS.map(|users| (users, 30.0 * users));
        assert_eq!(
            fit(&points).unwrap().knee().filter(|knee| *knee < 1e4),
            None
        );
        let points = USERS.map(|users| (users, 30.0 / users));
        assert!(near(fit(&points).unwrap().knee().unwrap(), 1.0, 0.1));
        assert_eq!(fit(&points[..2]), None);
    }

    #[test]
    fn noise_of_some_percent_moves_the_knee_by_little_and_the_interval_holds_it() {
        let law = Fit {
            per_user: 100.0,
            contention: 0.1,
            coherency: 0.005,
        };
        let truth = law.knee().unwrap();
        let mut random = fastrand::Rng::with_seed(11);
        let mut held = 0;
        for _ in 0..200 {
            let blocks: Vec<Vec<(f64, f64)>> = (0..8)
                .map(|_| {
                    curve(&law, &USERS)
                        .into_iter()
                        .map(|(users, rate)| (users, rate * (0.97 + 0.06 * random.f64())))
                        .collect()
                })
                .collect();
            let found = knee_interval(&blocks).unwrap();
            assert!(near(found.centre, truth, 0.25), "{found:?}, {truth}");
            held += usize::from(found.low <= truth && truth <= found.high);
        }
        // Each block's knee leans a little to one side, so that some are lost.
        assert!(held >= 170, "{held} of 200");
    }
}
