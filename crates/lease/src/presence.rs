//! Whether a client is still there, and what it has asked of a disk still under way.
//!
//! The owner opens a disk anew for each client, holds the byte of the client's number by that open file
//! description, gives the descriptor away and closes its own. From then on the kernel keeps the
//! lock for as long as anybody can use that description: the client, a child of its fork, the program
//! after its `exec`, a request of it that is not over. So a number is free when nothing can reach the
//! disk by it any more, whatever became of the process, and an owner that takes over, or the one that
//! would make new words, asks the disk and no process number.
//!
//! To be asked of each disk that was given to the client, before [`crate::Leases::let_go`].

use std::io;
use std::os::fd::AsFd;

use spindle_device::{hold_byte, is_byte_held};

use crate::ClientNumber;
use crate::layout::CLIENTS_COUNT;

/// Makes the open file description of `disk`, open for writing, that of the client with this number. False
/// where another description has the number: its last user is not gone.
///
/// # Errors
/// What the kernel answered.
pub fn take_number(disk: impl AsFd, number: ClientNumber) -> io::Result<bool> {
    hold_byte(disk, number.number())
}

/// Whether something can still reach this disk by the client's descriptor. `disk` is a description that
/// has no number.
///
/// # Errors
/// What the kernel answered. The client counts as there then.
pub fn is_there(disk: impl AsFd, number: ClientNumber) -> io::Result<bool> {
    is_byte_held(disk, number.number())
}

/// The numbers that something can still reach this disk by, the owner's own among them. Before new words
/// are made there has to be none.
///
/// # Errors
/// As [`is_there`].
pub fn all_there(disk: impl AsFd) -> io::Result<Vec<ClientNumber>> {
    let mut found = Vec::new();
    for number in (0..CLIENTS_COUNT).filter_map(|it| ClientNumber::new(u16::try_from(it).ok()?)) {
        if is_there(&disk, number)? {
            found.push(number);
        }
    }
    Ok(found)
}
