//! What a small read and a small write cost in here, above devices that answer at once.

use std::sync::Arc;
use std::time::Instant;

use spindle_base::{
    AuSize, BLOCK_SIZE_BYTES, DiskName, FailureGroupName, FileId, GroupName, Redundancy, Striping,
    Uuid,
};
use spindle_device::{AlignedBuffer, DiskSlot, Disks, Request, SimulatedDisks};
use spindle_group::{Group, Layout, NewDisk, NewGroup, Opener};

const MIB: u64 = 1 << 20;
const ROUNDS: u64 = 2_000_000;

/// Simulated disks that skip the work for small requests once told so.
#[derive(Debug)]
struct Instantly {
    disks: SimulatedDisks,
    skip: std::sync::atomic::AtomicBool,
}

impl Disks for Instantly {
    fn run(&self, batch: &mut [Request<'_>]) {
        if !self.skip.load(std::sync::atomic::Ordering::Relaxed) {
            self.disks.run(batch);
        }
    }
    fn size_bytes(&self, slot: DiskSlot) -> u64 {
        self.disks.size_bytes(slot)
    }
    fn path(&self, slot: DiskSlot) -> String {
        self.disks.path(slot)
    }
    fn in_flight_count(&self, _slot: DiskSlot) -> u32 {
        0
    }

    fn appearance(&self, slot: DiskSlot) -> Option<u64> {
        self.disks.appearance(slot)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let disks = Arc::new(Instantly {
        disks: SimulatedDisks::new(1, &[512 * MIB; 4]),
        skip: false.into(),
    });
    let name = GroupName::new("HOT")?;
    let mut new_disks = Vec::new();
    for number in 0..4_u16 {
        new_disks.push(NewDisk {
            slot: DiskSlot(number),
            name: DiskName::new(format!("D{number}"))?,
            failure_group: FailureGroupName::new(format!("F{}", number / 2))?,
            uuid: Uuid([u8::try_from(number)? + 1; 16]),
        });
    }
    let new = NewGroup {
        name: name.clone(),
        uuid: Uuid([9; 16]),
        redundancy: Redundancy::Normal,
        au_size: AuSize::DEFAULT,
        disks: new_disks,
        profile: "plain".to_owned(),
        created_s: 1,
    };
    Group::create(Arc::clone(&disks) as Arc<dyn Disks>, &new)?;
    let opener = Opener {
        host: "measurement".to_owned(),
        origin: None,
        booted_s: None,
        boot: Uuid([1; 16]),
        process_id: 1,
        now_s: 1,
        force: false,
        preferred_failure_group: None,
    };
    let slots: Vec<DiskSlot> = (0..4).map(DiskSlot).collect();
    let group = Group::open(Arc::clone(&disks) as Arc<dyn Disks>, &slots, &name, &opener)?;
    for (id, redundancy) in (2..).zip([Redundancy::External, Redundancy::Normal]) {
        let layout = Layout {
            redundancy,
            striping: Striping::Coarse,
        };
        let file = group.create_file(&group.change(), FileId(id), layout)?;
        let mut data = AlignedBuffer::zeroed(1 << 20);
        for at in 0..128 {
            group.write(&file, at * MIB, &data)?;
            group.write(&file, at * MIB, &data[..4096])?;
        }
        group.sync()?;
        disks.skip.store(true, std::sync::atomic::Ordering::Relaxed);
        let blocks = 128 * MIB / 8192;
        for write in [false, true] {
            let started = Instant::now();
            for round in 0..ROUNDS {
                let at = round * 7919 % blocks * 2 * BLOCK_SIZE_BYTES;
                if write {
                    group.write(&file, at, &data[..8192])?;
                } else {
                    group.read(&file, at, &mut data[..8192])?;
                }
            }
            println!(
                "{redundancy}: {} ns for {} of 8 KiB",
                started.elapsed().as_nanos() / u128::from(ROUNDS),
                if write { "an overwrite" } else { "a read" }
            );
        }
        disks
            .skip
            .store(false, std::sync::atomic::Ordering::Relaxed);
    }
    Ok(())
}
