//! A scrub that runs: its position, its suspects and what it found, shared by its workers.

use spindle_sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::collections::BTreeMap;

use spindle_base::{DiskNumber, FileId};
use spindle_sync::level::{DeepMutex, LeafMutex};

use crate::background::scrub::cursor::Cursor;
use crate::background::scrub::left_out::{Again, LeftOut, LeftOuts, Missed};
use crate::background::scrub::record::Saved;
use crate::background::scrub::structures;
use crate::background::scrub::{
    FINDINGS_MOST, Finding, FindingKind, Known, STRETCH_BYTES_PER_POWER, SUSPECT_MS, ScrubProgress,
    ScrubScope, ScrubState, ScrubView, ScrubWish,
};
use crate::levels;

/// How often the position is saved.
const SAVE_MS: u64 = 5000;
/// Files remembered with what is known of them.
const KNOWN_MOST: usize = 64;

/// A stretch of a file that looked wrong, to be looked at again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Suspect {
    pub file: FileId,
    pub first_block: u64,
    pub blocks: u64,
    /// Over all versions of it.
    pub digest: u32,
    /// Since when it is as it is.
    pub since_ms: u64,
}

#[derive(Debug, Default)]
struct Suspects {
    waiting: Vec<Suspect>,
    /// Those that somebody looks at now.
    looked_at: Vec<Suspect>,
}

#[derive(Debug, Default)]
struct Found {
    findings: Vec<Finding>,
    count: u64,
    repaired_count: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Run {
    wish: ScrubWish,
    power: AtomicU16,
    pub cursor: DeepMutex<Cursor, levels::ScrubCursor>,
    pub structures: LeafMutex<structures::Cursor>,
    suspects: DeepMutex<Suspects, levels::ScrubSuspects>,
    known: LeafMutex<BTreeMap<FileId, Known>>,
    found: LeafMutex<Found>,
    left_outs: LeafMutex<LeftOuts>,
    /// Of the files of which something was left out.
    titles: LeafMutex<BTreeMap<FileId, String>>,
    pub done_bytes: AtomicU64,
    pub read_bytes: AtomicU64,
    pub judged_pages_count: AtomicU64,
    total_bytes: u64,
    saved_ms: LeafMutex<Option<u64>>,
}

impl Run {
    pub fn new(saved: Saved, total_bytes: impl FnOnce(&ScrubScope) -> u64) -> Self {
        let total_bytes = total_bytes(&saved.wish.scope).max(saved.done_bytes);
        Self {
            power: AtomicU16::new(saved.wish.power),
            cursor: DeepMutex::new(Cursor::at(saved.next)),
            structures: LeafMutex::new(structures::Cursor::of(&saved.wish.scope)),
            suspects: DeepMutex::default(),
            known: LeafMutex::default(),
            found: LeafMutex::new(Found {
                findings: Vec::new(),
                count: saved.findings_count,
                repaired_count: saved.repaired_count,
            }),
            titles: LeafMutex::default(),
            left_outs: LeafMutex::new(LeftOuts::of(saved.left_out, saved.left_out_beyond_bytes)),
            done_bytes: AtomicU64::new(saved.done_bytes),
            read_bytes: AtomicU64::new(saved.read_bytes),
            judged_pages_count: AtomicU64::new(0),
            total_bytes,
            saved_ms: LeafMutex::new(None),
            wish: saved.wish,
        }
    }

    /// For the pages of one file that a reader doubts: what is proven is put right.
    pub fn of_reader(file: FileId) -> Self {
        let wish = ScrubWish {
            scope: ScrubScope::Files(vec![file]),
            title: format!("file {file}"),
            repair: true,
            power: 1,
            distrust: None,
        };
        Self::new(Saved::fresh(wish), |_| 0)
    }

    /// How often something was found.
    pub fn findings_count(&self) -> u64 {
        self.found.lock().count
    }

    pub fn is(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }

    pub fn title(&self) -> &str {
        &self.wish.title
    }

    /// The disk whose copies lose on a person's word.
    pub fn distrusted(&self) -> Option<DiskNumber> {
        self.wish.distrust.as_ref().map(|distrust| distrust.disk)
    }

    pub const fn scope(&self) -> &ScrubScope {
        &self.wish.scope
    }

    pub const fn repairs(&self) -> bool {
        self.wish.repair
    }

    pub fn power(&self) -> u16 {
        self.power.load(Ordering::Relaxed)
    }

    pub fn set_power(&self, power: u16) {
        self.power.store(power, Ordering::Relaxed);
    }

    /// How many blocks a unit looks at: a multiple of the longest page.
    pub fn stretch_blocks(&self) -> u64 {
        let bytes = (u64::from(self.power()) * STRETCH_BYTES_PER_POWER).clamp(512 << 10, 4 << 20);
        (bytes / spindle_base::BLOCK_SIZE_BYTES).next_multiple_of(16)
    }

    /// What is known of a file, and whether it was asked just now and not earlier.
    pub fn known(&self, file: FileId, ask: impl FnOnce() -> Known) -> (Known, bool) {
        if let Some(known) = self.known.lock().get(&file) {
            return (known.clone(), false);
        }
        let known = ask();
        let mut all = self.known.lock();
        if all.len() >= KNOWN_MOST {
            // The cursor goes up: the lowest is the one least likely to be asked for again.
            all.pop_first();
        }
        all.insert(file, known.clone());
        (known, true)
    }

    /// What was known of a file is asked again.
    pub fn forget(&self, file: FileId) {
        self.known.lock().remove(&file);
    }

    /// What a person calls a file that was looked at, as far as it is remembered.
    pub fn title_of(&self, file: FileId) -> String {
        let titles = self.titles.lock();
        titles
            .get(&file)
            .cloned()
            .unwrap_or_else(|| format!("file {file}"))
    }

    pub fn note(&self, finding: Finding) {
        let mut found = self.found.lock();
        // What is come back to may have been told before.
        if found.findings.contains(&finding) {
            return;
        }
        found.count += 1;
        if matches!(finding.kind, FindingKind::Repaired | FindingKind::Moved) {
            found.repaired_count += 1;
        }
        if found.findings.len() < FINDINGS_MOST {
            found.findings.push(finding);
        }
    }

    /// Whether all is looked at, by everybody.
    pub fn is_finished(&self) -> bool {
        self.cursor.lock().is_finished()
            && self.structures.lock().is_finished()
            && !self.has_suspects()
            && !self.comes_back()
    }

    /// Notes what a stretch could not look at.
    pub fn leave_out(&self, missed: &[Missed], now_ms: u64) {
        for file in missed.iter().map(|one| one.file) {
            let title = self
                .known
                .lock()
                .get(&file)
                .map(|known| known.title.clone());
            if let Some(title) = title {
                self.titles.lock().insert(file, title);
            }
        }
        if !missed.is_empty() {
            self.left_outs.lock().note(missed, now_ms);
        }
    }

    /// Something that was left out, to be looked at again; [`Run::finish_left_out`] ends the look.
    pub fn due_left_out(&self, now_ms: u64) -> Option<Again> {
        self.left_outs.lock().due(now_ms, self.stretch_blocks())
    }

    pub fn finish_left_out(&self, again: &Again, still: &[Missed], now_ms: u64) {
        self.left_outs.lock().finish(again, still, now_ms);
    }

    /// Whether something that was left out is still to be come back to.
    pub fn comes_back(&self) -> bool {
        self.left_outs.lock().is_waiting()
    }

    /// All that is left out as things are.
    pub fn left_out(&self) -> Vec<Missed> {
        self.left_outs.lock().all()
    }

    pub fn has_suspects(&self) -> bool {
        let suspects = self.suspects.lock();
        !suspects.waiting.is_empty() || !suspects.looked_at.is_empty()
    }

    pub fn suspect(&self, suspect: Suspect) {
        self.suspects.lock().waiting.push(suspect);
    }

    /// One that has waited long enough; [`Run::finish_suspect`] ends the look at it.
    pub fn due_suspect(&self, now_ms: u64) -> Option<Suspect> {
        let mut suspects = self.suspects.lock();
        let is_due = |one: &Suspect| now_ms.saturating_sub(one.since_ms) >= SUSPECT_MS;
        let place = suspects.waiting.iter().position(is_due)?;
        let suspect = suspects.waiting.swap_remove(place);
        suspects.looked_at.push(suspect);
        Some(suspect)
    }

    pub fn finish_suspect(&self, suspect: &Suspect) {
        let mut suspects = self.suspects.lock();
        suspects.looked_at.retain(|one| one != suspect);
    }

    pub fn is_save_due(&self, now_ms: u64) -> bool {
        let mut saved_ms = self.saved_ms.lock();
        let last_ms = *saved_ms.get_or_insert(now_ms);
        let due = now_ms.saturating_sub(last_ms) >= SAVE_MS;
        if due {
            *saved_ms = Some(now_ms);
        }
        due
    }

    /// The position as a crash should find it: before everything that is not looked at, and
    /// before every suspect.
    pub fn saved(&self) -> Saved {
        let suspects = self.suspects.lock();
        let all = suspects.waiting.iter().chain(&suspects.looked_at);
        let least = all.map(|one| (one.file, one.first_block)).min();
        let next = self.cursor.lock().reached();
        let (findings_count, repaired_count) = {
            let found = self.found.lock();
            (found.count, found.repaired_count)
        };
        let left_outs = self.left_outs.lock();
        Saved {
            wish: ScrubWish {
                power: self.power(),
                ..self.wish.clone()
            },
            next: least.map_or(next, |least| least.min(next)),
            done_bytes: self.done_bytes.load(Ordering::Relaxed),
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            findings_count,
            repaired_count,
            left_out: left_outs.all(),
            left_out_beyond_bytes: left_outs.beyond_bytes(),
        }
    }

    /// Bytes of which every copy was looked at: what was walked over, but for what was left out.
    fn looked_at_bytes(&self) -> u64 {
        let walked_bytes = self.done_bytes.load(Ordering::Relaxed);
        walked_bytes.saturating_sub(self.left_outs.lock().bytes())
    }

    pub fn progress(&self) -> ScrubProgress {
        let done_bytes = self.looked_at_bytes();
        ScrubProgress {
            power: self.power(),
            done_bytes,
            total_bytes: self.total_bytes.max(done_bytes),
        }
    }

    /// As listings show it; `name` gives what was left out its names.
    pub fn view(&self, ended: Option<ScrubState>, name: &dyn Fn(&Missed) -> LeftOut) -> ScrubView {
        let state = ended.unwrap_or_else(|| match () {
            () if self.power() == 0 => ScrubState::Paused,
            () if self.cursor.lock().is_finished() => ScrubState::LookingAgain,
            () => ScrubState::Running,
        });
        let left_out: Vec<LeftOut> = self.left_out().iter().map(name).collect();
        let left_out_bytes = self.left_outs.lock().bytes();
        let done_bytes = self.looked_at_bytes();
        let found = self.found.lock();
        ScrubView {
            title: self.wish.title.clone(),
            state,
            repair: self.wish.repair,
            power: self.power(),
            distrust: self.wish.distrust.as_ref().map(|distrust| distrust.disk),
            done_bytes,
            total_bytes: self.total_bytes.max(done_bytes),
            left_out,
            left_out_bytes,
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            judged_pages_count: self.judged_pages_count.load(Ordering::Relaxed),
            findings_count: found.count,
            repaired_count: found.repaired_count,
            findings: found.findings.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
