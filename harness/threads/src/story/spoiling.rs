//! A disk that is put back to what it once held, or cut off, before the next opening.
//!
//! Where every disk serves, so that the others have a majority without this one, and has what they
//! have. The next process must not believe it. One that was put back stays away for good; one that
//! was cut off and is whole again gets everything anew.

use std::sync::atomic::Ordering;

use spindle_base::DiskNumber;
use spindle_device::{DiskSlot, SeededRandom};
use spindle_group::Group;

use super::{Plot, PoisonError, Story, scene};

/// What became of a disk.
#[derive(Debug, Clone, Copy)]
pub(super) enum Spoilt {
    PutBack(DiskSlot),
    Cut(DiskSlot),
}

impl Spoilt {
    const fn slot(self) -> DiskSlot {
        match self {
            Self::PutBack(slot) | Self::Cut(slot) => slot,
        }
    }
}

impl Story {
    /// Somebody takes a snapshot of one disk.
    pub fn take_image(&self, group: &Group, of: u64) {
        let mut random = self.random(of);
        for _ in 0..random.below(300) {
            spindle_sync::point();
        }
        let candidates = self.fallible();
        let slot = candidates[random.index(candidates.len())];
        // One that has not taken its first state yet is left out: put back to its label alone it
        // passes for a disk that went while it joined, and is taken back (docs/plan.md).
        if !(group.view().disks.iter()).any(|disk| disk.number.0 == slot.0 && disk.mode == "online")
        {
            return;
        }
        self.history
            .note(|| format!("somebody takes an image of slot {}", slot.0));
        let image = self.disks.image(slot);
        let mut kept = self.image.lock().unwrap_or_else(PoisonError::into_inner);
        *kept = Some((slot, image));
    }

    /// Which disk is to be spoilt, where one may be.
    pub(super) fn draw_spoilt(&self, group: &Group, random: &mut SeededRandom) -> Option<Spoilt> {
        let view = group.view();
        let serves = |slot: DiskSlot| {
            (view.disks.iter()).any(|disk| disk.number.0 == slot.0 && disk.mode == "online")
        };
        let all_serve = view.disks.iter().all(|disk| disk.mode == "online")
            && (self.fallible().iter()).all(|slot| serves(*slot) && !self.disks.is_vanished(*slot));
        let peers = (view.disks.iter())
            .filter(|disk| scene::failure_group(DiskSlot(disk.number.0)) == 1)
            .count();
        // With one vote for each failure group the others are no majority.
        let is_smaller = self.is_smaller.load(Ordering::Relaxed);
        let are_mirrored = self.files.iter().all(|subject| subject.is_mirrored);
        let is_settled = view.resync_left_bytes == 0 && group.operations().is_empty();
        // What tells that a disk was put back may be what cannot be read.
        if self.plot == Plot::Places {
            return None;
        }
        if !all_serve || is_smaller || peers < 2 || !are_mirrored || !is_settled {
            return None;
        }
        let image = self.image.lock().unwrap_or_else(PoisonError::into_inner);
        let of_image = image.as_ref().map(|(slot, _)| *slot);
        drop(image);
        match of_image {
            Some(slot) if serves(slot) => {
                // What tells: two states that it does not have.
                for name in ["OTHER", "DATA"] {
                    let name = spindle_base::GroupName::new(name).expect("a good name");
                    self.judge("a new name", group.rename(&name));
                }
                // One that had gone and was not asked since goes offline only now.
                let all_serve = group.view().disks.iter().all(|disk| disk.mode == "online");
                all_serve.then_some(Spoilt::PutBack(slot))
            }
            _ if random.chance(1, 8) => {
                let candidates = self.fallible();
                Some(Spoilt::Cut(candidates[random.index(candidates.len())]))
            }
            _ => None,
        }
    }

    pub(super) fn spoil(&self, spoilt: Option<Spoilt>, random: &mut SeededRandom) {
        match spoilt {
            None => {}
            Some(Spoilt::PutBack(slot)) => {
                self.history
                    .note(|| format!("slot {} is put back to the image", slot.0));
                let image = self.image.lock().unwrap_or_else(PoisonError::into_inner);
                let (_, image) = image.as_ref().expect("it was there");
                self.disks.put_back(slot, image);
            }
            Some(Spoilt::Cut(slot)) => {
                let mib = 4 + random.below(58);
                self.history
                    .note(|| format!("slot {} is cut off at {mib} MiB", slot.0));
                self.disks.cut(slot, mib << 20);
            }
        }
    }

    /// The disk is not believed; what is to become of it.
    pub(super) fn mend_spoilt(&self, group: &Group, spoilt: Spoilt) -> bool {
        let slot = spoilt.slot();
        if !Self::is_offline(group, slot) {
            self.history
                .violate(format!("{spoilt:?}, and the next process believes it"));
            return false;
        }
        match spoilt {
            Spoilt::Cut(slot) => self.disks.resize(slot, scene::DISK_BYTES),
            Spoilt::PutBack(slot) => {
                if group.return_disks(&[slot]).is_ok() {
                    self.history
                        .violate(format!("slot {} was put back, and is taken back", slot.0));
                    return false;
                }
                if !self.return_others(group, slot) {
                    return false;
                }
                let answer = group.drop_disks(&[DiskNumber(slot.0)], true);
                self.judge("a drop of what was put back", answer);
            }
        }
        self.history.is_clean()
    }

    /// Disks that a broken place took offline since the opening come back first: a drop is refused
    /// that would leave a failure group without any disk.
    fn return_others(&self, group: &Group, spoilt: DiskSlot) -> bool {
        let others = (self.fallible().into_iter())
            .filter(|slot| *slot != spoilt && Self::is_offline(group, *slot));
        for slot in others {
            self.history
                .note(|| format!("slot {} is taken back first", slot.0));
            self.judge("a return before a drop", group.return_disks(&[slot]));
        }
        self.history.is_clean()
    }
}
