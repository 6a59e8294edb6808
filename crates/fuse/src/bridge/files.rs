//! Open files: their bytes, their space, their syncs.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;
use spindle_base::FileId;
use spindle_device::WriteSource;
use spindle_fs::{
    Asked, AttributeChange, Attributes, Caching, Forgotten, FsError, FsResult, Handle, Time,
};

use super::{
    Answer, Bridge, Refusal, Served, Structure, arguments, name, node, now, owner, permissions,
};
use crate::abi::{
    self, AllocateIn, CopyRange64Out, CopyRangeIn, CreateIn, CreateOut, FsyncIn, InHeader,
    NotifyInodeOut, OpenIn, OpenOut, ReadIn, ReleaseIn, SeekIn, SeekOut, WriteIn, WriteOut,
    open_answer, open_flags,
};
use crate::notices::Dropped;
use crate::stale::Stale;
use crate::transport::Transport;

/// The most that one request copies, so that none holds a worker for long. Callers go on with
/// what is left.
const COPY_MAX_BYTES: u64 = 64 << 20;
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// After a write past the kernel's cache, also one that failed, which may have left a part. Of an
/// asynchronous one the kernel forgets the attributes when it sends it, and keeps what it is told of
/// them from then on. The kernel waits for nothing where it forgets attributes alone.
fn forget_told_attributes<T: Transport>(handle: &Handle, transport: &T) {
    let Some(forgetting) = handle.forget_attributes() else {
        return;
    };
    if let Err(error) = transport.forget(&Stale::Attributes(handle.id())) {
        tracing::debug!(id = %handle.id(), %error, "the kernel did not forget attributes");
        forgetting.failed();
    }
}

impl Bridge {
    fn handle(&self, number: u64, id: FileId) -> Result<Arc<Handle>, Refusal> {
        self.handles.get(number, id, &self.file_system)
    }

    pub(super) fn read<T: Transport>(&self, header: &InHeader, transport: &mut T) -> Served {
        let request: ReadIn = arguments(transport)?;
        let handle = self.handle(request.handle, node(header))?;
        let length_bytes = usize::try_from(request.size_bytes).map_err(|_| Errno::INVAL)?;
        let out = transport.payload_target(length_bytes).ok_or(Errno::INVAL)?;
        if request.read_flags & abi::READ_PAST_CACHE == 0 {
            handle.kept().note_kept();
        }
        let started = Instant::now();
        let read_bytes = (self.file_system).read_into(&handle, request.offset_bytes, out)?;
        handle.note_read(read_bytes, started.elapsed());
        Ok(Answer::Payload(read_bytes))
    }

    /// The offset is the kernel's, also for `O_APPEND`: it holds the file's size.
    pub(super) fn write<T: Transport>(&self, header: &InHeader, transport: &mut T) -> Served {
        let request: WriteIn = arguments(transport)?;
        let handle = self.handle(request.handle, node(header))?;
        let now = now();
        // Every write of a user who is not privileged says so.
        if request.write_flags & abi::WRITE_KILL_PRIVILEGES != 0 {
            self.kill_privileges(node(header), now, transport)?;
        }
        let length_bytes = usize::try_from(request.size_bytes).map_err(|_| Errno::INVAL)?;
        let data = transport
            .data(size_of::<WriteIn>(), length_bytes)
            .ok_or(Errno::PROTO)?;
        if request.write_flags & abi::WRITE_PAST_CACHE == 0 {
            // The kernel keeps these bytes as it does those that it reads.
            handle.kept().note_kept();
            let written = self.write_data(&handle, &request, data, now)?;
            return Ok(Answer::Structure(written));
        }
        let written = self.write_data(&handle, &request, data, now);
        forget_told_attributes(&handle, transport);
        let Some(dropped) = self.dropped_after(&handle, &request) else {
            return Ok(Answer::Structure(written?));
        };
        match written {
            Ok(structure) => Ok(Answer::After(dropped, structure)),
            Err(refusal) => {
                // It may have left a part.
                transport.drop_pages(dropped);
                Err(refusal)
            }
        }
    }

    /// What the kernel is to drop of its cache after a write past it, where it may keep anything.
    fn dropped_after(&self, handle: &Handle, request: &WriteIn) -> Option<Dropped> {
        let forgotten = handle.kept().after_write(self.taken_over);
        let and_all = match forgotten {
            Forgotten::Nothing => return None,
            Forgotten::Written => None,
            Forgotten::WrittenAndAll(asking) => Some((Arc::clone(handle.kept()), asking)),
        };
        let notice = NotifyInodeOut {
            node: handle.id().0,
            // Beyond that there is no page.
            offset_bytes: i64::try_from(request.offset_bytes).ok()?,
            length_bytes: i64::from(request.size_bytes),
        };
        Some(Dropped { notice, and_all })
    }

    fn write_data(
        &self,
        handle: &Handle,
        request: &WriteIn,
        data: WriteSource<'_>,
        now: Time,
    ) -> Result<Structure, Refusal> {
        let (started, length_bytes) = (Instant::now(), data.len());
        // The kernel's own pages come from a mapping: it has no word of whoever changed them.
        let is_from_cache = request.write_flags & abi::WRITE_FROM_CACHE != 0;
        let is_synchronous = !is_from_cache && request.flags & open_flags::DATA_SYNC != 0;
        let is_direct = request.flags & open_flags::DIRECT != 0;
        let offset_bytes = request.offset_bytes;
        if is_from_cache || is_direct || is_synchronous {
            (self.file_system).write_from(handle, offset_bytes, data, false, now)?;
        } else {
            (self.file_system).write_behind(handle, offset_bytes, data, now)?;
        }
        handle.note_write(length_bytes, started.elapsed());
        // For a cached write the kernel asks for a sync of its own, which finds nothing to do.
        if is_synchronous {
            let data_only = request.flags & open_flags::FULL_SYNC == 0;
            self.file_system.sync_file(handle, data_only)?;
        }
        Ok(Structure::of(&WriteOut {
            size_bytes: request.size_bytes,
            padding: 0,
        }))
    }

    /// What the kernel does with the file's cache.
    fn cache_flags(&self, id: FileId) -> FsResult<u32> {
        if self.direct || self.file_system.caching(id)? == Caching::Direct {
            Ok(open_answer::DIRECT_IO | open_answer::PARALLEL_DIRECT_WRITES)
        } else {
            Ok(open_answer::KEEP_CACHE)
        }
    }

    fn opened(&self, handle: Arc<Handle>) -> FsResult<OpenOut> {
        let flags = self.cache_flags(handle.id())?;
        Ok(OpenOut {
            handle: self.handles.insert(handle),
            flags,
            padding: 0,
        })
    }

    /// `O_TRUNC`, in the same request as the open.
    fn truncate_at_open<T: Transport>(
        &self,
        id: FileId,
        open_flags: u32,
        transport: &T,
    ) -> Result<Attributes, Refusal> {
        let now = now();
        if open_flags & abi::OPEN_KILL_PRIVILEGES != 0 {
            self.kill_privileges(id, now, transport)?;
        }
        let change = AttributeChange {
            size_bytes: Some(0),
            ..AttributeChange::default()
        };
        Ok(self.file_system.set_attributes(id, &change, now)?)
    }

    pub(super) fn open<T: Transport>(&self, header: &InHeader, transport: &T) -> Served {
        let request: OpenIn = arguments(transport)?;
        let id = node(header);
        let handle = self.file_system.open_file(id)?;
        // Only where the mount was agreed on by an older program, see `negotiation`.
        if request.flags & open_flags::TRUNCATE != 0 {
            self.truncate_at_open(id, request.open_flags, transport)?;
        }
        Ok(Answer::structure(&self.opened(handle)?))
    }

    /// Opens what is there where another door made the name after the kernel looked.
    fn create_or_open<T: Transport>(
        &self,
        header: &InHeader,
        name: &OsStr,
        request: &CreateIn,
        transport: &T,
        asked: Asked<'_>,
    ) -> Result<(Attributes, Arc<Handle>), Refusal> {
        let made = self.file_system.create_file(
            node(header),
            name,
            permissions(request.mode),
            owner(header),
            asked,
        );
        match made {
            Err(FsError::Exists) if request.flags & open_flags::EXCLUSIVE == 0 => {
                let found = self.file_system.lookup(node(header), name)?;
                let handle = self.file_system.open_file(found.id)?;
                if request.flags & open_flags::TRUNCATE == 0 {
                    return Ok((found, handle));
                }
                let cut = self.truncate_at_open(found.id, request.open_flags, transport)?;
                Ok((cut, handle))
            }
            other => Ok(other?),
        }
    }

    pub(super) fn created(&self, attributes: &Attributes, handle: Arc<Handle>) -> Served {
        let open = self.opened(handle)?;
        Ok(Answer::told(
            attributes.id,
            &CreateOut {
                entry: self.entry(attributes),
                open,
            },
        ))
    }

    pub(super) fn create<T: Transport>(
        &self,
        header: &InHeader,
        transport: &T,
        asked: Asked<'_>,
    ) -> Served {
        let request: CreateIn = arguments(transport)?;
        let (name, _) = name(transport.tail(size_of::<CreateIn>()))?;
        let (attributes, handle) = self.create_or_open(header, name, &request, transport, asked)?;
        self.created(&attributes, handle)
    }

    pub(super) fn temporary_file<T: Transport>(&self, header: &InHeader, transport: &T) -> Served {
        let request: CreateIn = arguments(transport)?;
        let (attributes, handle) = self.file_system.create_unnamed(
            node(header),
            permissions(request.mode),
            owner(header),
            now(),
        )?;
        self.created(&attributes, handle)
    }

    pub(super) fn release<T: Transport>(&self, transport: &T) -> Served {
        let request: ReleaseIn = arguments(transport)?;
        self.handles.remove(request.handle);
        Ok(Answer::Done)
    }

    pub(super) fn fsync<T: Transport>(&self, header: &InHeader, transport: &T) -> Served {
        let request: FsyncIn = arguments(transport)?;
        let handle = self.handle(request.handle, node(header))?;
        let data_only = request.flags & abi::FSYNC_DATA_ONLY != 0;
        self.file_system.sync_file(&handle, data_only)?;
        Ok(Answer::Done)
    }

    pub(super) fn make_durable(&self) -> Served {
        self.file_system.make_durable()?;
        Ok(Answer::Done)
    }

    pub(super) fn sync(&self) -> Served {
        self.file_system.sync()?;
        Ok(Answer::Done)
    }

    pub(super) fn allocate<T: Transport>(&self, header: &InHeader, transport: &T) -> Served {
        let request: AllocateIn = arguments(transport)?;
        let handle = self.handle(request.handle, node(header))?;
        let now = now();
        self.kill_privileges_of_strangers(header, node(header), now, transport)?;
        self.file_system.allocate(
            &handle,
            request.offset_bytes,
            request.length_bytes,
            request.mode,
            now,
        )?;
        Ok(Answer::Done)
    }

    pub(super) fn seek<T: Transport>(&self, header: &InHeader, transport: &T) -> Served {
        let request: SeekIn = arguments(transport)?;
        let hole = match request.whence {
            SEEK_DATA => false,
            SEEK_HOLE => true,
            _ => return Err(Errno::INVAL.into()),
        };
        let handle = self.handle(request.handle, node(header))?;
        let found = self.file_system.seek(&handle, request.offset_bytes, hole)?;
        Ok(Answer::structure(&SeekOut {
            offset_bytes: found.ok_or(Errno::NXIO)?,
        }))
    }

    pub(super) fn copy_range<T: Transport>(
        &self,
        header: &InHeader,
        transport: &T,
        wide: bool,
    ) -> Served {
        let request: CopyRangeIn = arguments(transport)?;
        if request.flags != 0 {
            return Err(Errno::INVAL.into());
        }
        let from = self.handle(request.from_handle, node(header))?;
        let to = self.handle(request.to_handle, FileId(request.to_node))?;
        let now = now();
        self.kill_privileges_of_strangers(header, FileId(request.to_node), now, transport)?;
        let copied_bytes = self.file_system.copy_range(
            &from,
            request.from_offset_bytes,
            &to,
            request.to_offset_bytes,
            request.length_bytes.min(COPY_MAX_BYTES),
            now,
        )?;
        if wide {
            return Ok(Answer::structure(&CopyRange64Out { copied_bytes }));
        }
        Ok(Answer::structure(&WriteOut {
            size_bytes: u32::try_from(copied_bytes).map_err(|_| Errno::OVERFLOW)?,
            padding: 0,
        }))
    }
}
