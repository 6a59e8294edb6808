//! Where the replicas of the catalog lie, and where they should.
//!
//! They lie in as many failure groups as they can. A replica that goes elsewhere must not leave
//! fewer failure groups with one than the redundancy needs: the loss of one of those would cost
//! the catalog, and with it everything.

use std::collections::BTreeSet;

use spindle_base::DiskNumber;
use spindle_format::{AuRun, DiskState, DiskStatus, GroupState, Replica};

use crate::error::{GroupError, GroupErrorKind};
use crate::incarnation::Incarnation;
use crate::quorum::{Membership, refused, voters};

/// A replica that should lie elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReplicaMove {
    /// The disks that could have it instead, the best first.
    pub(crate) to: Vec<DiskNumber>,
    /// Whether those that stay are enough for the redundancy where no other disk can have it.
    pub(crate) may_go: bool,
}

impl Membership {
    /// How many disks should hold the catalog: no more than there are.
    #[must_use]
    pub fn replicas_wanted(&self) -> u32 {
        let inner = self.inner.lock();
        let holders = (inner.state.disks.iter())
            .filter(|disk| !disk.quorum_only && disk.status != DiskStatus::Absent)
            .count();
        let wanted = voters::replicas_wanted(inner.state.disks.len()).min(holders);
        u32::try_from(wanted).expect("at most five")
    }

    /// The disks that could hold another replica of the catalog, the best first; none where none
    /// is lacking.
    #[must_use]
    pub fn replica_candidates(&self) -> Vec<DiskNumber> {
        let inner = self.inner.lock();
        let state = &inner.state;
        if state.replicas.len() >= voters::replicas_wanted(state.disks.len()) {
            return Vec::new();
        }
        let candidates = voters::replica_candidates(&state.disks, &holders(state));
        candidates.iter().map(|disk| disk.number).collect()
    }

    /// The disks whose replicas should lie elsewhere: those on their way out, and one of a failure
    /// group that has several where another has two fewer (it was away, or joined later).
    pub(crate) fn replicas_to_move(&self) -> Vec<DiskNumber> {
        let inner = self.inner.lock();
        let leaving = (holders(&inner.state).into_iter())
            .filter(|disk| disk.status == DiskStatus::Dropping)
            .map(|disk| disk.number);
        let crowded = crowded_replica(&inner.state);
        leaving.chain(crowded.map(|(from, _)| from)).collect()
    }

    /// The move of the replica on a disk; `None` where it holds none, or may keep it.
    pub(crate) fn replica_to_move(&self, from: DiskNumber) -> Option<ReplicaMove> {
        let inner = self.inner.lock();
        let status = inner.state.disk(from)?.status;
        if status == DiskStatus::Dropping {
            return leaving_replica(&inner.state, from);
        }
        let (_, to) = crowded_replica(&inner.state).filter(|(crowded, _)| *crowded == from)?;
        Some(ReplicaMove { to, may_go: false })
    }

    /// Records that the region has grown: `runs` gives the new run of each replica, in their
    /// order, or none where the room was there already.
    pub(crate) fn record_region(
        &self,
        size_bytes: u64,
        runs: &[(DiskNumber, AuRun)],
    ) -> Result<(), GroupError> {
        self.change_state(|state| {
            for replica in &mut state.replicas {
                let run = runs.iter().find(|(disk, _)| *disk == replica.disk);
                replica.runs.extend(run.map(|(_, run)| *run));
            }
            state.region_size_bytes = size_bytes;
        })
    }

    /// Records a further replica, whose contents were made equal to the others' in this
    /// incarnation of its disk.
    ///
    /// # Errors
    /// [`GroupErrorKind::Io`] where the disk has gone since, and nothing is recorded; else as every
    /// change of the state.
    pub(crate) fn record_replica(
        &self,
        replica: &Replica,
        made_in: Incarnation,
        instead_of: Option<DiskNumber>,
    ) -> Result<(), GroupError> {
        self.try_change_state(|state| {
            // Looked at with the state that is changed: whoever looked before may be late.
            if self.incarnation(replica.disk) != made_in || !made_in.serves() {
                return Err(refused(
                    GroupErrorKind::Io,
                    format!(
                        "disk {} went away while it was given a replica of the catalog",
                        replica.disk
                    ),
                )
                .on_disk(replica.disk));
            }
            state.replicas.push(replica.clone());
            (state.replicas).retain(|replica| Some(replica.disk) != instead_of);
            Ok(())
        })
    }

    /// Records that the disks no longer hold a replica.
    ///
    /// # Errors
    /// [`GroupErrorKind::NotEnough`] where no disk would, and nothing is recorded; else as every
    /// change of the state.
    pub(crate) fn record_no_replicas(
        &self,
        disks: &BTreeSet<DiskNumber>,
    ) -> Result<(), GroupError> {
        self.try_change_state(|state| {
            (state.replicas).retain(|replica| !disks.contains(&replica.disk));
            if state.replicas.is_empty() {
                let message = "no disk would hold the catalog any more";
                return Err(refused(GroupErrorKind::NotEnough, message.to_owned()));
            }
            Ok(())
        })
    }

    /// Whether the state names a replica of the catalog on the disk, and the disk serves.
    pub(crate) fn holds_replica(&self, disk: DiskNumber) -> bool {
        let inner = self.inner.lock();
        let named = (inner.state.replicas.iter()).any(|replica| replica.disk == disk);
        named && self.is_online(disk)
    }
}

/// The disks that hold a replica.
fn holders(state: &GroupState) -> Vec<&DiskState> {
    (state.replicas.iter())
        .filter_map(|replica| state.disk(replica.disk))
        .collect()
}

fn leaving_replica(state: &GroupState, from: DiskNumber) -> Option<ReplicaMove> {
    let leaving = holders(state)
        .into_iter()
        .find(|disk| disk.number == from)?;
    let staying: Vec<&DiskState> = (holders(state).into_iter())
        .filter(|disk| disk.number != from && disk.status == DiskStatus::Online)
        .collect();
    let with = |disk| {
        let mut disks = staying.clone();
        disks.push(disk);
        disks
    };
    let online: Vec<&DiskState> = voters::replica_candidates(&state.disks, &[]);
    let needed = (state.redundancy.copies())
        .min(voters::spread(&online))
        .min(voters::spread(&with(leaving)));
    let enough = staying.len() >= voters::replicas_wanted(state.disks.len());
    let to = (voters::replica_candidates(&state.disks, &staying).into_iter())
        .filter(|disk| !enough && disk.number != from && voters::spread(&with(disk)) >= needed)
        .map(|disk| disk.number)
        .collect();
    Some(ReplicaMove {
        to,
        may_go: !staying.is_empty() && voters::spread(&staying) >= needed,
    })
}

/// A disk of the failure group with most replicas, and the disks that are better places.
fn crowded_replica(state: &GroupState) -> Option<(DiskNumber, Vec<DiskNumber>)> {
    let holders = holders(state);
    let count = |disk: &DiskState| voters::count_in(disk.failure_group, &holders);
    let from = (holders.iter())
        .filter(|disk| disk.status == DiskStatus::Online)
        .max_by_key(|disk| (count(disk), disk.number))?;
    let to: Vec<DiskNumber> = (voters::replica_candidates(&state.disks, &holders).into_iter())
        .filter(|disk| count(disk) + 2 <= count(from))
        .map(|disk| disk.number)
        .collect();
    (!to.is_empty()).then_some((from.number, to))
}
