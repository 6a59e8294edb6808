//! Background copying: what runs and waits in groups that are open, and a rebalance.

use spindle_base::GroupName;

use crate::api::error::ControlResult;
use crate::api::operations::OperationsReport;
use crate::api::query::append;
use crate::command::reach::serving;
use crate::machine::settings::Settings;
use crate::machine::sockets;

/// What runs and what waits in every group that is open, or in one of them.
///
/// # Errors
/// Where the group that is asked for is not open.
pub fn list_operations(
    settings: &Settings,
    group: Option<&GroupName>,
) -> ControlResult<Vec<OperationsReport>> {
    if let Some(group) = group {
        return Ok(vec![serving(settings, group.as_str())?.get("/operations")?]);
    }
    let clients = sockets::living(settings);
    let mut reports = Vec::new();
    for answer in sockets::ask_each(&clients, |client| client.get_soon("/operations")) {
        match answer {
            Ok(report) => reports.push(report),
            // Those of the others are told all the same.
            Err(error) => tracing::warn!("{error}"),
        }
    }
    Ok(reports)
}

/// Asks for a rebalance, at a power of its own where one is given.
///
/// # Errors
/// Where the group is not open or the power is out of range.
pub fn rebalance_group(
    settings: &Settings,
    group: &GroupName,
    power: Option<u16>,
) -> ControlResult<OperationsReport> {
    let mut path = "/rebalance".to_owned();
    if let Some(power) = power {
        append(&mut path, "power", power.to_string().as_bytes());
    }
    serving(settings, group.as_str())?.post(&path)
}

/// Changes the group's own power.
///
/// # Errors
/// As [`rebalance_group`].
pub fn set_default_power(
    settings: &Settings,
    group: &GroupName,
    power: u16,
) -> ControlResult<OperationsReport> {
    let mut path = "/rebalance".to_owned();
    append(&mut path, "power", power.to_string().as_bytes());
    append(&mut path, "default", b"true");
    serving(settings, group.as_str())?.post(&path)
}
