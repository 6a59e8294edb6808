//! Groups at a glance: `spindle status`.

use std::path::Path;

use spindle_base::GroupName;

use crate::api::calls::{ShowForecast, ShowOperations, ShowScrub};
use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::api::event_filter::EventFilter;
use crate::api::scrub_log::last_scrub;
use crate::api::status::{StatusReport, UserReport};
use crate::api::view::{EventReport, GroupReport, GroupState};
use crate::command::event::Events;
use crate::command::group::{list_groups, show_group};
use crate::command::health::check_health;
use crate::machine::process::users_of;
use crate::machine::settings::Settings;
use crate::serving::served;

/// The newest events that are shown.
const EVENTS_MOST: usize = 5;

/// One group, or every group that is open or on the search path.
///
/// # Errors
/// Where there is no such group, or none at all.
pub fn show_status(
    settings: &Settings,
    name: Option<&GroupName>,
) -> ControlResult<Vec<StatusReport>> {
    let groups = match name {
        Some(name) => vec![show_group(settings, name.as_str())?],
        None => list_groups(settings)?,
    };
    if groups.is_empty() {
        return Err(ControlError::not_found(format!(
            "no group is open, and none was found on the search path: {}",
            settings.search_path()
        )));
    }
    let status = |group| status_of(settings, group);
    groups.into_iter().map(status).collect()
}

fn status_of(settings: &Settings, group: GroupReport) -> ControlResult<StatusReport> {
    let name = GroupName::new(&group.name)
        .map_err(|error| ControlError::invalid(format!("{}: {error}", group.name)))?;
    let mut reports = check_health(settings, Some(&name))?;
    let health = reports.pop().ok_or_else(|| {
        ControlError::new(ControlErrorKind::NotFound, format!("{name} has just gone"))
    })?;
    let client = match group.state {
        GroupState::Mounted => {
            told_in_the_log(&group.name, served::find(settings, &group.name)).flatten()
        }
        _ => None,
    };
    // One that has just stopped answering does not hide the other groups: its health says so.
    let operations = client.as_ref().and_then(|client| {
        let answer = client.ask(&ShowOperations {});
        told_in_the_log(&group.name, answer)
    });
    let forecast = client.as_ref().and_then(|client| {
        let answer = client.ask(&ShowForecast {});
        told_in_the_log(&group.name, answer)
    });
    let scrub = client
        .as_ref()
        .and_then(|client| match client.ask(&ShowScrub {}) {
            Err(error) if error.kind == ControlErrorKind::NotFound => None,
            answer => told_in_the_log(&group.name, answer),
        });
    let users = group.mounts.iter().flat_map(|mount| {
        let users = users_of(Path::new(&mount.directory));
        users.into_iter().map(|user| UserReport {
            process_id: user.process_id,
            name: user.name,
            how: user.how,
            directory: mount.directory.clone(),
        })
    });
    let mut events = all_events(settings, name);
    Ok(StatusReport {
        health,
        operations: operations.map_or_else(Vec::new, |report| report.operations),
        forecast,
        scrub,
        last_scrub: last_scrub(&events),
        users: users.collect(),
        events: events.split_off(events.len().saturating_sub(EVENTS_MOST)),
        group,
    })
}

fn all_events(settings: &Settings, name: GroupName) -> Vec<EventReport> {
    let group = name.to_string();
    let mut log = Events::new(settings, Some(name), EventFilter::default());
    told_in_the_log(&group, log.all()).unwrap_or_default()
}

fn told_in_the_log<T>(group: &str, answer: ControlResult<T>) -> Option<T> {
    answer
        .inspect_err(|error| tracing::warn!(group = %group, "{error:#}"))
        .ok()
}
