//! Disks whose cables can be pulled while a daemon runs on them.
//!
//! Requests begun before the pull end as they end; all later ones answer `Gone`, as the kernel
//! answers for a disk that was taken out. While nothing is pulled a batch costs one relaxed load.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use rustix::io::Errno;

use crate::Disks;
use crate::request::{DeviceErrorKind, DiskSlot, Request, Work};
use crate::table::DISK_SLOTS_MAX;

/// Any disks, with cables to pull.
#[derive(Debug)]
pub struct FaultableDisks<D> {
    inner: D,
    pulled_count: AtomicU32,
    pulled: Box<[AtomicBool]>,
}

impl<D: Disks> FaultableDisks<D> {
    /// All plugged in.
    #[must_use]
    pub fn new(inner: D) -> Self {
        Self {
            inner,
            pulled_count: AtomicU32::new(0),
            pulled: (0..DISK_SLOTS_MAX)
                .map(|_| AtomicBool::new(false))
                .collect(),
        }
    }

    /// The disks behind the cables.
    pub const fn inner(&self) -> &D {
        &self.inner
    }

    /// Lets every later request to the disk answer `Gone`.
    pub fn pull(&self, slot: DiskSlot) {
        if !self.pulled[usize::from(slot.0)].swap(true, Relaxed) {
            self.pulled_count.fetch_add(1, Relaxed);
        }
    }

    /// Lets requests through to the disk again.
    pub fn plug(&self, slot: DiskSlot) {
        if self.pulled[usize::from(slot.0)].swap(false, Relaxed) {
            self.pulled_count.fetch_sub(1, Relaxed);
        }
    }

    /// Whether the disk's cable is pulled.
    #[must_use]
    pub fn is_pulled(&self, slot: DiskSlot) -> bool {
        self.pulled[usize::from(slot.0)].load(Relaxed)
    }

    /// Answers what goes to pulled disks, and sends the rest on as one batch.
    #[cold]
    fn run_without_pulled(&self, batch: &mut [Request<'_>]) {
        let mut connected = Vec::with_capacity(batch.len());
        let mut places = Vec::with_capacity(batch.len());
        for (place, request) in batch.iter_mut().enumerate() {
            if self.is_pulled(request.slot) {
                let errno = Some(Errno::NODEV.raw_os_error());
                let path = self.inner.path(request.slot);
                request.fail(&path, DeviceErrorKind::Gone, errno);
                request.tell_failure();
            } else {
                // The caller's memory moves over for the run and comes back with the answer.
                let mut empty = Request::new(request.slot, 0, Work::Flush);
                empty.is_patient = request.is_patient;
                connected.push(std::mem::replace(request, empty));
                places.push(place);
            }
        }
        self.inner.run(&mut connected);
        for (place, request) in places.into_iter().zip(connected) {
            batch[place] = request;
        }
    }
}

impl<D: Disks> Disks for FaultableDisks<D> {
    fn run(&self, batch: &mut [Request<'_>]) {
        if self.pulled_count.load(Relaxed) == 0 {
            self.inner.run(batch);
        } else {
            self.run_without_pulled(batch);
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

    fn set_judge(&self, judge: std::sync::Weak<dyn crate::Judge>) {
        self.inner.set_judge(judge);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SimulatedDisks;

    #[test]
    fn a_pulled_disk_is_gone_its_neighbours_are_not_and_plugged_in_it_has_its_bytes() {
        let disks = FaultableDisks::new(SimulatedDisks::new(1, &[1 << 20, 1 << 20]));
        let old = [1; 4096];
        let new = [2; 4096];
        let write = |data: &[u8; 4096]| {
            let mut batch = [
                Request::new(DiskSlot(0), 0, Work::Write(data)),
                Request::new(DiskSlot(1), 0, Work::Write(data)),
                Request::new(DiskSlot(0), 0, Work::Flush),
            ];
            disks.run(&mut batch);
            assert_eq!(batch[1].offset_bytes, 0);
            assert!(matches!(batch[1].work, Work::Write(memory) if memory == data));
            batch.map(|request| request.result.map_err(|error| error.kind))
        };
        assert!(write(&old).iter().all(Result::is_ok));
        disks.pull(DiskSlot(0));
        disks.pull(DiskSlot(0));
        let gone = Err(DeviceErrorKind::Gone);
        assert_eq!(write(&new), [gone, Ok(()), gone]);
        disks.plug(DiskSlot(0));
        let mut memory = [0; 4096];
        let mut batch = [Request::new(DiskSlot(0), 0, Work::Read(&mut memory))];
        disks.run(&mut batch);
        assert!(batch[0].result.is_ok());
        assert_eq!(memory, old);
        assert_eq!(disks.inner().bytes(DiskSlot(1), 0, 4096), new);
        assert!(write(&new).iter().all(Result::is_ok));
    }
}
