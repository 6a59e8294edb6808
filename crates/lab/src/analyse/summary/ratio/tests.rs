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
fn said(blocks: &[[f64; 3]], comparisons: Comparisons) -> (Ratio, Verdict) {
    let pairs = |one: usize| -> Vec<(f64, f64)> {
        blocks.iter().map(|block| (block[one], block[0])).collect()
    };
    let noise = ratio(&pairs(1), Comparisons::ONE).unwrap();
    let found = ratio(&pairs(2), comparisons).unwrap();
    let verdict = if noise.differs() {
        Verdict::Inconclusive
    } else {
        found.judged(MARGIN, noise.reach()).0
    };
    (found, verdict)
}

/// Of a hundred experiments, how many end with such a word.
fn of_a_hundred(count: usize, true_log: f64, is_it: impl Fn(Verdict) -> bool) -> f64 {
    of_a_hundred_among(Comparisons::ONE, count, true_log, is_it)
}

/// The same of one of several comparisons.
fn of_a_hundred_among(
    comparisons: Comparisons,
    count: usize,
    true_log: f64,
    is_it: impl Fn(Verdict) -> bool,
) -> f64 {
    const EXPERIMENTS: u32 = 2000;
    let found: u32 = (0..u64::from(EXPERIMENTS))
        .map(|seed| {
            let mut machine = Machine(fastrand::Rng::with_seed(seed * 7919 + 29));
            u32::from(is_it(
                said(&machine.blocks(count, true_log, 0.0), comparisons).1,
            ))
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
                let floor = ratio(&noise, Comparisons::ONE).unwrap().reach();
                let found = said(&blocks, Comparisons::ONE).0;
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
    let average = ratio(&pairs, Comparisons::ONE).unwrap().together;
    assert!((average - 0.94).abs() < 0.005, "{average}");
    let (mut missed, mut unnamed) = (0, 0);
    for blocks in &all {
        let (found, verdict) = said(blocks, Comparisons::ONE);
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
        ratio(&pairs, Comparisons::ONE)
            .unwrap()
            .judged(MARGIN, 0.01),
        (Verdict::Faster, None)
    );
    (pairs[3].0, pairs[7].0) = (50.0, 50.0);
    let found = ratio(&pairs, Comparisons::ONE).unwrap();
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
        ratio(&pairs, Comparisons::ONE)
            .unwrap()
            .judged(MARGIN, 0.01)
            .0,
        Verdict::Equivalent
    );
    pairs[3].0 = 100.0;
    assert_eq!(
        ratio(&pairs, Comparisons::ONE)
            .unwrap()
            .judged(MARGIN, 0.01)
            .0,
        Verdict::Inconclusive
    );
}

#[test]
fn all_words_of_a_report_are_right_together_as_often_as_one_alone() {
    // As many comparisons as a report of three contenders has under so many loads, and over all:
    // under each load one contender of each kind, with its own noise and its own second name.
    const EXPERIMENTS: u32 = 400;
    // Just beyond the margin, so that EQUIVALENT is wrong; and equal, so that the two others are.
    let cases = [
        ((1.05_f64 + 1e-9).ln(), Verdict::Equivalent),
        ((0.95_f64 - 1e-9).ln(), Verdict::Equivalent),
        (0.0, Verdict::Faster),
        (0.0, Verdict::Slower),
    ];
    for (block_count, count) in [(12, 12), (12, 40), (24, 12), (24, 40)] {
        let wrong = |comparisons: Comparisons| -> f64 {
            let of_one = |experiment: u64| {
                (0..count).any(|place: usize| {
                    let (true_log, word) = cases[place % cases.len()];
                    let seed = experiment * 1000 + place as u64;
                    let mut machine = Machine(fastrand::Rng::with_seed(seed * 7919 + 37));
                    said(&machine.blocks(block_count, true_log, 0.0), comparisons).1 == word
                })
            };
            let found: u32 = (0..u64::from(EXPERIMENTS))
                .map(|experiment| u32::from(of_one(experiment)))
                .sum();
            f64::from(found) / f64::from(EXPERIMENTS)
        };
        let (alone, together) = (wrong(Comparisons::ONE), wrong(Comparisons::of(count)));
        println!(
            "{block_count} blocks, {count} comparisons: a wrong word in {alone:.3}, together {together:.3}"
        );
        assert!(alone > 0.08, "{alone}: the case shows nothing");
        // The simulation's own error is 1.1 %.
        assert!(together <= 0.06, "{block_count}, {count}: {together}");
    }
}

#[test]
fn many_comparisons_cost_twelve_blocks_much_of_what_they_find_and_twenty_four_little() {
    let few_and_many = [(1, 80.0), (2, 70.0), (6, 60.0), (20, 38.0), (100, 25.0)];
    for (count, of_twelve) in few_and_many {
        let comparisons = Comparisons::of(count);
        for (block_count, at_least) in [(12, of_twelve), (15, of_twelve), (18, 60.0), (24, 88.0)] {
            let of = |true_log, word| {
                of_a_hundred_among(comparisons, block_count, true_log, |found| found == word)
            };
            let eight = of(1.08_f64.ln(), Verdict::Faster);
            let fifteen = of(1.15_f64.ln(), Verdict::Faster);
            let equal = of(0.0, Verdict::Equivalent);
            println!(
                "{count} comparisons, {block_count} blocks: 8 % found in {eight:.0}, 15 % in {fifteen:.0}, equal in {equal:.0} of 100"
            );
            assert!(eight >= at_least, "{count}, {block_count} blocks: {eight}");
        }
    }
}

#[test]
fn more_comparisons_than_the_blocks_can_carry_are_a_look() {
    let pairs: Vec<(f64, f64)> = (0..12)
        .map(|block| (1200.0 + f64::from(block), 1000.0))
        .collect();
    for (count, verdict) in [(102, Verdict::Faster), (103, Verdict::Look)] {
        let found = ratio(&pairs, Comparisons::of(count)).unwrap();
        assert_eq!(found.judged(MARGIN, 0.01).0, verdict, "{count}");
    }
    let found = ratio(&pairs, Comparisons::of(103)).unwrap();
    assert_eq!(found.blocks_for_a_claim(), 13);
}
