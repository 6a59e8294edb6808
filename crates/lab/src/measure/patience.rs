//! Work that a storage may hang in, done so that the experiment outlives it.
//!
//! The load has its own watch over its clients, and programs are killed after a time. But a check,
//! a probe or an unmount may wait in the kernel, where no signal reaches it. So a whole run is done
//! in a thread that says which step it begins and how long that may take. A step that takes longer
//! is told with the tasks that wait in the kernel and where; what serves the storage is killed, and
//! its mounts are forced away, which ends most waits. A thread that comes back then cleans up as
//! after any failure. One that does not is left behind with what it holds: its entries stay in the
//! journal, for the next start. Should it come back later, its next step is refused, so that it
//! clears away what it held and disturbs nobody.

use std::collections::HashSet;
use std::fs;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use spindle_testbed::interrupt;

use super::process::Identity;

/// After the rescue a step has this long to come back.
const GRACE: Duration = Duration::from_secs(30);

/// After a request to stop a step has this long to end by itself.
const STOP_AT_MOST: Duration = Duration::from_secs(60);

/// The slowest storage that is not yet called hanging, beyond the patience that is stated.
const SLOWEST_BYTES_PER_S: u64 = 1 << 20;

#[derive(Debug, Clone)]
struct Step {
    name: &'static str,
    since: Instant,
    limit: Duration,
}

/// Which step is under way.
#[derive(Debug, Clone)]
pub struct Watch {
    step: Arc<Mutex<Step>>,
    left_behind: Arc<Mutex<HashSet<ThreadId>>>,
    patience: Duration,
}

impl Watch {
    /// With this much patience for a step that moves no data to speak of.
    #[must_use]
    pub fn new(patience: Duration) -> Self {
        Self {
            step: Arc::new(Mutex::new(Step {
                name: "beginning",
                since: Instant::now(),
                limit: patience,
            })),
            left_behind: Arc::new(Mutex::new(HashSet::new())),
            patience,
        }
    }

    /// A step begins that moves so many bytes, or takes so long by its nature.
    ///
    /// # Errors
    /// Where this run hung too long and was left behind: others run now.
    pub fn begin(&self, name: &'static str, bytes: u64, length: Duration) -> Result<()> {
        let left_behind = self
            .left_behind
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        ensure!(
            !left_behind.contains(&thread::current().id()),
            "it came back too late"
        );
        let moving = Duration::from_secs(bytes / SLOWEST_BYTES_PER_S);
        *self.step.lock().unwrap_or_else(PoisonError::into_inner) = Step {
            name,
            since: Instant::now(),
            limit: self.patience + moving + length,
        };
        Ok(())
    }

    fn step(&self) -> Step {
        self.step
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// What came of it.
#[derive(Debug)]
pub enum Attended<T> {
    /// It ended by itself.
    Ended(T),
    /// A step took too long. It came back after the rescue, or is left behind.
    Hung {
        /// What happened, in a line.
        reason: String,
        /// Where tasks waited in the kernel then.
        waits: Vec<String>,
        /// Whether the thread still holds what it had.
        is_left_behind: bool,
    },
    /// The thread panicked: our own mistake.
    Broke,
}

/// Does `work` in a thread and attends to it. `rescue` is called where a step takes too long, with
/// the chance to end what it waits for; `suspects` are processes whose waiting is worth telling.
///
/// # Errors
/// Where no thread can be had.
pub fn attend<T: Send + 'static>(
    watch: &Watch,
    work: impl FnOnce() -> T + Send + 'static,
    suspects: impl FnOnce() -> Vec<Identity>,
    rescue: impl FnOnce(),
) -> Result<Attended<T>> {
    let (sender, receiver) = mpsc::channel();
    watch.begin("beginning", 0, Duration::ZERO)?;
    let worker = thread::Builder::new()
        .name("run".to_owned())
        .spawn(move || {
            let _ = sender.send(work());
        })
        .context("a run needs a thread")?;
    let mut asked_to_stop = None;
    let step = loop {
        match receiver.recv_timeout(Duration::from_millis(50)) {
            Ok(result) => return Ok(Attended::Ended(result)),
            Err(RecvTimeoutError::Disconnected) => return Ok(Attended::Broke),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let step = watch.step();
        if step.since.elapsed() > step.limit {
            break step;
        }
        if interrupt::is_asked()
            && asked_to_stop.get_or_insert_with(Instant::now).elapsed() > STOP_AT_MOST
        {
            break step;
        }
    };
    let reason = format!(
        "it hung: {} took longer than {} s",
        step.name,
        step.since.elapsed().as_secs()
    );
    let mut waits = waits(Identity::own());
    waits.extend(suspects().into_iter().flat_map(self::waits));
    interrupt::clean_up(rescue);
    // A step that only was slow comes back with what it has; it is failed all the same, because a
    // rescued storage is not the one that was to be measured.
    let is_left_behind = matches!(receiver.recv_timeout(GRACE), Err(RecvTimeoutError::Timeout));
    if is_left_behind {
        watch
            .left_behind
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(worker.thread().id());
    }
    Ok(Attended::Hung {
        reason,
        waits,
        is_left_behind,
    })
}

/// The threads of a process that wait in the kernel where no signal reaches them, and for what.
fn waits(process: Identity) -> Vec<String> {
    let place = format!("/proc/{}/task", process.id);
    let Ok(tasks) = fs::read_dir(place) else {
        return Vec::new();
    };
    tasks
        .filter_map(|task| {
            let task = task.ok()?.path();
            let read = |name: &str| fs::read_to_string(task.join(name)).unwrap_or_default();
            let state = read("stat");
            let (name, rest) = state.rsplit_once(')')?;
            if !rest.trim_start().starts_with('D') {
                return None;
            }
            let frames = read("stack");
            let frames: Vec<&str> = frames
                .lines()
                .filter_map(|line| line.rsplit(' ').next()?.split('+').next())
                .take(4)
                .collect();
            let place = if frames.is_empty() {
                read("wchan").trim().to_owned()
            } else {
                frames.join(" < ")
            };
            Some(format!("{name}) waits in the kernel: {place}"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;

    use super::*;
    use crate::measure::device::{Leaf, fill};
    use crate::measure::journal::{Journal, Undo};
    use crate::measure::program::{command, lacking, run};

    #[test]
    fn work_that_ends_gives_what_it_found() {
        let watch = Watch::new(Duration::from_secs(5));
        let attended = attend(&watch, || 7, Vec::new, || panic!("nothing hangs")).unwrap();
        assert!(matches!(attended, Attended::Ended(7)));
    }

    #[test]
    fn work_that_panics_is_our_own_mistake_and_told() {
        let watch = Watch::new(Duration::from_secs(5));
        let attended = attend(&watch, || panic!("as wanted"), Vec::new, || {}).unwrap();
        assert!(matches!(attended, Attended::<()>::Broke));
    }

    #[test]
    fn a_write_that_waits_in_the_kernel_is_told_with_its_place_and_rescued() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: a file system is frozen by root");
            return;
        }
        if let Some(reason) = ["mkfs.ext4", "fsfreeze"].into_iter().find_map(lacking) {
            println!("skipped: {reason}");
            return;
        }
        let scene = tempfile::tempdir().unwrap();
        let journal = Journal::begin(&scene.path().join("state")).unwrap();
        let file = scene.path().join("disk");
        fill(&file, 32 << 20).unwrap();
        let _loop = journal.intend(Undo::LoopOver(file.clone())).unwrap();
        let device = run(command("losetup").args(["--find", "--show"]).arg(&file)).unwrap();
        let leaf = Leaf::of(device.trim().as_ref()).unwrap();
        run(command("mkfs.ext4").arg("-q").arg(&leaf.path)).unwrap();
        let point = scene.path().join("mount");
        fs::create_dir(&point).unwrap();
        let _mount = journal.intend(Undo::Mount(point.clone())).unwrap();
        run(command("mount").arg(&leaf.path).arg(&point)).unwrap();
        run(command("fsfreeze").arg("--freeze").arg(&point)).unwrap();

        let watch = Watch::new(Duration::from_millis(300));
        let target = point.join("a file");
        let attended = attend(
            &watch,
            {
                let watch = watch.clone();
                move || {
                    watch.begin("writing a file", 0, Duration::ZERO).unwrap();
                    File::create(&target).unwrap().write_all(b"text").unwrap();
                }
            },
            Vec::new,
            || {
                run(command("fsfreeze").arg("--unfreeze").arg(&point)).unwrap();
            },
        )
        .unwrap();
        let Attended::Hung {
            reason,
            waits,
            is_left_behind,
        } = attended
        else {
            panic!("{attended:?}");
        };
        assert!(reason.contains("writing a file"), "{reason}");
        assert!(
            waits
                .iter()
                .any(|line| line.contains("waits in the kernel")),
            "{waits:?}"
        );
        assert!(!is_left_behind);
        assert_eq!(fs::read(point.join("a file")).unwrap(), b"text");
    }
}
