//! HTTP and JSON on the Unix socket.
//!
//! Requests wait for disks, so each is answered on a thread of its own; this one only moves
//! bytes. A request that breaks off takes nothing with it: a file that was being sent is
//! dropped before it had a name, and nothing is begun for a client that has gone.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, on};
use axum::{Extension, Router};
use http_body_util::BodyExt;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use spindle_group::{Event, EventKind};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;

use super::Daemon;
use super::connections::{self, Door};
use super::ending::Signals;
use super::underway::{Place, Underway};
use crate::api::call::Call;
use crate::api::calls::{ReadFile, WriteFile};
use crate::api::channel_body::{channel, piece_reader};
use crate::api::door;
use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::api::files::Files;
use crate::api::version;
use crate::machine::user::user_name;
use crate::serving::metrics::exposition;
use crate::serving::openapi;
use crate::serving::route::{Handler, ROUTES, Route};

/// How long requests under way may take once the daemon is to stop.
const GRACE: Duration = Duration::from_secs(5);
/// How long the next piece of a file that is sent here may take.
const PIECE_MOST: Duration = Duration::from_secs(60);
/// How long what follows a failure of a file that is sent here is still taken in.
const UNREAD_MOST: Duration = Duration::from_secs(10);
/// The most that a structure in a request's body may take: 4,096 disks with long paths.
const BODY_BYTES_MAX: usize = 32 << 20;

/// Who is at the other end of a connection, as the kernel says.
#[derive(Debug, Clone)]
struct Peer {
    user: Option<u32>,
    /// Another descriptor of the connection, to ask whether somebody is there.
    socket: Option<Arc<OwnedFd>>,
}

impl Peer {
    fn of(stream: &UnixStream) -> Self {
        Self {
            user: stream.peer_cred().ok().map(|peer| peer.uid()),
            socket: stream.as_fd().try_clone_to_owned().ok().map(Arc::new),
        }
    }

    /// Who it is, for the event log. Nobody is believed about himself.
    fn name(&self) -> String {
        self.user
            .map_or_else(|| "a user that is not known".to_owned(), user_name)
    }

    /// Refuses to begin for a client that has gone: it was told that nothing came of it, or gave
    /// up waiting, and must not find it done some time later.
    fn check_there(&self) -> ControlResult<()> {
        let Some(socket) = &self.socket else {
            return Ok(());
        };
        let mut wait = [PollFd::new(socket, PollFlags::empty())];
        let gone = PollFlags::HUP | PollFlags::ERR;
        match poll(&mut wait, Some(&Timespec::default())) {
            Ok(1..) if wait[0].revents().intersects(gone) => Err(ControlError::new(
                ControlErrorKind::Io,
                "whoever asked has gone: nothing was begun",
            )),
            _ => Ok(()),
        }
    }
}

/// The socket of the group.
struct Socket {
    listener: UnixListener,
    router: Router,
}

impl Door for Socket {
    type Stream = UnixStream;

    async fn accept(&self) -> std::io::Result<UnixStream> {
        Ok(self.listener.accept().await?.0)
    }

    fn router(&self, stream: &UnixStream) -> Router {
        self.router.clone().layer(Extension(Peer::of(stream)))
    }
}

/// The port of the metrics.
struct MetricsPort {
    listener: TcpListener,
    router: Router,
}

impl Door for MetricsPort {
    type Stream = TcpStream;

    async fn accept(&self) -> std::io::Result<TcpStream> {
        Ok(self.listener.accept().await?.0)
    }

    fn router(&self, _stream: &TcpStream) -> Router {
        self.router.clone()
    }
}

/// Answers requests until the daemon is to stop.
pub(super) async fn serve(
    daemon: Arc<Daemon>,
    listener: UnixListener,
    stopped: watch::Receiver<bool>,
) -> ControlResult<()> {
    let signals = Signals::catch()?;
    let (graceful, begun) = watch::channel(false);
    let waiting = {
        let daemon = daemon.clone();
        async move {
            let told = signals.wait(stopped).await;
            let why = told.unwrap_or("stopping");
            daemon.tell(Event::new(EventKind::GroupStopping, why));
            if told.is_some() {
                daemon.stop_in_order();
            }
            daemon.mounts.close();
            graceful.send_replace(true);
            // A client that neither reads nor leaves must not keep the group open.
            tokio::time::sleep(GRACE).await;
        }
    };
    let door = Socket {
        listener,
        router: router(daemon),
    };
    tokio::select! {
        () = connections::serve(&door, connections::ADMINISTRATION, begun) => {}
        () = waiting => {}
    }
    Ok(())
}

fn router(daemon: Arc<Daemon>) -> Router {
    let mut router = Router::new();
    for route in &*ROUTES {
        router = router.route(route.shape.path, method_router(route));
    }
    let group = daemon.group_name().to_owned();
    router
        .fallback(move |headers: HeaderMap| async move {
            let unknown =
                ControlError::not_found("there is no such route; GET /openapi.json lists them");
            not_understood(&group, &headers, &unknown)
        })
        .layer(middleware::from_fn(only_owner))
        .layer(middleware::map_response(with_version))
        .with_state(daemon)
}

fn method_router(route: &'static Route) -> MethodRouter<Arc<Daemon>> {
    let filter = axum::routing::MethodFilter::try_from(route.shape.method.clone())
        .expect("the table has no exotic methods");
    on(
        filter,
        move |State(daemon): State<Arc<Daemon>>,
              Extension(peer): Extension<Peer>,
              Extension(place): Extension<Place>,
              RawQuery(query): RawQuery,
              headers: HeaderMap,
              body: Body| async move {
            let refuse = |error| not_understood(daemon.group_name(), &headers, &error);
            let query = match route.shape.query(query.as_deref().unwrap_or("")) {
                Ok(query) => query,
                Err(error) => return refuse(error),
            };
            match &route.handler {
                Handler::Document => axum::Json(openapi::document()).into_response(),
                Handler::Alive => axum::Json(()).into_response(),
                Handler::Json(read) => {
                    let body = match &route.shape.body {
                        Some(_) => whole(body).await,
                        None => Ok(Bytes::new()),
                    };
                    let body = match body {
                        Ok(body) => body,
                        Err(error) => return answer_error(&error),
                    };
                    let answering = daemon.clone();
                    let by = named(&peer, &headers);
                    let answer = blocking(daemon.underway.clone(), place, move || {
                        peer.check_there()?;
                        // Here, because a body may be long.
                        Ok(read(&query, &body).map(|deed| deed(&answering, &by)))
                    });
                    match answer.await {
                        Ok(Ok(Ok(answer))) => {
                            ([(CONTENT_TYPE, "application/json")], answer).into_response()
                        }
                        Ok(Ok(Err(error))) => answer_error(&error),
                        Ok(Err(misread)) => refuse(misread),
                        Err(error) => answer_error(&error),
                    }
                }
                Handler::Text(media_type, handler) => {
                    text(daemon, place, media_type, *handler).await
                }
                Handler::Download => match ReadFile::read(&query, &[]) {
                    Ok(call) => download(daemon, place, call).await,
                    Err(error) => refuse(error),
                },
                Handler::Upload => match WriteFile::read(&query, &[]) {
                    Ok(call) => upload(daemon, place, call, body).await,
                    Err(error) => refuse(error),
                },
            }
        },
    )
}

/// Who asks, and at which door: the door is the word of the client, the user is the kernel's.
fn named(peer: &Peer, headers: &HeaderMap) -> String {
    match headers.get(door::HEADER) {
        Some(door) if door == door::CONSOLE => format!("{} at the console", peer.name()),
        _ => peer.name(),
    }
}

fn json<T: serde::Serialize>(answer: ControlResult<T>) -> Response {
    answer.map_or_else(
        |error| answer_error(&error),
        |value| axum::Json(value).into_response(),
    )
}

/// The whole body of a request that a structure comes in.
async fn whole(body: Body) -> ControlResult<Bytes> {
    let limited = http_body_util::Limited::new(body, BODY_BYTES_MAX);
    let collected = tokio::time::timeout(PIECE_MOST, limited.collect()).await;
    match collected {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) => Err(ControlError::invalid(format!(
            "the request's body cannot be taken: {error}; at most {BODY_BYTES_MAX} bytes are"
        ))),
        Err(_) => Err(ControlError::invalid("the request's body did not come")),
    }
}

async fn text(
    daemon: Arc<Daemon>,
    place: Place,
    media_type: &'static str,
    handler: fn(&Daemon) -> String,
) -> Response {
    match blocking(daemon.underway.clone(), place, move || Ok(handler(&daemon))).await {
        Ok(text) => ([(CONTENT_TYPE, media_type)], text).into_response(),
        Err(error) => answer_error(&error),
    }
}

/// Answers who asks for the metrics, and nothing else, at a TCP port.
pub(super) async fn serve_metrics(
    daemon: Arc<Daemon>,
    listener: std::net::TcpListener,
    stopped: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let router = Router::new()
        .route(
            "/metrics",
            get(
                |State(daemon): State<Arc<Daemon>>, Extension(place): Extension<Place>| {
                    text(daemon, place, exposition::CONTENT_TYPE, Daemon::metrics)
                },
            ),
        )
        .with_state(daemon);
    let door = MetricsPort {
        listener: TcpListener::from_std(listener)?,
        router,
    };
    connections::serve(&door, connections::METRICS, stopped).await;
    Ok(())
}

/// Runs `work` on a thread that may wait; a panic there is the answer to one request only. The place
/// is held until it is done, whatever becomes of the connection.
pub(crate) async fn blocking<T: Send + 'static>(
    underway: Arc<Underway>,
    place: Place,
    work: impl FnOnce() -> ControlResult<T> + Send + 'static,
) -> ControlResult<T> {
    let begun = underway.begin(place);
    let work = move || {
        let _begun = begun;
        work()
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(answer) => answer,
        Err(error) => Err(ControlError::new(
            ControlErrorKind::Bug,
            format!("the request met a bug ({error}); see the log"),
        )),
    }
}

pub(crate) fn answer_error(error: &ControlError) -> Response {
    let status = match error.kind {
        ControlErrorKind::NotFound => StatusCode::NOT_FOUND,
        ControlErrorKind::Exists | ControlErrorKind::Busy | ControlErrorKind::Ending => {
            StatusCode::CONFLICT
        }
        ControlErrorKind::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
        ControlErrorKind::Denied => StatusCode::FORBIDDEN,
        ControlErrorKind::NotEnough | ControlErrorKind::Invalid | ControlErrorKind::NoMajority => {
            StatusCode::BAD_REQUEST
        }
        ControlErrorKind::Io | ControlErrorKind::Silent => StatusCode::SERVICE_UNAVAILABLE,
        ControlErrorKind::Version => StatusCode::NOT_IMPLEMENTED,
        ControlErrorKind::Corrupt | ControlErrorKind::Bug => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, axum::Json(error)).into_response()
}

/// What was asked for cannot be understood: where a program of another version asks, that is why.
fn not_understood(group: &str, headers: &HeaderMap, error: &ControlError) -> Response {
    answer_error(&match version::other(headers) {
        Some(asking) => version::unknown_request(group, &asking, error),
        None => error.clone(),
    })
}

async fn with_version(mut response: Response) -> Response {
    let own = HeaderValue::from_static(version::OWN);
    response.headers_mut().insert(version::HEADER, own);
    response
}

async fn only_owner(Extension(peer): Extension<Peer>, request: Request, next: Next) -> Response {
    let own = rustix::process::geteuid().as_raw();
    if peer.user.is_some_and(|user| user == own || user == 0) {
        return next.run(request).await;
    }
    answer_error(&ControlError::new(
        ControlErrorKind::Denied,
        "only the user that serves the group, and root, may ask this",
    ))
}

async fn download(daemon: Arc<Daemon>, place: Place, call: ReadFile) -> Response {
    let opened = {
        let daemon = daemon.clone();
        blocking(daemon.underway.clone(), place.clone(), move || {
            let path = call.path;
            // What is no file is told as such, not as a body that breaks off.
            let report = daemon.files().stat(&path)?;
            if report.kind == "file" {
                return Ok(path);
            }
            Err(ControlError::invalid(format!(
                "{}:{} is a {}, no regular file",
                daemon.group_name(),
                path.display(),
                report.kind
            )))
        })
        .await
    };
    let path = match opened {
        Ok(path) => path,
        Err(error) => return answer_error(&error),
    };
    let (mut writer, body) = channel();
    let begun = daemon.underway.begin(place);
    tokio::task::spawn_blocking(move || {
        let _begun = begun;
        match daemon.files().read_to(&path, &mut writer) {
            Ok(_) => writer.finish(),
            Err(error) => {
                tracing::warn!(path = %path.display(), error = error.message(), "a file was not read to its end");
                writer.fail(std::io::Error::other(error));
            }
        }
    });
    Body::new(body).into_response()
}

async fn upload(daemon: Arc<Daemon>, place: Place, call: WriteFile, body: Body) -> Response {
    let (sender, mut reader) = piece_reader();
    let receiving = tokio::spawn(async move {
        let mut body = body;
        loop {
            let frame = tokio::time::timeout(PIECE_MOST, body.frame()).await;
            match frame {
                Ok(None) => return sender.finish().await,
                Ok(Some(Ok(frame))) => {
                    let Ok(data) = frame.into_data() else {
                        // Trailers.
                        continue;
                    };
                    // The writer may have failed and gone; its failure is the answer.
                    if !sender.send(data).await {
                        return leave_unread(body).await;
                    }
                }
                Ok(Some(Err(error))) => return sender.fail(std::io::Error::other(error)).await,
                Err(_) => return sender.fail(std::io::ErrorKind::TimedOut.into()).await,
            }
        }
    });
    let answer = blocking(daemon.underway.clone(), place, move || {
        let files = daemon.files();
        files.write_from(&call.path, call.entry(), &mut reader)
    })
    .await;
    if answer.is_ok() {
        receiving.abort();
    }
    json(answer)
}

/// Takes in what is still sent of a body that nobody wants: a connection that is closed before breaks
/// off under the sender, who does not read the answer then.
async fn leave_unread(mut body: Body) {
    let rest = async { while let Some(Ok(_)) = body.frame().await {} };
    let _ = tokio::time::timeout(UNREAD_MOST, rest).await;
}
