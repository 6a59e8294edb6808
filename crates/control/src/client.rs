//! Talks to the process that serves a group, over its Unix socket.
//!
//! A connection per request: a daemon that ends between two requests is noticed at the next
//! one, and nothing needs a lock. Calls block; each drives its own connection to the end.

use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use axum::body::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;

use crate::channel_body::channel;
use crate::error::{ControlError, ControlErrorKind, ControlResult};
use crate::files::{Files, NewEntry, PIECE_BYTES};
use crate::query::append;
use crate::view::{FileReport, MapReport, UsageReport};

type RequestBody = BoxBody<Bytes, std::io::Error>;

/// A way to the daemon of one group.
#[derive(Debug)]
pub struct Client {
    socket: PathBuf,
    group_name: String,
    runtime: tokio::runtime::Runtime,
}

impl Client {
    /// For the daemon that listens at `socket`.
    ///
    /// # Errors
    /// Where nobody listens there (kind `NotFound`) or the socket may not be used.
    pub fn connect(socket: &Path) -> ControlResult<Self> {
        let group_name = socket
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        match std::os::unix::net::UnixStream::connect(socket) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                return Err(ControlError::not_found(format!(
                    "no process serves {group_name}: the one that did has ended"
                )));
            }
            Err(error) => {
                return Err(ControlError::io("reach", socket.display(), &error));
            }
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .map_err(|error| ControlError::io("begin to talk to", socket.display(), &error))?;
        Ok(Self {
            socket: socket.to_owned(),
            group_name,
            runtime,
        })
    }

    /// The group that the daemon serves, as its socket is named.
    #[must_use]
    pub fn group_name(&self) -> &str {
        &self.group_name
    }

    /// Asks for a structure.
    ///
    /// # Errors
    /// What the daemon answered, or that it cannot be reached.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> ControlResult<T> {
        self.call(Method::GET, path, empty())
    }

    /// Asks for something to be done.
    ///
    /// # Errors
    /// As for [`Client::get`].
    pub fn post<T: DeserializeOwned>(&self, path: &str) -> ControlResult<T> {
        self.call(Method::POST, path, empty())
    }

    fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: RequestBody,
    ) -> ControlResult<T> {
        self.runtime.block_on(async {
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
        })
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: RequestBody,
    ) -> ControlResult<Response<Incoming>> {
        let stream = tokio::net::UnixStream::connect(&self.socket)
            .await
            .map_err(|error| ControlError::io("reach", self.socket.display(), &error))?;
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
            let response = self.send(Method::GET, &text, empty()).await?;
            let mut body = response.into_body();
            let mut total = 0;
            while let Some(frame) = body.frame().await {
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
            let request = scope.spawn(|| self.call::<u64>(Method::PUT, &text, body.boxed()));
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
                None => drop(writer),
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
