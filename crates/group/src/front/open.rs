//! Opening a group: membership and catalog first, then every map in one scan, which rebuilds
//! free space on the way; then the comparison of dirty regions.

use spindle_sync::atomic::Ordering;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spindle_base::{AuSize, DiskName, DiskNumber, FailureGroupName, FileId, GroupName};
use spindle_catalog::{Catalog, CatalogError, KeptJournal, Region, Table};
use spindle_device::{DiskSlot, Disks};
use spindle_extent::space::{Run, Space};
use spindle_format::{
    DirtyRecord, DiskRecord, ExtentRow, Feature, Features, FileRecord, OpenerRecord,
};
use spindle_lease::map::SharedMap;
use spindle_sync::level::{DeepMutex, LeafMutex, Mutex};

use crate::background::scrub::Scrubs;
use crate::background::{Background, Group, Lazy};
use crate::change::redundancy;
use crate::core::bad_runs::BadRuns;
use crate::core::clients::Clients;
use crate::core::dirty::DirtyRegions;
use crate::core::disks::{DiskTable, NewDiskState, disk_key};
use crate::core::event_log::EventLog;
use crate::core::file::{File, Layout, numbered_key};
use crate::core::keeper_journal::{Kept, claim_of};
use crate::core::takeover::Scene;
use crate::core::{Core, Loaded};
use crate::error::{GroupError, GroupErrorKind};
use crate::front::create::{CATALOG_CACHE_BYTES, PROFILE_KEY};
use crate::io::allocate::note_missing_copies;
use crate::quorum::{Attendance, MemberView, Membership, Opener, Pulse, Waited, Watch};
use crate::region::{RegionSpace, ReplicatedRegion};

type Files = BTreeMap<FileId, Arc<File>>;

impl Group {
    /// Reads labels and state from the given slots, elects the newest state, opens the catalog,
    /// loads the maps, makes dirty regions equal. Slots of other groups or no label are ignored.
    ///
    /// # Errors
    /// Any kind but [`GroupErrorKind::NoSpace`]; the message says which disk and what to do.
    pub fn open(
        disks: Arc<dyn Disks>,
        slots: &[DiskSlot],
        name: &GroupName,
        opener: &Opener,
    ) -> Result<Self, GroupError> {
        // A record with our own number was left by an earlier process of that number, or by this
        // one, which has let go of the group since: a process owns a group once at a time.
        let is_alive = |process_id: u32| {
            process_id != opener.process_id
                && std::path::Path::new("/proc")
                    .join(process_id.to_string())
                    .exists()
        };
        Self::open_unless(disks, slots, name, opener, &is_alive)
    }

    /// As [`Group::open`], where the caller knows better whether the process of this boot that
    /// the disks name still has the group: who holds every disk exclusively knows that it has
    /// not, even where the kernel has given its number to another process since.
    ///
    /// # Errors
    /// As [`Group::open`].
    pub fn open_unless(
        disks: Arc<dyn Disks>,
        slots: &[DiskSlot],
        name: &GroupName,
        opener: &Opener,
        is_alive: &dyn Fn(u32) -> bool,
    ) -> Result<Self, GroupError> {
        Self::open_kept(disks, slots, name, opener, is_alive, None)
    }

    /// As [`Group::open_unless`], with the journal that a keeper holds: what a process left in it
    /// that was killed is taken over. [`Core::begin_journal`] ends the opening then.
    ///
    /// # Errors
    /// As [`Group::open`].
    pub fn open_kept(
        disks: Arc<dyn Disks>,
        slots: &[DiskSlot],
        name: &GroupName,
        opener: &Opener,
        is_alive: &dyn Fn(u32) -> bool,
        journal: Option<Arc<KeptJournal>>,
    ) -> Result<Self, GroupError> {
        let attended = Attended {
            journal,
            ..Attended::default()
        };
        Self::open_attended(disks, slots, name, opener, is_alive, attended)
    }

    /// As [`Group::open_kept`], by a process that looks whose the group is while it opens it, and says
    /// that it lives.
    ///
    /// # Errors
    /// As [`Group::open`]; [`GroupErrorKind::Busy`] where another host took the group by force.
    pub fn open_attended(
        disks: Arc<dyn Disks>,
        slots: &[DiskSlot],
        name: &GroupName,
        opener: &Opener,
        is_alive: &dyn Fn(u32) -> bool,
        attended: Attended<'_>,
    ) -> Result<Self, GroupError> {
        let Attended {
            journal,
            client_map,
            watch,
            claimed,
            waited,
            former_lingers,
        } = attended;
        let has_begun =
            |record: &OpenerRecord| (journal.iter()).any(|kept| kept.is_of(claim_of(record)));
        let standing = |record: &OpenerRecord| {
            let journal = journal.as_ref()?;
            let follows = journal.is_heir(claim_of(record));
            follows.then(|| journal.standing()).flatten()
        };
        if client_map.is_some() && journal.is_none() {
            return Err(GroupError::new(
                GroupErrorKind::Invalid,
                "clients are shown files only where a keeper holds the journal",
            ));
        }
        // Before anything is changed: what an earlier process said is of the group as that left it.
        let clients = Arc::new(Clients::new(client_map));
        let attendance = Attendance {
            journal: journal.clone(),
            shown: clients.standing(),
            watch,
            has_served: &has_begun,
            standing: &standing,
            former_lingers,
            waited,
            ..Attendance::of(is_alive)
        };
        let membership = claim(disks, slots, name, opener, attendance)?;
        if let Some(claimed) = claimed {
            claimed(Pulse::of(&membership));
        }
        let answer = Self::open_claimed(Arc::clone(&membership), opener, journal, clients);
        // What another host's taking it has done is no fault of the disks.
        answer.map_err(|error| match membership.check() {
            Err(lost) if lost.kind == GroupErrorKind::Busy => lost,
            _ => error,
        })
    }

    fn open_claimed(
        membership: Arc<Membership>,
        opener: &Opener,
        journal: Option<Arc<KeptJournal>>,
        clients: Arc<Clients>,
    ) -> Result<Self, GroupError> {
        membership.begin_recovery();
        let region = Arc::new(ReplicatedRegion::open(Arc::clone(&membership))?);
        region.read_ahead();
        let catalog = Catalog::open(Arc::clone(&region) as Arc<dyn Region>, CATALOG_CACHE_BYTES)?;
        region.finish_recovery();
        let au_size = membership.au_size();
        let disks = membership.disks();
        let table = disk_table(&membership, disks, &catalog, opener)?;
        let load = || load(&membership, &catalog, &table, &region, &clients);
        let (mut files, mut space, mut bad_runs) = load()?;
        // Before anybody asks which disks can be done without.
        let note_missing = |files: &Files| {
            for file in files.values() {
                note_missing_copies(&membership, file);
            }
        };
        note_missing(&files);
        let claim = claim_of(&membership.opener());
        let kept = (journal.map(|journal| Kept::new(journal, claim, &catalog))).transpose()?;
        let scene = Scene {
            membership: &membership,
            catalog: &catalog,
            disks: &table,
            files: &files,
            space: &space,
            au_size,
        };
        if let Some(kept) = &kept
            && kept.replay(&scene)?
        {
            // The space that is loaded has no replica of a disk that went offline with it.
            region.forget_offline();
            // The maps are most of a large group's memory: not twice at a time.
            drop((files, space, bad_runs));
            (files, space, bad_runs) = load()?;
            note_missing(&files);
        }
        let scrubs = Scrubs::load(&catalog)?;
        let dirty = DirtyRegions::default();
        load_dirty_regions(&catalog, &table, &dirty, membership.state().features)?;
        let event_log = EventLog::open(&catalog)?;
        membership.begin_catching_up(note_stale(&dirty, &files, &table).into_iter());
        let background = Background::open(&catalog)?;
        let with_surplus = files.values().filter(|file| file.map.read().has_surplus());
        background.give_back(with_surplus.map(|file| file.id));
        let wanted_redundancy = redundancy::wanted(&catalog)?;
        region.stop_reading_ahead();
        let core = Core::new(Loaded {
            membership,
            region,
            catalog,
            disks: table,
            space,
            dirty,
            files,
            event_log,
            bad_runs,
            kept,
            clients,
            now_s: opener.now_s,
        });
        let group = Self {
            core,
            scrubs,
            returning: Mutex::default(),
            resync: DeepMutex::default(),
            returns: LeafMutex::default(),
            away_clock: DeepMutex::default(),
            background,
            wanted_redundancy: LeafMutex::new(wanted_redundancy),
            lazy: LeafMutex::new(Lazy::default()),
            disk_changes: Mutex::default(),
            free_slots: LeafMutex::default(),
        };
        group.bring_disk_records_up_to_date()?;
        group.recover()?;
        group.membership.end_recovery()?;
        Ok(group)
    }

    /// The profile the group was made with; empty where the attribute cannot be read.
    pub(crate) fn profile(&self) -> String {
        match self.catalog.get(Table::Attribute, PROFILE_KEY) {
            Ok(Some(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
            _ => String::new(),
        }
    }
}

/// Who attends to a process that opens a group.
#[derive(Default)]
pub struct Attended<'a> {
    /// What a keeper holds.
    pub journal: Option<Arc<KeptJournal>>,
    /// The map that direct clients read, which nobody else changes by now. Extents that change are taken out of
    /// it where they are noted in the journal, so that there has to be one.
    pub client_map: Option<SharedMap>,
    /// What it is watched with, from before the claim on.
    pub watch: Option<Watch>,
    /// Is given its pulse when the group is claimed, to be beaten until the group is open.
    pub claimed: Option<&'a dyn Fn(Pulse)>,
    /// Kept over its tries: where the disks do not say who has the group, it is told to wait and try
    /// again. Without it such a group is taken at once.
    pub waited: Option<&'a Waited>,
    /// The process whose journal this is was killed, and the kernel has not let go of it: disks that are
    /// not here may be those that hang with its requests. The group is opened without them only where
    /// the journal tells that nobody else lacked anything; and then half of the votes suffices where it
    /// tells that the state which is here is in force.
    pub former_lingers: bool,
}

/// Takes the group; a journal that a keeper holds knows of it before any disk does.
fn claim(
    disks: Arc<dyn Disks>,
    slots: &[DiskSlot],
    name: &GroupName,
    opener: &Opener,
    attendance: Attendance<'_>,
) -> Result<Arc<Membership>, GroupError> {
    let journal = attendance.journal.clone();
    let noted = Cell::new(None);
    let announce = |before: Option<&OpenerRecord>, own: &OpenerRecord| {
        if let (Some(journal), Some(before)) = (&journal, before) {
            journal.note_claim(claim_of(before), claim_of(own));
            noted.set(Some(claim_of(own)));
        }
    };
    let attendance = Attendance {
        announce: &announce,
        ..attendance
    };
    let membership = Membership::open_attended(disks, slots, name, opener, attendance);
    if let (Some(journal), Some(own)) = (&journal, noted.get())
        && let Err(error) = &membership
        && error.kind == GroupErrorKind::Contended
    {
        // The record stands on disks that somebody else may have written to since.
        journal.forget_claim(own);
    }
    membership.map(Arc::new)
}

fn corrupt(what: impl Into<String>) -> GroupError {
    GroupError::new(GroupErrorKind::Corrupt, what)
}

fn disk_table(
    membership: &Arc<Membership>,
    disks: Arc<dyn Disks>,
    catalog: &Catalog,
    opener: &Opener,
) -> Result<DiskTable, GroupError> {
    let mut list = Vec::new();
    for member in membership.members() {
        let (name, failure_group) = names(&member, catalog)?;
        list.push(NewDiskState {
            number: member.state.number,
            name,
            failure_group,
            group_index: member.state.failure_group,
            slot: member.slot,
            total_bytes: u64::from(member.state.size_aus) * membership.au_size().bytes(),
            holds_data: !member.state.quorum_only,
        });
    }
    Ok(DiskTable::new(
        disks,
        Arc::clone(membership),
        list,
        opener.preferred_failure_group.as_ref(),
    ))
}

/// The label's names, or for a disk that was not found those of its record.
fn names(
    member: &MemberView,
    catalog: &Catalog,
) -> Result<(DiskName, FailureGroupName), GroupError> {
    if let (Some(name), Some(failure_group)) = (&member.name, &member.failure_group) {
        return Ok((name.clone(), failure_group.clone()));
    }
    let number = member.state.number;
    let bytes = catalog
        .get(Table::Disk, &disk_key(number))?
        .ok_or_else(|| corrupt(format!("the catalog has no record of disk {number}")))
        .map_err(|error| error.on_disk(number))?;
    let record = DiskRecord::parse(&bytes).map_err(|error| {
        corrupt(format!("the record of disk {number} cannot be read"))
            .on_disk(number)
            .because(error)
    })?;
    Ok((record.name, record.failure_group))
}

/// Every file with its map, and the space that is left.
fn load(
    membership: &Membership,
    catalog: &Catalog,
    table: &DiskTable,
    region: &ReplicatedRegion,
    clients: &Arc<Clients>,
) -> Result<(Files, Arc<Space>, BadRuns), GroupError> {
    let au_size = membership.au_size();
    let space = Arc::new(Space::new(au_size, &table.sizes_bytes()));
    mark_catalog_runs(membership, &space)?;
    let files = load_files(catalog, au_size, clients)?;
    load_maps(catalog, &files, &space)?;
    let bad_runs = BadRuns::load(catalog, &space)?;
    region.set_space(Arc::clone(&space) as Arc<dyn RegionSpace>);
    Ok((files, space, bad_runs))
}

fn mark_catalog_runs(membership: &Membership, space: &Space) -> Result<(), GroupError> {
    for replica in membership.catalog_runs() {
        for run in &replica.runs {
            space
                .mark_used_aus(replica.disk, u64::from(run.start_au), u64::from(run.aus))
                .map_err(|conflict| {
                    corrupt(format!(
                        "the catalog's run at AU {} of disk {} {conflict}",
                        run.start_au, replica.disk
                    ))
                })?;
        }
    }
    Ok(())
}

fn load_files(
    catalog: &Catalog,
    au_size: AuSize,
    clients: &Arc<Clients>,
) -> Result<Files, GroupError> {
    let mut files = Vec::new();
    catalog.scan(Table::File, &mut |key, value| {
        let id = <[u8; 8]>::try_from(key)
            .map(|bytes| FileId(u64::from_be_bytes(bytes)))
            .map_err(|_| CatalogError::Damaged("a file's key has not 8 bytes".to_owned()))?;
        let record = FileRecord::parse(value)
            .map_err(|error| CatalogError::Damaged(format!("file {id}: {error}")))?;
        let layout = Layout {
            redundancy: record.redundancy,
            striping: record.striping,
        };
        let file = File::new(id, layout, au_size, clients);
        if record.rows_vary {
            file.map.load().let_rows_vary();
        }
        files.push((id, Arc::new(file)));
        Ok(())
    })?;
    Ok(files.into_iter().collect())
}

/// One pass over all rows, nothing allocated but the rows' own memory: this is the time of a
/// mount.
fn load_maps(catalog: &Catalog, files: &Files, space: &Space) -> Result<(), GroupError> {
    let mut marker = space.marker();
    let mut current: Option<&Arc<File>> = None;
    catalog.scan(Table::Extent, &mut |key, value| {
        let (id, number) = numbered_key(key)?;
        if current.is_none_or(|file| file.id != id) {
            current = files.get(&id);
        }
        let file = current.ok_or_else(|| {
            CatalogError::Damaged(format!(
                "row {number} belongs to file {id}, which is not there"
            ))
        })?;
        let row = ExtentRow::parse(value)
            .map_err(|error| CatalogError::Damaged(format!("file {id}, row {number}: {error}")))?;
        file.map
            .load()
            .load_row(number, &row, |index, copy| {
                marker
                    .mark_used(Run {
                        disk: copy.disk(),
                        start_block: copy.start_block(),
                        class: copy.class(),
                    })
                    .map_err(|conflict| {
                        format!(
                            "extent {index} at block {} of disk {} {conflict}",
                            copy.start_block(),
                            copy.disk()
                        )
                    })
            })
            .map_err(|what| CatalogError::Damaged(format!("file {id}: {what}")))
    })?;
    for file in files.values() {
        file.follow(&file.map.read());
    }
    Ok(())
}

/// Readers of files that some disk missed a part of look which; the disks that serve and lack
/// something.
fn note_stale(dirty: &DirtyRegions, files: &Files, table: &DiskTable) -> BTreeSet<DiskNumber> {
    let mut lacking = BTreeSet::new();
    for stale in dirty.stale_regions(&|_| true) {
        if let Some(file) = files.get(&stale.file) {
            file.may_be_stale.store(true, Ordering::Release);
        }
        if table.get(stale.disk).is_some_and(|disk| disk.is_online()) {
            // The disks are online already.
            drop(dirty.begin_resync());
            lacking.insert(stale.disk);
        }
    }
    lacking
}

fn load_dirty_regions(
    catalog: &Catalog,
    table: &DiskTable,
    dirty: &DirtyRegions,
    features: Features,
) -> Result<(), GroupError> {
    if features.contains(Feature::ListedRegions) {
        dirty.list_blocks();
    }
    catalog.scan(Table::DirtyRegion, &mut |key, value| {
        let (id, region) = numbered_key(key)?;
        let record = DirtyRecord::parse(value).map_err(|error| {
            CatalogError::Damaged(format!("file {id}, dirty region {region}: {error}"))
        })?;
        dirty.load(id, region, &record, &|disk| table.get(disk).is_some());
        Ok(())
    })?;
    Ok(())
}
