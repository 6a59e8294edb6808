//! Words to the service manager that started this process (sd_notify(3)): a datagram to the
//! socket that `NOTIFY_SOCKET` names. Where there is none, they go nowhere.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The variable with the socket; a leading `@` stands for the abstract name space.
const SOCKET_VARIABLE: &str = "NOTIFY_SOCKET";

/// The way to the service manager.
#[derive(Debug, Default)]
pub(super) struct ServiceManager(Option<(UnixDatagram, SocketAddr)>);

impl ServiceManager {
    /// As the environment says.
    #[must_use]
    pub(super) fn from_environment() -> Self {
        let address = std::env::var_os(SOCKET_VARIABLE).and_then(|name| {
            match name.as_bytes() {
                [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
                _ => SocketAddr::from_pathname(&name),
            }
            .ok()
        });
        let Some(address) = address else {
            return Self(None);
        };
        let socket = UnixDatagram::unbound().and_then(|socket| {
            // A manager that does not listen must not hold this process up.
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        Self(socket.ok().map(|socket| (socket, address)))
    }

    /// Tells it one assignment, such as `READY=1`.
    pub(super) fn tell(&self, word: &str) {
        if let Some((socket, address)) = &self.0 {
            // It does without where it cannot be reached.
            let _ = socket.send_to_addr(word.as_bytes(), address);
        }
    }
}
