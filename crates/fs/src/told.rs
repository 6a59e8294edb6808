//! Whether somebody was told a file's attributes, and may keep them.
//!
//! The kernel keeps attributes until it is told to forget them. Whoever changes a file past it does so,
//! but not with each write: only where somebody asked since the last time.
//!
//! **Invariant.** Where somebody was told attributes from before a change, the change sees it here when
//! it has been made: who is told says so before the attributes are read, the change looks afterwards.
//! Or somebody is having them forgotten just then, and the change does so once more: nobody knows
//! whether the other one comes in time. What is on its way to the kernel meanwhile, its sender has
//! forgotten, see [`FileSystem::forgettings_count`].

use spindle_sync::atomic::{AtomicU32, Ordering, fence};

use crate::handle::Handle;
use crate::system::FileSystem;

/// Somebody was told.
const TOLD: u32 = 1;
/// What each adds who has them forgotten.
const FORGETTING: u32 = 2;

/// The word of one file.
#[derive(Debug)]
pub(crate) struct ToldAttributes(AtomicU32);

impl ToldAttributes {
    /// `is_told` where an earlier process may have told them.
    pub(crate) fn new(is_told: bool) -> Self {
        Self(AtomicU32::new(u32::from(is_told) * TOLD))
    }

    /// Before attributes are read for somebody who keeps them.
    pub(crate) fn note(&self) {
        self.0.fetch_or(TOLD, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// After a change: whether they are to be forgotten.
    fn begin_to_forget(&self) -> bool {
        fence(Ordering::SeqCst);
        let order = Ordering::SeqCst;
        let begun = (self.0).fetch_update(order, order, |state| {
            (state != 0).then_some((state & !TOLD) + FORGETTING)
        });
        begun.is_ok()
    }

    fn end_forgetting(&self) {
        self.0.fetch_sub(FORGETTING, Ordering::SeqCst);
    }
}

/// The front door is told to forget a file's attributes while this lives.
#[derive(Debug)]
pub struct Forgetting<'a>(&'a ToldAttributes);

impl Forgetting<'_> {
    /// It could not be told: the next change has it told.
    pub fn failed(self) {
        self.0.note();
    }
}

impl Drop for Forgetting<'_> {
    fn drop(&mut self) {
        self.0.end_forgetting();
    }
}

impl Handle {
    /// After a change of the file past the front door: something where that one may keep attributes from
    /// before, which it is to forget before the change is answered.
    #[must_use]
    pub fn forget_attributes(&self) -> Option<Forgetting<'_>> {
        let told = &self.node.told;
        if !told.begin_to_forget() {
            return None;
        }
        self.core.forgettings_count.fetch_add(1, Ordering::SeqCst);
        Some(Forgetting(told))
    }
}

impl FileSystem {
    /// How often a front door was told to forget attributes. Where it differs before attributes are read
    /// and after the door has them, it may have been told too early: it is to forget them again.
    #[must_use]
    pub fn forgettings_count(&self) -> u64 {
        self.core.forgettings_count.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_is_forgotten_once_until_it_is_told_again() {
        let told = ToldAttributes::new(false);
        assert!(!told.begin_to_forget(), "nobody was told");
        told.note();
        assert!(told.begin_to_forget());
        told.end_forgetting();
        assert!(!told.begin_to_forget());
        told.note();
        assert!(told.begin_to_forget());
    }

    #[test]
    fn what_an_earlier_process_told_is_forgotten() {
        assert!(ToldAttributes::new(true).begin_to_forget());
    }

    #[test]
    fn who_changes_a_file_while_another_has_it_forgotten_has_it_forgotten_too() {
        let told = ToldAttributes::new(true);
        assert!(told.begin_to_forget());
        assert!(told.begin_to_forget(), "the other one may not have begun");
        told.end_forgetting();
        told.end_forgetting();
        assert!(!told.begin_to_forget());
    }

    #[test]
    fn what_could_not_be_forgotten_is_left_to_the_next_change() {
        let told = ToldAttributes::new(true);
        assert!(told.begin_to_forget());
        Forgetting(&told).failed();
        assert!(told.begin_to_forget());
    }
}
