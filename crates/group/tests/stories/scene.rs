//! Groups over simulated disks, made, opened, crashed and opened again.

use std::sync::Arc;

use spindle_base::{
    AuSize, DiskName, FailureGroupName, FileId, GroupName, Redundancy, Striping, Uuid,
};
use spindle_device::{DiskSlot, Disks, SimulatedDisks};
use spindle_group::{File, Group, GroupError, Layout, NewDisk, NewGroup, Opener};

pub const MIB: u64 = 1 << 20;

pub const EXTERNAL: Layout = Layout {
    redundancy: Redundancy::External,
    striping: Striping::Coarse,
};
pub const NORMAL: Layout = Layout {
    redundancy: Redundancy::Normal,
    striping: Striping::Coarse,
};
pub const FINE: Layout = Layout {
    redundancy: Redundancy::Normal,
    striping: Striping::Fine,
};

pub struct Scene {
    pub disks: Arc<SimulatedDisks>,
    pub name: GroupName,
}

impl Scene {
    /// A group of disks given as (failure group, size in MiB).
    pub fn new(seed: u64, redundancy: Redundancy, disks: &[(u8, u64)]) -> Self {
        let sizes: Vec<u64> = disks.iter().map(|(_, size)| size * MIB).collect();
        let simulated = Arc::new(SimulatedDisks::new(seed, &sizes));
        let name = GroupName::new("DATA").unwrap();
        let new = NewGroup {
            name: name.clone(),
            uuid: Uuid([7; 16]),
            redundancy,
            au_size: AuSize::DEFAULT,
            disks: (0_u16..)
                .zip(disks)
                .map(|(number, (failure_group, _))| NewDisk {
                    slot: DiskSlot(number),
                    name: DiskName::new(format!("D{number}")).unwrap(),
                    failure_group: FailureGroupName::new(format!("F{failure_group}")).unwrap(),
                    uuid: Uuid([u8::try_from(number).unwrap() + 1; 16]),
                })
                .collect(),
            profile: "plain".to_owned(),
            created_s: 1,
        };
        Group::create(Arc::clone(&simulated) as Arc<dyn Disks>, &new).unwrap();
        Self {
            disks: simulated,
            name,
        }
    }

    /// Two disks of 64 MiB in two failure groups.
    pub fn mirrored(seed: u64) -> Self {
        Self::new(seed, Redundancy::Normal, &[(0, 64), (1, 64)])
    }

    pub fn try_open(&self) -> Result<Group, GroupError> {
        let slots: Vec<DiskSlot> = (0..u16::try_from(self.disks.disk_count()).unwrap())
            .map(DiskSlot)
            .filter(|slot| !self.disks.is_vanished(*slot))
            .collect();
        Group::open(
            Arc::clone(&self.disks) as Arc<dyn Disks>,
            &slots,
            &self.name,
            &opener(),
        )
    }

    pub fn open(&self) -> Group {
        self.try_open().unwrap()
    }

    /// The power is cut, and comes back.
    pub fn crash(&self) {
        self.disks.crash();
        self.disks.restart();
    }

    pub fn copy(&self, seed: u64) -> Self {
        Self {
            disks: Arc::new(self.disks.fork(seed)),
            name: self.name.clone(),
        }
    }
}

pub fn opener() -> Opener {
    Opener {
        host: "here".to_owned(),
        boot: Uuid([1; 16]),
        process_id: 1,
        now_s: 10,
        force: false,
        preferred_failure_group: None,
    }
}

pub fn create(group: &Group, id: u64, layout: Layout) -> Arc<File> {
    group
        .create_file(&group.change(), FileId(id), layout)
        .unwrap()
}

pub fn read(group: &Group, file: &File, offset_bytes: u64, length: usize) -> Vec<u8> {
    let mut out = vec![0xee; length];
    group.read(file, offset_bytes, &mut out).unwrap();
    out
}

/// Bytes that tell where they belong.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .collect()
}

pub fn assert_sound(group: &Group) {
    assert_eq!(group.check().unwrap(), Vec::<String>::new());
}
