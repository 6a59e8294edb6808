//! Opening a group: find its disks, elect its state, see that nobody else has it, and claim it.
//!
//! Up to the claim nothing is written. The claim (the opener record on the voters) comes before
//! the first new state, so that another host that looks in between finds the group open. Only
//! where a disk was put back to an older image, the state that leaves it out comes before the record:
//! the records of the opening before may be all that proves it. What is claimed with then lies beside
//! them, see `claim.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use spindle_base::{DiskNumber, GroupName, Uuid};
use spindle_catalog::{KeptJournal, Standing};
use spindle_device::{DiskSlot, Disks};
use spindle_format::{GroupState, Label, OpenerRecord, Origin, STATE_PLACES};
use spindle_lease::map::StandingWord;
use spindle_sync::atomic::{AtomicBool, AtomicU64};
use spindle_sync::level::{DeepMutex, LeafRwLock};

use crate::error::{GroupError, GroupErrorKind};
use crate::event::{Event, EventKind};
use crate::quorum::Opener;
use crate::quorum::claim::{Findings, Found, contended, named};
use crate::quorum::contest::{self, Waited};
use crate::quorum::create::{is_same_disk, uuid_start};
use crate::quorum::cut_off::{self, CutOff};
use crate::quorum::election::{Holder, NotElected, elect};
use crate::quorum::look::{DiskLook, GroupFound, LabelFound, SlotFound, groups, look, newest_mark};
use crate::quorum::ownership::{Ownership, Slots, Watch};
use crate::quorum::publish::{Quorum, bears};
use crate::quorum::set_back::{NEVER_AGAIN, Past};
use crate::quorum::{FailedFlushes, Inner, LateCopies, Member, Membership, StandingTable, refused};

impl Membership {
    /// Opens the group `name` from the disks in `slots`; disks of other groups are ignored.
    /// `is_alive` tells whether a process of this boot still runs.
    ///
    /// # Errors
    /// [`GroupErrorKind::NotFound`], [`GroupErrorKind::NoMajority`], [`GroupErrorKind::Busy`],
    /// [`GroupErrorKind::NotEnough`] (disks are missing), [`GroupErrorKind::Invalid`] (two disks
    /// of one identity, a truncated image), [`GroupErrorKind::Io`]; `opener.force` overrides the
    /// middle three.
    pub fn open(
        disks: Arc<dyn Disks>,
        slots: &[DiskSlot],
        name: &GroupName,
        opener: &Opener,
        is_alive: &dyn Fn(u32) -> bool,
    ) -> Result<Self, GroupError> {
        Self::open_attended(disks, slots, name, opener, Attendance::of(is_alive))
    }

    /// As [`Membership::open`], by a process that others attend to.
    ///
    /// # Errors
    /// As [`Membership::open`].
    pub(crate) fn open_attended(
        disks: Arc<dyn Disks>,
        slots: &[DiskSlot],
        name: &GroupName,
        opener: &Opener,
        attendance: Attendance<'_>,
    ) -> Result<Self, GroupError> {
        let mut looks = look(&*disks, slots);
        look_again_at_states(&*disks, &mut looks);
        let groups = groups(&looks);
        let found = choose(&groups, name, &looks)?;
        check_versions(found, &looks)?;
        check_members(found)?;
        let mut holders = holders_of(found);
        let past = Past::of(&holders);
        let set_back = past.take_set_back(&mut holders);
        let left_out = overwritten(&looks, |label| label.group_uuid == found.uuid);
        let with_left_out = |mut error: GroupError| {
            error.message.push_str(&left_out);
            error
        };
        let opener_before = newest_opener(found);
        let standing = opener_before.and_then(attendance.standing);
        let known = standing.filter(|known| attendance.former_lingers && known.all_is_equal);
        let state =
            elect_of(found, &holders, (&set_back, known), opener.force).map_err(with_left_out)?;
        let mut events = damaged_labels(&looks, found.uuid);
        let cut_off = cut_off::among(found);
        let members = known_members(found, state, &set_back, &mut events);
        if !opener.force {
            check_owner(found, opener, attendance.is_alive)?;
        }
        let missing = missing(state, &members);
        if !opener.force {
            if attendance.former_lingers && known.is_none() {
                check_nobody_is_missing(name, &missing)?;
            }
            check_missing(found, state, &missing, &cut_off).map_err(with_left_out)?;
        }
        events.extend(missing.iter().map(|disk| goes_missing(name, *disk)));
        let follows = follows(opener_before, &members, state, opener.boot, &attendance)?;
        let slots = Arc::new(LeafRwLock::new(slots_of(&members)));
        let mut membership = Self {
            uuid: found.uuid,
            au_size: state.au_size,
            redundancy: LeafRwLock::new(state.redundancy),
            // The record of a closing follows its state. Where the newest one is that of an opening,
            // the state of that could not be read, or its writing was cut off.
            was_clean: state.clean && opener_before.is_none_or(|record| !record.open),
            was_forced: opener.force,
            recovers: AtomicBool::new(false),
            lost_replicas: Vec::new(),
            slots: Arc::clone(&slots),
            standings: StandingTable::shown_by(attendance.shown.clone()),
            hanging: Arc::default(),
            structure_writes_count: AtomicU64::new(0),
            stopped: OnceLock::new(),
            events: events.into_iter().collect(),
            inner: DeepMutex::new(Inner {
                epoch_tried: epoch_tried(found, state, standing),
                away_held: away_held(&missing, &set_back, &past),
                ..Inner::of(state, &members, first_record(found, opener, opener_before))
            }),
            disks: {
                let failed_flushes = FailedFlushes::new(attendance.journal, attendance.shown);
                Arc::new(Ownership::new(disks, slots, failed_flushes))
            },
        };
        membership.set_standings(state);
        membership.become_judge();
        if let Some(Watch { clock, apart }) = attendance.watch {
            membership.watch_clock(clock, apart);
        }
        (attendance.announce)(follows, &membership.opener());
        let findings = Findings {
            members: &members,
            missing,
            set_back: &set_back,
            cut_off: &cut_off,
            former_lingers: attendance.former_lingers,
        };
        (membership.claim(findings, Quorum::of(opener)))
            .inspect_err(|error| left_alone(&membership, error, attendance.waited))?;
        membership.doubt_equality();
        membership.lost_replicas = lost_replicas(state, &membership.state());
        membership.repair_labels(&members);
        membership.write_late_labels(&mut membership.inner.lock());
        Ok(membership)
    }
}

fn slots_of(members: &Found<'_>) -> Slots {
    let slots = members.iter();
    slots
        .map(|(number, (look, _))| (*number, look.slot))
        .collect()
}

impl Inner {
    /// That of the disks that were found, before anything was tried.
    fn of(state: &GroupState, members: &Found<'_>, opener: OpenerRecord) -> Self {
        Self {
            state: state.clone(),
            epoch_tried: state.epoch,
            members: (members.iter())
                .map(|(number, (look, label))| (*number, member(look, label, state)))
                .collect(),
            opener,
            heard: BTreeMap::new(),
            away_held: BTreeMap::new(),
            goes_back_to: None,
            set_back: BTreeMap::new(),
            broken: None,
        }
    }
}

/// Who attends to a process that opens a group.
pub(crate) struct Attendance<'a> {
    /// Tells whether a process of this boot still runs.
    pub(crate) is_alive: &'a dyn Fn(u32) -> bool,
    /// Is told what this process is about to write of itself, and which record is the newest before
    /// that, when nothing is written yet and nothing but a failing disk can come between; no record
    /// where another host may have had the group since.
    pub(crate) announce: &'a dyn Fn(Option<&OpenerRecord>, &OpenerRecord),
    /// Failed flushes are noted in it.
    pub(crate) journal: Option<Arc<KeptJournal>>,
    /// The number of the disks' standing that direct clients look at.
    pub(crate) shown: Option<StandingWord>,
    /// What the process is watched with, from before the claim on, so that it looks whose the group is
    /// while it opens it as at any other time.
    pub(crate) watch: Option<Watch>,
    /// Whether the process of that record is known to have had the group.
    pub(crate) has_served: &'a dyn Fn(&OpenerRecord) -> bool,
    /// What the process of that record, or the one that it followed with nobody between, had noted of
    /// the group's states.
    pub(crate) standing: &'a dyn Fn(&OpenerRecord) -> Option<Standing>,
    /// The process before was killed, and disks that are not here may hang with its requests.
    pub(crate) former_lingers: bool,
    /// Kept over the tries of somebody who waits between them; who keeps none has waited.
    pub(crate) waited: Option<&'a Waited>,
}

impl<'a> Attendance<'a> {
    pub(crate) fn of(is_alive: &'a dyn Fn(u32) -> bool) -> Self {
        Self {
            is_alive,
            announce: &|_, _| {},
            journal: None,
            shown: None,
            watch: None,
            has_served: &|_| false,
            standing: &|_| None,
            former_lingers: false,
            waited: None,
        }
    }
}

/// Those that serve and were not found.
fn missing(state: &GroupState, members: &Found<'_>) -> BTreeSet<DiskNumber> {
    (state.disks.iter())
        .filter(|disk| disk.status.is_served() && !members.contains_key(&disk.number))
        .map(|disk| disk.number)
        .collect()
}

/// The record of the opening that this one follows, if any: none where a rival may have had the group
/// since, on whose writes nothing is to be taken over. Refuses where that one is to be waited for.
fn follows<'a>(
    newest: Option<&'a OpenerRecord>,
    members: &Found<'_>,
    state: &GroupState,
    boot: Uuid,
    attendance: &Attendance<'_>,
) -> Result<Option<&'a OpenerRecord>, GroupError> {
    let Some(record) = newest else {
        return Ok(None);
    };
    let voters: Vec<&DiskLook> = (state.voters())
        .filter_map(|number| Some(members.get(&number)?.0))
        .collect();
    let Some(rival) = contest::rival(&voters, record, boot, attendance.has_served) else {
        return Ok(newest);
    };
    match attendance.waited {
        Some(waited) if !waited.was_for(record) => {
            waited.note(record);
            Err(contended(state, &named(Some(rival))))
        }
        _ => Ok(None),
    }
}

/// The claim failed: where somebody else takes the group, this process's own record is waited for.
fn left_alone(membership: &Membership, error: &GroupError, waited: Option<&Waited>) {
    if let Some(waited) = waited
        && error.kind == GroupErrorKind::Contended
    {
        waited.note(&membership.opener());
    }
}

/// The highest epoch that may be on any disk, also on one that is not seen.
fn epoch_tried(found: &GroupFound<'_>, elected: &GroupState, standing: Option<Standing>) -> u64 {
    let newest = (found.members.iter()).filter_map(|(_, look)| look.newest_state());
    let seen = newest
        .map(|state| state.epoch)
        .max()
        .unwrap_or(elected.epoch);
    seen.max(standing.map_or(0, |standing| standing.epoch_tried))
}

/// The disks with a replica in the elected state and none in the one that this opening wrote.
fn lost_replicas(elected: &GroupState, now: &GroupState) -> Vec<DiskNumber> {
    let is_left = |disk| now.replicas.iter().any(|replica| replica.disk == disk);
    let had = elected.replicas.iter().map(|replica| replica.disk);
    had.filter(|disk| !is_left(*disk)).collect()
}

/// The epochs that disks held which are not there, or not to be trusted.
fn away_held(
    missing: &BTreeSet<DiskNumber>,
    set_back: &BTreeSet<DiskNumber>,
    past: &Past<'_>,
) -> BTreeMap<DiskNumber, u64> {
    let held_epoch = |number: DiskNumber| match set_back.contains(&number) {
        true => NEVER_AGAIN,
        false => past.held_epoch(number),
    };
    let numbers = missing.iter().copied();
    numbers.map(|number| (number, held_epoch(number))).collect()
}

fn goes_missing(name: &GroupName, disk: DiskNumber) -> Event {
    let message = format!("group {name}: disk {disk} is missing and goes offline");
    Event::new(EventKind::DiskOffline, message).disk(disk)
}

pub(super) fn member(look: &DiskLook, label: &Label, elected: &GroupState) -> Member {
    // The slot to spare is the one with the elected state; on a disk that has it in neither, the
    // one with the newer state, so that what is overwritten is the oldest.
    let holds = |slot: &SlotFound| slot.state().map(|state| (state == elected, state.epoch));
    let held_slot = usize::from(holds(&look.states[1]) > holds(&look.states[0]));
    Member {
        path: look.path.clone(),
        label: label.clone(),
        late: LateCopies::default(),
        held_slot,
        held_epoch: surely_held(look, label, elected),
        spare_epoch: 0,
    }
}

/// The epoch of the newest state that the disk cannot lose any more. A disk that is offline may
/// have gone in the midst of taking one, which it shows and which was never durable there. On one that
/// serves a newer state than the elected one was put aside, and the next one goes into its place.
fn surely_held(look: &DiskLook, label: &Label, elected: &GroupState) -> u64 {
    let serves = (elected.disk(label.number)).is_some_and(|disk| disk.status.is_served());
    let shows_elected = || look.states.iter().any(|slot| slot.state() == Some(elected));
    match serves {
        true if shows_elected() => elected.epoch,
        true => look.newest_state().map_or(0, |state| state.epoch),
        false => oldest_shown(look),
    }
}

/// The epoch of the older of the states that the disk shows: a newer one was sent to no disk before
/// that was durable.
pub(super) fn oldest_shown(look: &DiskLook) -> u64 {
    let states = look.states.iter().filter_map(SlotFound::state);
    states.map(|state| state.epoch).min().unwrap_or(0)
}

/// The one group of that name.
fn choose<'a, 'b>(
    groups: &'b [GroupFound<'a>],
    name: &GroupName,
    looks: &[DiskLook],
) -> Result<&'b GroupFound<'a>, GroupError> {
    let same = |found: &&GroupFound<'_>| found.name.as_str().eq_ignore_ascii_case(name.as_str());
    let mut named = groups.iter().filter(same);
    match (named.next(), named.next()) {
        (Some(found), None) => Ok(found),
        (Some(first), Some(second)) => Err(refused(
            GroupErrorKind::Invalid,
            format!(
                "two groups are called {name}: {} (on {}) and {} (on {}); leave the disks of one \
                 of them out of the search path",
                first.uuid, first.members[0].1.path, second.uuid, second.members[0].1.path
            ),
        )),
        (None, _) => {
            let seen: Vec<&str> = groups.iter().map(|found| found.name.as_str()).collect();
            let newer = looks.iter().find_map(|look| match &look.label {
                LabelFound::Newer { why, .. } => Some(format!("; on {} {why}", look.path)),
                _ => None,
            });
            Err(refused(
                GroupErrorKind::NotFound,
                format!(
                    "no disk of a group {name} is among the {} disks that were looked at (groups \
                     found: {}{}{}); check the search path and the name",
                    looks.len(),
                    if seen.is_empty() {
                        "none".to_owned()
                    } else {
                        seen.join(", ")
                    },
                    newer.unwrap_or_default(),
                    overwritten(looks, |label| {
                        label
                            .group_name
                            .as_str()
                            .eq_ignore_ascii_case(name.as_str())
                    })
                ),
            ))
        }
    }
}

/// Refuses a group of which a newer program wrote anything: what is not understood may be the
/// newest. No force helps, since going on from the older would destroy it.
fn check_versions(found: &GroupFound<'_>, looks: &[DiskLook]) -> Result<(), GroupError> {
    let newer = (looks.iter()).find_map(|look| Some((look, look.newer(found.uuid)?)));
    let Some((look, why)) = newer else {
        return Ok(());
    };
    Err(refused(
        GroupErrorKind::Invalid,
        format!(
            "group {} is in use by a newer program: on {} {why}; open it with that program              (--force does not help, since going on from what is older would destroy the group)",
            found.name, look.path
        ),
    )
    .because(why))
}

/// No identity twice.
fn check_members(found: &GroupFound<'_>) -> Result<(), GroupError> {
    for (index, (number, look)) in found.members.iter().enumerate() {
        let label = look.member();
        let twin = (found.members[index + 1..].iter()).find(|(_, twin)| {
            twin.member().map(|label| label.disk_uuid) == label.map(|label| label.disk_uuid)
        });
        if let Some((_, twin)) = twin {
            return Err(refused(
                GroupErrorKind::Invalid,
                format!(
                    "{} and {} both say that they are disk {number} of group {}: one is a copy of \
                     the other; leave the copy out of the search path",
                    look.path, twin.path, found.name
                ),
            ));
        }
    }
    Ok(())
}

/// What a disk did not give of its group states it may give a moment later, and an election needs it.
fn look_again_at_states(disks: &dyn Disks, looks: &mut [DiskLook]) {
    let unread = |look: &&mut DiskLook| look.unread.has_state() && !look.unread.disk;
    for found in looks.iter_mut().filter(unread) {
        if let Some(again) = look(disks, &[found.slot]).pop() {
            *found = again;
        }
    }
}

/// Whether a slot of the disk was not given that may hold any state. Not where its newest mark is the
/// closing that a disk has too which gave all: the state of that is on both, and whoever opened the
/// group since has left a mark on each disk that has his state.
fn may_hide_a_state(look: &DiskLook, found: &GroupFound<'_>) -> bool {
    let closing = |look: &DiskLook| {
        let record = look.opener.as_ref().filter(|record| !record.open)?;
        Some((record.sequence, record.boot, record.opened_s))
    };
    let has_no_later_intent = !look.unread.intent
        && (look.intent.as_ref()).is_none_or(|intent| {
            (look.opener.as_ref()).is_some_and(|record| record.sequence >= intent.sequence)
        });
    let mut others = (found.members.iter()).map(|(_, other)| other);
    let is_closed_with_another = closing(look).is_some_and(|own| {
        others.any(|other| !other.unread.has_state() && closing(other) == Some(own))
    });
    look.unread.has_state() && !(has_no_later_intent && is_closed_with_another)
}

fn holders_of<'a>(found: &GroupFound<'a>) -> Vec<Holder<'a>> {
    (found.members.iter())
        .filter_map(|(number, look)| {
            Some(Holder {
                number: *number,
                uuid_start: uuid_start(look.member()?.disk_uuid),
                states: &look.states,
                is_unread: may_hide_a_state(look, found),
                opener: look.opener.as_ref(),
            })
        })
        .collect()
}

fn elect_of<'a>(
    found: &GroupFound<'a>,
    holders: &[Holder<'a>],
    (set_back, known): (&BTreeSet<DiskNumber>, Option<Standing>),
    force: bool,
) -> Result<&'a GroupState, GroupError> {
    elect(holders, known, force).map_err(|why| {
        let name = &found.name;
        let mut message = match why {
            NotElected::NoState => format!(
                "no disk of group {name} has a group state to go on from; the disks are of \
                 different times or damaged: leave the older ones out of the search path \
                 (`spindle dump --disk` shows the epoch of each)"
            ),
            NotElected::NoMajority {
                epoch,
                seen,
                voters,
                unseen,
            } => {
                let are = |count| if count == 1 { "is" } else { "are" };
                let (disks, them) = listed(unseen.iter().copied());
                format!(
                    "group {name} has no majority: of the {voters} disks that vote in its newest \
                     state seen (epoch {epoch}) only {seen} {} here, {disks} {} not; bring {them} \
                     back, or use --force, which loses what was acknowledged while the disks that \
                     are here were away from {them}",
                    are(seen),
                    are(unseen.len()),
                )
            }
            NotElected::Unread { epoch, unread } => {
                let places: Vec<String> = (found.members.iter())
                    .filter(|(number, _)| unread.contains(number))
                    .map(|(_, look)| unread_slots(look))
                    .collect();
                format!(
                    "the state of group {name} cannot be read {}: a newer one than can be read \
                     (epoch {epoch}) may stand there. Try again in a moment; where a sector is bad \
                     for good, only --force opens the group, from epoch {epoch}, which may lose \
                     what was acknowledged since",
                    places.join(" and ")
                )
            }
            NotElected::Diverged { epoch } => format!(
                "the disks of group {name} went two ways at epoch {epoch}, each half without the \
                 other; leave one half out of the search path, or use --force, which drops the \
                 writes of one half"
            ),
        };
        let paths: Vec<&str> = (found.members.iter())
            .filter(|(number, _)| set_back.contains(number))
            .map(|(_, look)| look.path.as_str())
            .collect();
        if !paths.is_empty() {
            message.push_str("; put back to an older image, and not counted: ");
            message.push_str(&paths.join(", "));
        }
        refused(GroupErrorKind::NoMajority, message)
    })
}

/// Which slots of the group state a disk did not give.
fn unread_slots(look: &DiskLook) -> String {
    let places: Vec<String> = (STATE_PLACES.iter().zip(look.unread.states))
        .filter(|(_, is_unread)| *is_unread)
        .map(|(place, _)| format!("at byte {place}"))
        .collect();
    format!("{} of {}", places.join(" and "), look.path)
}

/// The disks by number, and what a sentence calls them after that.
fn listed(disks: impl Iterator<Item = DiskNumber>) -> (String, &'static str) {
    let numbers: Vec<String> = disks.map(|disk| disk.to_string()).collect();
    match &numbers[..] {
        [one] => (format!("disk {one}"), "it"),
        _ => (format!("disks {}", numbers.join(", ")), "them"),
    }
}

fn damaged_labels(looks: &[DiskLook], group: Uuid) -> Vec<Event> {
    (looks.iter())
        .filter_map(|look| {
            let why = match &look.label {
                LabelFound::Damaged(why) => format!("no copy of its label counts: {why}"),
                LabelFound::Overwritten(found) if found.label.group_uuid == group => {
                    format!("{found}; {}", found.advice())
                }
                _ => return None,
            };
            let message = format!("{} is passed over: {why}", look.path);
            Some(Event::new(EventKind::DiskPassedOver, message))
        })
        .collect()
}

/// What a refusal says of disks that were overwritten.
fn overwritten(looks: &[DiskLook], is_meant: impl Fn(&Label) -> bool) -> String {
    (looks.iter())
        .filter_map(|look| match &look.label {
            LabelFound::Overwritten(found) if is_meant(&found.label) => {
                Some(format!("; {}: {found}; {}", look.path, found.advice()))
            }
            _ => None,
        })
        .collect()
}

/// The members that the elected state knows.
fn known_members<'a>(
    found: &GroupFound<'a>,
    state: &GroupState,
    set_back: &BTreeSet<DiskNumber>,
    events: &mut Vec<Event>,
) -> BTreeMap<DiskNumber, (&'a DiskLook, &'a Label)> {
    let mut members = BTreeMap::new();
    for (number, look) in &found.members {
        let Some(label) = look.member() else {
            continue;
        };
        match state.disk(*number) {
            Some(entry) if is_same_disk(entry, label) && set_back.contains(number) => {
                let message = format!(
                    "{} is passed over: it is disk {number} of group {} and was put back to an \
                     older image, of epoch {}; drop it with --force and add it as a new disk",
                    look.path,
                    found.name,
                    look.newest_state().map_or(0, |state| state.epoch)
                );
                events.push(Event::new(EventKind::DiskPassedOver, message).disk(*number));
            }
            Some(entry)
                if is_same_disk(entry, label)
                    && matches!(look.label, LabelFound::Truncated { .. }) =>
            {
                let message = format!(
                    "{} is passed over: disk {number} of group {} is cut off: its label says {} \
                     bytes, and it has {}; when it is whole again, all that it holds is copied \
                     again",
                    look.path, found.name, label.size_bytes, look.size_bytes
                );
                events.push(Event::new(EventKind::DiskPassedOver, message).disk(*number));
            }
            Some(entry) if is_same_disk(entry, label) => {
                members.insert(*number, (*look, label));
            }
            _ => {
                let message = format!(
                    "{} is passed over: group {} does not know it as its disk {number}",
                    look.path, found.name
                );
                events.push(Event::new(EventKind::DiskPassedOver, message));
            }
        }
    }
    members
}

/// What this process says of itself: the number goes on from the newest record, claim or intent, so that
/// no two claims of a process are alike.
fn first_record(
    found: &GroupFound<'_>,
    opener: &Opener,
    before: Option<&OpenerRecord>,
) -> OpenerRecord {
    let claims = (found.members.iter()).flat_map(|(_, look)| look.claim.iter().chain(&look.intent));
    let claimed = claims.map(|claim| claim.sequence).max().unwrap_or(0);
    OpenerRecord {
        sequence: before.map_or(0, |record| record.sequence).max(claimed) + 1,
        group_uuid: found.uuid,
        disk_uuid: found.uuid,
        boot: opener.boot,
        host: opener.host.clone(),
        origin: opener.origin,
        process_id: opener.process_id,
        open: true,
        heartbeats_count: 0,
        heartbeat_s: opener.now_s,
        opened_s: opener.now_s,
    }
}

fn newest_opener<'a>(found: &GroupFound<'a>) -> Option<&'a OpenerRecord> {
    newest_mark(found.members.iter().map(|(_, look)| *look))
}

/// The record of a process that beats although an intent is newer: a program that knows no intents
/// numbers its record from the records alone.
fn beating_behind<'a>(found: &GroupFound<'a>, newest: &OpenerRecord) -> Option<&'a OpenerRecord> {
    (found.members.iter())
        .filter_map(|(_, look)| look.opener.as_ref())
        .max_by_key(|record| (record.sequence, record.heartbeats_count, record.heartbeat_s))
        .filter(|record| record.sequence < newest.sequence && record.open)
        .filter(|record| record.heartbeat_s > newest.heartbeat_s)
}

/// Refuses a group that somebody else has, or seems to have.
fn check_owner(
    found: &GroupFound<'_>,
    opener: &Opener,
    is_alive: &dyn Fn(u32) -> bool,
) -> Result<(), GroupError> {
    let Some(newest) = newest_opener(found).filter(|record| record.open) else {
        return Ok(());
    };
    for record in [Some(newest), beating_behind(found, newest)] {
        let Some(record) = record else {
            continue;
        };
        check_is_free(found, record, opener, is_alive)?;
    }
    Ok(())
}

/// Refuses where the process of that record has the group, or seems to have it.
fn check_is_free(
    found: &GroupFound<'_>,
    record: &OpenerRecord,
    opener: &Opener,
    is_alive: &dyn Fn(u32) -> bool,
) -> Result<(), GroupError> {
    let age_s = opener.now_s.saturating_sub(record.heartbeat_s);
    let message = match whereabouts(record, opener) {
        Whereabouts::Here if is_alive(record.process_id) => format!(
            "group {} is already open here, in process {}",
            found.name, record.process_id
        ),
        Whereabouts::Here | Whereabouts::HereBefore => return Ok(()),
        Whereabouts::OtherNamespace if age_s >= SILENT_S => return Ok(()),
        Whereabouts::OtherNamespace => format!(
            "group {} is already open on this machine, in process {} of another process \
             namespace (a container), whose heartbeat is {age_s} seconds old; dismount it there, \
             or wait {SILENT_S} seconds if that process is dead",
            found.name, record.process_id
        ),
        Whereabouts::Elsewhere => format!(
            "group {} is open on host {} (process {}), whose heartbeat is {age_s} seconds old; \
             dismount it there, or use --force if that host is surely dead: two owners destroy \
             the group",
            found.name, record.host, record.process_id
        ),
    };
    Err(refused(GroupErrorKind::Busy, message))
}

/// A process of another namespace whose heartbeat is as old as this is dead: those that live
/// renew it every two seconds.
const SILENT_S: u64 = 15;

/// Where the process is, or was, that a record names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whereabouts {
    /// On this machine, since it was booted; its number means something here.
    Here,
    /// Likewise, in a process namespace that cannot be seen from here.
    OtherNamespace,
    /// On this machine before it was booted: it is gone.
    HereBefore,
    /// On another machine, or it cannot be told.
    Elsewhere,
}

fn whereabouts(record: &OpenerRecord, opener: &Opener) -> Whereabouts {
    if record.boot == opener.boot {
        let namespaces = (record.origin.zip(opener.origin))
            .map(|(theirs, ours)| (theirs.process_namespace, ours.process_namespace));
        return match namespaces {
            Some((theirs, ours)) if theirs != ours => Whereabouts::OtherNamespace,
            _ => Whereabouts::Here,
        };
    }
    // Names are given twice, and so are machine ids, with the images of machines: a heartbeat
    // from after this machine's start is another machine's all the same.
    let beat_since = (opener.booted_s).is_some_and(|booted_s| record.heartbeat_s > booted_s);
    let machine_of = |origin: Option<Origin>| origin.and_then(Origin::known_machine);
    let same_machine = match (machine_of(record.origin), machine_of(opener.origin)) {
        (Some(theirs), Some(ours)) => theirs == ours,
        _ => true,
    };
    if record.host == opener.host && same_machine && !beat_since {
        Whereabouts::HereBefore
    } else {
        Whereabouts::Elsewhere
    }
}

/// Refuses to leave out a disk that may hang with requests of a killed process, where another one lacks
/// something: nobody else may have that.
pub(super) fn check_nobody_is_missing(
    name: &GroupName,
    missing: &BTreeSet<DiskNumber>,
) -> Result<(), GroupError> {
    if missing.is_empty() {
        return Ok(());
    }
    let (disks, them) = listed(missing.iter().copied());
    Err(refused(
        GroupErrorKind::NotEnough,
        format!(
            "{disks} of group {} may hang with requests of the process that was killed, and others \
             may lack what only {them} can give",
            name
        ),
    ))
}

/// Refuses to go on where the redundancy does not bear what is missing: files would be unreadable.
fn check_missing(
    found: &GroupFound<'_>,
    state: &GroupState,
    missing: &BTreeSet<DiskNumber>,
    cut_off: &[CutOff],
) -> Result<(), GroupError> {
    if missing.is_empty() || bears(state, missing) {
        return Ok(());
    }
    let (disks, them) = listed(missing.iter().copied());
    Err(refused(
        GroupErrorKind::NotEnough,
        format!(
            "{disks} of group {} {} missing, more than {} redundancy bears{}; bring {them} back, \
             or use --force to reach the files that lie on the others",
            found.name,
            if missing.len() == 1 { "is" } else { "are" },
            state.redundancy,
            cut_off::described(cut_off)
        ),
    ))
}
