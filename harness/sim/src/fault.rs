//! Faults on the disks that may fail.

use std::ops::Range;

use spindle_base::BLOCK_SIZE_BYTES;
use spindle_device::{DeviceErrorKind, DiskSlot, FaultyOperation};

use crate::operation::Fault;
use crate::run::{Run, Step};

const KIB: u64 = 1 << 10;
/// The catalog lies somewhere in a disk's first part.
const METADATA_SEARCH_BYTES: u64 = 24 << 20;
const METADATA_TRIES: u64 = 64;

impl Run {
    pub(crate) fn put_fault(&mut self, disk: u64, fault: Fault) -> Step<()> {
        let slots = self.failing_slots();
        let Some(slot) = pick(&slots, disk) else {
            return Ok(());
        };
        if matches!(fault, Fault::FlipBit { .. }) {
            // What was removed lately holds a file's bytes again if a power cut takes the
            // removal back; after a sync none can.
            self.sync()?;
            if !self.disks.is_powered() {
                return Ok(());
            }
        }
        self.faults_count += 1;
        self.coverage.faults += 1;
        let size_bytes = self.shelf_disk(slot).size_bytes;
        match fault {
            Fault::Vanish => self.disks.vanish(slot),
            Fault::VanishAfter(requests) => self.disks.vanish_after(slot, requests),
            Fault::FailWrites(count) => self.disks.fail_writes(slot, 0..size_bytes, count),
            Fault::FailFlushes(count) => self.disks.fail_flushes(slot, count),
            Fault::DropAtFlushes(count) => self.disks.drop_at_flushes(slot, count),
            // It hangs: whoever reads gets no answer in time.
            Fault::FailReads { stretch, count } if stretch % 5 == 4 => self.disks.fail(
                slot,
                FaultyOperation::Read,
                0..size_bytes,
                count,
                DeviceErrorKind::TimedOut,
            ),
            Fault::FailReads { stretch, count } => {
                // From a block up to a quarter of the disk.
                let length = BLOCK_SIZE_BYTES << (stretch % 12);
                let start = (stretch / 12) % (size_bytes / 4);
                self.disks.fail_reads(slot, start..start + length, count);
            }
            Fault::FlipBit { place } => {
                if let Some(range) = self.metadata_place(slot, place) {
                    self.note(format!("flips a bit of disk {} in {range:?}", slot.0));
                    self.flipped.insert(slot);
                    self.disks.flip_bits(slot, range, 1);
                }
            }
        }
        Ok(())
    }

    /// A stretch of the disk that holds no file's bytes: those have no checksum of their own, so
    /// a flipped bit in them is beyond what this layer promises.
    fn metadata_place(&self, slot: DiskSlot, place: u64) -> Option<Range<u64>> {
        match place % 8 {
            0 => return Some(0..4 * KIB),
            1 => return Some(512 * KIB..516 * KIB),
            2 => return Some(128 * KIB..132 * KIB),
            3 => return Some(256 * KIB..260 * KIB),
            4 => return Some(64 * KIB..68 * KIB),
            // A copy on its way lies where no map names it yet.
            _ if !self.system().group().operations().is_empty() => return None,
            _ => {}
        }
        let taken = self.file_ranges(slot);
        let search_bytes = METADATA_SEARCH_BYTES.min(self.shelf_disk(slot).size_bytes - (1 << 20));
        let blocks = search_bytes / BLOCK_SIZE_BYTES;
        (0..METADATA_TRIES).find_map(|attempt| {
            let block = (place / 8).wrapping_add(attempt.wrapping_mul(7919)) % blocks;
            let start = (1 << 20) + block * BLOCK_SIZE_BYTES;
            let range = start..start + BLOCK_SIZE_BYTES;
            let is_taken = taken
                .iter()
                .any(|other| other.start < range.end && range.start < other.end);
            let bytes = self.disks.bytes(slot, start, 4096);
            (!is_taken && bytes.iter().any(|byte| *byte != 0)).then_some(range)
        })
    }

    fn file_ranges(&self, slot: DiskSlot) -> Vec<Range<u64>> {
        let group = self.system().group();
        let number = self.number_of(slot);
        self.model
            .contents
            .keys()
            .filter_map(|id| group.file(*id))
            .flat_map(|file| group.map(&file))
            .flat_map(|extent| {
                let length = extent.length_bytes;
                extent
                    .copies
                    .into_iter()
                    .flatten()
                    .map(move |(disk, start)| (disk, start..start + length))
            })
            .filter(|(disk, _)| Some(*disk) == number)
            .map(|(_, range)| range)
            .collect()
    }
}

/// One of `items` that a number gives.
pub(crate) fn pick<T: Copy>(items: &[T], number: u64) -> Option<T> {
    let count = items.len() as u64;
    (count > 0).then(|| items[usize::try_from(number % count).unwrap_or(0)])
}
