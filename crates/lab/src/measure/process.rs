//! Processes by id: who they are, their children, their end.
//!
//! A number alone may be another's by now; together with the time of its start it is one process
//! for as long as the machine runs.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

/// A process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its number.
    pub id: u32,
    /// When it began, in the kernel's ticks since the machine's start.
    pub started: u64,
}

/// How long a killed process may take to let go of what it holds.
const DEATH_AT_MOST: Duration = Duration::from_secs(10);

impl Identity {
    /// Of the process with this number, where there is one.
    #[must_use]
    pub fn of(id: u32) -> Option<Self> {
        let (state, fields) = stat(id)?;
        // A dead one that waits for its parent holds nothing any more.
        if state == 'Z' {
            return None;
        }
        Some(Self {
            id,
            started: fields.get(19)?.parse().ok()?,
        })
    }

    /// Our own.
    #[must_use]
    pub fn own() -> Self {
        Self::of(std::process::id()).unwrap_or(Self {
            id: std::process::id(),
            started: 0,
        })
    }

    /// Whether it still runs.
    #[must_use]
    pub fn is_alive(self) -> bool {
        Self::of(self.id) == Some(self)
    }

    /// Sends a signal, unless it has ended.
    pub fn send(self, signal: Signal) {
        if self.is_alive()
            && let Some(pid) = i32::try_from(self.id).ok().and_then(Pid::from_raw)
        {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// It and all that it started, itself first.
    #[must_use]
    pub fn family(self) -> Vec<Self> {
        let mut family = vec![self];
        let mut next = 0;
        while next < family.len() {
            let parent = family[next].id;
            family.extend(children(parent));
            next += 1;
        }
        family
    }

    /// SIGKILL to it and to all that it started, and waits until they hold nothing any more.
    pub fn kill_family(self) {
        // The family is listed before the parent dies: afterwards nobody knows whose they were.
        end(&self.family());
    }
}

/// SIGKILL to each, and waits for their end.
pub fn end(processes: &[Identity]) {
    for process in processes {
        process.send(Signal::KILL);
    }
    let until = Instant::now() + DEATH_AT_MOST;
    while processes.iter().any(|process| process.is_alive()) && Instant::now() < until {
        thread::sleep(Duration::from_millis(2));
    }
}

/// The state, and the fields from the state on, as `/proc/PID/stat` counts them.
fn stat(id: u32) -> Option<(char, Vec<String>)> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name in parentheses may hold anything, also parentheses: count from the last one.
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<String> = rest.split_whitespace().map(str::to_owned).collect();
    Some((fields.first()?.chars().next()?, fields))
}

fn children(parent: u32) -> Vec<Identity> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|id| stat(*id).and_then(|(_, fields)| fields.get(1)?.parse().ok()) == Some(parent))
        .filter_map(Identity::of)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_number_given_anew_is_not_the_same_process() {
        let own = Identity::own();
        assert!(own.is_alive());
        let other = Identity {
            started: own.started + 1,
            ..own
        };
        assert!(!other.is_alive());
    }

    #[test]
    fn a_family_ends_whole() {
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 60 & wait"])
            .spawn()
            .unwrap();
        let shell_identity = Identity::of(shell.id()).unwrap();
        let until = Instant::now() + Duration::from_secs(5);
        while shell_identity.family().len() < 2 && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        let family = shell_identity.family();
        assert_eq!(family.len(), 2);
        shell_identity.kill_family();
        assert!(!family[1].is_alive());
        shell.wait().unwrap();
    }
}
