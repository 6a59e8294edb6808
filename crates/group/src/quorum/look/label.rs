//! A disk's label, of which there are two copies at its beginning and one at its end: what they say
//! together, and whether somebody else's format stands where they were.
//!
//! Where a copy at the beginning is damaged, the others name the disk, and it would be written again.
//! So the disk is asked first for the marks of other formats (`pvcreate`, `mkfs`): one that bears a
//! mark may be somebody else's by now. It is named, and nothing is written to it. Formats that begin
//! in the block behind the label (md, bcache) leave every copy whole: that block is always asked.

use spindle_base::Uuid;
use spindle_device::{AlignedBuffer, Disks, Request, Work};
use spindle_format::{
    DiskEnds, ForeignFormat, FormatError, FormatErrorKind, LABEL_BYTES, LABEL_PLACES, Label,
    LabelStatus, ParsedLabel, end_label_place, foreign_signatures, identities, said_place,
};

use super::{DiskLook, END_PIECE, KnownStates, MARK_PIECE, Pieces, SlotFound, WentAway};

/// How much of the beginning is asked for marks: no format has one further behind in what a group
/// leaves to its structures. Behind them is data, which may hold anything.
const MARKED_BYTES: usize = 512 << 10;
/// Read at once of that: what a bad block hides is no more.
const MARKED_PIECE_BYTES: usize = 64 << 10;

/// What the copies of a disk's label say together. The one at the end of the disk counts beside
/// another one, or a group state, of the same disk. Alone it only names the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelFound {
    /// No label of ours in any place.
    None,
    /// No copy is good.
    Damaged(String),
    /// A good copy names the disk, which is no member: its beginning was overwritten.
    Overwritten(Overwritten),
    /// A copy is whole and was written by a newer program.
    Newer {
        /// Whose disk it is.
        group_uuid: Uuid,
        /// What is not known here.
        why: FormatError,
    },
    /// A good label, and which of its copies need to be written again.
    Good {
        /// The newest of the copies.
        label: Box<Label>,
        /// The places of the copies that are damaged or older, and why.
        repairs: Vec<(u64, String)>,
    },
    /// A good label of a disk that was larger: an image that was cut off.
    Truncated {
        /// What it says.
        label: Box<Label>,
    },
}

/// A disk that was a member before its beginning was overwritten: it may be somebody else's by now,
/// or there may be a copy of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overwritten {
    /// What is left of its label.
    pub label: Box<Label>,
    /// The formats whose marks stand there; where there are none, the label at the end is all that
    /// is left.
    pub by: Vec<ForeignFormat>,
}

impl Overwritten {
    /// What stands there, in words; nothing where no format is known.
    #[must_use]
    pub fn formats(&self) -> String {
        let names: Vec<&str> = self.by.iter().map(|format| format.name()).collect();
        names.join(", ")
    }

    /// What a person can do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        if self.by.is_empty() {
            "nothing is written to it: drop the disk with --force and add it as a new one"
        } else {
            "nothing is written to it: where nobody else uses it, take that mark away (`wipefs \
             --all`), mount the group again and scrub it, else drop the disk with --force"
        }
    }
}

impl std::fmt::Display for Overwritten {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (disk, group) = (&self.label.disk_name, &self.label.group_name);
        if self.by.is_empty() {
            write!(
                f,
                "no copy at its beginning is good; the one at its end says that it is disk {disk} \
                 of group {group}"
            )
        } else {
            let formats = self.formats();
            write!(
                f,
                "{formats} stands at the beginning of what is disk {disk} of group {group}"
            )
        }
    }
}

/// One of the copies: the label, or why there is none and whether that may be damage.
type CopyFound = Result<ParsedLabel, (String, bool)>;

const OLDER: &str = "it is older than another copy";

fn parse(bytes: Result<&[u8], String>, place: u64) -> CopyFound {
    let bytes = bytes.map_err(|failure| (failure, true))?;
    ParsedLabel::parse(bytes, place).map_err(|error| {
        let foreign = error.kind == FormatErrorKind::Magic;
        (error.to_string(), !foreign)
    })
}

pub(super) fn of_front(size_bytes: u64, pieces: &Pieces<'_>) -> LabelFound {
    if let Some((group_uuid, why)) = newer_in_front(pieces) {
        return LabelFound::Newer { group_uuid, why };
    }
    let copies: [CopyFound; 2] =
        [0, 1].map(|index| parse(pieces.bytes(index), LABEL_PLACES[index]));
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
    let repairs = (copies.iter().zip(LABEL_PLACES))
        .filter_map(|(copy, place)| match copy {
            Ok(copy) if copy.contents() == newest.contents() => None,
            Ok(_) => Some((place, OLDER.to_owned())),
            Err((why, _)) => Some((place, why.clone())),
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
fn newer_in_front(pieces: &Pieces<'_>) -> Option<(Uuid, FormatError)> {
    (LABEL_PLACES.into_iter().enumerate()).find_map(|(index, place)| {
        let bytes = pieces.bytes(index).ok()?;
        let why = ParsedLabel::parse(bytes, place).err()?;
        let (group_uuid, _) = identities(bytes)?;
        why.kind.is_newer().then_some((group_uuid, why))
    })
}

/// Whether the copy at the end is as the others, where the disk has one.
pub(super) fn judge_end(found: &mut DiskLook, disks: &dyn Disks, pieces: &Pieces<'_>) {
    let LabelFound::Good { label, .. } = &found.label else {
        return;
    };
    let size_aus = (found.newest_state())
        .and_then(|state| state.disk(label.number))
        .map(|disk| disk.size_aus);
    let Some(place) = size_aus.and_then(|size_aus| label.places(size_aus)[2]) else {
        return;
    };
    let mut read_apart = AlignedBuffer::zeroed(LABEL_BYTES);
    let bytes = if place == end_label_place(found.size_bytes) {
        pieces.bytes(END_PIECE)
    } else {
        // The disk was made larger than the group knows.
        let answer = super::read(disks, found.slot, place, &mut read_apart);
        (answer.map(|()| &read_apart[..])).map_err(|error| error.to_string())
    };
    found.end_label_place = Some(place);
    if let Some((group, disk, why)) = newer_at_end(&bytes, place)
        && (group, disk) == (label.group_uuid, label.disk_uuid)
    {
        let group_uuid = group;
        found.label = LabelFound::Newer { group_uuid, why };
        return;
    }
    let copy = parse(bytes, place);
    if let LabelFound::Good { label, repairs } = &mut found.label {
        match copy {
            Ok(copy) if copy.contents() == &**label => {}
            Ok(_) => repairs.push((place, OLDER.to_owned())),
            Err((why, _)) => repairs.push((place, why)),
        }
    }
}

/// What the label at the end of the disk says where no other copy is good.
pub(super) fn judge_end_alone(
    found: &mut DiskLook,
    pieces: &Pieces<'_>,
    known: &mut KnownStates,
) -> Result<(), WentAway> {
    let place = end_label_place(found.size_bytes);
    if let Some(label) = alone(place, pieces) {
        let states = super::states(pieces, label.group_uuid, label.disk_uuid, known)?;
        found.label = of_end_alone(label, &states);
        found.end_label_place = Some(place);
    } else if let Some((group_uuid, disk, why)) = newer_at_end(&pieces.bytes(END_PIECE), place) {
        let states = super::states(pieces, group_uuid, disk, known)?;
        let is_there = |slot: &SlotFound| matches!(slot, SlotFound::State(_) | SlotFound::Newer(_));
        found.label = if states.iter().any(is_there) {
            LabelFound::Newer { group_uuid, why }
        } else {
            LabelFound::Damaged(format!(
                "no copy at its beginning is good; at its end {why}"
            ))
        };
        found.end_label_place = Some(place);
    }
    Ok(())
}

/// The label of a member at the end of the disk, which ends where it says.
fn alone(place: u64, pieces: &Pieces<'_>) -> Option<Label> {
    let copy = parse(pieces.bytes(END_PIECE), place).ok()?;
    let label = copy.contents();
    let is_it = label.status == LabelStatus::Member && end_label_place(label.size_bytes) == place;
    is_it.then(|| label.clone())
}

/// The group and the disk of a label at the end that a newer program wrote there, and what is not
/// known. What a file holds may look like one, of another place.
fn newer_at_end(bytes: &Result<&[u8], String>, place: u64) -> Option<(Uuid, Uuid, FormatError)> {
    let bytes = bytes.as_ref().ok()?;
    let why = ParsedLabel::parse(bytes, place).err()?;
    let (group, disk) = identities(bytes)?;
    (why.kind.is_newer() && said_place(bytes) == Some(place)).then_some((group, disk, why))
}

fn of_end_alone(label: Label, states: &[SlotFound; 2]) -> LabelFound {
    let label = Box::new(label);
    if states.iter().all(|slot| slot.state().is_none()) {
        let by = Vec::new();
        return LabelFound::Overwritten(Overwritten { label, by });
    }
    let why = "no copy at the beginning of the disk is good".to_owned();
    LabelFound::Good {
        label,
        repairs: LABEL_PLACES.map(|place| (place, why.clone())).to_vec(),
    }
}

/// Asks a member for marks of other formats: behind the first copy of its label, and all of the
/// beginning where a copy there is gone or damaged.
pub(super) fn judge_marks(found: &mut DiskLook, disks: &dyn Disks, pieces: &Pieces<'_>) {
    let label = match &found.label {
        LabelFound::Good { label, .. } => label,
        LabelFound::Overwritten(overwritten) => &overwritten.label,
        _ => return,
    };
    if label.status != LabelStatus::Member {
        return;
    }
    let is_whole = |index: usize| parse(pieces.bytes(index), LABEL_PLACES[index]).is_ok();
    let by = match (0..LABEL_PLACES.len()).all(is_whole) {
        true => marks_behind_the_label(found.size_bytes, pieces),
        false => marks(found, disks, pieces),
    };
    if !by.is_empty() {
        let end = end_label_place(found.size_bytes);
        let has_end = parse(pieces.bytes(END_PIECE), end).is_ok();
        found.end_label_place = has_end.then_some(end);
        let label = label.clone();
        found.label = LabelFound::Overwritten(Overwritten { label, by });
    }
}

/// Whose marks stand in the block behind the first label. One that cannot be read bears none.
fn marks_behind_the_label(size_bytes: u64, pieces: &Pieces<'_>) -> Vec<ForeignFormat> {
    let block = pieces.bytes(MARK_PIECE).unwrap_or_default();
    // Nearly every disk.
    if block.iter().all(|byte| *byte == 0) {
        return Vec::new();
    }
    formats(size_bytes, &[&[0; LABEL_BYTES], block].concat())
}

/// Whose marks stand at the beginning of the disk. What cannot be read bears none.
fn marks(found: &DiskLook, disks: &dyn Disks, pieces: &Pieces<'_>) -> Vec<ForeignFormat> {
    let mut parts: Vec<AlignedBuffer> = (0..MARKED_BYTES / MARKED_PIECE_BYTES)
        .map(|_| AlignedBuffer::zeroed(MARKED_PIECE_BYTES))
        .collect();
    let mut batch: Vec<Request<'_>> = (parts.iter_mut().zip(0_u64..))
        .map(|(part, index)| {
            let place = index * MARKED_PIECE_BYTES as u64;
            Request::new(found.slot, place, Work::Read(part))
        })
        .collect();
    disks.run(&mut batch);
    let is_read: Vec<bool> = (batch.into_iter())
        .map(|request| request.result.is_ok())
        .collect();
    let mut start = vec![0; MARKED_BYTES];
    for (index, part) in parts
        .iter()
        .enumerate()
        .filter(|(index, _)| is_read[*index])
    {
        start[index * MARKED_PIECE_BYTES..][..MARKED_PIECE_BYTES].copy_from_slice(part);
    }
    // A bad block behind the first one hides nothing of it.
    if let Ok(first) = pieces.bytes(0) {
        start[..first.len()].copy_from_slice(first);
    }
    formats(found.size_bytes, &start)
}

/// Whose marks these first bytes of a disk bear.
fn formats(size_bytes: u64, start: &[u8]) -> Vec<ForeignFormat> {
    let signatures = foreign_signatures(DiskEnds {
        size_bytes,
        start,
        end: &[],
    });
    let mut formats = Vec::new();
    for signature in signatures {
        if !formats.contains(&signature.format) {
            formats.push(signature.format);
        }
    }
    formats
}
