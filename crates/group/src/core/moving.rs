//! Extents of a file that are being copied elsewhere, and what was written to them meanwhile.
//!
//! Copying excludes no writer. Instead whoever writes, holding the range lock, notes the blocks
//! here when the disks have answered and before it lets go of the lock; when all is copied, the
//! noted blocks are copied again with the extent's range locked. A record is made with the range
//! locked too, so every writer either was answered before it or sees it. A file with no record
//! costs its writers one load.
//!
//! Not before the data goes out: notes are also taken without the lock, while writers write, and
//! what was noted too early would be copied as it was before, with nobody to note it again.

use spindle_sync::atomic::{AtomicU32, Ordering};
use std::collections::BTreeMap;

use spindle_sync::level::LeafMutex;

/// Ranges kept of one extent before neighbours are joined.
const RANGES_MOST: usize = 256;

#[derive(Debug, Default)]
struct Record {
    ticket: u64,
    /// Blocks of the extent `[from, to)`, in the order they were written.
    noted: Vec<(u64, u64)>,
    /// How many there may be before they are joined: twice as many as could not be joined last time.
    room: usize,
}

impl Record {
    fn note(&mut self, from: u64, to: u64) {
        self.noted.push((from, to));
        if self.noted.len() > self.room {
            self.noted = joined(std::mem::take(&mut self.noted));
            self.room = RANGES_MOST.max(2 * self.noted.len());
        }
    }
}

#[derive(Debug, Default)]
struct Records {
    by_extent: BTreeMap<u32, Record>,
    next_ticket: u64,
}

/// The records of one file.
#[derive(Debug, Default)]
pub struct Moving {
    count: AtomicU32,
    records: LeafMutex<Records>,
}

/// Says which record is whose: an extent may be removed and made anew under its number.
pub type Ticket = u64;

impl Moving {
    /// Whether no extent is being copied.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Begins a record; `None` where the extent is being copied already. The caller holds the
    /// extent's range alone.
    pub fn begin(&self, index: u32) -> Option<Ticket> {
        let mut records = self.records.lock();
        if records.by_extent.contains_key(&index) {
            return None;
        }
        let ticket = records.next_ticket;
        records.next_ticket += 1;
        let noted = Vec::new();
        records.by_extent.insert(
            index,
            Record {
                ticket,
                noted,
                room: RANGES_MOST,
            },
        );
        self.count.fetch_add(1, Ordering::AcqRel);
        Some(ticket)
    }

    /// Blocks `[from, to)` of the extent were written, on the disks that answered.
    pub fn note(&self, index: u32, from: u64, to: u64) {
        let mut records = self.records.lock();
        if let Some(record) = records.by_extent.get_mut(&index) {
            record.note(from, to);
        }
    }

    /// As [`Self::note`], where the writer does not know which extent it is: noted for all, which
    /// costs no more than copying a little twice.
    pub fn note_everywhere(&self, from: u64, to: u64) {
        for record in self.records.lock().by_extent.values_mut() {
            record.note(from, to);
        }
    }

    /// What was written since the last call, in order and without overlaps; `None` where the
    /// record was cancelled.
    pub fn take(&self, index: u32, ticket: Ticket) -> Option<Vec<(u64, u64)>> {
        let mut records = self.records.lock();
        let record = records.by_extent.get_mut(&index)?;
        (record.ticket == ticket).then(|| joined(std::mem::take(&mut record.noted)))
    }

    /// The extent is removed or its copies change otherwise: who copies it finds no record.
    pub fn cancel(&self, index: u32) {
        if self.records.lock().by_extent.remove(&index).is_some() {
            self.count.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// As [`Self::cancel`], for every extent of the file.
    pub fn cancel_all(&self) {
        let mut records = self.records.lock();
        records.by_extent.clear();
        self.count.store(0, Ordering::Release);
    }

    /// Ends the record that the ticket stands for.
    pub fn end(&self, index: u32, ticket: Ticket) {
        let mut records = self.records.lock();
        if records.by_extent.get(&index).map(|record| record.ticket) == Some(ticket) {
            records.by_extent.remove(&index);
            self.count.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn joined(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
    for (from, to) in ranges {
        match joined.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => joined.push((from, to)),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::Moving;

    #[test]
    fn what_was_written_is_told_once_and_joined() {
        let moving = Moving::default();
        assert!(moving.is_empty());
        let ticket = moving.begin(7).unwrap();
        assert!(moving.begin(7).is_none());
        for at in (0..1000).rev() {
            moving.note(7, at * 2, at * 2 + 1);
        }
        moving.note(7, 0, 2000);
        moving.note(8, 0, 10);
        assert_eq!(moving.take(7, ticket), Some(vec![(0, 2000)]));
        assert_eq!(moving.take(7, ticket), Some(Vec::new()));
        moving.end(7, ticket);
        assert!(moving.is_empty());
    }

    #[test]
    fn a_record_that_was_cancelled_is_not_mistaken_for_the_next_one() {
        let moving = Moving::default();
        let old = moving.begin(7).unwrap();
        moving.cancel(7);
        let new = moving.begin(7).unwrap();
        assert_eq!(moving.take(7, old), None);
        moving.end(7, old);
        assert_eq!(moving.take(7, new), Some(Vec::new()));
    }
}
