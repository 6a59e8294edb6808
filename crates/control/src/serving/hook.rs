//! The command that is run at events, where `spindle.toml` names one.
//!
//! It runs beside everything else: events are handed over without waiting, one command runs at a
//! time, on a thread of its own. A storm neither starts a flood of processes nor queues without
//! end: what does not fit is counted, and the next command is told the count. A command that
//! takes too long is killed with all that it started. No shell sees any of it: the path is run as
//! it is, the event is JSON on its standard input and values in its environment.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::api::error::{ControlError, ControlResult};
use crate::api::view::EventReport;
use crate::machine::hook_settings::HookSettings;

/// Events that wait for the command at most.
const WAITING_MOST: usize = 256;
/// Commands begun in a row before they are spread out.
const BURST: u32 = 16;
/// After a burst one command is begun in this time.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long the last events may take when the group is closed.
const ENDING_MOST: Duration = Duration::from_secs(5);

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Runs the command; dropped, it ends after what waits.
#[derive(Debug)]
pub(super) struct Hook {
    settings: HookSettings,
    sender: Option<SyncSender<EventReport>>,
    left_out_count: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Hook {
    /// Starts the thread. `tell` is given a line when the command fails after it worked.
    ///
    /// # Errors
    /// Where there can be no further thread.
    pub(super) fn start(
        settings: HookSettings,
        tell: impl Fn(String) + Send + 'static,
    ) -> ControlResult<Self> {
        let (sender, receiver) = sync_channel(WAITING_MOST);
        let left_out_count = Arc::new(AtomicU64::new(0));
        let ended = Arc::new(AtomicBool::new(false));
        let runner = Runner {
            settings: settings.clone(),
            left_out_count: left_out_count.clone(),
            ended: ended.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("hook".to_owned())
            .spawn(move || runner.work(&receiver, &tell))
            .map_err(|error| ControlError::io("start", "the thread of the hook", &error))?;
        Ok(Self {
            settings,
            sender: Some(sender),
            left_out_count,
            ended,
            thread: Some(thread),
        })
    }

    /// Hands events over; never waits.
    pub(super) fn pass_on(&self, events: &[EventReport]) {
        let Some(sender) = &self.sender else { return };
        for event in events.iter().filter(|event| self.settings.admits(event)) {
            if sender.try_send(event.clone()).is_err() {
                self.left_out_count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        self.sender = None;
        let Some(thread) = self.thread.take() else {
            return;
        };
        let begun = Instant::now();
        while !thread.is_finished() && begun.elapsed() < ENDING_MOST {
            std::thread::sleep(POLL_INTERVAL);
        }
        // The group is closed by now: a command that hangs must not keep the process.
        self.ended.store(true, Ordering::Relaxed);
        let _ = thread.join();
    }
}

struct Runner {
    settings: HookSettings,
    left_out_count: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
}

impl Runner {
    fn work(&self, events: &Receiver<EventReport>, tell: &dyn Fn(String)) {
        let (mut tokens, mut refilled) = (BURST, Instant::now());
        let mut failed = false;
        while let Ok(event) = events.recv() {
            while tokens == 0 && !self.is_ended() {
                if refilled.elapsed() >= INTERVAL {
                    tokens = 1;
                    refilled = Instant::now();
                } else {
                    std::thread::sleep(POLL_INTERVAL);
                }
            }
            if self.is_ended() {
                return;
            }
            if refilled.elapsed() >= INTERVAL * BURST {
                tokens = BURST;
                refilled = Instant::now();
            }
            tokens -= 1;
            match self.run(&event) {
                Ok(()) => failed = false,
                // Told once, not with every event while it lasts.
                Err(why) if !failed => {
                    failed = true;
                    tell(format!(
                        "the hook {} {why}; it is run again at the next event",
                        self.settings.command.display()
                    ));
                }
                Err(_) => {}
            }
        }
    }

    fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    fn run(&self, event: &EventReport) -> Result<(), String> {
        let left_out_count = self.left_out_count.swap(0, Ordering::Relaxed);
        let mut child = command(&self.settings.command, event, left_out_count)
            .spawn()
            .map_err(|error| format!("cannot be run: {error}"))?;
        if let (Some(mut pipe), Ok(json)) = (child.stdin.take(), serde_json::to_string(event)) {
            // It fits into the pipe, so this never waits; a command need not read it.
            let _ = pipe.write_all(json.as_bytes());
            let _ = pipe.write_all(b"\n");
        }
        let begun = Instant::now();
        loop {
            match child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(format!("failed with {status}")),
                Ok(None) if begun.elapsed() < self.settings.timeout && !self.is_ended() => {
                    std::thread::sleep(POLL_INTERVAL);
                }
                Ok(None) => {
                    kill(&mut child);
                    return Err(format!(
                        "took longer than {} s and was killed",
                        self.settings.timeout.as_secs()
                    ));
                }
                Err(error) => return Err(format!("cannot be waited for: {error}")),
            }
        }
    }
}

fn command(path: &Path, event: &EventReport, left_out_count: u64) -> Command {
    let mut command = Command::new(path);
    // A variable cannot hold a zero byte; a name from a disk might.
    let plain = |text: &str| text.replace('\0', " ");
    let number = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
    command
        .env("SPINDLE_EVENT_GROUP", plain(&event.group))
        .env("SPINDLE_EVENT_KIND", plain(&event.kind))
        .env("SPINDLE_EVENT_SEVERITY", plain(&event.severity))
        .env("SPINDLE_EVENT_NUMBER", event.number.to_string())
        .env("SPINDLE_EVENT_TIME_S", event.time_s.to_string())
        .env("SPINDLE_EVENT_HOST", plain(&event.host))
        .env(
            "SPINDLE_EVENT_DISK",
            plain(event.disk_name.as_deref().unwrap_or("")),
        )
        .env("SPINDLE_EVENT_FILE", number(event.file))
        .env("SPINDLE_EVENT_TEXT", plain(&event.text))
        .env("SPINDLE_EVENTS_LEFT_OUT", left_out_count.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .current_dir("/")
        .process_group(0);
    command
}

/// Kills the command and everything that it started and left in its group of processes.
fn kill(child: &mut Child) {
    let group = i32::try_from(child.id())
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    if let Some(group) = group {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use parking_lot::Mutex;
    use spindle_group::Severity;

    use super::{BURST, Hook, HookSettings};
    use crate::api::view::EventReport;

    /// A directory with a script that is the hook.
    struct Scene {
        directory: PathBuf,
        told: Arc<Mutex<Vec<String>>>,
    }

    impl Scene {
        fn new(name: &str, script: &str) -> Self {
            let directory =
                std::env::temp_dir().join(format!("spindle-hook-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&directory).unwrap();
            let command = directory.join("hook");
            std::fs::write(
                &command,
                format!("#!/bin/sh\ncd {}\n{script}\n", directory.display()),
            )
            .unwrap();
            std::fs::set_permissions(&command, std::fs::Permissions::from_mode(0o755)).unwrap();
            Self {
                directory,
                told: Arc::default(),
            }
        }

        fn settings(&self) -> HookSettings {
            HookSettings {
                command: self.directory.join("hook"),
                least: Severity::Info,
                kinds: Vec::new(),
                timeout: Duration::from_secs(10),
            }
        }

        fn start(&self, settings: HookSettings) -> Hook {
            let told = self.told.clone();
            Hook::start(settings, move |line| told.lock().push(line)).unwrap()
        }

        fn read(&self, name: &str) -> String {
            std::fs::read_to_string(self.directory.join(name)).unwrap_or_default()
        }
    }

    impl Drop for Scene {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.directory);
        }
    }

    fn event(kind: &str, severity: &str, text: &str) -> EventReport {
        EventReport {
            number: 7,
            time_s: 1,
            time_ms: 1000,
            host: "here".to_owned(),
            group: "data".to_owned(),
            severity: severity.to_owned(),
            kind: kind.to_owned(),
            disk: Some(1),
            disk_name: Some("D1".to_owned()),
            file: None,
            path: None,
            text: text.to_owned(),
        }
    }

    #[test]
    fn the_command_gets_the_event_as_json_and_in_its_environment_and_no_shell_sees_it() {
        let scene = Scene::new(
            "whole",
            "cat > json; printf %s \"$SPINDLE_EVENT_TEXT\" > text; \
             echo $SPINDLE_EVENT_KIND $SPINDLE_EVENT_DISK > words",
        );
        let text = "it's $(touch evil); `touch evil` \"quoted\" \0 end";
        drop({
            let hook = scene.start(scene.settings());
            hook.pass_on(&[event("disk_offline", "critical", text)]);
            hook
        });
        let got: EventReport = serde_json::from_str(&scene.read("json")).unwrap();
        assert_eq!(got.text, text);
        assert_eq!(scene.read("text"), text.replace('\0', " "));
        assert_eq!(scene.read("words"), "disk_offline D1\n");
        assert!(!scene.directory.join("evil").exists());
        assert!(!Path::new("/evil").exists());
    }

    #[test]
    fn only_the_events_that_were_asked_for_run_it_and_never_its_own_failure() {
        let scene = Scene::new("filter", "echo $SPINDLE_EVENT_KIND >> kinds");
        let settings = HookSettings {
            least: Severity::Warning,
            kinds: vec!["disk_offline".to_owned(), "hook_failed".to_owned()],
            ..scene.settings()
        };
        let hook = scene.start(settings);
        hook.pass_on(&[
            event("disk_offline", "info", ""),
            event("disk_slow", "critical", ""),
            event("hook_failed", "critical", ""),
            event("disk_offline", "critical", ""),
        ]);
        drop(hook);
        assert_eq!(scene.read("kinds"), "disk_offline\n");
    }

    #[test]
    fn a_storm_starts_a_burst_of_commands_and_waits_for_nobody() {
        let scene = Scene::new("storm", "echo x >> runs");
        let hook = scene.start(scene.settings());
        let events: Vec<EventReport> = (0..10_000)
            .map(|_| event("block_repaired", "warning", ""))
            .collect();
        let begun = Instant::now();
        hook.pass_on(&events);
        assert!(begun.elapsed() < Duration::from_secs(1));
        drop(hook);
        let runs = scene.read("runs").lines().count();
        assert!(runs >= 1 && runs <= BURST as usize + 8, "{runs} runs");
    }

    #[test]
    fn a_command_that_hangs_is_killed_with_its_children_and_its_failure_is_told_once() {
        let scene = Scene::new("hang", "sleep 600 & echo $! >> pids; wait");
        let settings = HookSettings {
            timeout: Duration::from_millis(200),
            ..scene.settings()
        };
        let hook = scene.start(settings);
        let one = event("disk_offline", "critical", "");
        hook.pass_on(&[one.clone(), one.clone(), one]);
        drop(hook);
        assert_eq!(scene.told.lock().len(), 1, "{:?}", scene.told.lock());
        assert!(scene.told.lock()[0].contains("killed"));
        for pid in scene.read("pids").lines() {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            assert!(
                stat.is_empty() || stat.contains(") Z "),
                "{pid} lives: {stat}"
            );
        }
    }

    #[test]
    fn a_command_that_is_not_there_is_told_once() {
        let scene = Scene::new("missing", "true");
        let settings = HookSettings {
            command: scene.directory.join("nothing"),
            ..scene.settings()
        };
        let hook = scene.start(settings);
        let one = event("disk_offline", "critical", "");
        hook.pass_on(&[one.clone(), one]);
        drop(hook);
        assert_eq!(scene.told.lock().len(), 1, "{:?}", scene.told.lock());
    }
}
