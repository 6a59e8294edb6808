//! A disk is away while 1 % of what it holds is written anew, and comes back.
//!
//! The writes are 8 KiB each at random places of a mirrored file. Which of them the disk missed
//! is calculated here, from the file's map and the places. It has to be copied at the rate of one
//! raw spindle, because all of it is written to one disk; a second is given on top.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use spindle_device::SeededRandom;
use spindle_testbed::interrupt;
use spindle_testbed::progress::Step;

use super::Bench;
use super::figure::{Aim, Figure};
use super::stand::{Stand, StandPlan, real, watch};

const SECTION: &str = "resync";
const FILE_BYTES: u64 = 1200 << 20;
const WRITE_BYTES: u64 = 8 << 10;
/// The last disk of the group, by its place among the devices.
const AWAY: usize = 3;
/// How soon an event can be read that was told.
const EVENT_AT_MOST: Duration = Duration::from_secs(10);

/// What one outage and return took.
struct Outage {
    missed_bytes: u64,
    copied_bytes: u64,
    seconds: f64,
    allowed_seconds: f64,
}

/// Measures at the default power and at full power.
pub fn measure(bench: &Bench) -> Result<Vec<Figure>> {
    let plan = StandPlan {
        name: "outage",
        redundancy: "normal",
        members_count: 4,
        spares_count: 0,
        raws_count: 1,
    };
    let stand = Stand::make(bench, plan, FILE_BYTES)?;
    let mut figures = Vec::new();
    for (power, title) in [("1", "default power"), ("1024", "full power")] {
        let group = &stand.group;
        group.tell(&["rebalance", group.name(), "--power", power, "--default"])?;
        let mut outages = Vec::new();
        for round in 0..bench.rounds() {
            outages.push(outage(&stand, u64::from(round))?);
        }
        let mebibyte = f64::from(1 << 20);
        let bytes: Vec<(f64, f64)> = (outages.iter())
            .map(|one| {
                (
                    real(one.copied_bytes) / mebibyte,
                    real(one.missed_bytes) / mebibyte,
                )
            })
            .collect();
        figures.push(Figure::ratio(
            SECTION,
            format!("{title}: copied after 1 % was written"),
            "MiB",
            "missed",
            &bytes,
            (Aim::AtMost, 1.1),
        )?);
        let times: Vec<(f64, f64)> = (outages.iter())
            .map(|one| (one.seconds, one.allowed_seconds))
            .collect();
        figures.push(Figure::ratio(
            SECTION,
            format!("{title}: time of it"),
            "s",
            "1.1 of it, and 1 s",
            &times,
            (Aim::AtMost, 1.0),
        )?);
    }
    Ok(figures)
}

fn outage(stand: &Stand, seed: u64) -> Result<Outage> {
    let raw = stand.raw_rate("write")?;
    let group = &stand.group;
    let step = Step::begin("outage", 0);
    let path = group.devices()[AWAY].device.display().to_string();
    let shown = group.show()?;
    let name = (shown["disks"].as_array().into_iter().flatten())
        .find(|disk| disk["path"] == path.as_str())
        .and_then(|disk| disk["name"].as_str())
        .with_context(|| format!("{path} is a disk of the group"))?
        .to_owned();
    let held = extents_on(stand, &name)?;
    group.tell(&["disk", "offline", group.name(), &name])?;
    let missed_bytes = write_at_random(stand, &held, seed)?;
    let told_before = newest_event(stand)?.map_or(0, |(number, _)| number);
    let before = group.devices()[AWAY].traffic()?;
    let began = Instant::now();
    group.tell(&["disk", "online", group.name(), &name])?;
    let watched = watch(group, "resync", began)?;
    let traffic = group.devices()[AWAY].traffic()?.since(before);
    let told = interrupt::wait_for("the event of the resync", EVENT_AT_MOST, || {
        Ok(newest_event(stand)?.filter(|(number, _)| *number > told_before))
    })?;
    let copied_bytes = told.1;
    step.done(&format!(
        "{missed_bytes} bytes missed, {copied_bytes} copied, {} written to the disk, in {:.2} s",
        traffic.written_bytes,
        watched.took.as_secs_f64()
    ));
    Ok(Outage {
        missed_bytes,
        copied_bytes,
        seconds: watched.took.as_secs_f64(),
        allowed_seconds: real(missed_bytes) * 1.1 / raw + 1.0,
    })
}

/// The parts `[from, to)` of the file that have a copy on the disk.
fn extents_on(stand: &Stand, disk: &str) -> Result<Vec<(u64, u64)>> {
    let place = format!("{}:/data", stand.group.name());
    let map = stand.group.ask(&["map", &place])?;
    let extents = map["extents"].as_array().context("a map has extents")?;
    let mut held = Vec::new();
    for extent in extents {
        let copies = extent["copies"].as_array().context("it has copies")?;
        if copies.iter().any(|copy| copy["disk_name"] == disk) {
            let from = extent["offset_bytes"].as_u64().context("it has a place")?;
            let length = extent["length_bytes"].as_u64().context("and a length")?;
            held.push((from, from + length));
        }
    }
    ensure!(!held.is_empty(), "nothing lies on {disk}");
    Ok(held)
}

/// Writes 1 % of the file; the bytes of it that lie in `held`.
fn write_at_random(stand: &Stand, held: &[(u64, u64)], seed: u64) -> Result<u64> {
    let path = stand.group.point().join("data");
    let file = OpenOptions::new().write(true).open(&path)?;
    let places = FILE_BYTES / WRITE_BYTES;
    let mut random = SeededRandom::new(seed + 1);
    let mut chosen = BTreeSet::new();
    while (chosen.len() as u64) < places / 100 {
        chosen.insert(random.below(places));
    }
    let mut missed_bytes = 0;
    for place in chosen {
        let at = place * WRITE_BYTES;
        let bytes: Vec<u8> = (0..WRITE_BYTES / 8)
            .flat_map(|_| random.next_u64().to_le_bytes())
            .collect();
        file.write_all_at(&bytes, at)?;
        // The first extents are shorter than a write, so it can touch several.
        missed_bytes += (held.iter())
            .map(|(from, to)| to.min(&(at + WRITE_BYTES)).saturating_sub(*from.max(&at)))
            .sum::<u64>();
    }
    file.sync_all()?;
    Ok(missed_bytes)
}

/// The newest event of a resync: its number, and the bytes that it says were copied.
fn newest_event(stand: &Stand) -> Result<Option<(u64, u64)>> {
    let words = ["events", stand.group.name(), "--kind", "resync_ended"];
    let events = stand.group.ask(&words)?;
    let Some(event) = events.as_array().and_then(|events| events.last()) else {
        return Ok(None);
    };
    let number = event["number"].as_u64().context("an event has a number")?;
    let message = event["text"].as_str().unwrap_or_default();
    let copied_bytes = message
        .rsplit_once('(')
        .and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok())
        .with_context(|| format!("no number of bytes in {message:?}"))?;
    Ok(Some((number, copied_bytes)))
}
