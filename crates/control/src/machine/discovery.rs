//! Which disks there are on the search path, and which groups they make up.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use spindle_base::{DiskNumber, Uuid};
use spindle_group::Overwritten;

use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::api::nearness::suggestion;
use crate::api::view::{DiskStatus, ScanReport};
use crate::machine::held::Holder;
use crate::machine::nfs::NfsServers;
use crate::machine::probe::{Probe, look_at_all, which_are_in_use};
use crate::machine::settings::Settings;

/// So much of each plain file that seems to be free is read by a scan. Before it is used all of it
/// is.
const SCANNED_BYTES_MAX: u64 = 16 << 20;

/// The disks of the search path.
#[derive(Debug)]
pub(crate) struct Discovery {
    /// Every disk there, in the order of the search path.
    pub probes: Vec<Probe>,
    servers: NfsServers,
    search_path: String,
}

/// The disks of one group, of those that were found.
#[derive(Debug)]
pub struct FoundGroup<'a> {
    /// Its name, as the newest group state among them has it.
    pub name: String,
    /// Its identity.
    pub uuid: Uuid,
    /// Its disks in the order of their numbers; a number twice is a conflict.
    pub disks: Vec<&'a Probe>,
    /// Disks that were its members before their beginning was overwritten: left as they are.
    pub overwritten: Vec<&'a Probe>,
}

impl Discovery {
    /// Looks at every disk of the search path.
    ///
    /// # Errors
    /// Where a pattern of the search path is none.
    pub(crate) fn look(settings: &Settings) -> ControlResult<Self> {
        Ok(Self::look_at(&settings.disk_paths()?, settings))
    }

    /// Looks at these disks.
    #[must_use]
    pub(crate) fn look_at(paths: &[PathBuf], settings: &Settings) -> Self {
        Self {
            probes: look_at_all(paths, &settings.servers),
            servers: settings.servers.clone(),
            search_path: settings.search_path(),
        }
    }

    /// Every group, by name.
    #[must_use]
    pub(crate) fn groups(&self) -> Vec<FoundGroup<'_>> {
        let mut by_uuid: BTreeMap<Uuid, Vec<&Probe>> = BTreeMap::new();
        for probe in &self.probes {
            if let Some(label) = probe.member() {
                by_uuid.entry(label.group_uuid).or_default().push(probe);
            }
        }
        let mut groups: Vec<FoundGroup<'_>> = by_uuid
            .into_iter()
            .map(|(uuid, mut disks)| {
                disks.sort_by_key(|probe| probe.label().map(|label| label.number));
                let newest = disks
                    .iter()
                    .max_by_key(|probe| probe.state().map(|state| state.epoch));
                let name = newest.and_then(|probe| probe.group_name());
                let was_its = |probe: &&Probe| {
                    (probe.overwritten()).is_some_and(|found| found.label.group_uuid == uuid)
                };
                FoundGroup {
                    name: name.unwrap_or_default(),
                    uuid,
                    disks,
                    overwritten: self.probes.iter().filter(was_its).collect(),
                }
            })
            .collect();
        groups.sort_by(|left, right| left.name.cmp(&right.name));
        groups
    }

    /// The one group of that name.
    ///
    /// # Errors
    /// Where there is none, where there are two, where a disk was cut off, and where two disks
    /// have one identity.
    pub(crate) fn group(&self, name: &str) -> ControlResult<FoundGroup<'_>> {
        let mut groups = self.groups();
        let names: Vec<String> = groups.iter().map(|group| group.name.clone()).collect();
        groups.retain(|group| group.name.eq_ignore_ascii_case(name));
        let group = match groups.len() {
            0 => return Err(self.unknown(name, &names)),
            1 => groups.swap_remove(0),
            _ => {
                return Err(ControlError::new(
                    ControlErrorKind::Exists,
                    format!(
                        "two groups are called {name}, one with {}, one with {}: name the disks of the one that is meant with --disks",
                        groups[0].disks[0].path.display(),
                        groups[1].disks[0].path.display()
                    ),
                ));
            }
        };
        let label = group.disks.iter().find_map(|probe| probe.label());
        let newer = label.and_then(|label| {
            let newer = |probe: &Probe| probe.newer(label.group_uuid);
            (self.probes.iter()).find_map(|probe| Some((probe, newer(probe)?)))
        });
        if let Some((probe, why)) = newer {
            return Err(ControlError::invalid(format!(
                "group {} is in use by a newer program: on {} {why}; use that program",
                group.name,
                probe.path.display(),
            )));
        }
        // One that is cut off is left out where the redundancy bears it: the group judges that.
        let unusable = group
            .disks
            .iter()
            .find(|probe| probe.status() == DiskStatus::Unusable && !probe.is_cut_off());
        if let Some(probe) = unusable {
            return Err(ControlError::new(
                ControlErrorKind::Corrupt,
                format!(
                    "{} is {}: restore it, or leave it out with --disks to go on without it",
                    probe.path.display(),
                    probe.found()
                ),
            ));
        }
        if let Some((first, second)) = conflict(&group.disks) {
            return Err(ControlError::new(
                ControlErrorKind::Exists,
                format!(
                    "{} and {} have one identity (disk {} of {}): one is a copy; take it away or leave it out with --disks",
                    first.path.display(),
                    second.path.display(),
                    first.label().map(|label| label.number.0).unwrap_or(0),
                    group.name
                ),
            ));
        }
        Ok(group)
    }

    fn unknown(&self, name: &str, names: &[String]) -> ControlError {
        let looked = match self.probes.len() {
            0 => format!("no disk was found on {}", self.search_path),
            1 => format!("1 disk was looked at: {}", self.search_path),
            count => format!("{count} disks were looked at: {}", self.search_path),
        };
        let unusable = self
            .probes
            .iter()
            .find(|probe| {
                let was_its = |found: &Overwritten| {
                    found.label.group_name.as_str().eq_ignore_ascii_case(name)
                };
                probe.status() == DiskStatus::Unusable || probe.overwritten().is_some_and(was_its)
            })
            .map(|probe| format!("; {} is unusable ({})", probe.path.display(), probe.found()))
            .unwrap_or_default();
        let hint = suggestion(name, "other group", names.iter().map(String::as_str));
        ControlError::not_found(format!(
            "there is no group {name}; {hint} ({looked}{unusable}; set --disks or SPINDLE_DISKS to look elsewhere)"
        ))
    }

    /// The disks as a listing shows them.
    #[must_use]
    pub(super) fn report(&self) -> ScanReport {
        let paths: Vec<&Path> = self.probes.iter().map(|probe| &*probe.path).collect();
        let mut disks: Vec<_> = (self.probes.iter())
            .zip(which_are_in_use(&paths, &self.servers))
            .map(|(probe, in_use)| probe.report(in_use))
            .collect();
        for (disk, keeper) in self.held() {
            disks[disk].in_use = true;
            let found = &mut disks[disk].found;
            *found = format!("{found}, which the keeper {keeper} holds");
        }
        for (index, probe) in self.probes.iter().enumerate() {
            let Some(label) = probe.member() else {
                continue;
            };
            let twin = self.probes.iter().enumerate().find(|(other, candidate)| {
                *other != index
                    && candidate
                        .member()
                        .is_some_and(|other| other.disk_uuid == label.disk_uuid)
            });
            if let Some((_, twin)) = twin {
                disks[index].status = DiskStatus::Conflict;
                disks[index].found = format!("has the identity of {}: a copy", twin.path.display());
            }
        }
        ScanReport {
            search_path: self.search_path.clone(),
            disks,
        }
    }
}

impl Discovery {
    /// Members of a group that are not here, as members or as what they are now, by the newest group
    /// state of those that are.
    pub(crate) fn missing(&self, group: &FoundGroup<'_>) -> Vec<DiskNumber> {
        let states = group.disks.iter().filter_map(|probe| probe.state());
        let Some(newest) = states.max_by_key(|state| state.epoch) else {
            return Vec::new();
        };
        let overwritten = |probe: &Probe| Some(probe.overwritten()?.label.as_ref().clone());
        let is_here = |number| {
            let mut labels = (self.probes.iter())
                .filter_map(|probe| probe.label().cloned().or_else(|| overwritten(probe)));
            labels.any(|label| label.group_uuid == group.uuid && label.number == number)
        };
        let numbers = newest.disks.iter().map(|disk| disk.number);
        numbers.filter(|number| !is_here(*number)).collect()
    }

    /// Members of groups that a keeper holds while no process has them open, by their place, with
    /// the keeper's process.
    fn held(&self) -> Vec<(usize, u32)> {
        let mut keepers: BTreeMap<Uuid, Option<u32>> = BTreeMap::new();
        let mut held = Vec::new();
        for (index, probe) in self.probes.iter().enumerate() {
            let Some(label) = probe.member() else {
                continue;
            };
            let keeper = keepers.entry(label.group_uuid).or_insert_with(|| {
                let holder = Holder::find(label.group_uuid, &probe.path).ok().flatten();
                let holder = holder.filter(Holder::stands_alone);
                holder.map(|holder| holder.keeper_process_id)
            });
            held.extend(keeper.map(|keeper| (index, keeper)));
        }
        held
    }
}

impl FoundGroup<'_> {
    /// Each of its disks that were overwritten: which, what stands there, and what to do.
    pub(crate) fn told_of_overwritten(&self) -> Vec<String> {
        (self.overwritten.iter())
            .filter_map(|probe| {
                let found = probe.overwritten()?;
                let (path, advice) = (probe.path.display(), found.advice());
                Some(format!("{path} is passed over: {found}; {advice}"))
            })
            .collect()
    }
}

/// Two disks with one identity or one number.
fn conflict<'a>(disks: &[&'a Probe]) -> Option<(&'a Probe, &'a Probe)> {
    disks.windows(2).find_map(|pair| {
        let (first, second) = (pair[0].label()?, pair[1].label()?);
        (first.number == second.number).then_some((pair[0], pair[1]))
    })
}

/// Lists every disk of the search path with what stands on it.
///
/// # Errors
/// Where a pattern of the search path is none.
pub fn scan(settings: &Settings) -> ControlResult<ScanReport> {
    let mut discovery = Discovery::look(settings)?;
    for probe in &mut discovery.probes {
        probe.look_for_data(SCANNED_BYTES_MAX, &settings.servers);
    }
    Ok(discovery.report())
}
