//! Compounds: operations to bytes, and results out of bytes.
//!
//! A compound is built operation by operation and taken apart in the same order. An operation that
//! fails ends the compound, so that every step of the taking says whether it is still there.

use crate::rpc::{Credentials, PROCEDURE_COMPOUND, begin_call, finish_record};
use crate::status::{NfsError, Status};
use crate::wire::{
    DENY_NONE, DENY_WRITE, HANDLE_BYTES_MAX, MINOR_VERSION, NAME_BYTES_MAX, OPAQUE_BYTES_MAX,
    SHARE_READ, SHARE_READ_WRITE, Stable, UPDATE_CONFIRMED, USE_NON_PNFS, attribute, operation,
};
use crate::xdr::{Put, Reader, Violation};

/// What the server calls a file.
pub type Handle = Vec<u8>;
/// What the server calls an open file.
pub type StateId = [u8; 16];
/// What the server calls a session.
pub type SessionId = [u8; 16];
/// Changes when a server may have forgotten unstable writes.
pub type Verifier = [u8; 8];

/// For what a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// To read and write it, and nobody else may write.
    Own,
    /// To read it, whoever holds it.
    Look,
}

/// The most operations of one compound of ours.
pub const OPERATIONS_MOST: u32 = 32;

/// A compound that is being put together.
#[derive(Debug)]
pub struct Compound {
    bytes: Vec<u8>,
    count_at: usize,
    count: u32,
}

impl Compound {
    /// Without operations.
    #[must_use]
    pub fn new(xid: u32, credentials: &Credentials) -> Self {
        let mut bytes = begin_call(xid, PROCEDURE_COMPOUND, credentials);
        bytes.put_u32(0);
        bytes.put_u32(MINOR_VERSION);
        let count_at = bytes.len();
        bytes.put_u32(0);
        Self {
            bytes,
            count_at,
            count: 0,
        }
    }

    fn operation(mut self, number: u32) -> Self {
        self.count += 1;
        self.bytes.put_u32(number);
        self
    }

    fn u32(mut self, value: u32) -> Self {
        self.bytes.put_u32(value);
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.bytes.put_u64(value);
        self
    }

    fn fixed(mut self, bytes: &[u8]) -> Self {
        self.bytes.put_fixed(bytes);
        self
    }

    fn opaque(mut self, bytes: &[u8]) -> Self {
        self.bytes.put_opaque(bytes);
        self
    }

    fn bitmap(mut self, bits: &[u32]) -> Self {
        self.bytes.put_bitmap(bits);
        self
    }

    /// `EXCHANGE_ID`: tells who we are. Another verifier ends what an earlier client of this owner had;
    /// but with `is_update`, which is refused where the server does not know this owner and verifier.
    #[must_use]
    pub fn exchange_id(self, owner: &[u8], verifier: Verifier, is_update: bool) -> Self {
        let updates = if is_update { UPDATE_CONFIRMED } else { 0 };
        self.operation(operation::EXCHANGE_ID)
            .fixed(&verifier)
            .opaque(owner)
            .u32(USE_NON_PNFS | updates)
            .u32(0)
            .u32(0)
    }

    /// `CREATE_SESSION`, without a way for the server to call us.
    #[must_use]
    pub fn create_session(self, client: u64, sequence: u32, slots: u32, most_bytes: u32) -> Self {
        let cached_bytes = 1024;
        let mut this = self.operation(operation::CREATE_SESSION);
        this = this.u64(client).u32(sequence).u32(0);
        let fore = [
            0,
            most_bytes,
            most_bytes,
            cached_bytes,
            OPERATIONS_MOST,
            slots,
            0,
        ];
        let back = [0, 4096, 4096, 0, 2, 1, 0];
        for word in fore.into_iter().chain(back) {
            this = this.u32(word);
        }
        // A program for calls back that never come, and the one way they would be signed: none.
        this.u32(0x4000_0000).u32(1).u32(0)
    }

    /// `BIND_CONN_TO_SESSION`: this connection may carry the session's requests.
    #[must_use]
    pub fn bind(self, session: SessionId) -> Self {
        self.operation(operation::BIND_CONN_TO_SESSION)
            .fixed(&session)
            .u32(1)
            .u32(0)
    }

    /// `DESTROY_SESSION`.
    #[must_use]
    pub fn destroy_session(self, session: SessionId) -> Self {
        self.operation(operation::DESTROY_SESSION).fixed(&session)
    }

    /// `SEQUENCE`: which slot, and the how manieth request of it.
    #[must_use]
    pub fn sequence(self, at: &SequenceAt) -> Self {
        self.operation(operation::SEQUENCE)
            .fixed(&at.session)
            .u32(at.sequence)
            .u32(at.slot)
            .u32(at.highest_slot)
            .u32(u32::from(at.is_cached))
    }

    /// `RECLAIM_COMPLETE`: nothing more is claimed from before a restart.
    #[must_use]
    pub fn reclaim_complete(self) -> Self {
        self.operation(operation::RECLAIM_COMPLETE).u32(0)
    }

    /// `PUTFH`.
    #[must_use]
    pub fn put_handle(self, handle: &[u8]) -> Self {
        self.operation(operation::PUTFH).opaque(handle)
    }

    /// `PUTROOTFH`, and a `LOOKUP` for each name of the path.
    #[must_use]
    pub fn walk(self, path: &[String]) -> Self {
        let root = self.operation(operation::PUTROOTFH);
        path.iter().fold(root, |this, name| {
            this.operation(operation::LOOKUP).opaque(name.as_bytes())
        })
    }

    fn open(self, client: u64, owner: &[u8], access: Access) -> Self {
        let (access, denied) = match access {
            Access::Look => (SHARE_READ, DENY_NONE),
            Access::Own => (SHARE_READ_WRITE, DENY_WRITE),
        };
        self.operation(operation::OPEN)
            .u32(0)
            .u32(access)
            .u32(denied)
            .u64(client)
            .opaque(owner)
    }

    /// `OPEN` of a name in the current directory; with `makes`, the file is made where it is not there.
    #[must_use]
    pub fn open_name(
        self,
        (client, owner): (u64, &[u8]),
        name: &str,
        makes: bool,
        access: Access,
    ) -> Self {
        let mut this = self.open(client, owner, access);
        this = if makes {
            // UNCHECKED4: one that is there is taken as it is.
            let this = this.u32(1).u32(0).bitmap(&[attribute::MODE]);
            let mut mode = Vec::new();
            mode.put_u32(0o600);
            this.opaque(&mode)
        } else {
            this.u32(0)
        };
        this.u32(0).opaque(name.as_bytes())
    }

    /// `OPEN` of the current file, as it was open before the server started again.
    #[must_use]
    pub fn open_previous(self, client: u64, owner: &[u8], access: Access) -> Self {
        (self.open(client, owner, access)).u32(0).u32(1).u32(0)
    }

    /// `GETFH`.
    #[must_use]
    pub fn get_handle(self) -> Self {
        self.operation(operation::GETFH)
    }

    /// `GETATTR` of the size, the lease and the most that one request carries.
    #[must_use]
    pub fn get_limits(self) -> Self {
        let asked = [
            attribute::SIZE,
            attribute::LEASE_TIME,
            attribute::MAXREAD,
            attribute::MAXWRITE,
        ];
        self.operation(operation::GETATTR).bitmap(&asked)
    }

    /// `SETATTR` of the size.
    #[must_use]
    pub fn set_size(self, state: StateId, size_bytes: u64) -> Self {
        let mut value = Vec::new();
        value.put_u64(size_bytes);
        self.operation(operation::SETATTR)
            .fixed(&state)
            .bitmap(&[attribute::SIZE])
            .opaque(&value)
    }

    /// `READ`.
    #[must_use]
    pub fn read(self, state: StateId, offset_bytes: u64, length_bytes: u32) -> Self {
        self.operation(operation::READ)
            .fixed(&state)
            .u64(offset_bytes)
            .u32(length_bytes)
    }

    /// `WRITE`.
    #[must_use]
    pub fn write(self, state: StateId, offset_bytes: u64, stable: Stable, data: &[u8]) -> Self {
        self.operation(operation::WRITE)
            .fixed(&state)
            .u64(offset_bytes)
            .u32(stable as u32)
            .opaque(data)
    }

    /// `COMMIT` of the whole file.
    #[must_use]
    pub fn commit(self) -> Self {
        self.operation(operation::COMMIT).u64(0).u32(0)
    }

    /// `CLOSE`.
    #[must_use]
    pub fn close(self, state: StateId) -> Self {
        self.operation(operation::CLOSE).u32(0).fixed(&state)
    }

    /// `READDIR` from `cookie` on, of at most `most_bytes`.
    #[must_use]
    pub fn read_directory(self, cookie: u64, verifier: Verifier, most_bytes: u32) -> Self {
        self.operation(operation::READDIR)
            .u64(cookie)
            .fixed(&verifier)
            .u32(most_bytes / 2)
            .u32(most_bytes)
            .bitmap(&[attribute::TYPE, attribute::SIZE])
    }

    /// As it is sent, the record mark included.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        let count = self.count.to_be_bytes();
        self.bytes[self.count_at..self.count_at + 4].copy_from_slice(&count);
        finish_record(&mut self.bytes);
        self.bytes
    }
}

/// Where a request stands in its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SequenceAt {
    /// The session.
    pub session: SessionId,
    /// The slot.
    pub slot: u32,
    /// The how manieth request of the slot, from 1.
    pub sequence: u32,
    /// The highest slot that is used.
    pub highest_slot: u32,
    /// Whether the answer is to be kept for who asks again.
    pub is_cached: bool,
}

/// Why an operation has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The server says so; the operation and the status.
    Told(u32, Status),
    /// The answer cannot be read.
    Broken(Violation),
}

impl From<Violation> for Refused {
    fn from(violation: Violation) -> Self {
        Self::Broken(violation)
    }
}

impl Refused {
    /// As whoever asked is told.
    #[must_use]
    pub const fn error(self, asked: &'static str) -> NfsError {
        match self {
            Self::Told(number, status) => NfsError::told(operation::name(number), status),
            Self::Broken(_) => NfsError::new(asked, crate::status::ErrorKind::Violation),
        }
    }
}

/// The results of a compound, which are taken in the order in which the operations were put.
#[derive(Debug)]
pub struct Results<'a> {
    reader: Reader<'a>,
    left: u32,
    status: Status,
}

impl<'a> Results<'a> {
    /// Behind the head of the reply.
    ///
    /// # Errors
    /// Where the answer is none to a compound.
    pub fn new(mut reader: Reader<'a>) -> Result<Self, Violation> {
        let status = Status(reader.u32()?);
        reader.opaque(OPAQUE_BYTES_MAX)?;
        let left = reader.u32()?;
        Ok(Self {
            reader,
            left,
            status,
        })
    }

    /// Takes an operation whose result is nothing.
    ///
    /// # Errors
    /// Where it failed or is not there.
    pub fn done(&mut self, number: u32) -> Result<(), Refused> {
        self.take(number).map(drop)
    }

    fn take(&mut self, number: u32) -> Result<&mut Reader<'a>, Refused> {
        let Some(left) = self.left.checked_sub(1) else {
            // Some servers refuse a compound as a whole.
            if self.status == Status::OK {
                return Err(Violation("an operation has no result").into());
            }
            return Err(Refused::Told(number, self.status));
        };
        self.left = left;
        let answered = self.reader.u32()?;
        let status = Status(self.reader.u32()?);
        if status != Status::OK {
            return Err(Refused::Told(number, status));
        }
        if answered != number {
            return Err(Violation("the result of another operation").into());
        }
        Ok(&mut self.reader)
    }

    /// The result of [`Compound::exchange_id`].
    ///
    /// # Errors
    /// Where it failed or cannot be read; so for all that follow.
    pub fn exchange_id(&mut self) -> Result<Exchanged, Refused> {
        let reader = self.take(operation::EXCHANGE_ID)?;
        let exchanged = Exchanged {
            client: reader.u64()?,
            sequence: reader.u32()?,
            flags: reader.u32()?,
        };
        if reader.u32()? != 0 {
            return Err(Violation("state protection that was not asked for").into());
        }
        Ok(exchanged)
    }

    /// The result of [`Compound::create_session`].
    ///
    /// # Errors
    /// As [`Results::exchange_id`].
    pub fn create_session(&mut self) -> Result<Created, Refused> {
        let reader = self.take(operation::CREATE_SESSION)?;
        let session = reader.array()?;
        reader.u32()?;
        reader.u32()?;
        reader.u32()?;
        let created = Created {
            session,
            request_bytes: reader.u32()?,
            response_bytes: reader.u32()?,
            slots: {
                reader.u32()?;
                reader.u32()?;
                reader.u32()?
            },
        };
        Ok(created)
    }

    /// The result of [`Compound::sequence`], which has to be that of the request `at`.
    ///
    /// # Errors
    /// As [`Results::exchange_id`].
    pub fn sequence(&mut self, at: &SequenceAt) -> Result<(), Refused> {
        let reader = self.take(operation::SEQUENCE)?;
        let session: SessionId = reader.array()?;
        let sequence = reader.u32()?;
        let slot = reader.u32()?;
        reader.array::<12>()?;
        if session != at.session || sequence != at.sequence || slot != at.slot {
            return Err(Violation("the answer of another slot").into());
        }
        Ok(())
    }

    /// The results of [`Compound::walk`] with so many names.
    ///
    /// # Errors
    /// As [`Results::exchange_id`].
    pub fn walk(&mut self, names: usize) -> Result<(), Refused> {
        self.done(operation::PUTROOTFH)?;
        (0..names).try_for_each(|_| self.done(operation::LOOKUP))
    }

    /// The result of an `OPEN`.
    ///
    /// # Errors
    /// As [`Results::exchange_id`].
    pub fn open(&mut self) -> Result<StateId, Refused> {
        let reader = self.take(operation::OPEN)?;
        let state = reader.array()?;
        reader.array::<20>()?;
        reader.u32()?;
        reader.bitmap()?;
        skip_delegation(reader)?;
        Ok(state)
    }

    /// The result of [`Compound::get_handle`].
    ///
    /// # Errors
    /// As [`Results::exchange_id`].
    pub fn get_handle(&mut self) -> Result<Handle, Refused> {
        let reader = self.take(operation::GETFH)?;
        Ok(reader.opaque(HANDLE_BYTES_MAX)?.to_vec())
    }

    /// The result of [`Compound::get_limits`].
    ///
    /// # Errors
    /// As [`Results::exchange_id`].
    pub fn get_limits(&mut self) -> Result<Limits, Refused> {
        let reader = self.take(operation::GETATTR)?;
        let given = reader.bitmap()?;
        let mut values = Reader::new(reader.opaque(OPAQUE_BYTES_MAX)?);
        let asked = 1u64 << attribute::SIZE
            | 1 << attribute::LEASE_TIME
            | 1 << attribute::MAXREAD
            | 1 << attribute::MAXWRITE;
        if given & !asked != 0 {
            return Err(Violation("an attribute that was not asked for").into());
        }
        if given & 1 << attribute::SIZE == 0 {
            return Err(Violation("a file without a size").into());
        }
        let mut limits = Limits {
            size_bytes: values.u64()?,
            lease_s: None,
            read_bytes: None,
            write_bytes: None,
        };
        if given & 1 << attribute::LEASE_TIME != 0 {
            limits.lease_s = Some(values.u32()?);
        }
        if given & 1 << attribute::MAXREAD != 0 {
            limits.read_bytes = Some(values.u64()?);
        }
        if given & 1 << attribute::MAXWRITE != 0 {
            limits.write_bytes = Some(values.u64()?);
        }
        Ok(limits)
    }

    /// The result of [`Compound::read`] of at most `most_bytes`: the bytes, and whether the file ends
    /// there.
    ///
    /// # Errors
    /// As [`Results::exchange_id`].
    pub fn read(&mut self, most_bytes: u32) -> Result<(&'a [u8], bool), Refused> {
        let reader = self.take(operation::READ)?;
        let is_end = reader.bool()?;
        let data = reader.opaque(most_bytes as usize)?;
        Ok((data, is_end))
    }

    /// The result of [`Compound::write`] of at most `most_bytes`.
    ///
    /// # Errors
    /// As [`Results::exchange_id`].
    pub fn write(&mut self, most_bytes: u32) -> Result<Written, Refused> {
        let reader = self.take(operation::WRITE)?;
        let count_bytes = reader.u32()?;
        if count_bytes > most_bytes {
            return Err(Violation("more is said to be written than was sent").into());
        }
        let stable = match reader.u32()? {
            0 => Stable::Unstable,
            1 => Stable::DataSync,
            2 => Stable::FileSync,
            _ => return Err(Violation("a write of a kind that is not known").into()),
        };
        Ok(Written {
            count_bytes,
            stable,
            verifier: reader.array()?,
        })
    }

    /// The result of [`Compound::commit`].
    ///
    /// # Errors
    /// As [`Results::exchange_id`].
    pub fn commit(&mut self) -> Result<Verifier, Refused> {
        Ok(self.take(operation::COMMIT)?.array()?)
    }

    /// The result of [`Compound::read_directory`].
    ///
    /// # Errors
    /// As [`Results::exchange_id`].
    pub fn read_directory(&mut self) -> Result<Listing, Refused> {
        let reader = self.take(operation::READDIR)?;
        let mut listing = Listing {
            verifier: reader.array()?,
            cookie: 0,
            entries: Vec::new(),
            is_end: false,
        };
        while reader.bool()? {
            listing.cookie = reader.u64()?;
            let name = String::from_utf8_lossy(reader.opaque(NAME_BYTES_MAX)?).into_owned();
            let given = reader.bitmap()?;
            let mut values = Reader::new(reader.opaque(OPAQUE_BYTES_MAX)?);
            let is_file = given & 1 << attribute::TYPE != 0 && values.u32()? == 1;
            let size_bytes = match given & 1 << attribute::SIZE {
                0 => 0,
                _ => values.u64()?,
            };
            listing.entries.push(Entry {
                name,
                is_file,
                size_bytes,
            });
        }
        listing.is_end = reader.bool()?;
        Ok(listing)
    }
}

fn skip_delegation(reader: &mut Reader<'_>) -> Result<(), Violation> {
    let skip_entry = |reader: &mut Reader<'_>| {
        reader.array::<12>()?;
        reader.opaque(OPAQUE_BYTES_MAX).map(drop)
    };
    match reader.u32()? {
        0 => Ok(()),
        1 => {
            reader.array::<20>()?;
            skip_entry(reader)
        }
        2 => {
            reader.array::<20>()?;
            // Either limit of space has eight bytes.
            reader.array::<12>()?;
            skip_entry(reader)
        }
        3 => match reader.u32()? {
            1 | 2 => reader.u32().map(drop),
            _ => Ok(()),
        },
        _ => Err(Violation("a delegation of a kind that is not known")),
    }
}

/// What `EXCHANGE_ID` gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchanged {
    /// What the server calls us.
    pub client: u64,
    /// Of the next `CREATE_SESSION`.
    pub sequence: u32,
    /// What the server is, and whether it knew us.
    pub flags: u32,
}

/// What `CREATE_SESSION` gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Created {
    /// The session.
    pub session: SessionId,
    /// The longest request.
    pub request_bytes: u32,
    /// The longest reply.
    pub response_bytes: u32,
    /// How many requests may be under way.
    pub slots: u32,
}

/// What a server tells of a file and of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The size of the file.
    pub size_bytes: u64,
    /// How long it keeps what belongs to a client that says nothing.
    pub lease_s: Option<u32>,
    /// The most that one `READ` gives.
    pub read_bytes: Option<u64>,
    /// The most that one `WRITE` takes.
    pub write_bytes: Option<u64>,
}

/// What `WRITE` gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// How much of it was written, from its beginning.
    pub count_bytes: u32,
    /// How durable that is.
    pub stable: Stable,
    /// The server's verifier at that time.
    pub verifier: Verifier,
}

/// A piece of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Given back with the next request.
    pub verifier: Verifier,
    /// Where the next piece begins.
    pub cookie: u64,
    /// What stands in it.
    pub entries: Vec<Entry>,
    /// Nothing follows.
    pub is_end: bool,
}

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name; what is not UTF-8 in it is replaced.
    pub name: String,
    /// Whether it is a plain file.
    pub is_file: bool,
    /// Its size.
    pub size_bytes: u64,
}
