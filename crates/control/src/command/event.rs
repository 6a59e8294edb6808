//! The events of groups, as commands ask for them.
//!
//! They are kept in the group itself (`spindle_group`): whoever serves it or has it open to
//! change it brings them there, with the time and this host's name. Here they are read, from
//! the process that serves the group or, where there is none, from its disks, without writing.

use std::collections::BTreeMap;

use spindle_base::GroupName;

use crate::api::calls::ShowEvents;
use crate::api::client::Client;
use crate::api::error::{ControlErrorKind, ControlResult};
use crate::api::event_filter::EventFilter;
use crate::api::view::EventReport;
use crate::machine::discovery::Discovery;
use crate::machine::settings::Settings;
use crate::machine::sockets;
use crate::opened::open::{Access, Opened};
use crate::serving::served;

/// The events of groups, and what comes after them.
#[derive(Debug)]
pub struct Events<'a> {
    settings: &'a Settings,
    group: Option<GroupName>,
    filter: EventFilter,
    /// The newest number seen of each group, and whether a process served it then.
    seen: BTreeMap<String, Seen>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    number: u64,
    served: bool,
}

impl<'a> Events<'a> {
    /// Of `group`, or of every group that is open or on the search path where `None`.
    #[must_use]
    pub const fn new(
        settings: &'a Settings,
        group: Option<GroupName>,
        filter: EventFilter,
    ) -> Self {
        Self {
            settings,
            group,
            filter,
            seen: BTreeMap::new(),
        }
    }

    /// Everything that the logs have, the oldest first.
    ///
    /// # Errors
    /// Where the group is not there or its log cannot be read; of several groups those that
    /// cannot be read are left out.
    pub fn all(&mut self) -> ControlResult<Vec<EventReport>> {
        let mut events = self.of_served()?;
        let discovery = Discovery::look(self.settings)?;
        match self.group.clone() {
            Some(name) if self.seen.is_empty() => {
                let found = discovery.group(name.as_str())?.name;
                events.extend(self.of_closed(&found)?);
            }
            Some(_) => {}
            None => {
                for found in discovery.groups() {
                    if self.is_seen(&found.name) {
                        continue;
                    }
                    match self.of_closed(&found.name) {
                        Ok(more) => events.extend(more),
                        Err(error) => tracing::warn!(group = %found.name, "{error:#}"),
                    }
                }
            }
        }
        Ok(in_order(events))
    }

    /// What was added since the last call. A group that nobody serves any more is looked at
    /// once, for what its process kept in the end.
    ///
    /// # Errors
    /// Where a process that is there cannot be asked.
    pub fn more(&mut self) -> ControlResult<Vec<EventReport>> {
        let served_before: Vec<String> = (self.seen.iter_mut())
            .filter_map(|(name, seen)| std::mem::take(&mut seen.served).then(|| name.clone()))
            .collect();
        let mut events = self.of_served()?;
        for name in served_before {
            if self.seen.get(&name).is_some_and(|seen| seen.served) {
                continue;
            }
            match self.of_closed(&name) {
                Ok(more) => events.extend(more),
                // It may be closing still, or be opened again at this moment: asked once more.
                Err(_) => {
                    if let Some(seen) = self.seen.get_mut(&name) {
                        seen.served = true;
                    }
                }
            }
        }
        Ok(in_order(events))
    }

    fn is_seen(&self, name: &str) -> bool {
        self.seen.keys().any(|seen| seen.eq_ignore_ascii_case(name))
    }

    fn of_served(&mut self) -> ControlResult<Vec<EventReport>> {
        let clients: Vec<Client> = match &self.group {
            Some(name) => served::find(self.settings, name.as_str())?
                .into_iter()
                .collect(),
            None => sockets::living(self.settings),
        };
        let asked = sockets::ask_each(&clients, |client| {
            let call = ShowEvents::from(&self.filter_of(client.group_name()));
            match self.group {
                Some(_) => client.ask(&call),
                None => client.ask_soon(&call),
            }
        });
        let mut events = Vec::new();
        for (client, answer) in clients.iter().zip(asked) {
            match answer {
                Ok(more) => {
                    self.note(client.group_name(), &more, true);
                    events.extend(more);
                }
                Err(error) if error.kind == ControlErrorKind::Silent => {
                    if self.group.is_some() {
                        return Err(error);
                    }
                    // The others are told all the same, and its disks are in use.
                    self.note(client.group_name(), &[], true);
                    tracing::warn!("{error:#}");
                }
                // It serves the group, so its disks cannot be read past it.
                Err(error) if error.kind == ControlErrorKind::Version => {
                    if self.group.is_some() {
                        return Err(error);
                    }
                    self.note(client.group_name(), &[], true);
                    tracing::warn!("{error:#}");
                }
                // A process that ends between the two is no failure: its group is closed then.
                Err(_) => {}
            }
        }
        Ok(events)
    }

    fn of_closed(&mut self, name: &str) -> ControlResult<Vec<EventReport>> {
        let access = Access::Look { force: false };
        let opened = Opened::open(self.settings, &GroupName::new(name)?, &access)?;
        let events = opened.events(&self.filter_of(name))?;
        self.note(name, &events, false);
        Ok(events)
    }

    fn filter_of(&self, name: &str) -> EventFilter {
        EventFilter {
            after: self.seen.get(name).map_or(0, |seen| seen.number),
            ..self.filter.clone()
        }
    }

    fn note(&mut self, name: &str, events: &[EventReport], served: bool) {
        let seen = self.seen.entry(name.to_owned()).or_default();
        seen.served = served;
        for event in events {
            seen.number = seen.number.max(event.number);
        }
    }
}

fn in_order(mut events: Vec<EventReport>) -> Vec<EventReport> {
    // Stable: within a group the numbers decide, whatever became of the clock.
    events.sort_by_key(|event| event.time_ms);
    events
}
