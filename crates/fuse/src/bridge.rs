//! Requests of the kernel become calls of the file system.
//!
//! **Invariants.** Each request gets exactly one answer, but for those that the protocol leaves
//! unanswered. The mount is the file system's only door for names and attributes, so the kernel
//! may keep what it was told; whoever changes a file elsewhere invalidates it here. A request
//! that can be answered once for all (`ENOSYS` to `FLUSH`, `OPENDIR`, ...) is, and the kernel
//! stops asking. Reading a block of a file allocates nothing.

mod attributes;
mod changes;
mod directories;
mod extended_attributes;
mod files;
mod handles;
mod names;
mod privileges;
mod resent;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use nix::time::ClockId;
use rustix::io::Errno;
use spindle_base::FileId;
use spindle_fs::{Asked, FileSystem, FsError, Owner, Time};
use spindle_group::Connection;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::abi::{InHeader, Opcode, UNIQUE_RESENT};
use crate::errno::errno_of;
use crate::notices::Dropped;
use crate::session::{MountOptions, Service};
use crate::stale::Stale;
use crate::transport::Transport;
use changes::{bytes_changed_by, changed_by, changes_what_the_kernel_keeps};
use handles::Handles;

/// Everything that a request may need.
#[derive(Debug)]
pub(crate) struct Bridge {
    file_system: Arc<FileSystem>,
    /// Whose requests it serves, where they are noted when they are done.
    connection: Option<Connection>,
    handles: Handles,
    direct: bool,
    /// The kernel kept bytes before this process served the mount.
    taken_over: bool,
}

/// What a request is answered with. It lives on the stack for one request; a box would allocate.
pub(crate) enum Answer {
    /// The protocol wants none.
    Nothing,
    /// Success without data.
    Done,
    /// One of the protocol's structures.
    Structure(Structure),
    /// The same, when the kernel has dropped what it keeps of a file.
    After(Dropped, Structure),
    /// One that has attributes of a file, for a kernel that does not know the file, or had it changed.
    /// Of others it drops what it asked for before it was told to forget them.
    Told(FileId, Structure),
    /// So many bytes of the transport's payload, which have attributes of these files.
    Entries(Vec<FileId>, usize),
    /// Bytes of any length.
    Bytes(Vec<u8>),
    /// So many bytes of the transport's payload.
    Payload(usize),
}

/// A structure of the protocol as bytes, on the stack.
pub(crate) struct Structure {
    bytes: [u8; Self::MAX_BYTES],
    length_bytes: usize,
}

impl Structure {
    const MAX_BYTES: usize = 288;

    fn of<S: IntoBytes + Immutable>(value: &S) -> Self {
        let source = value.as_bytes();
        let mut bytes = [0; Self::MAX_BYTES];
        bytes[..source.len()].copy_from_slice(source);
        Self {
            bytes,
            length_bytes: source.len(),
        }
    }
}

impl Answer {
    fn structure<S: IntoBytes + Immutable>(value: &S) -> Self {
        Self::Structure(Structure::of(value))
    }

    fn told<S: IntoBytes + Immutable>(id: FileId, value: &S) -> Self {
        Self::Told(id, Structure::of(value))
    }
}

/// An errno instead of an answer.
#[derive(Debug)]
pub(crate) struct Refusal {
    errno: Errno,
    /// It lives until the kernel has its answer: what a sync tells is owed until then.
    _error: Option<FsError>,
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self {
            errno,
            _error: None,
        }
    }
}

impl From<FsError> for Refusal {
    fn from(error: FsError) -> Self {
        let errno = errno_of(&error);
        if errno == Errno::IO {
            let told = format!("{error:#}");
            tracing::error!(error = told, "a request is answered with EIO");
        }
        Self {
            errno,
            _error: Some(error),
        }
    }
}

pub(crate) type Served = Result<Answer, Refusal>;

impl Bridge {
    pub(crate) fn new(
        file_system: Arc<FileSystem>,
        connection: Option<Connection>,
        options: &MountOptions,
    ) -> Self {
        Self {
            file_system,
            connection,
            handles: Handles::new(options.generation),
            direct: options.direct,
            taken_over: false,
        }
    }

    /// For a mount that another process has served before.
    pub(crate) fn after_another(self) -> Self {
        Self {
            taken_over: true,
            ..self
        }
    }

    /// For the one operation that fulfils this request: its end notes the request as done.
    fn asked(&self, header: &InHeader, worker: usize) -> Asked<'_> {
        let unique = header.unique & !UNIQUE_RESENT;
        let noted = self.file_system.group().journal().zip(self.connection);
        Asked {
            now: now(),
            request: noted.map(|(journal, connection)| journal.request(connection, worker, unique)),
        }
    }

    /// What changes the names or attributes is not begun where its answer would be an error all the
    /// same: it is in the journal as soon as it is made, and the kernel, which is told that it failed,
    /// goes on with what was there before.
    fn check_may_change(&self, header: &InHeader) -> Result<(), Refusal> {
        if !Opcode::from_number(header.opcode).is_some_and(changes_what_the_kernel_keeps) {
            return Ok(());
        }
        let group = self.file_system.group();
        (group.check_serves().and_then(|()| group.check_owner()))
            .map_err(|error| FsError::from(error).into())
    }

    /// What was read from memory or put there met no disk, which would have been asked whose the
    /// group is. An owner that slept answers nothing of it.
    fn check_owner(&self, header: &InHeader) -> Result<(), Refusal> {
        if !Opcode::from_number(header.opcode).is_some_and(tells_of_contents) {
            return Ok(());
        }
        (self.file_system.group().check_owner()).map_err(|error| FsError::from(error).into())
    }

    /// What was made is answered when a kill loses nothing of it and the group is ours. Else the
    /// answer is an error, although it was made, and the kernel forgets what has changed.
    fn check_answer<T: Transport>(
        &self,
        header: &InHeader,
        transport: &mut T,
        answer: Answer,
    ) -> Served {
        let kept = (self.file_system.group().keep_what_fell_out()).map_err(FsError::from);
        let Err(refusal) = (kept.map_err(Refusal::from)).and_then(|()| self.check_owner(header))
        else {
            return Ok(answer);
        };
        if let Answer::After(dropped, _) = answer {
            transport.drop_pages(dropped);
        }
        drop_changed_bytes(header, transport);
        transport.forget_soon(changed_by(header, transport));
        Err(refusal)
    }

    /// The kernel has been told attributes. Where it was told to forget those of such a file since the
    /// request came they may be older than that, and it does not see it everywhere: of a file that it did
    /// not know yet, or where it is told of a change of its own, it keeps them. So it forgets them again,
    /// which a thread sees to: of a file that nobody has open the kernel may wait for its end.
    fn forget_overtaken<T: Transport>(
        &self,
        forgettings_count: u64,
        told: impl FnOnce() -> Vec<FileId>,
        transport: &T,
    ) {
        // One number for all files is soon looked at, and where it is the same there is nothing to ask.
        if self.file_system.forgettings_count() == forgettings_count {
            return;
        }
        let mut told = told();
        told.retain(|id| (self.file_system).was_forgotten_since(*id, forgettings_count));
        transport.forget_soon(told.into_iter().map(Stale::Attributes).collect());
    }

    fn dispatch<T: Transport>(
        &self,
        header: &InHeader,
        transport: &mut T,
        worker: usize,
    ) -> Served {
        let asked = || self.asked(header, worker);
        let Some(opcode) = Opcode::from_number(header.opcode) else {
            return Err(Errno::NOSYS.into());
        };
        match opcode {
            Opcode::Read => self.read(header, transport),
            Opcode::Write => self.write(header, transport),
            Opcode::Lookup => self.lookup(header, transport),
            Opcode::GetAttributes => self.get_attributes(header),
            Opcode::SetAttributes => self.set_attributes(header, transport),
            Opcode::Statx => self.statx(header),
            Opcode::StatFs => self.stat_fs(),
            Opcode::Forget => self.forget(header, transport),
            Opcode::BatchForget => self.batch_forget(transport),
            Opcode::ReadLink => self.read_link(header),
            Opcode::Symlink => self.symlink(header, transport, asked()),
            Opcode::MakeNode => self.make_node(header, transport, asked()),
            Opcode::MakeDirectory => self.make_directory(header, transport, asked()),
            Opcode::Unlink => self.unlink(header, transport, asked()),
            Opcode::RemoveDirectory => self.remove_directory(header, transport, asked()),
            Opcode::Rename => self.rename(header, transport, asked()),
            Opcode::Rename2 => self.rename2(header, transport, asked()),
            Opcode::Link => self.link(header, transport, asked()),
            Opcode::Open => self.open(header, transport),
            Opcode::Create => self.create(header, transport, asked()),
            Opcode::TemporaryFile => self.temporary_file(header, transport),
            Opcode::Release => self.release(transport),
            Opcode::Fsync => self.fsync(header, transport),
            Opcode::FsyncDirectory => self.make_durable(),
            Opcode::SyncFs => self.sync(),
            Opcode::Allocate => whole_or_dropped(header, transport, |of| self.allocate(header, of)),
            Opcode::Seek => self.seek(header, transport),
            Opcode::CopyRange => {
                whole_or_dropped(header, transport, |of| self.copy_range(header, of, false))
            }
            Opcode::CopyRange64 => {
                whole_or_dropped(header, transport, |of| self.copy_range(header, of, true))
            }
            Opcode::ReadDirectory => self.read_directory(header, transport, false),
            Opcode::ReadDirectoryPlus => self.read_directory(header, transport, true),
            Opcode::SetExtendedAttribute => self.set_extended_attribute(header, transport, asked()),
            Opcode::GetExtendedAttribute => self.get_extended_attribute(header, transport),
            Opcode::ListExtendedAttributes => self.list_extended_attributes(header, transport),
            Opcode::RemoveExtendedAttribute => {
                self.remove_extended_attribute(header, transport, asked())
            }
            Opcode::Destroy => Ok(Answer::Done),
            // Nothing is to be done at a close or for a directory's handle, permissions are the
            // kernel's, and nothing here waits long enough to be interrupted. ENOSYS tells the
            // kernel so once.
            Opcode::Flush
            | Opcode::OpenDirectory
            | Opcode::ReleaseDirectory
            | Opcode::Access
            | Opcode::Interrupt
            | Opcode::Init
            | Opcode::GetLock
            | Opcode::SetLock
            | Opcode::SetLockWait
            | Opcode::BlockMap
            | Opcode::IoControl
            | Opcode::Poll
            | Opcode::NotifyReply => Err(Errno::NOSYS.into()),
        }
    }
}

impl Service for Bridge {
    fn serve<T: Transport>(
        &self,
        header: &InHeader,
        transport: &mut T,
        worker: usize,
    ) -> Result<(), Errno> {
        let unique = header.unique & !UNIQUE_RESENT;
        let group = self.file_system.group();
        let forgettings_count = self.file_system.forgettings_count();
        let is_resent = header.unique & UNIQUE_RESENT != 0;
        let served = if is_resent && group.is_done(unique) {
            self.answer_again(header, transport, worker)
        } else {
            self.check_may_change(header)
                .and_then(|()| self.make_room(header))
                .and_then(|()| self.dispatch(header, transport, worker))
        };
        let served = served.and_then(|answer| self.check_answer(header, transport, answer));
        self.die_at_half();
        match served {
            Ok(Answer::Payload(length_bytes)) => transport.answer_payload(length_bytes),
            Ok(Answer::Done) => transport.answer(0, &[]),
            Ok(Answer::Nothing) => Ok(()),
            Ok(Answer::Structure(structure)) => {
                transport.answer(0, &structure.bytes[..structure.length_bytes])
            }
            Ok(Answer::Told(id, structure)) => {
                let answered = transport.answer(0, &structure.bytes[..structure.length_bytes]);
                self.forget_overtaken(forgettings_count, || vec![id], transport);
                answered
            }
            Ok(Answer::Entries(told, length_bytes)) => {
                let answered = transport.answer_payload(length_bytes);
                self.forget_overtaken(forgettings_count, || told, transport);
                answered
            }
            Ok(Answer::After(dropped, structure)) => {
                transport.answer_after(dropped, &structure.bytes[..structure.length_bytes])
            }
            Ok(Answer::Bytes(bytes)) => transport.answer(0, &bytes),
            Err(refusal) => transport.answer(-refusal.errno.raw_os_error(), &[]),
        }
    }

    fn panicked(&self) {
        self.die_at_half();
    }

    fn ended(&self) {
        self.file_system.end_kernel();
    }
}

/// Whether the answer says what bytes a file has, or that something has changed.
const fn tells_of_contents(opcode: Opcode) -> bool {
    changes_what_the_kernel_keeps(opcode)
        || matches!(
            opcode,
            Opcode::Read
                | Opcode::Seek
                | Opcode::Write
                | Opcode::Fsync
                | Opcode::FsyncDirectory
                | Opcode::SyncFs
                | Opcode::CopyRange
                | Opcode::CopyRange64
        )
}

/// Serves a request that may leave a part where it fails: the kernel drops the bytes then.
fn whole_or_dropped<T: Transport>(
    header: &InHeader,
    transport: &mut T,
    serve: impl FnOnce(&T) -> Served,
) -> Served {
    let served = serve(transport);
    if (served.as_ref()).is_err_and(|refusal| refusal.errno == Errno::IO) {
        drop_changed_bytes(header, transport);
    }
    served
}

fn drop_changed_bytes<T: Transport>(header: &InHeader, transport: &mut T) {
    if let Some(dropped) = bytes_changed_by(header, transport) {
        transport.drop_pages(dropped);
    }
}

/// The opcode's structure at the start of the request.
fn arguments<S: FromBytes, T: Transport>(transport: &T) -> Result<S, Refusal> {
    transport
        .arguments(size_of::<S>())
        .and_then(|bytes| S::read_from_bytes(bytes).ok())
        .ok_or(Errno::PROTO.into())
}

/// The name at the start of `bytes`, and what follows its NUL.
fn name(bytes: &[u8]) -> Result<(&OsStr, &[u8]), Refusal> {
    let end = bytes.iter().position(|byte| *byte == 0);
    let end = end.ok_or(Errno::PROTO)?;
    Ok((OsStr::from_bytes(&bytes[..end]), &bytes[end + 1..]))
}

fn node(header: &InHeader) -> FileId {
    FileId(header.node)
}

fn owner(header: &InHeader) -> Owner {
    Owner {
        user: header.user,
        group: header.group,
    }
}

/// The wall clock, which the layers below do not have. The kernel stamps what it changes itself
/// with its coarse clock; a finer one here would make files older than their first byte.
fn now() -> Time {
    let now = ClockId::CLOCK_REALTIME_COARSE.now();
    let now = now.expect("every kernel that has FUSE has this clock");
    Time {
        seconds: now.tv_sec(),
        nanoseconds: u32::try_from(now.tv_nsec()).unwrap_or(0),
    }
}

/// The permission bits of a mode.
fn permissions(mode: u32) -> u16 {
    u16::try_from(mode & 0o7777).expect("12 bits")
}

#[cfg(test)]
mod tests;
