//! The catalog's replicas: those that were lost are made again, and those of disks that leave go
//! elsewhere. Each is offered to the disks that could have it, the best first, until one has room
//! and takes it; a disk that fails while it does goes offline, as for any failed write. A crash
//! leaves the replicas as the group state names them.

use spindle_base::DiskNumber;
use spindle_catalog::CatalogError;

use crate::background::Group;
use crate::event::{Event, EventKind};

impl Group {
    /// Copies the catalog to another disk where a replica was lost with its disk. That no disk can
    /// take it is told once, and they are asked again at every round. Whether a replica was made.
    pub(crate) fn replace_replica(&self) -> bool {
        let candidates = self.membership.replica_candidates();
        if candidates.is_empty() {
            self.lazy.lock().lacks_replica = None;
            return false;
        }
        let answer = self.offer_replica(&candidates, |disk| self.region.add_replica(disk));
        let lacks = answer.as_ref().err().cloned();
        let told = std::mem::replace(&mut self.lazy.lock().lacks_replica, lacks.clone());
        match answer {
            Ok(disk) => self.tell_of_replica(disk, ""),
            Err(why) if told != lacks => {
                let message =
                    format!("the catalog has lost a replica, and no disk can hold another: {why}");
                self.event(Event::new(EventKind::CatalogReplicaLost, message));
            }
            Err(_) => {}
        }
        lacks.is_none()
    }

    /// Moves replicas off disks that are on their way out, as soon as others can have them, and to
    /// failure groups that have too few.
    pub(crate) fn move_replicas(&self) {
        // Each move changes where the others may go.
        for from in self.membership.replicas_to_move() {
            if let Some(wanted) = self.membership.replica_to_move(from) {
                // Where it cannot be now, forgetting the disk asks again and tells why.
                let _ = self.move_replica(from, &wanted.to);
            }
        }
    }

    /// Takes the replica off a disk that is to be forgotten.
    ///
    /// # Errors
    /// Why it must stay: no other disk can have it, and those that are left do not suffice.
    pub(crate) fn clear_replica(&self, from: DiskNumber) -> Result<(), String> {
        // Those that were lost with other disks come first: this may be the last one, and the disk
        // that gets it the next to fail.
        while self.replace_replica() {}
        let Some(wanted) = self.membership.replica_to_move(from) else {
            return Ok(());
        };
        match self.move_replica(from, &wanted.to) {
            Err(_) if wanted.may_go => (self.region.remove_replica(from))
                .map_err(|error| self.describe_refusal(from, &error)),
            answer => answer,
        }
    }

    fn move_replica(&self, from: DiskNumber, candidates: &[DiskNumber]) -> Result<(), String> {
        let to = self.offer_replica(candidates, |disk| self.region.move_replica(from, disk))?;
        self.tell_of_replica(to, &format!(", in place of {}", self.disks.describe(from)));
        Ok(())
    }

    /// Offers a replica to the candidates in order: who took it.
    ///
    /// # Errors
    /// Why none took it.
    fn offer_replica(
        &self,
        candidates: &[DiskNumber],
        take: impl Fn(DiskNumber) -> Result<(), CatalogError>,
    ) -> Result<DiskNumber, String> {
        let mut refusals: Vec<String> = Vec::new();
        for disk in candidates {
            match take(*disk) {
                Ok(()) => return Ok(*disk),
                Err(error) => refusals.push(self.describe_refusal(*disk, &error)),
            }
        }
        if refusals.is_empty() {
            refusals.push("no other disk is online that could have it".to_owned());
        }
        Err(refusals.join("; "))
    }

    fn describe_refusal(&self, disk: DiskNumber, error: &CatalogError) -> String {
        let title = self.disks.describe(disk);
        match error {
            CatalogError::Full => {
                format!(
                    "{title} has no room for its {} AUs",
                    self.region.replica_aus()
                )
            }
            error => format!("{title}: {error}"),
        }
    }

    fn tell_of_replica(&self, disk: DiskNumber, what: &str) {
        let title = self.disks.describe(disk);
        let message = format!("{title} holds a replica of the catalog now{what}");
        self.event(Event::new(EventKind::CatalogReplicaAdded, message).disk(disk));
    }
}
