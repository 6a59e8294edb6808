//! InnoDB's pages, in the two formats that servers of today write.
//!
//! Each page begins with a header of 38 bytes (its number at 4, its space at 34) and ends with 8
//! more. `crc32` (MySQL, older MariaDB): the exclusive or of CRC-32C over bytes 4..26 and over
//! 38..(end - 8), stored at 0 and again at end - 8. `full_crc32` (MariaDB from 10.5 on): CRC-32C
//! over all but the last 4 bytes, stored there. Which of them a file has, and the length of its
//! pages, stands in the flags of its page 0. All integers are big-endian.
//!
//! A file may hold encrypted pages (their key's version is not 0) and pages of page compression
//! (types 34354 and 37401, 14 to 17 in MySQL; in `full_crc32` a bit of the type, which then tells
//! the length). `full_crc32` sums over what lies on the disk, so such pages are judged; of `crc32`
//! the encrypted ones are, whose sum stands at 30, and the others are unknown. In a file that can
//! hold such pages no position in the log proves anything.
//!
//! Left out, and therefore unknown: files of `ROW_FORMAT=COMPRESSED`, and pages with the checksum
//! of servers before MySQL 5.7 or with none.

use std::ops::Range;

use spindle_base::crc32c;

use crate::{Origin, Position, Verdict, big, big_long, is_zero};

/// The length of a page unless the flags say another.
pub const PAGE_BYTES: usize = 16 << 10;
/// Between these a page can be.
const PAGE_BYTES_LEAST: usize = 4 << 10;
const PAGE_BYTES_MOST: usize = 64 << 10;

const PAGE_NUMBER_OFFSET: usize = 4;
/// Where a page says its position in the log.
pub(crate) const POSITION_BYTES: Range<usize> = 16..24;
const LSN_LOW_OFFSET: usize = 20;
const TYPE_OFFSET: usize = 24;
/// Where pages of `crc32` have the version of their key, and behind it the sum over what was
/// encrypted; in `full_crc32` the version of the key is the first field.
const KEY_VERSION_OFFSET: usize = 26;
const ENCRYPTED_SUM_OFFSET: usize = 30;
const SPACE_OFFSET: usize = 34;
const BODY_OFFSET: usize = 38;
const FLAGS_OFFSET: usize = 54;
const TRAILER_BYTES: usize = 8;

/// The number of the system's space, which goes over several files and holds the doublewrite buffer.
const SYSTEM_SPACE: u32 = 0;

/// What stands in both sums of a page that was written without one.
const NO_CHECKSUM: u32 = 0xDEAD_BEEF;
/// What page 0 holds where the file's pages can be encrypted: MariaDB writes it behind the list
/// of extents, before any page is.
const ENCRYPTION_MAGIC: &[u8; 6] = b"s\x0e\x0cREt";
/// MySQL's mark of an encrypted file, in the flags.
const ENCRYPTED_FLAG: u32 = 1 << 13;
/// In the type of a page of `full_crc32`: it is compressed, and the rest of the field is its
/// length in units of 256 bytes.
const COMPRESSED_TYPE: u16 = 1 << 15;

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
    /// What the file's first page says its number is: that of the first file of the system's space
    /// is 0, and the next files' pages are counted on.
    pub first_page: u32,
    /// Whether pages can be encrypted or compressed: positions in the log prove nothing then.
    pub is_coded: bool,
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
        let number = big(head, SPACE_OFFSET);
        let first_page = big(head, PAGE_NUMBER_OFFSET);
        let flags = big(head, FLAGS_OFFSET);
        let told = Self::of_flags(flags).map(|(format, page_bytes, is_coded)| Self {
            format,
            page_bytes,
            number,
            first_page,
            is_coded,
            certain: false,
        });
        if told.is_none() && is_row_compressed(flags) {
            return None;
        }
        // The second file of the system's space has no flags: its pages are as long as usual.
        let usual = [Format::FullCrc32, Format::Crc32].map(|format| Self {
            format,
            page_bytes: PAGE_BYTES,
            number,
            first_page,
            is_coded: true,
            certain: false,
        });
        let proven = told.into_iter().chain(usual).find(|candidate| {
            let page = head.get(..candidate.page_bytes);
            page.is_some_and(|page| checked(page, candidate.format) == Some(Coding::Plain))
        });
        let mut space = proven.or(told)?;
        space.certain = proven.is_some();
        let first = head.get(..space.page_bytes).unwrap_or(head);
        space.is_coded |= first
            .windows(ENCRYPTION_MAGIC.len())
            .any(|window| window == ENCRYPTION_MAGIC);
        Some(space)
    }

    /// The format, the length of pages, and whether they can be coded.
    fn of_flags(flags: u32) -> Option<(Format, usize, bool)> {
        let (format, exponent, is_coded) = if flags & FULL_CRC32_MARKER != 0 {
            // Bits 5 to 7: the algorithm of page compression.
            (Format::FullCrc32, flags & 0xF, flags >> 5 & 7 != 0)
        } else {
            if is_row_compressed(flags) {
                return None;
            }
            // 6 to 9: the length of pages, 0 for the usual one; 16: page compression of MariaDB.
            let exponent = match flags >> 6 & 0xF {
                0 => 5,
                exponent => exponent,
            };
            let is_coded = flags >> 16 & 1 != 0 || flags & ENCRYPTED_FLAG != 0;
            (Format::Crc32, exponent, is_coded)
        };
        let page_bytes = 512_usize.checked_shl(exponent)?;
        (PAGE_BYTES_LEAST..=PAGE_BYTES_MOST)
            .contains(&page_bytes)
            .then_some((format, page_bytes, is_coded))
    }

    /// Whether these bytes can be this file's first page, damaged or not. A disk that lost all
    /// that was written to a file has the pages of an earlier one in their places.
    pub(crate) fn may_be_its_first(&self, page: &[u8]) -> bool {
        is_zero(page)
            || big(page, SPACE_OFFSET) == self.number
            || big(page, PAGE_NUMBER_OFFSET) != 0
    }

    /// Where a good page of this file says its checksum: that of the two of `crc32` which it has.
    pub(crate) fn sum_bytes(&self, page: &[u8]) -> Range<usize> {
        match self.format {
            Format::FullCrc32 => {
                let end = full_crc32_bytes(page);
                end - 4..end
            }
            Format::Crc32 if big(page, KEY_VERSION_OFFSET) != 0 => {
                ENCRYPTED_SUM_OFFSET..ENCRYPTED_SUM_OFFSET + 4
            }
            Format::Crc32 => 0..4,
        }
    }

    fn position_of(&self, page: &[u8]) -> Position {
        if self.is_coded {
            Position::Hidden
        } else {
            Position::of_header(big_long(page, POSITION_BYTES.start))
        }
    }
}

/// Whether the position in a plain page's header and the half of it at the end are of one version.
/// The sum, which is wrong, proves neither.
fn has_same_ends(page: &[u8], format: Format) -> bool {
    let from_end = match format {
        Format::FullCrc32 => TRAILER_BYTES,
        Format::Crc32 => TRAILER_BYTES / 2,
    };
    big(page, page.len() - from_end) == big(page, LSN_LOW_OFFSET)
}

/// Where the doublewrite buffer lies in the system's space: the second and the third extent, as
/// `buf_dblwr_t::create` of MariaDB (storage/innobase/buf/buf0dblwr.cc) makes it and checks it. An
/// extent (`FSP_EXTENT_SIZE`, fsp0types.h) is 1 MiB of pages of up to 16 KiB, and 64 larger ones.
#[must_use]
pub const fn doublewrite_pages(page_bytes: usize) -> Range<u64> {
    let pages_per_mib = (1 << 20) / page_bytes as u64;
    let extent = if pages_per_mib < 64 {
        64
    } else {
        pages_per_mib
    };
    extent..3 * extent
}

/// Bits 1 to 4 of the flags: the length of pages of `ROW_FORMAT=COMPRESSED`.
const fn is_row_compressed(flags: u32) -> bool {
    flags & FULL_CRC32_MARKER == 0 && flags >> 1 & 0xF != 0
}

/// How a page whose checksum is right lies on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coding {
    Plain,
    /// Encrypted or compressed.
    Coded,
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
    let bad = |origin| match space.certain {
        true => Verdict::Bad(origin),
        false => Verdict::Unknown,
    };
    if let Some(coding) = checked(bytes, space.format) {
        return match (misplaced(bytes, page, space, coding), coding) {
            (Some(Verdict::Bad(origin)), _) => bad(origin),
            (Some(verdict), _) => verdict,
            (None, Coding::Plain) => Verdict::Good(space.position_of(bytes)),
            (None, Coding::Coded) => Verdict::Good(Position::Hidden),
        };
    }
    // A compressed page of another space may lie in the doublewrite buffer.
    if is_in_doublewrite(page, space) {
        return Verdict::Unknown;
    }
    // Every program that writes a page writes its number; one bit of it may have flipped.
    let wrong_bits = (u64::from(big(bytes, PAGE_NUMBER_OFFSET)) ^ page).count_ones();
    if space.number != SYSTEM_SPACE && wrong_bits > 1 {
        return bad(Origin::Elsewhere);
    }
    match space.format {
        Format::FullCrc32 if is_coded_full_crc32(bytes) => bad(Origin::Here(Position::Hidden)),
        Format::Crc32 if may_have_no_crc32(bytes) => Verdict::Unknown,
        format if !has_same_ends(bytes, format) => bad(Origin::Here(Position::Hidden)),
        Format::FullCrc32 | Format::Crc32 => bad(Origin::Here(space.position_of(bytes))),
    }
}

/// What a page whose checksum is right is worth where it does not stand in its place.
fn misplaced(bytes: &[u8], page: u64, space: &Space, coding: Coding) -> Option<Verdict> {
    let number = u64::from(big(bytes, PAGE_NUMBER_OFFSET));
    // What is encrypted is so with the number of the space in it.
    let has_its_space = coding == Coding::Coded || big(bytes, SPACE_OFFSET) == space.number;
    if space.number != SYSTEM_SPACE {
        return if number != page {
            Some(Verdict::Bad(Origin::Elsewhere))
        } else if !has_its_space {
            // Of a file that is written over this one in place, whose first page comes last.
            Some(Verdict::Bad(Origin::Here(Position::Hidden)))
        } else {
            None
        };
    }
    let has_its_number = number == page.saturating_add(u64::from(space.first_page));
    if is_in_doublewrite(page, space) || (has_its_number && has_its_space) {
        return None;
    }
    // Servers compare the number too, but take one of 0 for a page that was never used, and no
    // space, in which old versions left anything (`buf_page_io_complete` of MySQL, buf0buf.cc). And
    // a first page may itself be that of another of the space's files.
    let is_proof = space.first_page == 0 && page != 0 && number != 0 && !has_its_number;
    Some(if is_proof {
        Verdict::Bad(Origin::Elsewhere)
    } else {
        Verdict::Unknown
    })
}

/// Whether the page lies where the system's space has its doublewrite buffer, whose pages bear the
/// numbers of those they are copies of.
fn is_in_doublewrite(page: u64, space: &Space) -> bool {
    let pages = doublewrite_pages(space.page_bytes);
    let in_space = page.saturating_add(u64::from(space.first_page));
    space.number == SYSTEM_SPACE && (pages.contains(&page) || pages.contains(&in_space))
}

/// Whether a damaged page's header says that it is of a later version than the good one, or of a
/// time that it does not say. A header of another number, or of zeros, says nothing: no server
/// wrote it here. Encrypted and compressed pages have the position where plain ones have it. With a
/// sum in the header the two are of one sector, which no disk writes in part.
pub(crate) fn may_have_newer_head(space: &Space, own: &[u8], other: &[u8]) -> bool {
    let number = |page: &[u8]| big(page, PAGE_NUMBER_OFFSET);
    let position = |page: &[u8]| big_long(page, POSITION_BYTES.start);
    space.format == Format::FullCrc32
        && number(own) == number(other)
        && !is_zero(&other[..BODY_OFFSET])
        && match (position(own), position(other)) {
            (own, 0) => own != 0,
            (own, other) => other > own,
        }
}

fn is_coded_full_crc32(page: &[u8]) -> bool {
    big(page, 0) != 0 || page_type(page) & COMPRESSED_TYPE != 0
}

/// Whether a page of `crc32` may be a sound one whose sum cannot be judged: encrypted, compressed,
/// of an older server, where the two fields differ, or of one that was told to make no sums.
fn may_have_no_crc32(page: &[u8]) -> bool {
    let trailer = page.len() - TRAILER_BYTES;
    big(page, KEY_VERSION_OFFSET) != 0
        || matches!(page_type(page), 34354 | 37401 | 14..=17)
        || big(page, 0) != big(page, trailer)
        || big(page, 0) == NO_CHECKSUM
}

/// How much of a page of `full_crc32` its sum is over, with the sum itself, by what it says.
fn full_crc32_bytes(page: &[u8]) -> usize {
    match page_type(page) {
        plain if plain & COMPRESSED_TYPE == 0 => page.len(),
        compressed => usize::from(compressed & !COMPRESSED_TYPE) << 8,
    }
}

fn page_type(page: &[u8]) -> u16 {
    u16::from_be_bytes([page[TYPE_OFFSET], page[TYPE_OFFSET + 1]])
}

/// How the page lies on the disk where its checksum and its two ends agree; `None` where they do
/// not. `page` is at least of 4 KiB.
fn checked(page: &[u8], format: Format) -> Option<Coding> {
    let end = page.len();
    let trailer = end - TRAILER_BYTES;
    let (is_right, coding) = match format {
        Format::FullCrc32 if is_coded_full_crc32(page) => {
            let length = full_crc32_bytes(page);
            let is_length = (SPACE_OFFSET + 4 + 4..=end).contains(&length);
            let is_right = is_length && crc32c(&page[..length - 4]) == big(page, length - 4);
            (is_right, Coding::Coded)
        }
        Format::FullCrc32 => {
            let is_right =
                crc32c(&page[..end - 4]) == big(page, end - 4) && has_same_ends(page, format);
            (is_right, Coding::Plain)
        }
        Format::Crc32 => {
            let sum = crc32c(&page[PAGE_NUMBER_OFFSET..26]) ^ crc32c(&page[BODY_OFFSET..trailer]);
            let is_encrypted =
                big(page, KEY_VERSION_OFFSET) != 0 && sum == big(page, ENCRYPTED_SUM_OFFSET);
            if is_encrypted && sum != big(page, 0) {
                return Some(Coding::Coded);
            }
            let is_right =
                sum == big(page, 0) && sum == big(page, trailer) && has_same_ends(page, format);
            (is_right, Coding::Plain)
        }
    };
    is_right.then_some(coding)
}
