//! What a change would cost, asked of the process that serves the group or of its disks.

use spindle_base::GroupName;

use crate::api::calls::EstimateChange;
use crate::api::error::ControlResult;
use crate::api::estimate::{EstimateReport, EstimateRequest};
use crate::command::reach::reach;
use crate::machine::path::absolute;
use crate::machine::settings::Settings;

/// Tells what a change would cost; nothing is changed.
///
/// # Errors
/// What the change itself would be refused with.
pub fn estimate(
    settings: &Settings,
    group: &GroupName,
    request: &EstimateRequest,
) -> ControlResult<EstimateReport> {
    let mut request = request.clone();
    if let Some(disks) = &mut request.disks {
        let replacing = disks.replace.iter_mut().map(|item| &mut item.with);
        for disk in disks.add.iter_mut().chain(replacing) {
            disk.path = absolute(&disk.path)?;
        }
    }
    request.check_size()?;
    let call = EstimateChange { body: request };
    reach(settings, group, &call, |opened| {
        opened.estimate(settings, &call.body)
    })
}
