//! What both engines promise of a disk that does not answer: tried on a file of a file system that
//! is frozen, which holds writes where no cancellation reaches them.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use crate::engine_tests::Folder;
use crate::{
    AlignedBuffer, DeviceError, DeviceErrorKind, DiskSlot, Disks, Engine, FailureListener,
    FaultableDisks, FileDisk, Judge, OpenDisk, OpenErrorKind, PlainDisks, RecordedDisks, Request,
    UringDisks, Work,
};

pub(crate) const DEADLINE: Duration = Duration::from_millis(300);

fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let status = Command::new(program).args(arguments).status();
    status.is_ok_and(|status| status.success())
}

/// A file system of its own on a loop device; thawed and unmounted however the test ends.
pub(crate) struct Freezer {
    folder: Folder,
    point: String,
}

impl Freezer {
    pub(crate) fn new(name: &str) -> Option<Self> {
        let folder = Folder::new(name);
        let image = folder.0.join("image");
        std::fs::File::create(&image)
            .unwrap()
            .set_len(64 << 20)
            .unwrap();
        let point = folder.0.join("point").display().to_string();
        std::fs::create_dir(&point).unwrap();
        let image = image.display().to_string();
        if !succeeds("mkfs.ext4", &["-q", &image])
            || !succeeds("mount", &["-o", "loop", &image, &point])
        {
            println!("skipped: no loop device can be mounted here");
            return None;
        }
        Some(Self { folder, point })
    }

    pub(crate) fn disk(&self) -> OpenDisk {
        let path = format!("{}/disk", self.point).into();
        let size_bytes = 1 << 20;
        FileDisk { path, size_bytes }.create().unwrap()
    }

    fn open_again(&self) -> Result<OpenDisk, OpenErrorKind> {
        let path = format!("{}/disk", self.point);
        OpenDisk::open(path.as_ref()).map_err(|error| error.kind)
    }

    pub(crate) fn freeze(&self) {
        assert!(succeeds("fsfreeze", &["-f", &self.point]));
    }

    pub(crate) fn thaw(&self) {
        let _ = Command::new("fsfreeze").args(["-u", &self.point]).output();
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.thaw();
        let _ = Command::new("umount").args(["-l", &self.point]).output();
        let _ = &self.folder;
    }
}

fn engines() -> [Engine; 2] {
    [
        Engine::Uring(UringDisks::with_deadline(DEADLINE).unwrap()),
        Engine::Plain(PlainDisks::with_deadline(DEADLINE)),
    ]
}

pub(crate) fn kinds(batch: &[Request<'_>]) -> Vec<Result<(), DeviceErrorKind>> {
    (batch.iter())
        .map(|request| request.result.clone().map_err(|error| error.kind))
        .collect()
}

fn read_block(disks: &Engine, slot: DiskSlot, at: u64) -> Vec<u8> {
    let mut memory = AlignedBuffer::zeroed(4096);
    let mut batch = [Request::new(slot, at, Work::Read(&mut memory))];
    disks.run(&mut batch);
    batch[0].result.clone().unwrap();
    memory.to_vec()
}

const LATE: Result<(), DeviceErrorKind> = Err(DeviceErrorKind::TimedOut);

#[test]
fn a_batch_goes_on_without_a_disk_that_hangs_and_its_late_write_has_the_bytes_that_were_sent() {
    for disks in engines() {
        let Some(freezer) = Freezer::new("late") else {
            return;
        };
        let good = disks.attach(freezer.folder.disk("good", 1 << 20));
        let hanging = disks.attach(freezer.disk());
        freezer.freeze();
        let mut owned = AlignedBuffer::zeroed(8192);
        owned.fill(1);
        let mut plain = vec![2; 4096];
        let mut batch = [
            Request::new(good, 0, Work::WritePart(owned.share(0..4096))),
            Request::new(hanging, 0, Work::WritePart(owned.share(0..4096))),
            Request::new(hanging, 4096, Work::Write(&plain)),
        ];
        let started = Instant::now();
        disks.run(&mut batch);
        assert!(started.elapsed() >= DEADLINE, "{:?}", started.elapsed());
        assert!(started.elapsed() < 20 * DEADLINE, "{:?}", started.elapsed());
        assert_eq!(kinds(&batch), [Ok(()), LATE, LATE]);
        assert!(disks.is_fenced(hanging) && !disks.is_fenced(good));
        assert_eq!(disks.in_flight_count(hanging), 0);
        // The caller goes on with its memory, and other requests are not kept waiting.
        owned.fill(9);
        plain.fill(9);
        let started = Instant::now();
        let mut batch = [Request::new(hanging, 0, Work::Flush)];
        disks.run(&mut batch);
        assert_eq!(kinds(&batch), [LATE]);
        assert!(started.elapsed() < DEADLINE, "{:?}", started.elapsed());
        // Nobody owns the disk while the kernel may still write to it.
        let refused = freezer.open_again();
        assert!(
            matches!(refused, Err(OpenErrorKind::InUse { .. })),
            "{refused:?}"
        );
        freezer.thaw();
        let begun = Instant::now();
        let again = loop {
            match freezer.open_again() {
                Ok(disk) => break disks.attach(disk),
                Err(kind) => assert!(begun.elapsed().as_secs() < 60, "{kind:?}"),
            }
        };
        assert!(!disks.is_fenced(again) && disks.is_fenced(hanging));
        // A request that was cancelled before it began has not reached the disk.
        let late = read_block(&disks, again, 0);
        assert!(late == [1; 4096] || late == [0; 4096], "{}", late[0]);
        let late = read_block(&disks, again, 4096);
        assert!(late == [2; 4096] || late == [0; 4096], "{}", late[0]);
        assert_eq!(read_block(&disks, good, 0), [1; 4096]);
    }
}

#[test]
fn requests_of_other_threads_are_given_up_along_with_the_first() {
    for disks in engines() {
        let Some(freezer) = Freezer::new("others") else {
            return;
        };
        let hanging = disks.attach(freezer.disk());
        freezer.freeze();
        let (ended, ends) = std::sync::mpsc::channel();
        let write = |ended: Sender<_>| {
            let data = AlignedBuffer::zeroed(4096);
            let mut batch = [Request::new(hanging, 0, Work::Write(&data))];
            disks.run(&mut batch);
            ended.send((kinds(&batch), Instant::now())).unwrap();
        };
        std::thread::scope(|scope| {
            let other = ended.clone();
            scope.spawn(move || write(ended));
            std::thread::sleep(DEADLINE * 2 / 3);
            scope.spawn(move || write(other));
            let answers: Vec<_> = ends.iter().take(2).collect();
            // A thread ends only when the kernel has done with what it asked for.
            freezer.thaw();
            assert!(answers.iter().all(|(kinds, _)| *kinds == [LATE]));
            let apart = answers[1].1.saturating_duration_since(answers[0].1);
            assert!(apart < Duration::from_secs(2), "{apart:?}");
        });
    }
}

#[derive(Debug, Default)]
struct Refusing(AtomicBool);

impl Judge for Refusing {
    fn may_give_up(&self, _slot: DiskSlot, _failed: &[(DiskSlot, DeviceErrorKind)]) -> bool {
        self.0.store(true, Ordering::Relaxed);
        false
    }

    fn has_gone(&self, _slot: DiskSlot) {}
}

#[test]
fn a_disk_that_may_not_be_given_up_is_waited_for_and_its_late_answer_counts() {
    for disks in engines() {
        let Some(freezer) = Freezer::new("last") else {
            return;
        };
        let judge = Arc::new(Refusing::default());
        let held: Arc<dyn Judge> = judge.clone();
        disks.set_judge(Arc::downgrade(&held));
        let hanging = disks.attach(freezer.disk());
        freezer.freeze();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let data = [3; 4096];
                let mut batch = [
                    Request::new(hanging, 0, Work::Write(&data)),
                    Request::new(hanging, 4096, Work::Write(&data)),
                ];
                batch[1].is_patient = true;
                disks.run(&mut batch);
                kinds(&batch)
            });
            std::thread::sleep(3 * DEADLINE);
            assert!(!waiting.is_finished() && judge.0.load(Ordering::Relaxed));
            freezer.thaw();
            assert_eq!(waiting.join().unwrap(), [Ok(()), Ok(())]);
        });
        assert!(!disks.is_fenced(hanging));
        assert_eq!(read_block(&disks, hanging, 4096), [3; 4096]);
    }
}

/// Gives a disk up only where it was told that another one is gone, at once and when it is asked.
#[derive(Debug, Default)]
struct Told(std::sync::Mutex<Vec<DiskSlot>>);

impl Judge for Told {
    fn may_give_up(&self, _slot: DiskSlot, failed: &[(DiskSlot, DeviceErrorKind)]) -> bool {
        let gone = self.0.lock().unwrap();
        let is_gone = |slot: &DiskSlot| failed.contains(&(*slot, DeviceErrorKind::Gone));
        !gone.is_empty() && gone.iter().all(is_gone)
    }

    fn has_gone(&self, slot: DiskSlot) {
        self.0.lock().unwrap().push(slot);
    }
}

#[test]
fn who_judges_of_a_disk_that_hangs_knows_what_has_failed_beside_it() {
    for disks in engines() {
        let Some(freezer) = Freezer::new("beside") else {
            return;
        };
        let judge = Arc::new(Told::default());
        let held: Arc<dyn Judge> = judge.clone();
        disks.set_judge(Arc::downgrade(&held));
        let gone = disks.attach(freezer.folder.disk("gone", 1 << 20));
        let good = disks.attach(freezer.folder.disk("good", 1 << 20));
        let hanging = disks.attach(freezer.disk());
        let path = freezer.folder.0.join("gone");
        std::fs::File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_len(0)
            .unwrap();
        freezer.freeze();
        let mut memory = [AlignedBuffer::zeroed(4096), AlignedBuffer::zeroed(4096)];
        let [one, other] = &mut memory;
        let data = [3; 4096];
        let mut batch = [
            Request::new(hanging, 0, Work::Write(&data)),
            Request::new(gone, 0, Work::Read(one)),
            Request::new(good, 0, Work::Read(other)),
        ];
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                disks.run(&mut batch);
                kinds(&batch)
            });
            let begun = Instant::now();
            while !waiting.is_finished() && begun.elapsed() < 20 * DEADLINE {
                std::thread::sleep(DEADLINE / 10);
            }
            let was_waiting = !waiting.is_finished();
            freezer.thaw();
            let answers = waiting.join().unwrap();
            assert_eq!(answers, [LATE, Err(DeviceErrorKind::Gone), Ok(())]);
            assert!(!was_waiting);
        });
        assert_eq!(*judge.0.lock().unwrap(), [gone]);
    }
}

#[test]
fn a_disk_is_not_given_up_that_nobody_could_ask_because_all_threads_wait_for_another() {
    for disks in engines() {
        let Some(freezer) = Freezer::new("unasked") else {
            return;
        };
        let hanging = disks.attach(freezer.disk());
        let good = disks.attach(freezer.folder.disk("good", 1 << 20));
        freezer.freeze();
        let written = AlignedBuffer::zeroed(4096);
        let mut batch: Vec<Request<'_>> = (0..32)
            .map(|block| (hanging, block))
            .chain((0..8).map(|block| (good, block)))
            .map(|(slot, block)| {
                Request::new(slot, block * 4096, Work::WritePart(written.share(0..4096)))
            })
            .collect();
        // Nobody else comes who would find a thread free.
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                std::thread::sleep(DEADLINE / 2);
                let data = [7; 4096];
                let mut batch = [Request::new(good, 64 << 10, Work::Write(&data))];
                disks.run(&mut batch);
                kinds(&batch)
            });
            disks.run(&mut batch);
            assert_eq!(other.join().unwrap(), [Ok(())]);
        });
        assert!(kinds(&batch[..32]).iter().all(|answer| *answer == LATE));
        assert!(
            kinds(&batch[32..]).iter().all(Result::is_ok),
            "{:?}",
            kinds(&batch)
        );
        assert!(disks.is_fenced(hanging) && !disks.is_fenced(good));
        freezer.thaw();
    }
}

/// Says when it hears of a failure.
#[derive(Debug)]
pub(crate) struct Hears(pub(crate) std::sync::Mutex<Sender<DiskSlot>>);

impl FailureListener for Hears {
    fn failed(&self, slot: DiskSlot, _error: &DeviceError) {
        self.0.lock().unwrap().send(slot).unwrap();
    }
}

#[test]
fn a_failure_is_told_while_another_disk_of_its_batch_hangs_through_every_layer_and_once() {
    for disks in engines() {
        let Some(freezer) = Freezer::new("told") else {
            return;
        };
        let path = freezer.folder.0.join("failing");
        drop(freezer.folder.disk("failing", 1 << 20));
        // It takes no write.
        let failing = disks.attach(OpenDisk::open_read_only(&path).unwrap());
        let hanging = disks.attach(freezer.disk());
        let pulled = disks.attach(freezer.folder.disk("pulled", 1 << 20));
        let log = freezer.folder.0.join("log");
        let disks = FaultableDisks::new(RecordedDisks::new(disks, &log).unwrap());
        disks.pull(pulled);
        freezer.freeze();
        let (sender, told) = std::sync::mpsc::channel();
        let listener: Arc<dyn FailureListener> = Arc::new(Hears(sender.into()));
        std::thread::scope(|scope| {
            let disks = &disks;
            let listener = &listener;
            let caller = scope.spawn(move || {
                let block = [7; 4096];
                let mut batch = [hanging, failing, pulled].map(|slot| {
                    let mut request = Request::new(slot, 0, Work::WriteDurable(&block));
                    // Nobody gives the disk up.
                    request.is_patient = true;
                    request.listener = Some(Arc::clone(listener));
                    request
                });
                disks.run(&mut batch);
                kinds(&batch).iter().map(Result::is_ok).collect::<Vec<_>>()
            });
            let wait = Duration::from_secs(20);
            let mut heard = [told.recv_timeout(wait), told.recv_timeout(wait)];
            let was_waiting = !caller.is_finished();
            freezer.thaw();
            assert_eq!(caller.join().unwrap(), [true, false, false]);
            heard.sort_by_key(|slot| slot.ok());
            assert_eq!(heard, [Ok(failing), Ok(pulled)]);
            assert!(was_waiting);
            assert!(told.try_recv().is_err());
        });
    }
}
