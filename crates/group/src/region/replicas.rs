//! Replicas that come, move and go while the group serves. A new one gets its room, a copy of
//! everything, and only then the group state: a crash before that leaves AUs that nobody names.

use std::collections::BTreeSet;
use std::sync::Arc;

use spindle_base::DiskNumber;
use spindle_catalog::CatalogError;
use spindle_device::{AlignedBuffer, DiskSlot};
use spindle_format::{AuRun, Replica};

use crate::region::map::{BLOCK_LENGTH, Map, ReplicaMap};
use crate::region::{ReplicatedRegion, aligned, failed};

impl ReplicatedRegion {
    /// The AUs of each replica.
    pub fn replica_aus(&self) -> u64 {
        self.map().runs.iter().map(|run| u64::from(run.aus)).sum()
    }

    /// Adds a replica on `disk`: its room, a copy of everything, and only then the group state.
    ///
    /// # Errors
    /// [`CatalogError::Full`] where the disk has no room, [`CatalogError::Region`] where it or
    /// every other replica fails.
    pub fn add_replica(&self, disk: DiskNumber) -> Result<(), CatalogError> {
        self.add_replica_instead(disk, None)
    }

    /// As [`ReplicatedRegion::add_replica`]; in the same state the disk `from` has none any more.
    ///
    /// # Errors
    /// As [`ReplicatedRegion::add_replica`]; the replica stays then.
    pub fn move_replica(&self, from: DiskNumber, to: DiskNumber) -> Result<(), CatalogError> {
        self.add_replica_instead(to, Some(from))
    }

    /// Takes the replica off a disk where no other can have it, as long as a disk that stays has
    /// one.
    ///
    /// # Errors
    /// [`CatalogError::Full`] where none has, [`CatalogError::Region`] where the group state
    /// cannot be written; the replica stays then.
    pub fn remove_replica(&self, from: DiskNumber) -> Result<(), CatalogError> {
        let _gate = self.gate.lock();
        self.drop_offline();
        let stays = |replica: &ReplicaMap| {
            replica.disk != from && self.membership.may_receive(replica.disk)
        };
        if !self.map().replicas.iter().any(stays) {
            return Err(CatalogError::Full);
        }
        (self.membership.record_no_replicas(&BTreeSet::from([from])))
            .map_err(|error| failed("written", error.report()))?;
        self.take_out(from);
        Ok(())
    }

    /// The state no longer names the disk's replica: its AUs are free.
    pub(super) fn take_out(&self, disk: DiskNumber) {
        let mut guard = self.map.write();
        let map = Arc::make_mut(&mut guard);
        let Some(place) = (map.replicas.iter()).position(|replica| replica.disk == disk) else {
            return;
        };
        let gone = map.replicas.remove(place);
        let au_bytes = map.au_size.bytes();
        let runs: Vec<AuRun> = (gone.starts_bytes.iter().zip(&map.runs))
            .map(|(start_bytes, run)| AuRun {
                start_au: u32::try_from(start_bytes / au_bytes)
                    .expect("a disk has at most 2^32 AUs"),
                aus: run.aus,
            })
            .collect();
        drop(guard);
        self.release(disk, &runs);
    }

    fn add_replica_instead(
        &self,
        disk: DiskNumber,
        instead_of: Option<DiskNumber>,
    ) -> Result<(), CatalogError> {
        let journal = self.gate.lock();
        self.drop_offline();
        let map = self.map();
        let holds = |disk: DiskNumber| map.replicas.iter().any(|replica| replica.disk == disk);
        if holds(disk) || instead_of.is_some_and(|from| !holds(from)) {
            // Another thread was here first.
            return Err(failed(
                "written",
                format!("disk {disk} is not asked any more"),
            ));
        }
        let member = (self.membership.members().into_iter())
            .find(|member| member.state.number == disk)
            .and_then(|member| Some((member.slot?, member.uuid?)));
        // What is copied from here on the disk loses when it goes.
        let made_in = self.membership.incarnation(disk);
        let Some((slot, uuid)) = member.filter(|_| made_in.serves()) else {
            return Err(failed("written", format!("disk {disk} is not online")));
        };
        let mut replica = Replica {
            disk,
            runs: Vec::new(),
        };
        for run in &map.runs {
            match self.allocate(disk, run.aus) {
                Some(run) => replica.runs.push(run),
                None => {
                    self.release(disk, &replica.runs);
                    return Err(CatalogError::Full);
                }
            }
        }
        let mut added = map.replica(&replica, slot, uuid);
        let copied = self
            .copy_everything(&map, &mut added)
            .and_then(|()| self.copy_journal(&journal, &added));
        let answer = copied.and_then(|()| {
            (self
                .membership
                .record_replica(&replica, made_in, instead_of))
            .map_err(|error| failed("written", error.report()))
        });
        match answer {
            Ok(()) => {
                Arc::make_mut(&mut self.map.write()).replicas.push(added);
                if let Some(from) = instead_of {
                    self.take_out(from);
                }
            }
            Err(_) if self.membership.check().is_ok() => self.release(disk, &replica.runs),
            // The state that names them may be on a disk, and count at the next opening.
            Err(_) => {}
        }
        answer
    }

    pub(super) fn allocate(&self, disk: DiskNumber, aus: u32) -> Option<AuRun> {
        let space = self.space.read().clone()?;
        let start_au = space.allocate_region_aus(disk, aus)?;
        Some(AuRun { start_au, aus })
    }

    pub(super) fn release(&self, disk: DiskNumber, runs: &[AuRun]) {
        let space = self.space.read().clone();
        if let Some(space) = space {
            for run in runs {
                space.release_region_aus(disk, *run);
            }
        }
    }

    /// Fills a replica that nothing relies on yet; the gate is held.
    fn copy_everything(&self, map: &Map, added: &mut ReplicaMap) -> Result<(), CatalogError> {
        for (number, group) in map.groups.iter().enumerate() {
            let (first, _) = map.blocks_of(number);
            let used = (group.sums.iter())
                .rposition(|sum| *sum != 0)
                .map_or(0, |last| last + 1);
            let mut bytes = AlignedBuffer::zeroed(used * BLOCK_LENGTH);
            for (within, out) in bytes.chunks_exact_mut(BLOCK_LENGTH).enumerate() {
                // A block that is right nowhere stays so on the new replica: its sum goes along.
                self.read_judging(map, first + within as u64, out, true)?;
            }
            added.newest[number] = 1;
            let (place, sums) = map.next_sums(added, number, group.sequence, &group.sums);
            added.newest[number] = 0;
            let sums = aligned(&sums);
            let wiped = AlignedBuffer::zeroed(BLOCK_LENGTH);
            let other = map.sums_place(added, number, 1);
            let mut writes: Vec<(DiskNumber, DiskSlot, u64, &[u8])> = vec![
                (added.disk, added.slot, place, &sums),
                (added.disk, added.slot, other, &wiped),
            ];
            if used > 0 {
                writes.push((added.disk, added.slot, map.data_place(added, first), &bytes));
            }
            let unable = self.write_and_flush(&writes);
            if !unable.is_empty() {
                self.go_on_without(&unable)?;
                return Err(failed("written", unable[0].1.clone()));
            }
        }
        Ok(())
    }
}
