//! Which of several versions of a page is right.
//!
//! A version is right only where everything else is proven to be wrong: bytes that are no version
//! of this page at all, a damaged version of it that is older, or the right version itself with
//! some damage. What could be the newer good page (one without a checksum, one whose position in the log is later or not known, zeros)
//! is never beaten: overwriting it would lose what was committed, and nobody would ever know.

use std::ops::Range;

use crate::file::Fields;
use crate::{Origin, PageFile, Verdict};

/// What the versions of a unit come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// The version of this number is right, and the others are not.
    Right(usize),
    /// None is proven to be right, and why.
    Undecided(Undecided),
}

/// Why no version is proven to be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Undecided {
    /// Several are good: one of them is an older version that a disk kept for a newer one.
    SeveralGood,
    /// One is good; another, whose checksum is wrong, may be newer.
    MayBeNewer,
    /// One is good; another has no checksum that could be judged.
    NotJudged,
    /// One is good; another is all zeros: either could be the write that was lost.
    Zeros,
    /// None is good.
    NoneGood,
}

/// Chooses among versions of one unit, a page or several that lie side by side, the first of
/// which is page `first_page` of its file.
#[must_use]
pub fn choose(file: &PageFile, first_page: u64, versions: &[&[u8]]) -> Choice {
    let judged: Vec<Vec<Verdict>> = versions
        .iter()
        .map(|unit| file.judge_unit(first_page, unit))
        .collect();
    let mut undecided: Option<Undecided> = None;
    for (number, own) in judged.iter().enumerate() {
        let is_sound = own
            .iter()
            .all(|verdict| verdict.is_good() || *verdict == Verdict::Empty);
        if !is_sound || !own.iter().any(|verdict| verdict.is_good()) {
            continue;
        }
        let others = judged.iter().enumerate().filter(|(n, _)| *n != number);
        let doubt = others
            .filter_map(|(other, verdicts)| {
                let pages = versions[number]
                    .chunks(file.page_bytes())
                    .zip(versions[other].chunks(file.page_bytes()));
                own.iter()
                    .zip(verdicts)
                    .zip(pages)
                    .filter(|(_, (own, other))| own != other)
                    .filter_map(|(verdicts, (own, other))| {
                        let doubt = doubt_beside(*verdicts.0, *verdicts.1)?;
                        let is_own = doubt == Undecided::MayBeNewer
                            && is_damaged_version_of(file, own, other);
                        (!is_own).then_some(doubt)
                    })
                    .min()
            })
            .min();
        match doubt {
            None => return Choice::Right(number),
            Some(doubt) => {
                undecided = Some(undecided.map_or(doubt, |before| before.min(doubt)));
            }
        }
    }
    Choice::Undecided(undecided.unwrap_or(Undecided::NoneGood))
}

/// Whether `other`, whose checksum is wrong, is what became of the good page `own`: another version
/// would have another checksum stored. Where nothing differs but the checksum and the position
/// they are damaged themselves, or nothing is lost with them.
fn is_damaged_version_of(file: &PageFile, own: &[u8], other: &[u8]) -> bool {
    let fields = file.fields_of(own);
    let differ_outside = |fields: &[Range<usize>]| {
        (own.iter().zip(other).enumerate()).any(|(at, (own, other))| {
            own != other && !fields.iter().any(|field| field.contains(&at))
        })
    };
    match fields {
        None => false,
        Some(Fields { position, sum }) => {
            let has_same = |field: &Range<usize>| own[field.clone()] == other[field.clone()];
            // A sum of 32 bits is proof by itself, unless the rest is of another version and only
            // the block with the sum was not written; one of 16 bits beside the same position.
            let is_proof = if sum.len() >= 4 {
                !file.may_have_newer_head(own, other)
            } else {
                has_same(&position)
            };
            has_same(&sum) && is_proof || !differ_outside(&[position, sum])
        }
    }
}

/// Why a page that is judged so may not be written over another version; `None` where that is
/// proven to be wrong.
fn doubt_beside(own: Verdict, other: Verdict) -> Option<Undecided> {
    match (own, other) {
        (Verdict::Good(_), Verdict::Bad(Origin::Elsewhere)) => None,
        (Verdict::Good(own), Verdict::Bad(Origin::Here(other))) => {
            (!other.is_before(own)).then_some(Undecided::MayBeNewer)
        }
        (Verdict::Good(_), Verdict::Good(_)) => Some(Undecided::SeveralGood),
        (Verdict::Good(_), Verdict::Unknown) => Some(Undecided::NotJudged),
        (Verdict::Good(_), Verdict::Empty) | (Verdict::Empty, _) => Some(Undecided::Zeros),
        (Verdict::Bad(_) | Verdict::Unknown, _) => Some(Undecided::NoneGood),
    }
}
