//! A file's extent map in memory: an array indexed by extent number, in rows of 128.
//!
//! An extent takes 8 bytes for each copy, in one allocation per row, so that a million extents at
//! normal redundancy take 16 MB and a sparse file takes what it holds. Most extents are filled
//! whole; a row in which one is not has 4 bytes more for each, from its first write to its seal.
//!
//! Invariants: an extent is a hole in all of its copies or in none; its mark (blocks from its
//! start that hold data) is at most its length; a row that differs from the catalog's is named
//! in the dirty set, from which the next seal takes it. The map changes only while a change is
//! open, so that a seal sees no half of one. Whether it is dirty and which edit has its newest
//! rows is one word under the map's lock ([`Books`]): a row leaves the dirty set only together
//! with the number of the edit that it went into.

mod width;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smallvec::SmallVec;
use spindle_base::{FileId, Sequence};
use spindle_format::{
    COPIES_MAX, EXTENT_COPY_BYTES, EXTENT_MARK_BYTES, EXTENT_ROW_HEADER_BYTES, EXTENTS_PER_ROW,
    ExtentCopy, ExtentRow, InitialisedMark, encode_extent_row,
};

use crate::schedule::Schedule;

/// One extent that is not a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    copies: [ExtentCopy; COPIES_MAX],
    count: u8,
    /// Blocks from its start that hold data.
    pub mark_blocks: u32,
}

impl Extent {
    /// An extent with these copies.
    #[must_use]
    pub fn new(copies: &[ExtentCopy], mark_blocks: u32) -> Self {
        let mut all = [ExtentCopy::HOLE; COPIES_MAX];
        all[..copies.len()].copy_from_slice(copies);
        #[expect(clippy::cast_possible_truncation, reason = "at most three")]
        let count = copies.len() as u8;
        Self {
            copies: all,
            count,
            mark_blocks,
        }
    }

    /// Its copies, those missing included.
    #[must_use]
    pub fn copies(&self) -> &[ExtentCopy] {
        &self.copies[..usize::from(self.count)]
    }

    /// The copies that are there.
    pub fn present(&self) -> impl Iterator<Item = ExtentCopy> + '_ {
        self.copies().iter().copied().filter(|c| c.is_present())
    }
}

/// Whoever is told of every extent as it changes.
pub trait ExtentJournal: std::fmt::Debug + Send + Sync {
    /// Extent `index` of the file is as follows: the blocks from its start that hold data, and the
    /// words of its copies, of which a hole has none.
    fn note(&self, file: FileId, index: u32, mark_blocks: u32, copies: &[u64]);
}

/// What makes a map durable, as it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Books {
    /// It has rows that no edit has yet: whatever the next seal takes.
    Open,
    /// Every row is in this edit or an earlier one.
    Sealed(Sequence),
}

/// A row for the catalog; without bytes where it should have none under that number.
pub type RowChange = (u32, Option<Vec<u8>>);

#[derive(Debug, Default, Clone)]
struct Row {
    /// For each extent its copies.
    words: Vec<u64>,
    /// For each extent its mark; empty where every extent that is no hole is filled whole.
    marks: Vec<u32>,
    /// Whether the catalog may have a row under this number.
    stored: bool,
    /// Whether it had one once: until a commit has taken its removal, a kill leaves it.
    was_stored: bool,
}

/// The map of one file.
#[derive(Debug)]
pub struct Map {
    schedule: Schedule,
    /// Entries of each extent.
    copies: usize,
    /// Copies that an extent should have; fewer than entries while surplus ones are given back.
    wanted: usize,
    /// Rows of the catalog may have fewer or more copies than the file should have.
    rows_vary: bool,
    rows: Vec<Row>,
    dirty_rows: BTreeSet<u32>,
    /// The newest edit that has rows of this map.
    sealed: Sequence,
    /// The marks as the newest seal took them, of extents whose mark has changed since.
    sealed_marks: BTreeMap<u32, u32>,
    /// The marks as the catalog has them durably, of extents whose mark moved forward by an edit
    /// up to `sealed` that may not be durable yet.
    settling_marks: BTreeMap<u32, u32>,
    allocated_blocks: u64,
    extents_count: u64,
    /// Is told of every extent as it changes; the file's id is its name there.
    journal: Option<(Arc<dyn ExtentJournal>, FileId)>,
}

#[expect(clippy::cast_possible_truncation, reason = "it is 128")]
const ROW: u32 = EXTENTS_PER_ROW as u32;

impl Map {
    /// An empty map.
    #[must_use]
    pub const fn new(schedule: Schedule, copies: usize) -> Self {
        Self {
            schedule,
            copies,
            wanted: copies,
            rows_vary: false,
            rows: Vec::new(),
            dirty_rows: BTreeSet::new(),
            sealed: Sequence(0),
            sealed_marks: BTreeMap::new(),
            settling_marks: BTreeMap::new(),
            allocated_blocks: 0,
            extents_count: 0,
            journal: None,
        }
    }

    /// Every change from now on is noted in `journal`.
    pub fn set_journal(&mut self, journal: Arc<dyn ExtentJournal>, id: FileId) {
        self.journal = Some((journal, id));
    }

    /// Notes an extent as it is now: its row differs from the catalog's.
    fn note(&mut self, index: u32) {
        self.dirty_rows.insert(index / ROW);
        let Some((journal, id)) = &self.journal else {
            return;
        };
        let at = (index % ROW) as usize * self.copies;
        let row = &self.rows[(index / ROW) as usize].words;
        let (mark_blocks, copies) = match &row[at..at + self.copies] {
            [0, ..] | [] => (0, &[][..]),
            copies => (self.mark_blocks(index), copies),
        };
        journal.note(*id, index, mark_blocks, copies);
    }

    /// The mark of an extent that is filled whole.
    fn whole_blocks(&self, index: u32) -> u32 {
        u32::try_from(self.schedule.length_blocks(index)).expect("an extent has below 2^18 blocks")
    }

    /// The mark of an extent that is no hole.
    fn mark_blocks(&self, index: u32) -> u32 {
        let marks = &self.rows[(index / ROW) as usize].marks;
        match marks.get((index % ROW) as usize) {
            Some(mark) => *mark,
            None => self.whole_blocks(index),
        }
    }

    fn put_mark(&mut self, index: u32, mark_blocks: u32) {
        let (number, at) = (index / ROW, (index % ROW) as usize);
        if self.rows[number as usize].marks.is_empty() {
            if mark_blocks == self.whole_blocks(index) {
                return;
            }
            let extents = self.rows[number as usize].words.len() / self.copies;
            let marks = (number * ROW..).take(extents);
            let marks = marks.map(|index| self.whole_blocks(index)).collect();
            self.rows[number as usize].marks = marks;
        }
        self.rows[number as usize].marks[at] = mark_blocks;
    }

    /// Marks that say nothing of a row take no memory.
    fn forget_whole_marks(&mut self, number: u32) {
        let row = &self.rows[number as usize];
        let extents = (number * ROW..).zip(row.words.chunks_exact(self.copies));
        let is_whole = extents
            .zip(&row.marks)
            .all(|((index, words), mark)| words[0] == 0 || *mark == self.whole_blocks(index));
        if is_whole {
            self.rows[number as usize].marks = Vec::new();
        }
    }

    /// The arithmetic that the map is indexed by.
    #[must_use]
    pub const fn schedule(&self) -> Schedule {
        self.schedule
    }

    /// Entries that each extent has: copies that are there or missing.
    #[must_use]
    pub const fn copies(&self) -> usize {
        self.copies
    }

    /// Copies that an extent should have.
    #[must_use]
    pub const fn wanted(&self) -> usize {
        self.wanted
    }

    /// Whether extents may have copies that are to be given back.
    #[must_use]
    pub const fn has_surplus(&self) -> bool {
        self.wanted < self.copies
    }

    /// Whether an extent has fewer copies than it should. Looks at all rows, some bytes for each copy.
    #[must_use]
    pub fn lacks_copies(&self) -> bool {
        let missing = ExtentCopy::MISSING.to_bits();
        self.wanted > 1 && self.rows.iter().any(|row| row.words.contains(&missing))
    }

    /// Blocks of all extents, one copy counted.
    #[must_use]
    pub const fn allocated_blocks(&self) -> u64 {
        self.allocated_blocks
    }

    /// Extents that are no holes.
    #[must_use]
    pub const fn extents_count(&self) -> u64 {
        self.extents_count
    }

    /// A number above that of every extent.
    #[must_use]
    pub fn end_index(&self) -> u32 {
        let Some(last) = self.rows.last() else {
            return 0;
        };
        let extents = last.words.len() / self.copies;
        u32::try_from((self.rows.len() - 1) * EXTENTS_PER_ROW + extents)
            .expect("extent numbers have 32 bits")
    }

    /// Extent `index`, `None` for a hole.
    #[must_use]
    pub fn extent(&self, index: u32) -> Option<Extent> {
        let words = &self.rows.get((index / ROW) as usize)?.words;
        let at = (index % ROW) as usize * self.copies;
        let extent = words.get(at..at + self.copies)?;
        if extent[0] == 0 {
            return None;
        }
        let mut copies = [ExtentCopy::HOLE; COPIES_MAX];
        for (copy, word) in copies.iter_mut().zip(extent) {
            *copy = ExtentCopy::from_bits(*word);
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most three")]
        Some(Extent {
            copies,
            count: self.copies as u8,
            mark_blocks: self.mark_blocks(index),
        })
    }

    fn words_mut(&mut self, index: u32) -> &mut [u64] {
        let row = (index / ROW) as usize;
        if self.rows.len() <= row {
            self.rows.resize_with(row + 1, Row::default);
        }
        let stride = self.copies;
        let at = (index % ROW) as usize * stride;
        let Row { words, marks, .. } = &mut self.rows[row];
        if words.len() < at + stride {
            // Small files stay small; a row that goes on is given its whole length soon.
            let room = (at + stride)
                .next_power_of_two()
                .min(EXTENTS_PER_ROW * stride);
            words.reserve_exact(room - words.len());
            words.resize(at + stride, 0);
            if !marks.is_empty() {
                marks.reserve_exact((room / stride).saturating_sub(marks.len()));
                marks.resize((at + stride) / stride, 0);
            }
        }
        &mut words[at..at + stride]
    }

    /// Puts an extent where a hole was.
    pub fn insert(&mut self, index: u32, extent: &Extent) {
        assert!((self.wanted..=self.copies).contains(&extent.copies().len()));
        self.put_back(index, extent);
    }

    /// As [`Self::insert`], of an extent that was put there before and may lack copies.
    pub fn put_back(&mut self, index: u32, extent: &Extent) {
        let length_blocks = self.schedule.length_blocks(index);
        assert!(u64::from(extent.mark_blocks) <= length_blocks);
        let words = self.words_mut(index);
        assert!(words[0] == 0, "an extent is put only where a hole was");
        words.fill(ExtentCopy::MISSING.to_bits());
        for (word, copy) in words.iter_mut().zip(extent.copies()) {
            *word = copy.to_bits();
        }
        self.put_mark(index, extent.mark_blocks);
        self.allocated_blocks += length_blocks;
        self.extents_count += 1;
        self.sealed_marks.insert(index, 0);
        self.note(index);
    }

    /// Moves the mark of an extent, forward or back.
    pub fn set_mark(&mut self, index: u32, mark_blocks: u32) {
        assert!(u64::from(mark_blocks) <= self.schedule.length_blocks(index));
        assert!(self.words_mut(index)[0] != 0, "a hole has no mark");
        let before = self.mark_blocks(index);
        self.put_mark(index, mark_blocks);
        self.sealed_marks.entry(index).or_insert(before);
        self.note(index);
    }

    /// Puts another copy in the place of copy `number` of an extent.
    pub fn set_copy(&mut self, index: u32, number: usize, copy: ExtentCopy) {
        assert!(number < self.copies, "an extent has so many copies only");
        assert!(!copy.is_hole(), "an extent is a hole in all copies or none");
        let words = self.words_mut(index);
        assert!(words[0] != 0, "a hole has no copies");
        words[number] = copy.to_bits();
        self.note(index);
    }

    /// The mark of an extent as the newest seal took it: what a crash may come back to. Blocks
    /// beyond it are not seen after a crash unless a later batch is durable.
    #[must_use]
    pub fn sealed_mark(&self, index: u32, extent: &Extent) -> u32 {
        if self.sealed_marks.is_empty() {
            return extent.mark_blocks;
        }
        self.sealed_marks
            .get(&index)
            .copied()
            .unwrap_or(extent.mark_blocks)
    }

    /// The mark of an extent as it is durably, `committed` being the newest durable edit.
    #[must_use]
    pub fn durable_mark(&self, index: u32, extent: &Extent, committed: Sequence) -> u32 {
        let settling = (self.settling_marks.get(&index)).filter(|_| committed < self.sealed);
        let sealed = self.sealed_mark(index, extent);
        settling.map_or(sealed, |mark| sealed.min(*mark))
    }

    /// A disk lost what no flush had covered: extents that `is_lost` whose marks have to go back,
    /// and where they are durably, `committed` being the newest durable edit.
    pub fn marks_beyond_durable(
        &self,
        committed: Sequence,
        is_lost: impl Fn(u32, &Extent) -> bool,
    ) -> Vec<(u32, u32)> {
        let mut back = Vec::new();
        self.for_each(0, u32::MAX, |index, extent| {
            if !is_lost(index, extent) {
                return;
            }
            let durable = self.durable_mark(index, extent, committed);
            if durable < extent.mark_blocks {
                back.push((index, durable));
            }
        });
        back
    }

    /// Makes a hole of an extent; what it was.
    pub fn remove(&mut self, index: u32) -> Option<Extent> {
        let extent = self.extent(index)?;
        self.words_mut(index).fill(0);
        self.sealed_marks.remove(&index);
        self.settling_marks.remove(&index);
        self.allocated_blocks -= self.schedule.length_blocks(index);
        self.extents_count -= 1;
        self.note(index);
        Some(extent)
    }

    /// Calls `visit` for each extent in `[first, end)` that is no hole, in order.
    pub fn for_each(&self, first: u32, end: u32, mut visit: impl FnMut(u32, &Extent)) {
        let end = end.min(self.end_index());
        let mut index = first;
        while index < end {
            if self.rows[(index / ROW) as usize].words.is_empty() {
                index = (index / ROW + 1) * ROW;
                continue;
            }
            if let Some(extent) = self.extent(index) {
                visit(index, &extent);
            }
            index += 1;
        }
    }

    /// Calls `visit` for extents from `first` on that are no holes, in order, and looks at about
    /// `most` numbers; where to go on, `None` at the end. Ends where `visit` says false.
    pub fn walk(
        &self,
        first: u32,
        most: u32,
        mut visit: impl FnMut(u32, &Extent) -> bool,
    ) -> Option<u32> {
        let end = self.end_index();
        let mut index = first;
        let mut looked_at = 0;
        while index < end {
            if looked_at >= most {
                return Some(index);
            }
            if self.rows[(index / ROW) as usize].words.is_empty() {
                index = (index / ROW + 1) * ROW;
                continue;
            }
            looked_at += 1;
            if let Some(extent) = self.extent(index)
                && !visit(index, &extent)
            {
                return None;
            }
            index += 1;
        }
        None
    }

    /// Rows that no edit has yet.
    #[must_use]
    pub fn dirty_rows_count(&self) -> usize {
        self.dirty_rows.len()
    }

    /// Bytes of those rows at most, without their keys.
    #[must_use]
    pub fn dirty_rows_bytes(&self) -> usize {
        let extents = (self.end_index() as usize).min(EXTENTS_PER_ROW);
        let extent_bytes = self.copies * EXTENT_COPY_BYTES + EXTENT_MARK_BYTES;
        self.dirty_rows.len() * (EXTENT_ROW_HEADER_BYTES + extents * extent_bytes)
    }

    /// What a commit must have so that this map is durable.
    #[must_use]
    pub fn books(&self) -> Books {
        if self.dirty_rows.is_empty() {
            Books::Sealed(self.sealed)
        } else {
            Books::Open
        }
    }

    /// Whether this row differs from the catalog's.
    #[must_use]
    pub fn is_dirty_row(&self, row: u32) -> bool {
        self.dirty_rows.contains(&row)
    }

    /// The catalog's row is not as this map has it: the next seal gives it again.
    pub fn mark_dirty_row(&mut self, number: u32) {
        if (number as usize) < self.rows.len() {
            self.dirty_rows.insert(number);
        }
    }

    /// Rows that the catalog may have.
    pub fn stored_rows(&self) -> impl Iterator<Item = u32> + '_ {
        (0..)
            .zip(&self.rows)
            .filter(|(_, row)| row.stored)
            .map(|(number, _)| number)
    }

    /// Rows that the catalog may have, or would have again after a kill. Of extents a keeper's
    /// journal names no rows, so that whoever removes the file removes these.
    pub fn rows_ever_stored(&self) -> impl Iterator<Item = u32> + '_ {
        (0..)
            .zip(&self.rows)
            .filter(|(_, row)| row.was_stored)
            .map(|(number, _)| number)
    }

    /// Gives at most `rows_most` of the rows that the catalog lacks to `apply`, which makes an
    /// edit of them and answers with its number. Whoever holds the map sees them dirty or
    /// numbered, never neither. `committed` is the newest durable edit.
    pub fn seal(
        &mut self,
        committed: Sequence,
        rows_most: usize,
        apply: impl FnOnce(Vec<RowChange>) -> Sequence,
    ) {
        if committed >= self.sealed {
            self.settling_marks.clear();
        }
        let numbers: Vec<u32> = self.dirty_rows.iter().copied().take(rows_most).collect();
        let mut rows = Vec::with_capacity(numbers.len());
        for number in &numbers {
            let bytes = self.encode_row(*number);
            self.forget_whole_marks(*number);
            let row = &mut self.rows[*number as usize];
            if bytes.is_none() {
                row.words = Vec::new();
            }
            if bytes.is_some() || row.stored {
                row.stored = bytes.is_some();
                row.was_stored = true;
                rows.push((*number, bytes));
            }
        }
        if !rows.is_empty() {
            self.sealed = apply(rows);
        }
        self.forget_dirty(&numbers);
    }

    /// Half of a seal, for the mistake that can be put back: nobody sees that the rows are in no
    /// edit yet.
    pub fn take_dirty_rows(&mut self, committed: Sequence, rows_most: usize) -> Vec<RowChange> {
        let (mut taken, before) = (Vec::new(), self.sealed);
        self.seal(committed, rows_most, |rows| {
            taken = rows;
            before
        });
        taken
    }

    /// Its other half.
    pub const fn set_sealed(&mut self, sequence: Sequence) {
        self.sealed = sequence;
    }

    /// An edit has these rows.
    fn forget_dirty(&mut self, numbers: &[u32]) {
        if numbers.len() == self.dirty_rows.len() {
            self.dirty_rows.clear();
            for (index, mark) in std::mem::take(&mut self.sealed_marks) {
                self.settle_mark(index, mark);
            }
            return;
        }
        for number in numbers {
            self.dirty_rows.remove(number);
            let first = number * ROW;
            let marks = self.sealed_marks.range(first..=first + (ROW - 1));
            let marks: SmallVec<[(u32, u32); 16]> =
                marks.map(|(index, mark)| (*index, *mark)).collect();
            for (index, mark) in marks {
                self.sealed_marks.remove(&index);
                self.settle_mark(index, mark);
            }
        }
    }

    /// An edit has the mark of an extent, where the seal before took another one.
    fn settle_mark(&mut self, index: u32, sealed_before: u32) {
        let has_grown = |extent: Extent| extent.mark_blocks > sealed_before;
        if self.extent(index).is_some_and(has_grown) {
            self.settling_marks.entry(index).or_insert(sealed_before);
        }
    }

    /// The bytes of one row; `None` where it has no extent. Where rows may vary it has no more
    /// copies than it must.
    #[must_use]
    pub fn encode_row(&self, number: u32) -> Option<Vec<u8>> {
        let copies = if self.rows_vary {
            self.needed_copies(number)
        } else {
            self.copies
        };
        self.encode_row_of(number, copies)
    }

    fn encode_row_of(&self, number: u32, copies: usize) -> Option<Vec<u8>> {
        let words = &self.rows.get(number as usize)?.words;
        let mut entries: SmallVec<[ExtentCopy; EXTENTS_PER_ROW * 2]> = SmallVec::new();
        let mut marks: SmallVec<[InitialisedMark; 16]> = SmallVec::new();
        for (at, words) in (0_u8..).zip(words.chunks_exact(self.copies)) {
            let lacking = if words[0] == 0 {
                ExtentCopy::HOLE
            } else {
                ExtentCopy::MISSING
            };
            let of_extent = words.iter().map(|word| ExtentCopy::from_bits(*word));
            entries.extend(of_extent.chain(std::iter::repeat(lacking)).take(copies));
            let index = number * ROW + u32::from(at);
            let blocks = self.mark_blocks(index);
            if words[0] != 0 && blocks < self.whole_blocks(index) {
                marks.push(InitialisedMark { index: at, blocks });
            }
        }
        encode_extent_row(copies, &entries, &marks)
    }

    /// Takes in a row of the catalog. `visit` is told of every copy that is there, and says what
    /// is wrong with it.
    ///
    /// # Errors
    /// What contradicts the file's layout, in words.
    pub fn load_row(
        &mut self,
        number: u32,
        row: &ExtentRow<'_>,
        mut visit: impl FnMut(u32, ExtentCopy) -> Result<(), String>,
    ) -> Result<(), String> {
        if row.copies() != self.copies && !self.rows_vary {
            return Err(format!(
                "row {number} has {} copies of each extent where the file has {}",
                row.copies(),
                self.copies
            ));
        }
        let first = number
            .checked_mul(ROW)
            .ok_or_else(|| format!("row {number} is beyond every file's end"))?;
        // Surplus copies that are only missing are none.
        let surplus = (row.entries().enumerate())
            .any(|(at, copy)| at % row.copies() >= self.copies && copy.is_present());
        if surplus {
            self.set_stride(row.copies());
        }
        let stride = self.copies;
        if self.rows.len() <= number as usize {
            self.rows.resize_with(number as usize + 1, Row::default);
        }
        let mut words = vec![0_u64; row.extents_count() * stride];
        let mut entries = row.entries();
        for (index, words) in (first..).zip(words.chunks_exact_mut(stride)) {
            for at in 0..self.copies.max(row.copies()) {
                let copy = if at < row.copies() {
                    entries.next().unwrap_or(ExtentCopy::HOLE)
                } else if words[0] == 0 {
                    ExtentCopy::HOLE
                } else {
                    ExtentCopy::MISSING
                };
                if at < self.copies {
                    words[at] = copy.to_bits();
                }
                if !copy.is_present() {
                    continue;
                }
                let class = self.schedule.class(index);
                if copy.class() != class {
                    return Err(format!(
                        "extent {index} has length class {} where its number asks for {class}",
                        copy.class()
                    ));
                }
                visit(index, copy)?;
            }
            if words[0] != 0 {
                self.allocated_blocks += self.schedule.length_blocks(index);
                self.extents_count += 1;
            }
        }
        self.rows[number as usize] = Row {
            words,
            marks: Vec::new(),
            stored: true,
            was_stored: true,
        };
        for mark in row.marks() {
            self.put_mark(first + u32::from(mark.index), mark.blocks);
        }
        Ok(())
    }

    /// Bytes of heap that the map takes.
    #[cfg(test)]
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.rows.capacity() * size_of::<Row>()
            + self
                .rows
                .iter()
                .map(|row| row.words.capacity() * 8 + row.marks.capacity() * 4)
                .sum::<usize>()
    }
}

#[cfg(test)]
mod tests;
