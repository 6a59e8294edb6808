//! What is not as it should be in a stretch: pure, from its copies and what is known of its pages.

use std::collections::BTreeSet;

use smallvec::SmallVec;
use spindle_base::{BLOCK_SIZE_BYTES, DiskNumber};
use spindle_pages::{PageFile, Undecided};

use crate::background::scrub::copies::Copies;
use crate::background::scrub::judging::{
    Judgement, Versions, has_bad_page, judge_versions, unit_blocks,
};

/// A block that is wrong in some lanes and right in another.
#[derive(Debug)]
pub struct Mend {
    pub block: u64,
    pub right_lane: usize,
    pub wrong_lanes: SmallVec<[usize; 2]>,
}

/// Why a place is doubtful.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// It is proven what is right.
    Proven,
    /// Nothing is proven; the copy on the distrusted disk loses on a person's word.
    Distrusted,
    /// No version of the page is proven to be right.
    Undecided(Undecided),
    /// The file has no pages that could be judged, or not all of the page is there.
    NoPages,
    /// All copies agree on a bad page.
    AllBad,
    /// No copy can be read.
    Unreadable,
}

/// A place that is not as it should be.
#[derive(Debug)]
pub struct Place {
    pub first: u64,
    pub blocks: u64,
    /// Whether it is a page that may look otherwise later.
    pub is_page: bool,
    pub doubt: Doubt,
    pub mends: Vec<Mend>,
    pub digest: u32,
}

/// Every place of the stretch that is not as it should be, in order, and how many pages were
/// judged.
pub fn examine(
    copies: &Copies,
    pages: Option<&PageFile>,
    first: u64,
    end: u64,
    distrusted: Option<DiskNumber>,
) -> (Vec<Place>, u64) {
    let mut doubtful = copies.doubtful_blocks();
    let mut places = Vec::new();
    let mut judged_count = 0;
    if let Some(pages) = pages {
        let unit = unit_blocks(pages);
        let mut at = first - first % unit;
        while at < end {
            if at >= first && at + unit <= end {
                judged_count += examine_unit(copies, pages, at, unit, &mut doubtful, &mut places);
            }
            at += unit;
        }
    }
    examine_blocks(copies, pages.is_some(), &doubtful, &mut places);
    places.sort_by_key(|place| place.first);
    if let Some(disk) = distrusted {
        for place in &mut places {
            take_the_word(copies, pages, place, disk);
        }
    }
    (places, judged_count)
}

/// Where nothing is proven, and every block that differs has one version on the disks that are
/// trusted and another on the one that is not: that one is wrong, because a person says so. But no
/// word makes a page right that is proven to be bad: a good one is not given away for it.
fn take_the_word(
    copies: &Copies,
    pages: Option<&PageFile>,
    place: &mut Place,
    distrusted: DiskNumber,
) {
    if !matches!(place.doubt, Doubt::Undecided(_) | Doubt::NoPages) {
        return;
    }
    let mut mends = Vec::new();
    // All of the place as the distrusted disk has it, and as the others have.
    let (mut given_away, mut kept) = (Vec::new(), Vec::new());
    for block in place.first..place.first + place.blocks {
        let versions = copies.versions(block);
        if versions.len() < 2 {
            for (bytes, _) in &versions {
                given_away.extend_from_slice(bytes);
                kept.extend_from_slice(bytes);
            }
            continue;
        }
        let lane = copies.piece_at(block).and_then(|piece| {
            let mut lanes = piece.copies.iter();
            lanes.find(|(_, copy, _)| copy.disk() == distrusted)
        });
        let Some((lane, ..)) = lane else {
            return;
        };
        let mut trusted = versions
            .iter()
            .filter(|(_, lanes)| lanes & !(1 << lane) != 0);
        let (Some((right, right_lanes)), None) = (trusted.next(), trusted.next()) else {
            return;
        };
        let mut wrong = versions.iter().filter(|(bytes, _)| bytes != right);
        given_away.extend(wrong.next().into_iter().flat_map(|(bytes, _)| *bytes));
        kept.extend_from_slice(right);
        mends.push(Mend {
            block,
            right_lane: (right_lanes & !(1 << lane)).trailing_zeros() as usize,
            wrong_lanes: SmallVec::from_slice(&[*lane]),
        });
    }
    let loses_good_page = pages.is_some_and(|pages| {
        let is_whole = |bytes: &[u8]| bytes.len() as u64 == place.blocks * BLOCK_SIZE_BYTES;
        place.first.is_multiple_of(unit_blocks(pages))
            && place.blocks.is_multiple_of(unit_blocks(pages))
            && is_whole(&given_away)
            && is_whole(&kept)
            && would_lose_good_page(pages, place.first, &given_away, &kept)
    });
    if !mends.is_empty() && !loses_good_page {
        place.doubt = Doubt::Distrusted;
        place.mends = mends;
    }
}

/// Whether a good page would be written over by one that is proven to be bad.
fn would_lose_good_page(pages: &PageFile, first: u64, given_away: &[u8], kept: &[u8]) -> bool {
    let first_page = first * BLOCK_SIZE_BYTES / pages.page_bytes() as u64;
    let kept = pages.judge_unit(first_page, kept);
    (pages.judge_unit(first_page, given_away).iter())
        .zip(&kept)
        .any(|(given_away, kept)| given_away.is_good() && kept.is_bad())
}

/// Judges one unit where all of it is there; how many pages were judged. What it settles is no
/// longer doubtful.
fn examine_unit(
    copies: &Copies,
    pages: &PageFile,
    at: u64,
    unit: u64,
    doubtful: &mut BTreeSet<u64>,
    places: &mut Vec<Place>,
) -> u64 {
    let offset_bytes = at * BLOCK_SIZE_BYTES;
    let judged_count = (unit * BLOCK_SIZE_BYTES).div_ceil(pages.page_bytes() as u64);
    let is_doubtful = doubtful.range(at..at + unit).next().is_some();
    if !is_doubtful && let Some(lane) = whole_lane(copies, at, unit) {
        // The usual way: all copies agree, and the page lies in one piece.
        if has_bad_page(pages, offset_bytes, copies.run(lane, at, unit)) {
            places.push(page_place(copies, at, unit, Doubt::AllBad, Vec::new()));
        }
        return judged_count;
    }
    let versions: Vec<Versions<'_>> = (at..at + unit)
        .map(|block| copies.versions(block))
        .collect();
    if versions.iter().any(SmallVec::is_empty) {
        return 0;
    }
    let judged = match judge_versions(pages, offset_bytes, &versions) {
        Judgement::Fine => Ok(vec![0; versions.len()]),
        Judgement::Right(right) => Ok(right),
        Judgement::AllBad => Err(Doubt::AllBad),
        Judgement::Undecided(why) => Err(Doubt::Undecided(why)),
    };
    let right = match judged {
        Ok(right) => right,
        Err(doubt) => {
            places.push(page_place(copies, at, unit, doubt, Vec::new()));
            settle(doubtful, at, unit);
            return judged_count;
        }
    };
    let mends: Vec<Mend> = (at..)
        .zip(versions.iter().zip(right))
        .filter_map(|(block, (versions, right))| mend_of(copies, block, versions, right))
        .collect();
    if !mends.is_empty() {
        places.push(page_place(copies, at, unit, Doubt::Proven, mends));
    }
    settle(doubtful, at, unit);
    judged_count
}

fn settle(doubtful: &mut BTreeSet<u64>, at: u64, unit: u64) {
    for block in at..at + unit {
        doubtful.remove(&block);
    }
}

/// The lane that has the whole unit read, where one has.
fn whole_lane(copies: &Copies, at: u64, unit: u64) -> Option<usize> {
    let lane = copies.piece_at(at)?.copies.first()?.0;
    let has_block = |block| {
        let piece = copies.piece_at(block);
        piece.is_some_and(|piece| piece.copies.iter().any(|(other, ..)| *other == lane))
    };
    (at..at + unit).all(has_block).then_some(lane)
}

fn page_place(copies: &Copies, first: u64, blocks: u64, doubt: Doubt, mends: Vec<Mend>) -> Place {
    Place {
        first,
        blocks,
        is_page: true,
        doubt,
        mends,
        digest: copies.digest(first, blocks),
    }
}

/// What is to be written so that every lane has the right version.
fn mend_of(copies: &Copies, block: u64, versions: &Versions<'_>, right: usize) -> Option<Mend> {
    let right_lanes = versions[right].1;
    let others = versions.iter().enumerate().filter(|(n, _)| *n != right);
    let wrong = others.fold(0_u8, |lanes, (_, (_, more))| lanes | more);
    let wrong_lanes: SmallVec<[usize; 2]> = (0..8)
        .filter(|lane| wrong >> lane & 1 != 0)
        .chain(copies.unreadable_lanes(block))
        .collect();
    (!wrong_lanes.is_empty()).then_some(Mend {
        block,
        right_lane: right_lanes.trailing_zeros() as usize,
        wrong_lanes,
    })
}

/// Blocks that no page has settled: where all that can be read agree, what cannot is written
/// again; else nothing tells what is right. Neighbours make one place.
fn examine_blocks(
    copies: &Copies,
    is_page: bool,
    doubtful: &BTreeSet<u64>,
    places: &mut Vec<Place>,
) {
    let mut found: Vec<Place> = Vec::new();
    for block in doubtful {
        let versions = copies.versions(*block);
        let (doubt, mend) = match versions.len() {
            0 => (Doubt::Unreadable, None),
            1 => (Doubt::Proven, mend_of(copies, *block, &versions, 0)),
            _ => (Doubt::NoPages, None),
        };
        let digest = copies.digest(*block, 1);
        match found.last_mut() {
            Some(last) if last.first + last.blocks == *block && last.doubt == doubt && !is_page => {
                last.blocks += 1;
                last.mends.extend(mend);
            }
            _ => found.push(Place {
                first: *block,
                blocks: 1,
                is_page,
                doubt,
                mends: mend.into_iter().collect(),
                digest,
            }),
        }
    }
    places.append(&mut found);
}
