//! Mistakes that were once in the code, and that the simulator of threads puts back.
//!
//! A simulator that finds nothing may have nothing to find, or may be blind. So where a mistake
//! was mended that only several threads, a blink or a power cut could show, the mend asks
//! [`is_put_back`](crate::is_put_back), and a test asks the simulator to find the mistake again. In
//! what ships the answer is the constant `false`, and nothing of the mistake is compiled in.

/// A mistake that can be put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    /// A move goes on with what it copied before its target went away and came back.
    MoveOutlivesBlink = 1,
    /// A seal lets a file's map go before the map's rows have the number of their edit.
    SealLetsMapGo,
    /// A commit counts the outages that its batch knows of when others may have noted one more.
    OutagesCountedLate,
    /// A write gets its number before the disks have answered it.
    WriteNumberedEarly,
    /// What a disk lost when it went away counts as flushed.
    LostCountsAsFlushed,
    /// A scrub leaves a disk's copy out of a whole stretch for one stale block, and tells nobody.
    ScrubSkipsStretch,
    /// A request of the kernel's counts as done before it is carried out.
    RequestDoneEarly,
    /// A disk that keeps silent is waited for by whoever asked it, and by all who wait for those.
    SilentDiskWaitedFor,
    /// Disks are seen to have come or gone before that is counted.
    TurnsCountedLate,
    /// A disk that failed one flush goes although nobody else has what it has.
    NeededDiskGoes,
    /// A flush counts although the disk failed one before that was not told.
    FailedFlushForgotten,
    /// A journal that no disk gives counts as one that ends.
    UnreadJournalEnds,
    /// A disk lacks what is zeroed before a write in an extent, where it lacked something before.
    ZerosCountAsLacked,
    /// A direct client's read counts although somebody wrote there meanwhile.
    ClientsReadBesideWriters,
}

impl Fault {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::MoveOutlivesBlink,
        Self::SealLetsMapGo,
        Self::OutagesCountedLate,
        Self::WriteNumberedEarly,
        Self::LostCountsAsFlushed,
        Self::ScrubSkipsStretch,
        Self::RequestDoneEarly,
        Self::SilentDiskWaitedFor,
        Self::TurnsCountedLate,
        Self::NeededDiskGoes,
        Self::FailedFlushForgotten,
        Self::UnreadJournalEnds,
        Self::ZerosCountAsLacked,
        Self::ClientsReadBesideWriters,
    ];

    /// What a person calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MoveOutlivesBlink => "move-outlives-blink",
            Self::SealLetsMapGo => "seal-lets-map-go",
            Self::OutagesCountedLate => "outages-counted-late",
            Self::WriteNumberedEarly => "write-numbered-early",
            Self::LostCountsAsFlushed => "lost-counts-as-flushed",
            Self::ScrubSkipsStretch => "scrub-skips-stretch",
            Self::RequestDoneEarly => "request-done-early",
            Self::SilentDiskWaitedFor => "silent-disk-waited-for",
            Self::TurnsCountedLate => "turns-counted-late",
            Self::NeededDiskGoes => "needed-disk-goes",
            Self::FailedFlushForgotten => "failed-flush-forgotten",
            Self::UnreadJournalEnds => "unread-journal-ends",
            Self::ZerosCountAsLacked => "zeros-count-as-lacked",
            Self::ClientsReadBesideWriters => "clients-read-beside-writers",
        }
    }
}
