//! HTTP and JSON on the Unix socket.
//!
//! Requests wait for disks, so each is answered on a thread of its own; this one only moves
//! bytes. A request that breaks off takes nothing with it: a file that was being sent is
//! dropped before it had a name.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, RawQuery, Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, on};
use axum::serve::IncomingStream;
use http_body_util::BodyExt;
use spindle_group::{Event, EventKind};
use tokio::net::UnixListener;
use tokio::sync::watch;

use super::Daemon;
use super::ending::Signals;
use crate::channel_body::{channel, piece_reader};
use crate::error::{ControlError, ControlErrorKind, ControlResult};
use crate::exposition;
use crate::files::Files;
use crate::openapi;
use crate::query::Query;
use crate::route::{Handler, ROUTES, new_entry};

/// How long requests under way may take once the daemon is to stop.
const GRACE: Duration = Duration::from_secs(5);

/// Who is at the other end of a connection, as the kernel says.
#[derive(Debug, Clone, Copy)]
struct Peer {
    user: Option<u32>,
}

impl Connected<IncomingStream<'_, UnixListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Self {
        Self {
            user: stream.io().peer_cred().ok().map(|peer| peer.uid()),
        }
    }
}

/// Answers requests until the daemon is to stop.
pub(super) async fn serve(
    daemon: Arc<Daemon>,
    listener: UnixListener,
    stopped: watch::Receiver<bool>,
) -> ControlResult<()> {
    let signals = Signals::catch()?;
    let (graceful, mut begun) = watch::channel(false);
    let waiting = {
        let daemon = daemon.clone();
        async move {
            let why = signals.wait(stopped).await;
            daemon.tell(Event::new(EventKind::GroupStopping, why));
            daemon.stop.send_replace(true);
            graceful.send_replace(true);
        }
    };
    let service = router(daemon).into_make_service_with_connect_info::<Peer>();
    let server = axum::serve(listener, service).with_graceful_shutdown(waiting);
    tokio::select! {
        ended = server => {
            ended.map_err(|error| ControlError::io("serve at", "the socket", &error))
        }
        // A client that neither reads nor leaves must not keep the group open.
        () = async {
            let _ = begun.wait_for(|begun| *begun).await;
            tokio::time::sleep(GRACE).await;
        } => Ok(()),
    }
}

fn router(daemon: Arc<Daemon>) -> Router {
    let mut router = Router::new();
    for route in ROUTES {
        router = router.route(route.path, method_router(route));
    }
    router
        .fallback(|| async {
            answer_error(&ControlError::not_found(
                "there is no such route; GET /openapi.json lists them",
            ))
        })
        .layer(middleware::from_fn(only_owner))
        .with_state(daemon)
}

fn method_router(route: &'static crate::route::Route) -> MethodRouter<Arc<Daemon>> {
    let filter = axum::routing::MethodFilter::try_from(route.method.clone())
        .expect("the table has no exotic methods");
    match route.handler {
        Handler::Document => on(filter, || async { axum::Json(openapi::document()) }),
        Handler::Json(handler) => on(
            filter,
            move |State(daemon): State<Arc<Daemon>>, RawQuery(query): RawQuery| async move {
                let query = Query::parse(query.as_deref().unwrap_or(""));
                let answer = blocking(move || handler(&daemon, &query)).await;
                answer.map_or_else(
                    |error| answer_error(&error),
                    |value| axum::Json(value).into_response(),
                )
            },
        ),
        Handler::Text(media_type, handler) => {
            on(filter, move |State(daemon): State<Arc<Daemon>>| {
                text(daemon, media_type, handler)
            })
        }
        Handler::Download => on(filter, download),
        Handler::Upload => on(filter, upload),
    }
}

async fn text(
    daemon: Arc<Daemon>,
    media_type: &'static str,
    handler: fn(&Daemon) -> String,
) -> Response {
    match blocking(move || Ok(handler(&daemon))).await {
        Ok(text) => ([(CONTENT_TYPE, media_type)], text).into_response(),
        Err(error) => answer_error(&error),
    }
}

/// Answers who asks for the metrics, and nothing else, at a TCP port.
pub(super) async fn serve_metrics(
    daemon: Arc<Daemon>,
    listener: std::net::TcpListener,
    mut stopped: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let router = Router::new()
        .route(
            "/metrics",
            get(|State(daemon): State<Arc<Daemon>>| {
                text(daemon, exposition::CONTENT_TYPE, Daemon::metrics)
            }),
        )
        .with_state(daemon);
    let stop = async move {
        let _ = stopped.wait_for(|stop| *stop).await;
    };
    axum::serve(tokio::net::TcpListener::from_std(listener)?, router)
        .with_graceful_shutdown(stop)
        .await
}

/// Runs `work` on a thread that may wait; a panic there is the answer to one request only.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> ControlResult<T> + Send + 'static,
) -> ControlResult<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(answer) => answer,
        Err(error) => Err(ControlError::new(
            ControlErrorKind::Bug,
            format!("the request met a bug ({error}); see the log"),
        )),
    }
}

fn answer_error(error: &ControlError) -> Response {
    let status = match error.kind {
        ControlErrorKind::NotFound => StatusCode::NOT_FOUND,
        ControlErrorKind::Exists | ControlErrorKind::Busy => StatusCode::CONFLICT,
        ControlErrorKind::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
        ControlErrorKind::Denied => StatusCode::FORBIDDEN,
        ControlErrorKind::NotEnough | ControlErrorKind::Invalid | ControlErrorKind::NoMajority => {
            StatusCode::BAD_REQUEST
        }
        ControlErrorKind::Io => StatusCode::SERVICE_UNAVAILABLE,
        ControlErrorKind::Corrupt | ControlErrorKind::Bug => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, axum::Json(error)).into_response()
}

async fn only_owner(
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let own = rustix::process::geteuid().as_raw();
    if peer.user.is_some_and(|user| user == own || user == 0) {
        return next.run(request).await;
    }
    answer_error(&ControlError::new(
        ControlErrorKind::Denied,
        "only the user that serves the group, and root, may ask this",
    ))
}

async fn download(State(daemon): State<Arc<Daemon>>, RawQuery(query): RawQuery) -> Response {
    let query = Query::parse(query.as_deref().unwrap_or(""));
    let opened = {
        let daemon = daemon.clone();
        blocking(move || {
            let path = query.path("path")?;
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
    tokio::task::spawn_blocking(move || {
        if let Err(error) = daemon.files().read_to(&path, &mut writer) {
            tracing::warn!(path = %path.display(), %error, "a file was not read to its end");
            writer.fail(std::io::Error::other(error));
        }
    });
    Body::new(body).into_response()
}

async fn upload(
    State(daemon): State<Arc<Daemon>>,
    RawQuery(query): RawQuery,
    body: Body,
) -> Response {
    let query = Query::parse(query.as_deref().unwrap_or(""));
    let (sender, mut reader) = piece_reader();
    let receiving = tokio::spawn(async move {
        let mut body = body;
        while let Some(frame) = body.frame().await {
            let piece: std::io::Result<Bytes> = match frame.map(|frame| frame.into_data()) {
                Ok(Ok(data)) => Ok(data),
                Ok(Err(_trailers)) => continue,
                Err(error) => Err(std::io::Error::other(error)),
            };
            let last = piece.is_err();
            // The writer may have failed and gone; its failure is the answer.
            if sender.send(piece).await.is_err() || last {
                break;
            }
        }
    });
    let answer = blocking(move || {
        let new = new_entry(&query)?;
        daemon
            .files()
            .write_from(&query.path("path")?, new, &mut reader)
    })
    .await;
    receiving.abort();
    answer.map_or_else(
        |error| answer_error(&error),
        |bytes| axum::Json(bytes).into_response(),
    )
}
