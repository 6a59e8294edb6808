//! Known answers, and the coverage and the power by simulation. The seeds are fixed.

use super::*;

#[test]
fn the_ends_are_those_of_the_binomial_distribution() {
    // Tables of the sign test: of twelve throws at most two heads have a chance of 79/4096.
    assert!((coverage(12, 2) - (1.0 - 2.0 * 79.0 / 4096.0)).abs() < 1e-12);
    assert!((coverage(5, 0) - (1.0 - 2.0 / 32.0)).abs() < 1e-12);
    let of = |count| Ends::of(count, CONFIDENCE);
    assert_eq!((of(5).left_out, of(6).left_out), (0, 0));
    assert!((of(5).confidence - 0.9375).abs() < 1e-12);
    assert!(of(5).inwards.abs() < 1e-12);
    // By hand, for twelve: I = (0.96143 - 0.95) / (0.96143 - 0.85400) = 0.10637, and
    // 9 I / (3 + 6 I) = 0.26313.
    assert_eq!(of(12).left_out, 2);
    assert!((of(12).inwards - 0.263_13).abs() < 1e-4, "{:?}", of(12));
    assert!((of(12).confidence - 0.95).abs() < 1e-12);
    // As one of six it misses in 0.83 of 100, between one left out (0.63) and two (3.86).
    let of_six = Ends::of(12, Comparisons::of(6).confidence());
    assert_eq!(of_six.left_out, 1);
    assert!((of_six.confidence - (1.0 - 0.05 / 6.0)).abs() < 1e-12);
    assert!(of_six.inwards > 0.0 && of_six.inwards < 0.5, "{of_six:?}");
    // Twelve blocks miss in 2 of 4,096 at the least: that is enough for 102 comparisons.
    let needed = |count| Comparisons::of(count).blocks_for_a_claim();
    assert_eq!(
        [0, 1, 102, 103, 204, 205].map(needed),
        [12, 12, 12, 13, 13, 14]
    );
    // As many blocks as an experiment may have.
    assert_eq!(of(1000).left_out, 468);
}

#[test]
fn the_centre_and_the_ends_of_a_known_sample() {
    let values = [4.0, 1.0, 100.0, 3.0, 2.0];
    let found = interval(&values).unwrap();
    assert!((found.low - 1.0).abs() < 1e-12);
    assert!((found.high - 100.0).abs() < 1e-12);
    assert!((found.centre - 3.0).abs() < 1e-12);
    assert!(interval(&values[..4]).is_none());
    assert!(centre(&[]).is_none());
    let turned = found.inverse();
    assert!((turned.low - 0.01).abs() < 1e-12 && (turned.high - 1.0).abs() < 1e-12);
}

#[test]
fn a_confidence_in_percent_is_never_rounded_to_certainty() {
    let shown = |count| percent(Comparisons::of(count).confidence());
    assert_eq!(
        [1, 6, 20, 50].map(shown),
        ["95.0 %", "99.2 %", "99.8 %", "99.90 %"]
    );
    assert_eq!([102, 1000].map(shown), ["99.95 %", "99.9950 %"]);
}

#[test]
fn what_was_not_met_in_twelve_blocks_may_happen_in_a_fifth_of_all() {
    assert!((rarest_seen(12) - 0.2209).abs() < 1e-4);
    assert!((1.0 - rarest_seen(12)).powi(12) - 0.05 < 1e-12);
}

/// What a run is disturbed by.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Noise {
    Normal,
    Uniform,
    /// Much of it far out.
    Laplace,
    /// Student's with three degrees of freedom.
    Heavy,
    /// Always slower than it could be, now more, now less.
    Skewed,
    /// Normal, and one run of twenty 18 to 45 % too slow.
    Disturbed,
}

/// Every noise but the one whose share of bad runs is its point.
const NOISES: [Noise; 6] = [
    Noise::Normal,
    Noise::Uniform,
    Noise::Laplace,
    Noise::Heavy,
    Noise::Skewed,
    Noise::Disturbed,
];

/// A machine that drifts and is noisy.
struct Machine {
    random: fastrand::Rng,
    noise: Noise,
    /// Log speed that all share and that wanders.
    drift: f64,
    /// How much it loses with each run: it warms up, its disks fill.
    slope: f64,
}

impl Machine {
    fn new(noise: Noise, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed * 7919 + 13);
        let slope = (random.f64() - 0.5) * 0.02;
        Self {
            random,
            noise,
            drift: 0.0,
            slope,
        }
    }

    fn normal(&mut self) -> f64 {
        let angle = self.random.f64() * std::f64::consts::TAU;
        (-2.0 * (1.0 - self.random.f64()).ln()).sqrt() * angle.cos()
    }

    fn noise(&mut self) -> f64 {
        match self.noise {
            Noise::Normal => 0.02 * self.normal(),
            Noise::Uniform => 0.07 * (self.random.f64() - 0.5),
            Noise::Laplace => {
                let side = if self.random.bool() { 0.014 } else { -0.014 };
                side * -(1.0 - self.random.f64()).ln()
            }
            Noise::Heavy => {
                let square: f64 = (0..3).map(|_| self.normal().powi(2)).sum();
                0.015 * self.normal() / (square / 3.0).sqrt()
            }
            Noise::Skewed => 0.02 * (1.0 - self.random.f64()).ln(),
            Noise::Disturbed if self.random.f64() < 0.05 => {
                -0.2 - 0.4 * self.random.f64() + 0.02 * self.normal()
            }
            Noise::Disturbed => 0.02 * self.normal(),
        }
    }

    fn run(&mut self, true_log: f64) -> f64 {
        self.drift += self.slope + 0.005 * self.normal();
        true_log + self.drift + self.noise()
    }

    /// What each of `contenders` reached in each block, as logs of rates; each block in an order of
    /// its own. `stalls` is how often the last of them stalls, and what it keeps of its rate then.
    fn experiment(
        &mut self,
        contenders: &[f64],
        stalls: (f64, f64),
        block_count: usize,
    ) -> Vec<Vec<f64>> {
        (0..block_count)
            .map(|_| {
                let mut order: Vec<usize> = (0..contenders.len()).collect();
                self.random.shuffle(&mut order);
                let mut reached = vec![0.0; contenders.len()];
                for index in order {
                    reached[index] = self.run(contenders[index]);
                    let is_last = index + 1 == contenders.len();
                    if is_last && self.random.f64() < stalls.0 {
                        reached[index] += stalls.1.ln();
                    }
                }
                reached
            })
            .collect()
    }
}

const TRUTH: f64 = 0.08;

/// The log ratios of the last of four contenders to the first.
fn differences(noise: Noise, stalls: (f64, f64), block_count: usize, seed: u64) -> Vec<f64> {
    let contenders = [0.0, -0.3, 0.1, TRUTH];
    Machine::new(noise, seed)
        .experiment(&contenders, stalls, block_count)
        .iter()
        .map(|reached| reached[3] - reached[0])
        .collect()
}

/// How often `of` gives an interval that holds `truth`.
fn coverage_of(
    (noise, stalls): (Noise, (f64, f64)),
    block_count: usize,
    truth: f64,
    of: impl Fn(&[f64]) -> (f64, f64),
) -> f64 {
    const EXPERIMENTS: u32 = 4000;
    let held: u32 = (0..u64::from(EXPERIMENTS))
        .map(|seed| {
            let (low, high) = of(&differences(noise, stalls, block_count, seed));
            u32::from(low <= truth && truth <= high)
        })
        .sum();
    f64::from(held) / f64::from(EXPERIMENTS)
}

fn ends(values: &[f64]) -> (f64, f64) {
    let found = interval(values).unwrap();
    (found.low, found.high)
}

const NO_STALLS: (f64, f64) = (0.0, 1.0);

#[test]
fn the_interval_holds_the_truth_as_often_as_it_says_whatever_the_noise() {
    for noise in NOISES {
        for block_count in [5, 6, 7, 8, 10, 12, 15, 20, 24] {
            let share = coverage_of((noise, NO_STALLS), block_count, TRUTH, ends);
            println!("{noise:?}, {block_count} blocks: {share:.4}");
            // The simulation's own error is 0.35 %; five blocks give 93.75 % exactly.
            assert!(
                (0.93..=0.97).contains(&share),
                "{noise:?}, {block_count} blocks: {share}"
            );
        }
    }
}

#[test]
fn among_many_comparisons_an_interval_misses_the_truth_as_seldom_as_that_asks_for() {
    const EXPERIMENTS: f64 = 4000.0;
    for noise in NOISES {
        for (block_count, count) in [(12, 6), (12, 20), (15, 20), (24, 20), (24, 100)] {
            let comparisons = Comparisons::of(count);
            let of = |values: &[f64]| {
                let found = interval_among(values, comparisons).unwrap();
                assert!(found.confidence >= comparisons.confidence() - 1e-12);
                (found.low, found.high)
            };
            let missed = 1.0 - coverage_of((noise, NO_STALLS), block_count, TRUTH, of);
            // In two experiments, at a confidence as high.
            let between = |seed: u64| {
                let of = |seed| {
                    let values = differences(noise, NO_STALLS, block_count, seed);
                    interval_among(&values, comparisons).unwrap()
                };
                let found = difference(of(2 * seed + 1), of(2 * seed));
                u32::from(found.low > 0.0 || found.high < 0.0)
            };
            let between = f64::from((0..4000).map(between).sum::<u32>()) / EXPERIMENTS;
            println!("{noise:?}, {block_count} blocks, {count}: {missed:.5}, of two {between:.5}");
            let allowed = 1.0 - comparisons.confidence();
            let own_error = 3.0 * (allowed / EXPERIMENTS).sqrt();
            for missed in [missed, between] {
                assert!(
                    missed <= 1.2 * allowed + own_error,
                    "{noise:?}, {block_count} blocks, {count}: {missed}"
                );
            }
        }
    }
}

/// Of so many blocks that their own chance does not matter: the middle and the average ratio.
fn of_many_blocks(noise: Noise, stalls: (f64, f64)) -> (f64, f64) {
    let many: Vec<f64> = (0..100)
        .flat_map(|seed| differences(noise, stalls, 2000, 1_000_000 + seed))
        .collect();
    let sum: f64 = many.iter().sum();
    (
        centre(&many).unwrap(),
        sum / crate::quantity::as_float(many.len() as u64),
    )
}

#[test]
fn stalls_of_one_contender_leave_the_interval_of_the_middle_block_as_good_as_it_was() {
    for stalls in [(0.1, 0.5), (0.2, 0.7), (0.3, 0.7)] {
        for noise in [Noise::Normal, Noise::Disturbed] {
            let (middle, _) = of_many_blocks(noise, stalls);
            for block_count in [5, 6, 8, 10, 12, 16, 20, 24] {
                let share = coverage_of((noise, stalls), block_count, middle, ends);
                println!("{noise:?}, stalls {stalls:?}, {block_count} blocks: {share:.4}");
                assert!(
                    (0.93..=0.97).contains(&share),
                    "{noise:?}, stalls {stalls:?}, {block_count} blocks: {share}"
                );
            }
        }
    }
}

#[test]
fn the_average_with_its_stalls_is_not_what_the_interval_holds() {
    // A fifth of the runs of one contender 30 % slower. This is why the interval is said to be of
    // the middle block, and why stalls are named beside it.
    let case = (Noise::Normal, (0.2, 0.7));
    let (_, average) = of_many_blocks(case.0, case.1);
    for (block_count, of_ranks) in [(5, 0.68), (10, 0.89), (20, 0.79)] {
        let ranks = coverage_of(case, block_count, average, signed_ranks);
        println!("signed ranks, {block_count} blocks, of the average: {ranks:.4}");
        assert!((ranks - of_ranks).abs() < 0.03, "{ranks}");
    }
    assert!(coverage_of(case, 12, average, ends) < 0.6);
    // Nor do signed ranks hold the middle, the less the more blocks there are.
    let case = (Noise::Normal, (0.3, 0.7));
    let (middle, _) = of_many_blocks(case.0, case.1);
    let ranks = coverage_of(case, 20, middle, signed_ranks);
    println!("signed ranks, 20 blocks, of the middle: {ranks:.4}");
    assert!(ranks < 0.91, "{ranks}");
}

#[test]
fn a_disturbed_run_moves_an_end_by_its_size_in_few_blocks_and_by_its_rank_in_twelve() {
    // 2 % of noise; then one run 30 % slower. How far that moves the lower end, in the mean.
    let moved = |block_count: usize, of: &dyn Fn(&[f64]) -> (f64, f64)| -> f64 {
        let all: f64 = (0..2000)
            .map(|seed| {
                let mut values = differences(Noise::Normal, NO_STALLS, block_count, seed);
                let before = of(&values).0;
                values[0] += 0.7_f64.ln();
                before - of(&values).0
            })
            .sum();
        1.0 - (-all / 2000.0).exp()
    };
    for (block_count, of_ranks, of_signs) in [(5, 0.26, 0.26), (10, 0.135, 0.01), (12, 0.013, 0.01)]
    {
        let ranks = moved(block_count, &signed_ranks);
        let signs = moved(block_count, &ends);
        println!("{block_count} blocks: signed ranks {ranks:.4}, signs {signs:.4}");
        assert!((ranks - of_ranks).abs() < 0.02, "{block_count}: {ranks}");
        assert!((signs - of_signs).abs() < 0.02, "{block_count}: {signs}");
    }
    // Two of twelve on one side move it by no more than the next block lies away.
    let mut values: Vec<f64> = (0..12).map(f64::from).collect();
    (values[0], values[1]) = (-1e6, -1e6);
    assert!(interval(&values).unwrap().low >= 2.0);
}

#[test]
fn the_difference_of_two_experiments_is_held_whatever_their_noise_and_their_stalls() {
    const EXPERIMENTS: u32 = 2000;
    let sometimes = (0.2, 0.7);
    for (noise, stalls) in [
        (Noise::Normal, NO_STALLS),
        (Noise::Heavy, NO_STALLS),
        (Noise::Skewed, NO_STALLS),
        (Noise::Disturbed, NO_STALLS),
        (Noise::Disturbed, sometimes),
    ] {
        // Stalls came with the second of the two.
        let truth = of_many_blocks(noise, stalls).0 - TRUTH;
        for blocks in [(5, 5), (5, 12), (12, 12), (24, 24)] {
            let held: u32 = (0..u64::from(EXPERIMENTS))
                .map(|seed| {
                    let of = |stalls, count, seed| {
                        interval(&differences(noise, stalls, count, seed)).unwrap()
                    };
                    let first = of(NO_STALLS, blocks.0, 2 * seed);
                    let found = difference(of(stalls, blocks.1, 2 * seed + 1), first);
                    u32::from(found.low <= truth && truth <= found.high)
                })
                .sum();
            let share = f64::from(held) / f64::from(EXPERIMENTS);
            println!("{noise:?}, stalls {stalls:?}, {blocks:?} blocks: {share:.4}");
            assert!(
                (0.94..=0.985).contains(&share),
                "{noise:?}, {blocks:?}: {share}"
            );
        }
    }
}

#[test]
fn a_percentile_bootstrap_of_five_blocks_holds_it_too_seldom() {
    let bootstrap = |differences: &[f64]| {
        let mut random = fastrand::Rng::with_seed(1);
        let mut means: Vec<f64> = (0..400)
            .map(|_| {
                let sum: f64 = (0..differences.len())
                    .map(|_| differences[random.usize(..differences.len())])
                    .sum();
                sum / f64::from(u32::try_from(differences.len()).unwrap())
            })
            .collect();
        means.sort_by(f64::total_cmp);
        (means[10], means[389])
    };
    let of_five = coverage_of((Noise::Disturbed, NO_STALLS), 5, TRUTH, bootstrap);
    println!("percentile bootstrap, 5 blocks: {of_five:.4}");
    assert!(of_five < 0.90, "{of_five}");
}

/// What this interval was before: the averages of all pairs (Walsh) which the distribution of the
/// signed-rank sum (Wilcoxon 1945) does not reject at 5 %.
fn signed_ranks(values: &[f64]) -> (f64, f64) {
    let mut averages = Vec::new();
    for (index, one) in values.iter().enumerate() {
        averages.extend(
            values[index..]
                .iter()
                .map(|other| f64::midpoint(*one, *other)),
        );
    }
    averages.sort_by(f64::total_cmp);
    let mut chances = vec![0.0; averages.len() + 1];
    chances[0] = 1.0;
    for rank in 1..=values.len() {
        for sum in (0..chances.len()).rev() {
            let with_rank = if sum >= rank {
                chances[sum - rank]
            } else {
                0.0
            };
            chances[sum] = f64::midpoint(chances[sum], with_rank);
        }
    }
    let mut tail = 0.0;
    let allowed = chances
        .iter()
        .take_while(|chance| {
            tail += **chance;
            1.0 - 2.0 * tail >= CONFIDENCE
        })
        .count();
    let cut = allowed.saturating_sub(1);
    (averages[cut], averages[averages.len() - 1 - cut])
}
