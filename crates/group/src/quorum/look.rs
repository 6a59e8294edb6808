//! Looking at disks: what their labels, openers and group states say. Looking never writes.

mod label;

use spindle_base::{DiskNumber, GroupName, Uuid};
use spindle_device::{AlignedBuffer, DeviceError, DeviceErrorKind, DiskSlot, Disks, Request, Work};
use spindle_format::{
    FormatError, FormatErrorKind, GroupState, LABEL_BYTES, LABEL_PLACES, Label, LabelStatus,
    OPENER_BYTES, OPENER_PLACE, OpenerRecord, ParsedGroupState, STATE_PLACES, STATE_SLOT_BYTES,
    end_label_place, identities,
};

pub use label::{LabelFound, Overwritten};

/// Disks whose structures are read in one batch.
const DISKS_PER_BATCH: usize = 16;

/// What one of the two slots of the group state holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlotFound {
    /// Nothing was ever written there.
    Blank,
    /// A good state of this disk and group.
    State(Box<GroupState>),
    /// It cannot be read, or a crash or a flipped bit damaged it: what it held is unknown.
    Damaged(String),
    /// A whole state of this disk and group, which a newer program wrote: nothing may be made of
    /// the group here.
    Newer(FormatError),
}

impl SlotFound {
    /// The state, where there is one.
    #[must_use]
    pub fn state(&self) -> Option<&GroupState> {
        match self {
            Self::State(state) => Some(state),
            Self::Blank | Self::Damaged(_) | Self::Newer(_) => None,
        }
    }
}

/// What was found on one disk.
#[derive(Debug, Clone)]
pub struct DiskLook {
    /// Where it is open.
    pub slot: DiskSlot,
    /// Its path.
    pub path: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// What its labels say.
    pub label: LabelFound,
    /// Where the label's copy at the end of the disk stands, or should stand.
    pub end_label_place: Option<u64>,
    /// Who has, or last had, its group open; `None` where the record is blank or damaged.
    pub opener: Option<OpenerRecord>,
    /// Why the opener record cannot be understood, where it is whole and a newer program's.
    pub newer_opener: Option<FormatError>,
    /// Its two slots of the group state; blank where there is no label.
    pub states: [SlotFound; 2],
}

impl DiskLook {
    /// The label of a member, truncated or not.
    #[must_use]
    pub fn member(&self) -> Option<&Label> {
        match &self.label {
            LabelFound::Good { label, .. } | LabelFound::Truncated { label } => {
                (label.status == LabelStatus::Member).then_some(label)
            }
            LabelFound::None
            | LabelFound::Damaged(_)
            | LabelFound::Overwritten(_)
            | LabelFound::Newer { .. } => None,
        }
    }

    /// What of this disk a newer program wrote for the group, if anything: the group must be left
    /// to that program.
    #[must_use]
    pub fn newer(&self, group: Uuid) -> Option<FormatError> {
        match &self.label {
            LabelFound::Newer { group_uuid, why } => (*group_uuid == group).then_some(*why),
            _ if self.member().is_some_and(|label| label.group_uuid == group) => {
                let in_states = (self.states.iter()).find_map(|slot| match slot {
                    SlotFound::Newer(why) => Some(*why),
                    _ => None,
                });
                in_states.or(self.newer_opener)
            }
            _ => None,
        }
    }

    /// The newest group state on the disk, elected or not.
    #[must_use]
    pub fn newest_state(&self) -> Option<&GroupState> {
        (self.states.iter())
            .filter_map(SlotFound::state)
            .max_by_key(|state| state.epoch)
    }
}

/// Reads the labels, openers and group states of all `slots`.
#[must_use]
pub fn look(disks: &dyn Disks, slots: &[DiskSlot]) -> Vec<DiskLook> {
    slots
        .chunks(DISKS_PER_BATCH)
        .flat_map(|slots| look_at_some(disks, slots))
        .collect()
}

/// A state of few disks lies in the first bytes of its slot; only a longer one is read whole.
const STATE_HEAD_BYTES: usize = 8192;

const PIECES: usize = 7;
/// Of the pieces, behind the labels at the beginning.
const OPENER_PIECE: usize = 2;
const STATE_PIECES: [usize; 2] = [3, 4];
/// The label at the end.
const END_PIECE: usize = 5;
/// The block behind the first label, which a group leaves alone.
const MARK_PIECE: usize = 6;

fn pieces(size_bytes: u64) -> [(u64, usize); PIECES] {
    [
        (LABEL_PLACES[0], LABEL_BYTES),
        (LABEL_PLACES[1], LABEL_BYTES),
        (OPENER_PLACE, OPENER_BYTES),
        (STATE_PLACES[0], STATE_HEAD_BYTES),
        (STATE_PLACES[1], STATE_HEAD_BYTES),
        (end_label_place(size_bytes), LABEL_BYTES),
        (LABEL_BYTES as u64, LABEL_BYTES),
    ]
}

fn look_at_some(disks: &dyn Disks, slots: &[DiskSlot]) -> Vec<DiskLook> {
    // As they are now: a disk may have been cut off since it was opened.
    let sizes_bytes: Vec<u64> = (slots.iter())
        .map(|slot| (disks.measure(*slot)).unwrap_or_else(|_| disks.size_bytes(*slot)))
        .collect();
    let places: Vec<(u64, usize)> = (sizes_bytes.iter())
        .flat_map(|size_bytes| pieces(*size_bytes))
        .collect();
    let mut buffers: Vec<AlignedBuffer> = (places.iter())
        .map(|(_, length)| AlignedBuffer::zeroed(*length))
        .collect();
    let mut batch: Vec<Request<'_>> = buffers
        .iter_mut()
        .enumerate()
        .map(|(index, buffer)| {
            let slot = slots[index / PIECES];
            Request::new(slot, places[index].0, Work::Read(buffer))
        })
        .collect();
    disks.run(&mut batch);
    let failures: Vec<Option<DeviceError>> = batch
        .into_iter()
        .map(|request| request.result.err())
        .collect();
    (slots.iter().enumerate())
        .map(|(index, &slot)| {
            let range = index * PIECES..(index + 1) * PIECES;
            let pieces = Pieces {
                buffers: &buffers[range.clone()],
                failures: &failures[range],
            };
            judge(disks, slot, sizes_bytes[index], &pieces)
        })
        .collect()
}

/// The bytes of one disk's structures, or why they cannot be read.
struct Pieces<'a> {
    buffers: &'a [AlignedBuffer],
    failures: &'a [Option<DeviceError>],
}

/// The disk went away while it was looked at, or keeps silent. The states that it showed before
/// may not be its newest, so it counts as one that is not there at all: a voter that showed an
/// older state would let that be elected beside a disk that was left behind with it.
struct WentAway(String);

impl WentAway {
    fn of(failure: &DeviceError) -> Option<Self> {
        match failure.kind {
            DeviceErrorKind::Gone
            | DeviceErrorKind::TimedOut
            | DeviceErrorKind::Fenced
            | DeviceErrorKind::PowerLost => Some(Self(failure.to_string())),
            DeviceErrorKind::Medium | DeviceErrorKind::NoSpace | DeviceErrorKind::Misaligned => {
                None
            }
        }
    }
}

impl Pieces<'_> {
    /// Whether a piece within the disk's `size_bytes` says so. Behind the end of a file that was
    /// cut off, `Gone` only means that.
    fn went_away(&self, size_bytes: u64) -> Option<WentAway> {
        (self.failures.iter().flatten())
            .filter(|failure| failure.offset_bytes + failure.length_bytes as u64 <= size_bytes)
            .find_map(WentAway::of)
    }

    fn bytes(&self, piece: usize) -> Result<&[u8], String> {
        match &self.failures[piece] {
            None => Ok(&self.buffers[piece]),
            Some(failure) => Err(failure.to_string()),
        }
    }
}

fn judge(disks: &dyn Disks, slot: DiskSlot, size_bytes: u64, pieces: &Pieces<'_>) -> DiskLook {
    let mut found = DiskLook {
        slot,
        path: disks.path(slot),
        size_bytes,
        label: LabelFound::None,
        end_label_place: None,
        opener: None,
        newer_opener: None,
        states: [SlotFound::Blank, SlotFound::Blank],
    };
    let judged = match pieces.went_away(size_bytes) {
        Some(went_away) => Err(went_away),
        None => judge_pieces(&mut found, disks, pieces),
    };
    if let Err(WentAway(why)) = judged {
        found.label = LabelFound::Damaged(why);
    }
    found
}

fn judge_pieces(
    found: &mut DiskLook,
    disks: &dyn Disks,
    pieces: &Pieces<'_>,
) -> Result<(), WentAway> {
    found.label = label::of_front(found.size_bytes, pieces);
    if matches!(found.label, LabelFound::None | LabelFound::Damaged(_)) {
        label::judge_end_alone(found, disks, pieces)?;
    }
    label::judge_marks(found, disks, pieces);
    let Some((group, disk)) = (found.member()).map(|label| (label.group_uuid, label.disk_uuid))
    else {
        return Ok(());
    };
    if let Ok(bytes) = pieces.bytes(OPENER_PIECE)
        && identities(bytes) == Some((group, disk))
    {
        match OpenerRecord::parse(bytes, OPENER_PLACE) {
            Ok(opener) => found.opener = Some(opener),
            Err(why) if why.kind.is_newer() => found.newer_opener = Some(why),
            Err(_) => {}
        }
    }
    found.states = states(disks, found.slot, pieces, group, disk)?;
    label::judge_end(found, disks, pieces);
    Ok(())
}

/// What stands in the two slots of the group state of such a disk.
fn states(
    disks: &dyn Disks,
    slot: DiskSlot,
    pieces: &Pieces<'_>,
    group: Uuid,
    disk: Uuid,
) -> Result<[SlotFound; 2], WentAway> {
    let mut states = [SlotFound::Blank, SlotFound::Blank];
    for (index, state) in states.iter_mut().enumerate() {
        let place = STATE_PLACES[index];
        *state = match pieces.bytes(STATE_PIECES[index]) {
            Ok(head) if is_longer(head, place) => {
                let mut whole = AlignedBuffer::zeroed(STATE_SLOT_BYTES);
                let answer = read(disks, slot, place, &mut whole);
                if let Some(went_away) = answer.as_ref().err().and_then(WentAway::of) {
                    return Err(went_away);
                }
                let bytes = (answer.map(|()| &whole[..])).map_err(|error| error.to_string());
                judge_state(bytes, place, group, disk)
            }
            head => judge_state(head, place, group, disk),
        };
    }
    Ok(states)
}

fn read(
    disks: &dyn Disks,
    slot: DiskSlot,
    place: u64,
    buffer: &mut AlignedBuffer,
) -> Result<(), DeviceError> {
    let mut batch = [Request::new(slot, place, Work::Read(buffer))];
    disks.run(&mut batch);
    let [request] = batch;
    request.result
}

/// Whether the state goes on behind its head.
fn is_longer(head: &[u8], place: u64) -> bool {
    let parsed = ParsedGroupState::parse(head, place);
    parsed.is_err_and(|error| error.kind == FormatErrorKind::TooShort)
}

fn judge_state(bytes: Result<&[u8], String>, place: u64, group: Uuid, disk: Uuid) -> SlotFound {
    let bytes = match bytes {
        Ok(bytes) => bytes,
        Err(failure) => return SlotFound::Damaged(failure),
    };
    if bytes[..512].iter().all(|byte| *byte == 0) {
        return SlotFound::Blank;
    }
    let state = ParsedGroupState::parse(bytes, place).and_then(|parsed| parsed.check(group, disk));
    match state {
        Ok(state) => SlotFound::State(Box::new(state)),
        Err(error) if error.kind.is_newer() && identities(bytes) == Some((group, disk)) => {
            SlotFound::Newer(error)
        }
        Err(error) => SlotFound::Damaged(error.to_string()),
    }
}

/// A group among the disks that were looked at.
#[derive(Debug)]
pub struct GroupFound<'a> {
    /// Its identity.
    pub uuid: Uuid,
    /// Its name: that of its newest state, else of a label.
    pub name: GroupName,
    /// Its members, in the order of the numbers.
    pub members: Vec<(DiskNumber, &'a DiskLook)>,
}

/// Sorts what was looked at into groups, in the order of their names.
#[must_use]
pub fn groups(looks: &[DiskLook]) -> Vec<GroupFound<'_>> {
    let mut groups: Vec<GroupFound<'_>> = Vec::new();
    for found in looks {
        let Some(label) = found.member() else {
            continue;
        };
        let member = (label.number, found);
        match (groups.iter_mut()).find(|group| group.uuid == label.group_uuid) {
            Some(group) => group.members.push(member),
            None => groups.push(GroupFound {
                uuid: label.group_uuid,
                name: label.group_name.clone(),
                members: vec![member],
            }),
        }
    }
    for group in &mut groups {
        group
            .members
            .sort_by_key(|(number, look)| (*number, look.slot));
        let newest = (group.members.iter())
            .filter_map(|(_, look)| look.newest_state())
            .max_by_key(|state| state.epoch);
        if let Some(newest) = newest {
            group.name = newest.group_name.clone();
        }
    }
    groups.sort_by(|left, right| {
        (left.name.as_str(), left.uuid).cmp(&(right.name.as_str(), right.uuid))
    });
    groups
}
