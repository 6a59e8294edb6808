//! The group state: every disk's standing, who votes, and where the catalog is.
//!
//! It lies on every disk in two slots that are written in turn: a slot that a crash tore fails
//! its checksum, and the other one holds the state before. The disks that vote for a state hold
//! it durably before anything relies on it. Only the used bytes are written and summed.

use serde::Serialize;
use spindle_base::{AuSize, DiskNumber, GroupName, Redundancy, Uuid};

use crate::checksum_block::run_data_blocks;
use crate::error::{FormatError, FormatErrorKind, Structure};
use crate::feature::{Feature, Features};
use crate::field::{Reader, Writer};
use crate::header::{HEADER_BYTES, Header, PLACE_OFFSET};
use crate::place::{FIRST_DATA_AU, STATE_SLOT_BYTES};
use crate::record::{redundancy_code, redundancy_of};

/// What a slot begins with.
pub const STATE_MAGIC: &[u8; 8] = b"SPNDSTAT";
/// The version of the group state that this program writes.
pub const STATE_VERSION: u32 = 1;
/// Bytes before the disks' entries.
pub const STATE_HEADER_BYTES: usize = 256;
/// Bytes of a disk's entry.
pub const STATE_DISK_BYTES: usize = 28;
/// Bytes of a replica before its runs.
pub const STATE_REPLICA_HEADER_BYTES: usize = 8;
/// Bytes of a run.
pub const STATE_RUN_BYTES: usize = 8;
/// The most disks that a group can have.
pub const DISKS_MAX: usize = 4096;
/// The most disks that vote.
pub const VOTERS_MAX: usize = 5;
/// The most replicas of the catalog.
pub const REPLICAS_MAX: usize = 5;
/// The most runs of a replica.
pub const RUNS_MAX: usize = 32;

const _: () = assert!(
    STATE_HEADER_BYTES
        + DISKS_MAX * STATE_DISK_BYTES
        + REPLICAS_MAX * (STATE_REPLICA_HEADER_BYTES + RUNS_MAX * STATE_RUN_BYTES)
        <= STATE_SLOT_BYTES
);

/// Where the used length is in a slot.
pub const STATE_LENGTH_OFFSET: usize = 96;
/// Where the features are in a slot.
pub const STATE_FEATURES_OFFSET: usize = 116;

/// Where the identity of the disk is in a slot: with the place and the checksum, all in which the
/// slots of one state differ.
const DISK_UUID_OFFSET: usize = HEADER_BYTES + 16;
/// Where in the header the epoch is.
const EPOCH_OFFSET: usize = PLACE_OFFSET + 8;

const FLAG_VOTER: u8 = 1;
const FLAG_QUORUM_ONLY: u8 = 2;
const FLAG_LEAVES: u8 = 4;

const HEADER: Header = Header {
    structure: Structure::GroupState,
    magic: STATE_MAGIC,
    version: STATE_VERSION,
};

/// A disk's standing in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskStatus {
    /// It is read and written.
    Online,
    /// It failed or was away: what it holds is stale until a resync.
    Offline,
    /// It joins: it may be written, and nothing relies on it yet.
    Adding,
    /// It leaves: it is read, and nothing new goes to it.
    Dropping,
    /// It was given up while away; its number stays taken until no map names it.
    Absent,
}

impl DiskStatus {
    const fn code(self) -> u8 {
        match self {
            Self::Online => 1,
            Self::Offline => 2,
            Self::Adding => 3,
            Self::Dropping => 4,
            Self::Absent => 5,
        }
    }

    const fn of(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Online),
            2 => Some(Self::Offline),
            3 => Some(Self::Adding),
            4 => Some(Self::Dropping),
            5 => Some(Self::Absent),
            _ => None,
        }
    }

    /// Whether the disk takes part in reads and writes.
    #[must_use]
    pub const fn is_served(self) -> bool {
        matches!(self, Self::Online | Self::Adding | Self::Dropping)
    }
}

/// What a disk that is away has lost since it held what was written to it.
///
/// Where it was seen smaller than it is, what lay behind that end is gone, and what lay before
/// need not be right either: a write may have made a file longer again before anybody looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize)]
pub struct Lost(u16);

impl Lost {
    /// Nothing.
    pub const NOTHING: Self = Self(0);
    /// All of it.
    pub const EVERYTHING: Self = Self(1);
    const PARTS: u64 = 65_534;

    /// All from `au` on of a disk of `size_aus`, rounded down to a 65,534th of the disk.
    #[must_use]
    pub fn from_au(au: u64, size_aus: u32) -> Self {
        let part = au.min(size_aus.into()) * Self::PARTS / u64::from(size_aus.max(1));
        Self(u16::try_from(part + 1).expect("at most 65,535"))
    }

    /// The first AU that is surely lost, of a disk of `size_aus`; `None` where nothing is.
    #[must_use]
    pub fn start_au(self, size_aus: u32) -> Option<u64> {
        let part = self.0.checked_sub(1)?;
        Some(u64::from(part) * u64::from(size_aus) / Self::PARTS)
    }

    /// What is lost where both were.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::NOTHING, lost) | (lost, Self::NOTHING) => lost,
            (one, other) => one.min(other),
        }
    }
}

/// A disk in the group state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiskState {
    /// Its number.
    pub number: DiskNumber,
    /// Which failure group, as a number: equal numbers are one failure group.
    pub failure_group: u16,
    /// Its size in AUs, AU 0 included.
    pub size_aus: u32,
    /// The first 8 bytes of its identity: tells it from a stranger with its number.
    pub uuid_start: [u8; 8],
    /// The epoch that gave it its status.
    pub status_epoch: u64,
    /// Its standing.
    pub status: DiskStatus,
    /// Whether it votes.
    pub voter: bool,
    /// Whether it holds the group state only, never data.
    pub quorum_only: bool,
    /// Whether it was being dropped when it went offline: it leaves, back or not.
    pub leaves: bool,
    /// What it lost while it was away, if anything.
    pub lost: Lost,
}

/// Successive AUs of one disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct AuRun {
    /// The first AU.
    pub start_au: u32,
    /// How many.
    pub aus: u32,
}

/// A replica of the catalog region.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Replica {
    /// The disk that holds it.
    pub disk: DiskNumber,
    /// Where on it; run for run as long as on every other replica, so that one address leads to
    /// the same run everywhere.
    pub runs: Vec<AuRun>,
}

/// The group state: equal on every disk that holds the epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GroupState {
    /// Rises with each writing.
    pub epoch: u64,
    /// The group's identity.
    pub group_uuid: Uuid,
    /// The group's name.
    pub group_name: GroupName,
    /// Whether the group was closed after everything was made durable.
    pub clean: bool,
    /// The group's redundancy.
    pub redundancy: Redundancy,
    /// The group's AU size.
    pub au_size: AuSize,
    /// The number that the next new disk gets.
    pub next_disk_number: u16,
    /// The bytes of the catalog region in use; its runs may have room for more.
    pub region_size_bytes: u64,
    /// What the group uses of what earlier programs do not know.
    pub features: Features,
    /// Every disk, in the order of the numbers.
    pub disks: Vec<DiskState>,
    /// Every replica of the catalog, in order of preference.
    pub replicas: Vec<Replica>,
}

/// A group state whose bytes are whole, before anybody asked whether it belongs to this disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedGroupState {
    disk_uuid: Uuid,
    state: GroupState,
}

impl ParsedGroupState {
    /// Checks a slot that was read at `place`; what follows the used bytes is not looked at.
    ///
    /// # Errors
    /// [`FormatError`] where it holds no group state, or one that was damaged or contradicts
    /// itself.
    pub fn parse(slot: &[u8], place: u64) -> Result<Self, FormatError> {
        let length_bytes = Self::length_bytes(slot)?;
        let too_short = HEADER.error(slot.len(), FormatErrorKind::TooShort);
        let bytes = slot.get(..length_bytes).ok_or(too_short)?;
        let (epoch, mut reader) = HEADER.read(bytes, place)?;
        // First of all: a feature may change what the other fields can hold.
        let features = read_features(bytes)?;
        let (disk_uuid, mut state, disks, replicas) = read_fields(&mut reader, epoch, features)?;
        state.disks = read_disks(&mut reader, disks)?;
        for _ in 0..replicas {
            state.replicas.push(read_replica(&mut reader)?);
        }
        reader.end()?;
        if let Some(what) = state.contradiction() {
            return Err(HEADER.error(STATE_HEADER_BYTES, FormatErrorKind::Value(what)));
        }
        Ok(Self { disk_uuid, state })
    }

    /// Whether a slot that was read at `place` holds for this disk, whole, the state of the good slot
    /// `other`, of whatever disk. In a group of thousands of disks every disk has the entries of all,
    /// and to compare bytes is far less work than to read the entries.
    #[must_use]
    pub fn is_state_of(slot: &[u8], place: u64, disk_uuid: Uuid, other: &[u8]) -> bool {
        let Ok(length_bytes) = Self::length_bytes(other) else {
            return false;
        };
        let (Some(bytes), Some(other)) = (slot.get(..length_bytes), other.get(..length_bytes))
        else {
            return false;
        };
        let behind_disk = DISK_UUID_OFFSET + disk_uuid.0.len();
        bytes[EPOCH_OFFSET..DISK_UUID_OFFSET] == other[EPOCH_OFFSET..DISK_UUID_OFFSET]
            && bytes[DISK_UUID_OFFSET..behind_disk] == disk_uuid.0
            && bytes[behind_disk..] == other[behind_disk..]
            && HEADER.read(bytes, place).is_ok()
    }

    /// How many bytes the state has whose first ones these are.
    ///
    /// # Errors
    /// [`FormatError`] where no group state begins here, or its length cannot be.
    pub fn length_bytes(start: &[u8]) -> Result<usize, FormatError> {
        HEADER.check_magic(start)?;
        let length = (start.get(STATE_LENGTH_OFFSET..)).and_then(<[u8]>::first_chunk);
        let length = length.ok_or_else(|| HEADER.error(start.len(), FormatErrorKind::TooShort))?;
        usize::try_from(u32::from_le_bytes(*length))
            .ok()
            .filter(|length| (STATE_HEADER_BYTES..=STATE_SLOT_BYTES).contains(length))
            .ok_or_else(|| HEADER.error(STATE_LENGTH_OFFSET, FormatErrorKind::Value("length")))
    }

    /// The epoch that the first bytes of a slot tell. No checksum was looked at, so that it counts where
    /// it is what whoever reads expects, and else asks for the whole slot.
    #[must_use]
    pub fn likely_epoch(start: &[u8]) -> Option<u64> {
        HEADER.check_magic(start).ok()?;
        let epoch = start.get(EPOCH_OFFSET..)?.first_chunk()?;
        Some(u64::from_le_bytes(*epoch))
    }

    /// What the slot says, for listings that only look.
    #[must_use]
    pub const fn contents(&self) -> &GroupState {
        &self.state
    }

    /// The state, where it was written for this disk of this group.
    ///
    /// # Errors
    /// [`FormatErrorKind::Place`] where it is another group's or another disk's.
    pub fn check(self, group_uuid: Uuid, disk_uuid: Uuid) -> Result<GroupState, FormatError> {
        if self.state.group_uuid != group_uuid {
            return Err(HEADER.error(32, FormatErrorKind::Place));
        }
        if self.disk_uuid != disk_uuid {
            return Err(HEADER.error(48, FormatErrorKind::Place));
        }
        Ok(self.state)
    }
}

fn read_features(bytes: &[u8]) -> Result<Features, FormatError> {
    let bits = (bytes[STATE_FEATURES_OFFSET..].first_chunk()).map_or(0, |b| u32::from_le_bytes(*b));
    Features::of_bits(bits)
        .map_err(|unknown| HEADER.error(STATE_FEATURES_OFFSET, FormatErrorKind::Feature(unknown)))
}

/// Every field before the disks, and the counts of disks and replicas.
fn read_fields(
    reader: &mut Reader<'_>,
    epoch: u64,
    features: Features,
) -> Result<(Uuid, GroupState, usize, usize), FormatError> {
    let group_uuid = reader.uuid()?;
    let disk_uuid = reader.uuid()?;
    let group_name = reader.group_name()?;
    let _length_known = reader.u32()?;
    let disks = reader.judged("disks count", Reader::u16, |count| {
        let count = usize::from(count);
        (1..=DISKS_MAX).contains(&count).then_some(count)
    })?;
    let clean = reader.judged("clean flag", Reader::u8, |code| match code {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    })?;
    let redundancy = reader.judged("redundancy", Reader::u8, redundancy_of)?;
    let au_size = reader.au_size()?;
    let replicas = reader.judged("replicas count", Reader::u8, |count| {
        let count = usize::from(count);
        (1..=REPLICAS_MAX).contains(&count).then_some(count)
    })?;
    let next_disk_number = reader.u16()?;
    let region_size_bytes = reader.u64()?;
    let _features_known = reader.u32()?;
    reader.reserved_until(STATE_HEADER_BYTES)?;
    let state = GroupState {
        epoch,
        group_uuid,
        group_name,
        clean,
        redundancy,
        au_size,
        next_disk_number,
        region_size_bytes,
        features,
        disks: Vec::new(),
        replicas: Vec::new(),
    };
    Ok((disk_uuid, state, disks, replicas))
}

fn read_disks(reader: &mut Reader<'_>, count: usize) -> Result<Vec<DiskState>, FormatError> {
    let mut disks: Vec<DiskState> = Vec::with_capacity(count);
    for _ in 0..count {
        let number = reader.judged("disk number", Reader::u16, |number| {
            let number = DiskNumber(number);
            let rises = disks.last().is_none_or(|last| last.number < number);
            rises.then_some(number)
        })?;
        let failure_group = reader.u16()?;
        let size_aus = reader.u32()?;
        let uuid_start = reader.array()?;
        let status_epoch = reader.u64()?;
        let status = reader.judged("disk status", Reader::u8, DiskStatus::of)?;
        let flags = reader.judged("disk flags", Reader::u8, |flags| {
            (flags & !(FLAG_VOTER | FLAG_QUORUM_ONLY | FLAG_LEAVES) == 0).then_some(flags)
        })?;
        let lost = Lost(reader.u16()?);
        disks.push(DiskState {
            number,
            failure_group,
            size_aus,
            uuid_start,
            status_epoch,
            status,
            voter: flags & FLAG_VOTER != 0,
            quorum_only: flags & FLAG_QUORUM_ONLY != 0,
            leaves: flags & FLAG_LEAVES != 0,
            lost,
        });
    }
    Ok(disks)
}

fn read_replica(reader: &mut Reader<'_>) -> Result<Replica, FormatError> {
    let disk = DiskNumber(reader.u16()?);
    let runs = reader.judged("runs count", Reader::u16, |count| {
        let count = usize::from(count);
        (1..=RUNS_MAX).contains(&count).then_some(count)
    })?;
    reader.reserved(4)?;
    let mut replica = Replica {
        disk,
        runs: Vec::with_capacity(runs),
    };
    for _ in 0..runs {
        replica.runs.push(AuRun {
            start_au: reader.u32()?,
            aus: reader.u32()?,
        });
    }
    Ok(replica)
}

impl GroupState {
    /// The disk with that number.
    #[must_use]
    pub fn disk(&self, number: DiskNumber) -> Option<&DiskState> {
        let found = self
            .disks
            .binary_search_by_key(&number, |disk| disk.number)
            .ok()?;
        self.disks.get(found)
    }

    /// The disk with that number, to be changed.
    pub fn disk_mut(&mut self, number: DiskNumber) -> Option<&mut DiskState> {
        let found = self
            .disks
            .binary_search_by_key(&number, |disk| disk.number)
            .ok()?;
        self.disks.get_mut(found)
    }

    /// The disks that vote.
    pub fn voters(&self) -> impl Iterator<Item = DiskNumber> {
        self.disks
            .iter()
            .filter(|disk| disk.voter)
            .map(|disk| disk.number)
    }

    /// The bytes that the runs of every replica can hold.
    #[must_use]
    pub fn region_capacity_bytes(&self) -> u64 {
        self.replicas.first().map_or(0, |replica| {
            let blocks: u64 = replica
                .runs
                .iter()
                .map(|run| run_data_blocks(run.aus, self.au_size))
                .sum();
            blocks * spindle_base::BLOCK_SIZE_BYTES
        })
    }

    /// What in the state cannot be, if anything: judged after reading and before writing.
    #[must_use]
    pub fn contradiction(&self) -> Option<&'static str> {
        let voters = self.voters().count();
        if voters == 0 || voters > VOTERS_MAX {
            return Some("the number of voters");
        }
        if (self.disks.iter()).any(|disk| disk.voter && disk.status != DiskStatus::Online) {
            return Some("a voter that is not online");
        }
        if (self.disks.iter()).any(|disk| disk.leaves && disk.status != DiskStatus::Offline) {
            return Some("a disk that leaves and is not offline");
        }
        let lost = |disk: &DiskState| disk.lost != Lost::NOTHING;
        if (self.disks.iter()).any(|disk| lost(disk) && disk.status.is_served()) {
            return Some("a disk that serves and lost what it held");
        }
        if (self.disks.iter()).any(lost) && !self.features.contains(Feature::LostContents) {
            return Some("a field of a feature that is not in use");
        }
        if (self.disks.last()).is_some_and(|disk| disk.number.0 >= self.next_disk_number) {
            return Some("the next disk number");
        }
        let mut seen: Vec<DiskNumber> = Vec::new();
        for replica in &self.replicas {
            let Some(disk) = self.disk(replica.disk) else {
                return Some("a replica's disk");
            };
            if seen.contains(&replica.disk) || !disk.status.is_served() || disk.quorum_only {
                return Some("a replica's disk");
            }
            seen.push(replica.disk);
            if !self.runs_fit(replica, disk.size_aus) {
                return Some("a replica's runs");
            }
        }
        if self.region_size_bytes > self.region_capacity_bytes()
            || !self.region_size_bytes.is_multiple_of(4096)
        {
            return Some("the region's size");
        }
        None
    }

    /// Whether the runs lie on the disk, apart from each other, and are as long as the first
    /// replica's.
    fn runs_fit(&self, replica: &Replica, size_aus: u32) -> bool {
        let lengths =
            |replica: &Replica| replica.runs.iter().map(|run| run.aus).collect::<Vec<_>>();
        let Some(first) = self.replicas.first() else {
            return false;
        };
        let mut runs = replica.runs.clone();
        runs.sort_unstable();
        let mut free_from = FIRST_DATA_AU;
        for run in runs {
            let Some(end) = run.start_au.checked_add(run.aus) else {
                return false;
            };
            if run.aus == 0 || run.start_au < free_from || end > size_aus {
                return false;
            }
            free_from = end;
        }
        lengths(replica) == lengths(first)
    }

    /// The used bytes of a slot at `place` on the disk `disk_uuid`; at most 128 KiB.
    ///
    /// # Panics
    /// Where the state contradicts itself or is too large: our own state is wrong then.
    #[must_use]
    pub fn encode(&self, place: u64, disk_uuid: Uuid) -> Vec<u8> {
        let mut bytes = self.encode_for_some_disk();
        bytes.address(place, disk_uuid);
        bytes.0
    }

    /// The same for disk after disk, without encoding the entries of all disks for each.
    ///
    /// # Panics
    /// As [`Self::encode`].
    #[must_use]
    pub fn encode_for_some_disk(&self) -> StateBytes {
        if let Some(what) = self.contradiction() {
            panic!("a group state to be written contradicts itself: {what}");
        }
        assert!(self.disks.len() <= DISKS_MAX && self.replicas.len() <= REPLICAS_MAX);
        let replicas_bytes: usize = (self.replicas.iter())
            .map(|replica| STATE_REPLICA_HEADER_BYTES + replica.runs.len() * STATE_RUN_BYTES)
            .sum();
        let length = STATE_HEADER_BYTES + self.disks.len() * STATE_DISK_BYTES + replicas_bytes;
        let mut writer = HEADER.begin(length, 0, self.epoch);
        writer.bytes(&self.group_uuid.0);
        writer.reserved(16);
        writer.name(self.group_name.as_str());
        let length_field = u32::try_from(length).expect("a slot has 128 KiB");
        writer.u32(length_field);
        writer.u16(u16::try_from(self.disks.len()).expect("at most 4096 disks"));
        writer.u8(u8::from(self.clean));
        writer.u8(redundancy_code(self.redundancy));
        writer.au_size(self.au_size);
        writer.u8(u8::try_from(self.replicas.len()).expect("at most 5 replicas"));
        writer.u16(self.next_disk_number);
        writer.u64(self.region_size_bytes);
        writer.u32(self.features.bits());
        writer.reserved_until(STATE_HEADER_BYTES);
        for disk in &self.disks {
            write_disk(&mut writer, disk);
        }
        for replica in &self.replicas {
            writer.u16(replica.disk.0);
            assert!((1..=RUNS_MAX).contains(&replica.runs.len()));
            writer.u16(u16::try_from(replica.runs.len()).expect("at most 32 runs"));
            writer.reserved(4);
            for run in &replica.runs {
                writer.u32(run.start_au);
                writer.u32(run.aus);
            }
        }
        StateBytes(writer.finish())
    }
}

/// The used bytes of a slot with a state, for one disk at a time.
#[derive(Debug, Clone)]
pub struct StateBytes(Vec<u8>);

impl StateBytes {
    /// The bytes for a slot at `place` on the disk `disk_uuid`.
    pub fn address(&mut self, place: u64, disk_uuid: Uuid) -> &[u8] {
        self.0[PLACE_OFFSET..EPOCH_OFFSET].copy_from_slice(&place.to_le_bytes());
        let identity = DISK_UUID_OFFSET..DISK_UUID_OFFSET + disk_uuid.0.len();
        self.0[identity].copy_from_slice(&disk_uuid.0);
        Header::sum(&mut self.0);
        &self.0
    }
}

fn write_disk(writer: &mut Writer, disk: &DiskState) {
    writer.u16(disk.number.0);
    writer.u16(disk.failure_group);
    writer.u32(disk.size_aus);
    writer.bytes(&disk.uuid_start);
    writer.u64(disk.status_epoch);
    writer.u8(disk.status.code());
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    writer.u8(flag(disk.voter, FLAG_VOTER)
        | flag(disk.quorum_only, FLAG_QUORUM_ONLY)
        | flag(disk.leaves, FLAG_LEAVES));
    writer.u16(disk.lost.0);
}
