//! One AU that small extents share, in aligned power-of-two runs of blocks.

use super::bits;

/// A bitmap of the AU's blocks; the buddies are implied by alignment.
#[derive(Debug)]
pub struct SharedAu {
    used: Box<[u64]>,
    used_blocks: u32,
}

impl SharedAu {
    /// An AU of `blocks` blocks (at least 256), all free.
    pub fn new(blocks: u64) -> Self {
        Self {
            used: vec![0; bits::index(blocks / 64)].into_boxed_slice(),
            used_blocks: 0,
        }
    }

    pub const fn is_empty(&self) -> bool {
        self.used_blocks == 0
    }

    pub fn free_blocks(&self) -> u64 {
        self.used.len() as u64 * 64 - u64::from(self.used_blocks)
    }

    /// The class of the largest aligned free run.
    pub fn largest_class(&self) -> Option<u8> {
        let mut class = u8::try_from((self.used.len() * 64).ilog2()).expect("a small logarithm");
        loop {
            if self.find(class).is_some() {
                return Some(class);
            }
            class = class.checked_sub(1)?;
        }
    }

    /// The lowest aligned free run of 2^class blocks, one beside used blocks first.
    fn find(&self, class: u8) -> Option<usize> {
        if class >= 6 {
            let words = 1_usize << (class - 6);
            return self
                .used
                .chunks_exact(words)
                .position(|chunk| chunk.iter().all(|word| *word == 0))
                .map(|chunk| chunk * words * 64);
        }
        let first = |starts: fn(u64, u8) -> u64| {
            self.used.iter().enumerate().find_map(|(word, used)| {
                let found = starts(*used, class);
                (found != 0).then(|| word * 64 + found.trailing_zeros() as usize)
            })
        };
        first(bits::buddy_starts).or_else(|| first(bits::aligned_starts))
    }

    /// Takes a run of 2^class blocks; its offset in blocks.
    pub fn allocate(&mut self, class: u8) -> Option<u64> {
        let start = self.find(class)?;
        self.set(start, class);
        Some(start as u64)
    }

    /// Whether any, and whether every block of the run is used.
    pub fn usage(&self, start: u64, class: u8) -> (bool, bool) {
        let start = bits::index(start);
        if class >= 6 {
            let words = &self.used[start / 64..start / 64 + (1 << (class - 6))];
            return (
                words.iter().any(|word| *word != 0),
                words.iter().all(|word| *word == u64::MAX),
            );
        }
        let (word, mask) = bits::mask(start, class);
        let found = self.used[word] & mask;
        (found != 0, found == mask)
    }

    fn set(&mut self, start: usize, class: u8) {
        self.used_blocks += 1 << class;
        if class >= 6 {
            self.used[start / 64..start / 64 + (1 << (class - 6))].fill(u64::MAX);
        } else {
            let (word, mask) = bits::mask(start, class);
            self.used[word] |= mask;
        }
    }

    /// Takes exactly this run, which must be free.
    pub fn take(&mut self, start: u64, class: u8) {
        self.set(bits::index(start), class);
    }

    /// Frees this run, which must be used.
    pub fn free(&mut self, start: u64, class: u8) {
        assert!(self.usage(start, class).1, "a freed run was in use");
        self.used_blocks -= 1 << class;
        let start = bits::index(start);
        if class >= 6 {
            self.used[start / 64..start / 64 + (1 << (class - 6))].fill(0);
        } else {
            let (word, mask) = bits::mask(start, class);
            self.used[word] &= !mask;
        }
    }
}
