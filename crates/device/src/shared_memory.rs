//! Memory that outlives the process that writes it: a sealed memfd, mapped.
//!
//! Whoever holds a descriptor of it keeps it; the next process that is given the descriptor maps
//! the same bytes. It is seen as atomic words, so that sharing it needs no further promise from
//! anybody: what a killed process stored last is there, each word whole. A power cut takes all
//! of it.
#![allow(unsafe_code, reason = "mapping memory has no safe interface")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, fchmod, memfd_create, open};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate};
use rustix::io::retry_on_intr;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

const PAGE_BYTES: u64 = 4096;

/// A mapped memfd whose size never changes.
#[derive(Debug)]
pub struct SharedMemory {
    descriptor: OwnedFd,
    start: NonNull<AtomicU64>,
    words_count: usize,
}

impl SharedMemory {
    /// New zeroed memory; pages cost nothing until they are written.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn create(name: &str, length_bytes: u64) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let descriptor = memfd_create(name, flags)?;
        ftruncate(&descriptor, length_bytes)?;
        // Nobody may cut it short under a mapping.
        fcntl_add_seals(&descriptor, SealFlags::SHRINK | SealFlags::GROW)?;
        Self::from_descriptor(descriptor)
    }

    /// The memory behind a descriptor that [`SharedMemory::create`] made, here or in another
    /// process.
    ///
    /// # Errors
    /// What the kernel answered, or that the descriptor is of something else.
    pub fn from_descriptor(descriptor: OwnedFd) -> io::Result<Self> {
        Self::map(descriptor, ProtFlags::READ | ProtFlags::WRITE)
    }

    fn map(descriptor: OwnedFd, protection: ProtFlags) -> io::Result<Self> {
        let wrong = || io::Error::new(io::ErrorKind::InvalidInput, "no sealed shared memory");
        if !fcntl_get_seals(&descriptor)?.contains(SealFlags::SHRINK) {
            return Err(wrong());
        }
        let length_bytes = usize::try_from(fstat(&descriptor)?.st_size).map_err(|_| wrong())?;
        let words_count = length_bytes / size_of::<AtomicU64>();
        if words_count == 0 {
            return Err(wrong());
        }
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory of this
        // process. It belongs to this value until its drop unmaps it; the seal keeps the file as
        // long as the mapping, so that no access faults.
        let raw = unsafe {
            mmap(
                std::ptr::null_mut(),
                length_bytes,
                protection,
                MapFlags::SHARED,
                &descriptor,
                0,
            )?
        };
        let start = NonNull::new(raw.cast::<AtomicU64>()).ok_or_else(wrong)?;
        Ok(Self {
            descriptor,
            start,
            words_count,
        })
    }

    /// A descriptor of the same memory that gives nobody more than reading, to be given to a process
    /// that shall not store into it.
    ///
    /// From now on the file's mode forbids to open the memory anew for writing, which `/proc` would
    /// let others do. A process of the same user could change the mode: this is against mistakes.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn read_only_descriptor(&self) -> io::Result<OwnedFd> {
        fchmod(&self.descriptor, Mode::RUSR)?;
        let path = format!("/proc/self/fd/{}", self.descriptor.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(retry_on_intr(|| open(&path, flags, Mode::empty()))?)
    }

    /// The same memory as a process sees it that may only read it.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn read_only(&self) -> io::Result<ReadOnlyMemory> {
        ReadOnlyMemory::from_descriptor(self.read_only_descriptor()?)
    }

    /// The descriptor, to be given to another process.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// All of it.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: `start` is page-aligned and has `words_count` words, mapped until the drop.
        // Every bit pattern is a word, and others that map the same memory see atomics too.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words_count) }
    }

    /// Gets the pages of these words from the machine, where they are not there yet: until then the
    /// first store into a page kills the process where the machine has none to give.
    ///
    /// # Errors
    /// What the kernel answered: it has none.
    pub fn reserve(&self, first_word: usize, end_word: usize) -> io::Result<()> {
        let from = first_word as u64 * 8 / PAGE_BYTES * PAGE_BYTES;
        let to = (end_word as u64 * 8).next_multiple_of(PAGE_BYTES);
        if from < to {
            let flags = FallocateFlags::KEEP_SIZE;
            retry_on_intr(|| fallocate(&self.descriptor, flags, from, to - from))?;
        }
        Ok(())
    }

    /// Gives the pages between these words back to the machine; they read as zeros then. What is
    /// not a whole page stays as it is.
    pub fn release(&self, first_word: usize, end_word: usize) {
        let from = (first_word as u64 * 8).next_multiple_of(PAGE_BYTES);
        let to = (end_word as u64 * 8) / PAGE_BYTES * PAGE_BYTES;
        if from < to {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // Memory that stays in use is no harm.
            let _ = fallocate(&self.descriptor, flags, from, to - from);
        }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: mapped in `from_descriptor` with this very length, unmapped once, and no slice
        // of it outlives `self`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.words_count * 8) };
    }
}

// SAFETY: the mapping belongs to this value, and is reached through atomics only.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

/// A mapped memfd that this process cannot store into, and others may at any moment.
#[derive(Debug)]
pub struct ReadOnlyMemory(SharedMemory);

impl ReadOnlyMemory {
    /// The memory behind a descriptor of [`SharedMemory::read_only_descriptor`], or any other of the
    /// memory.
    ///
    /// # Errors
    /// As [`SharedMemory::from_descriptor`].
    pub fn from_descriptor(descriptor: OwnedFd) -> io::Result<Self> {
        SharedMemory::map(descriptor, ProtFlags::READ).map(Self)
    }

    /// The descriptor, to be given to another process.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.descriptor()
    }

    /// What is in a word; `None` where there are not so many. What hangs on the word is seen behind an
    /// acquire fence: in memory that cannot be written the language allows no stronger load.
    #[must_use]
    pub fn load(&self, word: usize) -> Option<u64> {
        Some(self.0.words().get(word)?.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::{ReadOnlyMemory, SharedMemory};
    use std::os::fd::AsFd;
    use std::sync::atomic::Ordering;

    #[test]
    fn what_one_mapping_stores_another_of_the_same_descriptor_finds() {
        let memory = SharedMemory::create("test", 1 << 20).unwrap();
        memory.words()[77].store(5, Ordering::Release);
        let second = memory.descriptor().try_clone_to_owned().unwrap();
        let second = SharedMemory::from_descriptor(second).unwrap();
        drop(memory);
        assert_eq!(second.words().len(), 1 << 17);
        assert_eq!(second.words()[77].load(Ordering::Acquire), 5);
        second.release(0, 1 << 17);
        assert_eq!(second.words()[77].load(Ordering::Acquire), 0);
    }

    #[test]
    fn what_is_reserved_is_there_before_anybody_stores_into_it() {
        let memory = SharedMemory::create("test", 1 << 20).unwrap();
        let length_bytes = || rustix::fs::fstat(memory.descriptor()).unwrap().st_blocks * 512;
        assert_eq!(length_bytes(), 0);
        // The last word of one page and the first one of the page after the next.
        memory.reserve(511, 1025).unwrap();
        assert_eq!(length_bytes(), 3 * 4096);
        memory.words()[600].store(7, Ordering::Relaxed);
        memory.reserve(0, 1025).unwrap();
        assert_eq!(memory.words()[600].load(Ordering::Relaxed), 7);
        assert_eq!(length_bytes(), 3 * 4096);
    }

    #[test]
    fn who_may_only_read_sees_each_store_and_cannot_map_the_memory_for_writing() {
        let memory = SharedMemory::create("test", 1 << 20).unwrap();
        let descriptor = memory.read_only_descriptor().unwrap();
        let other = descriptor.try_clone().unwrap();
        assert!(SharedMemory::from_descriptor(other).is_err());
        let seen = ReadOnlyMemory::from_descriptor(descriptor).unwrap();
        assert_eq!(seen.load(77), Some(0));
        memory.words()[77].store(5, Ordering::Relaxed);
        assert_eq!(seen.load(77), Some(5));
        assert_eq!(
            (seen.load((1 << 17) - 1), seen.load(1 << 17)),
            (Some(0), None)
        );
        // Nobody opens it anew for writing, and the owner's next process still maps it so.
        let mode = rustix::fs::fstat(memory.descriptor()).unwrap().st_mode;
        assert_eq!(mode & 0o777, 0o400);
        let again = memory.descriptor().try_clone_to_owned().unwrap();
        SharedMemory::from_descriptor(again).unwrap().words()[77].store(6, Ordering::Relaxed);
        assert_eq!(seen.load(77), Some(6));
    }

    #[test]
    fn a_descriptor_of_something_else_is_refused() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let other = file.as_fd().try_clone_to_owned().unwrap();
        assert!(SharedMemory::from_descriptor(other).is_err());
        let other = file.as_fd().try_clone_to_owned().unwrap();
        assert!(ReadOnlyMemory::from_descriptor(other).is_err());
    }
}
