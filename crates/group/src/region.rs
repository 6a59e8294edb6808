//! Floor 2 of 7, above `quorum` and below `core`: the catalog's region, a block store on several
//! disks, each block with a checksum.
//!
//! # Layout
//! Every replica has the same runs, at places of its own (the group state names them). A run
//! begins with its checksum blocks, two slots for each 1,000 data blocks; the data follows. The
//! sums are in memory while the group is open.
//!
//! # Writing
//! [`Region::write_durably`] sends, in one batch, all data blocks and for each touched group of
//! 1,000 its new checksum block, into the slot that does not hold the newest one, to all
//! replicas; one batch of flushes follows. A replica that fails leaves the group state, durably,
//! before the call returns. Its disk goes offline where the group can do without all that failed
//! together; else it serves on, because the copies there may be the last. Where no replica is left
//! the write fails, and nothing has changed. Calls run one after the other.
//!
//! # What a crash does
//! It keeps any subset of the last call's blocks, each old, new or torn, on each replica:
//!
//! | the checksum block of the group | the block in flight | seen as | test |
//! |---|---|---|---|
//! | old | old | right, old | `after_a_crash_at_any_request_every_block_is_old_or_new` |
//! | old (the new one is torn: its own checksum fails) | new or torn | doubtful | likewise |
//! | new | new | right, new | likewise |
//! | new | old or torn | doubtful | likewise |
//! | either | was not in flight | right: both slots have its sum | `blocks_that_were_not_in_flight_survive_any_crash` |
//!
//! A block that is right on no replica was in flight; what the catalog relied on before the
//! crash was not, because it never overwrites a block that it can still reach, block 0 excepted,
//! which it accepts in any mix of old and new. So after an unclean stop such blocks are handed
//! out as they are until [`ReplicatedRegion::finish_recovery`]; from then on they are damage.
//! Before that, all replicas are made equal: block by block, the first that is right counts,
//! those with the newest checksum block asked first.
//!
//! # Growing
//! A new run is allocated on each replica, its checksum blocks are written, and the group state
//! names it durably before a block in it is used. The runs are ahead of the size in use, because
//! the catalog may have to grow while it is opened, when nobody knows yet what is free.

mod ahead;
mod growth;
mod journal;
mod map;
mod recovery;
mod replicas;
mod verify;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spindle_base::{DiskNumber, Uuid};
use spindle_catalog::{CatalogError, Journals, Region};
use spindle_device::{AlignedBuffer, DiskSlot, Request, Work};
use spindle_extent::space::Space;
use spindle_format::{AuRun, JOURNAL_BYTES, Replica, SUMS_PER_BLOCK, block_sum};
use spindle_sync::level::{DeepMutex, LeafRwLock};

use crate::error::GroupError;
use crate::event::EventKind;
use crate::levels;
use crate::quorum::Membership;
use ahead::Ahead;
use journal::WrittenJournal;
use map::{BLOCK_BYTES, BLOCK_LENGTH, Map, ReplicaMap, SumGroup, index};

/// The most that a run is ahead of what is asked for, in bytes.
const RESERVE_BYTES_MAX: u64 = 1 << 30;

/// What gives the region AUs; the group's allocator.
pub trait RegionSpace: Send + Sync + std::fmt::Debug {
    /// `aus` free AUs in a row on the disk; they belong to the region from now on.
    fn allocate_region_aus(&self, disk: DiskNumber, aus: u32) -> Option<u32>;
    /// Takes back AUs that were allocated and are not used after all.
    fn release_region_aus(&self, disk: DiskNumber, run: AuRun);
}

impl RegionSpace for Space {
    fn allocate_region_aus(&self, disk: DiskNumber, aus: u32) -> Option<u32> {
        let first = self.allocate_aus(disk, u64::from(aus))?;
        Some(u32::try_from(first).expect("a disk has at most 2^32 AUs"))
    }

    fn release_region_aus(&self, disk: DiskNumber, run: AuRun) {
        self.give_back_aus(disk, u64::from(run.start_au), u64::from(run.aus));
    }
}

/// The catalog's region over the replicas that the group state names.
#[derive(Debug)]
pub struct ReplicatedRegion {
    membership: Arc<Membership>,
    space: LeafRwLock<Option<Arc<dyn RegionSpace>>>,
    /// One at a time writes, repairs or grows. Readers take it only where a block looks wrong,
    /// to see whether it was merely in flight.
    gate: DeepMutex<WrittenJournal, levels::RegionGate>,
    map: LeafRwLock<Arc<Map>>,
    /// While the group is being opened: much more of the region around what was asked for.
    ahead: DeepMutex<Option<Ahead>, levels::ReadAhead>,
}

fn failed(operation: &'static str, detail: impl Into<String>) -> CatalogError {
    CatalogError::Region {
        operation,
        detail: detail.into(),
    }
}

/// Memory to be written at a block of the region.
struct Segment {
    first_block: u64,
    bytes: AlignedBuffer,
}

impl ReplicatedRegion {
    /// An empty region on the runs of a new group.
    ///
    /// # Errors
    /// [`CatalogError::Region`] where a disk cannot be written.
    pub fn create(membership: Arc<Membership>) -> Result<Self, CatalogError> {
        let map = Self::map_of(&membership);
        let region = Self::over(membership, map);
        let map = region.map();
        for group in &map.groups {
            assert!(group.sequence == 1, "a new region was never written");
        }
        let wanted: Vec<usize> = (0..map.groups.len()).collect();
        let unable = region.write_first_sums(&map, &map.replicas, &wanted);
        if let Some((disk, why)) = unable.into_iter().next() {
            let title = region.membership.disk_title(disk);
            return Err(failed("written", format!("disk {title}: {why}")));
        }
        Ok(region)
    }

    /// The AUs of each replica while none of them grows: also what was being taken when this was asked.
    pub fn runs_at_rest(&self) -> Vec<Replica> {
        let _gate = self.gate.lock();
        self.membership.catalog_runs()
    }

    fn over(membership: Arc<Membership>, map: Map) -> Self {
        Self {
            membership,
            space: LeafRwLock::new(None),
            gate: DeepMutex::new(WrittenJournal::default()),
            map: LeafRwLock::new(Arc::new(map)),
            ahead: DeepMutex::new(None),
        }
    }

    fn map_of(membership: &Membership) -> Map {
        let uuids: BTreeMap<DiskNumber, (DiskSlot, Uuid)> = (membership.members().into_iter())
            .filter_map(|member| Some((member.state.number, (member.slot?, member.uuid?))))
            .collect();
        Map::of(&membership.state(), |disk| uuids.get(&disk).copied())
    }

    /// Who gives AUs from now on; without it the region grows only into the room it has.
    pub fn set_space(&self, space: Arc<dyn RegionSpace>) {
        *self.space.write() = Some(space);
    }

    /// The catalog is open: a block that is right on no replica is damage from now on.
    pub fn finish_recovery(&self) {
        Arc::make_mut(&mut self.map.write()).doubtful.clear();
    }

    /// Reads much more than is asked for from now on, because all of it will be asked for soon;
    /// until [`ReplicatedRegion::stop_reading_ahead`]. For the time when one thread opens.
    pub fn read_ahead(&self) {
        *self.ahead.lock() = Some(Ahead::default());
    }

    /// Gives back the memory of what was read ahead.
    pub fn stop_reading_ahead(&self) {
        *self.ahead.lock() = None;
    }

    /// The map as it is now; a later change makes another one.
    fn map(&self) -> Arc<Map> {
        Arc::clone(&self.map.read())
    }

    /// Forgets replicas on disks that are offline, before any of those comes back: what it holds
    /// is old by then.
    pub(crate) fn forget_offline(&self) {
        let _gate = self.gate.lock();
        self.drop_offline();
    }

    /// Forgets replicas that the state no longer names: their disks went offline, or have come
    /// back since without them.
    fn drop_offline(&self) {
        let offline: Vec<DiskNumber> = (self.map().replicas.iter())
            .map(|replica| replica.disk)
            .filter(|disk| !self.membership.holds_replica(*disk))
            .collect();
        for disk in offline {
            self.take_out(disk);
        }
    }

    /// Goes on without the replicas that could not be written, durably. Their disks go offline where
    /// the group can do without all of them; else they serve on without a replica: what files have
    /// there may be nowhere else, and whoever needs a flush of it meets the one that failed.
    fn go_on_without(&self, unable: &[(DiskNumber, String)]) -> Result<(), CatalogError> {
        let Some((_, why)) = unable.first() else {
            return Ok(());
        };
        let disks: BTreeSet<DiskNumber> = unable.iter().map(|(disk, _)| *disk).collect();
        let stays = |replica: &ReplicaMap| {
            !disks.contains(&replica.disk) && self.membership.holds_replica(replica.disk)
        };
        if !self.map().replicas.iter().any(stays) {
            let each = unable
                .iter()
                .map(|(disk, why)| format!("disk {disk}: {why}"));
            return Err(failed("written", each.collect::<Vec<_>>().join("; ")));
        }
        let numbers: Vec<DiskNumber> = disks.into_iter().collect();
        let answer = match self.membership.take_offline_if_borne(&numbers, why) {
            Ok(false) => self.leave_replicas(unable),
            Ok(true) => Ok(()),
            Err(error) => Err(error),
        };
        self.drop_offline();
        answer.map_err(|error| failed("written", error.report()))
    }

    /// Refuses once the group had to stop; to be asked with the gate held, for which the caller may
    /// have waited. The disks may hold a state by then that counts other replicas than the map: what
    /// goes to those of the map is not on each that the next opening believes.
    fn refuse_stopped(&self) -> Result<(), CatalogError> {
        match self.membership.stopped() {
            Some(why) => Err(failed("written", why.report())),
            None => Ok(()),
        }
    }

    /// The disks serve on, and the group state names no replica on them.
    fn leave_replicas(&self, unable: &[(DiskNumber, String)]) -> Result<(), GroupError> {
        let held: Vec<_> = (unable.iter())
            .filter(|(disk, _)| self.membership.holds_replica(*disk))
            .collect();
        if held.is_empty() {
            // One that was being made.
            return Ok(());
        }
        (self.membership).record_no_replicas(&held.iter().map(|(disk, _)| *disk).collect())?;
        for (disk, why) in held {
            let title = self.membership.disk_title(*disk);
            let message = format!(
                "disk {title} holds no replica of the catalog any more, and serves on because the \
                 group cannot do without it: {why}"
            );
            (self.membership).disk_event(EventKind::CatalogReplicaLost, *disk, message);
        }
        Ok(())
    }

    /// Writes, then flushes; gives the disks that failed in either, and those that failed somebody
    /// else's flush meanwhile: they may have dropped what was written, and answer this one well.
    fn write_and_flush(
        &self,
        writes: &[(DiskNumber, DiskSlot, u64, &[u8])],
    ) -> Vec<(DiskNumber, String)> {
        let failures = self.membership.failed_flushes();
        let failures_before: BTreeMap<DiskNumber, u64> = (writes.iter())
            .map(|(disk, ..)| (*disk, failures.of(*disk).count))
            .collect();
        let mut batch: Vec<Request<'_>> = (writes.iter())
            .map(|(_, slot, place, bytes)| Request::new(*slot, *place, Work::Write(bytes)))
            .collect();
        self.membership.run(&mut batch);
        let mut unable: BTreeMap<DiskNumber, String> = BTreeMap::new();
        for ((disk, ..), request) in writes.iter().zip(batch) {
            if let Err(error) = request.result {
                unable.entry(*disk).or_insert(error.to_string());
            }
        }
        let written: BTreeSet<(DiskNumber, DiskSlot)> = (writes.iter())
            .map(|(disk, slot, ..)| (*disk, *slot))
            .filter(|(disk, _)| !unable.contains_key(disk))
            .collect();
        let mut flushes: Vec<Request<'_>> = (written.iter())
            .map(|(_, slot)| Request::new(*slot, 0, Work::Flush))
            .collect();
        self.membership.run(&mut flushes);
        for ((disk, _), request) in written.iter().zip(flushes) {
            if let Err(error) = request.result {
                unable.insert(*disk, error.to_string());
            } else if failures.of(*disk).count != failures_before[disk] {
                unable.insert(*disk, failures.newest(*disk).to_string());
            }
        }
        unable.into_iter().collect()
    }

    /// Gives new groups their first checksum blocks: slot A says that nothing was written, slot
    /// B is wiped, so that what an earlier owner of these AUs left is never taken for sums.
    fn write_first_sums(
        &self,
        map: &Map,
        replicas: &[ReplicaMap],
        groups: &[usize],
    ) -> Vec<(DiskNumber, String)> {
        let zeros = AlignedBuffer::zeroed(BLOCK_LENGTH);
        let mut pages = Vec::new();
        for replica in replicas {
            for &group in groups {
                let mut before = replica.clone();
                before.newest[group] = 1;
                let sums = [0; SUMS_PER_BLOCK];
                let (place, bytes) = map.next_sums(&before, group, 1, &sums);
                pages.push((replica, group, place, aligned(&bytes)));
            }
        }
        let mut writes: Vec<(DiskNumber, DiskSlot, u64, &[u8])> = Vec::new();
        for (replica, group, place, page) in &pages {
            writes.push((replica.disk, replica.slot, *place, page));
            let other = map.sums_place(replica, *group, 1);
            writes.push((replica.disk, replica.slot, other, &zeros));
        }
        self.write_and_flush(&writes)
    }

    /// Reads one block from the replicas one after the other until it is right, and repairs the
    /// replicas before it; the gate is held, so that nothing is in flight.
    ///
    /// A block that is right nowhere is an error, unless it was in flight at a crash or `lenient`
    /// asks for it as it is.
    fn read_judging(
        &self,
        map: &Map,
        block: u64,
        out: &mut [u8],
        lenient: bool,
    ) -> Result<(), CatalogError> {
        let sum = map.sum(block);
        if sum == 0 {
            out.fill(0);
            return Ok(());
        }
        let mut bytes = AlignedBuffer::zeroed(BLOCK_LENGTH);
        let mut as_it_is: Option<AlignedBuffer> = None;
        let mut bad: Vec<(&ReplicaMap, String)> = Vec::new();
        for replica in &map.replicas {
            match self.read_at(replica.slot, map.data_place(replica, block), &mut bytes) {
                Ok(()) if block_sum(block, &bytes) == sum => {
                    out.copy_from_slice(&bytes);
                    return self.repair(map, block, out, &bad);
                }
                Ok(()) => {
                    as_it_is.get_or_insert_with(|| aligned(&bytes));
                    bad.push((replica, "its checksum was wrong".to_owned()));
                }
                Err(why) => bad.push((replica, why)),
            }
        }
        if let Some(bytes) = as_it_is.filter(|_| lenient || map.doubtful.contains(&block)) {
            out.copy_from_slice(&bytes);
            return Ok(());
        }
        let details: Vec<String> = (bad.iter())
            .map(|(replica, why)| format!("disk {}: {why}", replica.disk))
            .collect();
        Err(failed(
            "read",
            format!("block {block} is good on no disk ({})", details.join("; ")),
        ))
    }

    fn read_at(&self, slot: DiskSlot, place: u64, out: &mut [u8]) -> Result<(), String> {
        let mut batch = [Request::new(slot, place, Work::Read(out))];
        self.membership.run(&mut batch);
        let [request] = batch;
        request.result.map_err(|error| error.to_string())
    }

    /// Writes a block again where it was bad; the group goes on without a replica that cannot take it.
    fn repair(
        &self,
        map: &Map,
        block: u64,
        bytes: &[u8],
        bad: &[(&ReplicaMap, String)],
    ) -> Result<(), CatalogError> {
        // The place of one that is no replica any more belongs to somebody else by now.
        let bad: Vec<&(&ReplicaMap, String)> = (bad.iter())
            .filter(|(replica, _)| self.membership.holds_replica(replica.disk))
            .collect();
        let writes: Vec<(DiskNumber, DiskSlot, u64, &[u8])> = (bad.iter())
            .map(|(replica, _)| {
                let place = map.data_place(replica, block);
                (replica.disk, replica.slot, place, bytes)
            })
            .collect();
        if writes.is_empty() {
            return Ok(());
        }
        let unable = self.write_and_flush(&writes);
        for (replica, why) in bad {
            if unable.iter().all(|(disk, _)| *disk != replica.disk) {
                let title = self.membership.disk_title(replica.disk);
                let message = format!(
                    "catalog block {block} on disk {title} was written again from another disk: \
                     {why}"
                );
                (self.membership).disk_event(EventKind::CatalogRepaired, replica.disk, message);
            }
        }
        self.go_on_without(&unable)
    }

    /// Reads blocks that lie in one run from the least busy replica.
    fn read_piece(&self, first: u64, out: &mut [u8]) -> Result<(), CatalogError> {
        let blocks = out.len() as u64 / BLOCK_BYTES;
        let map = self.map();
        if (first..first + blocks).all(|block| map.sum(block) == 0) {
            out.fill(0);
            return Ok(());
        }
        let replica = (map.replicas.iter())
            .filter(|replica| self.membership.is_online(replica.disk))
            .min_by_key(|replica| self.membership.disks().in_flight_count(replica.slot));
        let Some(replica) = replica else {
            return Err(failed("read", "no disk that holds it is online"));
        };
        let read = |first, out: &mut [u8]| {
            let place = map.data_place(replica, first);
            self.read_at(replica.slot, place, out).is_ok()
        };
        // Only the thread that opens waits for a disk with this lock.
        let ahead =
            (self.ahead.lock().as_mut()).map(|ahead| ahead.read(&map, first, &mut *out, read));
        let whole = ahead.unwrap_or_else(|| read(first, &mut *out));
        for (block, out) in (first..).zip(out.chunks_exact_mut(BLOCK_LENGTH)) {
            let sum = map.sum(block);
            if sum == 0 {
                out.fill(0);
            } else if !whole || block_sum(block, out) != sum {
                let _gate = self.gate.lock();
                self.read_judging(&self.map(), block, out, false)?;
            }
        }
        Ok(())
    }

    /// Copies the blocks into aligned memory, neighbours of one run together.
    fn segments(map: &Map, blocks: &[(u64, &[u8])]) -> Vec<Segment> {
        let mut sorted: Vec<(u64, &[u8])> = (blocks.iter())
            .map(|(offset_bytes, bytes)| (offset_bytes / BLOCK_BYTES, *bytes))
            .collect();
        sorted.sort_by_key(|(block, _)| *block);
        let follows = |left: &(u64, &[u8]), right: &(u64, &[u8])| {
            left.0 + 1 == right.0 && map.run_of(left.0) == map.run_of(right.0)
        };
        (sorted.chunk_by(follows))
            .map(|neighbours| {
                let mut bytes = AlignedBuffer::zeroed(neighbours.len() * BLOCK_LENGTH);
                for (out, (_, block)) in bytes.chunks_exact_mut(BLOCK_LENGTH).zip(neighbours) {
                    out.copy_from_slice(block);
                }
                Segment {
                    first_block: neighbours[0].0,
                    bytes,
                }
            })
            .collect()
    }

    /// The touched groups as they are after the write.
    fn groups_after(map: &Map, segments: &[Segment]) -> BTreeMap<usize, SumGroup> {
        let mut groups: BTreeMap<usize, SumGroup> = BTreeMap::new();
        for segment in segments {
            let blocks = segment.bytes.chunks_exact(BLOCK_LENGTH);
            for (block, bytes) in (segment.first_block..).zip(blocks) {
                let (number, within) = map.group_of(block);
                let group = groups.entry(number).or_insert_with(|| {
                    let mut group = SumGroup::clone(&map.groups[number]);
                    group.sequence += 1;
                    group
                });
                group.sums[within] = block_sum(block, bytes);
            }
        }
        groups
    }

    /// Sends data and sums to every replica, flushes, and goes on without what failed.
    fn write_everywhere(
        &self,
        map: &Map,
        segments: &[Segment],
        groups: &BTreeMap<usize, SumGroup>,
    ) -> Result<(), CatalogError> {
        let mut sums: Vec<(&ReplicaMap, u64, AlignedBuffer)> = Vec::new();
        for replica in &map.replicas {
            for (number, group) in groups {
                let (place, bytes) = map.next_sums(replica, *number, group.sequence, &group.sums);
                sums.push((replica, place, aligned(&bytes)));
            }
        }
        let mut writes: Vec<(DiskNumber, DiskSlot, u64, &[u8])> = (sums.iter())
            .map(|(replica, place, page)| (replica.disk, replica.slot, *place, &page[..]))
            .collect();
        for replica in &map.replicas {
            for segment in segments {
                let place = map.data_place(replica, segment.first_block);
                writes.push((replica.disk, replica.slot, place, &segment.bytes));
            }
        }
        self.go_on_without(&self.write_and_flush(&writes))
    }
}

impl Region for ReplicatedRegion {
    fn size_bytes(&self) -> u64 {
        self.map.read().size_bytes
    }

    fn capacity_bytes(&self) -> u64 {
        self.map.read().capacity_blocks() * BLOCK_BYTES
    }

    fn set_aside(&self, bytes: u64) -> Result<(), CatalogError> {
        let _gate = self.gate.lock();
        self.drop_offline();
        let mut map = Map::clone(&self.map());
        if bytes <= map.capacity_blocks() * BLOCK_BYTES {
            return Ok(());
        }
        let runs = self.prepare_run(&mut map, bytes.next_multiple_of(BLOCK_BYTES))?;
        self.take_runs(map, &runs)
    }

    fn grow(&self, bytes: u64) -> Result<(), CatalogError> {
        let _gate = self.gate.lock();
        self.drop_offline();
        let mut map = Map::clone(&self.map());
        let bytes = bytes.next_multiple_of(BLOCK_BYTES);
        if bytes <= map.size_bytes {
            return Ok(());
        }
        let runs = self.prepare_run(&mut map, bytes)?;
        map.size_bytes = bytes;
        self.take_runs(map, &runs)
    }

    fn read(&self, offset_bytes: u64, out: &mut [u8]) -> Result<(), CatalogError> {
        check_range(offset_bytes, out.len() as u64, self.size_bytes());
        let mut block = offset_bytes / BLOCK_BYTES;
        let mut rest = out;
        while !rest.is_empty() {
            let map = self.map();
            let run = &map.runs[map.run_of(block)];
            let run_end = run.first_block + run.blocks;
            let blocks = (rest.len() as u64 / BLOCK_BYTES).min(run_end - block);
            let (piece, after) = rest.split_at_mut(index(blocks * BLOCK_BYTES));
            self.read_piece(block, piece)?;
            block += blocks;
            rest = after;
        }
        Ok(())
    }

    fn write_durably(&self, blocks: &[(u64, &[u8])]) -> Result<(), CatalogError> {
        let _gate = self.gate.lock();
        self.refuse_stopped()?;
        self.drop_offline();
        let map = self.map();
        for (offset_bytes, bytes) in blocks {
            assert!(bytes.len() == BLOCK_LENGTH, "whole blocks are written");
            check_range(*offset_bytes, BLOCK_BYTES, map.size_bytes);
        }
        if map.replicas.is_empty() {
            return Err(failed("written", "no disk that holds it is online"));
        }
        if let Some(ahead) = &mut *self.ahead.lock() {
            ahead.forget(
                blocks
                    .iter()
                    .map(|(offset_bytes, _)| offset_bytes / BLOCK_BYTES),
            );
        }
        let segments = Self::segments(&map, blocks);
        let groups = Self::groups_after(&map, &segments);
        let answer = self.write_everywhere(&map, &segments, &groups);
        let written = blocks
            .iter()
            .map(|(offset_bytes, _)| offset_bytes / BLOCK_BYTES);
        let mut map = self.map.write();
        let map = Arc::make_mut(&mut map);
        if answer.is_err() {
            // Whatever became of them, their sums are as before: as after a crash.
            map.doubtful.extend(written);
            return answer;
        }
        for block in written {
            map.doubtful.remove(&block);
        }
        for (number, group) in groups {
            for replica in &mut map.replicas {
                replica.newest[number] = 1 - replica.newest[number];
            }
            map.groups[number] = Arc::new(group);
        }
        Ok(())
    }

    fn group_uuid(&self) -> Uuid {
        self.membership.uuid()
    }

    fn journal_bytes(&self) -> usize {
        JOURNAL_BYTES
    }

    fn read_journals(&self) -> Journals {
        self.journals()
    }

    fn journal_was_cut(&self, block: usize) {
        self.tell_cut(block);
    }

    fn journal_ends_broken(&self, block: usize) {
        self.tell_lost(&format!("the record at block {block} of its journal is"));
    }

    fn write_journal(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), CatalogError> {
        self.write_journals(offset_bytes, bytes)
    }
}

fn check_range(offset_bytes: u64, length_bytes: u64, size_bytes: u64) {
    assert!(
        (offset_bytes | length_bytes).is_multiple_of(BLOCK_BYTES)
            && offset_bytes + length_bytes <= size_bytes,
        "the catalog asks for whole blocks of its region"
    );
}

fn aligned(bytes: &[u8]) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::zeroed(bytes.len());
    buffer.copy_from_slice(bytes);
    buffer
}

#[cfg(test)]
mod tests;
