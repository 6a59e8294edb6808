//! Which groups are served by processes of this machine: their sockets in the runtime directory.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::error::{ControlError, ControlErrorKind, ControlResult};
use crate::keeper::{KeeperClient, KeeperPhase, KeeperStatus};
use crate::settings::Settings;

/// Where the process that serves `group` listens.
#[must_use]
pub fn socket_path(runtime_directory: &Path, group: &str) -> PathBuf {
    runtime_directory.join(format!("{group}.sock"))
}

/// The sockets there are, living or left behind, by name of group.
#[must_use]
pub fn all(settings: &Settings) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(&settings.runtime_directory) else {
        return Vec::new();
    };
    let mut sockets: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "sock")
        })
        .collect();
    sockets.sort();
    sockets
}

/// The process that serves `group`, `None` where there is none. Names of groups are unique
/// whatever their case, so it does not matter here either. Where a keeper is starting the next
/// process, it is waited for: nobody else may open the group meanwhile.
///
/// # Errors
/// Where there is one that cannot be reached, such as another user's, or the keeper gave up.
pub fn find(settings: &Settings, group: &str) -> ControlResult<Option<Client>> {
    loop {
        if let Some(client) = find_daemon(settings, group)? {
            return Ok(Some(client));
        }
        let Some(keeper) = KeeperClient::find(settings, group) else {
            return Ok(None);
        };
        match keeper.wait_for_daemon() {
            Ok(status) if status.phase == KeeperPhase::GaveUp => return Err(gave_up(&status)),
            // One that served and died at once: the keeper is about to notice.
            Ok(_) => std::thread::sleep(std::time::Duration::from_millis(5)),
            // The keeper ended meanwhile; another may have begun.
            Err(error) if error.kind == ControlErrorKind::Ending => {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            Err(error) => return Err(error),
        }
    }
}

/// What a command is told while nobody serves a mount that is held.
pub fn gave_up(status: &KeeperStatus) -> ControlError {
    let place = status.directory.as_deref().unwrap_or(Path::new("DIR"));
    ControlError::new(
        ControlErrorKind::Busy,
        format!(
            "the processes that served {0} died {1} times, and its mount is held by the keeper {2}: `spindle mount {0} {3}` starts the next one, `spindle umount {3}` gives the mount up",
            status.group,
            status.deaths_count,
            status.keeper_process_id,
            place.display()
        ),
    )
}

/// As [`find`], without waiting.
///
/// # Errors
/// Where there is one that cannot be reached.
pub fn find_daemon(settings: &Settings, group: &str) -> ControlResult<Option<Client>> {
    for socket in all(settings) {
        let stem = socket.file_stem().unwrap_or_default().to_string_lossy();
        if !stem.eq_ignore_ascii_case(group) {
            continue;
        }
        match Client::connect(&socket, settings.trust) {
            Ok(client) => return Ok(Some(client)),
            Err(error) if error.kind == ControlErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Every process that serves a group, whether it answers or not.
#[must_use]
pub fn living(settings: &Settings) -> Vec<Client> {
    all(settings)
        .iter()
        .filter_map(|socket| Client::connect(socket, settings.trust).ok())
        .collect()
}

/// Asks all of them at the same time, so that one which hangs holds up no other.
pub fn ask_each<T: Send>(
    clients: &[Client],
    ask: impl Fn(&Client) -> ControlResult<T> + Sync,
) -> Vec<ControlResult<T>> {
    std::thread::scope(|scope| {
        let ask = &ask;
        let asked: Vec<_> = (clients.iter())
            .map(|client| scope.spawn(move || ask(client)))
            .collect();
        (asked.into_iter())
            .map(|answer| match answer.join() {
                Ok(answer) => answer,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect()
    })
}

/// Whether the process has ended as a program, and its last threads are on their way out or wait for
/// a disk in the kernel; `None` where there is no such process.
pub(crate) fn is_ending(process_id: u32) -> Option<bool> {
    let stat = std::fs::read_to_string(format!("/proc/{process_id}/stat")).ok()?;
    // The state follows the name, which may hold anything but ends with the last bracket.
    let (_, rest) = stat.rsplit_once(") ")?;
    Some(rest.starts_with(['Z', 'X']))
}

/// How long the threads of a process that has ended are waited for. It let go of its disks before,
/// but for one that hangs.
const LINGER_MOST: Duration = Duration::from_secs(1);
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Waits until the process has ended: then its disks are free, but for one that hangs.
///
/// # Errors
/// Where it takes longer than `most`.
pub fn wait_for_end(process_id: u32, most: Duration) -> ControlResult<()> {
    let process = i32::try_from(process_id)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
        .and_then(|pid| {
            rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()
        });
    let Some(process) = process else {
        return Ok(());
    };
    let begun = Instant::now();
    let mut ending_since: Option<Instant> = None;
    let timeout = rustix::event::Timespec::try_from(LOOK_INTERVAL).ok();
    loop {
        let mut wait = [rustix::event::PollFd::new(
            &process,
            rustix::event::PollFlags::IN,
        )];
        match rustix::event::poll(&mut wait, timeout.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(ControlError::io("wait for", process_id, &error.into())),
        }
        if is_ending(process_id) == Some(true) {
            let since = ending_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= LINGER_MOST {
                return Ok(());
            }
        }
        if begun.elapsed() >= most {
            return Err(ControlError::new(
                ControlErrorKind::Io,
                format!(
                    "process {process_id} is still closing the group after {} s; see its log",
                    most.as_secs()
                ),
            ));
        }
    }
}
