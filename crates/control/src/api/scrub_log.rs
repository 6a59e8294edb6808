//! What the event log knows of scrubs that earlier processes ran, too.
//!
//! A scrub is told when it ends, by its title, and what it left out just before that. The log is
//! bounded, so an old scrub may be there no more; nothing is said of it then.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::view::EventReport;

const ENDED: &str = "scrub_ended";
const LEFT_OUT: &str = "scrub_left_out";

/// The last scrub of the whole group that came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LastScrubReport {
    /// When it ended, seconds since 1970 by the clock of the host that served the group.
    pub ended_s: u64,
    /// Bytes of which it could not look at a copy, as far as it named the places.
    pub left_out_bytes: u64,
}

/// What is scrubbed by an event's text; `verb` follows it.
fn title<'a>(event: &'a EventReport, verb: &str) -> Option<(&'a str, &'a str)> {
    event.text.strip_prefix("the scrub of ")?.split_once(verb)
}

/// Whether it is the whole group: a path has a slash, and disks stand behind a word. What the
/// group was called then does not matter.
fn is_whole(title: &str) -> bool {
    !title.contains([' ', '/'])
}

/// The last scrub of the whole group that ended, of the events of its log, the newest last.
#[must_use]
pub(crate) fn last_scrub(events: &[EventReport]) -> Option<LastScrubReport> {
    let is_it = |event: &EventReport| {
        event.kind == ENDED && title(event, " ended: ").is_some_and(|(title, _)| is_whole(title))
    };
    let at = events.iter().rposition(is_it)?;
    let left_out = (events[..at].iter().rev())
        .take_while(|event| event.kind != ENDED)
        .filter(|event| event.kind == LEFT_OUT)
        .filter_map(|event| {
            let (_, rest) = title(event, " left out ")?;
            rest.split(' ').next()?.parse::<u64>().ok()
        });
    Some(LastScrubReport {
        ended_s: events[at].time_s,
        left_out_bytes: left_out.sum(),
    })
}

#[cfg(test)]
mod tests {
    use super::{LastScrubReport, last_scrub};
    use crate::api::view::EventReport;

    fn event(time_s: u64, kind: &str, text: &str) -> EventReport {
        EventReport {
            number: time_s,
            time_s,
            time_ms: time_s * 1000,
            host: String::new(),
            group: "data".to_owned(),
            severity: "info".to_owned(),
            kind: kind.to_owned(),
            disk: None,
            disk_name: None,
            file: None,
            path: None,
            text: text.to_owned(),
        }
    }

    #[test]
    fn the_last_scrub_is_one_of_the_whole_group_that_came_to_its_end() {
        let mut events = vec![
            event(
                1,
                "scrub_left_out",
                "the scrub of old left out 4096 bytes on D1, because",
            ),
            event(
                2,
                "scrub_ended",
                "the scrub of old ended: 1 bytes read, every copy",
            ),
            event(
                3,
                "scrub_left_out",
                "the scrub of data left out 8192 bytes on D1, because",
            ),
            event(4, "disk_online", "the scrub of data left out 77 bytes"),
            event(
                5,
                "scrub_left_out",
                "the scrub of data left out 512 bytes on D2, because",
            ),
            event(
                6,
                "scrub_ended",
                "the scrub of data ended: 1 bytes read, 2 findings",
            ),
        ];
        let last = Some(LastScrubReport {
            ended_s: 6,
            left_out_bytes: 8704,
        });
        assert_eq!(last_scrub(&events), last);
        for other in [
            "the scrub of data was stopped: 1 bytes read",
            "the scrub of /pg ended: 1 bytes read",
            "the scrub of disk D1, D2 ended: 1 bytes read",
            "",
        ] {
            events.push(event(9, "scrub_ended", other));
            assert_eq!(last_scrub(&events), last, "{other}");
        }
        assert_eq!(last_scrub(&events[..1]), None);
        let all_read = [event(7, "scrub_ended", "the scrub of data ended: all")];
        assert_eq!(last_scrub(&all_read).unwrap().left_out_bytes, 0);
    }
}
