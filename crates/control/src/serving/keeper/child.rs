//! The daemon as the keeper's child: starting it, hearing it, seeing its end.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::wait::{Id, WaitPidFlag, waitid, waitpid};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use spindle_device::SharedMemory;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::message::{FromDaemon, PROTOCOL_VERSION, Start, ToDaemon};
use super::wire;
use crate::api::error::{ControlError, ControlResult};

const SCORE_FILE: &str = "/proc/self/oom_score_adj";

/// A program that can serve, held open: what is installed in its place meanwhile does not matter.
#[derive(Debug, Clone)]
pub(super) struct Program {
    path: PathBuf,
    file: Arc<std::fs::File>,
    version: String,
}

impl Program {
    /// This very program.
    pub(super) fn own() -> ControlResult<Self> {
        let path = std::env::current_exe()
            .map_err(|error| ControlError::io("find", "this program", &error))?;
        let file = std::fs::File::open("/proc/self/exe")
            .map_err(|error| ControlError::io("open", "this program", &error))?;
        Ok(Self {
            path,
            file: Arc::new(file),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        })
    }

    /// Another program, which has said that its version is `version`: the very file that was
    /// asked comes with the command. A command of an earlier version names its path only.
    pub(super) fn from_command(
        path: &Path,
        file: Option<std::fs::File>,
        version: String,
    ) -> ControlResult<Self> {
        let file = match file {
            Some(file) => file,
            None => std::fs::File::open(path)
                .map_err(|error| ControlError::io("open", path.display(), &error))?,
        };
        Ok(Self {
            path: path.to_owned(),
            file: Arc::new(file),
            version,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn version(&self) -> String {
        self.version.clone()
    }
}

/// The directory that the command was given in: relative names in its arguments and in the settings
/// count from there, for each daemon that follows too.
#[derive(Debug)]
pub(super) struct WorkingDirectory {
    path: PathBuf,
    /// The directory itself, where the mount is to cover it: by its path a daemon would come into the
    /// mount that it is to take over, and wait there for itself.
    covered: Option<OwnedFd>,
}

impl WorkingDirectory {
    /// That of this process, before anything is mounted on `mount_point`.
    pub(super) fn own(mount_point: Option<&Path>) -> Self {
        let path = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        // Held only there: it keeps what it lies on from being unmounted, as the mount does.
        let covered = (mount_point == Some(&*path))
            .then(|| {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                rustix::fs::open(".", flags, Mode::empty()).ok()
            })
            .flatten();
        Self { path, covered }
    }

    /// Where a daemon starts that has the mount at `mounted`.
    fn for_daemon(&self, mounted: Option<&Path>) -> PathBuf {
        if let Some(covered) = &self.covered {
            return format!("/proc/self/fd/{}", covered.as_raw_fd()).into();
        }
        let is_in_mount = mounted.is_some_and(|mounted| self.path.starts_with(mounted));
        if !is_in_mount && self.path.is_dir() {
            self.path.clone()
        } else {
            PathBuf::from("/")
        }
    }
}

/// A running daemon.
#[derive(Debug)]
pub(super) struct Child {
    process: std::process::Child,
    socket: UnixStream,
}

/// How it ended.
#[derive(Debug)]
pub(super) struct Status(ExitStatus);

impl Status {
    pub(super) fn code(&self) -> Option<u8> {
        self.0.code().and_then(|code| u8::try_from(code).ok())
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.signal() {
            Some(number) => write!(f, "signal {number}"),
            None => write!(f, "exit code {}", self.0.code().unwrap_or(-1)),
        }
    }
}

impl Child {
    /// Starts `program`. The first daemon's output is that of this process: it says there that it
    /// is ready, or why not. One that follows takes over the mount at `mounted`, if there is any.
    pub(super) fn start(
        program: &Program,
        arguments: &[OsString],
        directory: &WorkingDirectory,
        mounted: Option<&Path>,
        first: bool,
    ) -> ControlResult<Self> {
        let fail = |error| ControlError::io("start", program.path.display(), &error);
        let (ours, theirs) = wire::pair().map_err(fail)?;
        let held = format!("/proc/self/fd/{}", program.file.as_raw_fd());
        let process = Command::new(held)
            // In lists of processes it is the program, and not a descriptor of this one.
            .arg0(&program.path)
            .args(arguments)
            .arg("--daemon")
            .current_dir(directory.for_daemon(mounted))
            .env_remove("NOTIFY_SOCKET")
            .env_remove("WATCHDOG_USEC")
            .stdin(Stdio::from(theirs))
            .stdout(if first {
                Stdio::inherit()
            } else {
                Stdio::null()
            })
            .spawn()
            .map_err(fail)?;
        let ours = std::os::unix::net::UnixStream::from(ours);
        ours.set_nonblocking(true).map_err(fail)?;
        let socket = UnixStream::from_std(ours).map_err(fail)?;
        Ok(Self { process, socket })
    }

    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(super) fn send_start(
        &self,
        start: &Start,
        memories: &[SharedMemory],
        descriptors: &[OwnedFd],
    ) -> ControlResult<()> {
        let fail = |error| ControlError::io("hand the mount to", self.id(), &error);
        let socket = &self.socket;
        for some in descriptors.chunks(wire::DESCRIPTORS_MAX) {
            let some: Vec<BorrowedFd<'_>> = some.iter().map(AsFd::as_fd).collect();
            wire::send(socket, &ToDaemon::Descriptors, &some).map_err(fail)?;
        }
        let message = ToDaemon::Start {
            version: PROTOCOL_VERSION,
            start: start.clone(),
        };
        // A daemon of an earlier version takes the first and drops the others.
        let memories: Vec<BorrowedFd<'_>> = memories.iter().map(SharedMemory::descriptor).collect();
        wire::send(socket, &message, &memories).map_err(fail)
    }

    /// Tells it something; one that has died is noticed by its end.
    pub(super) fn send(&self, message: &ToDaemon) {
        if let Err(error) = wire::send(&self.socket, message, &[]) {
            tracing::warn!(%error, "the daemon did not hear");
        }
    }

    /// The next message; `None` where it has let go of its end.
    pub(super) async fn receive(&self) -> ControlResult<Option<(FromDaemon, Vec<OwnedFd>)>> {
        let fail = |error| ControlError::io("hear", "the daemon", &error);
        loop {
            let receive = || wire::receive(&self.socket);
            return match self.socket.async_io(Interest::READABLE, receive).await {
                Ok(message) => Ok(message),
                // A word of a later version: nothing that this keeper must know.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => continue,
                Err(error) => Err(fail(error)),
            };
        }
    }

    /// Waits for its end, which is near; `None` where the kernel has not let go of it `most` after
    /// its program ended.
    pub(super) async fn wait(&mut self, most: Duration) -> ControlResult<Option<Status>> {
        let fail = |error| ControlError::io("wait for", "the daemon", &error);
        let mut lingers_since: Option<Instant> = None;
        loop {
            if let Some(status) = self.process.try_wait().map_err(fail)? {
                return Ok(Some(Status(status)));
            }
            if self.lingers() && lingers_since.get_or_insert_with(Instant::now).elapsed() >= most {
                return Ok(None);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Whether its program has ended and the kernel has not let go of it: a disk that hangs still
    /// has requests of it.
    pub(super) fn lingers(&self) -> bool {
        crate::machine::process::is_ending(self.id()) == Some(true)
    }

    /// Whether its table of descriptors is empty, as its undertaker tells by the end of the socket: each
    /// disk is free then when the last request of it has ended.
    pub(super) fn has_let_go(&self) -> bool {
        let mut wait = [PollFd::new(&self.socket, PollFlags::empty())];
        let seen = poll(&mut wait, Some(&rustix::event::Timespec::default()));
        seen.is_ok() && wait[0].revents().contains(PollFlags::HUP)
    }

    /// Whether the kernel has let go of it by now.
    pub(super) fn is_gone(&mut self) -> bool {
        !matches!(self.process.try_wait(), Ok(None))
    }

    pub(super) fn kill(&mut self) {
        let _ = self.process.kill();
    }
}

/// Takes away what is left of processes that a dead daemon had started, which become this process's
/// children where it is the first one of a container. `daemon` and those of `lingering` are its own, and
/// somebody wants to know how they ended.
pub(super) fn reap_strangers(daemon: Option<u32>, lingering: impl Iterator<Item = u32>) {
    let own: Vec<u32> = lingering.chain(daemon).collect();
    let peek = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    while let Ok(status) = waitid(Id::All, peek)
        && let Some(ended) = status.pid()
        && !own
            .iter()
            .any(|id| i64::from(*id) == i64::from(ended.as_raw()))
    {
        if waitpid(ended, Some(WaitPidFlag::WNOHANG)).is_err() {
            return;
        }
    }
}

/// Whether the mount behind this descriptor is gone.
pub(super) fn has_ended(descriptor: &OwnedFd) -> bool {
    let mut wait = [PollFd::new(descriptor, PollFlags::empty())];
    let seen = poll(&mut wait, Some(&rustix::event::Timespec::default()));
    seen.is_ok() && wait[0].revents().contains(PollFlags::ERR)
}

/// Signals that mean "stop cleanly".
#[derive(Debug)]
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// Nobody looks at it. A parent may have this process ignore the ends of its children, as some
    /// supervisors do: then the kernel would keep no daemon's status. Who catches them does not ignore
    /// them, and a daemon that is started finds the default again.
    _child: Signal,
}

impl Signals {
    pub(super) fn catch() -> ControlResult<Self> {
        let fail = |error| ControlError::io("catch signals in", "the keeper", &error);
        Ok(Self {
            terminate: signal(SignalKind::terminate()).map_err(fail)?,
            interrupt: signal(SignalKind::interrupt()).map_err(fail)?,
            _child: signal(SignalKind::child()).map_err(fail)?,
        })
    }

    pub(super) async fn received(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// The kernel shall choose other processes where memory is short; the score before, for the
/// daemon, which can be replaced. Only root may.
pub(super) fn protect_from_out_of_memory() -> Option<String> {
    let before = std::fs::read_to_string(SCORE_FILE).ok()?;
    std::fs::write(SCORE_FILE, "-1000").ok()?;
    Some(before.trim().to_owned())
}

/// The kernel calls a program that was started by its descriptor by the number of that.
pub(super) fn take_own_name() {
    if let Err(error) = rustix::thread::set_name(c"spindle") {
        tracing::debug!(%error, "lists of processes show a number");
    }
}

/// The daemon's end of it.
pub(super) fn set_out_of_memory_score(score: &str) {
    let _ = std::fs::write(SCORE_FILE, score);
}

pub(super) fn leave_output_and_directory() {
    let _ = std::env::set_current_dir("/");
    if let Ok(null) = std::fs::OpenOptions::new().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}
