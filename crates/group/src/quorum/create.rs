//! Making a group: its structures on every disk, the labels last.
//!
//! A crash before the labels are whole leaves disks without a label, or with some: a group whose
//! disks are not all labelled yet has no clean group state of its own kind and is made anew. What
//! was on the disks before is gone from the first write on, so old labels are wiped first: no
//! moment shows an older group with a newer one's structures.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use spindle_base::{
    AuSize, DiskName, DiskNumber, FailureGroupName, GroupName, Redundancy, Uuid, size_text,
};
use spindle_device::{AlignedBuffer, DiskSlot, Disks};
use spindle_format::{
    AuRun, DISKS_MAX, DiskState, DiskStatus, FIRST_DATA_AU, Features, GroupState, LABEL_BYTES,
    LABEL_PLACES, Label, LabelStatus, Lost, OpenerRecord, Replica, STATE_PLACES, end_label_place,
    usable_aus,
};
use spindle_sync::atomic::{AtomicBool, AtomicU64};
use spindle_sync::level::{DeepMutex, LeafRwLock};

use crate::error::{GroupError, GroupErrorKind, Operation};
use crate::event::EventQueue;
use crate::quorum::ownership::{Ownership, Slots};
use crate::quorum::publish::Quorum;
use crate::quorum::{
    FailedFlushes, Inner, LateCopies, Member, Membership, StandingTable, refused, voters,
};

/// What a new catalog region holds at least, in bytes.
const REGION_START_BYTES: u64 = 4 << 20;
/// The fewest AUs of a disk: AU 0, the catalog's first, and some for data.
pub(crate) const DISK_AUS_MIN: u64 = 8;

/// A disk of a group to be made.
#[derive(Debug, Clone)]
pub struct NewDisk {
    /// Where it is open.
    pub slot: DiskSlot,
    /// Its name in the group.
    pub name: DiskName,
    /// Its failure group.
    pub failure_group: FailureGroupName,
    /// Random identity.
    pub uuid: Uuid,
}

/// A group to be made.
#[derive(Debug, Clone)]
pub struct NewGroup {
    /// Its name.
    pub name: GroupName,
    /// Random identity.
    pub uuid: Uuid,
    /// The redundancy of files whose template says nothing else.
    pub redundancy: Redundancy,
    /// Fixed for the group's life.
    pub au_size: AuSize,
    /// Its disks, numbered in this order.
    pub disks: Vec<NewDisk>,
    /// `postgresql`, `mariadb`, `sqlite` or `plain`; stored as an attribute for the layer above.
    pub profile: String,
    /// Seconds since 1970, for the records.
    pub created_s: u64,
}

impl Membership {
    /// Makes the structures of a new group, except the labels: until
    /// [`Membership::finish_create`] no mount finds it. The region of its catalog is empty.
    ///
    /// # Errors
    /// [`GroupErrorKind::NotEnough`] where disks or failure groups are too few or too small,
    /// [`GroupErrorKind::Invalid`] where two disks share a name or a slot,
    /// [`GroupErrorKind::Io`] where a disk cannot be written.
    pub fn create(disks: Arc<dyn Disks>, new: &NewGroup) -> Result<Self, GroupError> {
        judge_new_group(&*disks, new)?;
        let state = first_state(&*disks, new);
        let mut members = BTreeMap::new();
        for (disk, entry) in new.disks.iter().zip(&state.disks) {
            let label = label(&*disks, new, disk, entry.number);
            let path = disks.path(disk.slot);
            let member = Member {
                path,
                label,
                late: LateCopies::default(),
                held_slot: 1,
                held_epoch: 0,
                spare_epoch: 0,
            };
            members.insert(entry.number, member);
        }
        let slots: Slots = (new.disks.iter().zip(&state.disks))
            .map(|(disk, entry)| (entry.number, disk.slot))
            .collect();
        let slots = Arc::new(LeafRwLock::new(slots));
        let membership = Self {
            uuid: new.uuid,
            au_size: new.au_size,
            redundancy: LeafRwLock::new(new.redundancy),
            was_clean: true,
            was_forced: false,
            recovers: AtomicBool::new(false),
            lost_replicas: Vec::new(),
            slots: Arc::clone(&slots),
            standings: StandingTable::default(),
            hanging: Arc::default(),
            structure_writes_count: AtomicU64::new(0),
            stopped: OnceLock::new(),
            events: EventQueue::default(),
            disks: Arc::new(Ownership::new(disks, slots, FailedFlushes::default())),
            inner: DeepMutex::new(Inner {
                epoch_tried: 0,
                members,
                heard: BTreeMap::new(),
                opener: OpenerRecord {
                    sequence: 1,
                    group_uuid: new.uuid,
                    disk_uuid: Uuid([0; 16]),
                    boot: Uuid([0; 16]),
                    host: String::new(),
                    origin: None,
                    process_id: 0,
                    open: false,
                    heartbeats_count: 0,
                    heartbeat_s: new.created_s,
                    opened_s: new.created_s,
                },
                away_held: BTreeMap::new(),
                goes_back_to: None,
                set_back: BTreeMap::new(),
                broken: None,
                state: state.clone(),
            }),
        };
        membership.set_standings(&state);
        membership.become_judge();
        membership.wipe()?;
        {
            let mut inner = membership.inner.lock();
            membership.publish(&mut inner, state, Quorum::Half)?;
            membership.refuse_offline(&inner)?;
        }
        Ok(membership)
    }

    /// Labels the disks: from here on the group exists, closed and clean.
    ///
    /// # Errors
    /// [`GroupErrorKind::Io`] where a disk cannot be written.
    pub fn finish_create(&self) -> Result<(), GroupError> {
        self.close()?;
        let mut inner = self.inner.lock();
        self.refuse_offline(&inner)?;
        self.write_labels(&mut inner, |_| true, |_| {})?;
        let slots = self.slots.read().clone();
        let written: Vec<_> = (inner.members.iter())
            .filter_map(|(number, member)| Some((*slots.get(number)?, member.label.disk_uuid)))
            .collect();
        self.refuse_unlike_labels(&written).inspect_err(|_| {
            let _ = self.wipe();
        })
    }

    /// A disk that fails while a group is made is no disk to make a group of.
    fn refuse_offline(&self, inner: &Inner) -> Result<(), GroupError> {
        let bad = (inner.state.disks.iter()).find(|disk| disk.status != DiskStatus::Online);
        match bad {
            None => Ok(()),
            Some(disk) => Err(refused(
                GroupErrorKind::Io,
                format!(
                    "disk {} cannot be written; make the group without it",
                    self.disk_title(disk.number)
                ),
            )
            .during(Operation::Write)
            .on_disk(disk.number)),
        }
    }

    /// Zeroes every label and both states of every disk.
    fn wipe(&self) -> Result<(), GroupError> {
        let zeros = AlignedBuffer::zeroed(LABEL_BYTES);
        let slots: Vec<(DiskNumber, DiskSlot)> = (self.slots.read().iter())
            .map(|(number, slot)| (*number, *slot))
            .collect();
        let fixed = (LABEL_PLACES.into_iter().chain(STATE_PLACES)).map(Some);
        for place in fixed.chain([None]) {
            let end = |slot| end_label_place(self.disks.size_bytes(slot));
            let writes = (slots.iter())
                .map(|(number, slot)| (*number, place.unwrap_or_else(|| end(*slot)), &zeros[..]));
            if let Some((number, why)) = self.write_durably(writes).into_iter().next() {
                return Err(refused(
                    GroupErrorKind::Io,
                    format!("disk {} cannot be written", self.disk_title(number)),
                )
                .during(Operation::Write)
                .on_disk(number)
                .because(why));
            }
        }
        Ok(())
    }
}

/// The size of the smallest disk of a group with such AUs: the label's last copy lies behind them.
#[must_use]
pub const fn disk_bytes_min(au_size: AuSize) -> u64 {
    DISK_AUS_MIN * au_size.bytes() + LABEL_BYTES as u64
}

/// The same for a person. In two parts: their sum reads as the AUs alone, and a disk of that size
/// would be told that it is as large as it has to be.
pub(crate) fn disk_size_min_text(au_size: AuSize) -> String {
    format!(
        "{} and {}",
        size_text(DISK_AUS_MIN * au_size.bytes()),
        size_text(LABEL_BYTES as u64)
    )
}

/// Whether [`Membership::create`] would begin to write.
///
/// # Errors
/// [`GroupErrorKind::NotEnough`] where disks or failure groups are too few or too small,
/// [`GroupErrorKind::Invalid`] where two disks share a name or a slot.
pub fn judge_new_group(disks: &dyn Disks, new: &NewGroup) -> Result<(), GroupError> {
    check_names(new)?;
    check_failure_groups(new)?;
    check_sizes(disks, new)
}

fn check_names(new: &NewGroup) -> Result<(), GroupError> {
    let mut names = BTreeSet::new();
    let mut slots = BTreeSet::new();
    let mut identities = BTreeSet::new();
    for disk in &new.disks {
        if !names.insert(disk.name.as_str().to_ascii_lowercase()) {
            return Err(refused(
                GroupErrorKind::Invalid,
                format!("two disks are called {}; give each its own name", disk.name),
            ));
        }
        if !slots.insert(disk.slot) || !identities.insert(disk.uuid) {
            return Err(refused(
                GroupErrorKind::Invalid,
                format!("disk {} is named twice; name each disk once", disk.name),
            ));
        }
    }
    Ok(())
}

fn check_failure_groups(new: &NewGroup) -> Result<(), GroupError> {
    let groups = failure_group_numbers(&new.disks).len();
    let wanted = new.redundancy.copies();
    if new.disks.is_empty() || groups < wanted {
        return Err(refused(
            GroupErrorKind::NotEnough,
            format!(
                "{} redundancy keeps {wanted} copies, each in its own failure group, and group \
                 {} would have {groups}; add disks in other failure groups or choose less \
                 redundancy",
                new.redundancy, new.name
            ),
        ));
    }
    if new.disks.len() > DISKS_MAX {
        return Err(refused(
            GroupErrorKind::Invalid,
            format!(
                "a group has at most {DISKS_MAX} disks, and {} are named",
                new.disks.len()
            ),
        ));
    }
    Ok(())
}

fn check_sizes(disks: &dyn Disks, new: &NewGroup) -> Result<(), GroupError> {
    for disk in &new.disks {
        let size_bytes = disks.size_bytes(disk.slot);
        let aus = usable_aus(size_bytes, new.au_size);
        if aus < DISK_AUS_MIN || u32::try_from(aus).is_err() {
            return Err(refused(
                GroupErrorKind::NotEnough,
                format!(
                    "{} has {}; a disk of a group with AUs of {} has at least {} and fewer than \
                     2^32 AUs",
                    disks.path(disk.slot),
                    size_text(size_bytes),
                    new.au_size,
                    disk_size_min_text(new.au_size)
                ),
            ));
        }
    }
    Ok(())
}

/// A number for each failure group, in the order in which the disks name them; names are equal
/// without regard to case.
fn failure_group_numbers(disks: &[NewDisk]) -> BTreeMap<String, u16> {
    let mut numbers = BTreeMap::new();
    for disk in disks {
        let next = u16::try_from(numbers.len()).expect("a group has at most 4,096 disks");
        numbers.entry(key(&disk.failure_group)).or_insert(next);
    }
    numbers
}

fn key(name: &FailureGroupName) -> String {
    name.as_str().to_ascii_lowercase()
}

fn disk_number(index: usize) -> DiskNumber {
    DiskNumber(u16::try_from(index).expect("a group has at most 4,096 disks"))
}

fn size_aus(disks: &dyn Disks, slot: DiskSlot, new: &NewGroup) -> u32 {
    let aus = usable_aus(disks.size_bytes(slot), new.au_size);
    u32::try_from(aus).expect("the sizes were checked")
}

pub(super) fn uuid_start(uuid: Uuid) -> [u8; 8] {
    let mut start = [0; 8];
    start.copy_from_slice(&uuid.0[..8]);
    start
}

pub(super) fn is_same_disk(entry: &DiskState, label: &Label) -> bool {
    entry.uuid_start == uuid_start(label.disk_uuid)
}

fn first_state(disks: &dyn Disks, new: &NewGroup) -> GroupState {
    let failure_groups = failure_group_numbers(&new.disks);
    let entries: Vec<DiskState> = (new.disks.iter().enumerate())
        .map(|(index, disk)| DiskState {
            number: disk_number(index),
            failure_group: failure_groups[&key(&disk.failure_group)],
            size_aus: size_aus(disks, disk.slot, new),
            uuid_start: uuid_start(disk.uuid),
            status_epoch: 1,
            status: DiskStatus::Online,
            voter: false,
            quorum_only: false,
            leaves: false,
            lost: Lost::NOTHING,
        })
        .collect();
    let region_aus = u32::try_from(REGION_START_BYTES.div_ceil(new.au_size.bytes()))
        .expect("a region starts with at most 4 AUs");
    let run = AuRun {
        start_au: FIRST_DATA_AU,
        aus: region_aus,
    };
    let replicas = (voters::replica_disks(&entries).into_iter())
        .map(|disk| Replica {
            disk,
            runs: vec![run],
        })
        .collect();
    let mut state = GroupState {
        epoch: 0,
        group_uuid: new.uuid,
        group_name: new.name.clone(),
        clean: false,
        redundancy: new.redundancy,
        au_size: new.au_size,
        next_disk_number: disk_number(new.disks.len()).0,
        region_size_bytes: 0,
        features: Features::default(),
        disks: entries,
        replicas,
    };
    voters::appoint(&mut state);
    state
}

fn label(disks: &dyn Disks, new: &NewGroup, disk: &NewDisk, number: DiskNumber) -> Label {
    Label {
        sequence: 0,
        group_uuid: new.uuid,
        disk_uuid: disk.uuid,
        group_name: new.name.clone(),
        disk_name: disk.name.clone(),
        failure_group: disk.failure_group.clone(),
        number,
        au_size: new.au_size,
        redundancy: new.redundancy,
        status: LabelStatus::Member,
        size_bytes: disks.size_bytes(disk.slot),
        created_s: new.created_s,
    }
}
