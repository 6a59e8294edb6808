//! Scrubs, asked of the process that serves the group.

use std::os::unix::ffi::OsStrExt;

use spindle_base::GroupName;

use crate::api::disk_request::DiskNames;
use crate::api::error::ControlResult;
use crate::api::query::append;
use crate::api::scrub::{ScrubReport, ScrubRequest};
use crate::command::reach::serving;
use crate::machine::settings::Settings;

/// Begins a scrub in the process that serves the group.
///
/// # Errors
/// Where the group is not open, a scrub runs, or the path, a disk or the power is none.
pub fn start_scrub(
    settings: &Settings,
    group: &GroupName,
    request: &ScrubRequest,
) -> ControlResult<ScrubReport> {
    let mut path = "/scrub/start".to_owned();
    if let Some(inside) = &request.path {
        append(&mut path, "path", inside.as_os_str().as_bytes());
    }
    append(&mut path, "repair", request.repair.to_string().as_bytes());
    if let Some(power) = request.power {
        append(&mut path, "power", power.to_string().as_bytes());
    }
    if let Some(disk) = &request.distrust {
        append(&mut path, "distrust", disk.as_bytes());
    }
    let names = DiskNames::of(&request.disks)?;
    serving(settings, group.as_str())?.post_json(&path, &names)
}

/// Ends the scrub that runs.
///
/// # Errors
/// Where the group is not open or none runs.
pub fn stop_scrub(settings: &Settings, group: &GroupName) -> ControlResult<ScrubReport> {
    serving(settings, group.as_str())?.post("/scrub/stop")
}

/// Changes the power of the scrub that runs; 0 lets it wait.
///
/// # Errors
/// Where the group is not open, none runs, or the power is out of range.
pub fn set_scrub_power(
    settings: &Settings,
    group: &GroupName,
    power: u16,
) -> ControlResult<ScrubReport> {
    let mut path = "/scrub/power".to_owned();
    append(&mut path, "power", power.to_string().as_bytes());
    serving(settings, group.as_str())?.post(&path)
}

/// The scrub that runs, or the last one.
///
/// # Errors
/// Where the group is not open, or none has run since it was opened.
pub fn show_scrub(settings: &Settings, group: &GroupName) -> ControlResult<ScrubReport> {
    serving(settings, group.as_str())?.get("/scrub")
}
