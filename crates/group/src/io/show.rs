//! Showing files to direct clients: what is plain of them is put in the map that clients read.

use smallvec::SmallVec;
use spindle_base::BLOCK_SIZE_BYTES;
use spindle_base::FileId;
use spindle_extent::map::Extent;
use spindle_extent::plan::Serving;
use spindle_extent::schedule::Schedule;
use spindle_format::{COPIES_MAX, ExtentCopy};
use spindle_lease::map::{Allowed, Entry, FileKey};
use spindle_sync::atomic::Ordering;

use crate::core::Core;
use crate::core::clients::{ToldDisk, ToldDisks, Withheld, key_of};
use crate::core::file::File;

/// Extents that are said under one look at the file's map.
const SAID_MOST: u32 = 1024;

impl Core {
    /// Blocks `[first, end)` of the file are the caller's alone as far as direct clients are concerned; see
    /// [`Withheld`]. For what is changed with no range held: bytes that wait in memory, the end of the file.
    pub fn withhold<'a>(&self, file: &'a File, first: u64, end: u64) -> Withheld<'a> {
        (self.clients).withhold(file.id, file.shown_mark(), (first, end))
    }

    /// Shows direct clients what is plain of the file and not shown yet: its key in the map, `None` where
    /// there are no clients. `ends_at` is asked for the file's size in bytes, behind the mark that it is shown
    /// and the look whether anybody has blocks alone: `None` where a part of the file waits in memory, or may be
    /// changed by something that asks nobody. Then nothing is said now.
    pub fn show_file(&self, file: &File, ends_at: &dyn Fn() -> Option<u64>) -> Option<FileKey> {
        self.check_serves().ok()?;
        let schedule = file.map.read().schedule();
        let saying = (self.clients).begin_saying(file.id, schedule, file.shown_mark())?;
        // In this order. Who takes something out from here on finds the file shown; who had, and is not done,
        // is counted; who was done by then has left in memory, in the size and in the map what is asked next.
        let is_quiet = file.shown_mark().is_quiet();
        spindle_sync::point();
        let size_bytes =
            (is_quiet && !file.may_be_stale.load(Ordering::SeqCst) && !file.is_removed())
                .then(ends_at)
                .flatten();
        let Some(size_bytes) = size_bytes else {
            self.clients.give_back(saying);
            if file.is_removed() {
                self.clients.forget(file.id);
            }
            return Some(key_of(file.id));
        };
        for (first, end) in saying.ranges() {
            let mut from = first;
            while from < end {
                let map = file.map.read();
                let end = end.min(map.end_index());
                let until = end.min(from.saturating_add(SAID_MOST));
                if from >= end {
                    break;
                }
                let is_said = self.clients.say(&saying, |say| {
                    map.for_each(from, until, |index, extent| {
                        if let Some(entry) = self.entry_of(schedule, size_bytes, index, extent) {
                            say(index, &entry);
                        }
                    });
                });
                if !is_said {
                    // Somebody else shows it at the same time, and has not taken these.
                    drop(map);
                    self.clients.give_back(saying);
                    return Some(key_of(file.id));
                }
                from = until;
            }
        }
        Some(key_of(file.id))
    }

    /// Files that are shown in parts, because something of them was changed: [`Core::show_file`] is to be
    /// called for each.
    pub fn files_to_show(&self) -> Vec<FileId> {
        self.clients.with_closed()
    }

    /// Nothing is shown of the file any more.
    pub fn hide_file(&self, file: &File) {
        self.clients.forget(file.id);
    }

    /// What a client is told of the disks: it reads no others, and none of another standing. `None` where
    /// there are no clients. A slot may be another disk's when it is opened for the client: the number of the
    /// standing is looked at once more behind that.
    pub fn tell_clients(&self) -> Option<ToldDisks> {
        loop {
            let standing = self.clients.follow_standing()?;
            let turns_count = self.membership.turns_count();
            let serving = (self.disks.iter()).filter(|disk| disk.holds_data);
            let disks = serving.filter_map(|disk| {
                Some(ToldDisk {
                    number: disk.number,
                    slot: disk.online_slot()?,
                    total_bytes: disk.total_bytes(),
                })
            });
            let disks = disks.collect();
            if self.membership.turns_count() == turns_count
                && self.clients.follow_standing() == Some(standing)
            {
                return Some(ToldDisks { standing, disks });
            }
        }
    }

    /// What is true of an extent: its good copies on disks that serve, and how many of its blocks hold data and
    /// lie wholly inside the file.
    fn entry_of(
        &self,
        schedule: Schedule,
        size_bytes: u64,
        index: u32,
        extent: &Extent,
    ) -> Option<Entry> {
        let whole_blocks = size_bytes / BLOCK_SIZE_BYTES;
        let inside = schedule.inside_range(index, 0, whole_blocks)?;
        let limit_blocks = extent.mark_blocks.min(u32::try_from(inside.1).ok()?);
        if limit_blocks == 0 {
            return None;
        }
        let is_good = |copy: &ExtentCopy| {
            self.disks.slot_of(*copy).is_some()
                && !self.disks.is_set_back(copy.disk())
                && !self.membership.failed_flushes().of(copy.disk()).stand()
        };
        let copies: SmallVec<[ExtentCopy; COPIES_MAX]> = extent.present().filter(is_good).collect();
        Entry::new(&copies, limit_blocks, Allowed::Read).ok()
    }
}
