//! `dump`: the structures of unmounted disks, as they lie there.

use spindle_base::GroupName;

use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::api::view::DumpReport;
use crate::machine::discovery::Discovery;
use crate::machine::settings::Settings;
use crate::opened::dump::{dump_catalog, dump_disk};
use crate::opened::open::{Access, Opened};
use crate::serving::served;

/// The structures of a group's disks and up to `rows_most` rows of each table of its catalog.
///
/// # Errors
/// Where there is no such group, or it is open.
pub fn dump_group(
    settings: &Settings,
    name: &GroupName,
    rows_most: usize,
) -> ControlResult<DumpReport> {
    if served::find(settings, name.as_str())?.is_some() {
        return Err(ControlError::new(
            ControlErrorKind::Busy,
            format!(
                "the group {name} is open and its disks change: close it with `spindle group dismount {name}`, or dump single disks with --disk"
            ),
        ));
    }
    let discovery = Discovery::look(settings)?;
    let found = discovery.group(name.as_str())?;
    let disks = found
        .disks
        .iter()
        .map(|probe| dump_disk(probe, settings))
        .collect::<ControlResult<_>>()?;
    let opened = Opened::open_found(settings, &found, &Access::Look { force: true });
    let (catalog, note) = match opened.and_then(|opened| dump_catalog(&opened, rows_most)) {
        Ok(catalog) => (Some(catalog), None),
        Err(error) => (None, Some(error.message())),
    };
    Ok(DumpReport {
        disks,
        catalog,
        note,
    })
}
