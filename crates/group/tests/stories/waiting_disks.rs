//! Disks that let a test stop one batch on its way.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use spindle_device::{DiskSlot, Disks, Request, SimulatedDisks, Work};
use spindle_group::Group;

use crate::scene::{Scene, opener};

/// Which batch waits, and whether before the disks are asked.
#[derive(Debug)]
struct Waits {
    is_it: fn(&[Request<'_>]) -> bool,
    before: bool,
    came: Sender<()>,
    goes_on: Receiver<()>,
}

/// Disks of which one batch waits until it is told to go on.
#[derive(Debug)]
pub(crate) struct OneBatchWaits {
    inner: Arc<SimulatedDisks>,
    waits: Mutex<Vec<Waits>>,
}

impl OneBatchWaits {
    pub(crate) fn of(scene: &Scene) -> Arc<Self> {
        Arc::new(Self {
            inner: Arc::clone(&scene.disks),
            waits: Mutex::new(Vec::new()),
        })
    }

    pub(crate) fn open(self: &Arc<Self>, scene: &Scene, disks: u16) -> Group {
        let backend = Arc::clone(self) as Arc<dyn Disks>;
        let slots: Vec<DiskSlot> = (0..disks).map(DiskSlot).collect();
        Group::open(backend, &slots, &scene.name, &opener()).unwrap()
    }

    /// The next such batch waits: that it has come, and what lets it go on.
    pub(crate) fn wait(
        &self,
        before: bool,
        is_it: fn(&[Request<'_>]) -> bool,
    ) -> (Receiver<()>, Sender<()>) {
        let (came, has_come) = channel();
        let (go_on, goes_on) = channel();
        self.waits.lock().unwrap().push(Waits {
            is_it,
            before,
            came,
            goes_on,
        });
        (has_come, go_on)
    }
}

impl Disks for OneBatchWaits {
    fn run(&self, batch: &mut [Request<'_>]) {
        let waits = {
            let mut waits = self.waits.lock().unwrap();
            let at = waits.iter().position(|waits| (waits.is_it)(batch));
            at.map(|at| waits.remove(at))
        };
        let wait = |is_now: bool| {
            if let Some(waits) = &waits
                && waits.before == is_now
            {
                waits.came.send(()).unwrap();
                waits.goes_on.recv().unwrap();
            }
        };
        wait(true);
        self.inner.run(batch);
        wait(false);
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

    fn appearance(&self, slot: DiskSlot) -> Option<u64> {
        self.inner.appearance(slot)
    }
}

pub(crate) fn has_write(batch: &[Request<'_>]) -> bool {
    let is_write =
        |request: &Request<'_>| matches!(request.work, Work::Write(_) | Work::WritePart(_));
    batch.iter().any(is_write)
}
