//! A scrub at full power, on spindles, against what raw spindles of the same make give.
//!
//! What it read is what the kernel counted; a scrub that would skip copies is no faster by it,
//! because every copy of the data is asked for.

use std::time::Instant;

use anyhow::{Result, ensure};
use spindle_testbed::progress::Step;

use super::Bench;
use super::figure::{Aim, Figure};
use super::stand::{Stand, StandPlan, real};

const SECTION: &str = "scrub";
const FILE_BYTES: u64 = 1000 << 20;
const COPIES: u64 = 2;

/// Measures it.
pub fn measure(bench: &Bench) -> Result<Vec<Figure>> {
    let plan = StandPlan {
        name: "scrubbed",
        redundancy: "normal",
        members_count: 4,
        spares_count: 0,
        raws_count: 4,
    };
    let stand = Stand::make(bench, plan, FILE_BYTES)?;
    let group = &stand.group;
    let mut rates = Vec::new();
    for _ in 0..bench.rounds() {
        let raw = stand.raw_rate_of_all("read")?;
        let step = Step::begin("scrub", 0);
        let before = stand.traffic()?;
        let began = Instant::now();
        group.tell(&["scrub", group.name(), "--power", "1024", "--wait"])?;
        let took = began.elapsed().as_secs_f64();
        let read_bytes = stand.traffic()?.since(before).read_bytes;
        ensure!(
            read_bytes >= FILE_BYTES * COPIES,
            "the scrub read {read_bytes} bytes, not every copy"
        );
        step.done(&format!("{:.0} MB/s", real(read_bytes) / took / 1e6));
        rates.push((real(FILE_BYTES * COPIES) / took / 1e6, raw / 1e6));
    }
    Ok(vec![Figure::ratio(
        SECTION,
        "scrub at full power",
        "MB/s",
        "four raw disks",
        &rates,
        (Aim::AtLeast, 0.9),
    )?])
}
