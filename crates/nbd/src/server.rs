//! A server of one volume: its socket, its connections, and how they end.
//!
//! Each connection has workers of its own, so that a client which takes no replies holds up nobody
//! else ([`connection`]). How many connections there are is bounded, and with them memory.
//!
//! **Ends.** [`Server::stop`] takes no more requests and waits for those under way, not for ever:
//! a disk that hangs, or a client that takes no replies, must not keep a group from being closed. What is left then has nobody to answer.

mod connection;

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::net::Shutdown;

use crate::negotiation::Offer;
use crate::volume::Volume;
use connection::Connection;

/// Clients at once.
pub const CONNECTIONS_MOST: usize = 16;
/// After the machine refused a connection, such as for want of descriptors.
const REFUSED_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
struct State {
    connections: Vec<Arc<Connection>>,
    is_stopping: bool,
}

/// What the server and its connections share.
#[derive(Debug)]
struct Shared {
    name: String,
    description: String,
    volume: Arc<dyn Volume>,
    state: Mutex<State>,
    /// A connection has ended.
    ended: Condvar,
}

impl Shared {
    fn offer(&self) -> Offer {
        Offer {
            name: self.name.clone(),
            description: self.description.clone(),
            size_bytes: self.volume.size_bytes(),
            is_read_only: self.volume.is_read_only(),
        }
    }

    fn forget(&self, connection: &Connection) {
        let mut state = self.state.lock();
        (state.connections).retain(|other| !std::ptr::eq(Arc::as_ptr(other), connection));
        self.ended.notify_all();
    }
}

/// A volume that is served.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    listening: Mutex<Option<(UnixListener, JoinHandle<()>)>>,
}

impl Server {
    /// Serves `volume` under `name` to whoever [`Server::serve`] or [`Server::listen`] brings.
    #[must_use]
    pub fn new(name: String, description: String, volume: Arc<dyn Volume>) -> Self {
        Self {
            shared: Arc::new(Shared {
                name,
                description,
                volume,
                state: Mutex::default(),
                ended: Condvar::new(),
            }),
            listening: Mutex::default(),
        }
    }

    /// Serves who connects to that socket from now on.
    ///
    /// # Errors
    /// Where the machine gives no thread or no descriptor.
    pub fn listen(&self, listener: UnixListener) -> io::Result<()> {
        let own = listener.try_clone()?;
        let shared = self.shared.clone();
        let accepting = thread::Builder::new()
            .name("nbd-accept".to_owned())
            .spawn(move || accept(&shared, &own))?;
        *self.listening.lock() = Some((listener, accepting));
        Ok(())
    }

    /// Serves one client.
    ///
    /// # Errors
    /// Where there are [`CONNECTIONS_MOST`] already, the server ends, or the machine gives no thread.
    pub fn serve(&self, stream: UnixStream) -> io::Result<()> {
        serve(&self.shared, stream)
    }

    /// How many clients are connected.
    #[must_use]
    pub fn connections_count(&self) -> usize {
        self.shared.state.lock().connections.len()
    }

    /// Takes no more clients.
    pub fn stop_listening(&self) {
        let Some((listener, accepting)) = self.listening.lock().take() else {
            return;
        };
        self.shared.state.lock().is_stopping = true;
        // Wakes who waits for clients.
        let _ = rustix::net::shutdown(&listener, Shutdown::Both);
        let _ = accepting.join();
    }

    /// Takes no more clients and no more requests, and waits for those under way, at most for
    /// `patience`; whether they all ended.
    #[must_use]
    pub fn stop(&self, patience: Duration) -> bool {
        self.stop_listening();
        let mut state = self.shared.state.lock();
        state.is_stopping = true;
        for connection in &state.connections {
            connection.take_no_more();
        }
        let begun = Instant::now();
        while !state.connections.is_empty() {
            let waited = begun.elapsed();
            if waited >= patience {
                break;
            }
            let _ = (self.shared.ended).wait_for(&mut state, patience - waited);
        }
        for connection in &state.connections {
            connection.cut();
        }
        state.connections.is_empty()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.stop(Duration::ZERO);
    }
}

fn accept(shared: &Arc<Shared>, listener: &UnixListener) {
    loop {
        let accepted = listener.accept();
        if shared.state.lock().is_stopping {
            return;
        }
        let served = accepted.and_then(|(stream, _)| serve(shared, stream));
        if let Err(error) = served {
            tracing::warn!(volume = %shared.name, %error, "a client is not served");
            thread::sleep(REFUSED_INTERVAL);
        }
    }
}

fn serve(shared: &Arc<Shared>, stream: UnixStream) -> io::Result<()> {
    let connection = Arc::new(Connection::new(shared.clone(), stream));
    {
        let mut state = shared.state.lock();
        if state.is_stopping {
            return Err(io::Error::other("the server is about to end"));
        }
        if state.connections.len() >= CONNECTIONS_MOST {
            let told = format!("{CONNECTIONS_MOST} clients are connected already");
            return Err(io::Error::other(told));
        }
        state.connections.push(connection.clone());
    }
    Connection::start(connection)
}
