//! Looking at disks: what their labels, openers and group states say. Looking never writes.

mod label;

use std::collections::VecDeque;
use std::sync::Arc;

use spindle_base::{DiskNumber, GroupName, Uuid};
use spindle_device::{AlignedBuffer, DeviceError, DeviceErrorKind, DiskSlot, Disks, Request, Work};
use spindle_format::{
    CLAIM_PLACE, FormatError, GroupState, INTENT_PLACE, LABEL_BYTES, LABEL_PLACES, Label,
    LabelStatus, OPENER_BYTES, OPENER_PLACE, OpenerRecord, ParsedGroupState, STATE_PLACES,
    end_label_place, identities,
};

pub use label::{LabelFound, Overwritten};

use crate::quorum::create::uuid_start;

/// Disks whose structures are read in one batch.
const DISKS_PER_BATCH: usize = 16;

/// What one of the two slots of the group state holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlotFound {
    /// Nothing was ever written there: the disk has taken one state at most.
    Blank,
    /// A good state of this disk and group. Disks that hold the same one share it: in a group of a
    /// thousand disks each state has a thousand entries.
    State(Arc<GroupState>),
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
    /// Who was the last to claim its group; `None` where the claim is blank or damaged.
    pub claim: Option<OpenerRecord>,
    /// Who was the last to say that it takes its group before it leaves out a disk; `None` where that
    /// is blank or damaged.
    pub intent: Option<OpenerRecord>,
    /// Why the opener record cannot be understood, where it is whole and a newer program's.
    pub newer_opener: Option<FormatError>,
    /// Its two slots of the group state; blank where there is no label.
    pub states: [SlotFound; 2],
    /// What could not be read, and may hold anything.
    pub(crate) unread: Unread,
}

/// What of a disk could not be read when it was looked at. What was read and is damaged is not meant:
/// that stays damaged until somebody writes it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Unread {
    /// The disk itself was away or kept silent, perhaps for this host alone.
    pub(crate) disk: bool,
    pub(crate) opener: bool,
    pub(crate) claim: bool,
    pub(crate) intent: bool,
    /// Of each slot of the group state.
    pub(crate) states: [bool; 2],
}

impl Unread {
    /// Whether a slot of the group state was not read.
    pub(crate) const fn has_state(self) -> bool {
        self.states[0] || self.states[1]
    }
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
    let mut known = KnownStates::default();
    slots
        .chunks(DISKS_PER_BATCH)
        .flat_map(|slots| look_at_some(disks, slots, &mut known))
        .collect()
}

/// The states that were seen last, each with the bytes of a slot that holds it. A group's disks hold
/// two or three different ones.
#[derive(Default)]
struct KnownStates(VecDeque<(Arc<GroupState>, Box<[u8]>)>);

impl KnownStates {
    /// No more than these are kept: what many disks hold is among them.
    const KEPT_MOST: usize = 8;

    /// The state in a slot that was read at `place` of this disk, where it is one of them.
    fn find(
        &self,
        slot: &[u8],
        place: u64,
        (group, disk): (Uuid, Uuid),
    ) -> Option<&Arc<GroupState>> {
        let (state, _) = (self.0.iter()).find(|(state, bytes)| {
            state.group_uuid == group && ParsedGroupState::is_state_of(slot, place, disk, bytes)
        })?;
        Some(state)
    }

    /// Another one, of this slot.
    fn keep(&mut self, state: GroupState, slot: &[u8]) -> Arc<GroupState> {
        let state = Arc::new(state);
        self.0.truncate(Self::KEPT_MOST - 1);
        self.0.push_front((Arc::clone(&state), slot.into()));
        state
    }
}

/// A state of few disks lies in the first bytes of its slot; only a longer one is read whole.
const STATE_HEAD_BYTES: usize = 8192;

const PIECES: usize = 9;
/// Of the pieces, behind the labels at the beginning.
const OPENER_PIECE: usize = 2;
const STATE_PIECES: [usize; 2] = [3, 4];
/// The label at the end.
const END_PIECE: usize = 5;
/// The block behind the first label, which a group leaves alone.
const MARK_PIECE: usize = 6;
const CLAIM_PIECE: usize = 7;
const INTENT_PIECE: usize = 8;

fn pieces(size_bytes: u64) -> [(u64, usize); PIECES] {
    [
        (LABEL_PLACES[0], LABEL_BYTES),
        (LABEL_PLACES[1], LABEL_BYTES),
        (OPENER_PLACE, OPENER_BYTES),
        (STATE_PLACES[0], STATE_HEAD_BYTES),
        (STATE_PLACES[1], STATE_HEAD_BYTES),
        (end_label_place(size_bytes), LABEL_BYTES),
        (LABEL_BYTES as u64, LABEL_BYTES),
        (CLAIM_PLACE, OPENER_BYTES),
        (INTENT_PLACE, OPENER_BYTES),
    ]
}

fn look_at_some(disks: &dyn Disks, slots: &[DiskSlot], known: &mut KnownStates) -> Vec<DiskLook> {
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
    let mut pieces: Vec<Pieces<'_>> = (buffers.chunks(PIECES).zip(failures.chunks(PIECES)))
        .map(|(buffers, failures)| Pieces {
            buffers,
            failures,
            whole_states: [None, None],
        })
        .collect();
    read_longer_states(disks, slots, &mut pieces);
    (slots.iter().zip(sizes_bytes).zip(&pieces))
        .map(|((slot, size_bytes), pieces)| judge(disks, *slot, size_bytes, pieces, known))
        .collect()
}

/// Reads the states that go on behind their heads, those of all these disks at once.
fn read_longer_states(disks: &dyn Disks, slots: &[DiskSlot], pieces: &mut [Pieces<'_>]) {
    let mut longer: Vec<(usize, usize, AlignedBuffer)> = Vec::new();
    for (disk, pieces) in pieces.iter().enumerate() {
        for (index, piece) in STATE_PIECES.into_iter().enumerate() {
            let length = (pieces.bytes(piece).ok())
                .and_then(|head| ParsedGroupState::length_bytes(head).ok())
                .filter(|length| *length > STATE_HEAD_BYTES);
            if let Some(length) = length {
                let whole = AlignedBuffer::zeroed(length.next_multiple_of(STATE_HEAD_BYTES));
                longer.push((disk, index, whole));
            }
        }
    }
    let mut batch: Vec<Request<'_>> = (longer.iter_mut())
        .map(|(disk, index, whole)| {
            Request::new(slots[*disk], STATE_PLACES[*index], Work::Read(whole))
        })
        .collect();
    disks.run(&mut batch);
    let answers: Vec<_> = batch.into_iter().map(|request| request.result).collect();
    for ((disk, index, whole), answer) in longer.into_iter().zip(answers) {
        pieces[disk].whole_states[index] = Some(answer.map(|()| whole));
    }
}

/// The bytes of one disk's structures, or why they cannot be read.
struct Pieces<'a> {
    buffers: &'a [AlignedBuffer],
    failures: &'a [Option<DeviceError>],
    /// Of the slots of the group state, those that are longer than their piece.
    whole_states: [Option<Result<AlignedBuffer, DeviceError>>; 2],
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

    fn unread(&self, size_bytes: u64) -> Unread {
        let is_unread = |piece: usize| self.failures[piece].is_some();
        Unread {
            disk: self.went_away(size_bytes).is_some(),
            opener: is_unread(OPENER_PIECE),
            claim: is_unread(CLAIM_PIECE),
            intent: is_unread(INTENT_PIECE),
            states: [0, 1].map(|slot| {
                let whole = self.whole_states[slot].as_ref();
                is_unread(STATE_PIECES[slot]) || whole.is_some_and(Result::is_err)
            }),
        }
    }

    fn bytes(&self, piece: usize) -> Result<&[u8], String> {
        match &self.failures[piece] {
            None => Ok(&self.buffers[piece]),
            Some(failure) => Err(failure.to_string()),
        }
    }
}

fn judge(
    disks: &dyn Disks,
    slot: DiskSlot,
    size_bytes: u64,
    pieces: &Pieces<'_>,
    known: &mut KnownStates,
) -> DiskLook {
    let mut found = DiskLook {
        slot,
        path: disks.path(slot),
        size_bytes,
        label: LabelFound::None,
        end_label_place: None,
        opener: None,
        claim: None,
        intent: None,
        newer_opener: None,
        states: [SlotFound::Blank, SlotFound::Blank],
        unread: pieces.unread(size_bytes),
    };
    let judged = match pieces.went_away(size_bytes) {
        Some(went_away) => Err(went_away),
        None => judge_pieces(&mut found, disks, pieces, known),
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
    known: &mut KnownStates,
) -> Result<(), WentAway> {
    found.label = label::of_front(found.size_bytes, pieces);
    if matches!(found.label, LabelFound::None | LabelFound::Damaged(_)) {
        label::judge_end_alone(found, pieces, known)?;
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
    let mark = |piece, place| {
        let bytes =
            (pieces.bytes(piece).ok()).filter(|bytes| identities(bytes) == Some((group, disk)))?;
        OpenerRecord::parse(bytes, place).ok()
    };
    found.claim = mark(CLAIM_PIECE, CLAIM_PLACE);
    found.intent = mark(INTENT_PIECE, INTENT_PLACE);
    found.states = states(pieces, group, disk, known)?;
    label::judge_end(found, disks, pieces);
    Ok(())
}

/// What stands in the two slots of the group state of such a disk.
fn states(
    pieces: &Pieces<'_>,
    group: Uuid,
    disk: Uuid,
    known: &mut KnownStates,
) -> Result<[SlotFound; 2], WentAway> {
    let mut states = [SlotFound::Blank, SlotFound::Blank];
    for (index, state) in states.iter_mut().enumerate() {
        let bytes = match &pieces.whole_states[index] {
            Some(Ok(whole)) => Ok(&whole[..]),
            Some(Err(failure)) => match WentAway::of(failure) {
                Some(went_away) => return Err(went_away),
                None => Err(failure.to_string()),
            },
            None => pieces.bytes(STATE_PIECES[index]),
        };
        *state = judge_state(bytes, STATE_PLACES[index], group, disk, known);
    }
    for index in [0, 1] {
        if matches!(states[index], SlotFound::Blank) && is_one_of_several(&states[1 - index], disk)
        {
            let why = "it reads as zeros, and its disk has held states in both places";
            states[index] = SlotFound::Damaged(why.to_owned());
        }
    }
    Ok(states)
}

/// Whether the disk took another state before this one: the first that a disk takes is the one in
/// which it joins.
fn is_one_of_several(slot: &SlotFound, disk: Uuid) -> bool {
    slot.state().is_some_and(|state| {
        let mut disks = state.disks.iter();
        let entry = disks.find(|entry| entry.uuid_start == uuid_start(disk));
        entry.is_some_and(|entry| entry.status_epoch != state.epoch)
    })
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

fn judge_state(
    bytes: Result<&[u8], String>,
    place: u64,
    group: Uuid,
    disk: Uuid,
    known: &mut KnownStates,
) -> SlotFound {
    let bytes = match bytes {
        Ok(bytes) => bytes,
        Err(failure) => return SlotFound::Damaged(failure),
    };
    if bytes[..512].iter().all(|byte| *byte == 0) {
        return SlotFound::Blank;
    }
    if let Some(state) = known.find(bytes, place, (group, disk)) {
        return SlotFound::State(Arc::clone(state));
    }
    let state = ParsedGroupState::parse(bytes, place).and_then(|parsed| parsed.check(group, disk));
    match state {
        Ok(state) => SlotFound::State(known.keep(state, bytes)),
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

/// Who opened the disks' group last, or is about to. Voters that kept silent have an older heartbeat
/// than the others, and the same count. An intent stands for the record that its opening had not
/// written yet.
pub fn newest_mark<'a>(looks: impl Iterator<Item = &'a DiskLook>) -> Option<&'a OpenerRecord> {
    looks
        .flat_map(|look| [(look.intent.as_ref(), false), (look.opener.as_ref(), true)])
        .filter_map(|(record, is_record)| Some((record?, is_record)))
        .max_by_key(|(record, is_record)| {
            let beat = (record.heartbeats_count, record.heartbeat_s);
            (record.sequence, *is_record, beat)
        })
        .map(|(record, _)| record)
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
