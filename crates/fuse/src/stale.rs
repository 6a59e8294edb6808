//! What the kernel is to forget, because it changed and no answer says so.
//!
//! The kernel keeps names and attributes for as long as nobody tells it otherwise. Of a name and of
//! bytes never a worker tells it: the kernel waits for requests under way first, the one being answered
//! among them.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

use rustix::io::Errno;
use spindle_base::FileId;
use zerocopy::IntoBytes;

use crate::abi::{NotifyEntryOut, NotifyInodeOut, notify};
use crate::device_transport::send;

/// The offset that has the kernel keep a file's bytes.
const NO_BYTES: i64 = -1;

/// Something that the kernel may know wrongly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stale {
    /// Where a name leads, or that there is none.
    Entry { parent: FileId, name: Vec<u8> },
    /// A file's attributes. The kernel waits for nothing where it forgets these alone.
    Attributes(FileId),
    /// A file's attributes and bytes. The kernel waits for pages that are being read, so it is not for
    /// [`forget_soon`].
    File(FileId),
}

impl Stale {
    /// Makes the kernel forget it.
    ///
    /// # Errors
    /// What the kernel answered; that it knows nothing of it is no error.
    pub(crate) fn forget(&self, descriptor: &OwnedFd) -> Result<(), Errno> {
        self.forget_if_known(descriptor).map(|_| ())
    }

    /// As [`Self::forget`]; whether the kernel knew anything of it.
    pub(crate) fn forget_if_known(&self, descriptor: &OwnedFd) -> Result<bool, Errno> {
        let told = match self {
            Self::Entry { parent, name } => {
                let notice = NotifyEntryOut {
                    parent: parent.0,
                    name_length_bytes: u32::try_from(name.len()).map_err(|_| Errno::NAMETOOLONG)?,
                    flags: 0,
                };
                let mut text = name.clone();
                text.push(0);
                let parts = [notice.as_bytes(), &text];
                send(descriptor, 0, notify::INVALIDATE_ENTRY, &parts)
            }
            Self::Attributes(id) => forget_of_inode(descriptor, *id, NO_BYTES),
            Self::File(id) => forget_of_inode(descriptor, *id, 0),
        };
        match told {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Makes the kernel forget a file's attributes, and its bytes from that offset on.
fn forget_of_inode(descriptor: &OwnedFd, id: FileId, offset_bytes: i64) -> Result<(), Errno> {
    let notice = NotifyInodeOut {
        node: id.0,
        offset_bytes,
        length_bytes: 0,
    };
    let parts = [notice.as_bytes()];
    send(descriptor, 0, notify::INVALIDATE_INODE, &parts)
}

/// Makes the kernel forget all of these as soon as the request is answered.
pub(crate) fn forget_soon(descriptor: &Arc<OwnedFd>, stale: Vec<Stale>) {
    if stale.is_empty() {
        return;
    }
    let descriptor = Arc::clone(descriptor);
    let thread = thread::Builder::new().name("fuse-stale".to_owned());
    let spawned = thread.spawn(move || {
        for one in &stale {
            if let Err(error) = one.forget(&descriptor) {
                tracing::warn!(?one, %error, "the kernel did not forget what changed");
            }
        }
    });
    if let Err(error) = spawned {
        tracing::error!(%error, "the kernel is not told what changed");
    }
}
