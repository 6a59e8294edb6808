//! Background copying: what runs and waits in groups that are open, and a rebalance.

use spindle_base::GroupName;

use crate::api::calls::{Rebalance, ShowOperations};
use crate::api::error::ControlResult;
use crate::api::operations::OperationsReport;
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
        return Ok(vec![
            serving(settings, group.as_str())?.ask(&ShowOperations {})?,
        ]);
    }
    let clients = sockets::living(settings);
    let mut reports = Vec::new();
    for answer in sockets::ask_each(&clients, |client| client.ask_soon(&ShowOperations {})) {
        match answer {
            Ok(report) => reports.push(report),
            // Those of the others are told all the same.
            Err(error) => tracing::warn!("{error:#}"),
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
    serving(settings, group.as_str())?.ask(&Rebalance {
        power,
        default: false,
    })
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
    serving(settings, group.as_str())?.ask(&Rebalance {
        power: Some(power),
        default: true,
    })
}
