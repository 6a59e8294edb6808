//! The group, its making and its openings.

use std::sync::Arc;

use spindle_base::{
    AuSize, DiskName, FailureGroupName, FileId, GroupName, Redundancy, Striping, Uuid,
};
use spindle_device::{DiskSlot, Disks, SeededRandom, SimulatedDisks};
use spindle_group::{Group, GroupError, Layout, NewDisk, NewGroup, Opener};

use super::cutting::Cutting;
use super::{Plot, Story, Subject};

/// The size of every disk.
pub const DISK_BYTES: u64 = 64 << 20;
/// Those of the new group.
pub const DISKS_COUNT: usize = 4;

/// Disks take turns.
pub fn failure_group(slot: DiskSlot) -> u16 {
    slot.0 % 2
}

/// A disk of the group to be.
pub fn new_disk(slot: DiskSlot) -> NewDisk {
    NewDisk {
        slot,
        name: DiskName::new(format!("D{}", slot.0)).expect("a good name"),
        failure_group: FailureGroupName::new(format!("F{}", failure_group(slot)))
            .expect("a good name"),
        uuid: Uuid([u8::try_from(slot.0).expect("few") + 1; 16]),
    }
}

/// The disks of a new run.
pub fn disks(seed: u64, disk_bytes: u64) -> Arc<SimulatedDisks> {
    Arc::new(SimulatedDisks::new(seed, &[disk_bytes; DISKS_COUNT]))
}

/// The group's name.
pub fn name() -> GroupName {
    GroupName::new("DATA").expect("a good name")
}

/// A group over all disks.
pub fn create(access: &Arc<dyn Disks>, redundancy: Redundancy) {
    let new = NewGroup {
        name: name(),
        uuid: Uuid([0xEE; 16]),
        redundancy,
        au_size: AuSize::DEFAULT,
        disks: (0..u16::try_from(DISKS_COUNT).expect("few"))
            .map(|slot| new_disk(DiskSlot(slot)))
            .collect(),
        profile: "plain".to_owned(),
        created_s: 1,
    };
    Group::create(Arc::clone(access), &new).expect("a group can be created");
}

/// Opens it with every disk that is there.
pub fn open(
    access: &Arc<dyn Disks>,
    disks: &SimulatedDisks,
    opening: u8,
) -> Result<Group, GroupError> {
    let slots: Vec<DiskSlot> = (0..u16::try_from(disks.disk_count()).expect("few"))
        .map(DiskSlot)
        .filter(|slot| !disks.is_vanished(*slot))
        .collect();
    let opener = Opener {
        host: "simulated".to_owned(),
        origin: None,
        booted_s: None,
        boot: Uuid([opening; 16]),
        process_id: u32::from(opening),
        now_s: u64::from(opening) * 60,
        force: false,
        preferred_failure_group: None,
    };
    Group::open(Arc::clone(access), &slots, &name(), &opener)
}

impl Story {
    /// Some files, with something in them that is durable.
    pub fn make_files(&mut self, group: &Group, random: &mut SeededRandom) {
        // Where all that is there has to be new, and many maps have to change.
        let is_empty = self.plot == Plot::Cuts(Cutting::AfterSync);
        let count = 1 + random.below(if is_empty { 8 } else { 3 });
        for number in 0..count {
            let id = FileId(100 + number);
            let redundancy = if number > 0 && !is_empty && random.chance(1, 2) {
                Redundancy::External
            } else {
                self.plot.redundancy()
            };
            let layout = Layout {
                redundancy,
                striping: Striping::Coarse,
            };
            let file = {
                let change = group.change();
                group.create_file(&change, id, layout)
            };
            let file = file.expect("there is room");
            let is_mirrored = redundancy != Redundancy::External && !self.plot.has_conversions();
            self.history.create(id, 1 + usize::from(is_mirrored));
            let subject = Subject { id, is_mirrored };
            self.files.push(subject);
            let writes = if is_empty { 0 } else { random.below(4) };
            for _ in 0..writes {
                self.write_once(group, subject, &file, random);
            }
            if matches!(self.plot, Plot::Moves | Plot::Changes(_)) {
                self.write_much(group, subject, &file, random);
            }
        }
        group.sync().expect("nothing has failed yet");
        let begun = self.history.tick();
        group.sync().expect("nothing has failed yet");
        for subject in &self.files {
            self.history.end_sync(subject.id, begun, true);
        }
    }
}
