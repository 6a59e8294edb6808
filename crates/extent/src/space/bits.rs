//! Aligned power-of-two runs in bitmaps of words, where a set bit means used.

/// Start positions an aligned run of 2^class may have within a word, for classes 0 to 6.
const ALIGNED: [u64; 7] = [
    u64::MAX,
    0x5555_5555_5555_5555,
    0x1111_1111_1111_1111,
    0x0101_0101_0101_0101,
    0x0001_0001_0001_0001,
    0x0000_0001_0000_0001,
    0x0000_0000_0000_0001,
];

/// The bits at which an aligned run of 2^class free bits begins; class at most 6.
pub fn aligned_starts(used: u64, class: u8) -> u64 {
    let mut free = !used;
    for step in 0..class {
        free &= free >> (1_u32 << step);
    }
    free & ALIGNED[usize::from(class)]
}

/// As [`aligned_starts`], but only runs whose other half (of the next class) is partly used:
/// taking those first keeps larger runs whole.
pub fn buddy_starts(used: u64, class: u8) -> u64 {
    let starts = aligned_starts(used, class);
    if class >= 6 {
        return starts;
    }
    let larger = aligned_starts(used, class + 1);
    starts & !(larger | (larger << (1_u32 << class)))
}

/// The word and the mask within it for a run of 2^class bits at `start`, class below 6.
pub fn mask(start: usize, class: u8) -> (usize, u64) {
    let ones = (1_u64 << (1_u32 << class)) - 1;
    (start / 64, ones << (start % 64))
}

/// A number of blocks or AUs as an index: bitmaps in memory are far below any limit of `usize`.
pub fn index(number: u64) -> usize {
    usize::try_from(number).expect("a bitmap index fits the address space")
}
