//! What happens to the disks and to the daemon while the database runs: the lost disk comes back,
//! a new one joins, and the daemon is killed.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use spindle_testbed::figures::size;
use spindle_testbed::interrupt;
use spindle_testbed::pgbench::Rate;
use spindle_testbed::progress::Step;

use crate::database::{Database, Load};
use crate::place::GroupPlace;
use crate::story::{LOAD_END_AT_MOST, Run, now_us, watch};

/// The load ends when everything has happened; this is only the most that it may take.
const LOAD_AT_MOST: Duration = Duration::from_secs(300);
const COPYING_AT_MOST: Duration = Duration::from_secs(120);
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// How long the load goes on after the daemon's death.
const AFTER_DEATH: Duration = Duration::from_secs(5);
/// And how long between two acts.
const BETWEEN: Duration = Duration::from_secs(2);

/// What was copied, and how long that took.
#[derive(Debug, Clone, Copy)]
pub struct Copied {
    /// Bytes.
    pub bytes: u64,
    /// From the command to the end of the copying.
    pub took: Duration,
}

/// What happened, for the page.
pub struct Changes {
    /// The load in each act.
    pub rates: Vec<(&'static str, Rate)>,
    /// What the disk got that came back.
    pub resync: Copied,
    /// What was moved to the new disk.
    pub rebalance: Copied,
    /// The longest that a transaction took around the daemon's death; why there was none, where
    /// there was none.
    pub pause_us: Result<u64, String>,
    /// What should not have been.
    pub errors: Vec<String>,
}

/// Runs the load number `run`, and everything under it.
pub fn happen(database: &mut dyn Database, group: &GroupPlace, run: u32) -> Result<(Run, Changes)> {
    let began_us = now_us()?;
    let mut load = database.begin_load(run, LOAD_AT_MOST)?;
    watch(load.as_mut(), "load with one disk still gone", BETWEEN)?;
    let resync = follow(
        load.as_mut(),
        group,
        "the lost disk returns",
        "resync",
        || group.bring_disk_back(),
    )?;
    let shown = group.show()?;
    ensure!(
        shown["offline_disks_count"] == 0 && shown["resync_left_bytes"] == 0,
        "the disk that came back is not whole: {shown}"
    );
    watch(load.as_mut(), "load with all disks again", BETWEEN)?;
    let added_us = now_us()?;
    let rebalance = follow(
        load.as_mut(),
        group,
        "a fifth disk joins",
        "rebalance",
        || group.add_disk(),
    )?;
    let killed_us = now_us()?;
    let lacking = group.kill_daemon()?;
    match &lacking {
        None => println!(
            "{:42} SIGKILL to the storage daemon",
            "its keeper starts another"
        ),
        Some(why) => println!("skipped: {why}"),
    }
    watch(load.as_mut(), "load over the daemon's death", AFTER_DEATH)?;
    let ended_us = now_us()?;
    // What clients saw up to here is on Spindle's account; afterwards they are sent away.
    let errors = load
        .errors()
        .into_iter()
        .map(|(_, line)| format!("a client saw: {line}"))
        .collect();
    let log = database.end_load(load, LOAD_END_AT_MOST)?;
    let death = Rate::between(&log, killed_us, ended_us)?;
    let changes = Changes {
        rates: vec![
            ("disk returns", Rate::between(&log, began_us, added_us)?),
            ("disk joins", Rate::between(&log, added_us, killed_us)?),
            ("daemon dies", death),
        ],
        resync,
        rebalance,
        pause_us: lacking.map_or(Ok(death.worst_us), Err),
        errors,
    };
    Ok((Run { number: run, log }, changes))
}

/// Does `act`, and shows what is copied then until nothing is left of it.
fn follow(
    load: &mut dyn Load,
    group: &GroupPlace,
    name: &str,
    pass: &str,
    act: impl FnOnce() -> Result<()>,
) -> Result<Copied> {
    let began = Instant::now();
    // The length is known as soon as the first figures are there.
    let step = Step::begin(name, 1);
    act()?;
    loop {
        let passes = group.passes()?;
        if passes.is_empty() {
            break;
        }
        if let Some(line) = passes.iter().find(|line| line.name == pass) {
            ensure!(line.state != "errors", "{pass}: {:?}", line.error);
            step.lengthen(line.done_bytes + line.left_bytes);
            step.advance(
                line.done_bytes,
                &format!("{} left, {}", size(line.left_bytes), load.progress()),
            );
        }
        if !load.is_running()? {
            bail!("the load ended early: {:?}", load.errors());
        }
        ensure!(began.elapsed() < COPYING_AT_MOST, "the {pass} does not end");
        interrupt::sleep(LOOK_INTERVAL)?;
    }
    let took = began.elapsed();
    let bytes = group.copied_bytes(&format!("{pass}_ended"))?;
    step.done(&format!("{pass} of {}, {}", size(bytes), load.progress()));
    Ok(Copied { bytes, took })
}
