//! Talks to the process that serves a group, over its Unix socket.
//!
//! A connection per request: a daemon that ends between two requests is noticed at the next
//! one, and nothing needs a lock. Calls block; each drives its own connection to the end.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::body::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;

use crate::api::call::{Call, Effect, Pace, Written};
use crate::api::calls::{
    Alive, FileUsage, ListFiles, MakeDirectory, MakeSymlink, MapFile, ReadFile, StatFile,
    SyncFiles, TellLost, WriteFile,
};
use crate::api::channel_body::channel;
use crate::api::door;
use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::api::files::{Files, NewEntry, PIECE_BYTES};
use crate::api::trust::Trust;
use crate::api::version;
use crate::api::view::{FileReport, MapReport, UsageReport};

type RequestBody = BoxBody<Bytes, std::io::Error>;

/// How long a question that needs no disk may be without an answer.
const ANSWER_MOST: Duration = Duration::from_secs(20);
/// The same where many groups are asked and one of them must not hold up the others.
const SOON_MOST: Duration = Duration::from_secs(5);
/// How long work may take that was asked for.
const WORK_MOST: Duration = Duration::from_secs(3600);
/// The bytes of a file may take as long as they do, while the process lives.
const CONTENT_MOST: Duration = Duration::from_secs(30 * 24 * 3600);
/// How often, while that is waited for, the process is asked whether it lives.
const ALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// A way to the daemon of one group. Every question has an end: one that needs no disk gets its
/// answer soon, and while work is waited for the process shows that it lives.
#[derive(Debug)]
pub struct Client {
    socket: PathBuf,
    group_name: String,
    trust: Trust,
    process_id: u32,
    /// By which door its user came, where it is no command.
    door: Option<&'static str>,
    runtime: tokio::runtime::Runtime,
}

impl Client {
    /// For the daemon that listens at `socket`.
    ///
    /// # Errors
    /// Where nobody listens there (kind `NotFound`), somebody does who is not believed, or the
    /// socket may not be used.
    pub fn connect(socket: &Path, trust: Trust) -> ControlResult<Self> {
        let group_name = socket
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| ControlError::io("begin to talk to", socket.display(), &error))?;
        let process_id = match runtime.block_on(tokio::net::UnixStream::connect(socket)) {
            Ok(stream) => trust.check_peer(&stream, socket)?,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                return Err(ControlError::not_found(format!(
                    "no process serves {group_name}: the one that did has ended"
                )));
            }
            // One that takes no connection any more is there all the same: each question says so.
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => 0,
            Err(error) => {
                return Err(ControlError::io("reach", socket.display(), &error));
            }
        };
        Ok(Self {
            socket: socket.to_owned(),
            group_name,
            trust,
            process_id,
            door: None,
            runtime,
        })
    }

    /// The same for a user who came by that door.
    #[must_use]
    pub(crate) fn by_door(self, door: &'static str) -> Self {
        let door = Some(door);
        Self { door, ..self }
    }

    /// The group that the daemon serves, as its socket is named.
    #[must_use]
    pub fn group_name(&self) -> &str {
        &self.group_name
    }

    /// The process that listens; 0 where that is not known.
    #[must_use]
    pub const fn process_id(&self) -> u32 {
        self.process_id
    }

    /// Asks, and waits for the answer as long as such a call may take.
    ///
    /// # Errors
    /// What the daemon answered, or that it cannot be reached or gives no answer.
    pub(crate) fn ask<C: Call>(&self, call: &C) -> ControlResult<C::Answer> {
        let most = match C::SHAPE.pace {
            Pace::Quick => ANSWER_MOST,
            Pace::Work => WORK_MOST,
        };
        self.answer_to::<C>(call.write()?, most)
    }

    /// As [`Client::ask`], of one of many groups: an answer is not waited for long.
    ///
    /// # Errors
    /// As for [`Client::ask`].
    pub(crate) fn ask_soon<C: Call>(&self, call: &C) -> ControlResult<C::Answer> {
        self.answer_to::<C>(call.write()?, SOON_MOST)
    }

    fn answer_to<C: Call>(&self, call: Written, most: Duration) -> ControlResult<C::Answer> {
        let body = match call.body {
            body if body.is_empty() => empty(),
            body => Full::new(Bytes::from(body))
                .map_err(|never| match never {})
                .boxed(),
        };
        self.answer_with::<C>(&call.path, body, most)
    }

    fn answer_with<C: Call>(
        &self,
        path: &str,
        body: RequestBody,
        most: Duration,
    ) -> ControlResult<C::Answer> {
        let answer = async {
            let response = self
                .send(C::SHAPE.method, C::SHAPE.effect, path, body)
                .await?;
            let other = version::other(response.headers());
            let bytes = response
                .into_body()
                .collect()
                .await
                .map_err(|error| self.broken(error, C::SHAPE.effect))?
                .to_bytes();
            serde_json::from_slice(&bytes).map_err(|error| {
                if let Some(daemon) = other {
                    let why = format!("{error}{}", done(C::SHAPE.effect));
                    return version::unknown_answer(&self.group_name, &daemon, &why);
                }
                ControlError::new(
                    ControlErrorKind::Corrupt,
                    format!(
                        "the process that serves {} answered {path} with something else than this version understands{}",
                        self.group_name,
                        done(C::SHAPE.effect)
                    ),
                )
                .because(error)
            })
        };
        self.runtime.block_on(async {
            match tokio::time::timeout(most, self.while_alive(C::SHAPE.effect, answer)).await {
                Ok(answer) => answer,
                Err(_) => Err(self.silent(most, C::SHAPE.effect)),
            }
        })
    }

    /// Waits for `answer` as long as the process shows that it lives.
    async fn while_alive<T>(
        &self,
        effect: Effect,
        answer: impl Future<Output = ControlResult<T>>,
    ) -> ControlResult<T> {
        let silent = async {
            loop {
                tokio::time::sleep(ALIVE_INTERVAL).await;
                // A process of an earlier version knows no such question, and so answers as well.
                let asked = self.send(
                    Alive::SHAPE.method,
                    Effect::Looks,
                    Alive::SHAPE.path,
                    empty(),
                );
                if tokio::time::timeout(ANSWER_MOST, asked).await.is_err() {
                    return self.silent(ALIVE_INTERVAL + ANSWER_MOST, effect);
                }
            }
        };
        tokio::select! {
            answer = answer => answer,
            silent = silent => Err(silent),
        }
    }

    /// What is told where no answer came.
    fn silent(&self, after: Duration, effect: Effect) -> ControlError {
        ControlError::new(
            ControlErrorKind::Silent,
            format!(
                "no answer within {} s from process {}, which serves {}: it hangs or waits for a disk; see its log in {}{}",
                after.as_secs(),
                self.process_id,
                self.group_name,
                self.socket.with_extension("log").display(),
                unknown(effect)
            ),
        )
    }

    async fn send(
        &self,
        method: Method,
        effect: Effect,
        path: &str,
        body: RequestBody,
    ) -> ControlResult<Response<Incoming>> {
        let connecting = tokio::net::UnixStream::connect(&self.socket);
        let stream = connecting.await.map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => self.silent(Duration::ZERO, Effect::Looks),
            // Not "no such file": what was asked for is not what is missing.
            std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused => {
                ControlError::new(
                    ControlErrorKind::Ending,
                    format!("the process that served {} has ended", self.group_name),
                )
                .because(error)
            }
            _ => ControlError::io("reach", self.socket.display(), &error),
        })?;
        self.trust.check_peer(&stream, &self.socket)?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.broken(error, Effect::Looks))?;
        tokio::spawn(async move {
            // What goes wrong on the connection is told by the request that needed it.
            let _ = connection.await;
        });
        let mut request = Request::builder().method(method).uri(path);
        if let Some(door) = self.door {
            request = request.header(door::HEADER, door);
        }
        let request = request
            .header("host", "spindle")
            .header(version::HEADER, version::OWN)
            .header("content-type", "application/json")
            .body(body)
            .map_err(|error| {
                ControlError::new(ControlErrorKind::Bug, "a request cannot be made").because(error)
            })?;
        let response = sender
            .send_request(request)
            .await
            .map_err(|error| self.broken(error, effect))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let other = version::other(response.headers());
        let bytes = response
            .into_body()
            .collect()
            .await
            .map_err(|error| self.broken(error, effect))?
            .to_bytes();
        Err(serde_json::from_slice(&bytes).unwrap_or_else(|error| {
            if let Some(told) = ControlError::as_told(&bytes) {
                return told;
            }
            if let Some(daemon) = other {
                return version::unknown_answer(&self.group_name, &daemon, &error.to_string());
            }
            ControlError::new(
                ControlErrorKind::Bug,
                format!(
                    "the process that serves {} answered {path} with {status}",
                    self.group_name
                ),
            )
        }))
    }

    fn broken(&self, error: hyper::Error, effect: Effect) -> ControlError {
        ControlError::new(
            ControlErrorKind::Io,
            format!(
                "the process that serves {} broke the connection off ({error}); see its log in {}{}",
                self.group_name,
                self.socket.with_extension("log").display(),
                unknown(effect)
            ),
        )
        .because(error)
    }
}

/// What is added where a request went out and no whole answer came.
const fn unknown(effect: Effect) -> &'static str {
    match effect {
        Effect::Looks => "",
        Effect::Changes => {
            "; whether the change was made is not known: look before you ask for it again"
        }
    }
}

/// What is added where an answer says that all went well, and what it says cannot be read.
const fn done(effect: Effect) -> &'static str {
    match effect {
        Effect::Looks => "",
        Effect::Changes => "; what was asked for was done",
    }
}

fn empty() -> RequestBody {
    Empty::new().map_err(|never| match never {}).boxed()
}

impl Files for Client {
    fn stat(&self, path: &Path) -> ControlResult<FileReport> {
        self.ask(&StatFile { path: path.into() })
    }

    fn list(&self, path: &Path) -> ControlResult<Vec<FileReport>> {
        self.ask(&ListFiles { path: path.into() })
    }

    fn map(&self, path: &Path) -> ControlResult<MapReport> {
        self.ask(&MapFile { path: path.into() })
    }

    fn usage(&self, path: &Path, depth: usize) -> ControlResult<Vec<UsageReport>> {
        let path = path.into();
        self.ask(&FileUsage { path, depth })
    }

    fn read_to(&self, path: &Path, out: &mut dyn Write) -> ControlResult<u64> {
        self.runtime.block_on(async {
            let call = ReadFile { path: path.into() }.write()?;
            let asked = self.send(ReadFile::SHAPE.method, Effect::Looks, &call.path, empty());
            let response = self.while_alive(Effect::Looks, asked).await?;
            let mut body = response.into_body();
            let mut total = 0;
            while let Some(frame) = self
                .while_alive(Effect::Looks, async { Ok(body.frame().await) })
                .await?
            {
                let frame = frame.map_err(|error| self.broken(error, Effect::Looks))?;
                let Ok(data) = frame.into_data() else {
                    continue;
                };
                out.write_all(&data)
                    .map_err(|error| ControlError::io("pass on", path.display(), &error))?;
                total += data.len() as u64;
            }
            Ok(total)
        })
    }

    fn write_from(&self, path: &Path, new: NewEntry, input: &mut dyn Read) -> ControlResult<u64> {
        let call = WriteFile::of(path, new).write()?;
        let (mut writer, body) = channel();
        std::thread::scope(|scope| {
            let request = scope
                .spawn(|| self.answer_with::<WriteFile>(&call.path, body.boxed(), CONTENT_MOST));
            let mut piece = vec![0; PIECE_BYTES];
            let mut own_failure = None;
            loop {
                match input.read(&mut piece) {
                    Ok(0) => break,
                    // The daemon has answered already, and its answer tells why.
                    Ok(count) if writer.write_all(&piece[..count]).is_err() => break,
                    Ok(_) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        own_failure = Some(ControlError::io("read", path.display(), &error));
                        break;
                    }
                }
            }
            match &own_failure {
                Some(error) => writer.fail(std::io::Error::other(error.clone())),
                None => writer.finish(),
            }
            match (request.join(), own_failure) {
                (_, Some(error)) => Err(error),
                (Ok(answer), None) => answer,
                (Err(panic), None) => std::panic::resume_unwind(panic),
            }
        })
    }

    fn make_directory(&self, path: &Path, new: NewEntry) -> ControlResult<()> {
        self.ask(&MakeDirectory::of(path, new))
    }

    fn make_symlink(&self, path: &Path, target: &Path, new: NewEntry) -> ControlResult<()> {
        self.ask(&MakeSymlink::of(path, target, new))
    }

    fn sync(&self, written: &[&Path]) -> ControlResult<()> {
        self.ask(&SyncFiles {})?;
        for path in written {
            let path = path.to_path_buf();
            match self.ask(&TellLost { path }) {
                // An earlier version tells it to one sync alone.
                Err(error) if error.kind == ControlErrorKind::Version => break,
                told => told?,
            }
        }
        Ok(())
    }
}
