//! One stretch: its copies read and compared, its pages judged, and what is proven put right.

use spindle_sync::atomic::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use smallvec::SmallVec;
use spindle_base::BLOCK_SIZE_BYTES;
use spindle_pages::{PageFile, Undecided};

use super::copies::Copies;
use super::cursor::Stretch;
use super::judging::{Judgement, Versions, has_bad_page, judge_versions, unit_blocks};
use super::run::{Run, Suspect};
use super::{Finding, FindingKind, Known, ScrubStep};
use crate::error::GroupError;
use crate::event::{Event, EventKind, Severity};
use crate::file::File;
use crate::group::Group;
use crate::io::{BadBlocks, BadPlace, Mended};

/// A block that is wrong in some lanes and right in another.
#[derive(Debug)]
struct Mend {
    block: u64,
    right_lane: usize,
    wrong_lanes: SmallVec<[usize; 2]>,
}

/// Why a place is doubtful.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doubt {
    /// It is proven what is right.
    Proven,
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
struct Place {
    first: u64,
    blocks: u64,
    /// Whether it is a page that may look otherwise later.
    is_page: bool,
    doubt: Doubt,
    mends: Vec<Mend>,
    digest: u32,
}

impl Group {
    /// One stretch, or one more look at what looked wrong.
    pub(super) fn scrub_step(&self, run: &Run, now_ms: u64) -> Result<ScrubStep, GroupError> {
        if let Some(stretch) = self.next_stretch(run) {
            let answer = self.scrub_stretch(run, &stretch, now_ms, None);
            run.cursor.lock().finish(&stretch);
            return answer.map(|()| ScrubStep::Did);
        }
        if let Some(suspect) = run.due_suspect(now_ms) {
            let answer = match self.file(suspect.file) {
                Some(file) => {
                    let stretch = Stretch {
                        file,
                        first: suspect.first_block,
                        end: suspect.first_block + suspect.blocks,
                    };
                    self.scrub_stretch(run, &stretch, now_ms, Some(&suspect))
                }
                None => Ok(()),
            };
            run.finish_suspect(&suspect);
            return answer.map(|()| ScrubStep::Did);
        }
        Ok(if run.has_suspects() {
            ScrubStep::Waiting
        } else {
            ScrubStep::Idle
        })
    }

    fn scrub_stretch(
        &self,
        run: &Run,
        stretch: &Stretch,
        now_ms: u64,
        again: Option<&Suspect>,
    ) -> Result<(), GroupError> {
        let file = &stretch.file;
        let mut bad_places: Vec<BadPlace> = Vec::new();
        let mut findings: Vec<(Place, Finding)> = Vec::new();
        let (mut known, mut is_fresh) = run.known(file.id, || self.known(file));
        loop {
            let held = file.range_lock.shared(stretch.first, stretch.end);
            if file.is_removed() {
                return Ok(());
            }
            let (first, end) = (stretch.first, stretch.end);
            let (copies, read_bytes) = loop {
                let read = self.read_copies(file, first, end, run.scope());
                if self.membership.turns_count() == read.0.turns_count() {
                    break read;
                }
            };
            run.read_bytes.fetch_add(read_bytes, Ordering::Relaxed);
            let (places, judged_count) = examine(&copies, known.pages.as_ref(), first, end);
            if !places.is_empty() && !is_fresh {
                // What is told, and what is written, does not rest on what a file was an hour
                // ago: its server may have been stopped and its checksums switched off since.
                run.forget(file.id);
                drop(held);
                (known, is_fresh) = run.known(file.id, || self.known(file));
                continue;
            }
            run.judged_pages_count
                .fetch_add(judged_count, Ordering::Relaxed);
            if again.is_none() {
                let done: u64 = copies.pieces.iter().map(|piece| piece.blocks).sum();
                let done_bytes = done * BLOCK_SIZE_BYTES;
                run.done_bytes.fetch_add(done_bytes, Ordering::Relaxed);
            }
            for place in places {
                if is_suspect(run, file, &place, now_ms, again) {
                    continue;
                }
                let mut finding = self.describe_place(&known, file, &copies, &place);
                if run.repairs() && !place.mends.is_empty() {
                    finding.kind = FindingKind::Repaired;
                    self.mend_place(file, &copies, &place, &mut bad_places);
                }
                findings.push((place, finding));
            }
            break;
        }
        let moved = self.move_from(bad_places)?;
        for (place, mut finding) in findings {
            for (file_id, index_blocks, mended) in &moved {
                let is_here = *file_id == file.id
                    && index_blocks
                        .iter()
                        .any(|block| place.mends.iter().any(|mend| mend.block == *block));
                if is_here {
                    finding.kind = match mended {
                        Mended::Moved => FindingKind::Moved,
                        Mended::Offline => FindingKind::DiskOffline,
                        Mended::Gone => finding.kind,
                    };
                }
            }
            self.tell(run, finding);
        }
        Ok(())
    }

    /// Asks the layer above, without any lock.
    fn known(&self, file: &File) -> Known {
        let judge = self.scrubs.judge.read().clone();
        judge.map_or_else(
            || Known {
                title: format!("file {}", file.id),
                pages: None,
            },
            |judge| judge.look(file.id),
        )
    }

    /// Writes what is right over what is wrong; places that do not take it are noted.
    fn mend_place(
        &self,
        file: &Arc<File>,
        copies: &Copies,
        place: &Place,
        bad_places: &mut Vec<BadPlace>,
    ) {
        for mend in &place.mends {
            let Some(piece) = copies.piece_at(mend.block) else {
                continue;
            };
            let inside_blocks = piece.inside_blocks + (mend.block - piece.at_block);
            let copy_of = |lane: usize| {
                let found = piece.copies.iter().find(|(other, ..)| *other == lane);
                found.map(|(_, copy, _)| *copy)
            };
            let Some(source) = copy_of(mend.right_lane) else {
                continue;
            };
            let lives = self
                .disks
                .lives(piece.copies.iter().map(|(_, copy, _)| *copy));
            if self.membership.turns_count() != copies.turns_count() {
                // What was read may be what a disk had before it lost the rest: the next scrub
                // finds it again.
                continue;
            }
            let good = copies.block(mend.right_lane, mend.block);
            for copy in mend.wrong_lanes.iter().filter_map(|lane| copy_of(*lane)) {
                let inside_bytes = inside_blocks * BLOCK_SIZE_BYTES;
                let Err(reason) = self.mend_in_place(file, copy, inside_bytes, good) else {
                    continue;
                };
                let bad = BadPlace {
                    file: Arc::clone(file),
                    index: piece.index,
                    copy,
                    bad: vec![BadBlocks {
                        inside_blocks,
                        blocks: 1,
                        source,
                    }],
                    lives: lives.clone(),
                    reason,
                };
                match bad_places.iter_mut().find(|other| other.is_same(&bad)) {
                    Some(other) => {
                        other.bad.extend(&bad.bad);
                        other.lives.extend(bad.lives);
                    }
                    None => bad_places.push(bad),
                }
            }
        }
    }

    /// Moves copies, without any lock; the file blocks concerned and what became of each.
    fn move_from(&self, places: Vec<BadPlace>) -> Result<Vec<MovedBlocks>, GroupError> {
        let mut moved = Vec::new();
        for place in places {
            let schedule = place.file.map.read().schedule();
            let blocks = place
                .bad
                .iter()
                .map(|bad| schedule.file_block(place.index, bad.inside_blocks))
                .collect();
            moved.push((place.file.id, blocks, self.move_copy(&place)?));
        }
        Ok(moved)
    }

    fn describe_place(
        &self,
        known: &Known,
        file: &File,
        copies: &Copies,
        place: &Place,
    ) -> Finding {
        let offset_bytes = place.first * BLOCK_SIZE_BYTES;
        let length_bytes = place.blocks * BLOCK_SIZE_BYTES;
        let page = known
            .pages
            .map(|pages| offset_bytes / pages.page_bytes() as u64);
        let disks = self.wrong_disks(copies, place);
        let where_ = match page {
            Some(page) => format!("page {page} (offset {offset_bytes}) of {}", known.title),
            None => format!("{length_bytes} bytes at {offset_bytes} of {}", known.title),
        };
        let names = if disks.is_empty() {
            "every disk".to_owned()
        } else {
            disks.join(", ")
        };
        let (kind, message) = match place.doubt {
            Doubt::Proven => (
                FindingKind::Repairable,
                format!("{where_}: the copy on {names} is wrong, and another is right"),
            ),
            Doubt::Undecided(why) => (
                FindingKind::CopiesDiffer,
                format!(
                    "{where_}: the copies on {names} differ, and {}; nothing was changed",
                    reason(why)
                ),
            ),
            Doubt::NoPages => (
                FindingKind::CopiesDiffer,
                format!(
                    "{where_}: the copies on {names} differ, and nothing tells which is right; \
                     nothing was changed"
                ),
            ),
            Doubt::AllBad => (
                FindingKind::BadPage,
                format!(
                    "{where_}: the page's checksum is wrong, in every copy: restore it from a \
                     backup"
                ),
            ),
            Doubt::Unreadable => (
                FindingKind::Unreadable,
                format!("{where_}: no copy can be read: restore it from a backup"),
            ),
        };
        Finding {
            kind,
            file: file.id,
            title: known.title.clone(),
            offset_bytes,
            length_bytes,
            page,
            disks,
            message,
        }
    }

    /// Names of the disks that are wrong; where that is not proven, of all that were compared.
    fn wrong_disks(&self, copies: &Copies, place: &Place) -> Vec<String> {
        let mut names: BTreeSet<String> = BTreeSet::new();
        for block in place.first..place.first + place.blocks {
            let Some(piece) = copies.piece_at(block) else {
                continue;
            };
            let mend = place.mends.iter().find(|mend| mend.block == block);
            let differs = copies.versions(block).len() > 1;
            for (lane, copy, _) in &piece.copies {
                let is_wrong = match mend {
                    Some(mend) => mend.wrong_lanes.contains(lane),
                    None => place.mends.is_empty() && (differs || place.doubt == Doubt::AllBad),
                };
                if is_wrong && let Some(disk) = self.disks.get(copy.disk()) {
                    names.insert(disk.name().to_string());
                }
            }
        }
        names.into_iter().collect()
    }

    fn tell(&self, run: &Run, mut finding: Finding) {
        let (kind, severity) = match finding.kind {
            FindingKind::Repaired => (EventKind::BlockRepaired, Severity::Warning),
            FindingKind::Moved => (EventKind::BlockMoved, Severity::Warning),
            FindingKind::Repairable => (EventKind::DamageFound, Severity::Warning),
            FindingKind::DiskOffline | FindingKind::BadPage => {
                (EventKind::DamageFound, Severity::Critical)
            }
            FindingKind::CopiesDiffer => (EventKind::CopiesDiffer, Severity::Critical),
            FindingKind::Unreadable => (EventKind::BlocksUnreadable, Severity::Critical),
        };
        finding.message.push_str(match finding.kind {
            FindingKind::Repaired => "; it was written again",
            FindingKind::Moved => "; it was moved to another place on its disk",
            FindingKind::DiskOffline => "; its disk took it nowhere and is offline",
            FindingKind::Repairable => "; a scrub with --repair mends it",
            _ => "",
        });
        let event = Event::new(kind, finding.message.clone()).severity(severity);
        self.event(event.file(finding.file));
        run.note(finding);
    }
}

/// Why nothing is proven, in words.
const fn reason(why: Undecided) -> &'static str {
    match why {
        Undecided::SeveralGood => "more than one is a good page: one of them is an older version",
        Undecided::MayBeNewer => {
            "one is a good page, but another, whose checksum is wrong, may be newer"
        }
        Undecided::NotJudged => {
            "one is a good page, but another has no checksum that could be judged and may be newer"
        }
        Undecided::Zeros => {
            "one is a good page and another is all zeros: either may be the older one"
        }
        Undecided::NoneGood => "none is a good page",
    }
}

/// A file, blocks of it, and what became of the copy they lay in.
type MovedBlocks = (spindle_base::FileId, Vec<u64>, Mended);

/// Whether the place is put off: a page that is not proven may look otherwise when the other half
/// of it has come.
fn is_suspect(run: &Run, file: &File, place: &Place, now_ms: u64, again: Option<&Suspect>) -> bool {
    let may_change = place.is_page
        && matches!(
            place.doubt,
            Doubt::Undecided(_) | Doubt::AllBad | Doubt::NoPages
        );
    let is_same = again
        .is_some_and(|before| (before.first_block, before.digest) == (place.first, place.digest));
    if !may_change || is_same {
        return false;
    }
    run.suspect(Suspect {
        file: file.id,
        first_block: place.first,
        blocks: place.blocks,
        digest: place.digest,
        since_ms: now_ms,
    });
    true
}

/// Every place of the stretch that is not as it should be, in order, and how many pages were
/// judged.
fn examine(copies: &Copies, pages: Option<&PageFile>, first: u64, end: u64) -> (Vec<Place>, u64) {
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
    (places, judged_count)
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
