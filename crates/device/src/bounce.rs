//! Memory of the engines' own, through which requests reach plain memory: a request that is given
//! up must leave its caller's memory alone, and some memory is none that a device takes.
//!
//! What is given back is used again, so that a transfer does not begin with the kernel making
//! pages.

use parking_lot::Mutex;

use crate::buffer::AlignedBuffer;

const CLASS_LEAST_BYTES: usize = 4096;
/// 4 KiB to 1 MiB, each twice the one before; what is longer is made for its request alone.
const CLASSES: usize = 9;
/// So many buffers of a class are kept, or this many bytes of them where that is more: a batch may have
/// a hundred short requests.
const FREE_MOST: usize = 16;
const FREE_BYTES_MOST: usize = 1 << 20;

static FREE: [Mutex<Vec<AlignedBuffer>>; CLASSES] = [const { Mutex::new(Vec::new()) }; CLASSES];

/// The class with room for so many bytes, and what it holds.
fn class_of(length_bytes: usize) -> (usize, usize) {
    let size_bytes = length_bytes.max(CLASS_LEAST_BYTES).next_power_of_two();
    let class = (size_bytes / CLASS_LEAST_BYTES).trailing_zeros();
    (usize::try_from(class).expect("below 64"), size_bytes)
}

/// Memory for a request until it is dropped; what it holds at first is not said.
#[derive(Debug)]
pub(crate) struct Bounce {
    buffer: AlignedBuffer,
    length_bytes: usize,
}

impl Bounce {
    pub(crate) fn new(length_bytes: usize) -> Self {
        let (class, size_bytes) = class_of(length_bytes);
        let free = FREE.get(class).and_then(|free| free.lock().pop());
        let buffer = free.unwrap_or_else(|| {
            let exact = class >= CLASSES;
            AlignedBuffer::zeroed(if exact { length_bytes } else { size_bytes })
        });
        Self {
            buffer,
            length_bytes,
        }
    }

    pub(crate) fn holding(bytes: &[u8]) -> Self {
        let mut bounce = Self::new(bytes.len());
        bounce.bytes_mut().copy_from_slice(bytes);
        bounce
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.length_bytes]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[..self.length_bytes]
    }

    /// A share in its memory, for a request that is given up.
    pub(crate) fn keep(&self) -> std::sync::Arc<crate::buffer::Memory> {
        self.buffer.keep()
    }
}

impl Drop for Bounce {
    fn drop(&mut self) {
        if self.buffer.is_kept() {
            return;
        }
        let (class, _) = class_of(self.buffer.len());
        if let Some(free) = FREE.get(class) {
            let mut free = free.lock();
            if free.len() < FREE_MOST.max(FREE_BYTES_MOST / self.buffer.len()) {
                free.push(std::mem::replace(
                    &mut self.buffer,
                    AlignedBuffer::zeroed(0),
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Bounce, class_of};

    #[test]
    fn every_length_has_a_class_that_holds_it_and_a_length_beyond_them_is_had_too() {
        assert_eq!(class_of(0), (0, 4096));
        assert_eq!(class_of(4096), (0, 4096));
        assert_eq!(class_of(4097), (1, 8192));
        assert_eq!(class_of(1 << 20), (8, 1 << 20));
        for length in [0, 1, 5000, 1 << 20, (1 << 20) + 4096] {
            assert_eq!(Bounce::new(length).bytes().len(), length);
        }
    }

    #[test]
    fn memory_that_a_late_request_has_is_not_used_for_another() {
        let bounce = Bounce::holding(&[7; 4096 * 8]);
        let late = bounce.keep();
        let start = bounce.bytes().as_ptr();
        drop(bounce);
        for _ in 0..20 {
            let other = Bounce::new(4096 * 8);
            assert_ne!(other.bytes().as_ptr(), start);
        }
        drop(late);
    }
}
