//! Which of several versions of a page is right.
//!
//! A version is right only where everything else is proven to be wrong: bytes that are no version
//! of this page at all, a damaged version of it that is older, or the right version itself with
//! some damage. What could be the newer good page (one without a checksum, one whose position in
//! the log is later or not known, or would be with another bit of it, zeros) is never beaten:
//! overwriting it would lose what was committed, and nobody would ever know.

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
                let pages = (versions[number].chunks(file.page_bytes()).zip(own))
                    .zip(versions[other].chunks(file.page_bytes()).zip(verdicts));
                (first_page..)
                    .zip(pages)
                    .filter_map(|(page, (own, other))| doubt_of_page(file, page, own, other))
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

/// Why the version `own` of a page may not be written over `other`.
fn doubt_of_page(
    file: &PageFile,
    page: u64,
    (own, own_verdict): (&[u8], &Verdict),
    (other, other_verdict): (&[u8], &Verdict),
) -> Option<Undecided> {
    if own == other {
        return None;
    }
    let doubt = doubt_beside(*own_verdict, *other_verdict).or_else(|| {
        has_later_position_by_one_bit(file, page, *own_verdict, (other, *other_verdict))
            .then_some(Undecided::MayBeNewer)
    })?;
    let is_own = doubt == Undecided::MayBeNewer && is_damaged_version_of(file, own, other);
    (!is_own).then_some(doubt)
}

/// Whether all that is wrong with `other`, which says that it is older, may be a flipped bit of
/// the very position that says so.
fn has_later_position_by_one_bit(
    file: &PageFile,
    page: u64,
    own: Verdict,
    (other, other_verdict): (&[u8], Verdict),
) -> bool {
    let (Verdict::Good(own), Verdict::Bad(Origin::Here(_))) = (own, other_verdict) else {
        return false;
    };
    let Some(Fields { position, .. }) = file.fields_of(other) else {
        return false;
    };
    let mut flipped = other.to_vec();
    position.into_iter().any(|at| {
        (0..8).any(|bit| {
            flipped[at] ^= 1 << bit;
            let verdict = file.judge(page, &flipped);
            flipped[at] ^= 1 << bit;
            matches!(verdict, Verdict::Good(position) if !position.is_before(own))
        })
    })
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
