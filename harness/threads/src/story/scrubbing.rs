//! A scrub beside everything else, and what it may claim.
//!
//! What lay at the same place from before the scrub until after it, held data all the while and is
//! not told as left out must have been read by it, copy by copy. And as the simulator damages
//! nothing in silence, copies that a scrub compares never differ.

use std::collections::{BTreeMap, BTreeSet};

use spindle_base::{DiskNumber, FileId};
use spindle_device::SeededRandom;
use spindle_group::{
    FindingKind, Group, GroupError, GroupErrorKind, ScrubScope, ScrubState, ScrubView, ScrubWish,
};

use super::{Story, Subject, is_of_names};
use crate::history::{BLOCK_BYTES, Tick};

/// Steps after which a scrub is left to itself: disks that stay away keep it waiting.
const STEPS_MOST: u64 = 120;

/// A block of a file, and where a copy of it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Copy {
    file: FileId,
    block: u64,
    disk: DiskNumber,
    at_bytes: u64,
}

impl Story {
    /// Scrubs the group once.
    pub fn scrub(&self, group: &Group, of: u64) {
        let mut random = self.random(of);
        for _ in 0..random.below(150) {
            spindle_sync::point();
        }
        self.watch.scrubs();
        self.scrub_once(group, &mut random);
    }

    /// One scrub from its begin to its end, judged where it comes to one.
    pub fn scrub_once(&self, group: &Group, random: &mut SeededRandom) {
        if !self.goes_on() {
            return;
        }
        let begun = self.history.tick();
        let before = self.copies(group);
        self.watch.begin();
        let wish = ScrubWish {
            scope: ScrubScope::Group,
            title: "all".to_owned(),
            repair: random.chance(1, 2),
            power: [4, 64][random.index(2)],
            distrust: None,
        };
        let answer = group.start_scrub(wish);
        let is_busy = |error: &GroupError| error.kind == GroupErrorKind::Busy;
        if is_of_names(self.seed) && answer.as_ref().is_err_and(is_busy) {
            // A process that was killed had begun one. What that had read nobody noted.
            return self.carry_on(group, random, |_| {});
        }
        self.judge("the begin of a scrub", answer);
        self.history.note(|| "a scrub begins".to_owned());
        self.carry_on(group, random, |view| {
            self.judge_scrub(group, &before, begun, view)
        });
    }

    /// Carries a scrub on, to its end where it comes to one.
    fn carry_on(&self, group: &Group, random: &mut SeededRandom, at_end: impl FnOnce(&ScrubView)) {
        for _ in 0..STEPS_MOST {
            if !self.goes_on() {
                return;
            }
            let now_ms = self.later_ms(1 + random.below(8000));
            self.judge("a unit of a scrub", group.scrub_unit(now_ms));
            match group.scrub_view() {
                Some(view) if view.state == ScrubState::Done => {
                    if self.goes_on() {
                        at_end(&view);
                    }
                    return;
                }
                _ => spindle_sync::point(),
            }
        }
    }

    fn judge_scrub(&self, group: &Group, before: &BTreeSet<Copy>, begun: Tick, view: &ScrubView) {
        self.history
            .note(|| format!("a scrub ended; left out: {:?}", view.left_out));
        for finding in &view.findings {
            if finding.kind == FindingKind::CopiesDiffer
                && !self.history.may_have_differed_since(begun)
            {
                self.history
                    .violate(format!("a scrub found what nobody damaged: {finding:?}"));
            }
        }
        // Before the look at what is still there: a disk that leaves has no name afterwards.
        let disks: BTreeSet<DiskNumber> = before.iter().map(|copy| copy.disk).collect();
        let name_of = |disk: DiskNumber| Some((disk, group.disk_name(disk)?.to_string()));
        let names: BTreeMap<DiskNumber, String> = disks.into_iter().filter_map(name_of).collect();
        let after = self.copies(group);
        let is_told = |copy: &Copy| {
            let name = names.get(&copy.disk);
            let at = copy.block * BLOCK_BYTES as u64;
            view.left_out.iter().any(|left_out| {
                let end = left_out.offset_bytes + left_out.length_bytes;
                left_out.file == copy.file
                    && (left_out.offset_bytes..end).contains(&at)
                    && Some(&left_out.disk) == name
            })
        };
        for copy in before.intersection(&after) {
            if !self.watch.has_seen(copy.disk, copy.at_bytes)
                && !is_told(copy)
                && !(self.history).was_emptied_since(copy.file, copy.block, begun)
            {
                self.history.violate(format!(
                    "a scrub claims {copy:?}, which it did not read; it left out {:?}",
                    view.left_out
                ));
                return;
            }
        }
    }

    /// Every copy of every block that holds data.
    fn copies(&self, group: &Group) -> BTreeSet<Copy> {
        let mut copies = BTreeSet::new();
        for Subject { id, .. } in &self.files {
            let Some(file) = group.file(*id) else {
                continue;
            };
            for extent in group.map(&file) {
                let blocks = extent.initialised_bytes / BLOCK_BYTES as u64;
                for (disk, start_bytes) in extent.copies.iter().flatten() {
                    copies.extend((0..blocks).map(|inside| Copy {
                        file: *id,
                        block: extent.offset_bytes / BLOCK_BYTES as u64 + inside,
                        disk: *disk,
                        at_bytes: start_bytes + inside * BLOCK_BYTES as u64,
                    }));
                }
            }
        }
        copies
    }
}
