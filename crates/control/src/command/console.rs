//! The console: what a group does, in a browser on this machine.
//!
//! A process of its own between the browser and the daemon. To the daemon it is a client as any
//! command is; to the browser it speaks HTTP on the loopback interface, behind two tokens
//! ([`mod@access`]): one to look, one to change disks. It keeps nothing: a console that ends takes
//! only its tokens along, and a change that was asked for by then is made or not by the daemon.
//!
//! A change is made only after its dry run was shown, and only as it was shown ([`mod@change`]).

mod access;
mod change;
mod extents;
mod sight;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, Request, State};
use axum::http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use http_body_util::BodyExt;
use serde::Serialize;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use self::access::{Access, Asked, LIFETIME, Role};
use self::change::Changes;
use self::sight::Sight;
use crate::api::calls::{ListFiles, MapFile, ShowEvents};
use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::api::event_filter::EventFilter;
use crate::api::query::Query;
use crate::machine::discovery::scan;
use crate::machine::settings::Settings;
use crate::serving::daemon::connections::{self, Door, Limits};
use crate::serving::daemon::server::{answer_error, blocking};
use crate::serving::daemon::underway::{Place, Underway};

/// What a browser may ask for at a time: a page with its five files and a few calls, in some tabs.
const LIMITS: Limits = Limits {
    connections_max: 64,
    head_most: Duration::from_secs(5),
    total_most: Some(Duration::from_secs(3600)),
    waits: true,
};
/// The longest body: a change of 4,096 disks with long paths does not come from a browser.
const BODY_BYTES_MAX: usize = 1 << 20;
/// How long the rest of a body may take.
const BODY_MOST: Duration = Duration::from_secs(10);
/// Events that are given at a time.
const EVENTS_MOST: usize = 200;

/// The page: nothing in it is secret, and nothing in it comes from elsewhere.
const FILES: [(&str, &str, &str); 5] = [
    (
        "/",
        "text/html; charset=utf-8",
        include_str!("console/page/page.html"),
    ),
    (
        "/console.css",
        "text/css; charset=utf-8",
        include_str!("console/page/console.css"),
    ),
    (
        "/console.js",
        "text/javascript; charset=utf-8",
        include_str!("console/page/console.js"),
    ),
    (
        "/uplot.css",
        "text/css; charset=utf-8",
        include_str!("console/page/uplot.css"),
    ),
    (
        "/uplot.js",
        "text/javascript; charset=utf-8",
        include_str!("console/page/uplot.js"),
    ),
];

/// What goes with every answer: the page loads nothing from elsewhere, runs nothing that is not a
/// file of its own, sends nothing elsewhere, and stands in nobody's frame.
const HEADERS: [(&str, &str); 7] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// A console that listens and does not answer yet.
#[derive(Debug)]
pub struct Console {
    listener: std::net::TcpListener,
    desk: Arc<Desk>,
}

/// What every request needs.
#[derive(Debug)]
struct Desk {
    settings: Settings,
    access: Access,
    sight: Sight,
    changes: Changes,
    underway: Arc<Underway>,
}

/// What a browser is told of its token.
#[derive(Debug, Serialize)]
struct SessionReport {
    group: String,
    role: Role,
    left_s: u64,
}

impl Console {
    /// Listens at `address`, for the group of that name or the only one that is open; with
    /// `operates` there is a token to change disks, too.
    ///
    /// # Errors
    /// Where the address is not one of the loopback interface or is in use, or the group is not open.
    pub fn listen(
        settings: &Settings,
        group: Option<&str>,
        address: SocketAddr,
        operates: bool,
    ) -> ControlResult<Self> {
        if !address.ip().is_loopback() {
            return Err(ControlError::invalid(format!(
                "the console listens on the loopback interface only, because it does not encrypt: {address} can be reached from other machines; choose 127.0.0.1:PORT, and `ssh -L` from elsewhere"
            )));
        }
        let sight = Sight::begin(settings, group)?;
        let fail = |error| ControlError::io("listen at", address, &error);
        let listener = std::net::TcpListener::bind(address).map_err(fail)?;
        listener.set_nonblocking(true).map_err(fail)?;
        let access = Access::new(listener.local_addr().map_err(fail)?, operates)?;
        let changes = Changes::new(settings, sight.group());
        let desk = Desk {
            settings: settings.clone(),
            access,
            sight,
            changes,
            underway: Arc::default(),
        };
        Ok(Self {
            listener,
            desk: Arc::new(desk),
        })
    }

    /// The group that it shows.
    #[must_use]
    pub fn group(&self) -> &str {
        self.desk.sight.group()
    }

    /// The address to look; it holds a token.
    #[must_use]
    pub fn look_url(&self) -> String {
        self.desk.access.look_url()
    }

    /// The address to change disks; it holds another token.
    #[must_use]
    pub fn operate_url(&self) -> Option<String> {
        self.desk.access.operate_url()
    }

    /// Answers until the tokens have expired.
    ///
    /// # Errors
    /// Where the process can have no event loop.
    pub fn serve(self) -> ControlResult<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| ControlError::io("begin", "the console", &error))?;
        runtime.block_on(async {
            let listener = TcpListener::from_std(self.listener)
                .map_err(|error| ControlError::io("begin", "the console", &error))?;
            let (stop, stopped) = watch::channel(false);
            let door = Port {
                listener,
                router: router(self.desk),
            };
            tokio::select! {
                () = connections::serve(&door, LIMITS, stopped) => {}
                () = tokio::time::sleep(LIFETIME) => {}
            }
            drop(stop);
            Ok(())
        })
    }
}

struct Port {
    listener: TcpListener,
    router: Router,
}

impl Door for Port {
    type Stream = TcpStream;

    async fn accept(&self) -> std::io::Result<TcpStream> {
        Ok(self.listener.accept().await?.0)
    }

    fn router(&self, _stream: &TcpStream) -> Router {
        self.router.clone()
    }
}

fn router(desk: Arc<Desk>) -> Router {
    let mut router = Router::new();
    for (path, media_type, text) in FILES {
        router = router.route(
            path,
            get(move || async move { ([(CONTENT_TYPE, media_type)], text) }),
        );
    }
    router
        .route("/api/session", get(session))
        .route("/api/state", get(state))
        .route("/api/events", get(events))
        .route("/api/moves", get(moves))
        .route("/api/files", get(files))
        .route("/api/map", get(map))
        .route("/api/candidates", get(candidates))
        .route("/api/estimate", post(estimate))
        .route("/api/change", post(change))
        .fallback(|| async {
            answer_error(&ControlError::not_found("the console has no such page"))
        })
        .layer(middleware::from_fn_with_state(desk.clone(), guard))
        .with_state(desk)
}

/// Lets nobody in who has not what [`Access`] asks for, before anything else is looked at.
async fn guard(State(desk): State<Arc<Desk>>, mut request: Request, next: Next) -> Response {
    let is_page = request.method() == Method::GET
        && FILES.iter().any(|(path, ..)| *path == request.uri().path());
    let admitted = desk.access.admit(&Asked::of(request.headers(), is_page));
    let mut response = match admitted {
        Ok(role) => {
            request.extensions_mut().insert(role);
            next.run(request).await
        }
        Err(refusal) => {
            // Taken in, so that the answer is read before the connection ends.
            let _ = whole(request.into_body()).await;
            let error = ControlError::new(ControlErrorKind::Denied, refusal.to_string());
            (StatusCode::FORBIDDEN, axum::Json(error)).into_response()
        }
    };
    for (name, value) in HEADERS {
        let name = HeaderName::from_static(name);
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Does what waits for the daemon on a thread that may wait.
async fn answered<T: Serialize + Send + 'static>(
    desk: &Arc<Desk>,
    place: Place,
    work: impl FnOnce(&Desk) -> ControlResult<T> + Send + 'static,
) -> Response {
    let at = desk.clone();
    match blocking(desk.underway.clone(), place, move || work(&at)).await {
        Ok(answer) => axum::Json(answer).into_response(),
        Err(error) => answer_error(&error),
    }
}

type AtDesk = State<Arc<Desk>>;

async fn session(State(desk): AtDesk, Extension(role): Extension<Role>) -> Response {
    let report = SessionReport {
        group: desk.sight.group().to_owned(),
        role,
        left_s: desk.access.left().as_secs(),
    };
    axum::Json(report).into_response()
}

async fn state(State(desk): AtDesk, Extension(place): Extension<Place>) -> Response {
    let at = desk.clone();
    match blocking(desk.underway.clone(), place, move || at.sight.now()).await {
        Ok(bytes) => ([(CONTENT_TYPE, "application/json")], bytes).into_response(),
        Err(error) => answer_error(&error),
    }
}

/// The newest events; with `after`, those with a larger number.
async fn events(
    State(desk): AtDesk,
    Extension(place): Extension<Place>,
    RawQuery(query): RawQuery,
) -> Response {
    answered(&desk, place, move |desk| {
        let query = Query::parse(query.as_deref().unwrap_or(""))?;
        let filter = EventFilter {
            after: query.value("after")?.unwrap_or(0),
            ..EventFilter::default()
        };
        let mut events = desk.sight.ask(&ShowEvents::from(&filter))?;
        let surplus = events.len().saturating_sub(EVENTS_MOST);
        events.drain(..surplus);
        Ok(events)
    })
    .await
}

/// What is left to move from disk to disk.
async fn moves(State(desk): AtDesk, Extension(place): Extension<Place>) -> Response {
    answered(&desk, place, |desk| desk.changes.moves()).await
}

async fn files(
    State(desk): AtDesk,
    Extension(place): Extension<Place>,
    RawQuery(query): RawQuery,
) -> Response {
    answered(&desk, place, move |desk| {
        let path = path_of(query.as_deref())?;
        desk.sight.ask(&ListFiles { path })
    })
    .await
}

async fn map(
    State(desk): AtDesk,
    Extension(place): Extension<Place>,
    RawQuery(query): RawQuery,
) -> Response {
    answered(&desk, place, move |desk| {
        let path = path_of(query.as_deref())?;
        Ok(extents::picture(&desk.sight.ask(&MapFile { path })?))
    })
    .await
}

fn path_of(query: Option<&str>) -> ControlResult<PathBuf> {
    Query::parse(query.unwrap_or(""))?.path("path")
}

/// The disks that can be added. To open disks is not for who may only look.
async fn candidates(
    State(desk): AtDesk,
    Extension(role): Extension<Role>,
    Extension(place): Extension<Place>,
) -> Response {
    answered(&desk, place, move |desk| {
        role.check_operates()?;
        scan(&desk.settings)
    })
    .await
}

/// The dry run. It opens the disks that would join, and so is not for who may only look.
async fn estimate(
    desk: AtDesk,
    role: Extension<Role>,
    place: Extension<Place>,
    body: Body,
) -> Response {
    operated(desk, role, place, body, |desk, body| {
        desk.changes.estimate(body)
    })
    .await
}

async fn change(
    desk: AtDesk,
    role: Extension<Role>,
    place: Extension<Place>,
    body: Body,
) -> Response {
    operated(desk, role, place, body, |desk, body| {
        desk.changes.make(body)
    })
    .await
}

/// What is for who may operate.
async fn operated<T: Serialize + Send + 'static>(
    State(desk): AtDesk,
    Extension(role): Extension<Role>,
    Extension(place): Extension<Place>,
    body: Body,
    work: impl FnOnce(&Desk, &[u8]) -> ControlResult<T> + Send + 'static,
) -> Response {
    let body = match whole(body).await {
        Ok(body) => body,
        Err(error) => return answer_error(&error),
    };
    answered(&desk, place, move |desk| {
        role.check_operates()?;
        work(desk, &body)
    })
    .await
}

async fn whole(body: Body) -> ControlResult<Bytes> {
    let limited = http_body_util::Limited::new(body, BODY_BYTES_MAX);
    match tokio::time::timeout(BODY_MOST, limited.collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) => Err(ControlError::invalid(format!(
            "the request's body cannot be taken: {error}; at most {BODY_BYTES_MAX} bytes are"
        ))),
        Err(_) => Err(ControlError::invalid("the request's body did not come")),
    }
}

#[cfg(test)]
mod tests {
    use super::{FILES, HEADERS};

    #[test]
    fn the_page_names_no_other_place_and_has_nothing_inline() {
        for (path, _, text) in FILES {
            if path.starts_with("/uplot") {
                assert!(text.contains("Permission is hereby granted"), "{path}");
                continue;
            }
            let own = text.replace("http://www.w3.org/2000/svg", "");
            for word in [
                "http://",
                "https://",
                "//cdn",
                "@import",
                "innerHTML",
                "eval(",
                " style=",
            ] {
                assert!(!own.contains(word), "{path}: {word}");
            }
        }
        let (_, _, page) = FILES[0];
        assert_eq!(
            page.matches("<script ").count(),
            page.matches("<script src=\"/").count()
        );
        assert!(
            !page.contains("<style") && !page.contains("onclick"),
            "nothing inline"
        );
    }

    #[test]
    fn the_policy_allows_nothing_inline_and_nothing_from_elsewhere() {
        let (_, policy) = HEADERS[0];
        assert!(policy.starts_with("default-src 'none'"), "{policy}");
        for word in ["unsafe", "http", "*", "blob"] {
            assert!(!policy.contains(word), "{policy}");
        }
    }
}
