//! The disks of one engine by slot, found without a lock.
//!
//! A slot is filled once and stays filled until the engine goes, so a reference into the table
//! is good for as long as the engine.
//!
//! **Fences.** A disk whose requests were given up is fenced: its slot is sent nothing more, ever,
//! and lets go of its descriptor. The late requests alone hold the disk open then, and with that
//! the exclusive claim or lock that it was opened with. So nobody, in this process or another, can
//! own the disk before the kernel has finished with them; who opens it anew gets another slot. The
//! memory of the late requests is kept until then, or for good.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::{Mutex, RwLock};

use crate::Judge;
use crate::buffer::Memory;
use crate::counters::LiveCounters;
use crate::open::{OpenDisk, OpenError, OpenErrorKind};
use crate::request::{DeviceErrorKind, DiskSlot};

/// The most disks that one engine can have opened, one beside or after the other.
pub const DISK_SLOTS_MAX: usize = 4096;

#[derive(Debug)]
pub(crate) struct TableEntry {
    pub(crate) disk: OpenDisk,
    pub(crate) counters: LiveCounters,
    fenced: AtomicBool,
    /// What late requests read or fill.
    kept: Mutex<Vec<Arc<Memory>>>,
}

impl TableEntry {
    /// Whether requests were given up that the kernel may still hold.
    pub(crate) fn is_fenced(&self) -> bool {
        self.fenced.load(Ordering::Acquire)
    }

    /// Gives the disk up: these are the memory of requests that the kernel still holds.
    pub(crate) fn fence(&self, late: impl IntoIterator<Item = Arc<Memory>>) {
        self.kept.lock().extend(late);
        if self.fenced.swap(true, Ordering::AcqRel) {
            return;
        }
        tracing::error!(
            disk = self.disk.path,
            "the disk hangs: it has not answered in time and is sent nothing more"
        );
        if let Err(error) = self.disk.release() {
            tracing::warn!(disk = self.disk.path, %error, "the disk is held until this process ends");
        }
    }

    /// Somebody owns the disk anew, so all late requests have ended.
    fn late_have_ended(&self) {
        self.kept.lock().clear();
    }
}

impl Drop for TableEntry {
    fn drop(&mut self) {
        // The kernel may still use it, and nobody will hear when it no longer does.
        std::mem::forget(std::mem::take(self.kept.get_mut()));
    }
}

#[derive(Debug)]
pub(crate) struct DiskTable {
    entries: Box<[OnceLock<Box<TableEntry>>]>,
    filled: Mutex<usize>,
    judge: RwLock<Option<Weak<dyn Judge>>>,
}

impl DiskTable {
    pub(crate) fn new() -> Self {
        Self {
            entries: (0..DISK_SLOTS_MAX).map(|_| OnceLock::new()).collect(),
            filled: Mutex::new(0),
            judge: RwLock::new(None),
        }
    }

    /// Gives the disk a slot. None is ever given twice: a request that was planned for one disk must
    /// not reach another.
    pub(crate) fn try_attach(&self, disk: OpenDisk) -> Result<DiskSlot, OpenError> {
        let mut filled = self.filled.lock();
        let slot = u16::try_from(*filled).expect("fewer than 65,536 slots");
        if *filled == DISK_SLOTS_MAX {
            return Err(disk.refused(OpenErrorKind::NoSlot));
        }
        if disk.is_owned {
            let earlier = self.entries[..*filled].iter().filter_map(OnceLock::get);
            earlier
                .filter(|entry| entry.is_fenced() && entry.disk.identity == disk.identity)
                .for_each(|entry| entry.late_have_ended());
        }
        let entry = TableEntry {
            disk,
            counters: LiveCounters::new(),
            fenced: AtomicBool::new(false),
            kept: Mutex::default(),
        };
        assert!(
            self.entries[*filled].set(Box::new(entry)).is_ok(),
            "a slot is filled once"
        );
        *filled += 1;
        Ok(DiskSlot(slot))
    }

    /// As [`Self::try_attach`].
    ///
    /// # Panics
    /// Where all slots are given.
    pub(crate) fn attach(&self, disk: OpenDisk) -> DiskSlot {
        self.try_attach(disk)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// The disk in a slot that this table gave.
    pub(crate) fn entry(&self, slot: DiskSlot) -> &TableEntry {
        self.entries[usize::from(slot.0)]
            .get()
            .expect("slots are used only where they were given")
    }

    pub(crate) fn set_judge(&self, judge: Weak<dyn Judge>) {
        *self.judge.write() = Some(judge);
    }

    /// Whether a disk that does not answer may be given up; one that was is not asked for again.
    pub(crate) fn may_give_up(
        &self,
        slot: DiskSlot,
        failed: &[(DiskSlot, DeviceErrorKind)],
    ) -> bool {
        if self.entry(slot).is_fenced() {
            return true;
        }
        let judge = self.judge.read().as_ref().and_then(Weak::upgrade);
        judge.is_none_or(|judge| judge.may_give_up(slot, failed))
    }

    /// The disk has failed a request: the judge is told where that says that it is gone.
    #[cold]
    pub(crate) fn tell_if_gone(&self, slot: DiskSlot, kind: DeviceErrorKind) {
        if kind == DeviceErrorKind::Gone
            && let Some(judge) = self.judge.read().as_ref().and_then(Weak::upgrade)
        {
            judge.has_gone(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::DISK_SLOTS_MAX;
    use crate::engine_tests::Folder;
    use crate::{OpenDisk, OpenErrorKind, PlainDisks};
    use rustix::process::{Resource, getrlimit, setrlimit};

    #[test]
    fn the_disk_after_the_last_slot_is_refused_in_words() {
        // Each slot keeps its descriptor.
        let mut limit = getrlimit(Resource::Nofile);
        limit.current = limit.maximum;
        setrlimit(Resource::Nofile, limit).unwrap();
        if limit.maximum.is_some_and(|most| most < 5000) {
            println!("skipped: too few descriptors are allowed here");
            return;
        }
        let folder = Folder::new("slots");
        drop(folder.disk("disk", 1 << 20));
        let path = folder.0.join("disk");
        let disks = PlainDisks::new();
        for _ in 0..DISK_SLOTS_MAX {
            let slot = disks.try_attach(OpenDisk::open_read_only(&path).unwrap());
            disks.release(slot.unwrap()).unwrap();
        }
        let refused = disks.try_attach(OpenDisk::open_read_only(&path).unwrap());
        let error = refused.unwrap_err();
        assert_eq!(error.kind, OpenErrorKind::NoSlot);
        assert!(error.to_string().contains("4096"), "{error}");
    }
}
