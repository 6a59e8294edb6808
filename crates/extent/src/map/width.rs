//! A map whose extents get another number of copies.
//!
//! More copies: every extent has entries for them at once, which are missing until they are made.
//! Fewer: the entries stay until each extent has given its surplus back, then all go at once. The
//! rows of the catalog follow as they change anyway: one with fewer entries than the map is read
//! as if the others were missing, one with more as if there was a surplus. So a change of the
//! redundancy costs one record, however large the file is, and a crash finds a map that says by
//! itself what is left to do.

use spindle_format::{COPIES_MAX, ExtentCopy, ExtentRow};

use super::Map;

impl Map {
    /// Whether a row of the catalog says what this map has.
    #[must_use]
    pub fn is_row(&self, number: u32, stored: &[u8]) -> bool {
        if self.encode_row(number).as_deref() == Some(stored) {
            return true;
        }
        // One with more entries than it must have says the same: those are missing.
        self.rows_vary
            && ExtentRow::parse(stored).is_ok_and(|row| {
                row.copies() >= self.needed_copies(number)
                    && self.encode_row_of(number, row.copies()).as_deref() == Some(stored)
            })
    }

    /// Entries that a row must have, so that no copy is left out.
    pub(super) fn needed_copies(&self, number: u32) -> usize {
        let missing = ExtentCopy::MISSING.to_bits();
        let Some(row) = self.rows.get(number as usize) else {
            return 1;
        };
        let of_extent = |words: &[u64]| {
            let there = |word: &u64| *word != 0 && *word != missing;
            words.iter().rposition(there).map_or(1, |last| last + 1)
        };
        let needed = row.words.chunks_exact(self.copies).map(of_extent);
        needed.max().unwrap_or(1)
    }

    /// Rows of the catalog may have another number of copies than the file should have.
    pub const fn let_rows_vary(&mut self) {
        self.rows_vary = true;
    }

    /// An extent should have so many copies from now on. Entries that it has not yet are missing;
    /// surplus ones stay until [`Self::set_copies`] has taken them from every extent.
    pub fn set_wanted(&mut self, wanted: usize) {
        assert!((1..=COPIES_MAX).contains(&wanted));
        self.rows_vary = true;
        self.wanted = wanted;
        if wanted > self.copies {
            self.set_stride(wanted);
        }
        self.forget_surplus();
    }

    /// Whether rows of the catalog may have another number of copies.
    pub const fn rows_vary(&self) -> bool {
        self.rows_vary
    }

    /// An extent should have no more copies than that; there may be surplus ones.
    pub const fn want_fewer(&mut self, wanted: usize) {
        assert!(wanted >= 1 && wanted <= self.copies);
        self.wanted = wanted;
    }

    /// Puts other copies in the place of those of an extent.
    pub fn set_copies(&mut self, index: u32, copies: &[ExtentCopy]) {
        assert!(copies.len() <= self.copies, "an extent has so many entries");
        assert!(copies.iter().any(|copy| copy.is_present()));
        let words = self.words_mut(index);
        assert!(words[0] != 0, "a hole has no copies");
        words.fill(ExtentCopy::MISSING.to_bits());
        for (word, copy) in words.iter_mut().zip(copies) {
            *word = copy.to_bits();
        }
        self.note(index);
    }

    /// Where no extent has more copies than it should, there are no entries for more either.
    /// False where some extent still has.
    pub fn forget_surplus(&mut self) -> bool {
        if !self.has_surplus() {
            return true;
        }
        let (stride, wanted) = (self.copies, self.wanted);
        let is_there = |word: &u64| ExtentCopy::from_bits(*word).is_present();
        let has_surplus = |words: &[u64]| words[wanted..].iter().any(is_there);
        let mut rows = self.rows.iter();
        if rows.any(|row| row.words.chunks_exact(stride).any(has_surplus)) {
            return false;
        }
        self.set_stride(self.wanted);
        true
    }

    /// Gives every extent so many entries.
    pub(super) fn set_stride(&mut self, copies: usize) {
        let before = self.copies;
        for row in &mut self.rows {
            let mut words = Vec::with_capacity(row.words.len() / before * copies);
            for extent in row.words.chunks_exact(before) {
                let added = if extent[0] == 0 {
                    ExtentCopy::HOLE
                } else {
                    ExtentCopy::MISSING
                };
                let kept = extent.len().min(copies);
                words.extend_from_slice(&extent[..kept]);
                words.resize(words.len() + copies - kept, added.to_bits());
            }
            row.words = words;
        }
        self.copies = copies;
    }
}
