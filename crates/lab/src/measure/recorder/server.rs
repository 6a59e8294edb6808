//! The file system of the recorder: one file a disk, and one that tells how much is recorded.
//!
//! A request is recorded before it is answered. The bytes of the disks lie in plain files beside the
//! record, never synced: after a crash nobody wants them.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{IoSlice, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result};
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, Request, WriteFlags,
};

use super::Disks;
use super::history::{Kind, Record};

/// The name of the file with the number of records so far.
pub const SEQUENCE: &str = "sequence";
const SEQUENCE_NODE: u64 = 2;
const FIRST_DISK_NODE: u64 = 3;
/// Digits and a line's end.
const SEQUENCE_BYTES: usize = 21;
/// Nothing changes behind the kernel's back.
const VALID: Duration = Duration::from_secs(3600);
/// Requests that are served at once: one that writes must not hold up one that reads.
const THREADS: usize = 2;

/// The file of a disk.
#[must_use]
pub fn disk_name(index: u32) -> String {
    format!("disk-{index}")
}

/// Serves until it is unmounted.
///
/// # Errors
/// Where it cannot be mounted, or nothing be recorded.
pub fn serve(point: &Path, record: &Path, disks: Disks) -> Result<()> {
    let contents = (0..disks.count)
        .map(|index| {
            let path = record.with_extension(disk_name(index));
            let file = File::options()
                .create_new(true)
                .read(true)
                .write(true)
                .open(&path)
                .with_context(|| format!("cannot make {}", path.display()))?;
            file.set_len(disks.size_bytes)?;
            Ok(file)
        })
        .collect::<Result<Vec<_>>>()?;
    let server = Server {
        disks,
        contents,
        journal: Mutex::new(Written {
            file: File::create_new(record)
                .with_context(|| format!("cannot make {}", record.display()))?,
            count: 0,
        }),
    };
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("spindle-lab".to_owned())];
    config.n_threads = Some(THREADS);
    fuser::mount(server, point, &config)
        .with_context(|| format!("cannot serve {}", point.display()))
}

#[derive(Debug)]
struct Written {
    file: File,
    count: u64,
}

#[derive(Debug)]
struct Server {
    disks: Disks,
    contents: Vec<File>,
    journal: Mutex<Written>,
}

impl Server {
    /// The disk behind a node, with its number.
    fn disk(&self, node: INodeNo) -> Result<(u8, &File), Errno> {
        let index = node.0.checked_sub(FIRST_DISK_NODE).ok_or(Errno::EINVAL)?;
        let number = u8::try_from(index).map_err(|_| Errno::EINVAL)?;
        let file = self
            .contents
            .get(usize::from(number))
            .ok_or(Errno::EINVAL)?;
        Ok((number, file))
    }

    /// Records and carries out as one step, so that both have the same order.
    fn record(
        &self,
        record: Record,
        bytes: &[u8],
        carry_out: impl FnOnce() -> std::io::Result<()>,
    ) -> Result<(), Errno> {
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        let header = record.header();
        let mut pieces = [IoSlice::new(&header), IoSlice::new(bytes)];
        let mut pieces = &mut pieces[..];
        let write = || {
            while !pieces.is_empty() {
                let written = journal.file.write_vectored(pieces)?;
                IoSlice::advance_slices(&mut pieces, written);
            }
            carry_out()
        };
        write().map_err(|_| Errno::EIO)?;
        journal.count += 1;
        Ok(())
    }

    fn write_to(&self, node: INodeNo, offset: u64, data: &[u8]) -> Result<u32, Errno> {
        let (disk, file) = self.disk(node)?;
        let length = u32::try_from(data.len()).map_err(|_| Errno::EINVAL)?;
        let record = Record {
            kind: Kind::Write,
            disk,
            offset,
            length,
        };
        self.record(record, data, || file.write_all_at(data, offset))?;
        Ok(length)
    }

    fn flush_of(&self, node: INodeNo) -> Result<(), Errno> {
        let (disk, _) = self.disk(node)?;
        if self.disks.swallow_flushes {
            return Ok(());
        }
        let record = Record {
            kind: Kind::Flush,
            disk,
            offset: 0,
            length: 0,
        };
        self.record(record, &[], || Ok(()))
    }

    /// Discards and zeros: the loop driver asks for both by fallocate.
    fn zero(&self, node: INodeNo, offset: u64, length: u64) -> Result<(), Errno> {
        let (disk, file) = self.disk(node)?;
        let mut from = offset;
        let end = offset + length;
        while from < end {
            let piece = u32::try_from((end - from).min(1 << 30)).map_err(|_| Errno::EINVAL)?;
            let record = Record {
                kind: Kind::Zero,
                disk,
                offset: from,
                length: piece,
            };
            self.record(record, &[], || {
                use rustix::fs::{FallocateFlags, fallocate};
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                Ok(fallocate(file, flags, from, u64::from(piece))?)
            })?;
            from += u64::from(piece);
        }
        Ok(())
    }

    fn attributes(&self, node: INodeNo) -> FileAttr {
        let is_root = node == INodeNo::ROOT;
        let size = match node.0 {
            FIRST_DISK_NODE.. => self.disks.size_bytes,
            SEQUENCE_NODE => SEQUENCE_BYTES as u64,
            _ => 0,
        };
        FileAttr {
            ino: node,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_root {
                FileType::Directory
            } else {
                FileType::RegularFile
            },
            perm: if is_root { 0o700 } else { 0o600 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

fn answered(reply: ReplyEmpty, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

impl Filesystem for Server {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let node = if name == SEQUENCE {
            Some(SEQUENCE_NODE)
        } else {
            (0..self.disks.count)
                .find(|index| name == disk_name(*index).as_str())
                .map(|index| FIRST_DISK_NODE + u64::from(index))
        };
        match node {
            Some(node) => reply.entry(&VALID, &self.attributes(INodeNo(node)), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&VALID, &self.attributes(node));
    }

    fn open(&self, _: &Request, node: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // Each reading of the sequence comes here; a disk's pages may be kept.
        let flags = if node.0 == SEQUENCE_NODE {
            FopenFlags::FOPEN_DIRECT_IO
        } else {
            FopenFlags::empty()
        };
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if node.0 == SEQUENCE_NODE {
            let journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
            let text = format!("{:>width$}\n", journal.count, width = SEQUENCE_BYTES - 1);
            let from = usize::try_from(offset).map_or(text.len(), |from| from.min(text.len()));
            reply.data(&text.as_bytes()[from..]);
            return;
        }
        let size = u64::from(size).min(self.disks.size_bytes.saturating_sub(offset));
        let read = self.disk(node).and_then(|(_, file)| {
            let mut bytes = vec![0; usize::try_from(size).map_err(|_| Errno::EINVAL)?];
            file.read_exact_at(&mut bytes, offset)
                .map_err(|_| Errno::EIO)?;
            Ok(bytes)
        });
        match read {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.write_to(node, offset, data) {
            Ok(length) => reply.written(length),
            Err(error) => reply.error(error),
        }
    }

    fn fsync(&self, _: &Request, node: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        answered(reply, self.flush_of(node));
    }

    /// A close: no flush of the disk.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fallocate(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        _: i32,
        reply: ReplyEmpty,
    ) {
        answered(reply, self.zero(node, offset, length));
    }
}
