//! Messages with descriptors over a socket that keeps their borders.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The longest message.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// The most descriptors that go with one message; the kernel takes 253.
pub(super) const DESCRIPTORS_MAX: usize = 128;

/// Both ends of a new connection.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    Ok(socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        flags,
        None,
    )?)
}

pub(super) fn send(
    socket: impl AsFd,
    message: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    send_bytes(socket, &serde_json::to_vec(message)?, descriptors)
}

/// As [`send`], and never waits: `WouldBlock` where the socket has no room.
pub(super) fn send_now(
    socket: impl AsFd,
    message: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    send_with(socket, &bytes, descriptors, SendFlags::DONTWAIT)
}

/// Whether what was sent and not received yet takes no more than a quarter of the socket's room: the
/// kernel calls it writable then.
pub(super) fn has_much_room(socket: impl AsFd) -> bool {
    let mut wait = [PollFd::new(&socket, PollFlags::OUT)];
    let seen = poll(&mut wait, Some(&Timespec::default()));
    seen.is_ok() && wait[0].revents().contains(PollFlags::OUT)
}

/// Sends so few bytes that they go at once, with descriptors.
pub(super) fn send_bytes(
    socket: impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    send_with(socket, bytes, descriptors, SendFlags::empty())
}

fn send_with(
    socket: impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    loop {
        let slices = [IoSlice::new(bytes)];
        match sendmsg(&socket, &slices, &mut control, flags | SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(sent) if sent < bytes.len() => return Err(io::ErrorKind::WriteZero.into()),
            Ok(_) => return Ok(()),
        }
    }
}

/// The next message and what came with it; `None` where the other end is gone. `InvalidData` where it
/// cannot be understood, also where its end was cut off: the next one can.
pub(super) fn receive<M: DeserializeOwned>(
    socket: impl AsFd,
) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
    let (bytes, descriptors) = receive_bytes(socket)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let message = serde_json::from_slice(&bytes)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(Some((message, descriptors)))
}

/// What comes next, and what came with it; no bytes where the other end is gone.
pub(super) fn receive_bytes(socket: impl AsFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0; MESSAGE_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut slices = [IoSliceMut::new(&mut bytes)];
        match recvmsg(&socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC) {
            // Said once, where the other end died with something unread, and before what it had
            // sent: all of that is still there.
            Err(Errno::INTR | Errno::CONNRESET) => {}
            Err(error) => return Err(error.into()),
            Ok(received) => break received,
        }
    };
    let mut descriptors = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = part {
            descriptors.extend(some);
        }
    }
    bytes.truncate(received.bytes);
    Ok((bytes, descriptors))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_said_who_died_with_a_word_unread_is_heard() {
        let (ours, theirs) = pair().unwrap();
        send(&ours, &"a word that nobody reads", &[]).unwrap();
        for number in 0..3 {
            send(&theirs, &number, &[ours.as_fd()]).unwrap();
        }
        drop(theirs);
        let heard = || receive::<u32>(&ours).unwrap();
        for number in 0..3 {
            let (said, descriptors) = heard().unwrap();
            assert_eq!((said, descriptors.len()), (number, 1));
        }
        assert!(heard().is_none());
    }

    #[test]
    fn a_message_whose_end_was_cut_off_is_one_that_is_not_understood() {
        let (ours, theirs) = pair().unwrap();
        send(&theirs, &"x".repeat(MESSAGE_BYTES_MAX), &[]).unwrap();
        send(&theirs, &"the next one", &[]).unwrap();
        let error = receive::<String>(&ours).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let (said, _) = receive::<String>(&ours).unwrap().unwrap();
        assert_eq!(said, "the next one");
    }
}
