//! Remote procedure calls over TCP (RFC 5531): record marks, the head of a call, the head of a reply.

use crate::xdr::{Put, Reader, Violation};

const LAST_FRAGMENT: u32 = 1 << 31;
const CALL: u32 = 0;
const REPLY: u32 = 1;
const RPC_VERSION: u32 = 2;
const NFS_PROGRAM: u32 = 100_003;
const NFS_VERSION: u32 = 4;
const AUTH_SYS: u32 = 1;
/// The longest verifier of a reply that the protocol allows.
const VERIFIER_BYTES_MAX: usize = 400;

/// The procedure that does nothing: whoever answers it is there.
pub const PROCEDURE_NULL: u32 = 0;
/// The procedure that does everything else.
pub const PROCEDURE_COMPOUND: u32 = 1;

/// As whom we call: `AUTH_SYS`, which the server believes.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// The name of this machine, for the server's log; at most 255 bytes.
    pub machine_name: String,
    /// The user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

/// Begins a call: a record mark that [`finish_record`] completes, and the head.
#[must_use]
pub fn begin_call(xid: u32, procedure: u32, credentials: &Credentials) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(512);
    bytes.put_u32(0);
    for word in [xid, CALL, RPC_VERSION, NFS_PROGRAM, NFS_VERSION, procedure] {
        bytes.put_u32(word);
    }
    let mut body = Vec::new();
    body.put_u32(0);
    let name = credentials.machine_name.as_bytes();
    body.put_opaque(&name[..name.len().min(255)]);
    body.put_u32(credentials.uid);
    body.put_u32(credentials.gid);
    body.put_u32(0);
    bytes.put_u32(AUTH_SYS);
    bytes.put_opaque(&body);
    bytes.put_u32(0);
    bytes.put_u32(0);
    bytes
}

/// Puts the length into the record mark at the beginning.
///
/// # Panics
/// Where the record has 2 GiB: a mistake of ours.
pub fn finish_record(bytes: &mut [u8]) {
    let length = u32::try_from(bytes.len() - 4).expect("a record has less than 2 GiB");
    assert!(length < LAST_FRAGMENT, "a record has less than 2 GiB");
    bytes[..4].copy_from_slice(&(LAST_FRAGMENT | length).to_be_bytes());
}

/// Which call a reply answers.
///
/// # Errors
/// Where the record is no reply.
pub fn reply_xid(reader: &mut Reader<'_>) -> Result<u32, Violation> {
    let xid = reader.u32()?;
    if reader.u32()? == REPLY {
        Ok(xid)
    } else {
        Err(Violation("the server calls, where it should answer"))
    }
}

/// Reads the rest of a reply's head, after [`reply_xid`].
///
/// # Errors
/// Where the call was not accepted, and nothing was done.
pub fn reply_accepted(reader: &mut Reader<'_>) -> Result<(), Violation> {
    if reader.u32()? != 0 {
        return Err(Violation("the server does not accept these credentials"));
    }
    reader.u32()?;
    reader.opaque(VERIFIER_BYTES_MAX)?;
    match reader.u32()? {
        0 => Ok(()),
        1 | 2 => Err(Violation("the server does not know this version of NFS")),
        4 => Err(Violation("the server could not read the call")),
        _ => Err(Violation("the server could not serve the call")),
    }
}

/// Makes records out of what a connection gives. It holds at most one record of the length that was
/// set, and reserves no more than that.
#[derive(Debug, Default)]
pub struct RecordReader {
    mark: [u8; 4],
    mark_bytes: usize,
    /// How much of the fragment has not come, once its mark is whole.
    left_bytes: usize,
    is_last: bool,
    record: Vec<u8>,
}

impl RecordReader {
    /// Takes from the front of `bytes` what belongs to the next record, of at most `most_bytes`, and
    /// gives it when it is whole; otherwise all of `bytes` is taken.
    ///
    /// # Errors
    /// Where a record is longer: what follows cannot be told apart either.
    pub fn take(
        &mut self,
        bytes: &mut &[u8],
        most_bytes: usize,
    ) -> Result<Option<Vec<u8>>, Violation> {
        loop {
            if self.mark_bytes < self.mark.len() {
                let Some((byte, rest)) = bytes.split_first() else {
                    return Ok(None);
                };
                self.mark[self.mark_bytes] = *byte;
                self.mark_bytes += 1;
                *bytes = rest;
                if self.mark_bytes == self.mark.len() {
                    self.begin_fragment(most_bytes)?;
                }
                continue;
            }
            let (taken, rest) = bytes.split_at(self.left_bytes.min(bytes.len()));
            self.record.extend_from_slice(taken);
            self.left_bytes -= taken.len();
            *bytes = rest;
            if self.left_bytes > 0 {
                return Ok(None);
            }
            self.mark_bytes = 0;
            if self.is_last {
                return Ok(Some(std::mem::take(&mut self.record)));
            }
        }
    }

    fn begin_fragment(&mut self, most_bytes: usize) -> Result<(), Violation> {
        let mark = u32::from_be_bytes(self.mark);
        self.left_bytes = (mark & !LAST_FRAGMENT) as usize;
        self.is_last = mark & LAST_FRAGMENT != 0;
        if self.record.len().saturating_add(self.left_bytes) > most_bytes {
            return Err(Violation("a reply that is longer than what was asked for"));
        }
        if self.left_bytes == 0 && !self.is_last {
            return Err(Violation("a fragment of nothing"));
        }
        let needed_bytes = self.record.len() + self.left_bytes;
        if needed_bytes > self.record.capacity() {
            // Twice as much each time: a record of many fragments is not copied for each of them.
            let doubled_bytes = (self.record.capacity() * 2).min(most_bytes);
            let wanted_bytes = needed_bytes.max(doubled_bytes);
            self.record.reserve_exact(wanted_bytes - self.record.len());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Credentials, RecordReader, begin_call, finish_record};

    fn call() -> Vec<u8> {
        let credentials = Credentials {
            machine_name: "here".to_owned(),
            uid: 0,
            gid: 0,
        };
        let mut bytes = begin_call(7, 0, &credentials);
        finish_record(&mut bytes);
        bytes
    }

    #[test]
    fn a_record_that_comes_byte_by_byte_is_whole_with_the_last() {
        let bytes = call();
        let mut reader = RecordReader::default();
        for byte in &bytes[..bytes.len() - 1] {
            assert_eq!(reader.take(&mut &[*byte][..], 1000), Ok(None));
        }
        let mut last = &bytes[bytes.len() - 1..];
        assert_eq!(reader.take(&mut last, 1000), Ok(Some(bytes[4..].to_vec())));
        assert_eq!(reader.take(&mut last, 1000), Ok(None));
    }

    #[test]
    fn fragments_are_one_record_and_two_records_are_two() {
        let mut reader = RecordReader::default();
        let mut bytes = &[0, 0, 0, 1, 5, 128, 0, 0, 2, 6, 7, 128, 0, 0, 0][..];
        assert_eq!(reader.take(&mut bytes, 3), Ok(Some(vec![5, 6, 7])));
        assert_eq!(reader.take(&mut bytes, 3), Ok(Some(vec![])));
        assert_eq!(reader.take(&mut bytes, 3), Ok(None));
    }

    #[test]
    fn a_record_of_many_small_fragments_is_moved_a_few_times() {
        let most_bytes = 100_000;
        let mut reader = RecordReader::default();
        let mut moves = 0;
        for _ in 0..50_000 {
            let before = reader.record.capacity();
            assert_eq!(reader.take(&mut &[0, 0, 0, 1, 7][..], most_bytes), Ok(None));
            moves += usize::from(reader.record.capacity() != before);
            assert!(reader.record.capacity() <= most_bytes);
        }
        assert!(moves < 40, "{moves} times");
    }

    #[test]
    fn a_record_longer_than_what_was_asked_for_is_refused_by_its_mark() {
        let mut reader = RecordReader::default();
        assert!(reader.take(&mut &[128, 0, 16, 0][..], 4095).is_err());
        let mut reader = RecordReader::default();
        let mut bytes = &[0, 0, 0, 2, 5, 5, 128, 0, 0, 2][..];
        assert!(reader.take(&mut bytes, 3).is_err());
    }
}
