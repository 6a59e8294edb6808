//! Which of several versions of a page is right.

use crate::Verdict;

/// What the verdicts on the versions of a page come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// The version of this number is right, and the others are not.
    Right(usize),
    /// Several are good: one of them is an older version that a disk kept for a newer one.
    SeveralGood,
    /// None is proven good.
    NoneGood,
}

/// Chooses among versions that all differ from each other, by their verdicts.
///
/// A version is right only where it alone is good. Beside one that is all zeros it is not
/// chosen: either could be the write that was lost.
#[must_use]
pub fn choose(verdicts: &[Verdict]) -> Choice {
    let mut good = verdicts
        .iter()
        .enumerate()
        .filter(|(_, verdict)| **verdict == Verdict::Good)
        .map(|(number, _)| number);
    match (good.next(), good.next()) {
        (Some(_), None) if verdicts.contains(&Verdict::Empty) => Choice::SeveralGood,
        (Some(number), None) => Choice::Right(number),
        (Some(_), Some(_)) => Choice::SeveralGood,
        (None, _) => Choice::NoneGood,
    }
}
