//! The judgement at the end of a scenario.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use spindle_testbed::figures::{size, thousands};
use spindle_testbed::progress::Step;

use super::clients::Told;
use super::databases::Databases;
use super::stage::{GROUP, Stage};

/// What a disk may lack of its share: a hundredth of it, and an extent or two.
const SHARE_SLACK_BYTES: u64 = 3 << 20;

/// More rows than the catalog has.
const ROWS_MOST: &str = "10000000";

impl Stage {
    /// Everything that was acknowledged is there, read from the disks and not from any cache;
    /// copies, books and shares are as they must be.
    pub fn judge_all(&mut self, databases: &Databases) -> Result<()> {
        let clients = self.clients.take().context("clients run")?;
        let told = clients.stop()?;
        let step = Step::begin("a last rebalance and a last scrub", 0);
        let outcome = self
            .spindle
            .tell(["rebalance", GROUP, "--power", "1024", "--wait"])?;
        ensure!(outcome.contains("nothing to do"), "rebalance: {outcome}");
        let report = self
            .spindle
            .ask_findings(["scrub", GROUP, "--power", "1024", "--wait"])?;
        ensure!(
            report["findings_count"] == 0,
            "all copies are the same at the end, and the scrub says: {report}"
        );
        step.done("");
        let step = Step::begin("both servers again, on a new mount", 0);
        self.servers.take().context("servers run")?.stop()?;
        self.unmount()?;
        self.judge_shares()?;
        self.mount()?;
        let servers = databases.start()?;
        step.done("");
        let step = Step::begin("comparing with the clients' log", 0);
        servers.judge(&told)?;
        let commits: usize = told.iter().map(|told: &Told| told.commits_count).sum();
        step.done(&format!(
            "{} acknowledged commits, pg_amcheck and CHECK TABLE are content",
            thousands(commits as u64)
        ));
        servers.stop()?;
        self.unmount()?;
        self.check_books()
    }

    /// Maps, space, records and names agree, in a group that is open or closed.
    fn check_books(&self) -> Result<()> {
        self.spindle.tell(["check", GROUP])?;
        Ok(())
    }

    /// What a scrub and a check say of the group after something was found.
    pub fn findings(&mut self) -> String {
        self.servers = None;
        if !self.is_mounted()
            && let Err(error) = self.mount()
        {
            return format!("no mount: {error:#}");
        }
        let scrubbed = self
            .spindle
            .ask_findings(["scrub", GROUP, "--power", "1024", "--wait"]);
        let checked = self.check_books();
        format!("a scrub: {scrubbed:#?}\na check: {checked:?}")
    }

    /// Each disk holds its share, by the extent maps themselves: disks of one size, and no
    /// failure group with more than half of them, hold all the same.
    fn judge_shares(&self) -> Result<()> {
        let dump = self.spindle.ask(["dump", GROUP, "--rows", ROWS_MOST])?;
        let held = held_bytes(&dump)?;
        let members = self.closed_members_count()?;
        ensure!(
            held.len() == members,
            "{members} disks, and extents lie on {held:?}"
        );
        let share = held.values().sum::<u64>() / held.len() as u64;
        for (disk, bytes) in &held {
            ensure!(
                bytes.abs_diff(share) <= share / 100 + SHARE_SLACK_BYTES,
                "disk {disk} holds {} where the share of each is {}: {held:?}",
                size(*bytes),
                size(share)
            );
        }
        Ok(())
    }

    fn closed_members_count(&self) -> Result<usize> {
        let shown = self.spindle.ask(["group", "show", GROUP])?;
        Ok(shown["disks"]
            .as_array()
            .context("a group has disks")?
            .len())
    }
}

/// The bytes of extents on each disk, from the rows of the catalog.
fn held_bytes(dump: &Value) -> Result<BTreeMap<u64, u64>> {
    let tables = dump["catalog"]["tables"].as_array();
    let extents = tables
        .into_iter()
        .flatten()
        .find(|table| table["name"] == "extent")
        .with_context(|| format!("the catalog has extents: {}", dump["note"]))?;
    let rows = extents["rows"].as_array().context("a table has rows")?;
    let mut held = BTreeMap::new();
    for row in rows {
        let words = row["value"]["extents"].as_array().into_iter().flatten();
        for word in words
            .filter_map(Value::as_str)
            .flat_map(str::split_whitespace)
        {
            ensure!(word != "missing", "an extent lacks a copy: {row}");
            // `disk@byte+length`, or `hole`.
            let Some((disk, place)) = word.split_once('@') else {
                continue;
            };
            let (_, length) = place.split_once('+').context("a place has a length")?;
            *held.entry(disk.parse()?).or_default() += length.parse::<u64>()?;
        }
    }
    ensure!(!held.is_empty(), "no extent lies anywhere");
    Ok(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_disk_holds_is_read_from_the_rows_and_a_missing_copy_is_told() {
        let dump = |copies: &str| {
            serde_json::json!({"catalog": {"tables": [
                {"name": "extent", "rows": [
                    {"key": "7/0", "value": {"extents": ["0@4096+8192 1@0+8192", "hole"]}},
                    {"key": "9/0", "value": {"extents": [copies]}},
                ]},
            ]}})
        };
        let held = held_bytes(&dump("1@1048576+4096 2@0+4096")).unwrap();
        assert_eq!(held, BTreeMap::from([(0, 8192), (1, 12_288), (2, 4096)]));
        assert!(held_bytes(&dump("1@1048576+4096 missing")).is_err());
        assert!(held_bytes(&serde_json::json!({})).is_err());
    }
}
