//! What goes between the process that serves a mount and the one that sends its notices.
//!
//! Both are of one program, and each message is one packet: its borders are the socket's.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, send, sendmsg,
    socketpair,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::abi::NotifyInodeOut;

/// The longest first message: a number and a path.
const FIRST_BYTES_MAX: usize = 8 + 4096;

/// A notice that is to be sent.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Asked {
    /// By which it is answered.
    pub(super) number: u64,
    pub(super) notice: NotifyInodeOut,
}

/// The number of no notice: the process is there, and takes notices from now on.
pub(super) const IS_THERE: u64 = u64::MAX;

/// The kernel has dropped what the notice of that number said, or does not know the file.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Done {
    pub(super) number: u64,
    /// What the kernel said; 0 where it did as it was told.
    pub(super) errno: i64,
}

/// Both ends of a new connection.
pub(super) fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    let flags = SocketFlags::CLOEXEC;
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Sends a message, or [`Errno::AGAIN`] where the other end has too much to read.
pub(super) fn send_at_once(
    socket: impl AsFd,
    message: &(impl IntoBytes + Immutable),
) -> Result<(), Errno> {
    send_with(socket, message, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
}

/// Sends a message; waits where the other end has too much to read.
pub(super) fn send_patiently(
    socket: impl AsFd,
    message: &(impl IntoBytes + Immutable),
) -> Result<(), Errno> {
    send_with(socket, message, SendFlags::NOSIGNAL)
}

fn send_with(
    socket: impl AsFd,
    message: &(impl IntoBytes + Immutable),
    flags: SendFlags,
) -> Result<(), Errno> {
    rustix::io::retry_on_intr(|| send(&socket, message.as_bytes(), flags)).map(|_| ())
}

/// The next message; `None` where the other end is gone.
pub(super) fn receive<M: FromBytes + IntoBytes>(
    socket: impl AsFd,
    flags: RecvFlags,
) -> Result<Option<M>, Errno> {
    let mut message = M::new_zeroed();
    loop {
        return match recv(&socket, message.as_mut_bytes(), flags) {
            // The second is said once, where the other end died with something unread, and before what
            // it had sent: all of that is still there.
            Err(Errno::INTR | Errno::CONNRESET) => continue,
            Ok((_, 0)) => Ok(None),
            Ok((_, length_bytes)) if length_bytes == size_of::<M>() => Ok(Some(message)),
            Ok(_) => Err(Errno::PROTO),
            Err(error) => Err(error),
        };
    }
}

/// Sends the first message: a descriptor of the mount, its number and its place.
pub(super) fn send_first(
    socket: impl AsFd,
    device: BorrowedFd<'_>,
    connection: u64,
    directory: &[u8],
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [device];
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(Errno::NOBUFS);
    }
    let number = connection.to_le_bytes();
    let slices = [IoSlice::new(&number), IoSlice::new(directory)];
    sendmsg(&socket, &slices, &mut control, SendFlags::NOSIGNAL).map(|_| ())
}

/// What [`send_first`] sent: the descriptor, the number and the place.
pub(super) fn receive_first(socket: impl AsFd) -> Result<(OwnedFd, u64, Vec<u8>), Errno> {
    let mut bytes = vec![0; FIRST_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        let mut slices = [IoSliceMut::new(&mut bytes)];
        recvmsg(&socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let device = control.drain().find_map(|part| match part {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let (number, directory) = bytes[..received.bytes]
        .split_first_chunk()
        .ok_or(Errno::PROTO)?;
    let device = device.ok_or(Errno::PROTO)?;
    Ok((device, u64::from_le_bytes(*number), directory.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_said_who_died_with_a_word_unread_is_heard() {
        for flags in [RecvFlags::empty(), RecvFlags::DONTWAIT] {
            let (ours, theirs) = pair().unwrap();
            let unread = Asked {
                number: 7,
                notice: NotifyInodeOut::default(),
            };
            send_at_once(&ours, &unread).unwrap();
            for number in 0..3 {
                send_at_once(&theirs, &Done { number, errno: 0 }).unwrap();
            }
            drop(theirs);
            for number in 0..3 {
                let done = receive::<Done>(&ours, flags).unwrap();
                assert_eq!(done.map(|done| done.number), Some(number));
            }
            assert!(receive::<Done>(&ours, flags).unwrap().is_none());
        }
    }
}
