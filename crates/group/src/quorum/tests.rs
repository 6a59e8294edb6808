//! Membership over simulated disks: what a start finds, and what failures do.

mod claims;
mod contests;
mod crashes;
mod creates;
mod cut_off;
mod failures;
mod marks;
mod newer;
mod ownership;
mod relapse;
mod returns;
mod set_back;
mod starts;
mod unable;
mod verify;
mod vigil;

use std::sync::Arc;

use spindle_base::{AuSize, DiskName, DiskNumber, FailureGroupName, GroupName, Redundancy, Uuid};
use spindle_device::{DiskSlot, Disks, SimulatedDisks};

use crate::quorum::{Joining, Membership, Standings};
use crate::{GroupError, NewDisk, NewGroup, Opener};

const DISK_BYTES: u64 = 16 << 20;
const BOOT: Uuid = Uuid([0xb0; 16]);

fn name(text: &str) -> GroupName {
    GroupName::new(text).unwrap()
}

/// The number in each byte, and what is above 255 in the first one.
fn uuid_of(number: u16) -> Uuid {
    let [low, high] = number.to_le_bytes();
    let mut bytes = [low; 16];
    bytes[0] = bytes[0].wrapping_add(high);
    Uuid(bytes)
}

/// A group with one disk for each letter; equal letters are one failure group.
fn new_group(failure_groups: &str, redundancy: Redundancy) -> NewGroup {
    NewGroup {
        name: name("DATA"),
        uuid: Uuid([9; 16]),
        redundancy,
        au_size: AuSize::DEFAULT,
        disks: (failure_groups.chars().enumerate())
            .map(|(index, letter)| {
                let number = u16::try_from(index).unwrap();
                NewDisk {
                    slot: DiskSlot(number),
                    name: DiskName::new(format!("DATA_{number:04}")).unwrap(),
                    failure_group: FailureGroupName::new(letter).unwrap(),
                    uuid: uuid_of(number + 1),
                }
            })
            .collect(),
        profile: "plain".to_owned(),
        created_s: 1_000,
    }
}

fn opener() -> Opener {
    Opener {
        host: "alpha".to_owned(),
        origin: None,
        booted_s: None,
        boot: BOOT,
        process_id: 100,
        now_s: 2_000,
        force: false,
        preferred_failure_group: None,
    }
}

fn forced() -> Opener {
    Opener {
        force: true,
        ..opener()
    }
}

fn make(failure_groups: &str, redundancy: Redundancy) -> Arc<SimulatedDisks> {
    let disks = Arc::new(SimulatedDisks::new(
        1,
        &vec![DISK_BYTES; failure_groups.len()],
    ));
    create(&disks, &new_group(failure_groups, redundancy)).unwrap();
    disks
}

fn create(disks: &Arc<SimulatedDisks>, new: &NewGroup) -> Result<(), GroupError> {
    let disks: Arc<dyn Disks> = disks.clone();
    Membership::create(disks, new)?.finish_create()
}

/// The last disk of these failure groups joins the group of the others: it is labelled.
fn joining_last(membership: &Membership, failure_groups: &str) -> Standings {
    let disk = (new_group(failure_groups, Redundancy::Normal).disks.pop()).unwrap();
    let joining = vec![Joining {
        number: DiskNumber(disk.slot.0),
        failure_group: disk.slot.0,
        size_aus: u32::try_from(DISK_BYTES / membership.au_size().bytes()).unwrap(),
        disk,
    }];
    membership.label_joining(&joining).unwrap();
    Standings {
        joining,
        ..Standings::default()
    }
}

/// Opens from the disks that have not vanished, all other processes dead.
fn open_as(disks: &Arc<SimulatedDisks>, opener: &Opener) -> Result<Membership, GroupError> {
    open_of(disks, opener, &present(disks))
}

fn open_of(
    disks: &Arc<SimulatedDisks>,
    opener: &Opener,
    slots: &[DiskSlot],
) -> Result<Membership, GroupError> {
    let disks: Arc<dyn Disks> = disks.clone();
    Membership::open(disks, slots, &name("data"), opener, &|_| false)
}

fn open(disks: &Arc<SimulatedDisks>) -> Result<Membership, GroupError> {
    open_as(disks, &opener())
}

fn present(disks: &SimulatedDisks) -> Vec<DiskSlot> {
    (0..)
        .map(DiskSlot)
        .take(disks.disk_count())
        .filter(|slot| !disks.is_vanished(*slot))
        .collect()
}

fn voters(membership: &Membership) -> Vec<u16> {
    membership.state().voters().map(|disk| disk.0).collect()
}

fn online(membership: &Membership) -> Vec<u16> {
    (0..membership.state().next_disk_number)
        .filter(|number| membership.is_online(DiskNumber(*number)))
        .collect()
}
