//! Starting the processes that serve groups.
//!
//! The daemon is this same program with the same arguments and `--daemon` behind them. It has a
//! session of its own, its errors go to a log in the runtime directory, and its standard output
//! is a pipe on which it says one line: ready, or why not. Whoever started it waits for that.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use spindle_base::GroupName;

use crate::api::calls::{AddMount, ShowGroup};
use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::api::view::{MountReport, ReadyReport};
use crate::machine::discovery::Discovery;
use crate::machine::process::CLOSING_MOST;
use crate::machine::settings::Settings;
use crate::machine::{runtime_directory, sockets};
use crate::serving::keeper::{KeeperClient, KeeperPhase};
use crate::serving::mount::MountRequest;
use crate::serving::served;

/// How often a process that is about to end is looked after.
const ENDING_INTERVAL: Duration = Duration::from_millis(10);

/// The one line that a daemon says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FirstWord {
    Ready(ReadyReport),
    Failed(ControlError),
}

/// Starts the daemon, or with `keeper` the keeper that starts it: `arguments` are those of this
/// process, to which `--daemon` or `--keeper` is added.
///
/// # Errors
/// What kept the daemon from serving.
pub fn start_daemon(
    settings: &Settings,
    group: &str,
    arguments: impl IntoIterator<Item = OsString>,
    keeper: bool,
) -> ControlResult<ReadyReport> {
    let directory = &settings.runtime_directory;
    runtime_directory::make(directory)?;
    let log_path = runtime_directory::file_of(directory, group, "log");
    let log = runtime_directory::open_log(&log_path)?;
    let program = std::env::current_exe()
        .map_err(|error| ControlError::io("find", "this program", &error))?;
    let mut child = Command::new(&program)
        .args(arguments)
        .arg(if keeper { "--keeper" } else { "--daemon" })
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(|error| ControlError::io("start", program.display(), &error))?;
    let mut line = String::new();
    if let Some(pipe) = child.stdout.take() {
        // A daemon that dies closes the pipe: an empty line then.
        let _ = BufReader::new(pipe).read_line(&mut line);
    }
    match serde_json::from_str(&line) {
        Ok(FirstWord::Ready(report)) => {
            if keeper {
                wait_for_keeper(settings, group)?;
            }
            Ok(report)
        }
        Ok(FirstWord::Failed(error)) => {
            let _ = child.wait();
            Err(error)
        }
        Err(_) => {
            if keeper && let Some(report) = wait_for_next(settings, group, &mut child)? {
                return Ok(report);
            }
            let status = child
                .wait()
                .map_or_else(|error| error.to_string(), |status| status.to_string());
            Err(ControlError::new(
                ControlErrorKind::Bug,
                format!(
                    "the process that was to serve {group} ended before it was ready ({status}); see {}",
                    log_path.display()
                ),
            ))
        }
    }
}

/// Refuses a group that is not there, before anything is made for it in the runtime directory. One
/// that was opened from there before is not looked for twice.
///
/// # Errors
/// Where there is no such group on the search path.
pub fn refuse_unknown(settings: &Settings, group: &GroupName) -> ControlResult<()> {
    if runtime_directory::file_of(&settings.runtime_directory, group.as_str(), "lock").exists() {
        return Ok(());
    }
    Discovery::look(settings)?.group(group.as_str())?;
    Ok(())
}

/// Waits until the keeper knows that its daemon serves: the daemon tells both at the same time,
/// and whoever asks the keeper after the command must not hear that it is still starting.
fn wait_for_keeper(settings: &Settings, group: &str) -> ControlResult<()> {
    let Some(keeper) = KeeperClient::find(settings, group) else {
        return Ok(());
    };
    match keeper.wait_for_daemon() {
        Ok(status) if status.phase == KeeperPhase::GaveUp => Err(served::gave_up(&status)),
        // Somebody has it end already.
        Err(error) if error.kind != ControlErrorKind::Ending => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The first daemon died without a word, and nobody waits for one of the next: where its mount is held
/// the keeper lives on. What the next one serves; `None` where the keeper ends, because nothing is.
fn wait_for_next(
    settings: &Settings,
    group: &str,
    keeper: &mut Child,
) -> ControlResult<Option<ReadyReport>> {
    while matches!(keeper.try_wait(), Ok(None)) {
        wait_for_keeper(settings, group)?;
        // One that only closes the group may serve for a moment, without a mount.
        if let Some(client) = sockets::find_daemon(settings, group)?
            && let Ok(report) = client.ask(&ShowGroup {})
            && !report.mounts.is_empty()
        {
            return Ok(Some(ReadyReport {
                group: report.name,
                process_id: report.process_id.unwrap_or(0),
                mounts: report.mounts,
                notices: Vec::new(),
            }));
        }
        std::thread::sleep(ENDING_INTERVAL);
    }
    Ok(None)
}

/// The daemon's own end of [`start_daemon`].
#[derive(Debug)]
pub struct Starter(());

impl Starter {
    /// Leaves the session of whoever started this process.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn detach() -> ControlResult<Self> {
        rustix::process::setsid()
            .map_err(|error| ControlError::io("leave", "the session", &error.into()))?;
        Ok(Self(()))
    }

    /// The word of a keeper that could not begin.
    #[must_use]
    pub const fn of_keeper() -> Self {
        Self(())
    }

    /// Says that the group is served; the standard output is closed then.
    pub fn ready(self, report: &ReadyReport) {
        self.say(&FirstWord::Ready(report.clone()));
    }

    /// Says why it is not.
    pub fn failed(self, error: &ControlError) {
        self.say(&FirstWord::Failed(error.clone()));
    }

    fn say(self, word: &FirstWord) {
        let mut line = serde_json::to_string(word).unwrap_or_default();
        line.push('\n');
        // The directory that the command was given in must stay free to be unmounted. Every
        // path that is still needed is absolute.
        let _ = std::env::set_current_dir("/");
        // Whoever started this process may be gone; the group is served all the same.
        let _ = std::io::stdout().write_all(line.as_bytes());
        let _ = std::io::stdout().flush();
        if let Ok(null) = std::fs::OpenOptions::new().write(true).open("/dev/null") {
            let _ = rustix::stdio::dup2_stdout(&null);
        }
    }
}

/// Mounts a group that a process serves already; `None` where there is none. Where the mount is held
/// because the last processes could not open the group, the next one does it by force with `force`.
///
/// # Errors
/// Where the directory cannot be mounted on.
pub fn mount_served(
    settings: &Settings,
    group: &str,
    request: &MountRequest,
    force: bool,
) -> ControlResult<Option<MountReport>> {
    let call = AddMount {
        directory: request.directory.clone(),
        direct: request.direct,
        workers: request.workers_count,
    };
    let begun = Instant::now();
    loop {
        if let Some(report) = go_on_kept(settings, group, request, force)? {
            return Ok(Some(report));
        }
        let Some(client) = served::find(settings, group)? else {
            return Ok(None);
        };
        match client.ask(&call) {
            // Its last mount has gone a moment ago: it takes no other.
            Err(error) if begun.elapsed() < CLOSING_MOST && is_over(settings, group, &error) => {
                std::thread::sleep(ENDING_INTERVAL);
            }
            answer => return answer.map(Some),
        }
    }
}

/// Whether this is the answer of a process that is about to end, or of none because it has ended.
fn is_over(settings: &Settings, group: &str, error: &ControlError) -> bool {
    match error.kind {
        ControlErrorKind::Ending => true,
        ControlErrorKind::Io | ControlErrorKind::NotFound => {
            sockets::find_daemon(settings, group).is_ok_and(|client| client.is_none())
        }
        _ => false,
    }
}

/// Starts the next process of a mount that is held and that the last ones could not serve.
fn go_on_kept(
    settings: &Settings,
    group: &str,
    request: &MountRequest,
    force: bool,
) -> ControlResult<Option<MountReport>> {
    let Some(keeper) = KeeperClient::find(settings, group) else {
        return Ok(None);
    };
    let status = match keeper.status() {
        Err(error) if error.kind == ControlErrorKind::Ending => return Ok(None),
        status => status?,
    };
    if status.phase != KeeperPhase::GaveUp || status.directory.as_ref() != Some(&request.directory)
    {
        return Ok(None);
    }
    let status = keeper.go_on(force)?;
    if status.phase == KeeperPhase::GaveUp {
        return Err(served::gave_up_again(&status));
    }
    let Some(client) = served::find(settings, group)? else {
        return Ok(None);
    };
    let report = client.ask(&ShowGroup {})?;
    Ok(report.mounts.into_iter().next())
}
