//! Changes of the disks, as the page makes them: first what one would cost, then, with the ticket
//! that came with that, the change.
//!
//! A ticket stands for the very request that was judged, is good once, for five minutes, and only
//! while the group's state is the one that was judged: what a person saw is what is done.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::access::random_text;
use crate::api::calls::{BringOnline, ChangeDisks, EstimateChange, ShowGroup, TakeOffline};
use crate::api::client::Client;
use crate::api::disk_request::{DiskChangesRequest, DiskNames};
use crate::api::door;
use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::api::estimate::{EstimateReport, EstimateRequest};
use crate::api::query::body_of;
use crate::api::view::DiskChangesReport;
use crate::command::reach::serving;
use crate::machine::settings::Settings;

/// How long a dry run may be looked at before it has to be made again.
const TICKET_MOST: Duration = Duration::from_secs(300);
/// Dry runs that are kept; the oldest goes.
const TICKETS_MOST: usize = 32;
/// How long what is left to move is told again without being computed anew.
const MOVES_FRESH: Duration = Duration::from_secs(5);

/// Changes of one group.
#[derive(Debug)]
pub(super) struct Changes {
    settings: Settings,
    group: String,
    tickets: Mutex<Tickets>,
    moves: Mutex<Option<(Instant, EstimateReport)>>,
}

/// A dry run that was shown.
#[derive(Debug)]
struct Ticket {
    name: String,
    request: EstimateRequest,
    epoch: u64,
    made: Instant,
}

#[derive(Debug, Default)]
struct Tickets(VecDeque<Ticket>);

impl Tickets {
    fn put(&mut self, ticket: Ticket) {
        self.0.push_back(ticket);
        while self.0.len() > TICKETS_MOST {
            self.0.pop_front();
        }
    }

    /// Takes the ticket of that name, which is good no more then.
    fn take(&mut self, name: &str, now: Instant) -> ControlResult<Ticket> {
        let place = self.0.iter().position(|ticket| ticket.name == name);
        let ticket = place.and_then(|place| self.0.remove(place));
        let young = |ticket: &Ticket| now.saturating_duration_since(ticket.made) < TICKET_MOST;
        ticket.filter(young).ok_or_else(|| {
            ControlError::invalid(
                "no dry run of the last five minutes belongs to this change, or it was made already: look at the dry run again",
            )
        })
    }
}

/// A dry run, and the ticket that makes the change.
#[derive(Debug, Serialize)]
pub(super) struct Judged {
    ticket: String,
    command: String,
    report: EstimateReport,
}

/// The ticket that comes back.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    ticket: String,
}

impl Changes {
    pub(super) fn new(settings: &Settings, group: &str) -> Self {
        Self {
            settings: settings.clone(),
            group: group.to_owned(),
            tickets: Mutex::default(),
            moves: Mutex::default(),
        }
    }

    fn client(&self) -> ControlResult<Client> {
        Ok(serving(&self.settings, &self.group)?.by_door(door::CONSOLE))
    }

    /// What is left to move, from disk to disk.
    ///
    /// # Errors
    /// Where the group does not answer.
    pub(super) fn moves(&self) -> ControlResult<EstimateReport> {
        let mut moves = self.moves.lock();
        if let Some((at, report)) = &*moves
            && at.elapsed() < MOVES_FRESH
        {
            return Ok(report.clone());
        }
        let body = EstimateRequest::default();
        let report = self.client()?.ask(&EstimateChange { body })?;
        *moves = Some((Instant::now(), report.clone()));
        Ok(report)
    }

    /// Tells what a change would cost, and gives a ticket for it.
    ///
    /// # Errors
    /// What the change itself would be refused with.
    pub(super) fn estimate(&self, body: &[u8]) -> ControlResult<Judged> {
        let request: EstimateRequest = body_of(body)?;
        request.check_size()?;
        let command = command_of(&self.group, &request)?;
        let client = self.client()?;
        // Before the estimate: a state that changes beside it makes the ticket worthless.
        let epoch = client.ask(&ShowGroup {})?.epoch;
        let report = client.ask(&EstimateChange {
            body: request.clone(),
        })?;
        let name = random_text()?;
        self.tickets.lock().put(Ticket {
            name: name.clone(),
            request,
            epoch,
            made: Instant::now(),
        });
        Ok(Judged {
            ticket: name,
            command,
            report,
        })
    }

    /// Makes the change that was judged.
    ///
    /// # Errors
    /// Where no ticket says so, the group has changed since, or it refuses.
    pub(super) fn make(&self, body: &[u8]) -> ControlResult<DiskChangesReport> {
        let wanted: Wanted = body_of(body)?;
        let ticket = self.tickets.lock().take(&wanted.ticket, Instant::now())?;
        let client = self.client()?;
        if client.ask(&ShowGroup {})?.epoch != ticket.epoch {
            return Err(ControlError::new(
                ControlErrorKind::Busy,
                "the group has changed since the dry run: look at it again",
            ));
        }
        *self.moves.lock() = None;
        let request = ticket.request;
        if let Some(names) = &request.offline {
            let body = DiskNames::of(names)?;
            return client.ask(&TakeOffline { body });
        }
        if let Some(names) = &request.online {
            let body = DiskNames::of(names)?;
            return client.ask(&BringOnline { body });
        }
        let body = request.disks.unwrap_or_default();
        client.ask(&ChangeDisks { body })
    }
}

/// The command that does the same, for the page to show.
///
/// # Errors
/// Where it is not one of the changes that the console makes: one of adding, dropping, keeping,
/// taking offline and bringing online, by disks with whole paths, and nothing by force.
fn command_of(group: &str, request: &EstimateRequest) -> ControlResult<String> {
    let named = |verb: &str, names: &[String]| match names {
        [] => Err(ControlError::invalid("no disk is named")),
        _ => Ok(format!("spindle disk {verb} {group} {}", names.join(" "))),
    };
    match (&request.disks, &request.offline, &request.online) {
        (None, Some(names), None) => named("offline", names),
        (None, None, Some(names)) => named("online", names),
        (Some(disks), None, None) => of_disks(group, disks, named),
        _ => Err(ControlError::invalid("name one change")),
    }
}

fn of_disks(
    group: &str,
    disks: &DiskChangesRequest,
    named: impl Fn(&str, &[String]) -> ControlResult<String>,
) -> ControlResult<String> {
    let is_beyond = disks.overwrite
        || disks.force
        || !disks.replace.is_empty()
        || !disks.resize.is_empty()
        || disks.add.iter().any(|disk| disk.make_bytes.is_some());
    if is_beyond {
        return Err(ControlError::invalid(
            "the console adds disks that are there, drops, keeps, takes offline and brings online, and forces nothing: the rest is done by `spindle disk`",
        ));
    }
    if let Some(disk) = disks.add.iter().find(|disk| !disk.path.is_absolute()) {
        let path = disk.path.display();
        return Err(ControlError::invalid(format!(
            "{path:?} is not a whole path"
        )));
    }
    match (&disks.add[..], &disks.drop[..], &disks.undrop[..]) {
        (added @ [_, ..], [], []) => {
            let mut command = format!("spindle disk add {group}");
            for disk in added {
                let path = disk.path.display();
                command += &match &disk.failure_group {
                    Some(failure_group) => format!(" --failgroup {failure_group}={path}"),
                    None => format!(" --disk {path}"),
                };
            }
            Ok(command)
        }
        ([], names @ [_, ..], []) => named("drop", names),
        ([], [], names @ [_, ..]) => named("undrop", names),
        _ => Err(ControlError::invalid("name one change")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{TICKET_MOST, TICKETS_MOST, Ticket, Tickets, command_of};
    use crate::api::estimate::EstimateRequest;

    fn ticket(name: &str, made: Instant) -> Ticket {
        Ticket {
            name: name.to_owned(),
            request: EstimateRequest::default(),
            epoch: 1,
            made,
        }
    }

    #[test]
    fn a_ticket_is_good_once_and_for_five_minutes() {
        let (mut tickets, now) = (Tickets::default(), Instant::now());
        tickets.put(ticket("one", now));
        assert!(tickets.take("two", now).is_err());
        assert!(tickets.take("one", now).is_ok());
        assert!(tickets.take("one", now).is_err(), "a second time");
        tickets.put(ticket("one", now));
        assert!(tickets.take("one", now + TICKET_MOST).is_err(), "too late");
        tickets.put(ticket("one", now));
        assert!(tickets.take("one", now + Duration::from_secs(1)).is_ok());
    }

    #[test]
    fn so_many_dry_runs_are_kept_and_the_oldest_goes() {
        let (mut tickets, now) = (Tickets::default(), Instant::now());
        for index in 0..=TICKETS_MOST {
            tickets.put(ticket(&index.to_string(), now));
        }
        assert!(tickets.take("0", now).is_err());
        assert!(tickets.take("1", now).is_ok());
    }

    fn command(request: &str) -> Result<String, String> {
        let request: EstimateRequest = serde_json::from_str(request).unwrap();
        command_of("data", &request).map_err(|error| error.message())
    }

    #[test]
    fn a_change_is_shown_as_the_command_that_does_the_same() {
        for (request, wanted) in [
            (r#"{"disks":{"drop":["a"]}}"#, "spindle disk drop data a"),
            (
                r#"{"disks":{"undrop":["a"]}}"#,
                "spindle disk undrop data a",
            ),
            (r#"{"offline":["a","b"]}"#, "spindle disk offline data a b"),
            (r#"{"online":["a"]}"#, "spindle disk online data a"),
            (
                r#"{"disks":{"add":[{"path":"/dev/x"}]}}"#,
                "spindle disk add data --disk /dev/x",
            ),
            (
                r#"{"disks":{"add":[{"path":"/dev/x","failure_group":"left"}]}}"#,
                "spindle disk add data --failgroup left=/dev/x",
            ),
        ] {
            assert_eq!(command(request).as_deref(), Ok(wanted));
        }
    }

    #[test]
    fn what_is_forced_or_more_than_one_change_is_not_made_here() {
        for request in [
            "{}",
            r#"{"offline":[]}"#,
            r#"{"online":[]}"#,
            r#"{"offline":["a"],"online":["b"]}"#,
            r#"{"disks":{}}"#,
            r#"{"disks":{"drop":["a"],"force":true}}"#,
            r#"{"disks":{"drop":["a"],"undrop":["b"]}}"#,
            r#"{"disks":{"add":[{"path":"/dev/x"}],"overwrite":true}}"#,
            r#"{"disks":{"add":[{"path":"x"}]}}"#,
            r#"{"disks":{"add":[{"path":"/x","make_bytes":1}]}}"#,
            r#"{"disks":{"resize":[{"disk":"a"}]}}"#,
            r#"{"disks":{"replace":[{"disk":"a","with":{"path":"/x"}}]}}"#,
        ] {
            assert!(command(request).is_err(), "{request}");
        }
    }
}
