//! The bytes of a simulated disk: sparse, and cheap to copy because pages are shared.

use std::sync::Arc;

use crate::power_cut::SECTOR_BYTES;

/// The unit in which simulated disks keep bytes; every write is a whole number of them.
pub(super) const PAGE_BYTES: usize = 4096;

pub(super) const SECTORS_PER_PAGE: usize = PAGE_BYTES / SECTOR_BYTES;

/// One page; a page never written is none, and reads as zeros.
pub(super) type Page = Option<Arc<[u8; PAGE_BYTES]>>;

const GROUP_PAGES: usize = 128;

/// Two levels, so that a fresh disk costs one small allocation, whatever its size.
#[derive(Debug, Clone)]
pub(super) struct PageMap {
    groups: Vec<Option<Box<[Page; GROUP_PAGES]>>>,
}

impl PageMap {
    /// All zeros.
    pub(super) fn zeroed(size_bytes: u64) -> Self {
        let group_bytes = (GROUP_PAGES * PAGE_BYTES) as u64;
        let group_count = index_of(size_bytes.div_ceil(group_bytes));
        Self {
            groups: vec![None; group_count],
        }
    }

    /// Makes room for a disk of that size; never less than there is.
    pub(super) fn reach(&mut self, size_bytes: u64) {
        let group_bytes = (GROUP_PAGES * PAGE_BYTES) as u64;
        let group_count = index_of(size_bytes.div_ceil(group_bytes));
        if self.groups.len() < group_count {
            self.groups.resize(group_count, None);
        }
    }

    /// Zeros from that page on.
    pub(super) fn forget_from(&mut self, first_page: u64) {
        let first = index_of(first_page);
        for (number, group) in self.groups.iter_mut().enumerate() {
            let start = number * GROUP_PAGES;
            if start >= first {
                *group = None;
            } else if let Some(pages) = group
                && first < start + GROUP_PAGES
            {
                pages[first - start..].fill(None);
            }
        }
    }

    pub(super) fn get(&self, page: u64) -> &Page {
        let page = index_of(page);
        match &self.groups[page / GROUP_PAGES] {
            Some(group) => &group[page % GROUP_PAGES],
            None => &None,
        }
    }

    /// Puts `bytes` at `page` and gives back what was there.
    pub(super) fn replace(&mut self, page: u64, bytes: Page) -> Page {
        let page = index_of(page);
        let group = self.groups[page / GROUP_PAGES]
            .get_or_insert_with(|| Box::new([const { None }; GROUP_PAGES]));
        std::mem::replace(&mut group[page % GROUP_PAGES], bytes)
    }

    /// Copies the bytes from `first_page` on, which `memory` holds a whole number of.
    pub(super) fn read(&self, first_page: u64, memory: &mut [u8]) {
        for (page, target) in (first_page..).zip(memory.chunks_exact_mut(PAGE_BYTES)) {
            match self.get(page) {
                Some(bytes) => target.copy_from_slice(&bytes[..]),
                None => target.fill(0),
            }
        }
    }
}

/// A shared page with these bytes.
pub(super) fn page_of(bytes: &[u8]) -> Page {
    let bytes: &[u8; PAGE_BYTES] = bytes.try_into().expect("callers cut at page borders");
    Some(Arc::new(*bytes))
}

/// The page `old` with those sectors of `new` for which `takes` says so.
pub(super) fn mixed(old: &Page, new: &Page, mut takes: impl FnMut(usize) -> bool) -> Page {
    let mut bytes = old.as_deref().map_or([0; PAGE_BYTES], |bytes| *bytes);
    for sector in (0..SECTORS_PER_PAGE).filter(|&sector| takes(sector)) {
        let range = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
        match new {
            Some(new) => bytes[range.clone()].copy_from_slice(&new[range]),
            None => bytes[range].fill(0),
        }
    }
    Some(Arc::new(bytes))
}

pub(super) fn index_of(number: u64) -> usize {
    usize::try_from(number).expect("simulated disks are far smaller than the address space")
}
