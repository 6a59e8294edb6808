//! What was noted for the sake of writes that are announced, and is taken back where one is refused.
//!
//! An announcement names the disks that are away as having missed the write, and a disk that goes
//! before the write goes out counts as one that may lack it. Where the last copy of an extent goes in
//! that time, nothing is written, and nobody has missed anything: called stale all the same, none of
//! these copies would count any more. So each announcement remembers what was noted for its sake
//! alone. What an outage noted as well stays, and what a disk lacked before. Of two announcements of
//! the same blocks the first one notes what the disk misses; the one that goes out notes it for good,
//! whatever becomes of the other.

use smallvec::SmallVec;
use spindle_base::DiskNumber;

use crate::core::dirty::block_set::BlockSet;
use crate::core::dirty::region::Region;

/// Runs `[first, end)` of a region's blocks.
type Runs = SmallVec<[(u32, u32); 1]>;

/// A write that is announced.
#[derive(Debug)]
struct Announcement {
    /// The number of its writer.
    writer: u64,
    generation: u8,
    /// Its blocks that nothing else has written lately.
    fresh: Runs,
    /// Disks that are stale in some of its blocks for its sake alone.
    named: Vec<(DiskNumber, Runs)>,
}

/// The writes that are announced and have not come to their end.
#[derive(Debug, Default)]
pub(super) struct Announcements(SmallVec<[Announcement; 1]>);

/// The runs of `[first, end)` that `look` picks: it is asked for a block, and says up to where its
/// answer holds.
fn runs_where(first: u32, end: u32, look: impl Fn(u32) -> (bool, u32)) -> Runs {
    let mut runs = Runs::new();
    let mut at = first;
    while at < end {
        let (is_picked, until) = look(at);
        match runs.last_mut() {
            _ if !is_picked => {}
            Some(last) if last.1 == at => last.1 = until,
            _ => runs.push((at, until)),
        }
        at = until;
    }
    runs
}

fn take_out(runs: &mut Runs, first: u32, end: u32) {
    if runs.iter().any(|run| run.0 < end && first < run.1) {
        let cut = |run: &(u32, u32)| [(run.0, run.1.min(first)), (run.0.max(end), run.1)];
        let left = runs.iter().flat_map(cut);
        *runs = left.filter(|(first, end)| first < end).collect();
    }
}

fn contains(runs: &[(u32, u32)], block: u32) -> bool {
    runs.iter().any(|run| (run.0..run.1).contains(&block))
}

impl Announcement {
    fn named_mut(&mut self, disk: DiskNumber) -> &mut Runs {
        let place = self.named.iter().position(|(other, _)| *other == disk);
        let place = place.unwrap_or_else(|| {
            self.named.push((disk, Runs::new()));
            self.named.len() - 1
        });
        &mut self.named[place].1
    }

    /// Nothing of these blocks is noted for its sake alone.
    fn take_out(&mut self, first: u32, end: u32) {
        take_out(&mut self.fresh, first, end);
        for (_, runs) in &mut self.named {
            take_out(runs, first, end);
        }
    }
}

impl Announcements {
    /// These blocks are written by another one too.
    pub(super) fn take_out(&mut self, first: u32, end: u32) {
        for announcement in &mut self.0 {
            take_out(&mut announcement.fresh, first, end);
        }
    }

    /// The disk lacks these blocks whatever becomes of the writes, or has them.
    pub(super) fn take_out_of(&mut self, disk: DiskNumber, first: u32, end: u32) {
        for announcement in &mut self.0 {
            if let Some((_, runs)) =
                (announcement.named.iter_mut()).find(|(other, _)| *other == disk)
            {
                take_out(runs, first, end);
            }
        }
    }
}

impl Region {
    /// A write to these blocks is announced, which the disks miss.
    pub(crate) fn announce(
        &mut self,
        writer: u64,
        generation: u8,
        (first, end): (u32, u32),
        missed: &[DiskNumber],
    ) {
        let written = self.generations.each_ref().map(|lately| &lately.written);
        let fresh = runs_where(first, end, |at| {
            let until = |until, set: &&BlockSet| set.same_until(at, until);
            let is_fresh = !written.iter().any(|set| set.contains(at));
            (is_fresh, written.iter().fold(end, until))
        });
        let names = |disk: &DiskNumber| {
            let stale = self.stale_of(*disk);
            let runs = runs_where(first, end, |at| {
                stale.map_or((true, end), |stale| {
                    (!stale.contains(at), stale.same_until(at, end))
                })
            });
            (*disk, runs)
        };
        let named = missed.iter().map(names).collect();
        self.note_written(first, end);
        for disk in missed {
            self.grow(*disk, first, end);
        }
        self.announced.0.push(Announcement {
            writer,
            generation,
            fresh,
            named,
        });
    }

    /// As [`Region::miss_all`], for a disk that went: what of it is only announced is taken back
    /// where it is not written. What was `copied` there the disk lacks in any case.
    pub(crate) fn miss_lately(&mut self, disk: DiskNumber, missed: &BlockSet, copied: &BlockSet) {
        let stale = self.stale_of(disk).cloned().unwrap_or_default();
        let mut announced = std::mem::take(&mut self.announced);
        for announcement in &mut announced.0 {
            let named = announcement.named_mut(disk).clone();
            let only_announced = |at: u32| {
                let was_named = contains(&named, at);
                let is_new = was_named || !stale.contains(at);
                let is_named = match missed.contains(at) {
                    true => is_new && !copied.contains(at),
                    false => was_named,
                };
                (is_named, at + 1)
            };
            // What was written lately may have been lost with it.
            let is_fresh = |at: u32| contains(&announcement.fresh, at);
            let stays_named = |at: u32| (!missed.contains(at) && !is_fresh(at), at + 1);
            let fresh = (announcement.fresh.iter())
                .flat_map(|(first, end)| runs_where(*first, *end, only_announced));
            let others =
                (named.iter()).flat_map(|(first, end)| runs_where(*first, *end, stays_named));
            let runs = fresh.chain(others).collect();
            *announcement.named_mut(disk) = runs;
        }
        self.miss_all(disk, missed);
        self.announced = announced;
    }

    /// Of that writer's announcement only these blocks went out: what was noted for the sake of the
    /// others is taken back. Whether a disk is less stale by that.
    pub(crate) fn take_back(&mut self, writer: u64, went_out: &[(u32, u32)]) -> bool {
        let (ended, others): (SmallVec<[Announcement; 1]>, _) =
            (self.announced.0.drain(..)).partition(|announcement| announcement.writer == writer);
        self.announced.0 = others;
        let mut is_less = false;
        for mut announcement in ended {
            for (first, end) in went_out {
                announcement.take_out(*first, *end);
            }
            for (first, end) in announcement.fresh {
                let lately = &mut self.generations[usize::from(announcement.generation)];
                lately.written.remove(first, end);
            }
            for (disk, runs) in announcement.named {
                is_less |= !runs.is_empty();
                for (first, end) in runs {
                    self.catch_up(disk, first, end);
                }
            }
        }
        is_less
    }

    /// All that the writer announced went out.
    pub(crate) fn end_announcement(&mut self, writer: u64) {
        (self.announced.0).retain(|announcement| announcement.writer != writer);
    }
}
