//! Whether somebody was told a file's attributes, and may keep them.
//!
//! The kernel keeps attributes until it is told to forget them. Whoever changes a file past it does so,
//! but not with each write: only where somebody asked since the last time.
//!
//! **Invariant.** Where somebody was told attributes from before a change, the change sees it here when
//! it has been made: who is told says so before the attributes are read, the change looks afterwards.
//! Or somebody is having them forgotten just then, and the change does so once more: nobody knows
//! whether the other one comes in time. What is on its way to the kernel meanwhile, its sender has
//! forgotten, see [`FileSystem::was_forgotten_since`]. For that there is the number of the first who
//! has it forgotten: a sender that does not see the number yet sent before the first one's notice.
//! Whoever comes beside the first sends a notice of its own and no more. If it counted as one who
//! has them forgotten, each write that overlaps with another would send a notice because of that one,
//! though nobody asked.

use spindle_base::FileId;
use spindle_sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::handle::Handle;
use crate::system::FileSystem;

/// Somebody was told.
const TOLD: u32 = 1;
/// What each adds who is the first to have forgotten what was told.
const FORGETTING: u32 = 2;

/// What is known of one file.
#[derive(Debug)]
pub(crate) struct ToldAttributes {
    state: AtomicU32,
    /// The number of the last forgetting, of those of all files.
    forgotten_at: AtomicU64,
}

impl ToldAttributes {
    /// `is_told` where an earlier process may have told them.
    pub(crate) fn new(is_told: bool) -> Self {
        Self {
            state: AtomicU32::new(u32::from(is_told) * TOLD),
            forgotten_at: AtomicU64::new(0),
        }
    }

    /// Before attributes are read for somebody who keeps them.
    pub(crate) fn note(&self) {
        self.state.fetch_or(TOLD, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// They are forgotten, or may have been, with that number or one before it.
    pub(crate) fn note_forgotten(&self, number: u64) {
        self.forgotten_at.fetch_max(number, Ordering::SeqCst);
    }

    /// After a change: something where they are to be forgotten, and then whether by the first who does
    /// so since somebody was told.
    fn begin_to_forget(&self) -> Option<bool> {
        fence(Ordering::SeqCst);
        let order = Ordering::SeqCst;
        let before = (self.state).fetch_update(order, order, |state| match state {
            0 => None,
            _ if state & TOLD != 0 => Some((state & !TOLD) + FORGETTING),
            _ => Some(state),
        });
        before.ok().map(|state| state & TOLD != 0)
    }

    /// For the first.
    fn end_forgetting(&self) {
        self.state.fetch_sub(FORGETTING, Ordering::SeqCst);
    }
}

/// The front door is told to forget a file's attributes while this lives.
#[derive(Debug)]
pub struct Forgetting<'a> {
    told: &'a ToldAttributes,
    is_first: bool,
}

impl Forgetting<'_> {
    /// It could not be told: the next change has it told.
    pub fn failed(self) {
        self.told.note();
    }
}

impl Drop for Forgetting<'_> {
    fn drop(&mut self) {
        if self.is_first {
            self.told.end_forgetting();
        }
    }
}

impl Handle {
    /// After a change of the file past the front door: something where that one may keep attributes from
    /// before, which it is to forget before the change is answered.
    #[must_use]
    pub fn forget_attributes(&self) -> Option<Forgetting<'_>> {
        let told = &self.node.told;
        let is_first = told.begin_to_forget()?;
        if is_first {
            let before = self.core.forgettings_count.fetch_add(1, Ordering::SeqCst);
            told.note_forgotten(before + 1);
        }
        Some(Forgetting { told, is_first })
    }
}

impl FileSystem {
    /// How often a front door was told to forget attributes of any file. Where it is the same before
    /// attributes are read and after the door has them, it was not told too early.
    #[must_use]
    pub fn forgettings_count(&self) -> u64 {
        self.core.forgettings_count.load(Ordering::SeqCst)
    }

    /// Whether a front door may have been told to forget this file's attributes since
    /// [`FileSystem::forgettings_count`] was `count`. Where that was before they were read, and the door
    /// has them now, it may have been told too early: it is to forget them again.
    #[must_use]
    pub fn was_forgotten_since(&self, id: FileId, count: u64) -> bool {
        let node = self.core.nodes.get(id);
        // Of one that is not in memory any more nobody knows.
        node.is_none_or(|node| node.told.forgotten_at.load(Ordering::SeqCst) > count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Option<bool> = Some(true);
    const BESIDE_ANOTHER: Option<bool> = Some(false);

    #[test]
    fn what_was_told_is_forgotten_once_until_it_is_told_again() {
        let told = ToldAttributes::new(false);
        assert_eq!(told.begin_to_forget(), None, "nobody was told");
        told.note();
        assert_eq!(told.begin_to_forget(), FIRST);
        told.end_forgetting();
        assert_eq!(told.begin_to_forget(), None);
        told.note();
        assert_eq!(told.begin_to_forget(), FIRST);
    }

    #[test]
    fn what_an_earlier_process_told_is_forgotten() {
        assert_eq!(ToldAttributes::new(true).begin_to_forget(), FIRST);
    }

    #[test]
    fn who_changes_a_file_while_another_has_it_forgotten_has_it_forgotten_too() {
        let told = ToldAttributes::new(true);
        assert_eq!(told.begin_to_forget(), FIRST);
        let beside = told.begin_to_forget();
        assert_eq!(beside, BESIDE_ANOTHER, "the other one may not have begun");
        told.end_forgetting();
        assert_eq!(told.begin_to_forget(), None);
    }

    /// Else there would be one for as long as writes overlap.
    #[test]
    fn who_comes_beside_another_is_no_reason_for_a_third() {
        let told = ToldAttributes::new(true);
        let begin = || {
            let is_first = told.begin_to_forget()?;
            let told = &told;
            Some(Forgetting { told, is_first })
        };
        let first = begin();
        let beside = begin();
        assert!(first.is_some() && beside.is_some());
        drop(first);
        assert!(begin().is_none());
        drop(beside);
        assert!(begin().is_none());
        // Somebody is told while they are forgotten.
        told.note();
        let first = begin();
        told.note();
        assert_eq!(told.begin_to_forget(), FIRST);
        drop(first);
        assert_eq!(told.begin_to_forget(), BESIDE_ANOTHER);
    }

    #[test]
    fn what_could_not_be_forgotten_is_left_to_the_next_change() {
        for is_first in [true, false] {
            let told = ToldAttributes::new(true);
            assert_eq!(told.begin_to_forget(), FIRST);
            let told = &told;
            Forgetting { told, is_first }.failed();
            assert_eq!(told.begin_to_forget(), FIRST);
        }
    }
}
