//! What happened in a group, told while it happens and kept where it survives.
//!
//! An event is made in memory, wherever it happens, and waits in a queue of bounded length until
//! the process that serves the group takes it (`Core::take_events`). Making one never
//! does I/O and never fails, so that the data path can do it. It has no time: this crate has no
//! clock, and whoever keeps the event gives it one.

use std::collections::VecDeque;

use spindle_base::{DiskNumber, FileId};
pub use spindle_format::{EventRecord, Severity};
use spindle_sync::level::LeafMutex;

/// Events that wait to be taken at most. A storm beyond it is counted, not kept.
const WAITING_MOST: usize = 4096;

/// Declares the kinds with the name and the usual severity of each in one place.
macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $kind:ident = $name:literal, $severity:ident;)+) => {
        /// What sort of thing happened. More are added as the group learns more; a reader must
        /// expect names that it does not know.
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
        )]
        #[non_exhaustive]
        #[serde(rename_all = "snake_case")]
        pub enum EventKind {
            $($(#[doc = $doc])+ $kind,)+
        }

        impl EventKind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$kind),+];

            /// The word that JSON, the catalog and filters have; a promise.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)+
                }
            }

            /// What happened, in a sentence or two.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$kind => concat!($($doc),+).trim(),)+
                }
            }

            /// How much it matters where whoever tells it says nothing else.
            #[must_use]
            pub const fn usual_severity(self) -> Severity {
                match self {
                    $(Self::$kind => Severity::$severity,)+
                }
            }
        }
    };
}

kinds! {
    /// A process opened the group.
    GroupOpened = "group_opened", Info;
    /// The group was closed in order.
    GroupClosed = "group_closed", Info;
    /// The process before did not close the group: it was killed, or no disk took the close.
    GroupNotClosed = "group_not_closed", Warning;
    /// The process that serves the group was told to end.
    GroupStopping = "group_stopping", Info;
    /// The group cannot go on: nothing is written any more.
    GroupFenced = "group_fenced", Critical;
    /// Another process took over the mount and the disks.
    GroupTakenOver = "group_taken_over", Info;
    /// The keeper of the mount died: nobody takes over any more.
    KeeperLost = "keeper_lost", Warning;
    /// The mount was removed by somebody else.
    MountRemoved = "mount_removed", Warning;
    /// Lazy work failed and is tried again.
    BackgroundFailed = "background_failed", Critical;
    /// A disk went offline; what is written from now on it misses.
    DiskOffline = "disk_offline", Critical;
    /// A disk is online again.
    DiskOnline = "disk_online", Info;
    /// A disk was found that cannot be used: its label is damaged or the group does not know it.
    DiskPassedOver = "disk_passed_over", Warning;
    /// A disk was added.
    DiskAdded = "disk_added", Info;
    /// A disk is being emptied, to be dropped then.
    DiskDropping = "disk_dropping", Info;
    /// A disk is kept after all.
    DiskUndropped = "disk_undropped", Info;
    /// A disk was dropped while it was away; what it held is made again elsewhere.
    DiskAbsent = "disk_absent", Warning;
    /// A disk does not belong to the group any more.
    DiskDropped = "disk_dropped", Info;
    /// A disk takes the place of another.
    DiskReplaced = "disk_replaced", Info;
    /// A disk has another size.
    DiskResized = "disk_resized", Info;
    /// A change of the disks was made because a user asked for it: who, where and for what.
    DisksChangeAsked = "disks_change_asked", Info;
    /// Files, or the group, are to have another number of copies.
    RedundancyChanged = "redundancy_changed", Info;
    /// A disk has another name.
    DiskRenamed = "disk_renamed", Info;
    /// A disk answers much slower than the others and is read around.
    DiskSlow = "disk_slow", Warning;
    /// A disk that was slow is not any more.
    DiskFast = "disk_fast", Info;
    /// A disk does not answer, and what needs it waits: nobody else has what it holds.
    DiskHangs = "disk_hangs", Critical;
    /// A disk that hung answers again.
    DiskAnswers = "disk_answers", Info;
    /// Requests to a disk failed and succeeded when they were tried again.
    DiskBlinked = "disk_blinked", Warning;
    /// A test made a disk fail, or answer again.
    DiskFaultInjected = "disk_fault_injected", Warning;
    /// A damaged or older copy of a label, an opener record or a group state was written again.
    LabelRepaired = "label_repaired", Warning;
    /// Copies of a label could not be written, and are written again by themselves; the group state
    /// counts.
    LabelLate = "label_late", Warning;
    /// A copy of a label that could not be written was written after all.
    LabelWritten = "label_written", Info;
    /// A damaged or unreadable block was written again from a good copy.
    BlockRepaired = "block_repaired", Warning;
    /// A damaged block was given another place on its disk.
    BlockMoved = "block_moved", Warning;
    /// Copies differed after an unclean stop and were made equal.
    CopiesEqualised = "copies_equalised", Info;
    /// Copies differ and nothing tells which is right; nothing was changed.
    CopiesDiffer = "copies_differ", Critical;
    /// Damage was found that no copy can repair.
    DamageFound = "damage_found", Critical;
    /// Blocks can be read from no copy.
    BlocksUnreadable = "blocks_unreadable", Critical;
    /// A write was taken by no copy; the program was told.
    WriteFailed = "write_failed", Critical;
    /// A flush failed; the program was told.
    FlushFailed = "flush_failed", Critical;
    /// Blocks of the catalog were damaged or differed and were written again.
    CatalogRepaired = "catalog_repaired", Warning;
    /// The catalog has fewer replicas than it should, and no disk can hold another.
    CatalogReplicaLost = "catalog_replica_lost", Critical;
    /// A disk holds a replica of the catalog now.
    CatalogReplicaAdded = "catalog_replica_added", Info;
    /// A rebalance began.
    RebalanceStarted = "rebalance_started", Info;
    /// A rebalance ended; the message says how.
    RebalanceEnded = "rebalance_ended", Info;
    /// A rebalance cannot go on; the message says why.
    RebalanceStopped = "rebalance_stopped", Warning;
    /// What a returned disk missed is being copied to it.
    ResyncStarted = "resync_started", Info;
    /// A returned disk has everything again.
    ResyncEnded = "resync_ended", Info;
    /// Missing copies are being made.
    RestoreStarted = "restore_started", Info;
    /// Every extent has all its copies again.
    RestoreEnded = "restore_ended", Info;
    /// Missing copies cannot be made; the message says what is lacking.
    RestoreStopped = "restore_stopped", Critical;
    /// A disk was away longer than its repair time and is dropped.
    RepairTimeOver = "repair_time_over", Critical;
    /// A scrub began.
    ScrubStarted = "scrub_started", Info;
    /// A scrub ended; the message says what it found.
    ScrubEnded = "scrub_ended", Info;
    /// A scrub looked at every copy in the group and left nothing wrong.
    AllCopiesRight = "all_copies_right", Info;
    /// A scrub could not look at some copies; the message says which and why.
    ScrubLeftOut = "scrub_left_out", Warning;
    /// A check found contradictions, or repaired some.
    CheckFound = "check_found", Critical;
    /// Little can still be written.
    SpaceLow = "space_low", Warning;
    /// The free space does not suffice to restore redundancy after a failure.
    UsableNegative = "usable_negative", Critical;
    /// A setting of the group was changed.
    SettingChanged = "setting_changed", Info;
    /// The hook command failed.
    HookFailed = "hook_failed", Warning;
    /// More happened at once than is kept; the message says how much was left out.
    EventsLeftOut = "events_left_out", Warning;
}

impl std::fmt::Display for EventKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Event {
    /// What sort of thing.
    pub kind: EventKind,
    /// How much it matters.
    pub severity: Severity,
    /// The disk it happened to, if one.
    pub disk: Option<DiskNumber>,
    /// The file it happened to, if one.
    pub file: Option<FileId>,
    /// What a person reads: what happened, to what, and what to do.
    pub message: String,
}

impl Event {
    /// An event of that kind's usual severity.
    #[must_use]
    pub fn new(kind: EventKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            severity: kind.usual_severity(),
            disk: None,
            file: None,
            message: message.into(),
        }
    }

    /// It happened to this disk.
    #[must_use]
    pub const fn disk(mut self, disk: DiskNumber) -> Self {
        self.disk = Some(disk);
        self
    }

    /// It happened to this file.
    #[must_use]
    pub const fn file(mut self, file: FileId) -> Self {
        self.file = Some(file);
        self
    }

    /// It matters more or less than events of its kind usually do.
    #[must_use]
    pub const fn severity(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }
}

impl std::fmt::Display for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.message)
    }
}

/// Events that nobody has taken yet.
#[derive(Debug, Default)]
pub(crate) struct EventQueue(LeafMutex<Waiting>);

impl FromIterator<Event> for EventQueue {
    fn from_iter<I: IntoIterator<Item = Event>>(events: I) -> Self {
        let queue = Self::default();
        events.into_iter().for_each(|event| queue.push(event));
        queue
    }
}

#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<Event>,
    left_out_count: u64,
}

impl EventQueue {
    pub(crate) fn push(&self, event: Event) {
        let mut waiting = self.0.lock();
        if waiting.events.len() >= WAITING_MOST {
            waiting.left_out_count += 1;
            // What matters most must not fall victim to a storm of what matters less.
            let least = waiting
                .events
                .iter()
                .position(|old| old.severity < event.severity);
            match least {
                Some(position) => waiting.events.remove(position),
                None => return,
            };
        }
        waiting.events.push_back(event);
    }

    /// Everything that waits, the oldest first.
    pub(crate) fn take(&self) -> Vec<Event> {
        let waiting = std::mem::take(&mut *self.0.lock());
        let mut events: Vec<Event> = waiting.events.into();
        if waiting.left_out_count > 0 {
            events.push(Event::new(
                EventKind::EventsLeftOut,
                format!(
                    "{} further events came faster than they could be kept; the log of the \
                     process has them",
                    waiting.left_out_count
                ),
            ));
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, EventKind, EventQueue, Severity, WAITING_MOST};

    #[test]
    fn the_name_of_a_kind_is_what_json_has() {
        for kind in EventKind::ALL {
            let debug = format!("{kind:?}");
            let mut snake = String::new();
            for letter in debug.chars() {
                if letter.is_uppercase() && !snake.is_empty() {
                    snake.push('_');
                }
                snake.extend(letter.to_lowercase());
            }
            assert_eq!(kind.name(), snake);
        }
        for severity in Severity::ALL {
            assert_eq!(Severity::from_name(severity.name()), Some(severity));
        }
    }

    #[test]
    fn a_storm_of_small_events_neither_grows_without_end_nor_hides_a_lost_disk() {
        let queue = EventQueue::default();
        for number in 0..WAITING_MOST + 10 {
            queue.push(Event::new(
                EventKind::BlockRepaired,
                format!("block {number}"),
            ));
        }
        queue.push(Event::new(EventKind::DiskOffline, "disk 3 goes offline"));
        let events = queue.take();
        assert_eq!(events.len(), WAITING_MOST + 1);
        assert!(
            (events.iter()).any(|event| event.kind == EventKind::DiskOffline),
            "the lost disk is told of"
        );
        let last = events.last().unwrap();
        assert_eq!(last.kind, EventKind::EventsLeftOut);
        assert!(last.message.starts_with("11 further"), "{last}");
        assert!(queue.take().is_empty());
    }
}
