//! A record on the disks that does not say who has the group.
//!
//! Whoever is delayed between its look and its record overwrites that of a host which has taken the
//! group meanwhile. It meets that one's claim at its next look, lets go and waits, see `claim.rs`; but
//! where its process dies instead, its record is all that the next one of that host finds: of its own
//! host, dead, and the newest. The other host is served by then, until it looks at the records.
//!
//! What it claimed with tells. Of two openings that both claim, at most one goes on, and then every
//! record that both can read is that one's: so a record is contested where
//! - a claim of another host is newer; or
//! - its opening made no claim that is left, and has not served, and what stands beside it is another
//!   host's: a record as new, or the newest of the claims.
//!
//! The second may mean no more than that a process died between its two marks, or that both let go. So
//! the group is not refused but left for [`super::CLAIM_PAUSE_MS`]: whoever went on has stopped by then
//! or written its own record again. Where the same record still stands, the group is taken, and what a
//! keeper's journal has is not: the other may have written to the disks.

use spindle_base::Uuid;
use spindle_format::OpenerRecord;
use spindle_sync::level::LeafMutex;

use crate::quorum::claim::is_same_opening;
use crate::quorum::look::DiskLook;

/// For which record a group was left alone. Who gives it to each of its tries to open a group, and
/// waits [`super::CLAIM_PAUSE_MS`] after one that is
/// [`Contended`](crate::error::GroupErrorKind::Contended), is taken to have waited where it finds that
/// record again.
#[derive(Debug, Default)]
pub struct Waited(LeafMutex<Option<OpenerRecord>>);

impl Waited {
    /// The group is left alone from now on, because of that record.
    pub(super) fn note(&self, record: &OpenerRecord) {
        *self.0.lock() = Some(record.clone());
    }

    pub(super) fn was_for(&self, record: &OpenerRecord) -> bool {
        let noted = self.0.lock();
        (noted.as_ref()).is_some_and(|noted| is_same_opening(noted, record))
    }
}

/// Whoever may have the group although `newest` is the newest record, by what the voters show: on
/// another host than this one, which was started as `boot`. `has_served` knows of processes that had
/// the group for sure.
pub(super) fn rival<'a>(
    voters: &[&'a DiskLook],
    newest: &OpenerRecord,
    boot: Uuid,
    has_served: &dyn Fn(&OpenerRecord) -> bool,
) -> Option<&'a OpenerRecord> {
    let claims = || voters.iter().filter_map(|look| look.claim.as_ref());
    let records = || voters.iter().filter_map(|look| look.opener.as_ref());
    let is_other = |record: &&OpenerRecord| ![newest.boot, boot].contains(&record.boot);
    let mut newer = claims().filter(|claim| claim.sequence > newest.sequence);
    if let Some(claim) = newer.find(is_other) {
        return Some(claim);
    }
    // Heartbeats count from when the group is open.
    let is_proven = !newest.open || newest.heartbeats_count > 0 || has_served(newest);
    if is_proven || claims().any(|claim| is_same_opening(claim, newest)) {
        return None;
    }
    let last_claim = claims().map(|claim| claim.sequence).max();
    let mut marks = records()
        .filter(|record| record.sequence == newest.sequence)
        .chain(claims().filter(|claim| Some(claim.sequence) == last_claim));
    marks.find(is_other)
}
