//! Disks that break the contract, to show that the simulator would notice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use spindle_device::{DiskSlot, Disks, Operation, Request, SimulatedDisks, Work};

/// How disks lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Breakage {
    /// A flush is answered and does nothing.
    FlushIsIgnored,
    /// A durable write is an ordinary one.
    DurableWriteIsNot,
    /// Every so many writes of data, one is answered and not done.
    WritesAreLost(u64),
    /// Every so many writes of data, one lands a block further.
    WritesAreMisplaced(u64),
}

/// Simulated disks behind a lie.
#[derive(Debug)]
pub struct BrokenDisks {
    disks: Arc<SimulatedDisks>,
    breakage: Breakage,
    writes_count: AtomicU64,
}

impl BrokenDisks {
    /// The disks, lying from now on.
    #[must_use]
    pub fn new(disks: Arc<SimulatedDisks>, breakage: Breakage) -> Self {
        Self {
            disks,
            breakage,
            writes_count: AtomicU64::new(0),
        }
    }

    /// AU 0 is left alone: a group that cannot even be opened shows nothing.
    fn is_chosen(&self, request: &Request<'_>, every: u64) -> bool {
        let is_data =
            request.work.operation() == Operation::Write && request.offset_bytes >= 1 << 20;
        is_data && self.writes_count.fetch_add(1, Ordering::Relaxed) % every == every - 1
    }

    fn is_swallowed(&self, request: &Request<'_>) -> bool {
        match self.breakage {
            Breakage::FlushIsIgnored => matches!(request.work, Work::Flush),
            Breakage::WritesAreLost(every) => self.is_chosen(request, every),
            Breakage::DurableWriteIsNot | Breakage::WritesAreMisplaced(_) => false,
        }
    }
}

impl Disks for BrokenDisks {
    fn run(&self, batch: &mut [Request<'_>]) {
        if !self.disks.is_powered() {
            return self.disks.run(batch);
        }
        for request in batch {
            if self.is_swallowed(request) {
                continue;
            }
            let misplaced = matches!(self.breakage, Breakage::WritesAreMisplaced(every) if self.is_chosen(request, every));
            if misplaced && request.offset_bytes + (1 << 20) < self.size_bytes(request.slot) {
                request.offset_bytes += 4096;
            }
            let slot = request.slot;
            let offset_bytes = request.offset_bytes;
            let work = match &mut request.work {
                Work::Read(memory) => Work::Read(memory),
                Work::ReadPart(part) => Work::Read(part.bytes()),
                Work::Write(bytes) => Work::Write(bytes),
                Work::WritePart(part) => Work::WritePart(*part),
                Work::WriteDurable(bytes) if self.breakage == Breakage::DurableWriteIsNot => {
                    Work::Write(bytes)
                }
                Work::WriteDurable(bytes) => Work::WriteDurable(bytes),
                Work::Flush => Work::Flush,
            };
            let mut single = [Request::new(slot, offset_bytes, work)];
            single[0].listener = request.listener.take();
            self.disks.run(&mut single);
            let [single] = single;
            request.result = single.result;
        }
    }

    fn size_bytes(&self, slot: DiskSlot) -> u64 {
        self.disks.size_bytes(slot)
    }

    fn measure(&self, slot: DiskSlot) -> std::io::Result<u64> {
        self.disks.measure(slot)
    }

    fn path(&self, slot: DiskSlot) -> String {
        self.disks.path(slot)
    }

    fn in_flight_count(&self, slot: DiskSlot) -> u32 {
        self.disks.in_flight_count(slot)
    }

    fn appearance(&self, slot: DiskSlot) -> Option<u64> {
        self.disks.appearance(slot)
    }
}
