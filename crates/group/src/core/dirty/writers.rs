//! Writes that are announced, and come to their end or are refused.

use smallvec::SmallVec;
use spindle_base::{DiskNumber, FileId};
use spindle_catalog::{Edit, Sequence};
use spindle_sync::atomic::Ordering;

use crate::core::dirty::{DirtyRegions, HasFlushed, Writer, parts};
use crate::core::disks::Target;
use crate::core::file::File;

impl DirtyRegions {
    /// Announces a write to `ranges` of a file, of which the offline `missed` disks hold copies
    /// that it will not reach. `overwrites` says whether it overwrites initialised blocks.
    /// Returns the sequence that must be durable before the data goes to any disk.
    ///
    /// Rows that are not open yet, or do not name all that is stale, are given to `apply`.
    /// Each call is ended by [`DirtyRegions::end_write`].
    pub fn begin_write(
        &self,
        file: &File,
        ranges: &[(u64, u64)],
        overwrites: bool,
        missed: &[DiskNumber],
        apply: &mut dyn FnMut(Edit) -> Sequence,
    ) -> (Writer, Sequence) {
        let mut needed = Sequence(0);
        let mut state = self.state.lock();
        let rows = state.open_rows;
        state.writers_count += 1;
        let mut writer = Writer {
            joined: SmallVec::new(),
            number: state.writers_count,
        };
        for (number, first, end) in ranges.iter().flat_map(|(first, end)| parts(*first, *end)) {
            let region = state.regions.entry((file.id, number)).or_default();
            let joined = writer.joined.iter().find(|(joined, _)| *joined == number);
            let generation = match joined {
                Some((_, generation)) => *generation,
                None => {
                    let generation = region.begin_write();
                    writer.joined.push((number, generation));
                    generation
                }
            };
            region.announce(writer.number, generation, (first, end), missed);
            if overwrites || !missed.is_empty() {
                needed = needed.max(region.open((file.id, number), rows, apply));
            }
        }
        if !missed.is_empty() {
            file.may_be_stale.store(true, Ordering::Release);
        }
        (writer, needed)
    }

    /// The write that [`DirtyRegions::begin_write`] announced has been answered by every disk.
    pub fn end_write(&self, file: FileId, writer: &Writer) {
        if writer.joined.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        for (number, generation) in &writer.joined {
            // A file may have been removed while its writer still waited for it.
            if let Some(region) = state.regions.get_mut(&(file, *number)) {
                region.end_announcement(writer.number);
                region.end_write(*generation);
            }
        }
    }

    /// As [`DirtyRegions::end_write`], where only these blocks of what was announced went out: what was
    /// noted for the sake of the others is taken back. Whether a row says less by that.
    pub fn take_back(
        &self,
        file: FileId,
        writer: &Writer,
        went_out: &[(u64, u64)],
        apply: &mut dyn FnMut(Edit) -> Sequence,
    ) -> bool {
        let mut is_less = false;
        let mut state = self.state.lock();
        let rows = state.open_rows;
        for (number, generation) in &writer.joined {
            let Some(region) = state.regions.get_mut(&(file, *number)) else {
                continue;
            };
            let out = went_out.iter().flat_map(|(first, end)| parts(*first, *end));
            let out = out.filter(|(region, ..)| region == number);
            let out: SmallVec<[(u32, u32); 2]> = out.map(|(_, first, end)| (first, end)).collect();
            if region.take_back(writer.number, &out) {
                region.name_only_stale((file, *number), rows, apply);
                is_less = true;
            }
            region.end_write(*generation);
        }
        is_less
    }

    /// Announces that blocks which a disk has wrong are written again there from another copy. Until it
    /// is ended a row names the disk, unless another one is away, lacks something there or is written
    /// again there: it may give back anything, which a crash must not take for good. Returns the sequence
    /// that must be durable before a block is written. Ended by [`DirtyRegions::end_mend`].
    pub fn begin_mend(
        &self,
        file: &File,
        ranges: &[(u64, u64)],
        disk: DiskNumber,
        has_flushed: HasFlushed<'_>,
        all_serve: &dyn Fn() -> bool,
        apply: &mut dyn FnMut(Edit) -> Sequence,
    ) -> (Writer, Sequence) {
        let mut needed = Sequence(0);
        let mut state = self.state.lock();
        let rows = state.open_rows;
        // Asked under the lock: one that goes later ends the suspicion.
        let all_serve = all_serve();
        state.writers_count += 1;
        let mut writer = Writer {
            joined: SmallVec::new(),
            number: state.writers_count,
        };
        for (number, first, end) in ranges.iter().flat_map(|(first, end)| parts(*first, *end)) {
            let region = state.regions.entry((file.id, number)).or_default();
            let generation = region.begin_copy(disk, (first, end), has_flushed);
            writer.joined.push((number, generation));
            if all_serve {
                region.suspect(writer.number, disk);
            }
            needed = needed.max(region.open((file.id, number), rows, apply));
        }
        (writer, needed)
    }

    /// What [`DirtyRegions::begin_mend`] announced has come to its end, and what the disk still has
    /// wrong is told by [`DirtyRegions::missed_by`]; a flush that covers `newest` covers all of it.
    pub fn end_mend(
        &self,
        file: FileId,
        writer: &Writer,
        newest: Target,
        apply: &mut dyn FnMut(Edit) -> Sequence,
    ) {
        let mut state = self.state.lock();
        let rows = state.open_rows;
        for (number, generation) in &writer.joined {
            if let Some(region) = state.regions.get_mut(&(file, *number)) {
                region.end_copy(*generation, newest);
                region.end_suspicion(writer.number);
                region.name_only_stale((file, *number), rows, apply);
            }
        }
    }
}
