//! What is found, what is not, and what is never said, by simulation. The seeds are fixed.

use super::*;

const MARGIN: f64 = 0.05;

/// Runs with 2 % of noise, of which one in twenty is 18 to 45 % too slow.
struct Machine(fastrand::Rng);

impl Machine {
    fn run(&mut self, true_log: f64) -> f64 {
        let angle = self.0.f64() * std::f64::consts::TAU;
        let normal = (-2.0 * (1.0 - self.0.f64()).ln()).sqrt() * angle.cos();
        let disturbed = if self.0.f64() < 0.05 {
            -0.2 - 0.4 * self.0.f64()
        } else {
            0.0
        };
        1000.0 * (true_log + 0.02 * normal + disturbed).exp()
    }

    /// The baseline under its two names and a contender that stalls so often, in each block.
    fn blocks(&mut self, count: usize, true_log: f64, stalls: f64) -> Vec<[f64; 3]> {
        (0..count)
            .map(|_| {
                let stalled = if self.0.f64() < stalls { 0.7 } else { 1.0 };
                [self.run(0.0), self.run(0.0), self.run(true_log) * stalled]
            })
            .collect()
    }
}

/// What the lab says of these blocks, as `summary::load` finds it.
fn said(blocks: &[[f64; 3]]) -> (Ratio, Verdict) {
    let pairs = |one: usize| -> Vec<(f64, f64)> {
        blocks.iter().map(|block| (block[one], block[0])).collect()
    };
    let noise = ratio(&pairs(1)).unwrap();
    let found = ratio(&pairs(2)).unwrap();
    let verdict = if noise.differs() {
        Verdict::Inconclusive
    } else {
        found.judged(MARGIN, noise.reach()).0
    };
    (found, verdict)
}

/// Of a hundred experiments, how many end with such a word.
fn of_a_hundred(count: usize, true_log: f64, is_it: impl Fn(Verdict) -> bool) -> f64 {
    const EXPERIMENTS: u32 = 2000;
    let found: u32 = (0..u64::from(EXPERIMENTS))
        .map(|seed| {
            let mut machine = Machine(fastrand::Rng::with_seed(seed * 7919 + 29));
            u32::from(is_it(said(&machine.blocks(count, true_log, 0.0)).1))
        })
        .sum();
    100.0 * f64::from(found) / f64::from(EXPERIMENTS)
}

#[test]
fn eight_percent_more_is_found_in_twelve_blocks_and_never_claimed_from_fewer() {
    let true_log = 1.08_f64.ln();
    let is_faster = |verdict| verdict == Verdict::Faster;
    // Of 24 the baseline's second name costs four: it lies apart by chance now and then.
    for (count, at_least) in [(12, 80.0), (24, 94.0)] {
        let found = of_a_hundred(count, true_log, is_faster);
        println!("{count} blocks: found in {found:.1} of 100");
        assert!(found >= at_least, "{count} blocks: {found}");
    }
    for count in [5, 10] {
        let looks = of_a_hundred(count, true_log, |verdict| verdict == Verdict::Look);
        let claims = of_a_hundred(count, true_log, is_faster);
        assert!(looks > 90.0 && claims < 0.1, "{looks}, {claims}");
        // What the same interval would have found there, were it a claim.
        let beyond: u32 = (0..2000)
            .map(|seed| {
                let mut machine = Machine(fastrand::Rng::with_seed(seed * 7919 + 29));
                let blocks = machine.blocks(count, true_log, 0.0);
                let noise: Vec<_> = blocks.iter().map(|block| (block[1], block[0])).collect();
                let floor = ratio(&noise).unwrap().reach();
                let found = said(&blocks).0;
                u32::from(judge(found.interval(), MARGIN, floor) == Verdict::Faster)
            })
            .sum();
        println!("{count} blocks: would be found in {} of 100", beyond / 20);
        let bounds = if count == 5 { 300..700 } else { 1200..1600 };
        assert!(bounds.contains(&beyond), "{count} blocks: {beyond} of 2000");
    }
}

#[test]
fn where_there_is_no_difference_none_is_claimed_and_five_blocks_claim_nothing() {
    for count in [5, 10, 12, 24] {
        let is_claim = |verdict| matches!(verdict, Verdict::Faster | Verdict::Slower);
        let claimed = of_a_hundred(count, 0.0, is_claim);
        assert!(claimed < 1.0, "{count} blocks: {claimed} of 100");
    }
    let equivalent = of_a_hundred(24, 0.0, |verdict| verdict == Verdict::Equivalent);
    assert!(equivalent > 80.0, "{equivalent}");
}

#[test]
fn what_the_interval_misses_for_stalls_is_named_or_was_not_met_and_is_never_equivalent() {
    // A fifth of its runs at 70 %: over many blocks 6 % less, in the middle one 1 %.
    const EXPERIMENTS: u32 = 2000;
    let all: Vec<Vec<[f64; 3]>> = (0..u64::from(EXPERIMENTS))
        .map(|seed| Machine(fastrand::Rng::with_seed(seed * 7919 + 31)).blocks(12, 0.0, 0.2))
        .collect();
    let pairs: Vec<(f64, f64)> = all
        .iter()
        .flatten()
        .map(|block| (block[2], block[0]))
        .collect();
    let average = ratio(&pairs).unwrap().together;
    assert!((average - 0.94).abs() < 0.005, "{average}");
    let (mut missed, mut unnamed) = (0, 0);
    for blocks in &all {
        let (found, verdict) = said(blocks);
        let holds = found.low.unwrap() <= average && average <= found.high.unwrap();
        missed += u32::from(!holds);
        unnamed += u32::from(!holds && found.far_below == 0);
        assert!(verdict != Verdict::Equivalent || found.together >= 0.95);
    }
    let share = |count: u32| f64::from(count) / f64::from(EXPERIMENTS);
    println!(
        "the interval misses the average in {:.3}, unnamed {:.3}",
        share(missed),
        share(unnamed)
    );
    assert!(share(missed) > 0.3, "{missed}");
    // Twelve blocks meet no stall with a chance of 0.8^12, which is 6.9 %.
    assert!(share(unnamed) < 0.07, "{unnamed}");
}

#[test]
fn a_middle_that_all_blocks_together_contradict_is_no_verdict() {
    // Ten percent faster in ten blocks of twelve, and hardly anything in two.
    let mut pairs: Vec<(f64, f64)> = (0..12)
        .map(|block| (1100.0 + f64::from(block % 5), 1000.0))
        .collect();
    assert_eq!(
        ratio(&pairs).unwrap().judged(MARGIN, 0.01),
        (Verdict::Faster, None)
    );
    (pairs[3].0, pairs[7].0) = (50.0, 50.0);
    let found = ratio(&pairs).unwrap();
    assert_eq!((found.far_below, found.far_above), (2, 0));
    assert!(
        found.low.unwrap() > 1.05 && found.together < 1.0,
        "{found:?}"
    );
    let (verdict, doubt) = found.judged(MARGIN, 0.01);
    assert_eq!(verdict, Verdict::Inconclusive);
    assert!(doubt.unwrap().forbids_a_claim());
    // As a time: longer in the middle block, shorter in sum.
    assert_eq!(found.judged_as_time(MARGIN, 0.01).0, Verdict::Inconclusive);
    // Of less, equivalence is not said either.
    let mut pairs: Vec<(f64, f64)> = (0..12)
        .map(|block| (1000.0 + f64::from(block % 5), 1000.0))
        .collect();
    assert_eq!(
        ratio(&pairs).unwrap().judged(MARGIN, 0.01).0,
        Verdict::Equivalent
    );
    pairs[3].0 = 100.0;
    assert_eq!(
        ratio(&pairs).unwrap().judged(MARGIN, 0.01).0,
        Verdict::Inconclusive
    );
}
