//! Answers that the kernel gets when it has forgotten what it kept of a file.
//!
//! Of what a program writes past the page cache (`O_DIRECT`) the kernel drops the pages before it
//! sends the write. After it only where the program waits for it: of an asynchronous write it keeps
//! what a reader has brought there in between, for good. So such a write is answered when the kernel
//! was told to drop the pages once more, by a thread of its own: the kernel waits for pages that are
//! being read, whose reads may wait for a worker.
//!
//! **Invariant.** A request whose answer waits here counts as being served.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::abi::{NotifyInodeOut, notify};
use crate::device_transport::send;
use crate::gate::Gate;

/// What is answered, and what the kernel forgets before.
struct Deferred {
    descriptor: Arc<OwnedFd>,
    unique: u64,
    notice: NotifyInodeOut,
    data: Vec<u8>,
}

impl Deferred {
    fn answer(&self) -> Result<(), Errno> {
        let forgotten = [self.notice.as_bytes()];
        match send(&self.descriptor, 0, notify::INVALIDATE_INODE, &forgotten) {
            // It does not know the file any more.
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => {
                let node = self.notice.node;
                tracing::error!(node, %error, "readers may see what was there before a write");
            }
        }
        send(&self.descriptor, self.unique, 0, &[&self.data])
    }
}

/// A worker's way to have its answers wait.
#[derive(Debug, Clone)]
pub(crate) struct Forgetting {
    deferred: Sender<Deferred>,
    gate: Arc<Gate>,
}

/// The other end of it, for the thread that answers.
pub(crate) struct Forgetter {
    deferred: Receiver<Deferred>,
    gate: Arc<Gate>,
}

impl std::fmt::Debug for Deferred {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (f.debug_struct("Deferred").field("unique", &self.unique)).finish_non_exhaustive()
    }
}

/// Both ends, of a mount with this gate.
pub(crate) fn forgetting(gate: &Arc<Gate>) -> (Forgetting, Forgetter) {
    let (sender, receiver) = channel();
    let forgetting = Forgetting {
        deferred: sender,
        gate: Arc::clone(gate),
    };
    let forgetter = Forgetter {
        deferred: receiver,
        gate: Arc::clone(gate),
    };
    (forgetting, forgetter)
}

impl Forgetting {
    /// Of a worker that has such answers wait itself.
    pub(crate) fn alone() -> Self {
        forgetting(&Arc::new(Gate::new(1))).0
    }

    /// Has the request answered with `data` when the kernel has forgotten what `notice` says.
    ///
    /// # Errors
    /// What the kernel said of the answer, where it had to be given here.
    pub(crate) fn answer_after(
        &self,
        descriptor: &Arc<OwnedFd>,
        unique: u64,
        notice: NotifyInodeOut,
        data: &[u8],
    ) -> Result<(), Errno> {
        self.gate.serve_on();
        let sent = self.deferred.send(Deferred {
            descriptor: Arc::clone(descriptor),
            unique,
            notice,
            data: data.to_vec(),
        });
        sent.or_else(|unsent| {
            self.gate.finish();
            unsent.0.answer()
        })
    }
}

impl Forgetter {
    /// Answers one after the other, until the last worker has ended.
    pub(crate) fn work(self) {
        // As the workers: what the kernel drops it may have to write back to this mount first.
        let _ = rustix::process::configure_io_flusher_behavior(true);
        for deferred in self.deferred {
            match deferred.answer() {
                // The mount has ended, or the kernel waits no more.
                Ok(()) | Err(Errno::NODEV | Errno::CONNABORTED) => {}
                Err(error) => tracing::error!(%error, "the kernel refused an answer"),
            }
            self.gate.finish();
        }
    }
}
