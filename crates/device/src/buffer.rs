//! Memory that direct I/O accepts, and that outlives whoever asked for a transfer.
//!
//! A disk may answer long after its caller has gone on. What such a late request reads or fills
//! stays with the engine: the memory of an [`AlignedBuffer`] is counted, the engine takes a share
//! in it when it gives a request up, and whoever changes the buffer afterwards gets other memory
//! with the same bytes. So no request ever sends what was not meant for it, and none fills what
//! somebody else uses by then. While all disks answer this costs one look at a counter.
#![allow(unsafe_code, reason = "aligned allocation has no safe interface")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Arc;

/// Zeroed bytes that begin at a multiple of 4,096 in memory, so that a device can fill or send
/// them without a copy.
#[derive(Debug)]
pub struct AlignedBuffer {
    memory: Arc<Memory>,
}

/// What a buffer stands on. Only [`AlignedBuffer`] gives access to the bytes.
#[derive(Debug)]
pub(crate) struct Memory {
    start: NonNull<u8>,
    length_bytes: usize,
}

impl Memory {
    const ALIGNMENT_BYTES: usize = 4096;

    fn zeroed(length_bytes: usize) -> Self {
        if length_bytes == 0 {
            return Self {
                start: NonNull::dangling(),
                length_bytes,
            };
        }
        let layout = Self::layout(length_bytes);
        // SAFETY: the layout has a size above zero; the memory belongs to this value alone until
        // its drop gives it back with the same layout.
        let raw = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(raw) else {
            handle_alloc_error(layout)
        };
        Self {
            start,
            length_bytes,
        }
    }

    fn layout(length_bytes: usize) -> Layout {
        Layout::from_size_align(length_bytes, Self::ALIGNMENT_BYTES)
            .expect("a buffer is far smaller than the address space")
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.length_bytes > 0 {
            // SAFETY: allocated in `zeroed` with this very layout, and freed once.
            unsafe { dealloc(self.start.as_ptr(), Self::layout(self.length_bytes)) }
        }
    }
}

// SAFETY: the memory is owned alone, as a `Vec<u8>` owns its own.
unsafe impl Send for Memory {}
// SAFETY: a shared reference gives no access; who has one hands it to the kernel or drops it.
unsafe impl Sync for Memory {}

impl AlignedBuffer {
    /// A buffer of `length_bytes` zeros.
    ///
    /// # Panics
    /// Where the length is beyond what any allocation can have.
    #[must_use]
    pub fn zeroed(length_bytes: usize) -> Self {
        Self {
            memory: Arc::new(Memory::zeroed(length_bytes)),
        }
    }

    /// Lends a part of the buffer to be filled by a request.
    ///
    /// # Panics
    /// Where the range is not within the buffer.
    pub fn lend(&mut self, range: Range<usize>) -> ReadPart<'_> {
        assert!(
            range.start <= range.end && range.end <= self.memory.length_bytes,
            "a part lies within its buffer"
        );
        self.own();
        ReadPart {
            memory: &self.memory,
            start_bytes: range.start,
            length_bytes: range.end - range.start,
            alone: PhantomData,
        }
    }

    /// Lends a part of the buffer to be written by requests.
    ///
    /// # Panics
    /// Where the range is not within the buffer.
    #[must_use]
    pub fn share(&self, range: Range<usize>) -> WritePart<'_> {
        assert!(
            range.start <= range.end && range.end <= self.memory.length_bytes,
            "a part lies within its buffer"
        );
        WritePart {
            memory: &self.memory,
            start_bytes: range.start,
            length_bytes: range.end - range.start,
        }
    }

    /// A share in the memory, which keeps it as it is.
    pub(crate) fn keep(&self) -> Arc<Memory> {
        Arc::clone(&self.memory)
    }

    /// Whether a late request has a share in the memory.
    pub(crate) fn is_kept(&self) -> bool {
        Arc::strong_count(&self.memory) > 1
    }

    /// Makes the memory this buffer's alone: a late request that has a share in it keeps it, and
    /// the buffer goes on with a copy. A share is taken only through a reference to the buffer or
    /// to one of its parts, of which there is none now, so the count can only sink meanwhile.
    fn own(&mut self) {
        if self.is_kept() {
            let other = Memory::zeroed(self.memory.length_bytes);
            // SAFETY: both have that length and do not overlap. Where a device fills a part of
            // the old memory at this moment, any of its bytes may be copied: the request that
            // asked for them has failed.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    self.memory.start.as_ptr(),
                    other.start.as_ptr(),
                    other.length_bytes,
                );
            }
            self.memory = Arc::new(other);
        }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        let Memory {
            start,
            length_bytes,
        } = *self.memory;
        // SAFETY: the memory has `length_bytes` initialised bytes for as long as `self` lives.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), length_bytes) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.own();
        let Memory {
            start,
            length_bytes,
        } = *self.memory;
        // SAFETY: as for `deref`; the memory is this buffer's alone, and `&mut self` makes this
        // the only reference.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), length_bytes) }
    }
}

/// A part of a buffer that a request is to fill; parts of one buffer never overlap.
#[derive(Debug)]
pub struct ReadPart<'a> {
    memory: &'a Arc<Memory>,
    start_bytes: usize,
    length_bytes: usize,
    alone: PhantomData<&'a mut [u8]>,
}

impl<'a> ReadPart<'a> {
    /// How many bytes it has.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.length_bytes
    }

    /// Whether it has none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length_bytes == 0
    }

    /// Takes the first `length_bytes` off.
    ///
    /// # Panics
    /// Where it has fewer.
    pub fn split_front(&mut self, length_bytes: usize) -> ReadPart<'a> {
        assert!(
            length_bytes <= self.length_bytes,
            "a part lies within its buffer"
        );
        let front = ReadPart {
            memory: self.memory,
            start_bytes: self.start_bytes,
            length_bytes,
            alone: PhantomData,
        };
        self.start_bytes += length_bytes;
        self.length_bytes -= length_bytes;
        front
    }

    /// Its bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the part is within memory that lives for `'a`, borrowed for it alone; parts of
        // one buffer never overlap. A part that a late request may fill has been emptied.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.length_bytes) }
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.memory.start.as_ptr().wrapping_add(self.start_bytes)
    }

    pub(crate) fn keep(&self) -> Arc<Memory> {
        Arc::clone(self.memory)
    }

    /// The request was given up: the memory is the engine's from now on, and nobody reaches it
    /// through this part any more.
    pub(crate) fn give_up(&mut self) -> Arc<Memory> {
        self.length_bytes = 0;
        Arc::clone(self.memory)
    }
}

/// A part of a buffer that requests write.
#[derive(Debug, Clone, Copy)]
pub struct WritePart<'a> {
    memory: &'a Arc<Memory>,
    start_bytes: usize,
    length_bytes: usize,
}

impl<'a> WritePart<'a> {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        let start = self.memory.start.as_ptr().wrapping_add(self.start_bytes);
        // SAFETY: the part is within initialised memory that lives for `'a`; nobody changes it
        // meanwhile, since it is borrowed from the buffer.
        unsafe { std::slice::from_raw_parts(start, self.length_bytes) }
    }

    /// A part of the part.
    ///
    /// # Panics
    /// Where the range is not within it.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> WritePart<'a> {
        assert!(
            range.start <= range.end && range.end <= self.length_bytes,
            "a part lies within its buffer"
        );
        WritePart {
            memory: self.memory,
            start_bytes: self.start_bytes + range.start,
            length_bytes: range.end - range.start,
        }
    }

    pub(crate) fn keep(&self) -> Arc<Memory> {
        Arc::clone(self.memory)
    }
}

#[cfg(test)]
mod tests {
    use super::AlignedBuffer;

    #[test]
    fn memory_that_a_late_request_has_never_changes_under_it() {
        let mut buffer = AlignedBuffer::zeroed(8192);
        buffer.fill(1);
        let late = buffer.share(4096..8192).keep();
        assert!(buffer.is_kept());
        buffer.fill(2);
        assert!(!buffer.is_kept());
        // SAFETY: `late` keeps 8,192 initialised bytes.
        let sent = unsafe { std::slice::from_raw_parts(late.start.as_ptr(), 8192) };
        assert!(sent.iter().all(|byte| *byte == 1));
        assert!(buffer.iter().all(|byte| *byte == 2));
    }

    #[test]
    fn what_a_late_request_fills_is_not_seen_by_whoever_uses_the_buffer_again() {
        let mut buffer = AlignedBuffer::zeroed(8192);
        let mut part = buffer.lend(0..8192);
        let mut answered = part.split_front(4096);
        answered.bytes().fill(1);
        let late = part.give_up();
        assert!(part.is_empty());
        buffer[4096..].fill(2);
        // SAFETY: `late` keeps 8,192 bytes, and the buffer has others since it was changed.
        unsafe { std::ptr::write_bytes(late.start.as_ptr(), 9, 8192) };
        assert!(buffer[..4096].iter().all(|byte| *byte == 1));
        assert!(buffer[4096..].iter().all(|byte| *byte == 2));
    }
}
