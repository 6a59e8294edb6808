//! Scrubs, asked of the process that serves the group.

use spindle_base::GroupName;

use crate::api::calls::{SetScrubPower, ShowScrub, StartScrub, StopScrub};
use crate::api::disk_request::DiskNames;
use crate::api::error::ControlResult;
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
    let call = StartScrub {
        path: request.path.clone(),
        repair: request.repair,
        power: request.power,
        distrust: request.distrust.clone(),
        by: None,
        body: DiskNames::of(&request.disks)?,
    };
    serving(settings, group.as_str())?.ask(&call)
}

/// Ends the scrub that runs.
///
/// # Errors
/// Where the group is not open or none runs.
pub fn stop_scrub(settings: &Settings, group: &GroupName) -> ControlResult<ScrubReport> {
    serving(settings, group.as_str())?.ask(&StopScrub {})
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
    serving(settings, group.as_str())?.ask(&SetScrubPower { power })
}

/// The scrub that runs, or the last one.
///
/// # Errors
/// Where the group is not open, or none has run since it was opened.
pub fn show_scrub(settings: &Settings, group: &GroupName) -> ControlResult<ScrubReport> {
    serving(settings, group.as_str())?.ask(&ShowScrub {})
}
