//! Reads: holes and what was never written give zeros without a request, the rest comes from
//! one copy of each extent in one batch.

use smallvec::SmallVec;
use spindle_base::BLOCK_SIZE_BYTES;
use spindle_device::{AlignedBuffer, DeviceError, Lent, ReadTarget, Request};
use spindle_extent::map::Map;
use spindle_extent::plan::{self, ReadPlan, ReadRefusal, Spot, TooFar};
use spindle_sync::atomic::Ordering;

use crate::core::Core;
use crate::core::file::File;
use crate::error::{GroupError, GroupErrorKind, Operation};
use crate::io::{blocks_of, bytes_of};

/// A piece that failed: its first block in the file, its length, where it was read, and why.
pub(crate) struct FailedRead {
    pub at_block: u64,
    pub blocks: u64,
    pub from: Spot,
    pub error: DeviceError,
}

impl Core {
    /// Fills `out` from `offset_bytes`; holes and what was never written read as zeros. Knows no
    /// end of file. Any alignment; whole aligned blocks go without a copy.
    ///
    /// # Errors
    /// [`GroupErrorKind::Io`] where no online copy of some extent can be read.
    pub fn read(&self, file: &File, offset_bytes: u64, out: &mut [u8]) -> Result<(), GroupError> {
        self.read_into(file, offset_bytes, out.into())
    }

    /// As [`Core::read`]; a part of a buffer is filled without a copy.
    ///
    /// # Errors
    /// As [`Core::read`].
    pub fn read_into(
        &self,
        file: &File,
        offset_bytes: u64,
        mut out: ReadTarget<'_>,
    ) -> Result<(), GroupError> {
        let (first, end, whole) =
            blocks_of(offset_bytes, out.len()).ok_or_else(GroupError::too_far)?;
        if first == end || out.is_empty() {
            return Ok(());
        }
        if whole {
            return self.read_held(file, first, end, &mut out);
        }
        let mut buffer = AlignedBuffer::zeroed(bytes_of(end - first));
        self.read_held(file, first, end, &mut (&mut buffer).into())?;
        let skip = usize::try_from(offset_bytes % BLOCK_SIZE_BYTES).expect("below a block");
        let length = out.len();
        out.bytes().copy_from_slice(&buffer[skip..skip + length]);
        Ok(())
    }

    fn read_held(
        &self,
        file: &File,
        first: u64,
        end: u64,
        out: &mut ReadTarget<'_>,
    ) -> Result<(), GroupError> {
        let held = file.range_lock.shared(first, end);
        let answer = self.read_blocks_into(file, first, end, out);
        drop(held);
        // A place that was found bad and could not be mended is dealt with before the answer.
        self.move_bad_places()?;
        answer
    }

    /// Reads whole blocks; the caller holds their range.
    pub(crate) fn read_blocks(
        &self,
        file: &File,
        first: u64,
        end: u64,
        out: &mut [u8],
    ) -> Result<(), GroupError> {
        self.read_blocks_into(file, first, end, &mut out.into())
    }

    fn read_blocks_into(
        &self,
        file: &File,
        first: u64,
        end: u64,
        out: &mut ReadTarget<'_>,
    ) -> Result<(), GroupError> {
        loop {
            let failures = self.membership.failed_flushes();
            let failures_count = failures.noted_count();
            let turns_count = self.membership.turns_count();
            let set_back_count = file.set_back_count.load(Ordering::Acquire);
            let answer = self.read_planned(file, first, end, out);
            // A disk that went away while this was under way, and may be back, has lost what the
            // plan relied on; and so, perhaps, has one that failed a flush. Whose marks went back meanwhile
            // has lost what the plan took for data.
            if self.membership.turns_count() == turns_count
                && failures.noted_count() == failures_count
                && file.set_back_count.load(Ordering::Acquire) == set_back_count
            {
                return answer;
            }
        }
    }

    fn read_planned(
        &self,
        file: &File,
        first: u64,
        end: u64,
        out: &mut ReadTarget<'_>,
    ) -> Result<(), GroupError> {
        self.check_alive(file)?;
        let plan = {
            let map = file.map.read();
            if file.hides_a_loss.load(Ordering::Acquire) {
                Self::check_whole(file, &map, first, end)?;
            }
            let stale = self.dirty.view(file);
            plan::read(&map, &self.disks, stale, first, end)
        }
        .map_err(|refusal| self.read_refused(file, refusal))?;
        if let [piece] = plan.as_slice() {
            // The path of a small read: one request on the stack, nothing else.
            let Some(from) = piece.from else {
                out.bytes().fill(0);
                return Ok(());
            };
            let work = out.lend().into_work();
            let mut batch = [Request::new(from.slot, from.offset_bytes, work)];
            self.disks.read(&mut batch);
            let [Request { result, .. }] = batch;
            return match result {
                Ok(()) => Ok(()),
                Err(error) => self.recover_reads(
                    file,
                    first,
                    out.bytes(),
                    &[FailedRead {
                        at_block: first,
                        blocks: piece.blocks,
                        from,
                        error,
                    }],
                ),
            };
        }
        let failed = self.run_reads(&plan, first, out.lend());
        if failed.is_empty() {
            return Ok(());
        }
        self.recover_reads(file, first, out.bytes(), &failed)
    }

    /// Refuses beyond the marks of a file that lost something and has not told it yet.
    #[cold]
    fn check_whole(file: &File, map: &Map, first: u64, end: u64) -> Result<(), GroupError> {
        let mut beyond = None;
        plan::segments::<TooFar>(map, first, end, |segment| {
            if segment.extent.is_some() && segment.initialised_blocks() < segment.blocks {
                beyond = Some(segment.index);
            }
            Ok(())
        })
        .map_err(|TooFar| GroupError::too_far())?;
        match beyond {
            None => Ok(()),
            Some(index) => Err(file.lost_and_untold(index, "zeros can be read")),
        }
    }

    fn run_reads(&self, plan: &ReadPlan, first: u64, mut out: Lent<'_>) -> Vec<FailedRead> {
        let mut batch: SmallVec<[Request<'_>; 8]> = SmallVec::new();
        let mut places: SmallVec<[(u64, u64, Spot); 8]> = SmallVec::new();
        let mut at_block = first;
        for piece in plan {
            let mut memory = out.split_front(bytes_of(piece.blocks));
            match piece.from {
                None => memory.bytes().fill(0),
                Some(from) => {
                    batch.push(Request::new(
                        from.slot,
                        from.offset_bytes,
                        memory.into_work(),
                    ));
                    places.push((at_block, piece.blocks, from));
                }
            }
            at_block += piece.blocks;
        }
        self.disks.read(&mut batch);
        batch
            .into_iter()
            .zip(places)
            .filter_map(|(request, (at_block, blocks, from))| {
                Some(FailedRead {
                    at_block,
                    blocks,
                    from,
                    error: request.result.err()?,
                })
            })
            .collect()
    }

    pub(crate) fn read_refused(&self, file: &File, refusal: ReadRefusal) -> GroupError {
        match refusal {
            ReadRefusal::TooFar => GroupError::too_far(),
            ReadRefusal::NoCopy(index) => GroupError::new(
                GroupErrorKind::Io,
                format!(
                    "extent {index} of file {} has no copy on an online disk: bring its disks \
                     back",
                    file.id
                ),
            )
            .during(Operation::Read)
            .of_file(file.id)
            .in_extent(index),
        }
    }
}
