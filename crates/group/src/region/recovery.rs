//! Opening a region: find the newest checksum blocks; after an unclean stop make the replicas
//! equal, block by block.
//!
//! Nothing is written where everything is equal. A crash in here leaves each block of each
//! replica as it was or as the chosen one, and the region not clean: the next opening does it
//! again.
//!
//! A block that cannot be read may be the right one: a path may be away for a moment only. So
//! only bytes that were read are written, and a block that is right on no replica and cannot be
//! read on one stays as it is everywhere. Asking for it is an error, as of any damaged block,
//! until the disk answers again. That one disk's older sums call its own block right says nothing
//! against it: the disk may have answered a write well that it never made. The first block is
//! written by every transaction, so it cannot be left: the opening is refused, or forced.
//!
//! Likewise a checksum block: a replica says which sums of a group are the newest where both of its
//! slots were read, and each is whole or blank. One that is neither was torn by the crash, or has
//! rotted since it was acknowledged: that is the same only where every other replica could be read
//! as well, because an acknowledged one is on each. Where no replica says so, the newest that were
//! found count only if every block is right by them; else the opening is refused, because the next
//! write would go over the newer ones. By force the blocks are taken as they are.

use std::sync::Arc;

use spindle_catalog::CatalogError;
use spindle_device::{AlignedBuffer, DiskSlot};
use spindle_format::{ChecksumBlock, block_sum};

use crate::event::{Event, EventKind};
use crate::quorum::Membership;
use crate::region::map::{BLOCK_BYTES, BLOCK_LENGTH, Map, ReplicaMap, SumGroup, index};
use crate::region::{ReplicatedRegion, aligned, failed};
use spindle_base::DiskNumber;

/// What the two slots of a group have on one replica.
struct Found {
    /// The newer of the good checksum blocks that were read.
    newest: Option<ChecksumBlock>,
    /// Both were read.
    both_read: bool,
    /// And each is a good checksum block, or blank: there was no newer one.
    both_whole: bool,
}

/// What was found of each group on one replica.
type FoundSums = Vec<Found>;

/// One replica's blocks of one group.
struct Copy {
    bytes: AlignedBuffer,
    /// Of each block whether it could be read.
    read: Vec<bool>,
}

impl Copy {
    /// A block's bytes; `None` where they could not be read.
    fn block(&self, within: usize) -> Option<&[u8]> {
        let range = within * BLOCK_LENGTH..(within + 1) * BLOCK_LENGTH;
        self.read[within].then(|| &self.bytes[range])
    }
}

/// What a group is to be on every replica.
struct Chosen<'a> {
    group: SumGroup,
    /// Of each block the replica's bytes that count; `None` where none are written.
    blocks: Vec<Option<&'a [u8]>>,
    doubtful: Vec<u64>,
    /// The first block is not what the newest sums say: one that cannot be read may be that.
    is_first_forced: bool,
}

impl ReplicatedRegion {
    /// Opens the region of a group; after an unclean stop its replicas are made equal first.
    /// Blocks that were in flight then are handed out as they are, until
    /// [`ReplicatedRegion::finish_recovery`].
    ///
    /// # Errors
    /// [`CatalogError::Region`] where no replica is good or one cannot be brought up to date.
    pub fn open(membership: Arc<Membership>) -> Result<Self, CatalogError> {
        let map = Self::map_of(&membership);
        let clean = membership.was_clean();
        let region = Self::over(membership, map);
        let mut map = Map::clone(&region.map());
        let found: Vec<FoundSums> = (0..map.replicas.len())
            .map(|replica| region.read_sums(&mut map, replica))
            .collect();
        if !clean {
            region.tell_torn_sums(&found);
        }
        let mut repaired_count = 0;
        for group in 0..map.groups.len() {
            repaired_count += region.settle(&mut map, &found, group, clean)?;
        }
        if repaired_count > 0 {
            let message =
                format!("catalog: {repaired_count} blocks were made equal on all its disks");
            (region.membership).event(Event::new(EventKind::CopiesEqualised, message));
        }
        *region.map.write() = Arc::new(map);
        region.drop_offline();
        Ok(region)
    }

    /// Tells of checksum blocks that were read and are whole on no replica, where one is not seen.
    fn tell_torn_sums(&self, found: &[FoundSums]) {
        let groups_count = found.first().map_or(0, Vec::len);
        let is_torn = |group: usize| {
            (found.iter()).all(|sums| sums[group].both_read && !sums[group].both_whole)
        };
        let torn: Vec<String> = (0..groups_count)
            .filter(|group| is_torn(*group))
            .map(|group| group.to_string())
            .collect();
        match &torn[..] {
            [] => {}
            [one] => self.tell_lost(&format!("its checksum block {one} is")),
            _ => self.tell_lost(&format!("its checksum blocks {} are", torn.join(", "))),
        }
    }

    /// Reads every checksum block of a replica and remembers which slot is the newest.
    fn read_sums(&self, map: &mut Map, number: usize) -> FoundSums {
        let mut found = Vec::with_capacity(map.groups.len());
        let replica = map.replicas[number].clone();
        for run in map.runs.clone() {
            let mut bytes = AlignedBuffer::zeroed(index(2 * run.pairs * BLOCK_BYTES));
            let start = map.sums_place(&replica, run.first_group, 0);
            // What cannot be read is zeros, which are no checksum block.
            let read = self.read_blocks(replica.slot, start, &mut bytes);
            let slots = bytes.chunks_exact(2 * BLOCK_LENGTH);
            for (pair, (slots, read)) in slots.zip(read.chunks_exact(2)).enumerate() {
                let group = run.first_group + pair;
                let (first, second) = slots.split_at(BLOCK_LENGTH);
                let good = |bytes: &[u8], slot: u8| {
                    let place = map.sums_place(&replica, group, slot);
                    ChecksumBlock::parse(bytes, place).ok().filter(|block| {
                        block.group_uuid == map.group_uuid
                            && block.disk_uuid == replica.disk_uuid
                            && block.first_block == map.blocks_of(group).0
                    })
                };
                let is_blank = |slot: &[u8]| slot.iter().all(|byte| *byte == 0);
                let are_blank = [is_blank(first), is_blank(second)];
                let (first, second) = (good(first, 0), good(second, 1));
                let both_read = read[0] && read[1];
                let each_whole =
                    (first.is_some() || are_blank[0]) && (second.is_some() || are_blank[1]);
                let sequence = |block: &Option<ChecksumBlock>| block.as_ref().map(|b| b.sequence);
                let newest = u8::from(sequence(&second) > sequence(&first));
                map.replicas[number].newest[group] = newest;
                found.push(Found {
                    newest: if newest == 0 { first } else { second },
                    both_read,
                    both_whole: both_read && each_whole,
                });
            }
        }
        found
    }

    /// Reads blocks, where all of them at once cannot be read one by one: a bad sector must not
    /// hide those beside it. Gives of each block whether it was read; one that was not is zeros.
    pub(super) fn read_blocks(&self, slot: DiskSlot, start: u64, bytes: &mut [u8]) -> Vec<bool> {
        let blocks_count = bytes.len() / BLOCK_LENGTH;
        if blocks_count == 0 || self.read_at(slot, start, bytes).is_ok() {
            return vec![true; blocks_count];
        }
        let places = (start..).step_by(BLOCK_LENGTH);
        (places.zip(bytes.chunks_exact_mut(BLOCK_LENGTH)))
            .map(|(place, out)| {
                let is_read = self.read_at(slot, place, out).is_ok();
                if !is_read {
                    out.fill(0);
                }
                is_read
            })
            .collect()
    }

    /// Gives a group its sums, and makes the replicas equal where they may differ. Gives the
    /// number of blocks written.
    fn settle(
        &self,
        map: &mut Map,
        found: &[FoundSums],
        group: usize,
        clean: bool,
    ) -> Result<usize, CatalogError> {
        // The replica with the newest sums first; among equals the order of preference.
        let sums_of = |replica: usize| found[replica][group].newest.as_ref();
        let mut order: Vec<usize> = (0..found.len())
            .filter(|replica| sums_of(*replica).is_some())
            .collect();
        order.sort_by_key(|replica| {
            std::cmp::Reverse(sums_of(*replica).map(|block| block.sequence))
        });
        let Some(newest) = order.first().and_then(|replica| sums_of(*replica)) else {
            return Err(failed(
                "read",
                format!("checksum block {group} is good on no disk"),
            ));
        };
        let sums = SumGroup {
            sequence: newest.sequence,
            sums: newest.sums.clone(),
            ..SumGroup::clone(&map.groups[group])
        };
        let equal = order.len() == found.len()
            && (0..found.len()).all(|replica| {
                sums_of(replica).is_some_and(|other| {
                    other.sequence == newest.sequence && other.sums == newest.sums
                })
            });
        map.groups[group] = Arc::new(sums);
        let all_read = found.iter().all(|sums| sums[group].both_read);
        let is_vouched =
            all_read || (order.iter()).any(|replica| found[*replica][group].both_whole);
        let used = if is_vouched {
            used_blocks(found, group)
        } else {
            map.blocks_in_use(group)
        };
        if clean && is_vouched {
            if equal {
                return Ok(0);
            }
            // The data is equal: only a checksum block was damaged.
            let chosen = SumGroup::clone(&map.groups[group]);
            return self.write_settled(map, group, chosen, Vec::new());
        }
        let copies: Vec<Copy> = (map.replicas.iter())
            .map(|replica| self.read_copy(map, replica, used, group))
            .collect();
        let forced = self.membership.was_forced();
        let mut chosen = if is_vouched {
            choose(map, found, &copies, &order, group, forced)?
        } else {
            choose_unvouched(map, &copies, group, forced)?
        };
        if !is_vouched && chosen.group.sums != map.groups[group].sums {
            let message = format!(
                "catalog: the newest checksum block {group} can be read on no disk, and the group \
                 was opened by force: blocks that are wrong by the one before were taken as they \
                 are"
            );
            (self.membership).event(Event::new(EventKind::DamageFound, message));
        }
        if chosen.is_first_forced {
            let message = "catalog: its first block can be read on no disk as it was written last, \
                           and the group was opened by force: it was taken as another disk has it";
            (self.membership).event(Event::new(EventKind::DamageFound, message.to_owned()));
        }
        map.doubtful.extend(&chosen.doubtful);
        let writes = differences(map, &copies, &chosen, group);
        let same_sums = equal && chosen.group.sums == map.groups[group].sums;
        // Newer sums that nobody has seen are of a write that a crash cut short: only a newer
        // block still keeps the next opening from them.
        if writes.is_empty() && same_sums && (is_vouched || clean) {
            return Ok(0);
        }
        if !all_read {
            // Sums that a crash cut short may stand where they could not be read, one ahead of these:
            // they must not be taken for them when they can.
            chosen.group.sequence += 1;
        }
        self.write_settled(map, group, chosen.group, writes)
    }

    /// Reads a replica's blocks of a group, so many from its first on.
    fn read_copy(&self, map: &Map, replica: &ReplicaMap, used: usize, group: usize) -> Copy {
        let mut bytes = AlignedBuffer::zeroed(used * BLOCK_LENGTH);
        let place = map.data_place(replica, map.blocks_of(group).0);
        let read = self.read_blocks(replica.slot, place, &mut bytes);
        Copy { bytes, read }
    }

    /// Writes the blocks that differ and new checksum blocks; the group goes on without a replica that
    /// fails.
    pub(super) fn write_settled(
        &self,
        map: &mut Map,
        group: usize,
        mut chosen: SumGroup,
        blocks: Vec<(usize, u64, AlignedBuffer)>,
    ) -> Result<usize, CatalogError> {
        chosen.sequence += 1;
        let sums: Vec<(usize, u64, AlignedBuffer)> = (map.replicas.iter().enumerate())
            .map(|(number, replica)| {
                let (place, bytes) = map.next_sums(replica, group, chosen.sequence, &chosen.sums);
                (number, place, aligned(&bytes))
            })
            .collect();
        let writes: Vec<(DiskNumber, DiskSlot, u64, &[u8])> = (blocks.iter().chain(&sums))
            .filter(|(number, ..)| self.membership.holds_replica(map.replicas[*number].disk))
            .map(|(number, place, bytes)| {
                let replica = &map.replicas[*number];
                (replica.disk, replica.slot, *place, &bytes[..])
            })
            .collect();
        let unable = self.write_and_flush(&writes);
        self.go_on_without(&unable)?;
        for replica in &mut map.replicas {
            replica.newest[group] = 1 - replica.newest[group];
        }
        map.groups[group] = Arc::new(chosen);
        Ok(blocks.len().max(1))
    }
}

/// The blocks of a group up to the last that any replica's sums know as written.
fn used_blocks(found: &[FoundSums], group: usize) -> usize {
    (found.iter())
        .filter_map(|sums| sums[group].newest.as_ref())
        .filter_map(|block| block.sums.iter().rposition(|sum| *sum != 0))
        .max()
        .map_or(0, |last| last + 1)
}

/// The bytes of a group's blocks by sums of which nobody says that they are the newest. A block
/// that was never written by them is right where zeros are.
///
/// # Errors
/// Where a block is right by them on no replica, and nobody has forced the opening.
fn choose_unvouched<'a>(
    map: &Map,
    copies: &'a [Copy],
    group: usize,
    forced: bool,
) -> Result<Chosen<'a>, CatalogError> {
    let (first, _) = map.blocks_of(group);
    let used = copies.first().map_or(0, |copy| copy.read.len());
    let mut chosen = Chosen {
        group: SumGroup::clone(&map.groups[group]),
        blocks: vec![None; used],
        doubtful: Vec::new(),
        is_first_forced: false,
    };
    for within in 0..used {
        let block = first + within as u64;
        let sum = chosen.group.sums[within];
        let is_right = |bytes: &&[u8]| match sum {
            0 => bytes.iter().all(|byte| *byte == 0),
            sum => block_sum(block, bytes) == sum,
        };
        let mut read = copies.iter().filter_map(|copy| copy.block(within));
        match read.clone().find(is_right) {
            Some(bytes) => chosen.blocks[within] = Some(bytes).filter(|_| sum != 0),
            None if !forced => {
                return Err(failed(
                    "read",
                    format!(
                        "the newest checksum block {group} can perhaps be read on no disk, and \
                         by the one before it block {block} is wrong; try again when the disks \
                         answer. Where it is bad for good, --force takes the blocks as they are"
                    ),
                ));
            }
            None => {
                chosen.blocks[within] = read.next();
                if let Some(bytes) = chosen.blocks[within] {
                    chosen.group.sums[within] = block_sum(block, bytes);
                }
            }
        }
    }
    Ok(chosen)
}

/// The bytes and sums of a group's blocks: of each the newest sum by which any replica's bytes are
/// right, and those bytes.
///
/// # Errors
/// Where the catalog's header page is right on no replica, cannot be read on one, and nobody has
/// forced the opening; or can be read on none.
fn choose<'a>(
    map: &Map,
    found: &[FoundSums],
    copies: &'a [Copy],
    order: &[usize],
    group: usize,
    forced: bool,
) -> Result<Chosen<'a>, CatalogError> {
    let (first, _) = map.blocks_of(group);
    let used = copies.first().map_or(0, |copy| copy.read.len());
    let mut chosen = Chosen {
        group: SumGroup::clone(&map.groups[group]),
        blocks: vec![None; used],
        doubtful: Vec::new(),
        is_first_forced: false,
    };
    let sums_read = found.iter().all(|sums| sums[group].both_read);
    for within in 0..used {
        let block = first + within as u64;
        let sum_on = |replica: usize| {
            let sums = found[replica][group].newest.as_ref();
            sums.map_or(0, |sums| sums.sums[within])
        };
        let newest_sum = chosen.group.sums[within];
        let is_read = copies.iter().all(|copy| copy.read[within]);
        let is_given_up = !is_read && block == 0 && forced;
        let right = order.iter().find_map(|replica| {
            let sum = sum_on(*replica);
            // By older sums a block is right, or was never written, only where it was read everywhere,
            // and is wrong by the newer ones.
            if sum != newest_sum && !(is_read || is_given_up) {
                return None;
            }
            if sum == 0 {
                return Some((sum, None));
            }
            // Bytes may be right by another replica's sums: where those are good the block may have
            // rotted, and its own may be unread or damaged.
            let mut blocks = copies.iter().filter_map(|copy| copy.block(within));
            let bytes = blocks.find(|bytes| block_sum(block, bytes) == sum)?;
            Some((sum, Some(bytes)))
        });
        if let Some((sum, bytes)) = right {
            chosen.is_first_forced |= is_given_up && sum != newest_sum;
            chosen.group.sums[within] = sum;
            chosen.blocks[within] = bytes;
            continue;
        }
        // It was in flight on every replica: as it is on the first that gives it.
        let given = || copies.iter().find_map(|copy| copy.block(within));
        let bytes = copies[order[0]].block(within).or_else(given);
        if block == 0 && !(is_read || (is_given_up && bytes.is_some())) {
            return Err(failed(
                "read",
                "the first block of it can be read on no disk as it was written last; try again when \
                 the disks answer. Where it is bad for good, --force takes it as another disk has it",
            ));
        }
        if block != 0 && !(is_read && sums_read) {
            // It may be right where it was not read, or by sums that were not.
            continue;
        }
        chosen.blocks[within] = bytes;
        chosen.is_first_forced |= is_given_up;
        if let Some(bytes) = bytes.filter(|_| block == 0) {
            // The catalog's header page: the only one overwritten in place, and accepted by the
            // catalog in any mix of old and new. It must be readable ever after.
            chosen.group.sums[within] = block_sum(block, bytes);
        } else {
            chosen.doubtful.push(block);
        }
    }
    Ok(chosen)
}

/// Where a replica's block is not the chosen one: replica, place and bytes.
fn differences(
    map: &Map,
    copies: &[Copy],
    chosen: &Chosen<'_>,
    group: usize,
) -> Vec<(usize, u64, AlignedBuffer)> {
    let (first, _) = map.blocks_of(group);
    let mut writes = Vec::new();
    for (number, (replica, copy)) in map.replicas.iter().zip(copies).enumerate() {
        for (within, wanted) in chosen.blocks.iter().enumerate() {
            if let Some(wanted) = wanted
                && copy.block(within) != Some(*wanted)
            {
                let place = map.data_place(replica, first + within as u64);
                writes.push((number, place, aligned(wanted)));
            }
        }
    }
    writes
}
