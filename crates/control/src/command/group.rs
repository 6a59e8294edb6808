//! Groups as a whole: list, show, examine, destroy, rename.

use spindle_base::{GroupName, Redundancy, Uuid};

use crate::api::calls::{CheckGroup, ListTemplates, RepairGroup, SetFault, ShowGroup};
use crate::api::client::Client;
use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::api::view::{
    CheckReport, DiskReport, GroupReport, GroupState, MountReport, TemplateReport,
};
use crate::command::reach::{reach, serving};
use crate::machine::discovery::{Discovery, FoundGroup};
use crate::machine::engine::Engine;
use crate::machine::held::Holder;
use crate::machine::settings::Settings;
use crate::machine::sockets;
use crate::opened::create::WantedGroup;
use crate::opened::open::{Access, Opened};
use crate::opened::{create, label};
use crate::serving::served;

/// Makes a group and shows it.
///
/// # Errors
/// Where a disk is not there, in use, too small, or holds something; where there are too few
/// failure groups; where the name is taken. Nothing was written then.
pub fn create_group(settings: &Settings, wanted: &WantedGroup) -> ControlResult<GroupReport> {
    create::make(settings, &checked(settings, wanted)?)
}

/// Whether a group could be made of these disks as they are; nothing is written on them.
///
/// # Errors
/// As [`create_group`].
pub fn check_new_group(settings: &Settings, wanted: &WantedGroup) -> ControlResult<()> {
    create::rehearse(settings, &checked(settings, wanted)?)
}

fn checked(settings: &Settings, wanted: &WantedGroup) -> ControlResult<WantedGroup> {
    let wanted = create::check(settings, wanted)?;
    let name = wanted.name.as_str();
    if served::find(settings, name)?.is_some() {
        return Err(ControlError::new(
            ControlErrorKind::Exists,
            format!("a group {name} is open already: choose another name"),
        ));
    }
    Ok(wanted)
}

/// Every group that is open or was found on the search path.
///
/// # Errors
/// Where the search path cannot be understood.
pub fn list_groups(settings: &Settings) -> ControlResult<Vec<GroupReport>> {
    let clients = sockets::living(settings);
    let answers = sockets::ask_each(&clients, |client| client.ask_soon(&ShowGroup {}));
    let mut reports = Vec::new();
    let mut silent = Vec::new();
    for (client, answer) in clients.iter().zip(answers) {
        match answer {
            Ok(report) => reports.push(report),
            Err(error) if error.kind == ControlErrorKind::Silent => silent.push((client, error)),
            // It ended meanwhile.
            Err(_) => {}
        }
    }
    let discovery = Discovery::look(settings)?;
    for found in discovery.groups() {
        let uuid = found.uuid.to_string();
        let is_meant = |name: &str| name.eq_ignore_ascii_case(&found.name);
        if let Some(index) = silent.iter().position(|it| is_meant(it.0.group_name())) {
            let (client, error) = silent.swap_remove(index);
            reports.push(silent_report(&found, client, error));
        } else if !reports.iter().any(|report| report.uuid == uuid) {
            reports.push(closed_report(settings, &discovery, &found));
        }
    }
    for (client, error) in silent {
        // Its disks are not on the search path: all that is known is its name.
        let found = FoundGroup {
            name: client.group_name().to_owned(),
            uuid: Uuid([0; 16]),
            disks: Vec::new(),
            overwritten: Vec::new(),
        };
        reports.push(silent_report(&found, client, error));
    }
    reports.sort_by(|left, right| left.name.cmp(&right.name));
    Ok(reports)
}

/// A group and its disks.
///
/// # Errors
/// Where there is no such group.
pub fn show_group(settings: &Settings, name: &str) -> ControlResult<GroupReport> {
    if let Some(client) = served::find(settings, name)? {
        return client.ask(&ShowGroup {});
    }
    let discovery = Discovery::look(settings)?;
    let found = discovery.group(name)?;
    Ok(closed_report(settings, &discovery, &found))
}

fn closed_report(
    settings: &Settings,
    discovery: &Discovery,
    found: &FoundGroup<'_>,
) -> GroupReport {
    let disk = found.disks.first().map(|probe| probe.path.as_path());
    match disk.map_or(Ok(None), |disk| Holder::find(found.uuid, disk)) {
        Ok(Some(holder)) if holder.stands_alone() => return held_report(found, &holder),
        // It is there and says nothing.
        Err(error) => {
            return GroupReport {
                state: GroupState::Held,
                ..broken_report(found, error.message())
            };
        }
        Ok(_) => {}
    }
    let open = |force: bool| {
        let found = discovery.group(&found.name)?;
        Opened::open_found(settings, &found, &Access::Look { force })
    };
    match open(false) {
        Ok(opened) => GroupReport::new(opened.group().view(), GroupState::Dismounted),
        // Somebody whose socket is not here has it: its sums are those of its last commit.
        Err(error) if error.kind == ControlErrorKind::Busy => match open(true) {
            Ok(opened) => {
                let mut report = GroupReport::new(opened.group().view(), GroupState::Mounted);
                report.note = Some(error.message());
                report
            }
            Err(_) => broken_report(found, error.message()),
        },
        Err(error) => broken_report(found, error.message()),
    }
}

/// A group that a keeper holds. Its disks are not opened: what they say is not all that there is.
fn held_report(found: &FoundGroup<'_>, holder: &Holder) -> GroupReport {
    let mounts = holder.directory.iter().map(|directory| MountReport {
        directory: directory.display().to_string(),
        direct: holder.direct,
    });
    GroupReport {
        state: GroupState::Held,
        keeper_process_id: Some(holder.keeper_process_id),
        mounts: mounts.collect(),
        ..broken_report(found, holder.told())
    }
}

/// A group whose process does not answer. Its disks are not opened: it may be a disk that hangs.
fn silent_report(found: &FoundGroup<'_>, client: &Client, error: ControlError) -> GroupReport {
    GroupReport {
        state: GroupState::Silent,
        process_id: Some(client.process_id()).filter(|id| *id != 0),
        ..broken_report(found, error.message())
    }
}

/// What the labels alone say.
fn broken_report(found: &FoundGroup<'_>, note: String) -> GroupReport {
    let labels = || found.disks.iter().filter_map(|probe| probe.label());
    let newest = found.disks.iter().filter_map(|probe| probe.state());
    GroupReport {
        name: found.name.clone(),
        uuid: found.uuid.to_string(),
        state: GroupState::Broken,
        redundancy: labels()
            .next()
            .map_or(Redundancy::External, |label| label.redundancy),
        profile: String::new(),
        sector_size_bytes: 512,
        block_size_bytes: spindle_base::BLOCK_SIZE_BYTES,
        au_size_bytes: labels().next().map_or(0, |label| label.au_size.bytes()),
        total_bytes: labels().map(|label| label.size_bytes).sum(),
        free_bytes: 0,
        required_mirror_free_bytes: 0,
        usable_bytes: 0,
        offline_disks_count: 0,
        epoch: newest.map(|state| state.epoch).max().unwrap_or(0),
        extents_count: 0,
        resync_left_bytes: 0,
        catalog_replicas_wanted: 0,
        fenced: None,
        process_id: None,
        keeper_process_id: None,
        mounts: Vec::new(),
        note: Some(note),
        disks: Vec::new(),
    }
}

/// Compares the maps, the space, the records and the names of a group, open or closed; with
/// `repair` it also puts right what can be without losing anything.
///
/// # Errors
/// Where there is no such group or it cannot be opened.
pub fn check_group(
    settings: &Settings,
    name: &GroupName,
    repair: bool,
) -> ControlResult<CheckReport> {
    if repair {
        return reach(settings, name, &RepairGroup {}, |opened| {
            let (contradictions, repaired) = opened.check_and_repair()?;
            Ok(CheckReport {
                group: opened.group_name().to_owned(),
                contradictions,
                repaired,
                events: Vec::new(),
            })
        });
    }
    reach(settings, name, &CheckGroup {}, |opened| {
        let contradictions = opened.check()?;
        Ok(CheckReport {
            group: opened.group_name().to_owned(),
            contradictions,
            repaired: Vec::new(),
            events: (opened.group().take_events().into_iter())
                .map(|event| event.message)
                .collect(),
        })
    })
}

/// The templates of a group, open or closed.
///
/// # Errors
/// Where there is no such group or it cannot be opened.
pub fn list_templates(settings: &Settings, name: &GroupName) -> ControlResult<Vec<TemplateReport>> {
    reach(settings, name, &ListTemplates {}, |opened| {
        Ok(opened.templates())
    })
}

/// Makes a disk of an open group answer as if its cable was pulled, or plugged in again.
///
/// # Errors
/// Where the group is not open or has no such disk.
pub fn set_fault(
    settings: &Settings,
    group: &str,
    disk: &str,
    pulled: bool,
) -> ControlResult<DiskReport> {
    let disk = disk.to_owned();
    serving(settings, group)?.ask(&SetFault { disk, pulled })
}

fn refuse_if_open(settings: &Settings, name: &str) -> ControlResult<()> {
    let Some(client) = served::find(settings, name)? else {
        return Ok(());
    };
    let report = client.ask(&ShowGroup {})?;
    Err(ControlError::new(
        ControlErrorKind::Busy,
        format!(
            "the group {} is open, by process {}: close it first with `spindle group dismount {}`",
            report.name,
            report.process_id.unwrap_or(0),
            report.name
        ),
    ))
}

/// What became of the disks of a group that was destroyed.
#[derive(Debug)]
pub struct DestroyedGroup {
    /// The paths of those that are free now.
    pub disks: Vec<String>,
    /// The numbers of those that were not found: their labels name the group as before.
    pub missing: Vec<u16>,
}

/// Makes former members of every disk of a closed group that was found. It need not be possible
/// to open it. `tell` hears why it takes long, where it does.
///
/// # Errors
/// Where it is open here or on another host, or a label cannot be written.
pub fn destroy_group(
    settings: &Settings,
    name: &GroupName,
    tell: &dyn Fn(&str),
) -> ControlResult<DestroyedGroup> {
    refuse_if_open(settings, name.as_str())?;
    let discovery = Discovery::look(settings)?;
    let found = discovery.group(name.as_str())?;
    label::refuse_if_open_elsewhere(settings, &found, tell)?;
    let engine = Engine::new(settings);
    let mut slots = Vec::new();
    for probe in &found.disks {
        probe.refuse_held()?;
        slots.push((engine.attach_to_own(&probe.path)?, *probe));
        probe.confirm(&settings.servers)?;
        probe.refuse_held_and_free()?;
    }
    label::make_former(&engine, &slots)?;
    let paths = found.disks.iter().map(|probe| &probe.path);
    Ok(DestroyedGroup {
        disks: paths.map(|path| path.display().to_string()).collect(),
        missing: discovery
            .missing(&found)
            .iter()
            .map(|number| number.0)
            .collect(),
    })
}

/// Gives a closed group another name.
///
/// # Errors
/// Where it is open, cannot be opened, or the name is taken.
pub fn rename_group(
    settings: &Settings,
    name: &GroupName,
    new_name: &GroupName,
) -> ControlResult<()> {
    refuse_if_open(settings, name.as_str())?;
    let discovery = Discovery::look(settings)?;
    let found = discovery.group(name.as_str())?;
    let taken = discovery.groups().into_iter().any(|group| {
        group.uuid != found.uuid && group.name.eq_ignore_ascii_case(new_name.as_str())
    });
    if taken || (served::find(settings, new_name.as_str())?.is_some()) {
        return Err(ControlError::new(
            ControlErrorKind::Exists,
            format!("there is a group {new_name} already: choose another name"),
        ));
    }
    let opened = Opened::open_found(settings, &found, &Access::Change)?;
    let renamed = opened.group().rename(new_name).map_err(ControlError::from);
    // Closed also where it was not renamed, so that it is not left open.
    let closed = opened.close();
    renamed.and(closed)
}
