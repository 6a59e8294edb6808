//! The events of groups, as commands ask for them.
//!
//! They are kept in the group itself (`spindle_group`): whoever serves it or has it open to
//! change it brings them there, with the time and this host's name. Here they are read, from
//! the process that serves the group or, where there is none, from its disks, without writing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use spindle_base::GroupName;

use crate::api::calls::ShowEvents;
use crate::api::client::Client;
use crate::api::error::{ControlErrorKind, ControlResult};
use crate::api::event_filter::EventFilter;
use crate::api::view::EventReport;
use crate::machine::discovery::Discovery;
use crate::machine::identity::opener_identity;
use crate::machine::settings::Settings;
use crate::machine::sockets;
use crate::opened::open::{Access, Opened};
use crate::serving::keeper::{KeeperClient, KeeperPhase, KeeperStatus};
use crate::serving::served;

/// How long a group is asked for that one process leaves and the next one takes.
const TAKEOVER_MOST: Duration = Duration::from_secs(30);
const TAKEOVER_INTERVAL: Duration = Duration::from_millis(50);

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

    /// Everything that the logs have, in a group's own order, and the oldest first among groups.
    ///
    /// # Errors
    /// Where the group is not there or its log cannot be read; of several groups those that
    /// cannot be read are left out.
    pub fn all(&mut self) -> ControlResult<Vec<EventReport>> {
        let begun = Instant::now();
        match self.group.clone() {
            Some(name) => loop {
                let mut events = self.of_served()?;
                if !self.seen.is_empty() {
                    return Ok(events);
                }
                if begun.elapsed() < TAKEOVER_MOST && self.is_between_two(name.as_str()) {
                    std::thread::sleep(TAKEOVER_INTERVAL);
                    continue;
                }
                match self.of_unserved(name.as_str()) {
                    // The process that was asked died, and the next one has the disks by now.
                    Err(error)
                        if error.kind == ControlErrorKind::Busy
                            && begun.elapsed() < TAKEOVER_MOST
                            && self.is_taken_over(name.as_str()) =>
                    {
                        std::thread::sleep(TAKEOVER_INTERVAL);
                    }
                    more => {
                        events.extend(more?);
                        return Ok(events);
                    }
                }
            },
            None => {
                let mut events = self.of_served()?;
                let mut names: Vec<String> = (Discovery::look(self.settings)?.groups().iter())
                    .map(|found| found.name.clone())
                    .collect();
                // Of one whose disks are not there its keeper still knows something.
                names.extend(self.held_names());
                for name in names {
                    if self.is_seen(&name) {
                        continue;
                    }
                    match self.of_unserved(&name) {
                        Ok(more) => events.extend(more),
                        Err(error) => tracing::warn!(group = %name, "{error:#}"),
                    }
                }
                Ok(self.in_order(events))
            }
        }
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
            match self.of_unserved(&name) {
                Ok(more) => events.extend(more),
                // It may be closing still, or be opened again at this moment: asked once more.
                Err(_) => {
                    if let Some(seen) = self.seen.get_mut(&name) {
                        seen.served = true;
                    }
                }
            }
        }
        Ok(self.in_order(events))
    }

    fn is_seen(&self, name: &str) -> bool {
        self.seen.keys().any(|seen| seen.eq_ignore_ascii_case(name))
    }

    fn of_served(&mut self) -> ControlResult<Vec<EventReport>> {
        let clients: Vec<Client> = match &self.group {
            Some(name) => match served::find(self.settings, name.as_str()) {
                Ok(client) => client.into_iter().collect(),
                Err(_) if self.holder(name.as_str()).is_some() => Vec::new(),
                Err(error) => return Err(error),
            },
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

    /// The keeper that holds the group after its processes died, where that is so.
    fn holder(&self, name: &str) -> Option<KeeperStatus> {
        let status = KeeperClient::find(self.settings, name)?.status().ok()?;
        (status.phase == KeeperPhase::GaveUp).then_some(status)
    }

    fn held_names(&self) -> Vec<String> {
        let keepers = KeeperClient::all(self.settings).into_iter();
        let statuses = keepers.filter_map(|keeper| keeper.status().ok());
        statuses
            .filter(|status| status.phase == KeeperPhase::GaveUp)
            .map(|status| status.group)
            .collect()
    }

    /// Whether a process serves the group now, or its keeper starts the next one.
    fn is_taken_over(&self, name: &str) -> bool {
        sockets::find_daemon(self.settings, name).is_ok_and(|client| client.is_some())
            || KeeperClient::find(self.settings, name).is_some()
    }

    /// Whether a keeper has not begun the next process yet, or not noticed that the last one died: the
    /// disks lack what the next one will tell.
    fn is_between_two(&self, name: &str) -> bool {
        let status =
            KeeperClient::find(self.settings, name).and_then(|keeper| keeper.status().ok());
        status.is_some_and(|status| {
            matches!(status.phase, KeeperPhase::Starting | KeeperPhase::Serving)
        })
    }

    fn of_unserved(&mut self, name: &str) -> ControlResult<Vec<EventReport>> {
        let Some(status) = self.holder(name) else {
            let found = Discovery::look(self.settings)?.group(name)?.name;
            return self.of_disks(&found, false);
        };
        // By force: the disks say what they took before, and nothing is written.
        let mut events = match self.of_disks(&status.group, true) {
            Ok(events) => events,
            Err(error) => {
                tracing::warn!("only what the keeper knows is shown: {error:#}");
                self.note(&status.group, &[], false);
                Vec::new()
            }
        };
        let (host, _) = opener_identity();
        let told = status.notices.iter();
        let told = told.map(|notice| notice.report(&status.group, &host));
        events.extend(told.filter(|event| self.filter.admits_unkept(event)));
        Ok(events)
    }

    fn of_disks(&mut self, name: &str, force: bool) -> ControlResult<Vec<EventReport>> {
        let access = Access::Look { force };
        let opened = Opened::open(self.settings, &GroupName::new(name)?, &access)?;
        let events = opened.events_with_paths(&self.filter_of(name))?;
        self.note(name, &events, false);
        Ok(events)
    }

    /// Of several groups the oldest first; of one the log's own order counts, whatever became of the
    /// clock.
    fn in_order(&self, mut events: Vec<EventReport>) -> Vec<EventReport> {
        if self.group.is_none() {
            events.sort_by_key(|event| event.time_ms);
        }
        events
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
