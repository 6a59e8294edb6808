//! What a command can ask of a keeper, over a socket beside the daemon's.
//!
//! One line of JSON each way. Only the user who keeps the mount, and root, may ask.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixStream as BlockingStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::SocketAddrUnix;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};

use super::child::{Child, Program};
use super::message::{Notice, ToDaemon};
use super::{Keeper, Upgrade, wire};
use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::api::trust::Trust;
use crate::api::version;
use crate::machine::held::KeeperPhase;
use crate::machine::runtime_directory::file_of;
use crate::machine::settings::Settings;
use crate::machine::{held, sockets};
use crate::serving::formats::Formats;

/// How long a command may take to say what it wants.
const ASKING_MOST: Duration = Duration::from_secs(2);
/// How long a command waits for an answer.
const ANSWER_MOST: Duration = Duration::from_secs(5);
/// How long one group may take to be closed by one program and opened by the next.
const HANDING_OVER_MOST: Duration = Duration::from_secs(1200);
/// The longest request.
const REQUEST_BYTES_MAX: usize = 64 << 10;
/// Commands that are heard at a time; more wait for their turn.
const COMMANDS_MAX: usize = 64;
/// How long a command waits for the next daemon to serve.
const NEXT_MOST: Duration = Duration::from_secs(60);
const NEXT_INTERVAL: Duration = Duration::from_millis(20);

/// A keeper as it sees itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KeeperStatus {
    /// The version of its program.
    #[serde(default)]
    pub version: Option<String>,
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
    /// Every file there bypasses the page cache.
    #[serde(default)]
    pub direct: bool,
    /// Daemons that died soon after their start, in a row.
    pub deaths_count: usize,
    /// What the last one that died died of.
    #[serde(default)]
    pub last_death: Option<String>,
    /// What happened since the last daemon that served.
    #[serde(default)]
    pub notices: Vec<Notice>,
    /// What the daemon that served last reads and writes.
    pub formats: Option<Formats>,
    /// Where its socket lies.
    #[serde(default)]
    pub runtime_directory: Option<PathBuf>,
}

/// What a command asks; of the keeper's own user or root.
#[derive(Debug)]
pub(super) struct Asked {
    stream: UnixStream,
    request: Request,
    /// What came with it: the program of an upgrade.
    descriptors: Vec<OwnedFd>,
}

/// Hears commands, each on a task of its own: one that says nothing keeps nobody else waiting, and
/// least of all the keeper.
pub(super) fn hear(listener: UnixListener, sender: mpsc::Sender<Asked>) {
    let places = Arc::new(Semaphore::new(COMMANDS_MAX));
    tokio::spawn(async move {
        while let Ok(place) = places.clone().acquire_owned().await {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(NEXT_INTERVAL).await;
                continue;
            };
            let sender = sender.clone();
            tokio::spawn(async move {
                if let Ok(Some(asked)) = tokio::time::timeout(ASKING_MOST, read(stream)).await {
                    // The keeper ends: nobody is left to answer.
                    let _ = sender.send(asked).await;
                }
                drop(place);
            });
        }
    });
}

/// Where commands that were heard wait.
pub(super) fn queue() -> (mpsc::Sender<Asked>, mpsc::Receiver<Asked>) {
    mpsc::channel(COMMANDS_MAX)
}

async fn read(stream: UnixStream) -> Option<Asked> {
    let own = rustix::process::geteuid().as_raw();
    let peer = stream.peer_cred().ok()?.uid();
    if peer != own && peer != 0 {
        return None;
    }
    let mut line = Vec::new();
    let mut descriptors = Vec::new();
    while !line.ends_with(b"\n") {
        let receive = || wire::receive_bytes(&stream);
        let (bytes, more) = stream.async_io(Interest::READABLE, receive).await.ok()?;
        if bytes.is_empty() || line.len() + bytes.len() > REQUEST_BYTES_MAX {
            return None;
        }
        line.extend(bytes);
        descriptors.extend(more);
    }
    match serde_json::from_slice(&line) {
        Ok(request) => Some(Asked {
            stream,
            request,
            descriptors,
        }),
        Err(error) => {
            let refused = version::unknown_to_keeper(&error.to_string());
            answer::<()>(stream, &Err(refused)).await;
            None
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Request {
    Status,
    /// Start a daemon although the last ones died.
    GoOn,
    /// The same, and the person's word is that it opens the group by force.
    GoOnByForce,
    /// Give the mount up, where no daemon serves it; the next one only closes the group.
    GiveUp,
    Upgrade {
        program: PathBuf,
        version: String,
    },
}

/// Where the keeper of `group` listens.
pub(super) fn socket_path(runtime_directory: &Path, group: &str) -> PathBuf {
    file_of(runtime_directory, group, "keeper")
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

/// Binds the name by which the group's identity leads to its keeper, whatever runtime directory is
/// looked into.
pub(super) fn listen_for(group_uuid: &str) -> std::io::Result<UnixListener> {
    let name = held::name_of(group_uuid);
    let address = SocketAddr::from_abstract_name(name)?;
    let listener = std::os::unix::net::UnixListener::bind_addr(&address)?;
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// Answers a command beside what else the keeper does; one that has gone or does not read is no
/// matter.
pub(super) async fn answer<T: Serialize>(stream: UnixStream, answer: &ControlResult<T>) {
    drop(tokio::spawn(written(stream, answer)));
}

/// As [`answer`], where the keeper ends afterwards: what is written beside it would be lost.
async fn answer_last<T: Serialize>(stream: UnixStream, answer: &ControlResult<T>) {
    written(stream, answer).await;
}

fn written<T: Serialize>(
    mut stream: UnixStream,
    answer: &ControlResult<T>,
) -> impl Future<Output = ()> + Send + 'static {
    let mut line = serde_json::to_vec(answer).unwrap_or_default();
    line.push(b'\n');
    async move {
        let _ = tokio::time::timeout(ASKING_MOST, stream.write_all(&line)).await;
    }
}

impl Keeper {
    pub(super) fn status(&self) -> KeeperStatus {
        KeeperStatus {
            version: Some(version::OWN.to_owned()),
            group: self.group.clone(),
            phase: self.phase,
            keeper_process_id: std::process::id(),
            process_id: self.daemon_id,
            directory: self.mount.as_ref().map(|mount| mount.directory.clone()),
            direct: self.mount.as_ref().is_some_and(|mount| mount.direct),
            deaths_count: self.deaths_count,
            last_death: self.last_death.clone(),
            notices: self.notices.clone(),
            formats: self.formats.clone(),
            runtime_directory: Some(self.runtime_directory.clone()),
        }
    }

    /// Does what a command asks; without `child` no daemon runs.
    pub(super) async fn serve_command(&mut self, asked: Asked, child: Option<&Child>) {
        let Asked {
            stream,
            request,
            descriptors,
        } = asked;
        match request {
            Request::Status => answer(stream, &Ok(self.status())).await,
            Request::GoOn | Request::GoOnByForce => {
                if child.is_none() && (!self.waits_for_kernel() || self.may_retry()) {
                    self.phase = KeeperPhase::Starting;
                    self.go_on = true;
                    self.by_force = matches!(request, Request::GoOnByForce);
                }
                answer(stream, &Ok(self.status())).await;
            }
            Request::GiveUp => {
                if child.is_none() {
                    self.stopping = true;
                    self.detach_mount();
                }
                answer_last(stream, &Ok(self.status())).await;
            }
            Request::Upgrade { program, version } => {
                let file = descriptors.into_iter().next().map(File::from);
                let program = Program::from_command(&program, file, version);
                self.begin_upgrade(stream, program, child).await;
            }
        }
    }

    async fn begin_upgrade(
        &mut self,
        stream: UnixStream,
        program: ControlResult<Program>,
        child: Option<&Child>,
    ) {
        if self.upgrade.is_some() || self.stopping || self.phase == KeeperPhase::Ending {
            let busy = ControlError::new(
                ControlErrorKind::Busy,
                format!("{} is ending or being upgraded already", self.group),
            );
            return answer::<()>(stream, &Err(busy)).await;
        }
        if child.is_none() && self.waits_for_kernel() {
            let hangs = ControlError::new(
                ControlErrorKind::Busy,
                format!(
                    "the process that served {} was killed, and a disk that hangs keeps the kernel from letting go of it: the next one is started when the disk answers",
                    self.group
                ),
            );
            return answer::<()>(stream, &Err(hangs)).await;
        }
        let program = match program {
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

fn connect_to(socket: &Path) -> std::io::Result<BlockingStream> {
    sockets::connect(&SocketAddrUnix::new(socket)?)
}

/// A command's way to a keeper.
#[derive(Debug)]
pub struct KeeperClient {
    socket: PathBuf,
    trust: Trust,
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
            .filter(|path| match connect_to(path) {
                Ok(_) => true,
                // Its queue is full: it is there and hangs.
                Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
            })
            .collect();
        sockets.sort();
        let keeper = |socket| Self {
            socket,
            trust: settings.trust,
        };
        sockets.into_iter().map(keeper).collect()
    }

    /// Asks, and tells a keeper that ended meanwhile (kind `Ending`) from one that failed.
    fn ask<T: serde::de::DeserializeOwned>(&self, request: &Request) -> ControlResult<T> {
        self.ask_with(request, None, ANSWER_MOST)
    }

    /// Asks; a program goes along as the descriptor of its file.
    fn ask_with<T: serde::de::DeserializeOwned>(
        &self,
        request: &Request,
        program: Option<&File>,
        most: Duration,
    ) -> ControlResult<T> {
        let fail = |error: std::io::Error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => self.silent(most),
            ErrorKind::NotFound
            | ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::BrokenPipe
            | ErrorKind::UnexpectedEof => ControlError::new(
                ControlErrorKind::Ending,
                format!(
                    "the keeper at {} ended while it was asked",
                    self.socket.display()
                ),
            ),
            _ => ControlError::io("ask the keeper at", self.socket.display(), &error),
        };
        let stream = connect_to(&self.socket).map_err(fail)?;
        self.trust.check_peer(&stream, &self.socket)?;
        stream.set_read_timeout(Some(most)).map_err(fail)?;
        stream.set_write_timeout(Some(ANSWER_MOST)).map_err(fail)?;
        let mut line = serde_json::to_string(request).unwrap_or_default();
        line.push('\n');
        let descriptors: Vec<BorrowedFd<'_>> = program.iter().map(|file| file.as_fd()).collect();
        wire::send_bytes(&stream, line.as_bytes(), &descriptors).map_err(fail)?;
        let mut answer = String::new();
        let answer_bytes = BufReader::new(stream)
            .read_line(&mut answer)
            .map_err(fail)?;
        if answer_bytes == 0 {
            return Err(fail(ErrorKind::UnexpectedEof.into()));
        }
        let parsed: Result<Result<T, ControlError>, _> = serde_json::from_str(&answer);
        parsed.unwrap_or_else(|why| {
            let why = why.to_string();
            Err(version::unknown_answer_of_keeper(
                &self.socket,
                &answer,
                &why,
            ))
        })
    }

    fn silent(&self, after: Duration) -> ControlError {
        ControlError::new(
            ControlErrorKind::Silent,
            format!(
                "no answer within {} s from the keeper at {}: it hangs",
                after.as_secs(),
                self.socket.display()
            ),
        )
    }

    /// What it is doing.
    ///
    /// # Errors
    /// Where it does not answer.
    pub fn status(&self) -> ControlResult<KeeperStatus> {
        self.ask(&Request::Status)
    }

    /// Has a daemon started although the last ones died, and waits until it serves. With `by_force`
    /// that one opens the group by force.
    ///
    /// # Errors
    /// Where it does not serve.
    pub fn go_on(&self, by_force: bool) -> ControlResult<KeeperStatus> {
        let request = match by_force {
            true => Request::GoOnByForce,
            false => Request::GoOn,
        };
        self.ask::<KeeperStatus>(&request)?;
        self.wait_for_daemon()
    }

    /// Has the mount given up that no daemon serves.
    ///
    /// # Errors
    /// Where it does not answer.
    pub fn give_up(&self) -> ControlResult<KeeperStatus> {
        self.ask(&Request::GiveUp)
    }

    /// Has the group handed over to another program; its version. What is started is `file`, the
    /// one that was asked what it knows, whatever its path leads to by then.
    ///
    /// # Errors
    /// Where that could not serve: the former one goes on then.
    pub fn upgrade(&self, program: &Path, file: &File, version: &str) -> ControlResult<String> {
        let request = Request::Upgrade {
            program: program.to_owned(),
            version: version.to_owned(),
        };
        self.ask_with(&request, Some(file), HANDING_OVER_MOST)
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
