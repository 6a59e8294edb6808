//! Memory that direct I/O accepts.
#![allow(unsafe_code, reason = "aligned allocation has no safe interface")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Zeroed bytes that begin at a multiple of 4,096 in memory, so that a device can fill or send
/// them without a copy.
#[derive(Debug)]
pub struct AlignedBuffer {
    start: NonNull<u8>,
    length_bytes: usize,
}

impl AlignedBuffer {
    const ALIGNMENT_BYTES: usize = 4096;

    /// A buffer of `length_bytes` zeros.
    ///
    /// # Panics
    /// Where the length is beyond what any allocation can have.
    #[must_use]
    pub fn zeroed(length_bytes: usize) -> Self {
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

impl Deref for AlignedBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `start` owns `length_bytes` initialised bytes for as long as `self` lives.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length_bytes) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length_bytes) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        if self.length_bytes > 0 {
            // SAFETY: allocated in `zeroed` with this very layout, and freed once.
            unsafe { dealloc(self.start.as_ptr(), Self::layout(self.length_bytes)) }
        }
    }
}

// SAFETY: the buffer owns its memory alone, as a `Vec<u8>` does.
unsafe impl Send for AlignedBuffer {}
// SAFETY: shared references only read.
unsafe impl Sync for AlignedBuffer {}
