//! Looking at disks: what their labels, openers and group states say. Looking never writes.

use spindle_base::{DiskNumber, GroupName, Uuid};
use spindle_device::{AlignedBuffer, DiskSlot, Disks, Request, Work};
use spindle_format::{
    FormatError, FormatErrorKind, GroupState, LABEL_BYTES, LABEL_PLACES, Label, LabelStatus,
    OPENER_BYTES, OPENER_PLACE, OpenerRecord, ParsedGroupState, ParsedLabel, STATE_PLACES,
    STATE_SLOT_BYTES, identities,
};

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

/// What a disk's two labels say together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelFound {
    /// No label of ours in either place.
    None,
    /// Neither copy is good, and at least one was a label or cannot be read.
    Damaged(String),
    /// A copy is whole and was written by a newer program.
    Newer {
        /// Whose disk it is.
        group_uuid: Uuid,
        /// What is not known here.
        why: FormatError,
    },
    /// A good label, and which of its copies need to be written again.
    Good {
        /// The newer of the two copies.
        label: Box<Label>,
        /// The copies that are damaged or older: their indices in [`LABEL_PLACES`], and why.
        repairs: Vec<(usize, String)>,
    },
    /// A good label of a disk that was larger: an image that was cut off.
    Truncated {
        /// What it says.
        label: Box<Label>,
    },
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
            LabelFound::None | LabelFound::Damaged(_) | LabelFound::Newer { .. } => None,
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

const PIECES: [(u64, usize); 5] = [
    (LABEL_PLACES[0], LABEL_BYTES),
    (LABEL_PLACES[1], LABEL_BYTES),
    (OPENER_PLACE, OPENER_BYTES),
    (STATE_PLACES[0], STATE_HEAD_BYTES),
    (STATE_PLACES[1], STATE_HEAD_BYTES),
];

fn look_at_some(disks: &dyn Disks, slots: &[DiskSlot]) -> Vec<DiskLook> {
    let mut buffers: Vec<AlignedBuffer> = (slots.iter())
        .flat_map(|_| PIECES.map(|(_, length)| AlignedBuffer::zeroed(length)))
        .collect();
    let mut batch: Vec<Request<'_>> = buffers
        .iter_mut()
        .enumerate()
        .map(|(index, buffer)| {
            let slot = slots[index / PIECES.len()];
            let (place, _) = PIECES[index % PIECES.len()];
            Request::new(slot, place, Work::Read(buffer))
        })
        .collect();
    disks.run(&mut batch);
    let failures: Vec<Option<String>> = batch
        .into_iter()
        .map(|request| request.result.err().map(|error| error.to_string()))
        .collect();
    (slots.iter().enumerate())
        .map(|(index, &slot)| {
            let range = index * PIECES.len()..(index + 1) * PIECES.len();
            let pieces = Pieces {
                buffers: &buffers[range.clone()],
                failures: &failures[range],
            };
            judge(disks, slot, &pieces)
        })
        .collect()
}

/// The bytes of one disk's structures, or why they cannot be read.
struct Pieces<'a> {
    buffers: &'a [AlignedBuffer],
    failures: &'a [Option<String>],
}

impl Pieces<'_> {
    fn bytes(&self, piece: usize) -> Result<&[u8], String> {
        match &self.failures[piece] {
            None => Ok(&self.buffers[piece]),
            Some(failure) => Err(failure.clone()),
        }
    }
}

fn judge(disks: &dyn Disks, slot: DiskSlot, pieces: &Pieces<'_>) -> DiskLook {
    // As it is now: a disk may have been cut off since it was opened.
    let size_bytes = (disks.measure(slot)).unwrap_or_else(|_| disks.size_bytes(slot));
    let label = judge_labels(size_bytes, pieces);
    let mut found = DiskLook {
        slot,
        path: disks.path(slot),
        size_bytes,
        label,
        opener: None,
        newer_opener: None,
        states: [SlotFound::Blank, SlotFound::Blank],
    };
    let Some((group, disk)) = (found.member()).map(|label| (label.group_uuid, label.disk_uuid))
    else {
        return found;
    };
    if let Ok(bytes) = pieces.bytes(2)
        && identities(bytes) == Some((group, disk))
    {
        match OpenerRecord::parse(bytes, OPENER_PLACE) {
            Ok(opener) => found.opener = Some(opener),
            Err(why) if why.kind.is_newer() => found.newer_opener = Some(why),
            Err(_) => {}
        }
    }
    found.states = [0, 1].map(|index| {
        let place = STATE_PLACES[index];
        match pieces.bytes(3 + index) {
            Ok(head) if is_longer(head, place) => {
                let mut whole = AlignedBuffer::zeroed(STATE_SLOT_BYTES);
                let mut batch = [Request::new(slot, place, Work::Read(&mut whole))];
                disks.run(&mut batch);
                let [request] = batch;
                let answer = request.result.map_err(|error| error.to_string());
                judge_state(answer.map(|()| &whole[..]), place, group, disk)
            }
            head => judge_state(head, place, group, disk),
        }
    });
    found
}

/// Whether the state goes on behind its head.
fn is_longer(head: &[u8], place: u64) -> bool {
    let parsed = ParsedGroupState::parse(head, place);
    parsed.is_err_and(|error| error.kind == FormatErrorKind::TooShort)
}

/// A copy of the label: the label, or why there is none and whether that may be damage.
type LabelCopy = Result<ParsedLabel, (String, bool)>;

fn judge_labels(size_bytes: u64, pieces: &Pieces<'_>) -> LabelFound {
    if let Some((group_uuid, why)) = newer_label(pieces) {
        return LabelFound::Newer { group_uuid, why };
    }
    let copies: [LabelCopy; 2] = [0, 1].map(|index| {
        let bytes = pieces.bytes(index).map_err(|failure| (failure, true))?;
        ParsedLabel::parse(bytes, LABEL_PLACES[index]).map_err(|error| {
            let foreign = error.kind == FormatErrorKind::Magic;
            (error.to_string(), !foreign)
        })
    });
    let newest = (copies.iter())
        .filter_map(|copy| copy.as_ref().ok())
        .max_by_key(|copy| copy.contents().sequence);
    let Some(newest) = newest else {
        // A disk too small for the second place has no label of ours, whatever its reads say.
        let whole = size_bytes >= LABEL_PLACES[1] + LABEL_BYTES as u64;
        let damage = (copies.into_iter())
            .filter_map(Result::err)
            .find(|(_, damaged)| *damaged && whole);
        return damage.map_or(LabelFound::None, |(why, _)| LabelFound::Damaged(why));
    };
    let repairs = (copies.iter().enumerate())
        .filter_map(|(index, copy)| match copy {
            Ok(copy) if copy.contents() == newest.contents() => None,
            Ok(_) => Some((index, "it is older than the other copy".to_owned())),
            Err((why, _)) => Some((index, why.clone())),
        })
        .collect();
    match newest.clone().check(size_bytes) {
        Ok(label) => LabelFound::Good {
            label: Box::new(label),
            repairs,
        },
        Err(_) => LabelFound::Truncated {
            label: Box::new(newest.contents().clone()),
        },
    }
}

/// A copy of the label that a newer program wrote, and of which group.
fn newer_label(pieces: &Pieces<'_>) -> Option<(Uuid, FormatError)> {
    (LABEL_PLACES.into_iter().enumerate()).find_map(|(index, place)| {
        let bytes = pieces.bytes(index).ok()?;
        let why = ParsedLabel::parse(bytes, place).err()?;
        let (group_uuid, _) = identities(bytes)?;
        why.kind.is_newer().then_some((group_uuid, why))
    })
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
