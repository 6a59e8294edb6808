//! PostgreSQL's pages: 8 KiB, or what the server was built for, with a checksum of 16 bits that
//! covers the block number.
//!
//! The checksum is described in `storage/checksum_impl.h`: 32 sums run side by side over the
//! page as little-endian words, each step a multiplication by the FNV prime with the high bits
//! folded back in; two rounds of zeros mix the last words; the sums are joined by exclusive or,
//! then the block number, and the result is brought into 1..=65535. The field itself counts as
//! zero. Whether a cluster has checksums, how long its pages are and how many a segment file has
//! stands in its `global/pg_control`. Each page begins with its position in the log.

use std::ops::Range;

use spindle_base::crc32c;

use crate::{Origin, Position, Verdict, is_zero, little, little_long};

/// The usual length of a page.
pub const PAGE_BYTES: usize = 8192;
/// What a server can be built for.
const PAGE_BYTES_LEAST: u32 = 1 << 10;
const PAGE_BYTES_MOST: u32 = 32 << 10;
/// Length of one segment file, usually: the build sets it apart from that of a page.
const SEGMENT_BYTES: u32 = 1 << 30;
/// Pages of the usual length in one segment file.
pub const SEGMENT_PAGES: u32 = SEGMENT_BYTES / 8192;

/// Where a page says its position in the log.
pub(crate) const POSITION_BYTES: Range<usize> = 0..8;
/// Where it says its checksum.
pub const SUM_BYTES: Range<usize> = 8..10;
const CHECKSUM_OFFSET: usize = SUM_BYTES.start;
const UPPER_OFFSET: usize = 14;
const SIZE_AND_VERSION_OFFSET: usize = 18;
/// The version of a page's layout, in the low byte of the field.
const LAYOUT_VERSION: u16 = 4;
/// What a control file holds to prove how numbers are written, and how far it and what is read
/// here stand before the version of the checksums.
const FLOAT_FORMAT: f64 = 1_234_567.0;
const FLOAT_FORMAT_BEFORE: usize = 44;
const BLOCK_SIZE_BEFORE: usize = 36;
const SEGMENT_SIZE_BEFORE: usize = 32;

const LANES: usize = 32;
const FNV_PRIME: u32 = 16_777_619;
/// Where the 32 sums begin; part of the format.
const LANE_START: [u32; LANES] = [
    0x5B1F_36E9,
    0xB852_5960,
    0x02AB_50AA,
    0x1DE6_6D2A,
    0x79FF_467A,
    0x9BB9_F8A3,
    0x217E_7CD2,
    0x83E1_3D2C,
    0xF8D4_474F,
    0xE39E_B970,
    0x42C6_AE16,
    0x9932_16FA,
    0x7B09_3B5D,
    0x98DA_FF3C,
    0xF718_902A,
    0x0B1C_9CDB,
    0xE58F_764B,
    0x1876_36BC,
    0x5D7B_3BB1,
    0xE73D_E7DE,
    0x92BE_C979,
    0xCCA6_C0B2,
    0x304A_0979,
    0x85AA_43D4,
    0x7831_25BB,
    0x6CA8_EAA2,
    0xE407_EAC6,
    0x4B5C_FC3E,
    0x9FBF_8C76,
    0x15CA_20BE,
    0xF2CA_9FD3,
    0x959B_D756,
];

/// Whether a cluster puts checksums on its pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksums {
    /// Its control file says so.
    On,
    /// Its control file says that it does not.
    Off,
    /// Its control file was not seen. A page whose stored checksum is right is proof enough then.
    NotKnown,
}

/// What is known of the cluster that a file belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cluster {
    /// Whether its pages have checksums.
    pub checksums: Checksums,
    /// Length of a page: a power of two from 1 KiB to 32 KiB.
    pub page_bytes: usize,
    /// Pages of one segment file.
    pub segment_pages: u32,
}

impl Cluster {
    /// One as nearly every server is built.
    #[must_use]
    pub const fn usual(checksums: Checksums) -> Self {
        Self {
            checksums,
            page_bytes: PAGE_BYTES,
            segment_pages: SEGMENT_PAGES,
        }
    }

    /// The cluster of a file whose control file was not seen; its first page, if it is one, says
    /// how long it is.
    #[must_use]
    pub fn of_head(head: &[u8]) -> Self {
        let usual = Self::usual(Checksums::NotKnown);
        let field = little(head, SIZE_AND_VERSION_OFFSET) & 0xFFFF;
        let page_bytes = field & 0xFF00;
        if field & 0xFF != u32::from(LAYOUT_VERSION) || !is_page_length(page_bytes) {
            return usual;
        }
        Self {
            page_bytes: page_bytes as usize,
            segment_pages: SEGMENT_BYTES / page_bytes,
            ..usual
        }
    }

    /// Reads `global/pg_control`; `None` where it is none that can be read. The places of the
    /// fields differ between versions; the last ones are fixed from PostgreSQL 10 on: the lengths,
    /// the version of the checksums, the nonce of 32 bytes, then the checksum of all before.
    #[must_use]
    pub fn of_control(control: &[u8]) -> Option<Self> {
        let before_end = match little(control, 8) {
            1002..1800 => 36,
            // One byte more, and three to align the checksum.
            1800..1900 => 40,
            _ => return None,
        };
        let end = (128..=control.len().min(508)).step_by(4).find(|end| {
            control.len() >= end + 4 && crc32c(&control[..*end]) == little(control, *end)
        })?;
        let at = end - before_end;
        let checksums = match little(control, at) {
            0 => Checksums::Off,
            1 => Checksums::On,
            _ => Checksums::NotKnown,
        };
        let page_bytes = little(control, at - BLOCK_SIZE_BEFORE);
        let segment_pages = little(control, at - SEGMENT_SIZE_BEFORE);
        let proof = f64::from_bits(little_long(control, at - FLOAT_FORMAT_BEFORE));
        let is_proven = proof.to_bits() == FLOAT_FORMAT.to_bits();
        (is_proven && is_page_length(page_bytes) && segment_pages > 0).then_some(Self {
            checksums,
            page_bytes: page_bytes as usize,
            segment_pages,
        })
    }
}

const fn is_page_length(bytes: u32) -> bool {
    bytes.is_power_of_two() && bytes >= PAGE_BYTES_LEAST && bytes <= PAGE_BYTES_MOST
}

/// The segment that a relation's file is, from the file's name (`16384`, `16384.3`,
/// `16384_vm.1`); `None` where the name is not one of a relation's file that has pages.
#[must_use]
pub fn segment_of_name(name: &str) -> Option<u32> {
    let (relation, segment) = match name.split_once('.') {
        None => (name, 0),
        Some((relation, digits)) if is_number(digits) && !digits.starts_with('0') => {
            (relation, digits.parse().ok()?)
        }
        Some(_) => return None,
    };
    let number = match relation.split_once('_') {
        None => relation,
        Some((number, "fsm" | "vm" | "init")) => number,
        Some(_) => return None,
    };
    (is_number(number) && segment < 1 << 15).then_some(segment)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.len() <= 10 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The checksum that a page of this block number should have; its field counts as zero.
///
/// # Panics
/// Where `page` is of no length that a page can have.
#[must_use]
pub fn checksum(page: &[u8], block: u32) -> u16 {
    assert!(
        u32::try_from(page.len()).is_ok_and(is_page_length),
        "no page is of {} bytes",
        page.len()
    );
    let mut sums = LANE_START;
    let mix = |sum: u32, word: u32| {
        let mixed = sum ^ word;
        mixed.wrapping_mul(FNV_PRIME) ^ (mixed >> 17)
    };
    let (rows, _) = page.as_chunks::<{ LANES * 4 }>();
    for (number, row) in rows.iter().enumerate() {
        let mut words = [0_u32; LANES];
        for (word, bytes) in words.iter_mut().zip(row.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        if number == 0 {
            words[CHECKSUM_OFFSET / 4] &= 0xFFFF_0000;
        }
        for (sum, word) in sums.iter_mut().zip(words) {
            *sum = mix(*sum, word);
        }
    }
    for _ in 0..2 {
        for sum in &mut sums {
            *sum = mix(*sum, 0);
        }
    }
    let joined = sums.iter().fold(0, |joined, sum| joined ^ sum) ^ block;
    u16::try_from(joined % 65_535 + 1).expect("at most 65535")
}

/// What a page is worth. `page` is its number within its file, of which `segment` is the number.
#[must_use]
pub fn judge(bytes: &[u8], segment: u32, page: u64, cluster: Cluster) -> Verdict {
    let first = u64::from(segment) * u64::from(cluster.segment_pages);
    let block = first.checked_add(page).and_then(|n| u32::try_from(n).ok());
    let Some(block) = block.filter(|_| bytes.len() == cluster.page_bytes) else {
        return Verdict::Unknown;
    };
    if is_zero(bytes) {
        return Verdict::Empty;
    }
    let field = |offset: usize| u16::from_le_bytes([bytes[offset], bytes[offset + 1]]);
    // A page that is in use has an upper end; one without must be all zeros.
    let size_and_version =
        u16::try_from(cluster.page_bytes).expect("at most 32 KiB") | LAYOUT_VERSION;
    let wrong_bits = (field(SIZE_AND_VERSION_OFFSET) ^ size_and_version).count_ones();
    let is_page = wrong_bits == 0 && field(UPPER_OFFSET) != 0;
    // The halves of the position are two numbers, the high one first.
    let number = little_long(bytes, POSITION_BYTES.start).rotate_left(32);
    let position = Position::of_header(number);
    match cluster.checksums {
        Checksums::Off => Verdict::Unknown,
        _ if is_page && field(CHECKSUM_OFFSET) == checksum(bytes, block) => Verdict::Good(position),
        // With one bit of the field flipped it may be a page of this cluster all the same.
        Checksums::On if wrong_bits <= 1 => Verdict::Bad(Origin::Here(position)),
        Checksums::On => Verdict::Bad(Origin::Elsewhere),
        Checksums::NotKnown => Verdict::Unknown,
    }
}
