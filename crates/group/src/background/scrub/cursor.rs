//! Which stretch is next: files in the order of their ids, each from its first block to its last.

use std::collections::BTreeSet;
use std::sync::Arc;

use spindle_base::FileId;

use crate::background::Group;
use crate::background::scrub::ScrubScope;
use crate::background::scrub::run::Run;
use crate::core::file::File;

/// Stretches without data that are passed over in one go.
const EMPTY_STRETCHES_MOST: usize = 1 << 16;

/// A stretch that one worker looks at.
#[derive(Debug, Clone)]
pub struct Stretch {
    pub file: Arc<File>,
    pub first: u64,
    pub end: u64,
}

/// The position that all workers share.
#[derive(Debug)]
pub struct Cursor {
    next: (FileId, u64),
    in_flight: BTreeSet<(FileId, u64)>,
    at_end: bool,
}

impl Cursor {
    pub const fn at(next: (FileId, u64)) -> Self {
        Self {
            next,
            in_flight: BTreeSet::new(),
            at_end: false,
        }
    }

    /// Whether nothing is left and nobody is at work.
    pub fn is_finished(&self) -> bool {
        self.at_end && self.in_flight.is_empty()
    }

    /// Before it everything was looked at.
    pub fn reached(&self) -> (FileId, u64) {
        let first = self.in_flight.first().copied();
        first.map_or(self.next, |first| first.min(self.next))
    }

    /// A worker has come to the end of its stretch.
    pub fn finish(&mut self, stretch: &Stretch) {
        self.in_flight.remove(&(stretch.file.id, stretch.first));
    }
}

impl Group {
    /// The next stretch, which the caller has to finish; `None` where all are given out.
    pub(crate) fn next_stretch(&self, run: &Run) -> Option<Stretch> {
        let mut cursor = run.cursor.lock();
        for _ in 0..EMPTY_STRETCHES_MOST {
            let Some(file) = self.scrub_file_from(run.scope(), cursor.next.0) else {
                cursor.at_end = true;
                return None;
            };
            let mut first = if file.id == cursor.next.0 {
                cursor.next.1
            } else {
                0
            };
            let (found, end) = {
                let map = file.map.read();
                let end_index = map.end_index();
                let end = end_index
                    .checked_sub(1)
                    .map_or(0, |last| map.schedule().envelope(last).1);
                // Only extents that are there count; a hole is passed over whole.
                while first < end
                    && let Some(place) = map.schedule().locate(first)
                    && map.extent(place.index).is_none()
                    && place.contiguous_blocks.is_multiple_of(16)
                    && first.is_multiple_of(16)
                {
                    first += place.contiguous_blocks;
                }
                (first < end, end)
            };
            if !found {
                let Some(next) = file.id.0.checked_add(1) else {
                    cursor.at_end = true;
                    return None;
                };
                cursor.next = (FileId(next), 0);
                continue;
            }
            // Stretches begin at multiples of their length, so that none cuts a page or a region.
            let length = run.stretch_blocks();
            let stop = ((first / length + 1) * length).min(end.next_multiple_of(16));
            cursor.next = (file.id, stop);
            cursor.in_flight.insert((file.id, first));
            return Some(Stretch {
                file,
                first,
                end: stop,
            });
        }
        None
    }

    fn scrub_file_from(&self, scope: &ScrubScope, from: FileId) -> Option<Arc<File>> {
        match scope {
            ScrubScope::Group | ScrubScope::Disks(_) => self.file_from(from),
            ScrubScope::Files(files) => {
                let at = files.partition_point(|id| *id < from);
                files[at..].iter().find_map(|id| self.file(*id))
            }
        }
    }

    /// Bytes of files that a scrub of this scope looks at.
    pub(crate) fn scrub_total_bytes(&self, scope: &ScrubScope) -> u64 {
        let mut blocks: u64 = 0;
        let mut from = FileId(0);
        while let Some(file) = self.scrub_file_from(scope, from) {
            let map = file.map.read();
            map.for_each(0, u32::MAX, |_, extent| {
                let counts = match scope {
                    ScrubScope::Disks(disks) => {
                        extent.present().any(|copy| disks.contains(&copy.disk()))
                    }
                    _ => true,
                };
                if counts {
                    blocks += u64::from(extent.mark_blocks);
                }
            });
            let Some(next) = file.id.0.checked_add(1) else {
                break;
            };
            from = FileId(next);
        }
        blocks * spindle_base::BLOCK_SIZE_BYTES
    }
}
