//! Opening a group in this process: to serve it, to change it, or only to look.
//!
//! Who looks opens the disks for reading, and what opening would write stays in memory
//! (`machine::read_only_disks`). Who serves or changes holds every disk exclusively, so that two
//! processes of one machine can never both write; the group's own opener record guards against
//! other machines.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use spindle_base::{DiskNumber, FileId, GroupName};
use spindle_device::{DiskCounters, DiskSlot};
use spindle_fs::FileSystem;
use spindle_group::{
    Attended, Event, EventKind, EventRecord, Group, GroupError, GroupErrorKind, KeptEvent,
    KeptJournal, Severity, Waited,
};

use super::template;
use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::api::event_filter::EventFilter;
use crate::api::view::{DiskReport, EventReport, TemplateReport};
use crate::machine::discovery::{Discovery, FoundGroup};
use crate::machine::engine::Engine;
use crate::machine::held;
use crate::machine::identity::opener;
use crate::machine::probe::which_are_in_use;
use crate::machine::settings::Settings;
use crate::opened::attaching::{Former, attach_to_look, attach_to_own};
use crate::opened::claiming::{self, Beating};
use crate::opened::disk_return::RefusedReturns;
use crate::opened::files::OpenFiles;

/// So many files of events are looked for by their numbers, when they are shown.
const PATHS_MOST: usize = 64;

/// What a group is opened for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// To look: nothing is written.
    Look {
        /// Look although another process seems to have it, or a majority cannot be seen.
        force: bool,
    },
    /// To change something and close it again.
    Change,
    /// To serve it.
    Serve {
        /// A file that takes every write and flush in order.
        record: Option<PathBuf>,
        /// Take it although another host seems to have it, or a majority cannot be seen.
        force: bool,
    },
}

impl Access {
    const fn force(&self) -> bool {
        match self {
            Self::Look { force } | Self::Serve { force, .. } => *force,
            Self::Change => false,
        }
    }
}

/// What somebody keeps of a group beyond the death of the process that serves it.
#[derive(Debug)]
pub(crate) struct Kept {
    /// What was applied and not committed.
    pub(crate) journal: Arc<KeptJournal>,
    /// A mount is to be taken over: files that only the kernel knows stay.
    pub(crate) has_mount: bool,
    /// The process before was one of the same keeper, which says itself how that ended.
    pub(crate) follows: bool,
    /// A process before was killed and may hold a disk that hangs.
    pub(crate) former: Option<Arc<Former>>,
}

/// A group that this process has open.
#[derive(Debug)]
pub struct Opened {
    engine: Engine,
    slots: RwLock<Vec<(DiskSlot, PathBuf)>>,
    /// What each path led to when its disk was opened by it.
    identities: RwLock<Vec<(DiskSlot, Option<PathIdentity>)>>,
    pub(crate) refused_returns: Mutex<RefusedReturns>,
    file_system: Arc<FileSystem>,
    group_name: String,
    host: String,
    writable: bool,
    serves: bool,
}

/// The file or device that a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PathIdentity {
    file: (u64, u64),
    /// The device that a node of /dev means, whatever node that is.
    device: Option<u64>,
}

impl PathIdentity {
    fn of(path: &Path) -> std::io::Result<Self> {
        let metadata = std::fs::metadata(path)?;
        let is_device = metadata.file_type().is_block_device();
        Ok(Self {
            file: (metadata.dev(), metadata.ino()),
            device: is_device.then(|| metadata.rdev()),
        })
    }

    /// What became of the path since; `None` where it leads there still.
    fn what_became(self, path: &Path) -> Option<String> {
        match Self::of(path) {
            Ok(now) if now == self || (now.device.is_some() && now.device == self.device) => None,
            Ok(_) => Some("is another file or device now".to_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Some("was removed".to_owned())
            }
            // It may be there: who cannot look cannot tell.
            Err(_) => None,
        }
    }
}

impl Opened {
    /// Opens the group called `name` with the disks of the search path.
    ///
    /// # Errors
    /// Where there is no such group, a disk is in use, two disks have one identity, a majority
    /// cannot be seen, or bytes are damaged on every copy.
    pub fn open(settings: &Settings, name: &GroupName, access: &Access) -> ControlResult<Self> {
        Self::open_kept(settings, name, access, None)
    }

    /// As [`Opened::open`]; what is kept of a process that was killed is taken over.
    ///
    /// # Errors
    /// As for [`Opened::open`].
    pub(crate) fn open_kept(
        settings: &Settings,
        name: &GroupName,
        access: &Access,
        kept: Option<Kept>,
    ) -> ControlResult<Self> {
        let former = kept.as_ref().and_then(|kept| kept.former.clone());
        let opened = Discovery::look(settings).and_then(|discovery| {
            let found = discovery.group(name.as_str())?;
            Self::open_found_kept(settings, &found, access, kept)
        });
        opened.inspect_err(|error| {
            // A disk that hangs may say nothing of its group.
            let lacks_disks = matches!(
                error.kind,
                ControlErrorKind::NotFound
                    | ControlErrorKind::NoMajority
                    | ControlErrorKind::NotEnough
            );
            if let Some(former) = former.filter(|_| lacks_disks) {
                former.note_needed();
            }
        })
    }

    /// Opens a group that a discovery found.
    ///
    /// # Errors
    /// As for [`Opened::open`].
    pub fn open_found(
        settings: &Settings,
        found: &FoundGroup<'_>,
        access: &Access,
    ) -> ControlResult<Self> {
        Self::open_found_kept(settings, found, access, None)
    }

    fn open_found_kept(
        settings: &Settings,
        found: &FoundGroup<'_>,
        access: &Access,
        kept: Option<Kept>,
    ) -> ControlResult<Self> {
        let name = GroupName::new(&found.name)?;
        let writable = !matches!(access, Access::Look { .. });
        let paths: Vec<&Path> = found
            .disks
            .iter()
            .map(|probe| probe.path.as_path())
            .collect();
        let mut engine = match access {
            Access::Serve { record, .. } => Engine::to_serve(settings, record.as_deref())?,
            Access::Look { .. } | Access::Change => Engine::new(settings),
        };
        // What a held group's disks say is not all that its programs were answered.
        if let Some(path) = paths.first()
            && (writable || !access.force())
        {
            held::refuse(found.uuid, path)?;
        }
        let former_lingers = kept.as_ref().is_some_and(|kept| kept.former.is_some());
        let slots = match writable {
            true => attach_to_own(&engine, &paths, found, former_lingers, settings.io_deadline)?,
            false => attach_to_look(&engine, &paths, found)?,
        };
        if !writable {
            engine.withhold_writes();
        }
        let only_slots: Vec<DiskSlot> = slots.iter().map(|(slot, _)| *slot).collect();
        let opener = opener(settings, access.force())?;
        // Who holds the disks knows that no process of this machine has the group, whatever the
        // opener record says: a killed one leaves a number that another process may have now.
        let held = !writable && which_are_in_use(&paths, &settings.servers).contains(&true);
        let inherits = kept.as_ref().is_some_and(|kept| kept.has_mount);
        let follows = kept.as_ref().is_some_and(|kept| kept.follows);
        let beating = Beating::default();
        let claimed = |pulse| beating.begin(pulse);
        let waited = Waited::default();
        let group = claiming::until_settled(|| {
            let attended = Attended {
                client_map: None,
                journal: kept.as_ref().map(|kept| Arc::clone(&kept.journal)),
                watch: writable.then(claiming::watch),
                claimed: writable.then_some(&claimed),
                waited: Some(&waited),
                former_lingers,
            };
            Group::open_attended(
                engine.disks(),
                &only_slots,
                &name,
                &opener,
                &|_| held,
                attended,
            )
        });
        let group =
            group.map_err(|error| with_what_was_looked_at(error, found, settings, access))?;
        if writable {
            tell_of_overwritten(&group, found);
            if !follows {
                tell_not_closed(&group, found);
            }
        }
        let file_system = FileSystem::open_kept(Arc::new(group), inherits)?;
        drop(beating);
        // Who only looks writes nothing, be it to mend.
        file_system.set_verify(writable && settings.verifies);
        let opened = Self {
            engine,
            identities: RwLock::new(
                (slots.iter())
                    .map(|(slot, path)| (*slot, PathIdentity::of(path).ok()))
                    .collect(),
            ),
            slots: RwLock::new(slots),
            refused_returns: Mutex::default(),
            file_system: Arc::new(file_system),
            group_name: name.to_string(),
            host: opener.host,
            writable,
            serves: matches!(access, Access::Serve { .. }),
        };
        opened.release_cut_off(found);
        Ok(opened)
    }

    /// Lets go of disks that are cut off: they are found again when they are whole.
    fn release_cut_off(&self, found: &FoundGroup<'_>) {
        let cut_off = |path: &Path| {
            let mut disks = found.disks.iter();
            disks.any(|probe| probe.path == path && probe.is_cut_off())
        };
        let cut_off: Vec<DiskSlot> = (self.slots().iter())
            .filter(|(_, path)| cut_off(path))
            .map(|(slot, _)| *slot)
            .collect();
        self.release_untaken(&cut_off);
    }

    /// Whether this process serves the group, and works on it.
    #[must_use]
    pub const fn is_serving(&self) -> bool {
        self.serves
    }

    /// The group's name as its disks have it.
    #[must_use]
    pub fn group_name(&self) -> &str {
        &self.group_name
    }

    /// The group.
    #[must_use]
    pub fn group(&self) -> &Group {
        self.file_system.group()
    }

    /// Its files.
    #[must_use]
    pub const fn file_system(&self) -> &Arc<FileSystem> {
        &self.file_system
    }

    /// Its files as commands use them, with no mount beside.
    #[must_use]
    pub fn files(&self) -> OpenFiles {
        OpenFiles::new(self.file_system.clone(), self.group_name.clone(), None)
    }

    /// The disks below.
    #[must_use]
    pub const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The slots and the paths they were opened by.
    #[must_use]
    pub fn slots(&self) -> Vec<(DiskSlot, PathBuf)> {
        self.slots.read().clone()
    }

    /// A disk joined the group.
    pub fn note_slot(&self, slot: DiskSlot, path: PathBuf) {
        let identity = PathIdentity::of(&path).ok();
        self.identities.write().push((slot, identity));
        self.slots.write().push((slot, path));
    }

    /// Lets go of every disk, once nobody works on the group any more: where one hangs, this process
    /// ends when that answers, and the others must not wait for it.
    pub fn release_all(&self) {
        for (slot, _) in self.slots() {
            self.engine.release(slot);
        }
    }

    /// A disk left the group.
    pub fn forget_slot(&self, slot: DiskSlot) {
        self.slots.write().retain(|(other, _)| *other != slot);
        self.identities.write().retain(|(other, _)| *other != slot);
    }

    /// The paths that do not lead to their disks any more, each with what became of it. The disks
    /// themselves are held and go on, until the group is closed. Asks the file system, and so may
    /// wait for it.
    #[must_use]
    pub fn lost_paths(&self) -> Vec<(PathBuf, String)> {
        let identities = self.identities.read().clone();
        (self.slots().into_iter())
            .filter_map(|(slot, path)| {
                let (_, identity) = identities.iter().find(|(other, _)| *other == slot)?;
                let what = identity.as_ref()?.what_became(&path)?;
                Some((path, what))
            })
            .collect()
    }

    /// Compares maps, space, records and names.
    ///
    /// # Errors
    /// Where the catalog cannot be read.
    pub fn check(&self) -> ControlResult<Vec<String>> {
        let mut contradictions = self.group().check()?;
        contradictions.extend(self.file_system.check()?);
        Ok(contradictions)
    }

    /// As [`Opened::check`], and puts right what can be without losing anything; what is left,
    /// and what was settled.
    ///
    /// # Errors
    /// Where the catalog cannot be read or written.
    pub fn check_and_repair(&self) -> ControlResult<(Vec<String>, Vec<String>)> {
        let (mut left, mut settled) = self.group().check_and_repair()?;
        let owner = spindle_fs::Owner { user: 0, group: 0 };
        let checked = self
            .file_system
            .check_and_repair(owner, crate::machine::clock::now())?;
        left.extend(checked.contradictions);
        settled.extend(checked.repaired);
        for line in &settled {
            let message = format!("a check put right: {line}");
            let event = Event::new(EventKind::CheckFound, message);
            self.group().event(event.severity(Severity::Warning));
        }
        for line in &left {
            self.group().event(Event::new(
                EventKind::CheckFound,
                format!("a check found what it cannot put right: {line}"),
            ));
        }
        self.group().sync()?;
        Ok((left, settled))
    }

    /// What this host calls itself in the event log.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// The group's templates, in the order in which they are tried.
    #[must_use]
    pub fn templates(&self) -> Vec<TemplateReport> {
        template::list(&self.file_system)
    }

    /// Makes a disk answer as if its cable was pulled, or plugged in again.
    ///
    /// # Errors
    /// Where the disk was not found when the group was opened.
    pub fn set_pulled(&self, disk: &DiskReport, pulled: bool) -> ControlResult<()> {
        let path = disk.path.as_deref().unwrap_or_default();
        let slots = self.slots();
        let Some((slot, _)) = slots.iter().find(|(_, own)| own == Path::new(path)) else {
            return Err(ControlError::not_found(format!(
                "the disk {} was not there when the group was opened",
                disk.name
            )));
        };
        self.engine.set_pulled(*slot, pulled);
        Ok(())
    }

    /// What the engine counts of each disk that was found, by number.
    #[must_use]
    pub fn disk_counters(&self, disks: &[DiskReport]) -> Vec<(u16, DiskCounters)> {
        let slots = self.slots();
        (disks.iter())
            .filter_map(|disk| {
                let path = Path::new(disk.path.as_deref()?);
                let (slot, _) = slots.iter().find(|(_, own)| own == path)?;
                Some((disk.number, self.engine.disk_counters(*slot)))
            })
            .collect()
    }

    /// Brings what happened since the last call into the group's event log, without I/O, and
    /// gives back what is new there; the log of the process has it too. A group that is only
    /// looked at keeps nothing.
    pub fn keep_events(&self, closing: bool) -> Vec<EventReport> {
        if !self.writable {
            return Vec::new();
        }
        let now_ms = crate::machine::clock::now_ms();
        let kept = self.group().keep_events(now_ms, &self.host, closing);
        let reports: Vec<EventReport> = kept.into_iter().map(|kept| self.report(kept)).collect();
        if self.serves {
            reports.iter().for_each(log);
        }
        reports
    }

    /// Brings events into the group's log that a former process told while no disk took anything.
    ///
    /// # Errors
    /// Where the catalog cannot be read.
    pub(crate) fn keep_former_events(&self, events: &[EventReport]) -> ControlResult<()> {
        let record = |event: &EventReport| {
            Some(EventRecord {
                severity: Severity::from_name(&event.severity)?,
                disk: event.disk.map(DiskNumber),
                time_ms: event.time_ms,
                file: event.file.map(FileId),
                kind: event.kind.clone(),
                host: event.host.clone(),
                message: event.text.clone(),
            })
        };
        let records = events.iter().filter_map(record).collect();
        Ok(self.group().keep_former_events(records)?)
    }

    /// Notes where the disks are, for who looks for one of them when it is away.
    pub(crate) fn note_disk_paths(&self, disks: &[DiskReport]) {
        let paths: Vec<_> = (disks.iter())
            .map(|disk| (DiskNumber(disk.number), disk.path.clone()))
            .collect();
        if let Err(error) = self.group().note_disk_paths(&paths) {
            tracing::debug!(%error, "where the disks are is not noted");
        }
    }

    /// The disks that are not here, by number: what they are called, and where they were last.
    fn missing_disks(&self) -> BTreeMap<DiskNumber, String> {
        let paths = self.group().disk_paths().unwrap_or_default();
        let away = self.group().view().disks.into_iter();
        away.filter(|disk| disk.path.is_none())
            .map(|disk| {
                let place = match paths.get(&disk.number) {
                    Some(path) => format!("{}, last at {path}", disk.name),
                    None => disk.name.to_string(),
                };
                (disk.number, place)
            })
            .collect()
    }

    /// The events of the group's log.
    ///
    /// # Errors
    /// Where the catalog cannot be read.
    pub fn events(&self, filter: &EventFilter) -> ControlResult<Vec<EventReport>> {
        let kept = self.group().kept_events(filter.after, filter.least)?;
        let admitted = kept.into_iter().filter(|event| filter.admits(event));
        Ok(admitted.map(|event| self.report(event)).collect())
    }

    /// As [`Opened::events`], for a person: with the paths of the files that they are about.
    ///
    /// # Errors
    /// Where the catalog cannot be read.
    pub fn events_with_paths(&self, filter: &EventFilter) -> ControlResult<Vec<EventReport>> {
        let mut events = self.events(filter)?;
        let mut known: BTreeMap<u64, Option<String>> = BTreeMap::new();
        // The newest first: each path is looked for in its directory, and there may be many.
        for event in events.iter_mut().rev() {
            let Some(file) = event.file.filter(|file| *file != 0) else {
                continue;
            };
            if !known.contains_key(&file) && known.len() >= PATHS_MOST {
                continue;
            }
            let path = known.entry(file).or_insert_with(|| {
                // The event is told all the same where the name cannot be read.
                let path = self.file_system.path_of(FileId(file)).ok().flatten();
                path.map(|path| path.to_string_lossy().into_owned())
            });
            event.path.clone_from(path);
        }
        Ok(events)
    }

    fn report(&self, kept: KeptEvent) -> EventReport {
        let record = kept.record;
        let name = record.disk.and_then(|disk| self.group().disk_name(disk));
        EventReport {
            number: kept.number,
            time_s: record.time_ms / 1000,
            time_ms: record.time_ms,
            host: record.host,
            group: self.group_name.clone(),
            severity: record.severity.name().to_owned(),
            kind: record.kind,
            disk: record.disk.map(|disk| disk.0),
            disk_name: name.map(|name| name.to_string()),
            file: record.file.map(|file| file.0),
            path: None,
            text: record.message,
        }
    }

    /// Commits everything and marks the group closed, where it was opened to be written.
    ///
    /// # Errors
    /// Where a disk refused and no copy is left.
    pub fn close(&self) -> ControlResult<()> {
        self.close_for_heir()?.map_or(Ok(()), Err)
    }

    /// The same where another process follows with the same memory, in which blocks that no disk takes
    /// are left; why not all could be written, where that is so.
    ///
    /// # Errors
    /// Where the group is not closed.
    pub(crate) fn close_for_heir(&self) -> ControlResult<Option<ControlError>> {
        if !self.writable {
            return Ok(None);
        }
        self.keep_events(true);
        let closed = self.file_system.close_for_heir();
        for event in self.group().take_events() {
            tracing::warn!(kind = %event.kind, "{event}");
        }
        if let Err(error) = self.engine.flush_record() {
            tracing::error!(%error, "the record of the disks is not whole");
        }
        Ok(closed?.map(ControlError::from))
    }
}

/// Tells the log of the process.
fn log(event: &EventReport) {
    match event.severity.as_str() {
        "critical" => tracing::error!(kind = %event.kind, "{}", event.text),
        "warning" => tracing::warn!(kind = %event.kind, "{}", event.text),
        _ => tracing::info!(kind = %event.kind, "{}", event.text),
    }
}

fn tell_of_overwritten(group: &Group, found: &FoundGroup<'_>) {
    for message in found.told_of_overwritten() {
        group.event(Event::new(EventKind::DiskPassedOver, message));
    }
}

/// Tells that the process before left the group open, as the disks said when they were found.
fn tell_not_closed(group: &Group, found: &FoundGroup<'_>) {
    let records = found.disks.iter().filter_map(|probe| probe.opener());
    let Some(last) = records.max_by_key(|opener| opener.sequence) else {
        return;
    };
    if last.open {
        let message = format!(
            "the group had not been closed: process {} of {} had it open and ended without a word, or no disk took it",
            last.process_id, last.host
        );
        group.event(Event::new(EventKind::GroupNotClosed, message));
    }
}

/// A refusal for want of disks says where they were looked for, and names those that were overwritten.
fn with_what_was_looked_at(
    mut error: GroupError,
    found: &FoundGroup<'_>,
    settings: &Settings,
    access: &Access,
) -> GroupError {
    if matches!(
        error.kind,
        GroupErrorKind::NoMajority | GroupErrorKind::NotEnough
    ) {
        let looked = format!(
            "; looked for on the search path: {}",
            settings.search_path()
        );
        error.message.push_str(&looked);
        for told in found.told_of_overwritten() {
            error.message.push_str("; ");
            error.message.push_str(&told);
        }
    }
    if error.kind == GroupErrorKind::NoMajority && !access.force() {
        return with_missing_disks(error, found, settings);
    }
    error
}

/// A refusal for want of disks names those that are away, as far as what is here knows them: it is
/// opened by force a last time, and for nothing else.
fn with_missing_disks(
    mut error: GroupError,
    found: &FoundGroup<'_>,
    settings: &Settings,
) -> GroupError {
    let access = Access::Look { force: true };
    if let Ok(opened) = Opened::open_found(settings, found, &access) {
        let missing = opened.missing_disks();
        if !missing.is_empty() {
            let told: Vec<String> = (missing.iter())
                .map(|(number, place)| format!("disk {number} is {place}"))
                .collect();
            error.message.push_str("; ");
            error.message.push_str(&told.join("; "));
        }
    }
    error
}
