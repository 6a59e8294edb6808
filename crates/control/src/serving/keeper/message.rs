//! What keeper and daemon tell each other: JSON, so that programs of different versions that
//! follow one another understand the words they both know.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use spindle_group::{EventKind, Severity};

use crate::api::view::EventReport;
use crate::serving::formats::Formats;

/// The version of these messages. A daemon refuses a keeper whose version it does not know.
pub(crate) const PROTOCOL_VERSION: u32 = 1;

/// A notice is so long at most: all that a keeper remembers must fit into one message beside the rest
/// of it, or no daemon could be started any more.
const NOTICE_BYTES_MOST: usize = 720;

/// A mount that is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptMount {
    /// Where it is mounted.
    pub directory: PathBuf,
    /// Every file bypasses the page cache.
    pub direct: bool,
    /// What was agreed with the kernel: the protocol's minor version.
    pub minor: u32,
    /// Likewise: the capabilities in use.
    pub capabilities: u64,
}

/// Something that happened while no daemon could note it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Notice {
    pub(super) message: String,
    pub(super) critical: bool,
    /// When, in milliseconds since 1970; 0 where a keeper of an earlier version says nothing.
    #[serde(default)]
    pub(super) time_ms: u64,
}

impl Notice {
    /// Of this moment.
    pub(super) fn new(message: &str, critical: bool) -> Self {
        Self {
            message: shortened(message, NOTICE_BYTES_MOST),
            critical,
            time_ms: wall_clock_ms(),
        }
    }

    /// How much it matters.
    pub(crate) const fn severity(&self) -> Severity {
        if self.critical {
            Severity::Critical
        } else {
            Severity::Warning
        }
    }

    /// As an event that no log has yet.
    pub(crate) fn report(&self, group: &str, host: &str) -> EventReport {
        EventReport {
            number: 0,
            time_s: self.time_ms / 1000,
            time_ms: self.time_ms,
            host: host.to_owned(),
            group: group.to_owned(),
            severity: self.severity().name().to_owned(),
            kind: EventKind::GroupTakenOver.name().to_owned(),
            disk: None,
            disk_name: None,
            file: None,
            path: None,
            text: self.message.clone(),
        }
    }
}

/// What a daemon is given first, with the journal's descriptor; those of the mount come before
/// it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Start {
    pub(super) generation: u64,
    pub(super) keeper_process_id: u32,
    pub(super) mount: Option<KeptMount>,
    #[serde(default)]
    pub(super) notices: Vec<Notice>,
    /// When the daemon before died, on the clock of [`now_ms`].
    pub(super) died_at_ms: Option<u64>,
    /// The mount that the first daemon was asked for is over, or nothing is to be served any more:
    /// none is made anew.
    #[serde(default)]
    pub(super) mount_is_over: bool,
    /// Nothing is to be served any more, no exports either.
    #[serde(default)]
    pub(super) is_last: bool,
    /// A daemon before was killed, and the kernel has not let go of it: it may hold a disk that hangs.
    #[serde(default)]
    pub(super) former_lingers: bool,
    pub(super) out_of_memory_score: Option<String>,
}

/// From the keeper to the daemon.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToDaemon {
    /// Some of the mount's descriptors come with this message.
    Descriptors,
    /// Begin; the journal's descriptor comes with it.
    Start { version: u32, start: Start },
    /// Unmount, close the group and end.
    Stop,
    /// Close the group and end, but leave the mount.
    HandOver,
}

/// From the daemon to the keeper.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FromDaemon {
    /// It has the group of this identity open. Said again where the setting has changed.
    Opened {
        group_uuid: String,
        /// How long it may show no sign of life; `None` where one of an earlier version says
        /// nothing.
        #[serde(default)]
        watchdog_s: Option<u64>,
    },
    /// What it reads and writes, before it is ready.
    Serves(Formats),
    /// The group is served.
    Ready,
    /// Some of the mount's descriptors come with this message.
    Descriptors,
    /// All of them have come.
    Mounted(KeptMount),
    /// The mount is gone.
    Unmounted,
    /// Background work goes on.
    Alive,
    /// Nothing is to be served any more: it writes what waits, closes the group and ends.
    Stopping,
    /// It ends in order, and the keeper with it.
    Ending,
    /// It ends and has closed the group.
    Closed,
    /// It ends and has not closed the group: why.
    NotClosed {
        why: String,
        /// The machine had no thread, memory or descriptor for it: the next one may get it.
        #[serde(default)]
        may_pass: bool,
    },
    /// The group is closed and the mount left to the next daemon.
    HandedOver,
    /// The group cannot be opened without a disk that a killed daemon holds, which hangs: the next one
    /// is to be started when the kernel has let go of that.
    NeedsFormer,
}

/// Milliseconds since 1970.
pub(super) fn wall_clock_ms() -> u64 {
    let now = crate::machine::clock::now();
    u64::try_from(now.seconds).unwrap_or(0) * 1000 + u64::from(now.nanoseconds) / 1_000_000
}

/// Milliseconds on a clock that all processes of the machine share.
pub(super) fn now_ms() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME)
        .expect("every kernel has this clock");
    u64::try_from(Duration::from(now).as_millis()).unwrap_or(u64::MAX)
}

/// The beginning of a text that takes no more than so many bytes in a message.
pub(super) fn shortened(text: &str, bytes_most: usize) -> String {
    let mut length_bytes = 0;
    let fits = |character: &char| {
        // As JSON has it.
        length_bytes += match character {
            '"' | '\\' => 2,
            character if character.is_control() => 6,
            character => character.len_utf8(),
        };
        length_bytes <= bytes_most
    };
    text.chars().take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{NOTICES_MOST, wire};
    use super::*;

    #[test]
    fn all_that_a_keeper_remembers_reaches_the_next_daemon_however_long_it_was() {
        for text in ["disk ", "\u{1}", "\"", "é", "\u{1f980}"] {
            let notice = Notice::new(&text.repeat(10_000), true);
            let start = Start {
                notices: vec![notice; NOTICES_MOST],
                mount: Some(KeptMount {
                    directory: PathBuf::from("d".repeat(4095)),
                    direct: false,
                    minor: 0,
                    capabilities: 0,
                }),
                ..Start::default()
            };
            let version = PROTOCOL_VERSION;
            let (ours, theirs) = wire::pair().unwrap();
            wire::send(&ours, &ToDaemon::Start { version, start }, &[]).unwrap();
            let heard = wire::receive::<ToDaemon>(&theirs).unwrap();
            assert!(matches!(heard, Some((ToDaemon::Start { .. }, _))), "{text}");
        }
    }

    #[test]
    fn a_text_is_shortened_by_whole_characters_and_a_short_one_stays() {
        assert_eq!(shortened("short", 5), "short");
        assert_eq!(shortened("longer", 4), "long");
        assert_eq!(shortened("éé", 3), "é");
        assert_eq!(shortened("\"\"", 3), "\"");
    }
}
