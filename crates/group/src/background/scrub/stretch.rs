//! One stretch: its copies read and compared, its pages judged, and what is proven put right.

use spindle_sync::atomic::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use spindle_base::BLOCK_SIZE_BYTES;
use spindle_pages::Undecided;

use crate::background::Group;
use crate::background::scrub::copies::Copies;
use crate::background::scrub::cursor::Stretch;
use crate::background::scrub::examine::{Doubt, Place, examine};
use crate::background::scrub::left_out::{Again, Missed};
use crate::background::scrub::run::{Run, Suspect};
use crate::background::scrub::{Finding, FindingKind, Known, ScrubStep};
use crate::core::bad_places::{BadBlocks, BadPlace};
use crate::core::file::File;
use crate::error::GroupError;
use crate::event::{Event, EventKind, Severity};
use crate::io::Mended;

/// What no page is longer than.
const PAGE_BLOCKS_MOST: u64 = 16;

/// Why a stretch is looked at.
#[derive(Debug, Clone, Copy)]
enum Look<'a> {
    /// In its turn.
    First,
    /// Because it looked wrong.
    AtSuspect(&'a Suspect),
    /// Because a copy of a part of it was left out.
    AtLeftOut,
}

impl Group {
    /// One stretch, or one more look at what looked wrong.
    pub(crate) fn scrub_step(&self, run: &Run, now_ms: u64) -> Result<ScrubStep, GroupError> {
        if let Some(step) = self.scrub_structures(run)? {
            return Ok(step);
        }
        if let Some(stretch) = self.next_stretch(run) {
            let answer = self.scrub_stretch(run, &stretch, now_ms, Look::First);
            // Before the stretch counts as done: another worker may see that all is, and end it.
            run.leave_out(answer.as_deref().unwrap_or_default(), now_ms);
            run.cursor.lock().finish(&stretch);
            return answer.map(|_| ScrubStep::Did);
        }
        if let Some(suspect) = run.due_suspect(now_ms) {
            let (first, end) = (suspect.first_block, suspect.first_block + suspect.blocks);
            let look = Look::AtSuspect(&suspect);
            let answer = match self.file(suspect.file) {
                Some(file) => {
                    let stretch = Stretch { file, first, end };
                    self.scrub_stretch(run, &stretch, now_ms, look)
                }
                None => Ok(Vec::new()),
            };
            run.finish_suspect(&suspect);
            return answer.map(|_| ScrubStep::Did);
        }
        if let Some(again) = run.due_left_out(now_ms) {
            let answer = self.look_at_left_out(run, &again, now_ms);
            run.finish_left_out(&again, answer.as_deref().unwrap_or_default(), now_ms);
            return answer.map(|_| ScrubStep::Did);
        }
        Ok(if run.has_suspects() || run.comes_back() {
            ScrubStep::Waiting
        } else {
            ScrubStep::Idle
        })
    }

    /// A reader met pages in this range whose checksums are wrong: every copy is read, and what is
    /// proven is put right and told. Whether anything was. What is not proven is left to the next
    /// scrub, which looks twice before it tells.
    ///
    /// # Errors
    /// As [`Group::scrub_unit`].
    pub fn mend_pages(
        &self,
        file: &Arc<File>,
        first_bytes: u64,
        end_bytes: u64,
    ) -> Result<bool, GroupError> {
        self.check_fence()?;
        let run = Run::of_reader(file.id);
        let stretch = Stretch {
            file: Arc::clone(file),
            first: first_bytes / BLOCK_SIZE_BYTES,
            end: end_bytes.div_ceil(BLOCK_SIZE_BYTES),
        };
        self.scrub_stretch(&run, &stretch, 0, Look::First)?;
        Ok(run.findings_count() > 0)
    }

    /// Whole pages around what was left out; what of it still is.
    fn look_at_left_out(
        &self,
        run: &Run,
        again: &Again,
        now_ms: u64,
    ) -> Result<Vec<Missed>, GroupError> {
        let missed = again.missed;
        let Some(file) = self.file(missed.file) else {
            return Ok(Vec::new());
        };
        let is_stale = |block| self.dirty.is_stale(&file, missed.disk, block, block + 1);
        if !self.membership.is_online(missed.disk) || (missed.first..missed.end).all(is_stale) {
            return Ok(vec![missed]);
        }
        let stretch = Stretch {
            file,
            first: missed.first - missed.first % PAGE_BLOCKS_MOST,
            end: missed.end.next_multiple_of(PAGE_BLOCKS_MOST),
        };
        let still = self.scrub_stretch(run, &stretch, now_ms, Look::AtLeftOut)?;
        let own = still.into_iter().filter(|one| one.disk == missed.disk);
        let within = own.map(|one| Missed {
            first: one.first.max(missed.first),
            end: one.end.min(missed.end),
            ..one
        });
        Ok(within.filter(|one| one.first < one.end).collect())
    }

    /// Looks at a stretch, tells and mends; what it could not look at.
    fn scrub_stretch(
        &self,
        run: &Run,
        stretch: &Stretch,
        now_ms: u64,
        look: Look<'_>,
    ) -> Result<Vec<Missed>, GroupError> {
        let file = &stretch.file;
        let missed;
        let mut bad_places: Vec<BadPlace> = Vec::new();
        let mut findings: Vec<(Place, Finding)> = Vec::new();
        let (mut known, mut is_fresh) = run.known(file.id, || self.known(file));
        loop {
            let held = file.range_lock.shared(stretch.first, stretch.end);
            if file.is_removed() {
                return Ok(Vec::new());
            }
            let (first, end) = (stretch.first, stretch.end);
            let (copies, read_bytes) = loop {
                let read = self.read_copies(file, first, end, run.scope());
                if self.membership.turns_count() == read.0.turns_count() {
                    break read;
                }
            };
            run.read_bytes.fetch_add(read_bytes, Ordering::Relaxed);
            let (places, judged_count) =
                examine(&copies, known.pages.as_ref(), first, end, run.distrusted());
            if !places.is_empty() && !is_fresh {
                // What is told, and what is written, does not rest on what a file was an hour
                // ago: its server may have been stopped and its checksums switched off since.
                run.forget(file.id);
                drop(held);
                (known, is_fresh) = run.known(file.id, || self.known(file));
                continue;
            }
            if matches!(look, Look::First) {
                run.judged_pages_count
                    .fetch_add(judged_count, Ordering::Relaxed);
                let done: u64 = copies.pieces.iter().map(|piece| piece.blocks).sum();
                let done_bytes = done * BLOCK_SIZE_BYTES;
                run.done_bytes.fetch_add(done_bytes, Ordering::Relaxed);
            }
            for place in places {
                if is_suspect(run, file, &place, now_ms, look) {
                    continue;
                }
                let finding = self.describe_place(&known, file, &copies, &place);
                if run.repairs() {
                    self.note_wrong(file, &copies, &place, &mut bad_places);
                }
                findings.push((place, finding));
            }
            missed = copies.left_out;
            break;
        }
        let mended = self.mend_all(bad_places)?;
        for (place, mut finding) in findings {
            finding.kind = kind_after(finding.kind, &place, &mended);
            self.tell(run, finding);
        }
        Ok(missed)
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

    /// Notes what is wrong where another copy is right, to be mended without any lock.
    fn note_wrong(
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
            for copy in mend.wrong_lanes.iter().filter_map(|lane| copy_of(*lane)) {
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
                    reason: "a scrub found it wrong".to_owned(),
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

    /// Mends places, without any lock; the file blocks concerned and what became of each.
    fn mend_all(&self, places: Vec<BadPlace>) -> Result<Vec<MendedBlocks>, GroupError> {
        let mut all = Vec::new();
        for place in places {
            let schedule = place.file.map.read().schedule();
            let blocks = place
                .bad
                .iter()
                .map(|bad| schedule.file_block(place.index, bad.inside_blocks))
                .collect();
            all.push((blocks, self.mend_place(&place)?));
        }
        Ok(all)
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
            Doubt::Distrusted => (
                FindingKind::Repairable,
                format!(
                    "{where_}: the copies differ, nothing proves which is right, and the one on \
                     {names} is the one that is distrusted"
                ),
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
                    "{where_}: the page's checksum is wrong, in every copy{}: restore it from a \
                     backup",
                    copies.left_out_words(place.first, place.blocks)
                ),
            ),
            Doubt::Unreadable => (
                FindingKind::Unreadable,
                format!(
                    "{where_}: no copy{} can be read: restore it from a backup",
                    copies.left_out_words(place.first, place.blocks)
                ),
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

/// Blocks of the file, and what became of a copy that was wrong there.
type MendedBlocks = (Vec<u64>, Mended);

/// What a finding is, now that what could be mended of it is: no better than the worst of it.
fn kind_after(found: FindingKind, place: &Place, mended: &[MendedBlocks]) -> FindingKind {
    let is_of = |block: u64| {
        let of_block = move |(blocks, _): &&MendedBlocks| blocks.contains(&block);
        mended.iter().filter(of_block).map(|(_, mended)| *mended)
    };
    let all: Vec<Mended> = (place.mends.iter())
        .flat_map(|mend| is_of(mend.block))
        .collect();
    let is_whole = place
        .mends
        .iter()
        .all(|mend| is_of(mend.block).next().is_some());
    if all.contains(&Mended::Offline) {
        FindingKind::DiskOffline
    } else if all.is_empty() || !is_whole || all.contains(&Mended::Gone) {
        found
    } else if all.contains(&Mended::Moved) {
        FindingKind::Moved
    } else {
        FindingKind::Repaired
    }
}

/// Whether the place is put off: a page that is not proven may look otherwise when the other half
/// of it has come.
fn is_suspect(run: &Run, file: &File, place: &Place, now_ms: u64, look: Look<'_>) -> bool {
    let may_change = place.is_page
        && matches!(
            place.doubt,
            Doubt::Undecided(_) | Doubt::AllBad | Doubt::NoPages
        );
    let is_same = matches!(
        look,
        Look::AtSuspect(before) if (before.first_block, before.digest) == (place.first, place.digest)
    );
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

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::{FindingKind, Mended, Place, kind_after};
    use crate::background::scrub::examine::{Doubt, Mend};

    #[test]
    fn what_was_gone_when_its_turn_came_is_not_called_repaired() {
        let mend = |block| Mend {
            block,
            right_lane: 0,
            wrong_lanes: smallvec![1],
        };
        let place = Place {
            first: 8,
            blocks: 2,
            is_page: true,
            doubt: Doubt::Proven,
            mends: vec![mend(8), mend(9)],
            digest: 0,
        };
        let after =
            |mended: &[(Vec<u64>, Mended)]| kind_after(FindingKind::Repairable, &place, mended);
        use FindingKind::{DiskOffline, Moved, Repairable, Repaired};
        assert_eq!(after(&[]), Repairable, "nobody asked for it");
        assert_eq!(after(&[(vec![8, 9], Mended::InPlace)]), Repaired);
        assert_eq!(after(&[(vec![8, 9], Mended::Moved)]), Moved);
        assert_eq!(after(&[(vec![8, 9], Mended::Gone)]), Repairable);
        assert_eq!(after(&[(vec![8], Mended::InPlace)]), Repairable);
        let both = |second| after(&[(vec![8], Mended::Gone), (vec![9], second)]);
        assert_eq!(both(Mended::Moved), Repairable);
        assert_eq!(both(Mended::Offline), DiskOffline);
        // Of another place.
        assert_eq!(after(&[(vec![7, 10], Mended::InPlace)]), Repairable);
    }
}
