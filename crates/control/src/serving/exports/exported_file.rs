//! A file of the group as a block device.
//!
//! Requests go through the doors of the mount's direct I/O: a write is on the disks when it is
//! answered, a flush is a sync of the file. What a mount's page cache holds of the file is written
//! back and forgotten when the export begins, and forgotten again where a reader of the mount has
//! filled it meanwhile.

use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;
use spindle_base::BLOCK_SIZE_BYTES;
use spindle_device::{ReadTarget, WriteSource};
use spindle_fs::{FileSystem, Forgotten, FsError, Handle};
use spindle_fuse::errno_of;
use spindle_nbd::{ErrorCode, Stretch, Volume, VolumeError};

use crate::machine::clock::now;
use crate::opened::files::KernelCache;

// The kernel's numbers (linux/falloc.h), which the file system takes.
const KEEP_SIZE: u32 = 0x01;
const PUNCH_HOLE: u32 = 0x02;
const ZERO_RANGE: u32 = 0x10;

/// A hole, and zeros, are made in pieces, so that other requests get their turn in between.
const HOLE_PIECE_BYTES: u64 = 256 << 20;
const ZEROS_PIECE_BYTES: u64 = 16 << 20;

/// The file.
#[derive(Debug)]
pub(super) struct ExportedFile {
    pub(super) file_system: Arc<FileSystem>,
    pub(super) handle: Arc<Handle>,
    pub(super) kernel: Arc<dyn KernelCache>,
    pub(super) is_read_only: bool,
}

impl ExportedFile {
    /// The kernel forgets what it holds of the file, where it holds anything.
    fn forget_cached(&self) {
        self.kernel.forget_attributes(&self.handle);
        // What an earlier process left in the kernel counts as well.
        match self.handle.kept().after_write(true) {
            Forgotten::Nothing => {}
            Forgotten::Written => {
                self.kernel.bytes_changed(self.handle.id());
            }
            Forgotten::WrittenAndAll(asking) => {
                if self.kernel.bytes_changed(self.handle.id()) {
                    self.handle.kept().note_forgotten(asking);
                }
            }
        }
    }

    /// As the mount does it: nothing is answered that a kill would lose, or of a group that is not ours
    /// any more. What memory alone gave has asked no disk whose the group is.
    fn check_answer(&self) -> Result<(), VolumeError> {
        let group = self.file_system.group();
        let kept = group
            .keep_what_fell_out()
            .and_then(|()| group.check_owner());
        kept.map_err(|error| told(&FsError::from(error)))
    }

    fn change_range(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        mode: u32,
        piece_bytes: u64,
    ) -> Result<(), VolumeError> {
        let mut done = Ok(());
        let end = offset_bytes + length_bytes;
        let mut at = offset_bytes;
        while at < end && done.is_ok() {
            // To the next whole piece, so that only the first begins within a block.
            let to = (at / piece_bytes + 1) * piece_bytes;
            let length = to.min(end) - at;
            let mode = mode | KEEP_SIZE;
            done = (self.file_system).allocate(&self.handle, at, length, mode, now());
            at += length;
        }
        // Also after a failure: a part may be changed.
        self.forget_cached();
        done.map_err(|error| told(&error))?;
        self.check_answer()
    }
}

impl Volume for ExportedFile {
    fn size_bytes(&self) -> u64 {
        self.handle.size_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn read_at(&self, offset_bytes: u64, out: ReadTarget<'_>) -> Result<(), VolumeError> {
        let (wanted, started) = (out.len(), Instant::now());
        let read = (self.file_system).read_into(&self.handle, offset_bytes, out);
        let read_bytes = read.map_err(|error| told(&error))?;
        self.handle.note_read(read_bytes, started.elapsed());
        if read_bytes < wanted {
            let message = "the volume has become smaller";
            return Err(VolumeError::new(ErrorCode::Invalid, message));
        }
        self.check_answer()
    }

    fn write_at(&self, offset_bytes: u64, data: WriteSource<'_>) -> Result<(), VolumeError> {
        let (length, started) = (data.len(), Instant::now());
        let written = (self.file_system).write_from(&self.handle, offset_bytes, data, false, now());
        self.forget_cached();
        written.map_err(|error| told(&error))?;
        self.handle.note_write(length, started.elapsed());
        self.check_answer()
    }

    fn flush(&self) -> Result<(), VolumeError> {
        let synced = self.file_system.sync_file(&self.handle, true);
        synced.map_err(|error| told(&error))
    }

    fn trim(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), VolumeError> {
        // Of a block of which a part is wanted nothing can be given back.
        let first = offset_bytes.next_multiple_of(BLOCK_SIZE_BYTES);
        let end = offset_bytes + length_bytes;
        let end = end - end % BLOCK_SIZE_BYTES;
        if first >= end {
            return Ok(());
        }
        self.change_range(first, end - first, PUNCH_HOLE, HOLE_PIECE_BYTES)
    }

    fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        may_be_hole: bool,
    ) -> Result<(), VolumeError> {
        if may_be_hole {
            self.change_range(offset_bytes, length_bytes, PUNCH_HOLE, HOLE_PIECE_BYTES)
        } else {
            self.change_range(offset_bytes, length_bytes, ZERO_RANGE, ZEROS_PIECE_BYTES)
        }
    }

    fn stretches(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        most: usize,
    ) -> Result<Vec<Stretch>, VolumeError> {
        let end = offset_bytes + length_bytes;
        let next = |at, is_hole| {
            let found = self.file_system.seek(&self.handle, at, is_hole);
            let found = found.map_err(|error| told(&error))?;
            Ok(found.unwrap_or(end).clamp(at, end))
        };
        let mut stretches = Vec::new();
        let mut at = offset_bytes;
        while at < end && stretches.len() < most {
            let data = next(at, false)?;
            let is_hole = data > at;
            let to = if is_hole { data } else { next(at, true)? };
            // Data that became a hole in between: it is asked again.
            if to > at {
                stretches.push(Stretch {
                    length_bytes: to - at,
                    is_hole,
                });
            }
            at = to;
        }
        self.check_answer()?;
        Ok(stretches)
    }
}

/// What a client is told of a failure.
fn told(error: &FsError) -> VolumeError {
    let code = match errno_of(error) {
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => ErrorCode::NoSpace,
        Errno::PERM | Errno::ROFS => ErrorCode::NotPermitted,
        Errno::INVAL => ErrorCode::Invalid,
        _ => ErrorCode::Io,
    };
    VolumeError::new(code, error.to_string())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use spindle_base::{AuSize, DiskName, FailureGroupName, FileId, GroupName, Redundancy, Uuid};
    use spindle_device::{DiskSlot, Disks, SharedMemory, SimulatedDisks};
    use spindle_fs::{AttributeChange, Owner};
    use spindle_group::{Group, KeptJournal, NewDisk, NewGroup, Opener, UnwrittenBlocks};

    use super::*;

    const OWNER: Owner = Owner { user: 0, group: 0 };

    #[derive(Debug)]
    struct NoKernel;

    impl KernelCache for NoKernel {
        fn write_back(&self, _id: FileId) {}

        fn bytes_changed(&self, _id: FileId) -> bool {
            true
        }

        fn attributes_changed(&self, _id: FileId) -> bool {
            true
        }

        fn entry_changed(&self, _parent: FileId, _name: &OsStr) {}
    }

    fn disks_with_a_group() -> Arc<SimulatedDisks> {
        let disks = Arc::new(SimulatedDisks::new(1, &[48 << 20]));
        let new = NewGroup {
            name: GroupName::new("DATA").unwrap(),
            uuid: Uuid([7; 16]),
            redundancy: Redundancy::External,
            au_size: AuSize::DEFAULT,
            disks: vec![NewDisk {
                slot: DiskSlot(0),
                name: DiskName::new("D0".to_owned()).unwrap(),
                failure_group: FailureGroupName::new("F0".to_owned()).unwrap(),
                uuid: Uuid([1; 16]),
            }],
            profile: "plain".to_owned(),
            created_s: 1,
        };
        Group::create(Arc::clone(&disks) as Arc<dyn Disks>, &new).unwrap();
        let group = open(&disks, None);
        FileSystem::create(&group, OWNER, now()).unwrap();
        FileSystem::open(group).unwrap().close().unwrap();
        disks
    }

    fn again(memory: &SharedMemory) -> SharedMemory {
        let descriptor = memory.descriptor().try_clone_to_owned().unwrap();
        SharedMemory::from_descriptor(descriptor).unwrap()
    }

    fn open(disks: &Arc<SimulatedDisks>, journal: Option<Arc<KeptJournal>>) -> Arc<Group> {
        let opener = Opener {
            host: "here".to_owned(),
            origin: None,
            booted_s: None,
            boot: Uuid([9; 16]),
            process_id: 1,
            now_s: 1,
            force: true,
            preferred_failure_group: None,
        };
        let disks = Arc::clone(disks) as Arc<dyn Disks>;
        let (name, slots) = (GroupName::new("DATA").unwrap(), [DiskSlot(0)]);
        let group = Group::open_kept(disks, &slots, &name, &opener, &|_| false, journal);
        Arc::new(group.unwrap())
    }

    #[test]
    fn a_write_whose_record_fell_out_of_a_full_log_is_there_after_a_kill() {
        const BLOCK: usize = 4096;
        let disks = disks_with_a_group();
        let length_bytes = KeptJournal::length_bytes(1 << 10);
        let memory = SharedMemory::create("journal", length_bytes).unwrap();
        let blocks = SharedMemory::create("blocks", UnwrittenBlocks::length_bytes(64)).unwrap();
        let journal = |memory: &SharedMemory| {
            let blocks = UnwrittenBlocks::new(again(&blocks)).unwrap();
            let journal = KeptJournal::new(again(memory)).unwrap();
            Arc::new(journal.with_blocks(blocks))
        };
        let kept = journal(&memory);
        let group = open(&disks, Some(Arc::clone(&kept)));
        let file_system = Arc::new(FileSystem::open_kept(group, false).unwrap());
        let name = OsStr::new("volume");
        let made = file_system.create_file(FileId::ROOT, name, 0o600, OWNER, now());
        let (entry, handle) = made.unwrap();
        let grown = AttributeChange {
            size_bytes: Some(1 << 20),
            ..AttributeChange::default()
        };
        (file_system.set_attributes(entry.id, &grown, now())).unwrap();
        file_system.sync_file(&handle, false).unwrap();
        while !kept.is_overflowed() {
            let change = AttributeChange {
                permissions: Some(0o600),
                ..AttributeChange::default()
            };
            (file_system.set_attributes(entry.id, &change, now())).unwrap();
        }
        let exported = ExportedFile {
            file_system,
            handle,
            kernel: Arc::new(NoKernel),
            is_read_only: false,
        };
        let data = [7; 2 * BLOCK];
        (exported.write_at(0, data.as_slice().into())).unwrap();
        // Nothing of a killed process runs any more, no drop either.
        std::mem::forget(exported);

        let next = FileSystem::open_kept(open(&disks, Some(journal(&memory))), true).unwrap();
        let handle = next.open_file(entry.id).unwrap();
        let mut read = vec![0; 2 * BLOCK];
        let read_bytes = next.read_into(&handle, 0, read.as_mut_slice().into());
        assert_eq!(read_bytes.unwrap(), 2 * BLOCK);
        assert!(read == data, "what was answered is there");
    }
}
