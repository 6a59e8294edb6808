//! One simulated disk: what reads see, what a power cut leaves, and the faults set on it.
//!
//! Invariants: `pages` is what a read sees. For every page that an unsynced write touches,
//! `durable_before` holds the bytes that stay if all of those writes are lost; so a flush only
//! forgets, and a power cut puts back and then lets some of the writes happen again.

use std::collections::BTreeMap;
use std::ops::Range;

use super::pages::{PAGE_BYTES, Page, PageMap, SECTORS_PER_PAGE, mixed, page_of};
use crate::power_cut::{Fate, Mood, SECTOR_BYTES};
use crate::random::SeededRandom;
use crate::request::{DeviceErrorKind, Operation, Request, Work};

/// Which requests a set fault meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultyOperation {
    /// Reads that touch the range.
    Read,
    /// Writes that touch the range, durable ones too.
    Write,
    /// Flushes; the range does not matter.
    Flush,
}

impl FaultyOperation {
    pub(super) const fn of(work: &Work<'_>) -> Self {
        match work.operation() {
            Operation::Read => Self::Read,
            Operation::Write | Operation::WriteDurable => Self::Write,
            Operation::Flush => Self::Flush,
        }
    }

    /// Whether such a fault of these bytes meets a request of those.
    fn meets(self, range: &Range<u64>, operation: Self, requested: &Range<u64>) -> bool {
        self == operation
            && (operation == Self::Flush
                || (range.start < requested.end && requested.start < range.end))
    }
}

/// A failure that waits for its request.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    pub(super) operation: FaultyOperation,
    pub(super) range: Range<u64>,
    pub(super) requests_left: u64,
    pub(super) kind: DeviceErrorKind,
}

/// Requests that are not answered until they are released.
#[derive(Debug, Clone)]
pub(super) struct Hang {
    pub(super) operation: FaultyOperation,
    pub(super) range: Range<u64>,
}

/// A write that was given up and has not reached the disk yet.
#[derive(Debug, Clone)]
pub(super) struct LateWrite {
    pub(super) offset_bytes: u64,
    pub(super) bytes: Vec<u8>,
}

#[derive(Debug, Clone)]
struct UnsyncedWrite {
    first_page: u64,
    /// None: a later durable write has taken this page's place, so it can never come back.
    pages: Vec<Option<Page>>,
}

#[derive(Debug, Clone)]
pub(super) struct SimulatedDisk {
    pub(super) size_bytes: u64,
    /// The size that it had when it was largest.
    pub(super) largest_bytes: u64,
    pub(super) vanished: bool,
    /// How often it came back.
    pub(super) appearance: u64,
    /// Requests to this disk until it vanishes.
    pub(super) vanishes_after: Option<u64>,
    pub(super) faults: Vec<Fault>,
    /// So many flushes fail yet, and drop what none had covered.
    pub(super) drops_left: u64,
    pub(super) hangs: Vec<Hang>,
    /// Requests were given up, and have not come back.
    pub(super) fenced: bool,
    pub(super) late: Vec<LateWrite>,
    pages: PageMap,
    durable_before: BTreeMap<u64, Page>,
    unsynced: Vec<UnsyncedWrite>,
}

impl SimulatedDisk {
    pub(super) fn zeroed(size_bytes: u64) -> Self {
        Self {
            size_bytes,
            largest_bytes: size_bytes,
            vanished: false,
            appearance: 0,
            vanishes_after: None,
            faults: Vec::new(),
            drops_left: 0,
            hangs: Vec::new(),
            fenced: false,
            late: Vec::new(),
            pages: PageMap::zeroed(size_bytes),
            durable_before: BTreeMap::new(),
            unsynced: Vec::new(),
        }
    }

    pub(super) fn resize(&mut self, size_bytes: u64) {
        self.size_bytes = size_bytes;
        self.largest_bytes = self.largest_bytes.max(size_bytes);
        self.pages.reach(size_bytes);
    }

    pub(super) fn image(&self) -> PageMap {
        self.pages.clone()
    }

    pub(super) fn put_back(&mut self, image: PageMap) {
        self.pages = image;
        self.pages.reach(self.largest_bytes);
        self.unsynced.clear();
        self.durable_before.clear();
    }

    pub(super) fn forget_behind_end(&mut self) {
        let end_page = self.size_bytes / PAGE_BYTES as u64;
        self.pages.forget_from(end_page);
        self.durable_before.retain(|page, _| *page < end_page);
        for write in &mut self.unsynced {
            for (page, bytes) in (write.first_page..).zip(&mut write.pages) {
                if page >= end_page {
                    *bytes = None;
                }
            }
        }
    }

    pub(super) fn read(&self, offset_bytes: u64, memory: &mut [u8]) {
        self.pages.read(offset_bytes / PAGE_BYTES as u64, memory);
    }

    /// What would be read after a power cut that loses every unsynced write.
    pub(super) fn read_durable(&self, offset_bytes: u64, memory: &mut [u8]) {
        self.read(offset_bytes, memory);
        let first_page = offset_bytes / PAGE_BYTES as u64;
        for (page, target) in (first_page..).zip(memory.chunks_exact_mut(PAGE_BYTES)) {
            match self.durable_before.get(&page) {
                Some(Some(bytes)) => target.copy_from_slice(&bytes[..]),
                Some(None) => target.fill(0),
                None => {}
            }
        }
    }

    /// Writes that a power cut may keep, lose or tear.
    pub(super) fn write(&mut self, offset_bytes: u64, memory: &[u8]) {
        let first_page = offset_bytes / PAGE_BYTES as u64;
        let mut pages = Vec::with_capacity(memory.len() / PAGE_BYTES);
        for (page, bytes) in (first_page..).zip(memory.chunks_exact(PAGE_BYTES)) {
            let bytes = page_of(bytes);
            let before = self.pages.replace(page, bytes.clone());
            self.durable_before.entry(page).or_insert(before);
            pages.push(Some(bytes));
        }
        self.unsynced.push(UnsyncedWrite { first_page, pages });
    }

    /// Writes durably: older unsynced bytes of the same pages can no longer come back.
    pub(super) fn write_durable(&mut self, offset_bytes: u64, memory: &[u8]) {
        let first_page = offset_bytes / PAGE_BYTES as u64;
        let end_page = first_page + (memory.len() / PAGE_BYTES) as u64;
        for (page, bytes) in (first_page..).zip(memory.chunks_exact(PAGE_BYTES)) {
            self.pages.replace(page, page_of(bytes));
            self.durable_before.remove(&page);
        }
        for older in &mut self.unsynced {
            for (page, bytes) in (older.first_page..).zip(&mut older.pages) {
                if (first_page..end_page).contains(&page) {
                    *bytes = None;
                }
            }
        }
    }

    /// A write that failed: none, all or some of its sectors have reached the disk's memory.
    pub(super) fn write_in_part(
        &mut self,
        offset_bytes: u64,
        memory: &[u8],
        random: &mut SeededRandom,
    ) {
        let first_page = offset_bytes / PAGE_BYTES as u64;
        let fate = Fate::draw(memory.len() / SECTOR_BYTES, random);
        let mut merged = Vec::with_capacity(memory.len());
        for (index, bytes) in memory.chunks_exact(PAGE_BYTES).enumerate() {
            let old = self.pages.get(first_page + index as u64);
            let page = survivor(&fate, index, old, &page_of(bytes), random);
            match page {
                Some(bytes) => merged.extend_from_slice(&bytes[..]),
                None => merged.extend_from_slice(&[0; PAGE_BYTES]),
            }
        }
        self.write(offset_bytes, &merged);
    }

    /// How many writes no flush has covered yet.
    pub(super) fn unsynced_count(&self) -> usize {
        self.unsynced.len()
    }

    /// Makes the oldest `count` of the unsynced writes durable.
    pub(super) fn flush(&mut self, count: usize) {
        if count == self.unsynced.len() {
            self.unsynced.clear();
            self.durable_before.clear();
            return;
        }
        for write in self.unsynced.drain(..count) {
            for (page, bytes) in (write.first_page..).zip(write.pages) {
                if let Some(bytes) = bytes {
                    self.durable_before.insert(page, bytes);
                }
            }
        }
    }

    /// Whether this work's flush fails now, and has dropped what none had covered.
    pub(super) fn drop_at_flush(&mut self, work: &Work<'_>) -> bool {
        let flushes = matches!(work.operation(), Operation::Flush | Operation::WriteDurable);
        if !flushes || self.drops_left == 0 {
            return false;
        }
        self.drops_left -= 1;
        self.unsynced.clear();
        for (page, bytes) in std::mem::take(&mut self.durable_before) {
            self.pages.replace(page, bytes);
        }
        true
    }

    /// The disk loses its power: each unsynced write is kept, lost or torn, in any order.
    pub(super) fn lose_power(&mut self, random: &mut SeededRandom) {
        let late = std::mem::take(&mut self.late);
        for write in late.into_iter().filter(|_| random.chance(1, 2)) {
            self.write(write.offset_bytes, &write.bytes);
        }
        self.fenced = false;
        let mut unsynced = std::mem::take(&mut self.unsynced);
        if unsynced.is_empty() {
            self.durable_before.clear();
            return;
        }
        for (page, bytes) in std::mem::take(&mut self.durable_before) {
            self.pages.replace(page, bytes);
        }
        let mood = Mood::draw(random);
        if mood == Mood::Mixed {
            random.shuffle(&mut unsynced);
        }
        for write in unsynced {
            let fate = mood.fate(write.pages.len() * SECTORS_PER_PAGE, random);
            for (index, bytes) in write.pages.into_iter().enumerate() {
                let Some(bytes) = bytes else { continue };
                let page = write.first_page + index as u64;
                let left = survivor(&fate, index, self.pages.get(page), &bytes, random);
                self.pages.replace(page, left);
            }
        }
    }

    /// Whether the disk does not answer this request.
    pub(super) fn keeps_silent(&self, request: &Request<'_>) -> bool {
        if self.hangs.is_empty() || self.vanished || self.fenced {
            return false;
        }
        let end_bytes = request.offset_bytes + request.length_bytes() as u64;
        let range = request.offset_bytes..end_bytes;
        let operation = FaultyOperation::of(&request.work);
        let mut hangs = self.hangs.iter();
        hangs.any(|hang| hang.operation.meets(&hang.range, operation, &range))
    }

    /// What hung goes on: writes that were given up reach the disk now, in any order.
    pub(super) fn release(&mut self, random: &mut SeededRandom) {
        self.hangs.clear();
        self.fenced = false;
        while self.land_one(random) {}
    }

    /// Any of the writes that were given up reaches the disk, where there is one.
    pub(super) fn land_one(&mut self, random: &mut SeededRandom) -> bool {
        if self.late.is_empty() {
            return false;
        }
        let late = match self.late.len() {
            1 => self.late.remove(0),
            several => self.late.swap_remove(random.index(several)),
        };
        self.write(late.offset_bytes, &late.bytes);
        true
    }

    /// The first set fault that this work meets; it is used up by one request.
    pub(super) fn take_fault(
        &mut self,
        work: &Work<'_>,
        range: &Range<u64>,
    ) -> Option<DeviceErrorKind> {
        let operation = FaultyOperation::of(work);
        let position = self
            .faults
            .iter()
            .position(|fault| (fault.operation).meets(&fault.range, operation, range))?;
        let fault = &mut self.faults[position];
        let kind = fault.kind;
        fault.requests_left -= 1;
        if fault.requests_left == 0 {
            self.faults.remove(position);
        }
        Some(kind)
    }

    /// Changes `change(old bytes)` of one page in every place that holds it.
    pub(super) fn corrupt_page(&mut self, page: u64, change: impl Fn(&mut [u8; PAGE_BYTES])) {
        let changed = |bytes: &Page| {
            let mut bytes = bytes.as_deref().map_or([0; PAGE_BYTES], |bytes| *bytes);
            change(&mut bytes);
            page_of(&bytes)
        };
        let current = changed(self.pages.get(page));
        self.pages.replace(page, current);
        if let Some(bytes) = self.durable_before.get_mut(&page) {
            *bytes = changed(bytes);
        }
        for write in &mut self.unsynced {
            for (number, bytes) in (write.first_page..).zip(&mut write.pages) {
                if let (true, Some(bytes)) = (number == page, bytes) {
                    *bytes = changed(bytes);
                }
            }
        }
    }
}

/// What is in page number `index` of a write of this fate afterwards.
fn survivor(fate: &Fate, index: usize, old: &Page, new: &Page, random: &mut SeededRandom) -> Page {
    match fate {
        Fate::Kept => new.clone(),
        Fate::Lost => old.clone(),
        Fate::TornTo(_) | Fate::Scattered => mixed(old, new, |sector| {
            fate.takes(index * SECTORS_PER_PAGE + sector, random)
        }),
    }
}
