//! Simulated disks at whose every request another thread may go on.
//!
//! A batch's requests are served one by one in an order that the seed draws, with a point before
//! each; so a power cut, a disk that goes and another thread's write come between any two of them.

use std::sync::{Arc, Mutex};

use spindle_device::{DiskSlot, Disks, Request, SeededRandom, SimulatedDisks, Work};

use crate::history::History;
use crate::watch::Watch;

/// See the module.
#[derive(Debug)]
pub struct PointDisks {
    inner: Arc<SimulatedDisks>,
    history: Arc<History>,
    watch: Arc<Watch>,
    /// Never held over a point.
    random: Mutex<SeededRandom>,
}

impl PointDisks {
    /// Over these disks.
    #[must_use]
    pub fn new(
        inner: Arc<SimulatedDisks>,
        history: Arc<History>,
        watch: Arc<Watch>,
        seed: u64,
    ) -> Self {
        Self {
            inner,
            history,
            watch,
            random: Mutex::new(SeededRandom::new(!seed)),
        }
    }
}

impl Disks for PointDisks {
    fn run(&self, batch: &mut [Request<'_>]) {
        let mut order: Vec<usize> = (0..batch.len()).collect();
        self.random
            .lock()
            .expect("never poisoned")
            .shuffle(&mut order);
        for index in order {
            spindle_sync::point();
            self.inner.run(&mut batch[index..=index]);
            let request = &batch[index];
            if !matches!(request.work, Work::Flush) {
                // Disks have the numbers of their slots here.
                let (disk, at) = (request.slot.0, request.offset_bytes);
                self.watch.note(disk, at, request.length_bytes() as u64);
            }
            self.history.note(|| {
                let what = match request.work {
                    Work::Read(_) | Work::ReadPart(_) => "read",
                    Work::Write(_) | Work::WritePart(_) => "write",
                    Work::WriteDurable(_) => "durable write",
                    Work::Flush => "flush",
                };
                let length = request.length_bytes();
                let (slot, at) = (request.slot.0, request.offset_bytes);
                let answer = if request.result.is_ok() {
                    ""
                } else {
                    ": failed"
                };
                format!("    {what} of {length} at {at} of slot {slot}{answer}")
            });
        }
        // The answer is on its way.
        spindle_sync::point();
    }

    fn size_bytes(&self, slot: DiskSlot) -> u64 {
        self.inner.size_bytes(slot)
    }

    fn path(&self, slot: DiskSlot) -> String {
        self.inner.path(slot)
    }

    fn in_flight_count(&self, slot: DiskSlot) -> u32 {
        self.inner.in_flight_count(slot)
    }

    fn is_fenced(&self, slot: DiskSlot) -> bool {
        self.inner.is_fenced(slot)
    }

    fn set_judge(&self, judge: std::sync::Weak<dyn spindle_device::Judge>) {
        self.inner.set_judge(judge);
    }
}
