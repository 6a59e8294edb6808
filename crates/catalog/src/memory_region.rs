//! A region in memory for the tests: what a crash may leave of it is under the test's control.

use std::collections::{BTreeMap, BTreeSet};

use spindle_base::Uuid;
use spindle_sync::Mutex;

use crate::{CatalogError, JournalCopy, Journals, Region};

type Contents = BTreeMap<u64, Vec<u8>>;

#[derive(Debug, Default)]
struct State {
    blocks: Contents,
    /// The newest durable write: each block's offset, contents, and contents before it.
    newest: Vec<(u64, Vec<u8>, Option<Vec<u8>>)>,
    /// Two replicas of the journal.
    journals: [Vec<u8>; 2],
    /// The newest durable write, where it was one of the journal: where, and what was there on each
    /// replica, which a crash before it may have left unlike.
    newest_journal: Option<(usize, Vec<Vec<u8>>)>,
    size_bytes: u64,
    writes_count: u64,
    written_blocks_count: u64,
    fail_reads: bool,
    /// Fails one read after the durable write of this number, behind so many others.
    fail_read_at: Option<(u64, u64)>,
    /// Blocks that each replica of the journal does not give.
    unread_journal_blocks: [BTreeSet<usize>; 2],
    ends_where_unread: bool,
    /// How often a journal was told to be cut.
    cuts_count: u64,
    /// Fails the durable write of this number.
    fail_write_at: Option<u64>,
    /// Its blocks are there all the same.
    keeps_failed_write: bool,
    limit_bytes: u64,
    /// What is set aside for it, where more than its size is.
    capacity_bytes: u64,
}

/// Durable writes, with what a crash within the newest of them would leave.
#[derive(Debug)]
pub(crate) struct MemoryRegion {
    state: Mutex<State>,
}

impl MemoryRegion {
    pub(crate) fn new() -> Self {
        Self::with_journal(0)
    }

    /// With a journal of so many blocks.
    pub(crate) fn with_journal(blocks: usize) -> Self {
        let journals = [vec![0; blocks * 4096], vec![0; blocks * 4096]];
        Self::from_blocks(Contents::new(), journals, 0)
    }

    fn from_blocks(blocks: Contents, journals: [Vec<u8>; 2], size_bytes: u64) -> Self {
        Self {
            state: Mutex::new(State {
                blocks,
                journals,
                size_bytes,
                limit_bytes: u64::MAX,
                ..State::default()
            }),
        }
    }

    /// A copy as a crash would leave it that came while the newest durable write was under way:
    /// for each of its blocks, whether it arrived. Blocks other than 0 may be garbage instead.
    pub(crate) fn after_crash(&self, mut arrived: impl FnMut(u64) -> Arrival) -> Self {
        let state = self.state.lock();
        let mut blocks = state.blocks.clone();
        for (offset, contents, former) in &state.newest {
            match (arrived(*offset), former) {
                (Arrival::Whole, _) => {}
                (Arrival::Garbage, _) if *offset > 0 => {
                    blocks.insert(*offset, vec![0xEE; contents.len()]);
                }
                (Arrival::Garbage | Arrival::Lost, Some(former)) => {
                    blocks.insert(*offset, former.clone());
                }
                (Arrival::Garbage | Arrival::Lost, None) => {
                    blocks.remove(offset);
                }
            }
        }
        let mut journals = state.journals.clone();
        if let Some((offset, formers)) = &state.newest_journal {
            for (journal, former) in journals.iter_mut().zip(formers) {
                // The first block is what counts: without it there is no record.
                for (block, former) in (*offset..).step_by(4096).zip(former.chunks(4096)) {
                    match arrived(block as u64) {
                        Arrival::Whole => {}
                        Arrival::Garbage => journal[block..block + 4096].fill(0xEE),
                        Arrival::Lost => journal[block..block + 4096].copy_from_slice(former),
                    }
                }
            }
        }
        Self::from_blocks(blocks, journals, state.size_bytes)
    }

    /// Spoils one block on every replica of the journal.
    pub(crate) fn damage_journal(&self, block: usize) {
        for journal in &mut self.state.lock().journals {
            journal[block * 4096..(block + 1) * 4096].fill(0xEE);
        }
    }

    /// Spoils the end of one block on one replica of the journal.
    pub(crate) fn rot_journal(&self, replica: usize, block: usize) {
        let journal = &mut self.state.lock().journals[replica];
        journal[block * 4096 + 64..(block + 1) * 4096].fill(0xEE);
    }

    /// A replica of the journal gives none of these blocks, but zeros.
    pub(crate) fn hide_journal(&self, replica: usize, blocks: std::ops::Range<usize>) {
        self.state.lock().unread_journal_blocks[replica].extend(blocks);
    }

    /// The replicas of the journal give every block again.
    pub(crate) fn show_journals(&self) {
        self.state.lock().unread_journal_blocks = [BTreeSet::new(), BTreeSet::new()];
    }

    /// The newest write of the journal did not reach this replica before a crash.
    pub(crate) fn lose_newest_journal_write(&self, replica: usize) {
        let mut state = self.state.lock();
        let (offset, formers) = state
            .newest_journal
            .clone()
            .expect("a write of the journal");
        let former = &formers[replica];
        state.journals[replica][offset..offset + former.len()].copy_from_slice(former);
    }

    /// As an opening that a person forced.
    pub(crate) fn end_where_unread(&self) {
        self.state.lock().ends_where_unread = true;
    }

    pub(crate) fn cuts_count(&self) -> u64 {
        self.state.lock().cuts_count
    }

    pub(crate) fn writes_count(&self) -> u64 {
        self.state.lock().writes_count
    }

    pub(crate) fn written_blocks_count(&self) -> u64 {
        self.state.lock().written_blocks_count
    }

    pub(crate) fn fail_reads(&self, fail: bool) {
        self.state.lock().fail_reads = fail;
    }

    /// Lets `writes` more durable writes pass and then `reads` reads, and fails the read after.
    pub(crate) fn fail_read_after(&self, writes: u64, reads: u64) {
        let mut state = self.state.lock();
        state.fail_read_at = Some((state.writes_count + writes, reads));
    }

    /// Whether that read has come.
    pub(crate) fn has_failed_read(&self) -> bool {
        self.state.lock().fail_read_at.is_none()
    }

    /// Lets `good` more durable writes pass and fails the one after, or none.
    pub(crate) fn fail_write_after(&self, good: Option<u64>) {
        let mut state = self.state.lock();
        state.fail_write_at = good.map(|good| state.writes_count + good);
    }

    /// As [`MemoryRegion::fail_write_after`], and what fails is there all the same.
    pub(crate) fn fail_kept_write_after(&self, good: u64) {
        let mut state = self.state.lock();
        state.fail_write_at = Some(state.writes_count + good);
        state.keeps_failed_write = true;
    }

    pub(crate) fn limit(&self, bytes: u64) {
        self.state.lock().limit_bytes = bytes;
    }

    /// It may grow to so many bytes and has them for certain.
    pub(crate) fn set_capacity(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.capacity_bytes = bytes;
        state.limit_bytes = bytes;
    }

    /// The bytes, to tell whether two runs wrote the same.
    pub(crate) fn contents(&self) -> Contents {
        self.state.lock().blocks.clone()
    }
}

/// What became of a block in flight.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Arrival {
    Whole,
    Lost,
    Garbage,
}

impl Region for MemoryRegion {
    fn size_bytes(&self) -> u64 {
        self.state.lock().size_bytes
    }

    fn capacity_bytes(&self) -> u64 {
        let state = self.state.lock();
        state.size_bytes.max(state.capacity_bytes)
    }

    fn set_aside(&self, bytes: u64) -> Result<(), CatalogError> {
        let mut state = self.state.lock();
        if bytes > state.limit_bytes {
            return Err(CatalogError::Full);
        }
        state.capacity_bytes = state.capacity_bytes.max(bytes);
        Ok(())
    }

    fn grow(&self, bytes: u64) -> Result<(), CatalogError> {
        let mut state = self.state.lock();
        if bytes > state.limit_bytes {
            return Err(CatalogError::Full);
        }
        // As a group grows a region: in allocation units.
        state.size_bytes = state.size_bytes.max(bytes.next_multiple_of(1 << 20));
        Ok(())
    }

    fn read(&self, offset_bytes: u64, out: &mut [u8]) -> Result<(), CatalogError> {
        let mut state = self.state.lock();
        assert!(offset_bytes.is_multiple_of(4096) && out.len().is_multiple_of(4096));
        assert!(offset_bytes + out.len() as u64 <= state.size_bytes);
        let writes_count = state.writes_count;
        let fails_now = state.fail_read_at.take_if(|(at, left)| {
            let is_due = *at <= writes_count;
            *left = left.wrapping_sub(u64::from(is_due));
            is_due && *left == u64::MAX
        });
        if state.fail_reads || fails_now.is_some() {
            return Err(CatalogError::Region {
                operation: "read",
                detail: "the test says so".to_owned(),
            });
        }
        for (offset, block) in (offset_bytes..).step_by(4096).zip(out.chunks_mut(4096)) {
            match state.blocks.get(&offset) {
                Some(contents) => block.copy_from_slice(contents),
                None => block.fill(0),
            }
        }
        Ok(())
    }

    fn write_durably(&self, blocks: &[(u64, &[u8])]) -> Result<(), CatalogError> {
        let mut state = self.state.lock();
        let fails = state.fail_write_at == Some(state.writes_count);
        let failure = CatalogError::Region {
            operation: "written",
            detail: "the test says so".to_owned(),
        };
        if fails && !state.keeps_failed_write {
            return Err(failure);
        }
        state.newest.clear();
        state.newest_journal = None;
        state.writes_count += 1;
        state.written_blocks_count += blocks.len() as u64;
        for (offset, contents) in blocks {
            assert!(offset.is_multiple_of(4096) && contents.len() == 4096);
            assert!(offset + 4096 <= state.size_bytes);
            let former = state.blocks.insert(*offset, contents.to_vec());
            state.newest.push((*offset, contents.to_vec(), former));
        }
        if fails { Err(failure) } else { Ok(()) }
    }

    fn group_uuid(&self) -> Uuid {
        Uuid([7; 16])
    }

    fn journal_bytes(&self) -> usize {
        self.state.lock().journals[0].len()
    }

    fn read_journals(&self) -> Journals {
        let state = self.state.lock();
        let copies =
            (state.journals.iter().zip(&state.unread_journal_blocks)).map(|(journal, unread)| {
                let mut bytes = journal.clone();
                for block in unread {
                    bytes[block * 4096..(block + 1) * 4096].fill(0);
                }
                JournalCopy {
                    bytes,
                    read: (0..journal.len() / 4096)
                        .map(|block| !unread.contains(&block))
                        .collect(),
                }
            });
        Journals {
            copies: copies.collect(),
            ends_where_unread: state.ends_where_unread,
        }
    }

    fn journal_was_cut(&self, _block: usize) {
        self.state.lock().cuts_count += 1;
    }

    // None of its replicas is ever away.
    fn journal_ends_broken(&self, _block: usize) {}

    fn write_journal(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), CatalogError> {
        let mut state = self.state.lock();
        if state.fail_write_at == Some(state.writes_count) {
            return Err(CatalogError::Region {
                operation: "written",
                detail: "the test says so".to_owned(),
            });
        }
        let offset = usize::try_from(offset_bytes).unwrap();
        assert!(offset.is_multiple_of(4096) && bytes.len().is_multiple_of(4096));
        let range = offset..offset + bytes.len();
        state.newest.clear();
        state.writes_count += 1;
        state.written_blocks_count += bytes.len() as u64 / 4096;
        let formers = state.journals.iter();
        let formers = formers.map(|journal| journal[range.clone()].to_vec());
        state.newest_journal = Some((offset, formers.collect()));
        for journal in &mut state.journals {
            journal[range.clone()].copy_from_slice(bytes);
        }
        Ok(())
    }
}
