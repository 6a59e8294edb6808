//! Whose words are believed at the other end of a socket.

use std::os::fd::AsFd;
use std::path::Path;

use crate::api::error::{ControlError, ControlErrorKind, ControlResult};

/// Whose words are believed at the other end of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trust {
    own: u32,
    /// The owner of the runtime directory that root looks into.
    other: Option<u32>,
}

impl Trust {
    /// The caller itself and root.
    #[must_use]
    pub fn own() -> Self {
        Self {
            own: rustix::process::geteuid().as_raw(),
            other: None,
        }
    }

    /// The owner of the runtime directory, besides: for root, that looks into it.
    #[must_use]
    pub(crate) const fn and(self, owner: u32) -> Self {
        Self {
            other: Some(owner),
            ..self
        }
    }

    const fn admits(self, user: u32) -> bool {
        user == self.own || user == 0 || matches!(self.other, Some(other) if other == user)
    }

    /// Refuses where another user listens at the other end of this connection.
    ///
    /// # Errors
    /// Where that is so; `socket` is for the message.
    pub fn check_peer(self, connection: impl AsFd, socket: &Path) -> ControlResult<u32> {
        let peer = rustix::net::sockopt::socket_peercred(connection)
            .map_err(|error| ControlError::io("ask who is at", socket.display(), &error.into()))?;
        let user = peer.uid.as_raw();
        if self.admits(user) {
            return Ok(u32::try_from(peer.pid.as_raw_nonzero().get()).unwrap_or(0));
        }
        Err(ControlError::new(
            ControlErrorKind::Denied,
            format!(
                "the process at {} is one of user {user} and is not believed: only your own and root's are",
                socket.display()
            ),
        ))
    }
}
