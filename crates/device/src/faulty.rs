//! Disks whose cables can be pulled while a daemon runs on them.
//!
//! Requests begun before the pull end as they end; all later ones answer `Gone`, as the kernel
//! answers for a disk that was taken out. While nothing is pulled a batch costs one relaxed load.
//! Where volatile caches are asked for, a disk that is pulled loses of what no flush had covered.

mod cache;

use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use parking_lot::RwLock;
use rustix::io::Errno;

use crate::mixed::SLOTS_END;
use crate::request::{DeviceErrorKind, DiskSlot, Request, Work};
use crate::{Disks, Judge};
use cache::VolatileCaches;

/// Any disks, with cables to pull.
#[derive(Debug)]
pub struct FaultableDisks<D> {
    inner: D,
    pulled_count: AtomicU32,
    pulled: Box<[AtomicBool]>,
    caches: Option<VolatileCaches>,
    judge: RwLock<Option<Weak<dyn Judge>>>,
}

impl<D: Disks> FaultableDisks<D> {
    /// All plugged in.
    #[must_use]
    pub fn new(inner: D) -> Self {
        Self {
            inner,
            pulled_count: AtomicU32::new(0),
            pulled: (0..SLOTS_END).map(|_| AtomicBool::new(false)).collect(),
            caches: None,
            judge: RwLock::new(None),
        }
    }

    /// As [`Self::new`]. A disk that is pulled loses none, all or some of what no flush had covered,
    /// as the seed has it. Each write costs a read of what it replaces.
    #[must_use]
    pub fn with_volatile_caches(inner: D, seed: u64) -> Self {
        Self {
            caches: Some(VolatileCaches::new(seed)),
            ..Self::new(inner)
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
            if let Some(caches) = &self.caches {
                caches.lose(&self.inner, slot);
            }
        }
    }

    fn run_connected(&self, batch: &mut [Request<'_>]) {
        let Some(caches) = &self.caches else {
            self.inner.run(batch);
            return;
        };
        let under_way = caches.begin(&self.inner, batch);
        self.inner.run(batch);
        caches.end(under_way, batch);
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
                // The disks below do not see this one's requests.
                if let Some(judge) = self.judge.read().as_ref().and_then(Weak::upgrade) {
                    judge.has_gone(request.slot);
                }
                request.tell_failure();
            } else {
                // The caller's memory moves over for the run and comes back with the answer.
                let mut empty = Request::new(request.slot, 0, Work::Flush);
                empty.is_patient = request.is_patient;
                connected.push(std::mem::replace(request, empty));
                places.push(place);
            }
        }
        self.run_connected(&mut connected);
        for (place, request) in places.into_iter().zip(connected) {
            batch[place] = request;
        }
    }
}

impl<D: Disks> Disks for FaultableDisks<D> {
    fn run(&self, batch: &mut [Request<'_>]) {
        if self.pulled_count.load(Relaxed) == 0 {
            self.run_connected(batch);
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

    fn set_judge(&self, judge: Weak<dyn Judge>) {
        *self.judge.write() = Some(judge.clone());
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

    #[derive(Debug, Default)]
    struct Hears(RwLock<Vec<DiskSlot>>);

    impl Judge for Hears {
        fn may_give_up(&self, _slot: DiskSlot, _failed: &[(DiskSlot, DeviceErrorKind)]) -> bool {
            true
        }

        fn has_gone(&self, slot: DiskSlot) {
            self.0.write().push(slot);
        }
    }

    #[test]
    fn who_judges_of_disks_that_hang_hears_of_one_whose_cable_is_pulled() {
        let disks = FaultableDisks::new(SimulatedDisks::new(1, &[1 << 20, 1 << 20]));
        let judge = std::sync::Arc::new(Hears::default());
        let held: std::sync::Arc<dyn Judge> = judge.clone();
        disks.set_judge(std::sync::Arc::downgrade(&held));
        disks.pull(DiskSlot(1));
        let flush = |slot| Request::new(DiskSlot(slot), 0, Work::Flush);
        disks.run(&mut [flush(0), flush(1)]);
        assert_eq!(*judge.0.read(), [DiskSlot(1)]);
    }

    #[test]
    fn a_pulled_disk_with_a_volatile_cache_loses_what_no_flush_covered_and_no_more() {
        let (mut lost_count, mut kept_count) = (0, 0);
        for seed in 0..40 {
            let disks = FaultableDisks::with_volatile_caches(
                SimulatedDisks::new(1, &[1 << 20, 1 << 20]),
                seed,
            );
            let (slot, other) = (DiskSlot(0), DiskSlot(1));
            let run = |requests: &mut [Request<'_>]| {
                disks.run(requests);
                assert!(requests.iter().all(|request| request.result.is_ok()));
            };
            let [old, new] = [1, 2].map(|byte| [byte; 2 * 4096]);
            for at in [0, 8192, 16384] {
                run(&mut [
                    Request::new(slot, at, Work::Write(&old)),
                    Request::new(other, at, Work::Write(&old)),
                ]);
            }
            run(&mut [Request::new(slot, 0, Work::Flush)]);
            // Flushed, durable by itself, and neither: the flush is of a batch with the write.
            run(&mut [Request::new(slot, 0, Work::Write(&new))]);
            run(&mut [Request::new(slot, 0, Work::Flush)]);
            run(&mut [Request::new(slot, 8192, Work::WriteDurable(&new))]);
            run(&mut [
                Request::new(slot, 16384, Work::Write(&new)),
                Request::new(slot, 0, Work::Flush),
                Request::new(other, 0, Work::Write(&new)),
            ]);
            disks.pull(slot);
            disks.plug(slot);
            let bytes = |slot, at| disks.inner().bytes(slot, at, 8192);
            assert_eq!(bytes(slot, 0), new, "flushed");
            assert_eq!(bytes(slot, 8192), new, "durable");
            assert_eq!(bytes(other, 0), new, "of a disk that stays");
            for block in bytes(slot, 16384).chunks(4096) {
                assert!(block == &old[..4096] || block == &new[..4096]);
                lost_count += u32::from(block == &old[..4096]);
                kept_count += u32::from(block == &new[..4096]);
            }
            // What was lost is not lost again.
            run(&mut [Request::new(slot, 16384, Work::WriteDurable(&new))]);
            disks.pull(slot);
            assert_eq!(bytes(slot, 16384), new);
        }
        assert!(
            lost_count > 5 && kept_count > 5,
            "{lost_count}, {kept_count}"
        );
    }
}
