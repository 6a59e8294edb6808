//! Disks that are looked at and never written.
//!
//! Opening a group repairs what a crash left: it makes copies equal, writes a new group state,
//! removes orphans. A command that only looks must not do any of that to the disks, and must
//! still see the group as it would be after. So the writes go to memory, and reads see them.
//! Nothing here outlives the command.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use spindle_base::BLOCK_SIZE_BYTES;
use spindle_device::{DiskSlot, Disks, Operation, Request, Work};

const BLOCK_BYTES: usize = 4096;

/// Blocks by disk and offset.
type Blocks = BTreeMap<(DiskSlot, u64), Box<[u8]>>;

/// Wraps disks so that no write reaches them.
#[derive(Debug)]
pub struct ReadOnlyDisks {
    inner: Arc<dyn Disks>,
    written: Mutex<Blocks>,
}

impl ReadOnlyDisks {
    /// Over `inner`, whose contents stay as they are.
    #[must_use]
    pub fn new(inner: Arc<dyn Disks>) -> Self {
        Self {
            inner,
            written: Mutex::default(),
        }
    }

    /// Bytes that would have been written.
    #[must_use]
    pub fn withheld_bytes(&self) -> u64 {
        self.written.lock().len() as u64 * BLOCK_SIZE_BYTES
    }

    fn withhold(&self, slot: DiskSlot, offset_bytes: u64, data: &[u8]) {
        let mut written = self.written.lock();
        let mut at = offset_bytes;
        for block in data.chunks(BLOCK_BYTES) {
            written.insert((slot, at), block.into());
            at += BLOCK_SIZE_BYTES;
        }
    }

    fn patch(&self, slot: DiskSlot, offset_bytes: u64, out: &mut [u8]) {
        let written = self.written.lock();
        let end_bytes = offset_bytes + out.len() as u64;
        for ((_, at), block) in written.range((slot, offset_bytes)..(slot, end_bytes)) {
            let within = usize::try_from(at - offset_bytes).unwrap_or(usize::MAX);
            out[within..within + block.len()].copy_from_slice(block);
        }
    }
}

fn aligned(offset_bytes: u64, length_bytes: usize) -> bool {
    offset_bytes.is_multiple_of(BLOCK_SIZE_BYTES) && length_bytes.is_multiple_of(BLOCK_BYTES)
}

impl Disks for ReadOnlyDisks {
    fn run(&self, batch: &mut [Request<'_>]) {
        for request in batch.iter_mut() {
            let at = request.offset_bytes;
            match request.work.written() {
                Some(data) => {
                    let end_bytes = at.checked_add(data.len() as u64);
                    let fits =
                        end_bytes.is_some_and(|end| end <= self.inner.size_bytes(request.slot));
                    assert!(
                        fits && aligned(at, data.len()),
                        "a write of {} bytes at {at} is misaligned or beyond the disk's end",
                        data.len()
                    );
                    self.withhold(request.slot, at, data);
                    request.result = Ok(());
                }
                None if request.work.operation() == Operation::Flush => request.result = Ok(()),
                None => {}
            }
        }
        let mut reads: Vec<usize> = Vec::new();
        let mut inner: Vec<Request<'_>> = Vec::new();
        for (index, request) in batch.iter_mut().enumerate() {
            if let Some(out) = request.work.filled() {
                reads.push(index);
                inner.push(Request::new(
                    request.slot,
                    request.offset_bytes,
                    Work::Read(out),
                ));
            }
        }
        if inner.is_empty() {
            return;
        }
        self.inner.run(&mut inner);
        let results: Vec<_> = inner.into_iter().map(|request| request.result).collect();
        for (index, result) in reads.into_iter().zip(results) {
            let request = &mut batch[index];
            request.result = result;
            let (slot, offset_bytes) = (request.slot, request.offset_bytes);
            if request.result.is_ok()
                && let Some(out) = request.work.filled()
            {
                self.patch(slot, offset_bytes, out);
            }
        }
    }

    fn size_bytes(&self, slot: DiskSlot) -> u64 {
        self.inner.size_bytes(slot)
    }

    fn measure(&self, slot: DiskSlot) -> std::io::Result<u64> {
        self.inner.measure(slot)
    }

    fn path(&self, slot: DiskSlot) -> String {
        self.inner.path(slot)
    }

    fn in_flight_count(&self, slot: DiskSlot) -> u32 {
        self.inner.in_flight_count(slot)
    }

    fn appearance(&self, slot: DiskSlot) -> Option<u64> {
        self.inner.appearance(slot)
    }

    fn is_fenced(&self, slot: DiskSlot) -> bool {
        self.inner.is_fenced(slot)
    }

    fn set_judge(&self, judge: std::sync::Weak<dyn spindle_device::Judge>) {
        self.inner.set_judge(judge);
    }
}

#[cfg(test)]
mod tests {
    use super::ReadOnlyDisks;
    use spindle_device::{DiskSlot, Disks, Request, SimulatedDisks, Work};
    use std::sync::Arc;

    const SLOT: DiskSlot = DiskSlot(0);

    fn write(disks: &dyn Disks, offset_bytes: u64, data: &[u8]) {
        let mut batch = [Request::new(SLOT, offset_bytes, Work::Write(data))];
        disks.run(&mut batch);
        batch[0].result.clone().unwrap();
    }

    fn read(disks: &dyn Disks, offset_bytes: u64, length_bytes: usize) -> Vec<u8> {
        let mut out = vec![0; length_bytes];
        let mut batch = [Request::new(SLOT, offset_bytes, Work::Read(&mut out))];
        disks.run(&mut batch);
        batch[0].result.clone().unwrap();
        out
    }

    #[test]
    fn writes_are_read_back_and_never_reach_the_disk() {
        let below: Arc<dyn Disks> = Arc::new(SimulatedDisks::new(1, &[1 << 20]));
        write(&*below, 4096, &[1; 12288]);
        let disks = ReadOnlyDisks::new(below.clone());
        write(&disks, 8192, &[2; 4096]);
        write(&disks, 0, &[3; 4096]);
        let mut wanted = vec![3; 4096];
        wanted.extend([1; 4096]);
        wanted.extend([2; 4096]);
        wanted.extend([1; 4096]);
        assert_eq!(read(&disks, 0, 16384), wanted);
        assert_eq!(disks.withheld_bytes(), 8192);
        assert_eq!(read(&*below, 0, 4096), vec![0; 4096]);
        assert_eq!(read(&*below, 8192, 4096), vec![1; 4096]);
    }

    #[test]
    fn a_read_and_a_write_of_one_batch_each_get_their_answer() {
        let below: Arc<dyn Disks> = Arc::new(SimulatedDisks::new(1, &[1 << 20]));
        let disks = ReadOnlyDisks::new(below);
        let mut out = vec![9; 4096];
        let data = [7; 4096];
        let mut batch = [
            Request::new(SLOT, 0, Work::Read(&mut out)),
            Request::new(SLOT, 4096, Work::WriteDurable(&data)),
            Request::new(SLOT, 0, Work::Flush),
        ];
        disks.run(&mut batch);
        assert!(batch.iter().all(|request| request.result.is_ok()));
        assert_eq!(out, vec![0; 4096]);
        assert_eq!(read(&disks, 4096, 4096), data);
    }
}
