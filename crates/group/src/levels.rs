//! The order of locks: types, of which `spindle_sync::level` has the rules.
//!
//! The first is taken first. A lock with no level here is a leaf, or says at its declaration what
//! may be taken below it.

use spindle_catalog::Committing;

spindle_sync::levels! {
    // Held over whole commits.
    /// One change of the disks at a time.
    DiskChanges = 10, "the one change of the disks";
    /// One return of disks at a time.
    Returning = 12, "the one return of disks";
    /// Whose turn it is to give surplus copies back.
    SurplusTurn = 14, "the turn to give surplus copies back";
    /// One search for room in the catalog at a time.
    MakingRoom = 16, "the search for room in the catalog";
    /// One round of cleaning at a time.
    Cleaning = 17, "the round of cleaning";
    /// What an opening found in a kept journal.
    Recovered = 18, "what was recovered from the journal";
    <Committing>;

    /// A range of one file's blocks; held over the I/O of a read or write. A commit takes none.
    Range = 30, "a range of a file";
    /// Shared by whoever changes maps or rows, alone for a seal.
    Change = 40, "the change lock";
    /// One operation at a time writes records into a kept journal.
    Operation = 42, "the operation that the journal counts whole";
    /// The whole range of a file that is being removed. The removal is a part of a change, which
    /// it has open: the one place where somebody who shares the change lock waits for a range.
    /// So whoever holds a range shares the change lock past those who wait to have it alone, or
    /// the three would wait in a circle.
    RemovedRange = 44, "the range of a file that is removed";

    /// The run of a mover: it looks at maps when it picks what to move.
    Moves = 50, "a run of moves";
    /// Which scrub runs; it is shown under this lock, with its position.
    Scrubs = 51, "the scrub that runs";
    /// Stretches that a scrub comes back to; they are saved together with its position.
    ScrubSuspects = 52, "the stretches that a scrub comes back to";
    /// Where a scrub stands: it looks at maps when it picks what to read.
    ScrubCursor = 53, "the position of a scrub";
    /// A file's map.
    Map = 60, "a file's map";
    /// What is lined up to be copied to disks that came back.
    Resync = 70, "the regions lined up for a resync";
    /// Dirty regions.
    Dirty = 72, "the dirty regions";
    /// Since when disks are away, which the catalog's rows and the membership are asked under.
    AwayClock = 80, "the clock of disks that are away";

    /// The catalog's region: one at a time writes, repairs or grows. A reader takes it where a
    /// block looks wrong, so whatever the catalog may be read under stands before it.
    RegionGate = 90, "the gate of the catalog's region";
    /// What is read ahead at an opening; held over the reading.
    ReadAhead = 92, "what is read ahead of the region";
    /// The group state and the labels; held over their writing. A failure path may come to it
    /// with anything held.
    Membership = 94, "the membership";
    /// The owner record is read by one for all, before a request of theirs goes out: below
    /// whatever a request is sent under.
    OwnerRecord = 96, "the reading of the owner record";
}

#[cfg(test)]
mod tests {
    use crate::scene::{NORMAL, Scene, create};

    #[test]
    #[should_panic(expected = "while holding a range of a file")]
    fn no_commit_is_begun_with_a_range_held_not_even_one_with_nothing_to_do() {
        let scene = Scene::mirrored(1);
        let group = scene.open();
        let file = create(&group, 10, NORMAL);
        group.sync().unwrap();
        let _held = file.range_lock.shared(0, 1);
        let _ = group.commit_everything();
    }

    #[test]
    #[should_panic(expected = "while holding a range of a file")]
    fn whoever_holds_a_range_does_not_stand_behind_a_seal_that_waits() {
        let scene = Scene::mirrored(1);
        let group = scene.open();
        let file = create(&group, 10, NORMAL);
        let _held = file.range_lock.shared(0, 1);
        drop(group.change());
    }

    #[test]
    #[should_panic(expected = "while holding a file's map")]
    fn no_change_is_opened_with_a_map_held() {
        let scene = Scene::mirrored(1);
        let group = scene.open();
        let file = create(&group, 10, NORMAL);
        let _map = file.map.read();
        drop(group.change_inside());
    }
}
