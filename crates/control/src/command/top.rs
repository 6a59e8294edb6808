//! Everything about one open group that a screen shows at a time: `spindle top`.

use std::collections::VecDeque;

use crate::api::calls::{ShowActivity, ShowEvents, ShowGroup, ShowHealth, ShowOperations};
use crate::api::client::Client;
use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::api::event_filter::EventFilter;
use crate::api::top::TopReport;
use crate::api::view::{ActivitySample, EventReport};
use crate::command::iostat::rates;
use crate::command::reach::serving;
use crate::machine::settings::Settings;
use crate::machine::sockets;

/// The newest events that are shown.
const EVENTS_MOST: usize = 16;

/// Looks at one group again and again. Where another process takes over it goes on with that one.
#[derive(Debug)]
pub struct Top {
    settings: Settings,
    group: String,
    client: Client,
    before: ActivitySample,
    events: VecDeque<EventReport>,
}

impl Top {
    /// Takes the first sample; of the only group that is open where none is named.
    ///
    /// # Errors
    /// Where there is no such group, it is not open, or it does not answer; where none is named, and
    /// not exactly one is open.
    pub fn begin(settings: &Settings, group: Option<&str>) -> ControlResult<Self> {
        let group = match group {
            Some(group) => group.to_owned(),
            None => only_group(settings)?,
        };
        let client = serving(settings, &group)?;
        let before = client.ask(&ShowActivity {})?;
        Ok(Self {
            settings: settings.clone(),
            group,
            client,
            before,
            events: VecDeque::new(),
        })
    }

    /// The group that is looked at.
    #[must_use]
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The group now; of its files, the `files_most` busiest since the last call.
    ///
    /// # Errors
    /// Where the process that serves it does not answer; asked again, the next one is looked for.
    pub fn next(&mut self, files_most: usize) -> ControlResult<TopReport> {
        let looked = self.look(files_most);
        if looked.is_err() {
            self.client = serving(&self.settings, &self.group)?;
        }
        looked
    }

    fn look(&mut self, files_most: usize) -> ControlResult<TopReport> {
        let after = self.client.ask(&ShowActivity {})?;
        let activity = rates(&self.before, &after, files_most);
        self.before = after;
        let group = self.client.ask(&ShowGroup {})?;
        let health = self.client.ask(&ShowHealth {})?;
        let operations = self.client.ask(&ShowOperations {})?;
        let filter = EventFilter {
            after: self.events.back().map_or(0, |event| event.number),
            ..EventFilter::default()
        };
        self.events
            .extend(self.client.ask(&ShowEvents::from(&filter))?);
        let surplus = self.events.len().saturating_sub(EVENTS_MOST);
        self.events.drain(..surplus);
        Ok(TopReport {
            group,
            health,
            operations,
            activity,
            events: self.events.iter().cloned().collect(),
        })
    }
}

fn only_group(settings: &Settings) -> ControlResult<String> {
    let clients = sockets::living(settings);
    let names: Vec<&str> = clients.iter().map(Client::group_name).collect();
    match names[..] {
        [name] => Ok(name.to_owned()),
        [] => Err(ControlError::new(
            ControlErrorKind::NotFound,
            "no group is open: `spindle mount GROUP DIR` or `spindle group mount GROUP` opens one",
        )),
        _ => Err(ControlError::invalid(format!(
            "several groups are open: name one of {}",
            names.join(", ")
        ))),
    }
}
