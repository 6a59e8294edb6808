//! Connections to a served group: so many at most, each for so long at most.
//!
//! The metrics and the administration have limits of their own, so that whoever floods a port that
//! other users may ask cannot keep an administrator out: a place is held while a connection lasts
//! and what it asked for is being done, one that does not say what it wants loses it soon, and
//! descriptors and threads never run out.

use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use super::underway::Place;

/// How long accepting rests where the machine has no descriptor left.
const REST: Duration = Duration::from_millis(100);
/// The longest head of a request: a path of 4,096 bytes, each as `%xx`, and the rest.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// What one door bears.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Connections at a time.
    pub connections_max: usize,
    /// How long a client may take to say what it wants.
    pub head_most: Duration,
    /// How long a connection may last; `None` where it may carry a file.
    pub total_most: Option<Duration>,
    /// Whether one too many waits for its turn; else it is closed at once.
    pub waits: bool,
}

/// The administration: only its owner gets as far as this.
pub(crate) const ADMINISTRATION: Limits = Limits {
    connections_max: 256,
    head_most: Duration::from_secs(10),
    total_most: None,
    waits: true,
};

/// The metrics: every user of the machine gets as far as this, where a port was asked for.
pub(crate) const METRICS: Limits = Limits {
    connections_max: 16,
    head_most: Duration::from_secs(5),
    total_most: Some(Duration::from_secs(30)),
    waits: false,
};

/// A door that connections come in by.
pub(crate) trait Door {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// The next one.
    async fn accept(&self) -> std::io::Result<Self::Stream>;

    /// What answers it.
    fn router(&self, stream: &Self::Stream) -> Router;
}

/// Answers at `door` until `stop`; what is under way then is brought to its end.
pub(crate) async fn serve(door: &impl Door, limits: Limits, mut stop: watch::Receiver<bool>) {
    let places = Arc::new(Semaphore::new(limits.connections_max));
    let mut connections = JoinSet::new();
    loop {
        let place = tokio::select! {
            place = place_in(&places, limits) => place,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let accepted = tokio::select! {
            accepted = door.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                tokio::time::sleep(REST).await;
                continue;
            }
        };
        let place = place.or_else(|| places.clone().try_acquire_owned().ok());
        if let Some(place) = place {
            let router = door.router(&stream).layer(Extension(Place::new(place)));
            connections.spawn(answer(stream, router, limits, stop.clone()));
        }
        while connections.try_join_next().is_some() {}
    }
    while connections.join_next().await.is_some() {}
}

/// A place for the next connection; `None` where none is free and nobody waits for one.
async fn place_in(places: &Arc<Semaphore>, limits: Limits) -> Option<OwnedSemaphorePermit> {
    if limits.waits {
        places.clone().acquire_owned().await.ok()
    } else {
        places.clone().try_acquire_owned().ok()
    }
}

async fn answer(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    router: Router,
    limits: Limits,
    mut stop: watch::Receiver<bool>,
) {
    let mut builder = http1::Builder::new();
    // A request each: a connection that was answered holds no place.
    builder
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_most)
        .max_buf_size(HEAD_BYTES_MAX * 2);
    let service = TowerToHyperService::new(router);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let total_most = limits.total_most.unwrap_or(Duration::MAX);
    let over = tokio::time::sleep(total_most.min(Duration::from_secs(365 * 24 * 3600)));
    tokio::pin!(over);
    let mut stopping = false;
    loop {
        tokio::select! {
            // What goes wrong on a connection concerns its client alone.
            _ = connection.as_mut() => return,
            () = &mut over => return,
            _ = stop.wait_for(|stop| *stop), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::server::blocking;
    use super::super::underway::{Place, Underway};
    use super::{Door, Limits, serve};
    use axum::routing::get;
    use axum::{Extension, Router};
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{UnixListener, UnixStream};
    use tokio::sync::watch;

    const LIMITS: Limits = Limits {
        connections_max: 1,
        head_most: Duration::from_secs(5),
        total_most: Some(Duration::from_millis(200)),
        waits: false,
    };

    struct TestDoor {
        listener: UnixListener,
        router: Router,
    }

    impl Door for TestDoor {
        type Stream = UnixStream;

        async fn accept(&self) -> std::io::Result<UnixStream> {
            Ok(self.listener.accept().await?.0)
        }

        fn router(&self, _stream: &UnixStream) -> Router {
            self.router.clone()
        }
    }

    /// What is answered; nothing where the connection is closed before.
    async fn ask(socket: &Path) -> String {
        let mut answer = String::new();
        if let Ok(mut stream) = UnixStream::connect(socket).await
            && stream
                .write_all(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n")
                .await
                .is_ok()
        {
            let _ = stream.read_to_string(&mut answer).await;
        }
        answer
    }

    #[test]
    fn a_place_is_free_when_the_work_that_was_asked_for_has_ended_and_not_with_the_connection() {
        let name = format!("spindle-places-{}", std::process::id());
        let socket = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&socket);
        let (begun_count, is_released) = (Arc::new(AtomicUsize::new(0)), Arc::default());
        let (begun, released) = (begun_count.clone(), Arc::<AtomicBool>::clone(&is_released));
        let underway = Arc::<Underway>::default();
        let waiting = underway.clone();
        let work = move |Extension(place): Extension<Place>| {
            let (begun, released) = (begun.clone(), released.clone());
            let work = move || {
                begun.fetch_add(1, Ordering::SeqCst);
                while !released.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Ok(())
            };
            let done = blocking(underway.clone(), place, work);
            async move { done.await.map_or("failed", |()| "done") }
        };
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        runtime.block_on(async {
            let door = TestDoor {
                listener: UnixListener::bind(&socket).unwrap(),
                router: Router::new().route("/", get(work)),
            };
            let (_stop, stopped) = watch::channel(false);
            let story = async {
                assert_eq!(
                    ask(&socket).await,
                    "",
                    "it takes longer than a connection may"
                );
                assert_eq!(begun_count.load(Ordering::SeqCst), 1);
                assert_eq!(ask(&socket).await, "");
                assert_eq!(begun_count.load(Ordering::SeqCst), 1, "no place was free");
                is_released.store(true, Ordering::SeqCst);
                while !ask(&socket).await.ends_with("done") {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::select! {
                () = serve(&door, LIMITS, stopped) => panic!("nobody stopped it"),
                () = story => {}
            }
        });
        waiting.wait();
        std::fs::remove_file(&socket).unwrap();
    }
}
