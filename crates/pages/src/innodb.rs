//! InnoDB's pages, in the two formats that servers of today write.
//!
//! Each page begins with a header of 38 bytes (its number at 4, its space at 34) and ends with 8
//! more. `crc32` (MySQL, older MariaDB): the exclusive or of CRC-32C over bytes 4..26 and over
//! 38..(end - 8), stored at 0 and again at end - 8. `full_crc32` (MariaDB from 10.5 on): CRC-32C
//! over all but the last 4 bytes, stored there. Which of them a file has, and the length of its
//! pages, stands in the flags of its page 0. All integers are big-endian.
//!
//! Left out, and therefore unknown: compressed pages (`ROW_FORMAT=COMPRESSED`, page
//! compression), and pages with the checksum of servers before MySQL 5.7.

use spindle_base::crc32c;

use crate::{Verdict, big, is_zero};

/// The length of a page unless the flags say another.
pub const PAGE_BYTES: usize = 16 << 10;
/// Between these a page can be.
const PAGE_BYTES_LEAST: usize = 4 << 10;
const PAGE_BYTES_MOST: usize = 64 << 10;

const PAGE_NUMBER_OFFSET: usize = 4;
const LSN_LOW_OFFSET: usize = 20;
const SPACE_OFFSET: usize = 34;
const BODY_OFFSET: usize = 38;
const FLAGS_OFFSET: usize = 54;
const TRAILER_BYTES: usize = 8;

/// Marks the flags of `full_crc32`.
const FULL_CRC32_MARKER: u32 = 1 << 4;

/// How the pages of a file carry their checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Over most of the page, twice on it.
    Crc32,
    /// Over all of the page, in its last four bytes.
    FullCrc32,
}

/// What page 0 tells of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// The format of the pages.
    pub format: Format,
    /// Their length.
    pub page_bytes: usize,
    /// The number of the tablespace; 0 is the system's.
    pub number: u32,
    /// Whether page 0 was itself good: only then another page can be called bad.
    pub certain: bool,
}

impl Space {
    /// Reads page 0, the first bytes of a file; `None` where its pages cannot be judged.
    #[must_use]
    pub fn of_head(head: &[u8]) -> Option<Self> {
        if head.len() < PAGE_BYTES_LEAST || is_zero(&head[..PAGE_BYTES_LEAST]) {
            return None;
        }
        let space = Self::of_flags(big(head, FLAGS_OFFSET), big(head, SPACE_OFFSET));
        // The second file of the system's space has no flags: its pages are as long as usual.
        let usual = [Format::FullCrc32, Format::Crc32].map(|format| Self {
            format,
            page_bytes: PAGE_BYTES,
            number: big(head, SPACE_OFFSET),
            certain: false,
        });
        let proven = space.into_iter().chain(usual).find(|candidate| {
            let page = head.get(..candidate.page_bytes);
            page.is_some_and(|page| has_right_checksum(page, candidate.format))
        });
        match proven {
            Some(space) => Some(Self {
                certain: true,
                ..space
            }),
            None => space,
        }
    }

    fn of_flags(flags: u32, number: u32) -> Option<Self> {
        let (format, exponent) = if flags & FULL_CRC32_MARKER != 0 {
            // Bits 5 to 7: the algorithm of page compression.
            let compressed = flags >> 5 & 7 != 0;
            (Format::FullCrc32, (!compressed).then_some(flags & 0xF)?)
        } else {
            // Bits 1 to 4: the length of compressed pages; 6 to 9: the length of pages, 0 for
            // the usual one; 16: page compression of MariaDB.
            let compressed = flags >> 1 & 0xF != 0 || flags >> 16 & 1 != 0;
            let exponent = (!compressed).then_some(flags >> 6 & 0xF)?;
            (Format::Crc32, if exponent == 0 { 5 } else { exponent })
        };
        let page_bytes = 512_usize.checked_shl(exponent)?;
        (PAGE_BYTES_LEAST..=PAGE_BYTES_MOST)
            .contains(&page_bytes)
            .then_some(Self {
                format,
                page_bytes,
                number,
                certain: false,
            })
    }
}

/// What a page is worth that should be page `page` of its file.
#[must_use]
pub fn judge(bytes: &[u8], page: u64, space: &Space) -> Verdict {
    if bytes.len() != space.page_bytes {
        return Verdict::Unknown;
    }
    if is_zero(bytes) {
        return Verdict::Empty;
    }
    let bad = if space.certain {
        Verdict::Bad
    } else {
        Verdict::Unknown
    };
    if has_right_checksum(bytes, space.format) {
        // The system's space goes over several files and holds the doublewrite buffer, whose
        // pages bear the numbers of those they are copies of.
        let in_place = space.number == 0
            || (u64::from(big(bytes, PAGE_NUMBER_OFFSET)) == page
                && big(bytes, SPACE_OFFSET) == space.number);
        return if in_place { Verdict::Good } else { bad };
    }
    match space.format {
        // A compressed page of another space may lie in the doublewrite buffer.
        _ if space.number == 0 && (64..192).contains(&page) => Verdict::Unknown,
        Format::FullCrc32 => bad,
        // Where the two fields differ they may be those of an older server.
        Format::Crc32 if big(bytes, 0) != big(bytes, bytes.len() - TRAILER_BYTES) => {
            Verdict::Unknown
        }
        // What a server writes that was told to make no checksums.
        Format::Crc32 if big(bytes, 0) == 0xDEAD_BEEF => Verdict::Unknown,
        Format::Crc32 => bad,
    }
}

/// Whether the checksum and the two ends of the page agree. `page` is at least of 4 KiB.
fn has_right_checksum(page: &[u8], format: Format) -> bool {
    let end = page.len();
    let trailer = end - TRAILER_BYTES;
    match format {
        Format::FullCrc32 => {
            crc32c(&page[..end - 4]) == big(page, end - 4)
                && big(page, trailer) == big(page, LSN_LOW_OFFSET)
        }
        Format::Crc32 => {
            let sum = crc32c(&page[PAGE_NUMBER_OFFSET..26]) ^ crc32c(&page[BODY_OFFSET..trailer]);
            sum == big(page, 0)
                && sum == big(page, trailer)
                && big(page, end - 4) == big(page, LSN_LOW_OFFSET)
        }
    }
}
