use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::{MixedDisks, RemoteDisk, RemoteFailure, RemoteJob};
use crate::hanging_tests::{DEADLINE, Freezer, Hears, kinds};
use crate::{
    DeviceErrorKind, DiskSlot, Disks, Engine, FailureListener, Judge, PlainDisks, Request,
    UringDisks, Work,
};

/// Longer than any test waits.
const NEVER: Duration = Duration::from_mins(10);
const SIZE_BYTES: u64 = 1 << 20;

type Answer = Result<(), DeviceErrorKind>;

/// A remote disk that answers everything alike, and keeps silent until it is told what.
#[derive(Debug, Default)]
struct Scripted {
    answer: Mutex<Option<Answer>>,
    has_answer: Condvar,
    /// Its answers come just after whoever waited has ceased to.
    is_late: bool,
}

impl Scripted {
    fn answer(&self, answer: Answer) {
        *self.answer.lock() = Some(answer);
        self.has_answer.notify_all();
    }
}

impl RemoteDisk for Scripted {
    fn path(&self) -> String {
        "remote".to_owned()
    }

    fn size_bytes(&self) -> u64 {
        SIZE_BYTES
    }

    fn measure(&self) -> std::io::Result<u64> {
        Ok(SIZE_BYTES)
    }

    fn appearance(&self) -> Option<u64> {
        None
    }

    fn begin(&self, _request: &Request<'_>) -> RemoteJob {
        RemoteJob(0)
    }

    fn wait(
        &self,
        _job: RemoteJob,
        _request: &mut Request<'_>,
        until: Instant,
    ) -> Option<Result<(), RemoteFailure>> {
        if self.is_late && Instant::now() < until {
            std::thread::sleep(until.saturating_duration_since(Instant::now()));
            return None;
        }
        let mut answer = self.answer.lock();
        while answer.is_none() && Instant::now() < until {
            self.has_answer.wait_until(&mut answer, until);
        }
        (*answer).map(|answer| answer.map_err(|kind| RemoteFailure { kind, errno: None }))
    }

    fn release(&self) {
        self.give_up();
    }

    fn give_up(&self) {
        self.answer(Err(DeviceErrorKind::TimedOut));
    }
}

/// The disk that was asked about, and what had failed beside it.
type Question = (DiskSlot, Vec<(DiskSlot, DeviceErrorKind)>);

/// Gives a disk up where nothing has failed beside it.
#[derive(Debug, Default)]
struct Careful {
    asked: Mutex<Vec<Question>>,
    gone: Mutex<Vec<DiskSlot>>,
}

impl Careful {
    fn of(disks: &MixedDisks) -> Arc<Self> {
        let judge = Arc::new(Self::default());
        let held: Arc<dyn Judge> = judge.clone();
        disks.set_judge(Arc::downgrade(&held));
        judge
    }

    fn was_asked(&self) -> bool {
        !self.asked.lock().is_empty()
    }
}

impl Judge for Careful {
    fn may_give_up(&self, slot: DiskSlot, failed: &[(DiskSlot, DeviceErrorKind)]) -> bool {
        self.asked.lock().push((slot, failed.to_vec()));
        failed.is_empty()
    }

    fn has_gone(&self, slot: DiskSlot) {
        self.gone.lock().push(slot);
    }
}

fn over_each_engine(deadline: Duration) -> [MixedDisks; 2] {
    let engines = [
        Engine::Uring(UringDisks::with_deadline(deadline).unwrap()),
        Engine::Plain(PlainDisks::with_deadline(deadline)),
    ];
    engines.map(|engine| MixedDisks::new(engine, deadline))
}

fn silent(disks: &MixedDisks) -> (DiskSlot, Arc<Scripted>) {
    let remote = Arc::new(Scripted::default());
    (disks.try_attach_remote(remote.clone()).unwrap(), remote)
}

fn failing(disks: &MixedDisks, kind: DeviceErrorKind) -> DiskSlot {
    let (slot, remote) = silent(disks);
    remote.answer(Err(kind));
    slot
}

fn comes_soon(mut condition: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !condition() && begun.elapsed() < 20 * DEADLINE {
        std::thread::sleep(DEADLINE / 10);
    }
    condition()
}

const FAILURES: [DeviceErrorKind; 3] = [
    DeviceErrorKind::Gone,
    DeviceErrorKind::NoSpace,
    DeviceErrorKind::Medium,
];

/// Those of which it is told at once that they are gone.
fn told_of(slot: DiskSlot, kind: DeviceErrorKind) -> Vec<DiskSlot> {
    let is_told = kind == DeviceErrorKind::Gone;
    is_told.then_some(slot).into_iter().collect()
}

#[test]
fn a_local_disk_that_hangs_is_not_given_up_where_a_remote_one_of_its_batch_has_failed() {
    for disks in over_each_engine(DEADLINE) {
        let Some(freezer) = Freezer::new("mixed-judged") else {
            return;
        };
        let hanging = disks.try_attach(freezer.disk()).unwrap();
        for kind in FAILURES {
            let judge = Careful::of(&disks);
            let (before, keeps_silent) = silent(&disks);
            let failed = failing(&disks, kind);
            let block = [3; 4096];
            let mut batch = [before, hanging, failed]
                .map(|slot| Request::new(slot, 0, Work::WriteDurable(&block)));
            freezer.freeze();
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| {
                    disks.run(&mut batch);
                    kinds(&batch)
                });
                let was_asked = comes_soon(|| judge.was_asked());
                std::thread::sleep(2 * DEADLINE);
                keeps_silent.answer(Ok(()));
                freezer.thaw();
                assert_eq!(waiting.join().unwrap(), [Ok(()), Ok(()), Err(kind)]);
                assert!(was_asked);
            });
            let expected = (hanging, vec![(failed, kind)]);
            assert!(judge.asked.lock().iter().all(|asked| *asked == expected));
            assert_eq!(*judge.gone.lock(), told_of(failed, kind));
        }
    }
}

#[test]
fn a_remote_disk_that_hangs_is_not_given_up_where_another_one_of_its_batch_has_failed() {
    for kind in FAILURES {
        let local = Engine::Plain(PlainDisks::with_deadline(DEADLINE));
        let disks = MixedDisks::new(local, DEADLINE);
        let judge = Careful::of(&disks);
        let (hanging, keeps_silent) = silent(&disks);
        let failed = failing(&disks, kind);
        let block = [3; 4096];
        let mut batch =
            [hanging, failed].map(|slot| Request::new(slot, 0, Work::WriteDurable(&block)));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                disks.run(&mut batch);
                kinds(&batch)
            });
            let was_asked = comes_soon(|| judge.was_asked());
            keeps_silent.answer(Ok(()));
            assert_eq!(waiting.join().unwrap(), [Ok(()), Err(kind)]);
            assert!(was_asked);
        });
        let expected = (hanging, vec![(failed, kind)]);
        assert!(judge.asked.lock().iter().all(|asked| *asked == expected));
        assert_eq!(*judge.gone.lock(), told_of(failed, kind));
    }
}

#[test]
fn a_remote_disk_whose_answer_comes_at_the_last_moment_is_not_given_up() {
    // So short that its time is over at the first look.
    let deadline = Duration::from_millis(1);
    let disks = MixedDisks::new(Engine::Plain(PlainDisks::new()), deadline);
    let judge = Careful::of(&disks);
    let remote = Scripted {
        answer: Mutex::new(Some(Ok(()))),
        is_late: true,
        ..Scripted::default()
    };
    let slot = disks.try_attach_remote(Arc::new(remote)).unwrap();
    let block = [3; 4096];
    let mut batch = [Request::new(slot, 0, Work::Write(&block))];
    disks.run(&mut batch);
    assert_eq!(kinds(&batch), [Ok(())]);
    assert!(!judge.was_asked() && !disks.is_fenced(slot));
}

/// Runs a batch over those disks and one that says that it is gone; the judge and who listens hear of
/// it while the others keep silent, until `go_on` lets them answer.
fn is_told_at_once(disks: &MixedDisks, others: &[DiskSlot], go_on: impl FnOnce()) {
    let judge = Careful::of(disks);
    let gone = failing(disks, DeviceErrorKind::Gone);
    let (sender, told) = std::sync::mpsc::channel();
    let listener: Arc<dyn FailureListener> = Arc::new(Hears(sender.into()));
    let block = [3; 4096];
    let mut batch: Vec<_> = (others.iter().chain([&gone]))
        .map(|slot| {
            let mut request = Request::new(*slot, 0, Work::WriteDurable(&block));
            request.is_patient = true;
            request.listener = (*slot == gone).then(|| Arc::clone(&listener));
            request
        })
        .collect();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            disks.run(&mut batch);
            kinds(&batch)
        });
        let is_told = comes_soon(|| !judge.gone.lock().is_empty());
        let heard = told.recv_timeout(DEADLINE);
        let was_waiting = !waiting.is_finished();
        go_on();
        let answers = waiting.join().unwrap();
        assert!(is_told && was_waiting);
        assert_eq!(heard, Ok(gone));
        let (last, others) = answers.split_last().unwrap();
        assert!(others.iter().all(Result::is_ok), "{others:?}");
        assert_eq!(*last, Err(DeviceErrorKind::Gone));
    });
    assert_eq!(*judge.gone.lock(), [gone]);
    assert!(told.try_recv().is_err());
}

#[test]
fn that_a_remote_disk_is_gone_is_told_while_a_local_one_and_another_remote_one_keep_silent() {
    for disks in over_each_engine(NEVER) {
        let Some(freezer) = Freezer::new("mixed-told") else {
            return;
        };
        let hanging = disks.try_attach(freezer.disk()).unwrap();
        let (before, keeps_silent) = silent(&disks);
        freezer.freeze();
        is_told_at_once(&disks, &[before, hanging], || {
            keeps_silent.answer(Ok(()));
            freezer.thaw();
        });
    }
}

#[test]
fn that_a_remote_disk_is_gone_is_told_while_another_remote_one_keeps_silent() {
    let local = Engine::Plain(PlainDisks::with_deadline(NEVER));
    let disks = MixedDisks::new(local, NEVER);
    let (before, keeps_silent) = silent(&disks);
    is_told_at_once(&disks, &[before], || keeps_silent.answer(Ok(())));
}

#[test]
fn a_request_that_a_remote_disk_has_failed_is_answered_anew_when_it_is_run_again() {
    let local = Engine::Plain(PlainDisks::with_deadline(DEADLINE));
    let disks = MixedDisks::new(local, DEADLINE);
    let (slot, remote) = silent(&disks);
    let block = [3; 4096];
    let mut batch = [Request::new(slot, 0, Work::Write(&block))];
    for answer in [Err(DeviceErrorKind::NoSpace), Ok(())] {
        remote.answer(answer);
        disks.run(&mut batch);
        assert_eq!(kinds(&batch), [answer]);
    }
}
