//! What a page is worth by itself.

/// Where a page stands in its database's log: of two versions of one page the newer has the
/// greater position, as long as the log goes on. It goes back where a server is given another one:
/// by `pg_resetwal`, by `pg_rewind` and the timeline that it leads to, where InnoDB's log was made
/// anew (`innodb_force_recovery = 6`), and where a backup is restored over the files that are
/// there. Nothing on a page tells of that: a newer page that a disk damaged after it, and whose
/// version from before stands on another disk with a greater position, passes for the older one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// The page says it, and it can be compared with that of other versions of the page.
    At(u64),
    /// The page has none, or none that proves anything.
    Hidden,
}

impl Position {
    /// What the number in a page's header says. A server leaves 0 on each version of a page whose
    /// changes are not logged (PostgreSQL's unlogged tables, and those that `wal_level = minimal`
    /// fills), so it says nothing.
    pub(crate) const fn of_header(number: u64) -> Self {
        match number {
            0 => Self::Hidden,
            number => Self::At(number),
        }
    }

    /// Whether a page that stands here is older by the log than one that stands at `other`. What
    /// stands at the same place need not be the same: PostgreSQL's hint bits are not always
    /// logged.
    #[must_use]
    pub const fn is_before(self, other: Self) -> bool {
        match (self, other) {
            (Self::At(own), Self::At(other)) => own < other,
            _ => false,
        }
    }
}

/// What a bad page is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Of another place, or no page at all: no program wrote this as this page.
    Elsewhere,
    /// It looks like a version of this page that is damaged, or that was written without a
    /// checksum, or like the page of this number of another file that came over this one.
    Here(Position),
}

/// What a page is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Its checksum is right, and it stands where it says it stands.
    Good(Position),
    /// Its checksum or its place is wrong.
    Bad(Origin),
    /// All zeros, as a database leaves a page that it has not used yet. Sound, and proof of
    /// nothing: a write that was lost can leave zeros too.
    Empty,
    /// It has no checksum, or none that can be relied on.
    Unknown,
}

impl Verdict {
    /// Whether it is good.
    #[must_use]
    pub const fn is_good(self) -> bool {
        matches!(self, Self::Good(_))
    }

    /// Whether it is bad.
    #[must_use]
    pub const fn is_bad(self) -> bool {
        matches!(self, Self::Bad(_))
    }
}
