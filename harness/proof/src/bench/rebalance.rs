//! A disk is added to four and one of five dropped, on spindles, at full power.
//!
//! The least that must be moved is calculated here from the sizes of disks and data alone: the
//! disks are equal, so the new disk's share is the data divided by the number of disks, and a
//! disk that leaves holds as much. What was moved is what the kernel counted as read from the
//! devices: copying reads every byte once, and nobody else reads.
//!
//! What the disks can carry, by the rate of a raw spindle of the same make, measured in turn:
//! - a disk is added: all that is moved is written to it, so its rate of writing is the bound;
//! - one of five is dropped without redundancy: all is read from it: its rate of reading;
//! - with redundancy, reads can come from other copies too: the four disks that stay take what
//!   is moved, so four times the rate of writing.

use std::time::Instant;

use anyhow::{Context, Result};
use spindle_testbed::figures::size;
use spindle_testbed::progress::Step;

use super::Bench;
use super::figure::{Aim, Figure};
use super::stand::{Stand, StandPlan, Watched, real, watch};

const SECTION: &str = "rebalance";
const MEMBERS: usize = 4;
/// All copies of the data.
const HELD_BYTES: u64 = 2000 << 20;

/// One change of the disks.
struct Change {
    moved_bytes: u64,
    bytes_per_second: f64,
    can_carry: f64,
    watched: Watched,
}

/// Measures both redundancies.
pub fn measure(bench: &Bench) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (redundancy, copies) in [("external", 1), ("normal", 2)] {
        figures.extend(measure_one(bench, redundancy, copies)?);
    }
    Ok(figures)
}

fn measure_one(bench: &Bench, redundancy: &str, copies: u64) -> Result<Vec<Figure>> {
    let plan = StandPlan {
        name: "moves",
        redundancy,
        members_count: MEMBERS,
        spares_count: 1,
        raws_count: 1,
    };
    let stand = Stand::make(bench, plan, HELD_BYTES / copies)?;
    let group = &stand.group;
    group.tell(&["rebalance", group.name(), "--power", "1024", "--default"])?;
    let spare = group.devices().last().context("there is a spare disk")?;
    let spare = spare.device.display().to_string();
    let add = [
        "disk",
        "add",
        group.name(),
        "--disk",
        &spare,
        "--name",
        "SPARE",
    ];
    let drop = ["disk", "drop", group.name(), "SPARE"];
    let (mut adds, mut drops) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds() {
        let can_carry = stand.raw_rate("write")?;
        adds.push(change(&stand, redundancy, &add, can_carry)?);
        let can_carry = if copies == 1 {
            stand.raw_rate("read")?
        } else {
            #[allow(clippy::cast_precision_loss, reason = "it is four")]
            let disks = MEMBERS as f64;
            stand.raw_rate("write")? * disks
        };
        drops.push(change(&stand, redundancy, &drop, can_carry)?);
    }
    let mut figures = Vec::new();
    for (what, changes, bound) in [
        ("one disk added to four", &adds, "one raw disk"),
        (
            "one of five dropped",
            &drops,
            if copies == 1 {
                "one raw disk"
            } else {
                "four raw disks"
            },
        ),
    ] {
        figures.extend(figures_of(
            &format!("{redundancy}: {what}"),
            changes,
            bound,
        )?);
    }
    let errors: Vec<f64> = (adds.iter().chain(&drops))
        .filter_map(|change| change.watched.worst_error())
        .collect();
    figures.push(Figure::value(
        SECTION,
        format!("{redundancy}: time left, told wrong by, at worst"),
        "",
        &errors,
        (Aim::AtMost, 0.2),
    )?);
    Ok(figures)
}

fn figures_of(what: &str, changes: &[Change], bound: &str) -> Result<Vec<Figure>> {
    let mebibyte = f64::from(1 << 20);
    let moved: Vec<(f64, f64)> = (changes.iter())
        .map(|change| {
            (
                real(change.moved_bytes) / mebibyte,
                real(least_bytes()) / mebibyte,
            )
        })
        .collect();
    let rates: Vec<(f64, f64)> = (changes.iter())
        .map(|change| (change.bytes_per_second / 1e6, change.can_carry / 1e6))
        .collect();
    Ok(vec![
        Figure::ratio(
            SECTION,
            format!("{what}: moved"),
            "MiB",
            "the least",
            &moved,
            (Aim::AtMost, 1.02),
        )?,
        Figure::ratio(
            SECTION,
            format!("{what}: rate"),
            "MB/s",
            bound,
            &rates,
            (Aim::AtLeast, 0.85),
        )?,
    ])
}

/// Equal disks hold equal parts: four before, five after.
const fn least_bytes() -> u64 {
    HELD_BYTES / (MEMBERS as u64 + 1)
}

/// Runs the command and waits for the end of the rebalance that it wants.
fn change(stand: &Stand, redundancy: &str, words: &[&str], can_carry: f64) -> Result<Change> {
    let step = Step::begin(&format!("{redundancy}: disk {}", words[1]), 0);
    let before = stand.traffic()?;
    let began = Instant::now();
    stand.group.tell(words)?;
    let watched = watch(&stand.group, "rebalance", began)?;
    let traffic = stand.traffic()?.since(before);
    // Only what had to be moved counts, so that moving more does not look fast.
    let bytes_per_second = real(least_bytes()) / watched.took.as_secs_f64();
    step.done(&format!(
        "{} read and {} written in {:.2} s, time left wrong by {} at worst",
        size(traffic.read_bytes),
        size(traffic.written_bytes),
        watched.took.as_secs_f64(),
        (watched.worst_error()).map_or("nothing told".to_owned(), |error| format!("{error:.2}")),
    ));
    Ok(Change {
        moved_bytes: traffic.read_bytes,
        bytes_per_second,
        can_carry,
        watched,
    })
}
