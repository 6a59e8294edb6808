//! SQLite's pages where its checksum extension (`cksumvfs`) is on.
//!
//! The extension takes the 8 bytes that the database reserves at the end of each page (offset 20
//! of the header says how many) for two sums of 32 bits, each of which adds the other and the
//! next little-endian word. That 8 bytes are reserved does not prove the sums: another extension
//! may use them. A first page whose sums are right does.
//!
//! A page has no position in any log, and a program without the extension leaves the sums of an
//! older version on the pages that it writes. So a page whose sums are wrong may always be the
//! newer one: that it is wrong is told, and it is never written over.

use crate::{Origin, Position, Verdict, is_zero, little};

const MAGIC: &[u8; 16] = b"SQLite format 3\0";
const PAGE_SIZE_OFFSET: usize = 16;
const RESERVED_OFFSET: usize = 20;
const SUM_BYTES: usize = 8;

/// What the header tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Database {
    /// Length of its pages: a power of two from 512 to 65,536.
    pub page_bytes: usize,
    /// Whether the first page was itself good: only then another page can be called bad.
    pub certain: bool,
}

impl Database {
    /// Reads the first bytes of a file; `None` where it is no database, or has no room for sums.
    #[must_use]
    pub fn of_head(head: &[u8]) -> Option<Self> {
        if head.len() < 512 || !head.starts_with(MAGIC) || head[RESERVED_OFFSET] != 8 {
            return None;
        }
        let field = [head[PAGE_SIZE_OFFSET], head[PAGE_SIZE_OFFSET + 1]];
        let page_bytes = match u16::from_be_bytes(field) {
            1 => 1 << 16,
            bytes => usize::from(bytes),
        };
        if page_bytes < 512 || !page_bytes.is_power_of_two() {
            return None;
        }
        let certain = head.get(..page_bytes).is_some_and(has_right_sums);
        Some(Self {
            page_bytes,
            certain,
        })
    }
}

/// What a page is worth.
#[must_use]
pub fn judge(bytes: &[u8], database: Database) -> Verdict {
    if bytes.len() != database.page_bytes {
        return Verdict::Unknown;
    }
    if is_zero(bytes) {
        return Verdict::Empty;
    }
    if has_right_sums(bytes) {
        Verdict::Good(Position::Hidden)
    } else if database.certain {
        Verdict::Bad(Origin::Here(Position::Hidden))
    } else {
        Verdict::Unknown
    }
}

/// The two sums over bytes whose count is a multiple of 8.
#[must_use]
pub fn sums(bytes: &[u8]) -> (u32, u32) {
    let (mut first, mut second) = (0_u32, 0_u32);
    for words in bytes.as_chunks::<8>().0 {
        first = first.wrapping_add(little(words, 0)).wrapping_add(second);
        second = second.wrapping_add(little(words, 4)).wrapping_add(first);
    }
    (first, second)
}

fn has_right_sums(page: &[u8]) -> bool {
    let body = page.len() - SUM_BYTES;
    sums(&page[..body]) == (little(page, body), little(page, body + 4))
}
