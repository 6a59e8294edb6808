//! Groups over simulated disks, made, opened, crashed and opened again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use spindle_base::{
    AuSize, DiskName, DiskNumber, FailureGroupName, FileId, GroupName, Redundancy, Striping, Uuid,
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
pub const HIGH: Layout = Layout {
    redundancy: Redundancy::High,
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
        self.open_as(&opener())
    }

    pub fn try_open_by_force(&self) -> Result<Group, GroupError> {
        let forced = Opener {
            force: true,
            ..opener()
        };
        self.open_as(&forced)
    }

    pub fn open_by_force(&self) -> Group {
        self.try_open_by_force().unwrap()
    }

    fn open_as(&self, opener: &Opener) -> Result<Group, GroupError> {
        let slots: Vec<DiskSlot> = (0..u16::try_from(self.disks.disk_count()).unwrap())
            .map(DiskSlot)
            .filter(|slot| !self.disks.is_vanished(*slot))
            .collect();
        Group::open(
            Arc::clone(&self.disks) as Arc<dyn Disks>,
            &slots,
            &self.name,
            opener,
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
        origin: None,
        booted_s: None,
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

/// A disk that is there and belongs to no group, in failure group `F<failure_group>`.
pub fn spare(disks: &SimulatedDisks, failure_group: u8, size_mib: u64) -> NewDisk {
    named(disks.attach(size_mib * MIB), failure_group)
}

pub fn named(slot: DiskSlot, failure_group: u8) -> NewDisk {
    NewDisk {
        slot,
        name: DiskName::new(format!("D{}", slot.0)).unwrap(),
        failure_group: FailureGroupName::new(format!("F{failure_group}")).unwrap(),
        uuid: Uuid([u8::try_from(slot.0).unwrap() + 1; 16]),
    }
}

pub fn status(group: &Group, disk: u16) -> Option<String> {
    let view = group.view();
    let disk = view.disks.iter().find(|view| view.number.0 == disk)?;
    Some(disk.state.clone())
}

pub fn numbers(group: &Group) -> Vec<u16> {
    group
        .view()
        .disks
        .iter()
        .map(|disk| disk.number.0)
        .collect()
}

/// Extents of the file with a copy on the disk.
pub fn copies_on(group: &Group, id: u64, disk: u16) -> usize {
    let file = group.file(FileId(id)).unwrap();
    let on_disk = |copy: &Option<(DiskNumber, u64)>| copy.is_some_and(|(at, _)| at.0 == disk);
    (group.map(&file).iter())
        .filter(|extent| extent.copies.iter().any(on_disk))
        .count()
}

pub fn write_file(group: &Group, id: u64, mib: u64) -> Vec<u8> {
    let data = pattern(id, usize::try_from(mib * MIB).unwrap());
    let file = create(group, id, NORMAL);
    group.write(&file, 0, &data).unwrap();
    group.sync_file(&file, true).unwrap();
    data
}

pub fn remove(group: &Group, id: u64) {
    let file = group.file(FileId(id)).unwrap();
    group.remove_file(&group.change(), &file).unwrap();
    group.sync().unwrap();
}

/// Lets the group work until nothing is left to be copied and every region has become quiet.
pub fn resync(group: &Group) {
    static CLOCK_MS: AtomicU64 = AtomicU64::new(0);
    for _ in 0..8 {
        let now_ms = CLOCK_MS.fetch_add(6000, Ordering::Relaxed);
        while group.step(now_ms).unwrap() {}
        for tick in 0..100_000 {
            if !group.work(now_ms + tick).unwrap().did_something {
                break;
            }
        }
    }
}

/// Every copy that is there, of every initialised block, holds the same bytes.
pub fn assert_copies_equal(scene: &Scene, group: &Group, file: &File, what: &str) {
    for extent in group.map(file) {
        let length = usize::try_from(extent.initialised_bytes).unwrap();
        let copies: Vec<Vec<u8>> = (extent.copies.iter().flatten())
            .map(|(disk, offset)| scene.disks.bytes(DiskSlot(disk.0), *offset, length))
            .collect();
        for copy in &copies {
            assert!(
                *copy == copies[0],
                "{what}: extent {} differs",
                extent.index
            );
        }
    }
}

/// A file of 8 MiB over three failure groups. The disk of the third one was taken offline and has all
/// of it as it is now, that of the second one was put back to what was there before, and serves,
/// because the group cannot do without it.
pub fn set_back_beside_an_outage(scene: &Scene, group: &Group) -> Arc<File> {
    let [set_back, away] = [1, 2].map(DiskNumber);
    let file = create(group, 10, NORMAL);
    let length = 8 << 20;
    group.write(&file, 0, &pattern(1, length)).unwrap();
    group.sync().unwrap();
    resync(group);
    let image = scene.disks.image(DiskSlot(set_back.0));
    group.write(&file, 0, &pattern(2, length)).unwrap();
    group.sync().unwrap();
    resync(group);
    group.heartbeat(2_001).unwrap();
    group.heartbeat(2_003).unwrap();
    group.offline_disks(&[away]).unwrap();
    scene.disks.put_back(DiskSlot(set_back.0), &image);
    group.heartbeat(2_005).unwrap();
    file
}
