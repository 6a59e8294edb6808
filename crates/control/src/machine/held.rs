//! Groups that a keeper holds while no process has their disks open.
//!
//! A daemon holds its disks; between its death and the next one they are free, and what programs
//! were answered for waits for them in the keeper's memory. So each keeper listens at a name besides
//! its socket that the group's identity alone gives, in no directory: whoever is about to write to a
//! disk asks there, whatever his runtime directory is and whatever the group is called. The name goes
//! with the keeper's process, however that ends.
//!
//! Anybody may take such a name. Only who could write to the disks himself is believed: their owner,
//! the own user, and root.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::SocketAddrUnix;
use serde::{Deserialize, Serialize};
use spindle_base::Uuid;

use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::machine::{process, sockets};

/// How long a keeper may take to answer.
const ANSWER_MOST: Duration = Duration::from_secs(5);
/// How long the next daemon of a keeper is waited for, or the end of the last one.
const NEXT_MOST: Duration = Duration::from_secs(60);
const NEXT_INTERVAL: Duration = Duration::from_millis(20);
/// How long a keeper that hangs up on whoever asks may take to end.
const ENDING_MOST: Duration = Duration::from_secs(2);

/// What a keeper is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeeperPhase {
    /// A daemon is being started.
    Starting,
    /// A daemon serves.
    Serving,
    /// The daemon ends in order.
    Ending,
    /// Daemons died too often; the mount is held.
    GaveUp,
}

/// The keeper of a group, by what it says of itself.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Holder {
    pub(crate) group: String,
    pub(crate) phase: KeeperPhase,
    pub(crate) keeper_process_id: u32,
    pub(crate) process_id: Option<u32>,
    pub(crate) directory: Option<PathBuf>,
    /// Whether every file of that mount bypasses the page cache.
    #[serde(default)]
    pub(crate) direct: bool,
    #[serde(default)]
    pub(crate) runtime_directory: Option<PathBuf>,
}

/// The name, in no directory, at which the keeper of this group listens.
#[must_use]
pub(crate) fn name_of(group: &str) -> String {
    format!("spindle-keeper-{group}")
}

impl Holder {
    /// The keeper of the group that `disk` is one of; `None` where there is none that is believed.
    ///
    /// # Errors
    /// Where there is one and it does not say what it does: the disk is not free then.
    pub(crate) fn find(group: Uuid, disk: &Path) -> ControlResult<Option<Self>> {
        let begun = Instant::now();
        loop {
            match Self::look(group, disk) {
                // It let go of the question: it may be ending, and then it is no keeper any more.
                Err(error) if has_hung_up(&error) && begun.elapsed() < ENDING_MOST => {
                    std::thread::sleep(NEXT_INTERVAL);
                }
                found => return found,
            }
        }
    }

    fn look(group: Uuid, disk: &Path) -> ControlResult<Option<Self>> {
        let name = name_of(&group.to_string());
        let connected = SocketAddrUnix::new_abstract_name(name.as_bytes())
            .map_err(std::io::Error::from)
            .and_then(|address| sockets::connect(&address));
        let stream = match connected {
            Ok(stream) => stream,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                return Ok(None);
            }
            // There is one, which hangs: the queue of those who asked it before is full.
            Err(error) => {
                let message = format!(
                    "{} is a disk of a group that a keeper holds, which does not answer",
                    disk.display()
                );
                return Err(ControlError::new(ControlErrorKind::Busy, message)
                    .because(ControlError::io("ask the keeper at", name, &error)));
            }
        };
        let Ok(peer) = rustix::net::sockopt::socket_peercred(&stream) else {
            return Ok(None);
        };
        let own = rustix::process::geteuid().as_raw();
        let owner = std::fs::metadata(disk).map_or(own, |metadata| metadata.uid());
        if ![0, own, owner].contains(&peer.uid.as_raw()) {
            return Ok(None);
        }
        ask(stream).map(Some).map_err(|error| {
            let message = format!(
                "{} is a disk of a group that the keeper {} holds, which does not say what it does",
                disk.display(),
                peer.pid.as_raw_nonzero()
            );
            ControlError::new(ControlErrorKind::Busy, message).because(ControlError::io(
                "ask the keeper at",
                name,
                &error,
            ))
        })
    }

    /// Whether this process is a daemon of it.
    fn is_own(&self) -> bool {
        let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
        parent.and_then(|id| u32::try_from(id).ok()) == Some(self.keeper_process_id)
    }

    /// Whether no daemon has the disks, so that nothing but this keeper stands for the group.
    #[must_use]
    pub(crate) fn stands_alone(&self) -> bool {
        let lives = |id| process::is_ending(id) == Some(false);
        self.phase != KeeperPhase::Serving || !self.process_id.is_some_and(lives)
    }

    /// That the group is held, by whom, and what to do.
    #[must_use]
    pub(crate) fn told(&self) -> String {
        let (group, keeper) = (&self.group, self.keeper_process_id);
        let place = self.directory.as_deref().unwrap_or(Path::new("DIR"));
        let place = place.display();
        let there = self
            .runtime_directory
            .as_deref()
            .map_or_else(String::new, |directory| {
                format!(" with SPINDLE_RUNTIME_DIR={}", directory.display())
            });
        format!(
            "the group {group} is held by the keeper {keeper}, and what was written to it waits there: `spindle mount {group} {place}`{there} starts the next process, `spindle umount {place}` gives the mount up and closes the group"
        )
    }
}

/// Whether the other end closed the connection instead of answering.
fn has_hung_up(error: &ControlError) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return matches!(error.kind(), UnexpectedEof | BrokenPipe | ConnectionReset);
        }
        cause = error.source();
    }
    false
}

fn ask(mut stream: UnixStream) -> std::io::Result<Holder> {
    stream.set_read_timeout(Some(ANSWER_MOST))?;
    stream.set_write_timeout(Some(ANSWER_MOST))?;
    stream.write_all(b"\"status\"\n")?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    let answer: Result<Holder, ControlError> = serde_json::from_str(&answer)?;
    answer.map_err(std::io::Error::other)
}

/// Refuses a disk of this group where a keeper gave up serving it. One that starts its next daemon,
/// or ends with its last one, is waited for. Asked before the disk is opened: whether a daemon has
/// it is seen by opening it, then [`refuse_free`] is asked.
///
/// # Errors
/// Where that is so, or it takes too long.
pub(crate) fn refuse(group: Uuid, disk: &Path) -> ControlResult<()> {
    let begun = Instant::now();
    loop {
        match Holder::find(group, disk)?.filter(|holder| !holder.is_own()) {
            None => return Ok(()),
            Some(holder) => match holder.phase {
                KeeperPhase::Serving => return Ok(()),
                KeeperPhase::Starting | KeeperPhase::Ending if begun.elapsed() < NEXT_MOST => {
                    std::thread::sleep(NEXT_INTERVAL);
                }
                _ => return Err(held(disk, &holder)),
            },
        }
    }
}

/// Refuses a disk that this process could open although the group that it is of is held: its daemon
/// died in that very moment.
///
/// # Errors
/// Where that is so.
pub(crate) fn refuse_free(group: Uuid, disk: &Path) -> ControlResult<()> {
    match Holder::find(group, disk)? {
        Some(holder) if !holder.is_own() && holder.stands_alone() => Err(held(disk, &holder)),
        _ => Ok(()),
    }
}

fn held(disk: &Path, holder: &Holder) -> ControlError {
    let told = holder.told();
    let message = format!("{} is in use: {told}", disk.display());
    ControlError::new(ControlErrorKind::Busy, message).of_environment()
}

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    use std::path::Path;

    use rustix::net::SocketAddrUnix;
    use spindle_base::Uuid;

    use super::{Holder, KeeperPhase, name_of};
    use crate::api::error::ControlErrorKind;
    use crate::machine::sockets;

    #[test]
    fn a_keeper_that_hangs_and_was_asked_by_many_is_still_one() {
        let [low, high, ..] = std::process::id().to_le_bytes();
        let group = Uuid([0xf1, low, high, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        let disk = Path::new("/dev/null");
        assert!(Holder::find(group, disk).unwrap().is_none());
        let name = name_of(&group.to_string());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let _hanging = UnixListener::bind_addr(&address).unwrap();
        // Those who gave up keep their places in its queue.
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
        while sockets::connect(&address).is_ok() {}
        let error = Holder::find(group, disk).unwrap_err();
        assert_eq!(error.kind, ControlErrorKind::Busy, "{error}");
    }

    #[test]
    fn a_keeper_that_ends_while_it_is_asked_is_none() {
        let [low, high, ..] = std::process::id().to_le_bytes();
        let group = Uuid([0xf2, low, high, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        let address = SocketAddr::from_abstract_name(name_of(&group.to_string())).unwrap();
        let ending = UnixListener::bind_addr(&address).unwrap();
        let answering = std::thread::spawn(move || drop(ending.accept()));
        assert!(
            Holder::find(group, Path::new("/dev/null"))
                .unwrap()
                .is_none()
        );
        answering.join().unwrap();
    }

    #[test]
    fn a_keeper_that_has_not_noticed_yet_that_its_daemon_died_stands_alone() {
        let holder = |phase, process_id| Holder {
            group: "data".to_owned(),
            phase,
            keeper_process_id: 1,
            process_id,
            directory: None,
            direct: false,
            runtime_directory: None,
        };
        let mut died = std::process::Command::new("true").spawn().unwrap();
        died.wait().unwrap();
        assert!(holder(KeeperPhase::Serving, Some(died.id())).stands_alone());
        assert!(!holder(KeeperPhase::Serving, Some(std::process::id())).stands_alone());
        assert!(holder(KeeperPhase::GaveUp, None).stands_alone());
    }
}
