//! A file's bytes as they may be after a power cut: a base and the writes since.
//!
//! Every eight bytes written say which file, which write and which place they are of, so that
//! stale or misplaced bytes name where they come from.

mod undecided;

use std::ops::Range;

use undecided::Undecided;

/// The unit that a power cut never tears.
pub(crate) const SECTOR_BYTES: usize = 512;

const WORD_BYTES: u64 = 8;
/// What the disks are given at once at least.
const BLOCK_BYTES: u64 = 4096;

/// The bytes that write number `version` to the file `tag` puts at `offset_bytes`.
pub(crate) fn described_bytes(tag: u16, version: u16, offset_bytes: u64, length: usize) -> Vec<u8> {
    let prefix = u64::from(tag) << 48 | u64::from(version) << 32;
    let first_word = offset_bytes / WORD_BYTES;
    let skip = index(offset_bytes % WORD_BYTES);
    let words = (skip + length).div_ceil(8);
    let mut bytes = Vec::with_capacity(words * 8);
    for word in first_word..first_word + words as u64 {
        bytes.extend_from_slice(&(prefix | (word & 0xFFFF_FFFF)).to_le_bytes());
    }
    bytes.drain(..skip);
    bytes.truncate(length);
    bytes
}

/// Says what the first whole word of `sector`, found at `offset_bytes`, is.
pub(crate) fn describe(sector: &[u8]) -> String {
    let Some(bytes) = sector.first_chunk::<8>() else {
        return format!("{sector:?}");
    };
    match u64::from_le_bytes(*bytes) {
        0 => "zeros".to_owned(),
        word => format!(
            "bytes of file {} version {} offset {}",
            word >> 48,
            word >> 32 & 0xFFFF,
            (word & 0xFFFF_FFFF) * WORD_BYTES
        ),
    }
}

/// What one operation did to a file's bytes.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) operation: u64,
    pub(crate) offset_bytes: u64,
    pub(crate) change: ByteChange,
}

#[derive(Debug, Clone)]
pub(crate) enum ByteChange {
    Write(Vec<u8>),
    /// This many zeros; `u64::MAX` is to the end of everything.
    Zero(u64),
}

impl Event {
    fn end_bytes(&self) -> u64 {
        let length = match &self.change {
            ByteChange::Write(data) => data.len() as u64,
            ByteChange::Zero(length) => *length,
        };
        self.offset_bytes.saturating_add(length)
    }

    /// Applies the part of the change that meets `bytes`, which begin at `start` of the file and
    /// keep their length.
    fn apply_within(&self, start: u64, bytes: &mut [u8]) {
        let from = self.offset_bytes.max(start);
        let to = self.end_bytes().min(start + bytes.len() as u64);
        if from >= to {
            return;
        }
        let target = &mut bytes[index(from - start)..index(to - start)];
        match &self.change {
            ByteChange::Write(data) => {
                let skip = index(from - self.offset_bytes);
                target.copy_from_slice(&data[skip..skip + target.len()]);
            }
            ByteChange::Zero(_) => target.fill(0),
        }
    }
}

/// A size the file had, from which operation on, and whether that operation was to set it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SizeChange {
    pub(crate) operation: u64,
    pub(crate) size_bytes: u64,
    pub(crate) is_truncation: bool,
}

/// The bytes of one file and how they came to be.
#[derive(Debug, Clone)]
pub(crate) struct Content {
    /// What names this file in its bytes.
    pub(crate) tag: u16,
    /// As of the oldest state that a power cut may bring back.
    base: Vec<u8>,
    events: Vec<Event>,
    /// The first is as of the base.
    sizes: Vec<SizeChange>,
    /// As of now.
    current: Vec<u8>,
    /// The newest operation whose bytes must survive.
    pub(crate) synced_at: u64,
    /// A write failed with more than the redundancy gone: nothing is known of the bytes.
    pub(crate) is_lost: bool,
    /// What a sync has told as lost and nobody has written again.
    undecided: Undecided,
    /// Behind the size, in its last block, what a write put there whose size was lost may be on the
    /// disks. Whoever makes the file larger zeroes it; where that is told as lost it is seen.
    behind_end: Option<Range<u64>>,
    /// What of it may be seen, since the operation that told so, until it is written again.
    uncovered: Option<(u64, Range<u64>)>,
}

impl Content {
    pub(crate) fn new(tag: u16, operation: u64, bytes: Vec<u8>) -> Self {
        Self {
            tag,
            events: Vec::new(),
            sizes: vec![SizeChange {
                operation,
                size_bytes: bytes.len() as u64,
                is_truncation: true,
            }],
            current: bytes.clone(),
            base: bytes,
            synced_at: operation,
            is_lost: false,
            undecided: Undecided::default(),
            behind_end: None,
            uncovered: None,
        }
    }

    /// An opening showed these bytes of what was `self`.
    pub(crate) fn adopted(&self, operation: u64, bytes: Vec<u8>) -> Self {
        let size_bytes = bytes.len() as u64;
        let was_larger = (self.sizes.iter()).any(|size| size.size_bytes > size_bytes);
        let rest = size_bytes..size_bytes.next_multiple_of(BLOCK_BYTES);
        Self {
            behind_end: (was_larger && !rest.is_empty()).then_some(rest),
            ..Self::new(self.tag, operation, bytes)
        }
    }

    /// A sync of the file has answered that what was written since its last good one may be lost.
    pub(crate) fn tell_of_loss(&mut self, operation: u64) {
        let synced_at = self.synced_at;
        let lost_from = (self.events).partition_point(|event| event.operation <= synced_at);
        let (certain, lost) = self.events.split_at(lost_from);
        let mut held = self.base.clone();
        held.resize(held.len().max(self.current.len()), 0);
        for event in certain {
            event.apply_within(0, &mut held);
        }
        let length = self.current.len();
        self.undecided.tell(operation, &held, lost, length);
        let has_grown =
            |rest: &Range<u64>| (self.sizes.iter()).any(|size| size.size_bytes > rest.start);
        if self.behind_end.as_ref().is_some_and(has_grown) {
            self.uncovered = self.behind_end.take().map(|rest| (operation, rest));
        }
    }

    /// Whether the sector shows what was known, but for bytes that were behind the end: zeros, or
    /// what a write of this file put in this place.
    fn shows_what_was_behind(&self, start: u64, found: &[u8], known: &[u8]) -> bool {
        let Some((_, rest)) = &self.uncovered else {
            return false;
        };
        (start..)
            .zip(found.iter().zip(known))
            .all(|(at, (byte, known))| {
                let written = described_bytes(self.tag, 0, at, 1);
                let is_of_version = matches!(at % WORD_BYTES, 4 | 5);
                byte == known
                    || (rest.contains(&at)
                        && (*byte == 0 || is_of_version || [*byte] == written[..]))
            })
    }

    /// Whether a sync told of a loss and some of it was not written again.
    pub(crate) fn is_undecided(&self) -> bool {
        !self.undecided.is_empty() || self.uncovered.is_some()
    }

    /// Whether a read at `offset_bytes` may give this.
    pub(crate) fn may_read(&self, offset_bytes: u64, found: &[u8]) -> bool {
        let mut at = 0;
        while at < found.len() {
            let start = offset_bytes + at as u64;
            let until = SECTOR_BYTES - index(start) % SECTOR_BYTES;
            let piece = &found[at..(at + until).min(found.len())];
            let is_right = self.expected(start, piece.len()) == piece
                || self
                    .undecided
                    .may_show(start, piece, &self.events, u64::MAX)
                || self.shows_what_was_behind(start, piece, self.expected(start, piece.len()));
            if !is_right {
                return false;
            }
            at += piece.len();
        }
        true
    }

    /// What was written since, from either end of it on, is durable now.
    fn cover_again(&mut self) {
        let Some((told_at, mut rest)) = self.uncovered.take() else {
            return;
        };
        for event in self.events.iter().filter(|event| event.operation > told_at) {
            let (from, to) = (event.offset_bytes, event.end_bytes());
            if from <= rest.start {
                rest.start = rest.start.max(to);
            } else if to >= rest.end {
                rest.end = rest.end.min(from);
            }
        }
        self.uncovered = (!rest.is_empty()).then_some((told_at, rest));
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.current.len() as u64
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.current
    }

    /// What a read of this range must give.
    pub(crate) fn expected(&self, offset_bytes: u64, length: usize) -> &[u8] {
        let from = index(offset_bytes.min(self.size_bytes()));
        let to = (from + length).min(self.current.len());
        &self.current[from..to]
    }

    pub(crate) fn write(&mut self, operation: u64, offset_bytes: u64, data: Vec<u8>) {
        let end = index(offset_bytes) + data.len();
        if end > self.current.len() {
            self.resize(operation, end as u64, false);
        }
        self.push(operation, offset_bytes, ByteChange::Write(data));
    }

    pub(crate) fn zero(&mut self, operation: u64, offset_bytes: u64, length_bytes: u64) {
        self.push(operation, offset_bytes, ByteChange::Zero(length_bytes));
    }

    /// A new size; where it is smaller, what lies beyond becomes zeros.
    pub(crate) fn resize(&mut self, operation: u64, size_bytes: u64, is_truncation: bool) {
        if size_bytes < self.size_bytes() {
            self.push(operation, size_bytes, ByteChange::Zero(u64::MAX));
        }
        self.current.resize(index(size_bytes), 0);
        self.sizes.push(SizeChange {
            operation,
            size_bytes,
            is_truncation,
        });
    }

    fn push(&mut self, operation: u64, offset_bytes: u64, change: ByteChange) {
        let event = Event {
            operation,
            offset_bytes,
            change,
        };
        event.apply_within(0, &mut self.current);
        self.events.push(event);
    }

    /// Everything up to now has become certain.
    pub(crate) fn settle(&mut self, operation: u64) {
        if !self.events.is_empty() || self.sizes.len() > 1 {
            if self.sizes.len() > 1 {
                // The zeros of whoever made it larger are durable.
                self.behind_end = None;
            }
            self.cover_again();
            if self.is_undecided() {
                self.undecided
                    .settle(operation, &self.events, &self.current);
            }
            self.base.clone_from(&self.current);
            self.events.clear();
            self.sizes.clear();
            self.sizes.push(SizeChange {
                operation,
                size_bytes: self.current.len() as u64,
                is_truncation: true,
            });
        }
        self.synced_at = operation;
    }

    /// Whether the file may have this size in the state after `candidate`: one of those since
    /// its last sync or truncation, because sizes that writes move are committed lazily.
    pub(crate) fn may_have_size(&self, candidate: u64, size_bytes: u64) -> bool {
        let truncated = self
            .sizes
            .iter()
            .filter(|size| size.is_truncation && size.operation <= candidate)
            .map(|size| size.operation)
            .max()
            .unwrap_or(0);
        let oldest = truncated.max(self.synced_at);
        let newest = candidate.max(oldest);
        let mut size_then = None;
        for size in &self.sizes {
            if size.operation <= oldest {
                size_then = Some(size.size_bytes);
            } else if size.operation <= newest && size.size_bytes == size_bytes {
                return true;
            }
        }
        size_then == Some(size_bytes)
    }

    /// Compares what was found with what may be there in the state after `candidate`.
    pub(crate) fn check(&self, candidate: u64, found: &[u8]) -> Result<(), String> {
        if self.is_lost {
            return Ok(());
        }
        let certain = candidate.max(self.synced_at);
        let mut expected = vec![0; found.len()];
        let known = self.base.len().min(expected.len());
        expected[..known].copy_from_slice(&self.base[..known]);
        let later_at = self
            .events
            .partition_point(|event| event.operation <= certain);
        let (earlier, later) = self.events.split_at(later_at);
        for event in earlier {
            event.apply_within(0, &mut expected);
        }
        if expected == found {
            return Ok(());
        }
        let sectors = expected
            .chunks_mut(SECTOR_BYTES)
            .zip(found.chunks(SECTOR_BYTES));
        for (number, (sector, found)) in sectors.enumerate() {
            if sector == found {
                continue;
            }
            let start = (number * SECTOR_BYTES) as u64;
            let first = sector.to_vec();
            let allowed = later.iter().any(|event| {
                event.apply_within(start, sector);
                sector == found
            });
            let allowed = allowed
                || (self.undecided).may_show(start, found, &self.events, certain)
                || self.shows_what_was_behind(start, found, sector);
            if !allowed {
                return Err(format!(
                    "offset {start}: found {}, expected {} (certain since operation {certain}) or one of {} later writes",
                    describe(found),
                    describe(&first),
                    later
                        .iter()
                        .filter(
                            |event| event.offset_bytes < start + 512 && event.end_bytes() > start
                        )
                        .count(),
                ));
            }
        }
        Ok(())
    }
}

pub(crate) fn index(bytes: u64) -> usize {
    usize::try_from(bytes).expect("simulated files are far smaller than the address space")
}

#[cfg(test)]
mod tests {
    use super::{Content, described_bytes};

    #[test]
    fn bytes_at_any_offset_say_the_same_as_the_whole() {
        let whole = described_bytes(3, 7, 0, 4096);
        for (from, to) in [(0_u16, 8), (3, 30), (511, 514), (4000, 4096)] {
            let begin = usize::from(from);
            assert_eq!(
                described_bytes(3, 7, u64::from(from), to - begin),
                whole[begin..to]
            );
        }
    }

    #[test]
    fn a_sector_may_be_as_before_or_after_each_later_write_and_nothing_else() {
        let mut content = Content::new(1, 1, vec![1; 1024]);
        content.write(2, 0, vec![2; 512]);
        content.write(3, 256, vec![3; 512]);
        let mut both = vec![2; 256];
        both.extend([3; 512]);
        both.extend([1; 256]);
        for (candidate, found, allowed) in [
            (1, vec![1; 1024], true),
            (1, both.clone(), true),
            (2, vec![1; 1024], false),
            (3, both, true),
            (1, vec![4; 1024], false),
        ] {
            assert_eq!(content.check(candidate, &found).is_ok(), allowed);
        }
    }

    #[test]
    fn after_a_sync_older_bytes_and_sizes_are_no_longer_allowed() {
        let mut content = Content::new(1, 1, Vec::new());
        content.write(2, 0, vec![2; 512]);
        assert!(content.may_have_size(2, 0) && content.may_have_size(2, 512));
        assert!(!content.may_have_size(1, 512));
        content.synced_at = 2;
        assert!(!content.may_have_size(2, 0) && content.may_have_size(2, 512));
        assert!(content.check(1, &[0; 512]).is_err());
    }

    #[test]
    fn what_a_sync_told_as_lost_is_undecided_until_it_is_written_again() {
        let mut content = Content::new(1, 1, vec![1; 2048]);
        content.write(2, 0, vec![2; 512]);
        content.synced_at = 2;
        content.write(3, 512, vec![3; 1024]);
        content.zero(4, 1024, 512);
        content.tell_of_loss(5);
        let of = |sectors: [u8; 4]| sectors.map(|byte| vec![byte; 512]).concat();
        let allowed = [[2, 3, 0, 1], [2, 1, 1, 1], [2, 3, 3, 1], [2, 1, 0, 1]];
        let refused = [[1, 3, 0, 1], [2, 2, 0, 1], [2, 3, 0, 0], [2, 4, 0, 1]];
        let judged = |content: &Content, found: [u8; 4]| {
            let found = of(found);
            assert_eq!(
                content.check(9, &found).is_ok(),
                content.may_read(0, &found)
            );
            content.check(9, &found).is_ok()
        };
        // A good sync does not decide it.
        for is_settled in [false, true] {
            assert!(allowed.iter().all(|found| judged(&content, *found)));
            assert!(!refused.iter().any(|found| judged(&content, *found)));
            assert!(!content.may_read(500, &[2; 24]) && content.may_read(600, &[3; 24]));
            if !is_settled {
                content.settle(6);
            }
        }
        content.write(7, 512, vec![7; 512]);
        assert!(judged(&content, [2, 7, 0, 1]) && judged(&content, [2, 7, 1, 1]));
        assert!(!judged(&content, [2, 3, 0, 1]) && !judged(&content, [2, 1, 0, 1]));
        content.settle(8);
        content.write(9, 1024, vec![9; 512]);
        content.settle(9);
        assert!(judged(&content, [2, 7, 9, 1]) && !judged(&content, [2, 7, 0, 1]));
        content.settle(10);
        assert!(!content.is_undecided());
    }

    #[test]
    fn what_a_lost_size_left_behind_it_may_be_seen_where_the_zeros_over_it_are_told_as_lost() {
        let mut killed = Content::new(1, 1, described_bytes(1, 1, 0, 600));
        killed.write(2, 512, described_bytes(1, 2, 512, 512));
        let mut shown = described_bytes(1, 1, 0, 512);
        shown.extend(described_bytes(1, 2, 512, 88));
        for is_told in [false, true] {
            let mut content = killed.adopted(3, shown.clone());
            content.settle(4);
            content.write(5, 2048, described_bytes(1, 5, 2048, 512));
            if is_told {
                content.tell_of_loss(6);
            }
            let zeroed = content.bytes().to_vec();
            let mut uncovered = zeroed.clone();
            uncovered[600..1024].copy_from_slice(&described_bytes(1, 2, 600, 424));
            let mut foreign = zeroed.clone();
            foreign[600..1024].copy_from_slice(&described_bytes(2, 2, 600, 424));
            assert!(content.check(9, &zeroed).is_ok());
            assert_eq!(content.check(9, &uncovered).is_ok(), is_told);
            assert_eq!(content.may_read(0, &uncovered), is_told);
            assert!(content.check(9, &foreign).is_err());
            content.write(7, 512, described_bytes(1, 7, 512, 1024));
            content.settle(8);
            uncovered[512..1024].copy_from_slice(&described_bytes(1, 7, 512, 512));
            assert!(content.check(9, &uncovered).is_err());
            uncovered[1024..1536].copy_from_slice(&described_bytes(1, 7, 1024, 512));
            assert!(content.check(9, &uncovered).is_ok());
            uncovered[600..1024].copy_from_slice(&described_bytes(1, 2, 600, 424));
            assert!(content.check(9, &uncovered).is_err());
        }
    }

    #[test]
    fn what_a_truncation_took_does_not_come_back() {
        let mut content = Content::new(1, 1, vec![1; 1024]);
        content.resize(2, 512, true);
        content.resize(3, 1024, true);
        let mut zeroed = vec![1; 512];
        zeroed.extend([0; 512]);
        assert!(content.check(3, &zeroed).is_ok());
        assert!(content.check(3, &[1; 1024]).is_err());
        assert!(content.check(1, &[1; 1024]).is_ok());
    }
}
