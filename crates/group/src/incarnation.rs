//! Which stay of a disk something belongs to.
//!
//! A disk that goes away loses what no flush had covered, and what it missed is copied to it when
//! it is back. So whatever is relied on for longer than one request (a write that is to be
//! flushed, a copy on its way, a bad place that waits) carries the incarnation in which it was
//! seen, and is worth nothing in a later one: it is lost, never flushed.
//!
//! An incarnation ends with each outage, and a new one begins with each return. A disk that failed a
//! flush and serves on, because nobody else has what it holds, has lost as much as one that was away
//! for a moment: so its incarnation ends there too, and the next that serves begins at once. It is
//! memory only: an opening begins with the first one of every disk that is here.

use spindle_base::DiskNumber;

/// How often a disk has come and gone, or lost as much as if it had: odd while it serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Incarnation(u32);

impl Incarnation {
    /// That of a disk which was not there when the group was opened.
    pub const AWAY: Self = Self(0);

    /// As its number, for an atomic.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// From its number.
    pub const fn of_number(number: u32) -> Self {
        Self(number)
    }

    /// Whether the disk serves.
    pub const fn serves(self) -> bool {
        self.0 % 2 == 1
    }

    /// The outages before it.
    pub const fn outages_count(self) -> u32 {
        self.0 / 2
    }

    /// The one that begins where this one ends.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

/// A disk in one of its incarnations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Life {
    /// The disk.
    pub disk: DiskNumber,
    /// Which.
    pub incarnation: Incarnation,
}

#[cfg(test)]
mod tests {
    use super::Incarnation;

    #[test]
    fn a_disk_serves_in_every_second_one_and_each_that_ends_is_an_outage() {
        let mut incarnation = Incarnation::AWAY;
        let mut seen = Vec::new();
        for _ in 0..5 {
            seen.push((incarnation.serves(), incarnation.outages_count()));
            incarnation = incarnation.next();
        }
        let wanted = [(false, 0), (true, 0), (false, 1), (true, 1), (false, 2)];
        assert_eq!(seen, wanted);
    }
}
