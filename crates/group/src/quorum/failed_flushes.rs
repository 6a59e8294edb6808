//! Flushes that disks failed, from the disk's answer until nobody needs it any more.
//!
//! A disk that failed a flush may have dropped what it held, and answer the next flush well. Who
//! asked for the first one tells everybody concerned, or takes the disk offline; the catalog, which
//! knows of no file, leaves that to the next flush of one. Until then the failure stands, whoever asked: no later flush of the disk counts, because it would take what the
//! disk dropped for flushed.
//!
//! Between the disk's answer and that the process may be killed, or end because the group cannot do
//! without the disk. So where a keeper holds the group's journal, a process that takes over finds
//! the failure there for as long as it stands.
//!
//! A failure is noted when its disk has answered, not when its batch has ended: another disk of that
//! may keep silent for long, and the process be killed meanwhile.
//!
//! A durable write that failed counts as a flush that did: it is a write and a flush, and the disk
//! does not say which of them it failed. Whoever writes what a disk need not take asks for the two
//! one by one, see [`Membership::write_and_flush`]: else one bad block, tried again and again, would
//! make the disk one that drops what it is given.
//!
//! A failure is what the disk answered. A flush that was never sent, or whose good answer does not
//! count because nobody knew whose the group was then, made no disk drop anything.
//!
//! A disk that went and came back between two processes may have dropped as much. The second finds
//! in the journal which appearance of the disk the first one had, and takes another one for a flush
//! that failed.
//!
//! Failures are counted: whoever has told one forgets those that it knew of, and none that came
//! since.
//!
//! A disk that fails a flush and serves on begins anew, and that is told after it: to every file that
//! had written there, which takes its time. What is written meanwhile belongs to the new life, which
//! no failure before its beginning concerns. So each life is known with how many had been by then: a
//! failure stands against what was written in the life before, and flushes of the new one count.

use std::collections::BTreeMap;
use std::sync::Arc;

use spindle_base::DiskNumber;
use spindle_catalog::KeptJournal;
use spindle_device::{DeviceError, DiskSlot, Disks, FailureListener, Operation, Request, Work};
use spindle_lease::map::StandingWord;
use spindle_sync::atomic::{AtomicU64, Ordering};
use spindle_sync::level::{LeafMutex, LeafRwLock};

use crate::by_number::ByNumber;
use crate::incarnation::{Incarnation, Life};
use crate::quorum::{Membership, Slots};

/// How often something is written durably while its disk fails other flushes.
const DURABLE_TRIES_MAX: u32 = 3;

/// How often a disk failed a flush.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failures {
    /// Since the group was opened.
    pub(crate) count: u64,
    /// So many of them nobody needs any more.
    pub(crate) told_count: u64,
    /// The newest incarnation that began with one, and how many had been by then.
    begun: (Incarnation, u32),
}

impl Failures {
    /// Whether one was not told yet.
    pub(crate) const fn stand(self) -> bool {
        self.told_count < self.count
    }

    /// Whether one was not told yet by which the disk may have dropped what was written to it in this
    /// incarnation.
    pub(crate) fn stand_against(self, incarnation: Incarnation) -> bool {
        let (begun, before_count) = self.begun;
        let before_count = match begun == incarnation {
            true => u64::from(before_count),
            false => 0,
        };
        self.told_count.max(before_count) < self.count
    }
}

/// The upper and the lower half.
fn halves(word: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = word.to_be_bytes();
    [[a, b, c, d], [e, f, g, h]].map(u32::from_be_bytes)
}

/// Of one disk, see [`Failures`].
#[derive(Debug, Default)]
struct Counts {
    count: AtomicU64,
    told_count: AtomicU64,
    /// In one word, so that no incarnation is seen with the count of another: its number above, the
    /// count below.
    begun: AtomicU64,
}

/// The failed flushes of all disks.
#[derive(Debug, Default)]
pub(crate) struct FailedFlushes {
    by_disk: ByNumber<Counts>,
    /// Of all disks: who reads looks before and after.
    noted_count: AtomicU64,
    /// The newest of each disk. Held by whoever notes one or forgets some, so that the journal says
    /// the same.
    newest: LeafMutex<BTreeMap<DiskNumber, DeviceError>>,
    /// Where a keeper holds the group's journal.
    journal: Option<Arc<KeptJournal>>,
    /// What direct clients look at.
    shown: Option<StandingWord>,
}

impl FailedFlushes {
    /// None until now; they are noted in the `journal` too, and clients that look at that number read no disk
    /// until they are told.
    pub(crate) fn new(journal: Option<Arc<KeptJournal>>, shown: Option<StandingWord>) -> Self {
        Self {
            journal,
            shown,
            ..Self::default()
        }
    }

    /// The journal that a keeper holds.
    pub(super) fn journal(&self) -> Option<&Arc<KeptJournal>> {
        self.journal.as_ref()
    }

    /// The disk failed a flush.
    pub(crate) fn note(&self, disk: DiskNumber, error: &DeviceError) {
        let mut newest = self.newest.lock();
        newest.insert(disk, error.clone());
        if let Some(journal) = &self.journal {
            journal.note_failed_flush(disk);
        }
        let counts = self.by_disk.get_or_put(disk.0, Counts::default);
        counts.count.fetch_add(1, Ordering::AcqRel);
        self.note_one();
    }

    fn note_one(&self) {
        self.noted_count.fetch_add(1, Ordering::AcqRel);
        self.keep_clients_off();
    }

    fn keep_clients_off(&self) {
        if let Some(shown) = &self.shown {
            shown.raise();
        }
    }

    /// How often a flush of any disk failed, or one that had was told, since the group was opened. Cheap.
    pub(crate) fn noted_count(&self) -> u64 {
        self.noted_count.load(Ordering::Acquire)
    }

    /// This appearance of the disk is served from now on. Where a process that takes over meets
    /// another one, the disk went in between, and may have dropped as much as one that failed a flush.
    pub(crate) fn note_appearance(&self, disk: DiskNumber, appearance: Option<u64>) {
        if let Some(journal) = &self.journal {
            journal.note_appearance(disk, appearance);
        }
    }

    /// Cheap.
    pub(crate) fn of(&self, disk: DiskNumber) -> Failures {
        let Some(counts) = self.by_disk.get(disk.0) else {
            return Failures::default();
        };
        // In this order: one that comes in between stands.
        let told_count = counts.told_count.load(Ordering::Acquire);
        let count = counts.count.load(Ordering::Acquire);
        let [incarnation, before_count] = halves(counts.begun.load(Ordering::Acquire));
        Failures {
            count,
            told_count,
            begun: (Incarnation::of_number(incarnation), before_count),
        }
    }

    /// The disk begins that life because of failures, of which there were so many by then. To be
    /// called before anybody is shown the life.
    fn note_begun(&self, life: Life, count: u64) {
        // Of one that failed four thousand million flushes each counts against the new life too.
        let (Some(counts), Ok(count)) = (self.by_disk.get(life.disk.0), u32::try_from(count))
        else {
            return;
        };
        let incarnation = u64::from(life.incarnation.number());
        (counts.begun).store(incarnation << 32 | u64::from(count), Ordering::Release);
    }

    /// What the disk answered last of those that it failed; it failed one.
    pub(crate) fn newest(&self, disk: DiskNumber) -> DeviceError {
        self.answered(disk).expect("it failed a flush")
    }

    /// As [`Self::newest`], of any disk: what it answered last where it failed one.
    pub(crate) fn answered(&self, disk: DiskNumber) -> Option<DeviceError> {
        self.newest.lock().get(&disk).cloned()
    }

    /// The first `count` of the disk's failures nobody needs any more.
    pub(crate) fn forget(&self, disk: DiskNumber, count: u64) {
        let _one = self.newest.lock();
        if let Some(counts) = self.by_disk.get(disk.0)
            && counts.told_count.load(Ordering::Acquire) < count
        {
            // Who looked for what the disk lacks before that was noted, and asks only afterwards whether
            // it is in doubt, looks again: so this comes first.
            self.note_one();
            counts.told_count.store(count, Ordering::Release);
            // Who showed files to clients between the two has left the disk out.
            self.keep_clients_off();
        }
        if let Some(journal) = &self.journal
            && !self.of(disk).stand()
        {
            journal.forget_failed_flush(disk);
        }
    }
}

/// Notes the flushes that disks fail, and the durable writes, as each is answered: whoever asked for
/// one may wait for another disk of the same batch for long, or be killed while it does.
pub(super) struct FlushListener {
    pub(super) failures: FailedFlushes,
    /// The group's disks.
    pub(super) slots: Arc<LeafRwLock<Slots>>,
}

impl std::fmt::Debug for FlushListener {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("FlushListener")
    }
}

impl FlushListener {
    /// Runs a batch, and notes what fails.
    pub(super) fn run(self: &Arc<Self>, disks: &dyn Disks, batch: &mut [Request<'_>]) {
        for request in batch.iter_mut() {
            request.listener = match request.work.operation() {
                Operation::Flush | Operation::WriteDurable => Some(Arc::clone(self) as _),
                Operation::Read | Operation::Write => None,
            };
        }
        disks.run(batch);
        for request in batch {
            // Late rather than never, where a layer between has answered without a word.
            request.tell_failure();
            request.listener = None;
        }
    }
}

impl FailureListener for FlushListener {
    fn failed(&self, slot: DiskSlot, error: &DeviceError) {
        let slots = self.slots.read();
        let disk = slots.iter().find(|(_, open)| **open == slot);
        let disk = disk.map(|(disk, _)| *disk);
        drop(slots);
        if let Some(disk) = disk {
            self.failures.note(disk, error);
        }
    }
}

impl Membership {
    /// Writes durably, in one batch; gives the disks that failed, and why. Each write is a write and a
    /// flush: where its disk failed another flush meanwhile, it may have dropped what it was given and
    /// answered the flush within well. So it is written again then, and a disk of which that is so
    /// every time has failed.
    pub(crate) fn run_durable_writes(
        &self,
        mut writes: Vec<(DiskNumber, DiskSlot, u64, &[u8])>,
    ) -> Vec<(DiskNumber, DeviceError)> {
        let failures = self.failed_flushes();
        let mut failed = Vec::new();
        for tries_left in (0..DURABLE_TRIES_MAX).rev() {
            let counts: Vec<u64> = (writes.iter())
                .map(|(disk, ..)| failures.of(*disk).count)
                .collect();
            let mut batch: Vec<Request<'_>> = (writes.iter())
                .map(|(_, slot, place, bytes)| {
                    Request::new(*slot, *place, Work::WriteDurable(bytes))
                })
                .collect();
            self.run(&mut batch);
            let answers: Vec<_> = batch.into_iter().map(|request| request.result).collect();
            let mut again = Vec::new();
            for ((write, count), answer) in writes.into_iter().zip(counts).zip(answers) {
                let disk = write.0;
                match answer {
                    Err(error) => failed.push((disk, error)),
                    Ok(()) if failures.of(disk).count == count => {}
                    Ok(()) if tries_left > 0 => again.push(write),
                    Ok(()) => failed.push((disk, failures.newest(disk))),
                }
            }
            if again.is_empty() {
                break;
            }
            writes = again;
        }
        failed
    }

    /// Asks every disk that serves for a flush, and does no more than note which fail it; gives
    /// those. What they show may not be durable there, and nothing makes it so any more but to write
    /// it anew. To be called before anything else of an opening flushes, which would take such a disk offline,
    /// whatever it alone holds of a killed process; and before a state follows the elected one. A
    /// killed process may have sent that to a disk which shows it and would lose it with its power:
    /// once a newer one lies on others, the disk would look put back.
    pub(super) fn flush_and_note(&self) -> Vec<DiskNumber> {
        let slots: Slots = (self.slots.read().iter())
            .filter(|(disk, _)| self.is_online(**disk))
            .map(|(disk, slot)| (*disk, *slot))
            .collect();
        let mut batch: Vec<Request<'_>> = (slots.values())
            .map(|slot| Request::new(*slot, 0, Work::Flush))
            .collect();
        self.run(&mut batch);
        let failed = (slots.keys().zip(&batch))
            .filter_map(|(disk, request)| request.result.is_err().then_some(*disk))
            .collect();
        // This process has written nothing yet that they could have dropped. What one before it had
        // stays in the journal until this one serves.
        for disk in slots.into_keys() {
            self.forget_failed_flushes_of(disk);
        }
        failed
    }

    /// The flushes that disks failed.
    pub(crate) fn failed_flushes(&self) -> &FailedFlushes {
        self.disks.failed_flushes()
    }

    /// The disk failed a flush in that life and serves on: what it had not flushed is lost there, and
    /// belongs to an incarnation that has ended. How many flushes it had failed by then; `None` where
    /// that life had ended before.
    pub(crate) fn begin_anew(&self, life: Life) -> Option<u64> {
        // Under it every turn of a disk is made.
        let _one = self.inner.lock();
        if self.incarnation(life.disk) != life.incarnation {
            return None;
        }
        let failures = self.failed_flushes();
        let count = failures.of(life.disk).count;
        let begun = Life {
            incarnation: life.incarnation.next().next(),
            ..life
        };
        failures.note_begun(begun, count);
        self.standings.renew(life);
        Some(count)
    }

    /// Nobody relies any more on what the disk was to flush until now, because it went, of which the
    /// group state tells, or comes back and gets what it lacks, or because what it failed concerned
    /// nothing that is still to be flushed.
    pub(crate) fn forget_failed_flushes_of(&self, disk: DiskNumber) {
        let failures = self.failed_flushes();
        failures.forget(disk, failures.of(disk).count);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use spindle_base::DiskNumber;
    use spindle_catalog::{Claim, KeptJournal};
    use spindle_device::{DeviceError, DeviceErrorKind};

    use super::FailedFlushes;

    #[test]
    fn the_journal_has_a_failed_flush_until_the_last_one_was_told() {
        let error = DeviceError {
            path: "disk".to_owned(),
            operation: "flush",
            offset_bytes: 0,
            length_bytes: 0,
            kind: DeviceErrorKind::Medium,
            errno: None,
        };
        let journal = Arc::new(KeptJournal::create().unwrap());
        journal.begin(Claim::numbered(1), false);
        let failures = FailedFlushes::new(Some(Arc::clone(&journal)), None);
        let disk = DiskNumber(3);
        failures.note(disk, &error);
        let first = failures.of(disk);
        failures.note(disk, &error);
        failures.forget(disk, first.count);
        assert!(failures.of(disk).stand() && journal.has_failed_flush(disk));
        failures.forget(disk, failures.of(disk).count);
        assert!(!failures.of(disk).stand() && !journal.has_failed_flush(disk));
        failures.forget(disk, first.count);
        assert!(!failures.of(disk).stand());
    }
}
