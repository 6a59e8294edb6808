//! What a command can ask of a keeper, over a socket beside the daemon's.
//!
//! One line of JSON each way. Only the user who keeps the mount, and root, may ask.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use super::child::{Child, Program};
use super::message::ToDaemon;
use super::{Keeper, Upgrade};
use crate::error::{ControlError, ControlErrorKind, ControlResult};
use crate::formats::Formats;
use crate::settings::Settings;

/// How long a command may take to say what it wants.
const ASKING_MOST: Duration = Duration::from_secs(2);
/// How long a command waits for the next daemon to serve.
const NEXT_MOST: Duration = Duration::from_secs(60);
const NEXT_INTERVAL: Duration = Duration::from_millis(20);

/// What a keeper is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeeperPhase {
    /// A daemon is being started.
    Starting,
    /// A daemon serves.
    Serving,
    /// The daemon ends in order.
    Ending,
    /// Daemons died too often; the mount is held.
    GaveUp,
}

/// A keeper as it sees itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KeeperStatus {
    /// The group.
    pub group: String,
    /// What it is doing.
    pub phase: KeeperPhase,
    /// Its process.
    pub keeper_process_id: u32,
    /// The daemon's process, while there is one.
    pub process_id: Option<u32>,
    /// The mount that it holds.
    pub directory: Option<PathBuf>,
    /// Daemons that died soon after their start, in a row.
    pub deaths_count: usize,
    /// What the daemon that served last reads and writes.
    pub formats: Option<Formats>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Request {
    Status,
    /// Start a daemon although the last ones died.
    GoOn,
    /// Give the mount up, where no daemon serves it.
    GiveUp,
    Upgrade {
        program: PathBuf,
        version: String,
    },
}

/// Where the keeper of `group` listens.
pub(super) fn socket_path(runtime_directory: &Path, group: &str) -> PathBuf {
    runtime_directory.join(format!("{group}.keeper"))
}

/// Binds the socket. One that a dead keeper left is replaced; a living one is not.
pub(super) fn listen(socket: &Path) -> ControlResult<UnixListener> {
    let fail = |error| ControlError::io("listen at", socket.display(), &error);
    if BlockingStream::connect(socket).is_ok() {
        return Err(ControlError::new(
            ControlErrorKind::Busy,
            format!("another keeper listens at {}", socket.display()),
        ));
    }
    let _ = std::fs::remove_file(socket);
    let listener = UnixListener::bind(socket).map_err(fail)?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600)).map_err(fail)?;
    Ok(listener)
}

/// Answers a command; one that has gone is no matter.
pub(super) async fn answer<T: Serialize>(mut stream: UnixStream, answer: &ControlResult<T>) {
    let mut line = serde_json::to_vec(answer).unwrap_or_default();
    line.push(b'\n');
    let _ = tokio::time::timeout(ASKING_MOST, stream.write_all(&line)).await;
}

impl Keeper {
    pub(super) fn status(&self) -> KeeperStatus {
        KeeperStatus {
            group: self.group.clone(),
            phase: self.phase,
            keeper_process_id: std::process::id(),
            process_id: self.daemon_id,
            directory: self.mount.as_ref().map(|mount| mount.directory.clone()),
            deaths_count: self.deaths_count,
            formats: self.formats.clone(),
        }
    }

    /// Does what a command asks; without `child` no daemon runs.
    pub(super) async fn serve_command(&mut self, mut stream: UnixStream, child: Option<&Child>) {
        let own = rustix::process::geteuid().as_raw();
        let peer = stream.peer_cred().map(|peer| peer.uid());
        if !peer.is_ok_and(|user| user == own || user == 0) {
            return;
        }
        let mut line = String::new();
        let mut reader = tokio::io::BufReader::new(&mut stream);
        let read = tokio::time::timeout(ASKING_MOST, reader.read_line(&mut line)).await;
        if !matches!(read, Ok(Ok(_))) {
            return;
        }
        match serde_json::from_str(&line) {
            Ok(Request::Status) => answer(stream, &Ok(self.status())).await,
            Ok(Request::GoOn) => {
                if child.is_none() {
                    self.phase = KeeperPhase::Starting;
                    self.go_on = true;
                }
                answer(stream, &Ok(self.status())).await;
            }
            Ok(Request::GiveUp) => {
                if child.is_none() {
                    self.stopping = true;
                    self.detach_mount();
                    let _ = std::fs::remove_file(&self.socket);
                }
                answer(stream, &Ok(self.status())).await;
            }
            Ok(Request::Upgrade { program, version }) => {
                self.begin_upgrade(stream, &program, version, child).await;
            }
            Err(error) => {
                let refused = ControlError::invalid(format!("the keeper does not know {error}"));
                answer::<()>(stream, &Err(refused)).await;
            }
        }
    }

    async fn begin_upgrade(
        &mut self,
        stream: UnixStream,
        path: &Path,
        version: String,
        child: Option<&Child>,
    ) {
        if self.upgrade.is_some() || self.phase == KeeperPhase::Ending {
            let busy = ControlError::new(
                ControlErrorKind::Busy,
                format!("{} is ending or being upgraded already", self.group),
            );
            return answer::<()>(stream, &Err(busy)).await;
        }
        let program = match Program::open(path, version) {
            Ok(program) => program,
            Err(error) => return answer::<()>(stream, &Err(error)).await,
        };
        self.upgrade = Some(Upgrade {
            program,
            former: None,
            answer: stream,
        });
        match child {
            Some(child) => child.send(&ToDaemon::HandOver),
            None => {
                self.take_new_program();
                self.phase = KeeperPhase::Starting;
                self.go_on = true;
            }
        }
    }
}

/// A command's way to a keeper.
#[derive(Debug)]
pub struct KeeperClient {
    socket: PathBuf,
}

impl KeeperClient {
    /// The keeper of `group`, `None` where there is none.
    #[must_use]
    pub fn find(settings: &Settings, group: &str) -> Option<Self> {
        Self::all(settings).into_iter().find(|keeper| {
            let stem = keeper.socket.file_stem().unwrap_or_default();
            stem.to_string_lossy().eq_ignore_ascii_case(group)
        })
    }

    /// Every keeper that lives.
    #[must_use]
    pub fn all(settings: &Settings) -> Vec<Self> {
        let Ok(entries) = std::fs::read_dir(&settings.runtime_directory) else {
            return Vec::new();
        };
        let mut sockets: Vec<PathBuf> = entries
            .filter_map(Result::ok)
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|end| end == "keeper"))
            .filter(|path| BlockingStream::connect(path).is_ok())
            .collect();
        sockets.sort();
        sockets.into_iter().map(|socket| Self { socket }).collect()
    }

    fn ask<T: serde::de::DeserializeOwned>(&self, request: &Request) -> ControlResult<T> {
        let fail = |error| ControlError::io("ask the keeper at", self.socket.display(), &error);
        let mut stream = BlockingStream::connect(&self.socket).map_err(fail)?;
        let mut line = serde_json::to_string(request).unwrap_or_default();
        line.push('\n');
        stream.write_all(line.as_bytes()).map_err(fail)?;
        let mut answer = String::new();
        BufReader::new(stream)
            .read_line(&mut answer)
            .map_err(fail)?;
        let parsed: Result<Result<T, ControlError>, _> = serde_json::from_str(&answer);
        parsed.unwrap_or_else(|_| {
            Err(ControlError::new(
                ControlErrorKind::Io,
                format!("the keeper at {} gave no answer", self.socket.display()),
            ))
        })
    }

    /// What it is doing.
    ///
    /// # Errors
    /// Where it does not answer.
    pub fn status(&self) -> ControlResult<KeeperStatus> {
        self.ask(&Request::Status)
    }

    /// Has a daemon started although the last ones died, and waits until it serves.
    ///
    /// # Errors
    /// Where it does not serve.
    pub fn go_on(&self) -> ControlResult<KeeperStatus> {
        self.ask::<KeeperStatus>(&Request::GoOn)?;
        self.wait_for_daemon()
    }

    /// Has the mount given up that no daemon serves.
    ///
    /// # Errors
    /// Where it does not answer.
    pub fn give_up(&self) -> ControlResult<KeeperStatus> {
        self.ask(&Request::GiveUp)
    }

    /// Has the group handed over to another program; its version.
    ///
    /// # Errors
    /// Where that could not serve: the former one goes on then.
    pub fn upgrade(&self, program: &Path, version: &str) -> ControlResult<String> {
        self.ask(&Request::Upgrade {
            program: program.to_owned(),
            version: version.to_owned(),
        })
    }

    /// Waits while a daemon is being started or ends; what came of it.
    ///
    /// # Errors
    /// Where that takes too long.
    pub fn wait_for_daemon(&self) -> ControlResult<KeeperStatus> {
        let begun = Instant::now();
        loop {
            let status = self.status()?;
            if matches!(status.phase, KeeperPhase::Serving | KeeperPhase::GaveUp) {
                return Ok(status);
            }
            if begun.elapsed() > NEXT_MOST {
                return Err(ControlError::new(
                    ControlErrorKind::Io,
                    format!(
                        "no process serves {} yet after {} s; see its log",
                        status.group,
                        NEXT_MOST.as_secs()
                    ),
                ));
            }
            std::thread::sleep(NEXT_INTERVAL);
        }
    }
}
