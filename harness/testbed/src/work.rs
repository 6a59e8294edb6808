//! Background copying as `spindle operations` shows it, and the process that does it.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use serde_json::Value;

use crate::interrupt;
use crate::process::send;
use crate::spindle::Spindle;

/// The kernel that has unanswered requests sent again is at least this one.
const RESENDING_KERNEL: (u32, u32) = (6, 9);

/// The next daemon takes over within two seconds; on a machine that is busy it is given more.
const NEXT_AT_MOST: Duration = Duration::from_secs(20);

/// A pass of background copying.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pass {
    /// `resync`, `restore` or `rebalance`.
    pub name: String,
    /// `wait`, `run`, `paused`, `done` or `errors`.
    pub state: String,
    /// Bytes done.
    pub done_bytes: u64,
    /// Bytes left, as far as is known.
    pub left_bytes: u64,
    /// Bytes a second.
    pub rate_bytes_per_s: u64,
    /// Why it cannot go on.
    pub error: Option<String>,
}

impl Pass {
    fn parse(value: &Value) -> Result<Self> {
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        let number = |key: &str| value[key].as_u64().context("a pass has figures");
        Ok(Self {
            name: text("pass").context("a pass has a name")?,
            state: text("state").context("a pass has a state")?,
            done_bytes: number("done_bytes")?,
            left_bytes: number("left_bytes")?,
            rate_bytes_per_s: number("rate_bytes_per_s")?,
            error: text("error"),
        })
    }
}

impl Spindle {
    /// What is copied, or waits to be, in an open group.
    ///
    /// # Errors
    /// Where the group is not open.
    pub fn passes(&self, group: &str) -> Result<Vec<Pass>> {
        let told = self.ask(["operations", group])?;
        let lines = told[0]["operations"].as_array();
        lines.into_iter().flatten().map(Pass::parse).collect()
    }

    /// Waits until nothing is left to be copied, and shows `look` what is on the way.
    ///
    /// # Errors
    /// Where a pass says that it cannot go on, or all of it takes longer than `limit`.
    pub fn wait_for_copying(
        &self,
        group: &str,
        limit: Duration,
        mut look: impl FnMut(&[Pass]) -> Result<()>,
    ) -> Result<()> {
        let mut last = Vec::new();
        interrupt::wait_for("the copying to end", limit, || {
            last = self.passes(group)?;
            if let Some(stuck) = last.iter().find(|pass| pass.state == "errors") {
                let why = stuck.error.as_deref().unwrap_or_default();
                bail!("the {} cannot go on: {why}", stuck.name);
            }
            look(&last)?;
            if !last.is_empty() {
                interrupt::sleep(Duration::from_millis(100))?;
            }
            Ok(last.is_empty().then_some(()))
        })
        .with_context(|| format!("at the end there were {last:?}"))
    }

    /// The bytes that copying of this kind came to, by the events that tell of its end.
    ///
    /// # Errors
    /// Where the events cannot be read.
    pub fn copied_bytes(&self, group: &str, kind: &str) -> Result<u64> {
        let events = self.ask(["events", group, "--kind", kind])?;
        let texts = events.as_array().into_iter().flatten();
        let bytes = texts.filter_map(|event| {
            let (before, _) = event["text"].as_str()?.split_once(" bytes were ")?;
            let digits = before
                .rsplit(|letter: char| !letter.is_ascii_digit())
                .next();
            digits?.parse::<u64>().ok()
        });
        Ok(bytes.sum())
    }

    /// SIGKILL to the process that serves a group. Its keeper goes on, and starts the next one:
    /// it serves when this returns.
    ///
    /// # Errors
    /// Where the group is not served, before or afterwards.
    pub fn kill_daemon(&self, group: &str) -> Result<()> {
        let serving = || -> Result<u32> {
            let shown = self.ask(["group", "show", group])?;
            let process = shown["process_id"].as_u64();
            process
                .and_then(|process| u32::try_from(process).ok())
                .with_context(|| format!("nobody serves {group}"))
        };
        let killed = serving()?;
        send(killed, Signal::KILL);
        interrupt::wait_for("the next daemon", NEXT_AT_MOST, || {
            // Nobody answers for a moment.
            let next = serving().ok();
            Ok(next.filter(|next| *next != killed).map(drop))
        })
    }
}

/// Why a mount does not outlive the process that serves it on this machine, where it does not.
#[must_use]
pub fn keeper_is_lacking() -> Option<String> {
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    (!resends(&release)).then(|| {
        format!("the kernel cannot have requests sent again (it came with Linux 6.9): {release}")
    })
}

fn resends(release: &str) -> bool {
    let mut numbers = release.split(['.', '-']).map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        return false;
    };
    (major, minor) >= RESENDING_KERNEL
}

#[cfg(test)]
mod tests {
    use super::resends;

    #[test]
    fn the_kernels_release_says_whether_it_sends_requests_again() {
        assert!(resends("6.9.0") && resends("6.18.44-fc") && resends("7.0.1"));
        assert!(!resends("6.8.12-amd64") && !resends("5.10.0") && !resends("none"));
    }
}
