//! What goes on beside a load while it is measured, lap after lap: a backup, or what a storage does
//! when a device leaves and comes back.
//!
//! The laps are programs, run in the control group of the contender: what they use is its own. They
//! begin with the measured time, after its first reading, and are broken off at its end; a lap that
//! was under way then is told without an end.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use spindle_testbed::interrupt;

use super::control_group::ControlGroup;
use super::program::{as_typed, complained, run, run_unless};
use crate::record::LapRun;

/// One of the things that are done in turn.
pub struct Lap {
    /// In a word or two.
    pub name: &'static str,
    steps: Vec<Step>,
    /// The last step prints a number: bytes that were read.
    counts_bytes: bool,
}

enum Step {
    /// It ends when it is done.
    Run {
        command: Command,
        /// What makes the kernel leave it, where the end of the program does not.
        cancel: Option<Command>,
    },
    /// It is asked again and again until its answer says so.
    Until {
        command: Command,
        is_over: Box<dyn Fn(&str) -> bool + Send>,
    },
    Pause(Duration),
}

/// A device that is away has this long to miss something.
pub const AWAY: Duration = Duration::from_secs(5);

const LOOK_EVERY: Duration = Duration::from_millis(200);
const SLEEP: Duration = Duration::from_millis(20);

impl Lap {
    /// One that does nothing yet.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            steps: Vec::new(),
            counts_bytes: false,
        }
    }

    /// Then this program, to its end.
    #[must_use]
    pub fn run(mut self, command: Command) -> Self {
        self.steps.push(Step::Run {
            command,
            cancel: None,
        });
        self
    }

    /// Then this program, whose work the kernel goes on with until `cancel` has it leave off.
    #[must_use]
    pub fn run_or_cancel(mut self, command: Command, cancel: Command) -> Self {
        self.steps.push(Step::Run {
            command,
            cancel: Some(cancel),
        });
        self
    }

    /// Then until what `command` prints says that it is over.
    #[must_use]
    pub fn until(
        mut self,
        command: Command,
        is_over: impl Fn(&str) -> bool + Send + 'static,
    ) -> Self {
        self.steps.push(Step::Until {
            command,
            is_over: Box::new(is_over),
        });
        self
    }

    /// Then nothing for so long.
    #[must_use]
    pub fn pause(mut self, length: Duration) -> Self {
        self.steps.push(Step::Pause(length));
        self
    }
}

/// Reads every file of a database once, as a backup of its files does. Files that change or go
/// meanwhile are no mistake: databases know how to take such a copy.
#[must_use]
pub fn backup(data: &Path) -> Lap {
    // The exit code of tar, which is not the last of the pipe, comes by a descriptor of its own.
    const SCRIPT: &str = "exec 3>&1; code=$( { { tar --create --file - --directory \"$1\" .; echo $? >&4; } \
                          | wc -c >&3; } 4>&1 ); [ \"$code\" -le 1 ]";
    let mut command = Command::new("/bin/sh");
    command.args(["-c", SCRIPT, "spindle-lab"]).arg(data);
    Lap {
        counts_bytes: true,
        ..Lap::new("backup").run(command)
    }
}

/// Laps that go on in a thread of their own; a drop ends them.
pub struct Companions {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Vec<LapRun>>>>,
}

impl Companions {
    /// Begins the first of `laps`; after the last comes the first again.
    ///
    /// # Errors
    /// Where no thread can be had.
    pub fn begin(laps: Vec<Lap>, group: &ControlGroup) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut laps: Vec<Lap> = laps.into_iter().map(|lap| lap.within(group)).collect();
        let is_over = Arc::clone(&stop);
        let thread = thread::Builder::new()
            .name("beside".to_owned())
            .spawn(move || go_on(&mut laps, &|| is_over.load(Ordering::Relaxed)))
            .context("what goes on beside the load needs a thread")?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    /// Breaks off what is under way, without waiting for it.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// What was done, with its moments in seconds since the beginning.
    ///
    /// # Errors
    /// Where something failed before the end.
    pub fn end(mut self) -> Result<Vec<LapRun>> {
        self.stop();
        let thread = self.thread.take().context("it is joined once")?;
        let done = thread.join().map_err(|_| anyhow!("its thread panicked"))?;
        done.context("what was to go on beside the load failed")
    }
}

impl Drop for Companions {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn go_on(laps: &mut [Lap], is_over: &dyn Fn() -> bool) -> Result<Vec<LapRun>> {
    let began = Instant::now();
    let mut done = Vec::new();
    loop {
        for lap in &mut *laps {
            if is_over() {
                return Ok(done);
            }
            let from_s = began.elapsed().as_secs_f64();
            let said = lap.go(is_over)?;
            let bytes = match &said {
                Some(said) if lap.counts_bytes => {
                    let count: u64 = said.trim().parse().context("tar was counted")?;
                    Some(count)
                }
                _ => None,
            };
            done.push(LapRun {
                name: lap.name.to_owned(),
                from_s,
                until_s: said.map(|_| began.elapsed().as_secs_f64()),
                bytes,
            });
        }
    }
}

impl Lap {
    /// The same with all that it runs in the group.
    fn within(mut self, group: &ControlGroup) -> Self {
        for step in &mut self.steps {
            match step {
                Step::Run { command, .. } | Step::Until { command, .. } => {
                    *command = group.wrap(command);
                }
                Step::Pause(_) => {}
            }
        }
        self
    }

    /// One lap: what its last program printed; none where it was broken off.
    fn go(&mut self, is_over: &dyn Fn() -> bool) -> Result<Option<String>> {
        let mut said = String::new();
        for step in &mut self.steps {
            match step.go(is_over)? {
                Some(printed) => said = printed,
                None => return Ok(None),
            }
        }
        Ok(Some(said))
    }
}

impl Step {
    fn go(&mut self, is_over: &dyn Fn() -> bool) -> Result<Option<String>> {
        match self {
            Self::Run { command, cancel } => {
                // Before the end of the program, which waits for the kernel.
                succeeded(command, || {
                    let is_over = is_over();
                    if (is_over || interrupt::is_asked())
                        && let Some(mut cancel) = cancel.take()
                    {
                        // It fails where the work was done in this very moment.
                        let _ = interrupt::clean_up(|| run(&mut cancel));
                    }
                    is_over
                })
            }
            Self::Until {
                command,
                is_over: has_come,
            } => loop {
                let Some(said) = succeeded(command, is_over)? else {
                    return Ok(None);
                };
                if has_come(&said) {
                    return Ok(Some(said));
                }
                if !slept(LOOK_EVERY, is_over) {
                    return Ok(None);
                }
            },
            Self::Pause(length) => Ok(slept(*length, is_over).then(String::new)),
        }
    }
}

/// What it printed; none where it was broken off.
fn succeeded(command: &mut Command, is_over: impl FnMut() -> bool) -> Result<Option<String>> {
    let Some(ended) = run_unless(command, LAP_AT_MOST, is_over)? else {
        return Ok(None);
    };
    if !ended.status.success() {
        bail!("{}", complained(&as_typed(command), &ended));
    }
    Ok(Some(ended.stdout))
}

/// The measured time, after which it is broken off, may last a week.
const LAP_AT_MOST: Duration = Duration::from_secs(8 * 24 * 3600);

/// Whether it slept to the end.
fn slept(length: Duration, is_over: &dyn Fn() -> bool) -> bool {
    let until = Instant::now() + length;
    while Instant::now() < until {
        if is_over() {
            return false;
        }
        thread::sleep(SLEEP.min(until.saturating_duration_since(Instant::now())));
    }
    true
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    /// Goes on until the time is over.
    fn gone(mut laps: Vec<Lap>, length: Duration) -> Result<Vec<LapRun>> {
        let until = Instant::now() + length;
        go_on(&mut laps, &|| Instant::now() >= until)
    }

    #[test]
    fn laps_follow_each_other_in_turn_and_the_one_under_way_at_the_end_has_none() {
        let laps = vec![
            Lap::new("one").run(sh("true")),
            Lap::new("other").pause(Duration::from_millis(100)),
        ];
        let done = gone(laps, Duration::from_millis(1050)).unwrap();
        let names: Vec<&str> = done.iter().map(|lap| lap.name.as_str()).collect();
        assert!(names.len() > 4, "{names:?}");
        for (index, name) in names.iter().enumerate() {
            assert_eq!(*name, ["one", "other"][index % 2]);
        }
        let (last, before) = done.split_last().unwrap();
        assert!(before.iter().all(|lap| lap.until_s.is_some()));
        assert_eq!(last.until_s, None);
        for pair in done.windows(2) {
            assert!(pair[0].until_s.unwrap() <= pair[1].from_s);
        }
    }

    #[test]
    fn what_is_under_way_at_the_end_is_ended_and_cancelled() {
        let place = tempfile::tempdir().unwrap();
        let cancelled = place.path().join("cancelled");
        let cancel = sh(&format!("touch {}", cancelled.display()));
        let laps = vec![Lap::new("long").run_or_cancel(sh("sleep 60"), cancel)];
        let began = Instant::now();
        let done = gone(laps, Duration::from_millis(200)).unwrap();
        assert!(began.elapsed() < Duration::from_secs(20));
        assert_eq!(done[0].until_s, None);
        assert!(cancelled.exists());
    }

    #[test]
    fn what_fails_is_told_in_its_own_words() {
        let laps = vec![Lap::new("lap").run(sh("echo no room left >&2; exit 3"))];
        let error = format!("{:#}", gone(laps, Duration::from_secs(60)).unwrap_err());
        assert!(error.contains("no room left"), "{error}");
    }

    #[test]
    fn a_wait_asks_until_the_answer_says_so() {
        let place = tempfile::tempdir().unwrap();
        let count = place.path().join("count");
        let ask = sh(&format!("echo x >> {0}; wc -l < {0}", count.display()));
        let lap = Lap::new("wait").until(ask, |said| said.trim() == "3");
        let mut laps = vec![lap, Lap::new("rest").pause(Duration::from_secs(60))];
        let done = go_on(&mut laps, &|| {
            fs::read_to_string(&count).is_ok_and(|text| text.lines().count() >= 3)
        });
        // The third answer is the one that it waits for, and the end comes with it.
        assert_eq!(fs::read_to_string(&count).unwrap().lines().count(), 3);
        assert_eq!(done.unwrap()[0].name, "wait");
    }

    #[test]
    fn a_backup_reads_every_file_and_tells_how_much_and_fails_where_there_is_nothing() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("base")).unwrap();
        fs::write(place.path().join("base/1"), vec![7; 300_000]).unwrap();
        fs::write(place.path().join("log"), vec![7; 100_000]).unwrap();
        let never = || false;
        let mut lap = backup(place.path());
        let said = lap.go(&never).unwrap().unwrap();
        let bytes: u64 = said.trim().parse().unwrap();
        assert!((400_000..450_000).contains(&bytes), "{bytes}");
        let mut lap = backup(&place.path().join("not there"));
        let error = format!("{:#}", lap.go(&never).unwrap_err());
        assert!(error.contains("not there"), "{error}");
    }
}
