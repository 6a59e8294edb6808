//! Known answers, and the coverage by simulation.

use super::*;

#[test]
fn the_signed_rank_distribution_is_that_of_the_tables() {
    // Wilcoxon's table: with ten pairs a sum of at most 8 has a chance of 25/1024.
    let tail: f64 = signed_rank_chances(10)[..=8].iter().sum();
    assert!((tail - 25.0 / 1024.0).abs() < 1e-12);
    assert_eq!(cut(5), (0, 1.0 - 2.0 / 32.0));
    // Hollander and Wolfe: n = 10, the ninth smallest average, 95.1 %.
    let (left_out, confidence) = cut(10);
    assert_eq!(left_out, 8);
    assert!((confidence - 0.951_171_875).abs() < 1e-12);
}

#[test]
fn the_centre_and_the_ends_of_a_known_sample() {
    let differences = [1.0, 2.0, 3.0, 4.0, 100.0];
    let found = interval(&differences).unwrap();
    assert!((found.low - 1.0).abs() < 1e-12);
    assert!((found.high - 100.0).abs() < 1e-12);
    // 15 averages; the eighth is 3: the outlier does not move it as it moves the mean, 22.
    assert!((found.centre - 3.0).abs() < 1e-12);
    assert!((centre(&differences).unwrap() - 3.0).abs() < 1e-12);
    assert!(interval(&differences[..4]).is_none());
    assert!(centre(&[]).is_none());
}

/// A machine that drifts, is noisy, and every twentieth time is disturbed badly.
struct Machine {
    random: fastrand::Rng,
    /// Log speed that all share and that wanders.
    drift: f64,
    /// How much it loses with each run: it warms up, its disks fill.
    slope: f64,
}

impl Machine {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let slope = (random.f64() - 0.5) * 0.02;
        Self {
            random,
            drift: 0.0,
            slope,
        }
    }

    fn normal(&mut self) -> f64 {
        let angle = self.random.f64() * std::f64::consts::TAU;
        (-2.0 * (1.0 - self.random.f64()).ln()).sqrt() * angle.cos()
    }

    fn run(&mut self, true_log: f64) -> f64 {
        self.drift += self.slope + 0.005 * self.normal();
        let outlier = if self.random.f64() < 0.05 {
            -0.2 - 0.4 * self.random.f64()
        } else {
            0.0
        };
        true_log + self.drift + 0.02 * self.normal() + outlier
    }

    /// The log ratios of the second to the first of `contenders`, one for each block.
    fn experiment(&mut self, contenders: &[f64], block_count: usize) -> Vec<f64> {
        (0..block_count)
            .map(|_| {
                let mut order: Vec<usize> = (0..contenders.len()).collect();
                self.random.shuffle(&mut order);
                let mut reached = vec![0.0; contenders.len()];
                for index in order {
                    reached[index] = self.run(contenders[index]);
                }
                reached[1] - reached[0]
            })
            .collect()
    }
}

fn coverage(block_count: usize, of: impl Fn(&[f64], u64) -> (f64, f64)) -> f64 {
    const EXPERIMENTS: u32 = 6000;
    let truth = 0.08;
    let mut held = 0;
    for seed in 0..u64::from(EXPERIMENTS) {
        let mut machine = Machine::new(seed * 7919 + 13);
        let differences = machine.experiment(&[0.0, truth, -0.3, 0.1], block_count);
        let (low, high) = of(&differences, seed);
        held += u32::from(low <= truth && truth <= high);
    }
    f64::from(held) / f64::from(EXPERIMENTS)
}

#[test]
fn the_interval_holds_the_truth_as_often_as_it_says_with_drift_and_outliers() {
    for block_count in [5, 6, 7, 8, 10, 15, 20] {
        let share = coverage(block_count, |differences, _| {
            let found = interval(differences).unwrap();
            (found.low, found.high)
        });
        println!("{block_count} blocks: {share:.4}");
        // The simulation's own error is 0.3 %; five blocks give 93.75 % exactly.
        assert!(
            (0.93..=0.97).contains(&share),
            "{block_count} blocks: {share}"
        );
    }
}

#[test]
fn a_percentile_bootstrap_of_five_blocks_holds_it_too_seldom() {
    let bootstrap = |differences: &[f64], seed: u64| {
        let mut random = fastrand::Rng::with_seed(seed);
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
    let of_five = coverage(5, bootstrap);
    let of_ten = coverage(10, bootstrap);
    println!("percentile bootstrap: 5 blocks {of_five:.4}, 10 blocks {of_ten:.4}");
    assert!(of_five < 0.90, "{of_five}");
}
