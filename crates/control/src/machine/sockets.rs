//! Which groups are served by processes of this machine: their sockets in the runtime directory.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use crate::api::client::Client;
use crate::api::error::{ControlErrorKind, ControlResult};
use crate::machine::settings::Settings;

/// Connects without waiting: the queue of one that hangs may be full.
pub(crate) fn connect(address: &SocketAddrUnix) -> std::io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let connection = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&connection, address)?;
    let stream = UnixStream::from(connection);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Where the process that serves `group` listens.
#[must_use]
pub(crate) fn socket_path(runtime_directory: &Path, group: &str) -> PathBuf {
    runtime_directory.join(format!("{group}.sock"))
}

/// The sockets there are, living or left behind, by name of group.
#[must_use]
pub(super) fn all(settings: &Settings) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(&settings.runtime_directory) else {
        return Vec::new();
    };
    let mut sockets: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "sock")
        })
        .collect();
    sockets.sort();
    sockets
}

/// Those of one group. Names of groups are unique whatever their case, so it does not matter here
/// either.
fn of(settings: &Settings, group: &str) -> impl Iterator<Item = PathBuf> {
    all(settings).into_iter().filter(move |socket| {
        let stem = socket.file_stem().unwrap_or_default();
        stem.to_string_lossy().eq_ignore_ascii_case(group)
    })
}

/// The process that serves `group`, `None` where none does at this moment.
///
/// # Errors
/// Where there is one that cannot be reached.
pub(crate) fn find_daemon(settings: &Settings, group: &str) -> ControlResult<Option<Client>> {
    for socket in of(settings, group) {
        match Client::connect(&socket, settings.trust) {
            Ok(client) => return Ok(Some(client)),
            Err(error) if error.kind == ControlErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Whether a socket of the group is there, living or left behind. A process that ends in order takes
/// its own along, and its mount; one that is killed leaves both.
#[must_use]
pub(crate) fn is_left(settings: &Settings, group: &str) -> bool {
    of(settings, group).next().is_some()
}

/// Every process that serves a group, whether it answers or not.
#[must_use]
pub(crate) fn living(settings: &Settings) -> Vec<Client> {
    all(settings)
        .iter()
        .filter_map(|socket| Client::connect(socket, settings.trust).ok())
        .collect()
}

/// Asks all of them at the same time, so that one which hangs holds up no other.
pub(crate) fn ask_each<T: Send>(
    clients: &[Client],
    ask: impl Fn(&Client) -> ControlResult<T> + Sync,
) -> Vec<ControlResult<T>> {
    std::thread::scope(|scope| {
        let ask = &ask;
        let asked: Vec<_> = (clients.iter())
            .map(|client| scope.spawn(move || ask(client)))
            .collect();
        (asked.into_iter())
            .map(|answer| match answer.join() {
                Ok(answer) => answer,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect()
    })
}
