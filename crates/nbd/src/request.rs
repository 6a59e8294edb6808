//! What a client asks in the transmission phase.
//!
//! A request is parsed whatever it asks, so that its payload can be taken off the socket; whether it
//! can be done is judged after that, and answered by a code where it cannot.

use crate::negotiation::Agreed;
use crate::volume::VolumeError;
use crate::wire::{ErrorCode, PAYLOAD_BYTES_MAX, REQUEST_MAGIC, Violation, command, command_flag};

/// The length of a request without its payload.
pub const REQUEST_BYTES: usize = 28;

/// A request as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// What is special about it.
    pub flags: u16,
    /// What it asks.
    pub kind: u16,
    /// Given back with the reply.
    pub cookie: u64,
    /// Where.
    pub offset_bytes: u64,
    /// How much.
    pub length_bytes: u32,
}

/// What a request is judged by.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// The size of the volume now.
    pub size_bytes: u64,
    /// Nobody may write.
    pub is_read_only: bool,
    /// What was negotiated.
    pub agreed: Agreed,
}

/// A request that can be tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Read the range.
    Read,
    /// Write the payload.
    Write {
        /// Durable before it is answered.
        is_durable: bool,
    },
    /// Make everything durable that was answered.
    Flush,
    /// Give the range up.
    Trim {
        /// Durable before it is answered.
        is_durable: bool,
    },
    /// Let the range read as zeros.
    Zero {
        /// It need not keep its room.
        may_be_hole: bool,
        /// Durable before it is answered.
        is_durable: bool,
    },
    /// Tell holes from data.
    Status {
        /// One stretch is enough.
        is_one_enough: bool,
    },
}

impl Request {
    /// Reads a request.
    ///
    /// # Errors
    /// Where these bytes begin none: what follows cannot be told apart either.
    pub fn parse(bytes: &[u8; REQUEST_BYTES]) -> Result<Self, Violation> {
        let number = |from: usize, to: usize| {
            let bytes = bytes[from..to].iter();
            bytes.fold(0u64, |sum, byte| (sum << 8) | u64::from(*byte))
        };
        // Compared as a number, which a fuzzer sees through.
        if number(0, 4) != u64::from(REQUEST_MAGIC) {
            return Err(Violation("a request does not begin as requests do"));
        }
        let short = |from: usize| u16::from_be_bytes([bytes[from], bytes[from + 1]]);
        let mut length = [0; 4];
        length.copy_from_slice(&bytes[24..]);
        Ok(Self {
            flags: short(4),
            kind: short(6),
            cookie: number(8, 16),
            offset_bytes: number(16, 24),
            length_bytes: u32::from_be_bytes(length),
        })
    }

    /// As a client sends it.
    #[must_use]
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.kind.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset_bytes.to_be_bytes());
        bytes[24..].copy_from_slice(&self.length_bytes.to_be_bytes());
        bytes
    }

    /// How many bytes follow it.
    #[must_use]
    pub const fn payload_bytes(&self) -> u32 {
        if self.kind == command::WRITE {
            self.length_bytes
        } else {
            0
        }
    }

    /// Whether it is the end of the conversation.
    #[must_use]
    pub const fn is_disconnect(&self) -> bool {
        self.kind == command::DISC
    }

    /// Whether a structured reply to it, where such were negotiated, is a must.
    #[must_use]
    pub const fn is_read(&self) -> bool {
        self.kind == command::READ
    }

    /// Whether it can be tried.
    ///
    /// # Errors
    /// What it is answered with instead.
    pub fn judge(&self, terms: &Terms) -> Result<Command, VolumeError> {
        let known = self.known_flags(terms)?;
        if self.flags & !known != 0 {
            return Err(invalid("a flag that this command does not take"));
        }
        let command = self.command();
        if command == Command::Flush {
            if self.offset_bytes != 0 || self.length_bytes != 0 {
                return Err(invalid("a flush has neither offset nor length"));
            }
            return Ok(command);
        }
        let writes = !matches!(command, Command::Read | Command::Status { .. });
        if writes && terms.is_read_only {
            let told = "this export is only for reading";
            return Err(VolumeError::new(ErrorCode::NotPermitted, told));
        }
        if matches!(command, Command::Status { .. }) && !terms.agreed.has_allocation {
            return Err(invalid("no metadata context was chosen"));
        }
        self.check_range(command, terms)?;
        Ok(command)
    }

    /// The flags that the command takes.
    fn known_flags(&self, terms: &Terms) -> Result<u16, VolumeError> {
        let own = match self.kind {
            command::READ if terms.agreed.is_structured => command_flag::DF,
            command::READ | command::WRITE | command::FLUSH | command::TRIM => 0,
            // Without FAST_ZERO, which is not offered.
            command::WRITE_ZEROES => command_flag::NO_HOLE,
            command::BLOCK_STATUS => command_flag::REQ_ONE,
            _ => return Err(invalid("a command that this server does not know")),
        };
        // Clients are known to set it on commands that write nothing.
        Ok(own | command_flag::FUA)
    }

    const fn command(&self) -> Command {
        let is_durable = self.flags & command_flag::FUA != 0;
        match self.kind {
            command::READ => Command::Read,
            command::WRITE => Command::Write { is_durable },
            command::TRIM => Command::Trim { is_durable },
            command::WRITE_ZEROES => Command::Zero {
                may_be_hole: self.flags & command_flag::NO_HOLE == 0,
                is_durable,
            },
            command::BLOCK_STATUS => Command::Status {
                is_one_enough: self.flags & command_flag::REQ_ONE != 0,
            },
            _ => Command::Flush,
        }
    }

    fn check_range(&self, command: Command, terms: &Terms) -> Result<(), VolumeError> {
        let carries = matches!(command, Command::Read | Command::Write { .. });
        if carries && self.length_bytes > PAYLOAD_BYTES_MAX {
            let told = format!("more than {PAYLOAD_BYTES_MAX} bytes at once");
            let is_told_apart = command == Command::Read && terms.agreed.is_structured;
            return Err(if is_told_apart {
                VolumeError::new(ErrorCode::Overflow, told)
            } else {
                VolumeError::new(ErrorCode::Invalid, told)
            });
        }
        if matches!(command, Command::Status { .. }) && self.length_bytes == 0 {
            return Err(invalid("the status of nothing"));
        }
        let end = self.offset_bytes.checked_add(u64::from(self.length_bytes));
        if end.is_some_and(|end| end <= terms.size_bytes) {
            return Ok(());
        }
        let told = format!("the volume ends at {}", terms.size_bytes);
        Err(match command {
            Command::Write { .. } | Command::Zero { .. } => {
                VolumeError::new(ErrorCode::NoSpace, told)
            }
            _ => VolumeError::new(ErrorCode::Invalid, told),
        })
    }
}

fn invalid(message: &str) -> VolumeError {
    VolumeError::new(ErrorCode::Invalid, message)
}

#[cfg(test)]
mod tests;
