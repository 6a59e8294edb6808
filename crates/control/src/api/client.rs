//! Talks to the process that serves a group, over its Unix socket.
//!
//! A connection per request: a daemon that ends between two requests is noticed at the next
//! one, and nothing needs a lock. Calls block; each drives its own connection to the end.

use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::body::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::channel_body::channel;
use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::api::files::{Files, NewEntry, PIECE_BYTES};
use crate::api::query::append;
use crate::api::trust::Trust;
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
/// Questions that are answered from memory.
const QUICK: [&str; 9] = [
    "/alive",
    "/group",
    "/group/settings",
    "/operations",
    "/scrub",
    "/activity",
    "/health",
    "/templates",
    "/openapi.json",
];

/// A way to the daemon of one group. Every question has an end: one that needs no disk gets its
/// answer soon, and while work is waited for the process shows that it lives.
#[derive(Debug)]
pub struct Client {
    socket: PathBuf,
    group_name: String,
    trust: Trust,
    process_id: u32,
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
            runtime,
        })
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

    /// Asks for a structure.
    ///
    /// # Errors
    /// What the daemon answered, or that it cannot be reached or gives no answer.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> ControlResult<T> {
        self.call(Method::GET, path, empty(), patience_for(path))
    }

    /// As [`Client::get`], for one of many groups: an answer is not waited for long.
    ///
    /// # Errors
    /// As for [`Client::get`].
    pub fn get_soon<T: DeserializeOwned>(&self, path: &str) -> ControlResult<T> {
        self.call(Method::GET, path, empty(), SOON_MOST)
    }

    /// Asks for something to be done.
    ///
    /// # Errors
    /// As for [`Client::get`].
    pub fn post<T: DeserializeOwned>(&self, path: &str) -> ControlResult<T> {
        self.call(Method::POST, path, empty(), WORK_MOST)
    }

    /// Asks for something to be done that a structure tells of.
    ///
    /// # Errors
    /// As for [`Client::get`].
    pub fn post_json<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> ControlResult<T> {
        let bytes = serde_json::to_vec(body)
            .map_err(|error| ControlError::invalid(format!("a path is no text: {error}")))?;
        let body = Full::new(Bytes::from(bytes)).map_err(|never| match never {});
        self.call(Method::POST, path, body.boxed(), WORK_MOST)
    }

    fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: RequestBody,
        most: Duration,
    ) -> ControlResult<T> {
        let answer = async {
            let response = self.send(method, path, body).await?;
            let bytes = response
                .into_body()
                .collect()
                .await
                .map_err(|error| self.broken(&error))?
                .to_bytes();
            serde_json::from_slice(&bytes).map_err(|error| {
                ControlError::new(
                    ControlErrorKind::Corrupt,
                    format!(
                        "the process that serves {} answered {path} with something else than this version understands: {error}",
                        self.group_name
                    ),
                )
            })
        };
        self.runtime.block_on(async {
            match tokio::time::timeout(most, self.while_alive(answer)).await {
                Ok(answer) => answer,
                Err(_) => Err(self.silent(most)),
            }
        })
    }

    /// Waits for `answer` as long as the process shows that it lives.
    async fn while_alive<T>(
        &self,
        answer: impl Future<Output = ControlResult<T>>,
    ) -> ControlResult<T> {
        let silent = async {
            loop {
                tokio::time::sleep(ALIVE_INTERVAL).await;
                // A process of an earlier version knows no such question, and so answers as well.
                let asked = self.send(Method::GET, "/alive", empty());
                if tokio::time::timeout(ANSWER_MOST, asked).await.is_err() {
                    return self.silent(ALIVE_INTERVAL + ANSWER_MOST);
                }
            }
        };
        tokio::select! {
            answer = answer => answer,
            silent = silent => Err(silent),
        }
    }

    /// What is told where no answer came.
    fn silent(&self, after: Duration) -> ControlError {
        ControlError::new(
            ControlErrorKind::Silent,
            format!(
                "no answer within {} s from process {}, which serves {}: it hangs or waits for a disk; see its log in {}",
                after.as_secs(),
                self.process_id,
                self.group_name,
                self.socket.with_extension("log").display()
            ),
        )
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: RequestBody,
    ) -> ControlResult<Response<Incoming>> {
        let connecting = tokio::net::UnixStream::connect(&self.socket);
        let stream = connecting.await.map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => self.silent(Duration::ZERO),
            _ => ControlError::io("reach", self.socket.display(), &error),
        })?;
        self.trust.check_peer(&stream, &self.socket)?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.broken(&error))?;
        tokio::spawn(async move {
            // What goes wrong on the connection is told by the request that needed it.
            let _ = connection.await;
        });
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "spindle")
            .header("content-type", "application/json")
            .body(body)
            .map_err(|error| ControlError::new(ControlErrorKind::Bug, error.to_string()))?;
        let response = sender
            .send_request(request)
            .await
            .map_err(|error| self.broken(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let bytes = response
            .into_body()
            .collect()
            .await
            .map_err(|error| self.broken(&error))?
            .to_bytes();
        Err(serde_json::from_slice(&bytes).unwrap_or_else(|_| {
            ControlError::new(
                ControlErrorKind::Bug,
                format!(
                    "the process that serves {} answered {path} with {status}",
                    self.group_name
                ),
            )
        }))
    }

    fn broken(&self, error: &hyper::Error) -> ControlError {
        ControlError::new(
            ControlErrorKind::Io,
            format!(
                "the process that serves {} broke the connection off ({error}); see its log in {}",
                self.group_name,
                self.socket.with_extension("log").display()
            ),
        )
    }

    fn with_path(route: &str, path: &Path) -> String {
        let mut text = route.to_owned();
        append(&mut text, "path", path.as_os_str().as_bytes());
        text
    }

    fn with_entry(route: &str, path: &Path, new: NewEntry) -> String {
        let mut text = Self::with_path(route, path);
        append(
            &mut text,
            "permissions",
            new.permissions.to_string().as_bytes(),
        );
        append(&mut text, "user", new.user.to_string().as_bytes());
        append(&mut text, "group", new.group.to_string().as_bytes());
        if let Some(time) = new.modified {
            append(&mut text, "modified_s", time.seconds.to_string().as_bytes());
            append(
                &mut text,
                "modified_ns",
                time.nanoseconds.to_string().as_bytes(),
            );
        }
        text
    }
}

/// How long the answer to this question may take.
fn patience_for(path: &str) -> Duration {
    let route = path.split('?').next().unwrap_or(path);
    if QUICK.contains(&route) {
        ANSWER_MOST
    } else {
        WORK_MOST
    }
}

fn empty() -> RequestBody {
    Empty::new().map_err(|never| match never {}).boxed()
}

impl Files for Client {
    fn stat(&self, path: &Path) -> ControlResult<FileReport> {
        self.get(&Self::with_path("/files/stat", path))
    }

    fn list(&self, path: &Path) -> ControlResult<Vec<FileReport>> {
        self.get(&Self::with_path("/files/list", path))
    }

    fn map(&self, path: &Path) -> ControlResult<MapReport> {
        self.get(&Self::with_path("/files/map", path))
    }

    fn usage(&self, path: &Path, depth: usize) -> ControlResult<Vec<UsageReport>> {
        let mut text = Self::with_path("/files/usage", path);
        append(&mut text, "depth", depth.to_string().as_bytes());
        self.get(&text)
    }

    fn read_to(&self, path: &Path, out: &mut dyn Write) -> ControlResult<u64> {
        self.runtime.block_on(async {
            let text = Self::with_path("/files/content", path);
            let asked = self.send(Method::GET, &text, empty());
            let response = self.while_alive(asked).await?;
            let mut body = response.into_body();
            let mut total = 0;
            while let Some(frame) = self.while_alive(async { Ok(body.frame().await) }).await? {
                let frame = frame.map_err(|error| self.broken(&error))?;
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
        let text = Self::with_entry("/files/content", path, new);
        let (mut writer, body) = channel();
        std::thread::scope(|scope| {
            let request =
                scope.spawn(|| self.call::<u64>(Method::PUT, &text, body.boxed(), CONTENT_MOST));
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
        self.post(&Self::with_entry("/files/directory", path, new))
    }

    fn make_symlink(&self, path: &Path, target: &Path, new: NewEntry) -> ControlResult<()> {
        let mut text = Self::with_entry("/files/symlink", path, new);
        append(&mut text, "target", target.as_os_str().as_bytes());
        self.post(&text)
    }

    fn sync(&self) -> ControlResult<()> {
        self.post("/files/sync")
    }
}
