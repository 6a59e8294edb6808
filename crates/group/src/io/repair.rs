//! A failed read answered from another copy, and the bad copy put right.
//!
//! The reader notes the place. When it has let go of its range the good bytes are written over the
//! bad ones and read back; where the place does not take them the copy is moved within its disk,
//! else the disk goes offline: in each case before the read is answered (`mend.rs`).

use spindle_base::{BLOCK_SIZE_BYTES, DiskNumber};
use spindle_device::{DeviceError, Request, Work};
use spindle_extent::map::Extent;
use spindle_extent::plan::{self, ReadRefusal, Segment, Serving, Staleness};
use spindle_format::ExtentCopy;

use crate::core::Core;
use crate::core::bad_places::{BadBlocks, BadPlace};
use crate::core::file::File;
use crate::core::unanswered::is_unanswered;
use crate::error::{GroupError, GroupErrorKind, Operation};
use crate::incarnation::Life;
use crate::io::bytes_of;
use crate::io::read::FailedRead;

/// A part of a read that failed.
struct Failure<'a> {
    /// The disk that could not read it.
    bad_disk: Option<DiskNumber>,
    /// A bit for each copy that is stale there.
    stale: u8,
    /// The disks of the extent's copies when that was asked.
    lives: &'a [Life],
    error: &'a DeviceError,
    /// That the disk did not answer this request was noted, for another segment of it.
    is_noted: bool,
}

impl Core {
    /// Reads the failed pieces of a read that began at block `first` from other copies.
    pub(crate) fn recover_reads(
        &self,
        file: &File,
        first: u64,
        out: &mut [u8],
        failed: &[FailedRead],
    ) -> Result<(), GroupError> {
        for piece in failed {
            let mut segments: Vec<Segment> = Vec::new();
            {
                let map = file.map.read();
                plan::segments(
                    &map,
                    piece.at_block,
                    piece.at_block + piece.blocks,
                    |segment| {
                        segments.push(*segment);
                        Ok(())
                    },
                )
            }
            .map_err(|refusal: ReadRefusal| self.read_refused(file, refusal))?;
            let bad_disk = self.disks.disk_of(piece.from.slot).map(|disk| disk.number);
            let mut is_noted = false;
            for segment in segments {
                let blocks = segment.initialised_blocks();
                let Some(extent) = segment.extent.filter(|_| blocks > 0) else {
                    continue;
                };
                let lives = self.disks.lives(extent.present());
                // What a disk lost before it was looked at is stale there from here on.
                self.notice_offline();
                let mut part = segment;
                while part.at_block < segment.at_block + blocks {
                    let (stale, until) =
                        self.stale_copies(file, &extent, part.at_block, segment.at_block + blocks);
                    part.blocks = until - part.at_block;
                    let start = bytes_of(part.at_block - first);
                    let memory = &mut out[start..start + bytes_of(part.blocks)];
                    let failure = Failure {
                        bad_disk,
                        stale,
                        lives: &lives,
                        error: &piece.error,
                        is_noted,
                    };
                    self.recover_segment(file, &part, &extent, memory, &failure)?;
                    is_noted = true;
                    part.inside_blocks += part.blocks;
                    part.at_block = until;
                }
            }
        }
        Ok(())
    }

    /// A bit for each copy that is stale at this block, and up to which block that holds.
    fn stale_copies(&self, file: &File, extent: &Extent, block: u64, end: u64) -> (u8, u64) {
        let view = self.dirty.view(file);
        view.map_or((0, end), |mut view| view.stale_copies(extent, block, end))
    }

    fn recover_segment(
        &self,
        file: &File,
        segment: &Segment,
        extent: &Extent,
        memory: &mut [u8],
        failure: &Failure<'_>,
    ) -> Result<(), GroupError> {
        let Failure {
            bad_disk,
            error,
            lives,
            is_noted,
            ..
        } = *failure;
        let inside_bytes = segment.inside_blocks * BLOCK_SIZE_BYTES;
        let mut avoid = failure.stale;
        let mut bad: Vec<(ExtentCopy, DeviceError)> = Vec::new();
        for (number, copy) in extent.copies().iter().enumerate() {
            if copy.is_present() && Some(copy.disk()) == bad_disk {
                avoid |= 1 << number;
                bad.push((*copy, error.clone()));
            }
        }
        let source = loop {
            let Some((number, copy, slot)) = self.disks.choose(extent, avoid) else {
                if self.read_again(&bad, inside_bytes, memory) {
                    return Ok(());
                }
                return Err(unreadable(file, segment, failure));
            };
            let at = copy.start_bytes() + inside_bytes;
            let mut batch = [Request::new(slot, at, Work::Read(&mut *memory))];
            // The last one that can be read is waited for beside bad places, of which who judges of its
            // disk does not know. Of those that did not answer he does, and they may answer again.
            let is_last = self.disks.choose(extent, avoid | 1 << number).is_none();
            batch[0].is_patient = is_last && bad.iter().any(|(_, error)| !is_unanswered(error));
            self.disks.read(&mut batch);
            let [request] = batch;
            let Err(error) = request.result else {
                break copy;
            };
            avoid |= 1 << number;
            bad.push((copy, error));
        };
        for (copy, error) in bad {
            if is_unanswered(&error) {
                if !(is_noted && Some(copy.disk()) == bad_disk) {
                    self.note_unanswered(copy.disk(), &error)?;
                }
                continue;
            }
            let bad = BadBlocks {
                inside_blocks: segment.inside_blocks,
                blocks: memory.len() as u64 / BLOCK_SIZE_BYTES,
                source,
            };
            self.note_unread(file, segment.index, copy, bad, lives, &error);
        }
        Ok(())
    }

    /// No other copy is left: a path that blinked may answer now.
    fn read_again(
        &self,
        bad: &[(ExtentCopy, DeviceError)],
        inside_bytes: u64,
        memory: &mut [u8],
    ) -> bool {
        bad.iter().any(|(copy, _)| {
            let Some(slot) = self.disks.slot_of(*copy) else {
                return false;
            };
            let at = copy.start_bytes() + inside_bytes;
            let mut batch = [Request::new(slot, at, Work::Read(&mut *memory))];
            self.disks.read(&mut batch);
            batch[0].result.is_ok()
        })
    }

    /// Notes a copy that could not be read, to be mended once the reader has let go of its range.
    fn note_unread(
        &self,
        file: &File,
        index: u32,
        copy: ExtentCopy,
        bad: BadBlocks,
        lives: &[Life],
        error: &DeviceError,
    ) {
        if !self.disks.have_kept_all(lives) {
            // What was read may be what a disk had before it lost the rest, and the bad place
            // is found again.
            return;
        }
        if let Some(file) = self.file(file.id) {
            self.note_bad_place(BadPlace {
                file,
                index,
                copy,
                bad: vec![bad],
                lives: lives.into(),
                reason: error.to_string(),
            });
        }
    }
}

/// No copy of these blocks could be read; the disk is the one that failed first.
fn unreadable(file: &File, segment: &Segment, failure: &Failure<'_>) -> GroupError {
    let message = format!(
        "extent {} of file {} cannot be read from any copy",
        segment.index, file.id
    );
    let mut error = GroupError::new(GroupErrorKind::Io, message)
        .during(Operation::Read)
        .of_file(file.id)
        .in_extent(segment.index)
        .at_offset(segment.at_block * BLOCK_SIZE_BYTES)
        .because(failure.error.clone());
    error.subject.disk = failure.bad_disk;
    error
}
