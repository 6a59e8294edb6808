//! Whether a change of the disks can be made, and what exactly it is: all that is refused is
//! refused here, before anything is written, and with what is missing in figures.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spindle_base::{
    BLOCK_SIZE_BYTES, DiskName, DiskNumber, FailureGroupName, Redundancy, count_text, size_text,
};
use spindle_extent::capacity;
use spindle_extent::space::Space;
use spindle_format::{DiskStatus, Replica, resized_aus, usable_aus};

use crate::background::Group;
use crate::change::{DiskChanges, Standings, refusal};
use crate::core::Core;
use crate::core::disks::DiskState;
use crate::core::file::File;
use crate::error::{GroupError, GroupErrorKind, Operation};
use crate::quorum::{DISK_AUS_MIN, Joining, NewDisk, disk_size_min_text};

/// A change that can be made.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    pub(crate) joining: Vec<Joining>,
    pub(crate) statuses: Vec<(DiskNumber, DiskStatus)>,
    /// Disks that get another size, in AUs.
    pub(crate) sizes_aus: Vec<(DiskNumber, u32)>,
    /// The same disks' sizes before.
    pub(crate) sizes_before_aus: Vec<u32>,
    /// The sizes of the same disks as they were asked for.
    asked_bytes: Vec<u64>,
    au_bytes: u64,
}

impl Judged {
    /// The disks that are given up with what they hold.
    pub(crate) fn given_up(&self) -> Vec<DiskNumber> {
        (self.statuses.iter())
            .filter(|(_, status)| *status == DiskStatus::Absent)
            .map(|(number, _)| *number)
            .collect()
    }

    /// Disks that do not get smaller, with the sizes that their labels are to say.
    pub(crate) fn grown(&self) -> impl Iterator<Item = (DiskNumber, u64)> {
        (self.sizes_aus.iter().zip(&self.sizes_before_aus))
            .zip(&self.asked_bytes)
            .filter(|(((_, after), before), _)| after >= before)
            .map(|(((disk, _), _), asked_bytes)| (*disk, *asked_bytes))
    }

    /// Disks that are on their way out from now on.
    fn leaving(&self) -> impl Iterator<Item = DiskNumber> {
        (self.statuses.iter())
            .filter(|(_, status)| matches!(status, DiskStatus::Dropping | DiskStatus::Absent))
            .map(|(number, _)| *number)
    }

    /// Disks that get smaller, with their sizes in bytes.
    fn shrinking(&self) -> impl Iterator<Item = (DiskNumber, u64)> {
        (self.sizes_aus.iter().zip(&self.sizes_before_aus))
            .filter(|((_, after), before)| after < before)
            .map(|((disk, after), _)| (*disk, u64::from(*after) * self.au_bytes))
    }

    /// The sizes that the next state has: not of disks with something behind their new end.
    pub(crate) fn final_sizes(&self, space: &Space) -> Vec<(DiskNumber, u32)> {
        (self.sizes_aus.iter().zip(&self.sizes_before_aus))
            .filter(|((disk, after), before)| after >= before || !space.is_used_behind_end(*disk))
            .map(|(size, _)| *size)
            .collect()
    }
}

impl Group {
    /// Judges a change: refuses all that [`Group::change_disks`] refuses before it writes anything.
    pub(crate) fn judge_changes(&self, changes: &DiskChanges) -> Result<Judged, GroupError> {
        self.refuse_twice(changes)?;
        let mut judged = Judged {
            au_bytes: self.membership.au_size().bytes(),
            joining: self.judge_new(changes)?,
            ..Judged::default()
        };
        for number in &changes.drop {
            let status = self.judge_drop(*number, changes.force)?;
            judged.statuses.push((*number, status));
        }
        for (number, new) in &changes.replace {
            let status = self.judge_drop(*number, true)?;
            self.judge_replacement(*number, new)?;
            judged.statuses.push((*number, status));
        }
        for number in &changes.undrop {
            let disk = self.known_disk(*number)?;
            if !self.membership.leaves(*number) {
                return Err(refusal(
                    GroupErrorKind::Invalid,
                    format!(
                        "disk {} is not being dropped; there is nothing to take back",
                        disk.name()
                    ),
                ));
            }
            // One that went away meanwhile stays away, and is kept when it is back.
            let status = match self.membership.status(*number) {
                Some(DiskStatus::Offline) => DiskStatus::Offline,
                _ => DiskStatus::Online,
            };
            judged.statuses.push((*number, status));
        }
        for (number, size_bytes) in &changes.resize {
            self.judge_resize(*number, *size_bytes, &mut judged)?;
        }
        let given_up = judged.given_up();
        if !given_up.is_empty() {
            self.notice_offline();
            self.refuse_last_copies(&given_up, "be given up")?;
        }
        if judged.leaving().next().is_some() || judged.shrinking().next().is_some() {
            self.judge_what_remains(&judged)?;
        }
        self.membership.judge_standings(&Standings {
            joining: judged.joining.clone(),
            statuses: judged.statuses.clone(),
            sizes_aus: judged.sizes_aus.clone(),
        })?;
        Ok(judged)
    }

    pub(crate) fn known_disk(&self, number: DiskNumber) -> Result<&DiskState, GroupError> {
        self.disks.get(number).ok_or_else(|| {
            refusal(
                GroupErrorKind::NotFound,
                format!(
                    "group {} has no disk {number}; list its disks to see which it has",
                    self.membership.name()
                ),
            )
        })
    }

    fn refuse_twice(&self, changes: &DiskChanges) -> Result<(), GroupError> {
        let resized = changes.resize.iter().map(|(number, _)| number);
        let replaced = changes.replace.iter().map(|(number, _)| number);
        let mut seen = BTreeSet::new();
        for number in (changes.drop.iter().chain(&changes.undrop)).chain(resized.chain(replaced)) {
            if !seen.insert(*number) {
                return Err(refusal(
                    GroupErrorKind::Invalid,
                    format!(
                        "disk {} is named twice; name each disk once",
                        self.known_disk(*number)?.name()
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Refuses a name that another disk of the group has.
    pub(crate) fn refuse_name_in_use(&self, name: &DiskName) -> Result<(), GroupError> {
        let same = |other: &DiskState| other.name().as_str().eq_ignore_ascii_case(name.as_str());
        if self.disks.iter().any(same) {
            return Err(refusal(
                GroupErrorKind::Invalid,
                format!(
                    "group {} has a disk {name} already; give another name",
                    self.membership.name()
                ),
            ));
        }
        Ok(())
    }

    /// Numbers and failure groups for disks that join.
    fn judge_new(&self, changes: &DiskChanges) -> Result<Vec<Joining>, GroupError> {
        let replacing = changes.replace.iter().map(|(_, new)| new);
        let disks: Vec<&NewDisk> = changes.add.iter().chain(replacing).collect();
        let mut failure_groups: BTreeMap<String, (FailureGroupName, u16)> = (self.disks.iter())
            .map(|disk| {
                let name = disk.failure_group.clone();
                (key(&name), (name, disk.group_index))
            })
            .collect();
        let used: BTreeSet<u16> = failure_groups.values().map(|(_, index)| *index).collect();
        let mut fresh = (0..u16::MAX).filter(|index| !used.contains(index));
        let numbers = (self.membership)
            .free_numbers(disks.len(), |number| self.disks.knows_number(number))?;
        let mut joining: Vec<Joining> = Vec::new();
        let (mut names, mut slots, mut identities) =
            (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for (disk, number) in disks.into_iter().zip(numbers) {
            self.refuse_name_in_use(&disk.name)?;
            let is_alone = names.insert(disk.name.as_str().to_ascii_lowercase())
                && slots.insert(disk.slot)
                && identities.insert(disk.uuid);
            if !is_alone {
                return Err(refusal(
                    GroupErrorKind::Invalid,
                    format!(
                        "disk {} is named twice; name each disk once, and give each its own name",
                        disk.name
                    ),
                ));
            }
            if let Some(member) = self.disks.disk_of(disk.slot) {
                return Err(refusal(
                    GroupErrorKind::Invalid,
                    format!(
                        "{} is disk {} of group {} already",
                        self.disks.describe(member.number),
                        member.name(),
                        self.membership.name()
                    ),
                ));
            }
            let (name, failure_group) = failure_groups
                .entry(key(&disk.failure_group))
                .or_insert_with(|| {
                    let index = fresh.next().unwrap_or(u16::MAX);
                    (disk.failure_group.clone(), index)
                })
                .clone();
            let mut disk = disk.clone();
            disk.failure_group = name;
            joining.push(Joining {
                size_aus: self.judge_size(&disk)?,
                number,
                failure_group,
                disk,
            });
        }
        Ok(joining)
    }

    /// The AUs of a disk that joins.
    fn judge_size(&self, disk: &NewDisk) -> Result<u32, GroupError> {
        let au_size = self.membership.au_size();
        let disks = self.membership.disks();
        let size_bytes = disks.size_bytes(disk.slot);
        let aus = u32::try_from(usable_aus(size_bytes, au_size)).ok();
        aus.filter(|aus| u64::from(*aus) >= DISK_AUS_MIN)
            .ok_or_else(|| {
                refusal(
                    GroupErrorKind::NotEnough,
                    format!(
                        "{} has {}; a disk of a group with AUs of {au_size} has at least {} and \
                         fewer than 2^32 AUs",
                        disks.path(disk.slot),
                        size_text(size_bytes),
                        disk_size_min_text(au_size)
                    ),
                )
            })
    }

    /// The status that a disk gets by being dropped.
    fn judge_drop(&self, number: DiskNumber, force: bool) -> Result<DiskStatus, GroupError> {
        let disk = self.known_disk(number)?;
        let name = disk.name();
        let invalid = |message: String| Err(refusal(GroupErrorKind::Invalid, message));
        match self.membership.status(number) {
            Some(DiskStatus::Dropping | DiskStatus::Absent) => {
                invalid(format!("disk {name} is being dropped already"))
            }
            Some(DiskStatus::Offline) if force => Ok(DiskStatus::Absent),
            Some(DiskStatus::Offline) if self.membership.leaves(number) => invalid(format!(
                "disk {name} is being dropped already and went offline; use --force to give it \
                 up now and restore what it held from the other copies"
            )),
            Some(DiskStatus::Offline) => invalid(format!(
                "disk {name} is offline, and what it holds cannot be moved away; bring it back, \
                 or use --force to give it up and restore what it held from the other copies"
            )),
            _ => Ok(DiskStatus::Dropping),
        }
    }

    fn judge_resize(
        &self,
        number: DiskNumber,
        size_bytes: u64,
        judged: &mut Judged,
    ) -> Result<(), GroupError> {
        let disk = self.known_disk(number)?;
        let name = disk.name();
        let invalid = |message: String| Err(refusal(GroupErrorKind::Invalid, message));
        if self.membership.status(number) != Some(DiskStatus::Online) {
            return invalid(format!(
                "disk {name} is not online; it can be resized when it is"
            ));
        }
        let au_size = self.membership.au_size();
        let slot = disk.slot().expect("an online disk is open");
        let disks = self.membership.disks();
        let found_bytes = disks.measure(slot).map_err(|error| {
            let path = disks.path(slot);
            refusal(GroupErrorKind::Io, format!("{path} does not tell its size"))
                .during(Operation::Measure)
                .on_disk(number)
                .because(error)
        })?;
        if size_bytes > found_bytes {
            return invalid(format!(
                "disk {name} cannot have {}: {} has {}; enlarge it first",
                size_text(size_bytes),
                disks.path(slot),
                size_text(found_bytes)
            ));
        }
        let before = (self.membership.state().disk(number)).map_or(0, |disk| disk.size_aus);
        let aus = resized_aus(size_bytes, au_size, before.into());
        let aus = u32::try_from(aus).unwrap_or(u32::MAX);
        if u64::from(aus) < DISK_AUS_MIN {
            return Err(refusal(
                GroupErrorKind::NotEnough,
                format!(
                    "disk {name} cannot have {}: a disk of a group with AUs of {au_size} has at \
                     least {}",
                    size_text(size_bytes),
                    disk_size_min_text(au_size)
                ),
            ));
        }
        self.refuse_catalog_behind(number, aus, self.membership.catalog_runs())?;
        judged.sizes_aus.push((number, aus));
        judged.sizes_before_aus.push(before);
        judged.asked_bytes.push(size_bytes);
        Ok(())
    }

    /// The catalog's runs cannot be moved within a disk.
    fn refuse_catalog_behind(
        &self,
        number: DiskNumber,
        aus: u32,
        replicas: Vec<Replica>,
    ) -> Result<(), GroupError> {
        let behind = (replicas.into_iter())
            .filter(|replica| replica.disk == number)
            .flat_map(|replica| replica.runs)
            .map(|run| run.start_au + run.aus)
            .max()
            .filter(|end| *end > aus);
        match behind {
            None => Ok(()),
            Some(end) => Err(refusal(
                GroupErrorKind::NotEnough,
                format!(
                    "disk {} cannot be cut to {aus} AUs: its replica of the catalog reaches up to \
                     AU {end}; drop the disk and add it again with its new size",
                    self.membership.disk_title(number)
                ),
            )),
        }
    }

    /// Refuses a replacement that is no disk of the same failure group, or smaller.
    fn judge_replacement(&self, old: DiskNumber, new: &NewDisk) -> Result<(), GroupError> {
        let disk = self.known_disk(old)?;
        let name = disk.name();
        if key(&new.failure_group) != key(&disk.failure_group) {
            return Err(refusal(
                GroupErrorKind::Invalid,
                format!(
                    "disk {name} is in failure group {}, and what replaces it is in the same one, \
                     not in {}",
                    disk.failure_group, new.failure_group
                ),
            ));
        }
        let size_aus = u64::from(self.judge_size(new)?);
        let wanted_aus = disk.total_bytes() / self.membership.au_size().bytes();
        if size_aus < wanted_aus {
            return Err(refusal(
                GroupErrorKind::NotEnough,
                format!(
                    "{} is too small to replace disk {name}: it has {size_aus} AUs of {}, and \
                     {wanted_aus} are needed",
                    self.membership.disks().path(new.slot),
                    self.membership.au_size()
                ),
            ));
        }
        Ok(())
    }

    /// Refuses where the disks that remain cannot hold the redundancy or the data.
    fn judge_what_remains(&self, judged: &Judged) -> Result<(), GroupError> {
        let demands = self.space_demands();
        let rooms = self.rooms_after(judged);
        let copies = (demands.iter().map(|(copies, _)| *copies))
            .chain([self.membership.redundancy().copies()])
            .max()
            .unwrap_or(1);
        let shrinking = judged.shrinking().map(|(number, _)| number);
        let named = self.disk_names(judged.leaving().chain(shrinking));
        let able: Vec<u64> = (rooms.values())
            .filter(|room| room.receives)
            .map(|room| room.blocks)
            .collect();
        if able.len() < copies {
            return Err(refusal(
                GroupErrorKind::NotEnough,
                format!(
                    "group {} keeps {copies} copies of some files in different failure groups, \
                     and without {named} only {} would be left online; add disks in {} \
                     first, or in the same command",
                    self.membership.name(),
                    able.len(),
                    count_text((copies - able.len()) as u64, "more failure group")
                ),
            ));
        }
        let blocks: Vec<u64> = rooms.values().map(|room| room.blocks).collect();
        let lacking_blocks = capacity::lacking_blocks(&blocks, &demands);
        if lacking_blocks > 0 {
            let demanded: u64 = (demands.iter())
                .map(|(copies, blocks)| *copies as u64 * blocks)
                .sum();
            let mebibytes = |blocks: u64| (blocks * BLOCK_SIZE_BYTES).div_ceil(1 << 20);
            return Err(refusal(
                GroupErrorKind::NotEnough,
                format!(
                    "what remains of group {} without {named} cannot hold its data: all copies \
                     take {} MiB, and {} MiB of room in the right failure groups are missing; \
                     remove files, or add disks first or in the same command",
                    self.membership.name(),
                    mebibytes(demanded),
                    mebibytes(lacking_blocks)
                ),
            ));
        }
        Ok(())
    }

    /// Blocks of room that are missing where these files have other redundancies.
    pub(crate) fn lacking_after(&self, changes: &[(Arc<File>, Redundancy)]) -> u64 {
        let mut demands: BTreeMap<usize, u64> = self.space_demands().into_iter().collect();
        for (file, wanted) in changes {
            let map = file.map.read();
            let blocks = map.allocated_blocks();
            if let Some(before) = demands.get_mut(&map.copies()) {
                *before = before.saturating_sub(blocks);
            }
            *demands.entry(wanted.copies()).or_default() += blocks;
        }
        let demands: Vec<(usize, u64)> = demands.into_iter().collect();
        let rooms = self.rooms_after(&Judged::default());
        let blocks: Vec<u64> = rooms.values().map(|room| room.blocks).collect();
        capacity::lacking_blocks(&blocks, &demands)
    }

    /// Copies, and the blocks of one copy, of all files.
    fn space_demands(&self) -> Vec<(usize, u64)> {
        let mut demands: BTreeMap<usize, u64> = BTreeMap::new();
        for file in self.all_files() {
            let map = file.map.read();
            // One that is empty still will have its copies in different failure groups.
            *demands.entry(map.copies()).or_default() += map.allocated_blocks();
        }
        demands.into_iter().collect()
    }

    /// What each failure group can hold when the change is made.
    fn rooms_after(&self, judged: &Judged) -> BTreeMap<u16, Room> {
        let au_blocks = self.membership.au_size().blocks();
        let catalog_aus = self.catalog_aus();
        let mut rooms: BTreeMap<u16, Room> = BTreeMap::new();
        for disk in self.disks.iter().filter(|disk| disk.holds_data) {
            let before = self.membership.status(disk.number);
            let after = (judged.statuses.iter())
                .find(|(number, _)| *number == disk.number)
                .map_or(before, |(_, status)| Some(*status));
            let room = rooms.entry(disk.group_index).or_default();
            if after == Some(DiskStatus::Online) && disk.is_online() {
                let total_aus = (judged.sizes_aus.iter())
                    .find(|(number, _)| *number == disk.number)
                    .map_or(
                        disk.total_bytes() / au_blocks / BLOCK_SIZE_BYTES,
                        |(_, aus)| u64::from(*aus),
                    );
                room.receives = true;
                room.blocks += Core::file_aus(total_aus, catalog_aus(disk.number)) * au_blocks;
            } else if after == Some(DiskStatus::Offline) {
                // It keeps what it holds until it returns.
                room.blocks += self.space.used_blocks(disk.number);
            }
        }
        for joining in &judged.joining {
            let room = rooms.entry(joining.failure_group).or_default();
            room.receives = true;
            room.blocks += Core::file_aus(u64::from(joining.size_aus), 0) * au_blocks;
        }
        rooms
    }

    /// Ends disks early that are to be smaller, so that nothing more comes to lie behind.
    pub(crate) fn end_shrinking(&self, judged: &Judged) -> Result<(), GroupError> {
        if judged.shrinking().next().is_none() {
            return Ok(());
        }
        for (disk, size_bytes) in judged.shrinking() {
            self.space.end_disk(disk, size_bytes);
        }
        self.refuse_catalog_that_grew(judged)
            .and_then(|()| {
                for (disk, _) in judged.shrinking() {
                    self.forget_bad_runs(disk);
                }
                // What was freed there is free when it is durable.
                self.commit_everything()
            })
            .inspect_err(|_| self.restore_ends(judged))
    }

    /// The catalog may have taken more of the disk between the judgement and its new end.
    fn refuse_catalog_that_grew(&self, judged: &Judged) -> Result<(), GroupError> {
        let replicas = self.region.runs_at_rest();
        judged.shrinking().try_for_each(|(disk, size_bytes)| {
            let aus = u32::try_from(size_bytes / judged.au_bytes).unwrap_or(u32::MAX);
            self.refuse_catalog_behind(disk, aus, replicas.clone())
        })
    }

    /// Nothing came of it: the disks end where they ended.
    pub(crate) fn restore_ends(&self, judged: &Judged) {
        for (disk, _) in judged.shrinking() {
            self.restore_end(disk);
        }
    }

    /// All that the group uses of the disk is given out.
    pub(crate) fn restore_end(&self, disk: DiskNumber) {
        if let Some(known) = self.disks.get(disk) {
            self.space.end_disk(disk, known.total_bytes());
        }
    }
}

/// What a failure group can hold.
#[derive(Debug, Default, Clone, Copy)]
struct Room {
    blocks: u64,
    /// Whether new extents can go there.
    receives: bool,
}

fn key(name: &FailureGroupName) -> String {
    name.as_str().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::Judged;
    use crate::Group;
    use crate::change::DiskChanges;
    use crate::scene::{Scene, spare};
    use spindle_base::{DiskNumber, Redundancy};

    #[test]
    fn what_a_change_is_judged_to_leave_room_for_is_what_the_planner_finds_room_for() {
        let scene = Scene::new(70, Redundancy::External, &[(0, 700)]);
        let group = scene.open();
        let judged_and_made = |changes: &DiskChanges| {
            let judged = group.judge_changes(changes).unwrap();
            let rooms = |group: &Group, judged: &Judged| -> u64 {
                let rooms = group.rooms_after(judged);
                rooms.values().map(|room| room.blocks).sum()
            };
            let foreseen = rooms(&group, &judged);
            group.change_disks(changes).unwrap();
            assert_eq!(foreseen, rooms(&group, &Judged::default()));
            let planned: u64 = (group.plan_disks().iter())
                .map(|disk| disk.capacity_blocks)
                .sum();
            assert_eq!(foreseen, planned);
        };
        judged_and_made(&DiskChanges {
            add: vec![spare(&scene.disks, 1, 600)],
            ..DiskChanges::default()
        });
        judged_and_made(&DiskChanges {
            resize: vec![(DiskNumber(1), 300 << 20)],
            ..DiskChanges::default()
        });
    }
}
