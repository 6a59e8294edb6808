//! Disks of a group come back, while a process serves it or here where none does.
//!
//! A disk that is open is asked at its place; one that was not there when the group was opened,
//! or that has another path since, is looked for on the search path by its label.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use spindle_base::DiskNumber;
use spindle_device::{AlignedBuffer, DiskSlot, Request, Work};
use spindle_format::Label;

use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::api::view::DiskChangesReport;
use crate::machine::discovery::Discovery;
use crate::machine::probe::{Probe, which_are_in_use};
use crate::machine::settings::Settings;
use crate::opened::open::Opened;

/// How long a disk that was found and not taken back is left alone, unless it changes.
const REFUSED_REST: Duration = Duration::from_secs(600);

/// Disks that were found by themselves and not taken back: what stood on each, and when.
#[derive(Debug, Default)]
pub(crate) struct RefusedReturns(BTreeMap<DiskNumber, (String, Instant)>);

impl RefusedReturns {
    fn is_refused(&self, disk: DiskNumber, probe: &Probe) -> bool {
        self.0.get(&disk).is_some_and(|(found, at)| {
            at.elapsed() < REFUSED_REST && *found == format!("{probe:?}")
        })
    }
}

impl Opened {
    /// Brings disks back that are offline; all that can be found where none is named.
    ///
    /// # Errors
    /// Where there is no such disk, one is online, cannot be found, or may not come back; nothing has
    /// changed then.
    pub fn online_disks(
        &self,
        settings: &Settings,
        disks: &[String],
    ) -> ControlResult<DiskChangesReport> {
        let slots = self.slots_of_away(settings, disks)?;
        let wanted = self.wanted_back(disks)?;
        let former: Vec<DiskSlot> = (wanted.iter())
            .filter_map(|disk| self.open_slot(*disk))
            .collect();
        let returned = self.group().return_disks(&slots);
        self.release_untaken(&slots);
        self.release_untaken(&former);
        returned?;
        let report = self.changes_report(&wanted);
        match report.disks.iter().find(|disk| disk.mode == "offline") {
            Some(failed) if !disks.is_empty() => Err(ControlError::new(
                ControlErrorKind::Io,
                format!("disk {} was found, but could not be written", failed.name),
            )),
            _ => Ok(report),
        }
    }

    fn wanted_back(&self, disks: &[String]) -> ControlResult<Vec<DiskNumber>> {
        if disks.is_empty() {
            return Ok(self.group().away_disks());
        }
        self.numbers(disks)
    }

    /// Where disks are open that are to come back, or are opened now.
    ///
    /// # Errors
    /// Where there is no such disk, or one that is named cannot be found.
    pub(super) fn slots_of_away(
        &self,
        settings: &Settings,
        disks: &[String],
    ) -> ControlResult<Vec<DiskSlot>> {
        let wanted = self.wanted_back(disks)?;
        let mut slots = Vec::new();
        for (index, disk) in wanted.iter().enumerate() {
            let missing = match self.slot_of_away(settings, *disk) {
                Ok(Some(slot)) => {
                    slots.push(slot);
                    continue;
                }
                Ok(None) if disks.is_empty() => continue,
                Ok(None) => ControlError::not_found(format!(
                    "disk {} is not on the search path: {}",
                    disks[index],
                    settings.search_path()
                )),
                Err(error) => error,
            };
            self.release_untaken(&slots);
            return Err(missing);
        }
        Ok(slots)
    }

    /// Takes back disks that went by themselves and are found elsewhere on the search path.
    ///
    /// # Errors
    /// Where the group had to stop.
    pub fn return_found(&self, settings: &Settings) -> ControlResult<()> {
        let is_gone =
            |disk: &DiskNumber| self.hangs(*disk).is_none() && self.answering_slot(*disk).is_none();
        let gone: Vec<DiskNumber> = (self.group().away_disks().into_iter())
            .filter(is_gone)
            .collect();
        if gone.is_empty() {
            return Ok(());
        }
        let Ok(discovery) = self.look_elsewhere(settings) else {
            return Ok(());
        };
        for disk in gone {
            if let Some(probe) = self.find_among(&discovery, settings, disk)
                && !self.refused_returns.lock().is_refused(disk, &probe)
                && let Some(look) = probe.structures()
                && self.group().is_welcome(disk, look)
                && let Ok(slot) = self.open_found_disk(&probe)
            {
                let former = self.open_slot(disk);
                let returned = self.group().return_by_itself(disk, slot);
                self.release_untaken(&[slot]);
                let returned = returned?;
                self.release_untaken(former.as_slice());
                let mut refused = self.refused_returns.lock();
                match returned {
                    Some(_) => refused.0.remove(&disk),
                    None => refused
                        .0
                        .insert(disk, (format!("{probe:?}"), Instant::now())),
                };
            }
        }
        Ok(())
    }

    /// Lets go of those of these disks that the group has no use for: found again, but not taken
    /// back, or taken back by another descriptor. Held on, they would be in use for whoever looks for
    /// them next.
    pub(super) fn release_untaken(&self, slots: &[DiskSlot]) {
        let taken: Vec<DiskSlot> = (self.group().open_disks().into_iter())
            .map(|(_, slot)| slot)
            .collect();
        for slot in slots.iter().filter(|slot| !taken.contains(slot)) {
            self.engine().release(*slot);
            self.forget_slot(*slot);
        }
    }

    /// Where a disk is open that is away, or is opened now.
    fn slot_of_away(
        &self,
        settings: &Settings,
        disk: DiskNumber,
    ) -> ControlResult<Option<DiskSlot>> {
        if let Some(path) = self.hangs(disk) {
            return Err(ControlError::new(
                ControlErrorKind::Busy,
                format!(
                    "{} hangs: the kernel still holds requests that were given to it; it comes \
                     back when it has answered them",
                    path.display()
                ),
            ));
        }
        match self.answering_slot(disk) {
            Some(slot) => Ok(Some(slot)),
            None => {
                let found = self.find_among(&self.look_elsewhere(settings)?, settings, disk);
                let found = found
                    .map(|probe| self.open_found_disk(&probe))
                    .transpose()?;
                // One that does not answer where it is open tells why itself.
                Ok(found.or_else(|| self.open_slot(disk)))
            }
        }
    }

    /// The path of a disk that was given up, while its late requests hold it. It is not even looked
    /// at: who does may wait as long as they do.
    fn hangs(&self, disk: DiskNumber) -> Option<PathBuf> {
        let slot = self.open_slot(disk)?;
        let disks = self.engine().disks();
        let path = disks
            .is_fenced(slot)
            .then(|| PathBuf::from(disks.path(slot)))?;
        (which_are_in_use(&[&path], self.engine().servers()) == [true]).then_some(path)
    }

    fn open_slot(&self, disk: DiskNumber) -> Option<DiskSlot> {
        let open = self.group().open_disks();
        let found = open.into_iter().find(|(number, _)| *number == disk);
        found.map(|(_, slot)| slot)
    }

    fn answering_slot(&self, disk: DiskNumber) -> Option<DiskSlot> {
        let slot = self.open_slot(disk)?;
        let mut page = AlignedBuffer::zeroed(4096);
        let mut batch = [Request::new(slot, 0, Work::Read(&mut page))];
        self.engine().disks().run(&mut batch);
        batch[0].result.is_ok().then_some(slot)
    }

    /// The disks of the search path that nobody has.
    fn look_elsewhere(&self, settings: &Settings) -> ControlResult<Discovery> {
        // What somebody holds is not looked at: it may hang, and who looks would wait as long.
        let mut paths = settings.disk_paths()?;
        let refs: Vec<&Path> = paths.iter().map(|path| &**path).collect();
        let mut in_use = which_are_in_use(&refs, &settings.servers).into_iter();
        paths.retain(|_| in_use.next() == Some(false));
        Ok(Discovery::look_at(&paths, settings))
    }

    /// A disk that bears the label of one that is away, where nobody else has it.
    fn find_among(
        &self,
        discovery: &Discovery,
        settings: &Settings,
        disk: DiskNumber,
    ) -> Option<Probe> {
        let uuid = self.group().view().uuid;
        let is_it = |label: &Label| {
            label.group_uuid == uuid
                && label.number == disk
                && self.group().disk_of_uuid(label.disk_uuid) == Some(disk)
        };
        let groups = discovery.groups();
        let mut members = (groups.iter()).flat_map(|found| found.disks.iter().copied());
        let member = members.find(|probe| {
            // A path that is held already and does not answer may have come back as another
            // device; one that is held and in use has not.
            probe.label().is_some_and(is_it)
                && !probe.is_cut_off()
                && which_are_in_use(&[&probe.path], &settings.servers) == [false]
        });
        // One that was overwritten is refused by the group, which says what stands there.
        let was_it = |probe: &&Probe| {
            (probe.overwritten()).is_some_and(|overwritten| is_it(&overwritten.label))
        };
        let found = member.or_else(|| discovery.probes.iter().find(was_it));
        found.cloned()
    }

    fn open_found_disk(&self, probe: &Probe) -> ControlResult<DiskSlot> {
        let slot = self.engine().attach_to_own(&probe.path)?;
        self.note_slot(slot, probe.path.clone());
        Ok(slot)
    }
}
