//! The story, step by step: a load, a dead disk, a power cut, the proof, the load again under
//! which the disks change and the daemon dies, and the proof at the end.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use serde_json::Value;
use spindle_testbed::figures::thousands;
use spindle_testbed::interrupt;
use spindle_testbed::pgbench::{Acknowledged, Rate};
use spindle_testbed::progress::Step;
use spindle_testbed::scene::Scene;

use crate::changes::{self, Changes};
use crate::database::{Acknowledgements, CLIENT_COUNT, Database, Load, Proof};
use crate::place::Place;

/// The load ends by itself this long after the power should have been cut: a slow machine must
/// still be under load when the cut comes.
const LOAD_BEYOND_CUT: Duration = Duration::from_secs(60);
/// What a load takes to end that was told to.
pub const LOAD_END_AT_MOST: Duration = Duration::from_secs(120);

/// What happened, for the page.
pub struct Told {
    /// What ran.
    pub title: String,
    /// The load in each part of the story.
    pub rates: Vec<(&'static str, Rate)>,
    /// What `spindle group show --json` said just before the power cut; `None` on a plain
    /// directory.
    pub group: Option<Value>,
    /// What happened to the disks and to the daemon after it, and what the group said then;
    /// `None` on a plain directory.
    pub changes: Option<(Changes, Value)>,
    /// What `spindle group check` says of the group after everything.
    pub checked: Option<String>,
    /// How long the mount took after the power cut.
    pub mounted_after: Duration,
    /// How long the database's own recovery took.
    pub recovered_after: Duration,
    /// What was found after the power cut, and at the very end.
    pub proofs: [Proof; 2],
    /// Everything that should not have been.
    pub faults: Vec<String>,
}

/// The story's parts, in the order in which they must end.
pub struct Story {
    database: Box<dyn Database>,
    place: Place,
    _scene: Scene,
}

/// A load that has ended: what was acknowledged in it.
pub struct Run {
    /// Its number.
    pub number: u32,
    /// Every acknowledged commit.
    pub log: Vec<Acknowledged>,
}

/// The load up to the power cut: what was acknowledged, and when things happened.
struct UpToCut {
    log: Vec<Acknowledged>,
    began_us: u64,
    lost_us: u64,
    cut_us: u64,
    errors: Vec<String>,
    group: Option<Value>,
}

impl Story {
    /// A story to be told.
    pub fn new(scene: Scene, place: Place, database: Box<dyn Database>) -> Self {
        Self {
            database,
            place,
            _scene: scene,
        }
    }

    /// Tells it; each half of the load lasts `seconds`.
    pub fn tell(mut self, seconds: u64) -> Result<Told> {
        self.make_group()?;
        let step = Step::begin("making and filling the database", 0);
        self.database.create(self.place.directory())?;
        step.done(&self.database.title());

        let cut = self.load_until_cut(seconds)?;
        let (mounted_after, recovered_after) = self.come_back()?;
        let mut acknowledgements = Acknowledgements::new();
        count(&mut acknowledgements, 1, &cut.log);
        let after_cut = self.prove(&acknowledgements, "comparing with the clients' log")?;

        let mut rates = vec![
            (
                "all disks",
                Rate::between(&cut.log, cut.began_us, cut.lost_us)?,
            ),
            (
                "one disk gone",
                Rate::between(&cut.log, cut.lost_us, cut.cut_us)?,
            ),
        ];
        let mut faults = cut.errors;
        let (run, changes) = self.change_disks(seconds.clamp(5, 10), &mut rates)?;
        count(&mut acknowledgements, run.number, &run.log);
        if let Some((changes, _)) = &changes {
            faults.extend(changes.errors.iter().cloned());
        }
        let at_end = self.prove(&acknowledgements, "comparing once more")?;
        self.database.stop()?;
        let checked = self.end_group()?;

        faults.extend(after_cut.faults.iter().cloned());
        faults.extend(at_end.faults.iter().cloned());
        Ok(Told {
            title: self.database.title(),
            rates,
            group: cut.group,
            changes,
            checked,
            mounted_after,
            recovered_after,
            proofs: [after_cut, at_end],
            faults,
        })
    }

    fn make_group(&mut self) -> Result<()> {
        if let Place::Group(group) = &mut self.place {
            let step = Step::begin("making and mounting the group", 0);
            group.create()?;
            group.mount()?;
            step.done("four file disks in two failure groups, normal redundancy");
        }
        Ok(())
    }

    /// One load, from start to power cut; a disk is lost in its middle.
    fn load_until_cut(&mut self, seconds: u64) -> Result<UpToCut> {
        let half = Duration::from_secs(seconds);
        let began_us = now_us()?;
        let mut load = self.database.begin_load(1, half * 2 + LOAD_BEYOND_CUT)?;
        watch(load.as_mut(), "load with all disks", half)?;

        let lost_us = now_us()?;
        let mut lost_disk = None;
        if let Place::Group(group) = &self.place {
            let name = group.lose_disk()?;
            println!(
                "{:42} {name} no longer answers; its file is gone",
                "a disk is taken away"
            );
            lost_disk = Some(name);
        }
        watch(load.as_mut(), "load with one disk gone", half)?;

        let shown = match &self.place {
            Place::Group(group) => Some(group.show()?),
            Place::Plain(_) => None,
        };
        // What clients saw up to here is on Spindle's account; after the kill it is on ours.
        let mut errors: Vec<String> = load
            .errors()
            .into_iter()
            .map(|(_, line)| format!("a client saw: {line}"))
            .collect();
        if let (Some(group), Some(disk)) = (&shown, &lost_disk)
            && mode_of(group, disk) != Some("offline")
        {
            // Then nothing was shown: a disk that is still in use is not lost.
            errors.push(format!(
                "{disk} was taken away, and the group still has it online"
            ));
        }
        let cut_us = now_us()?;
        self.database.kill();
        if let Place::Group(group) = &mut self.place {
            group.kill()?;
        }
        println!(
            "{:42} SIGKILL to server and storage daemon",
            "the power is cut"
        );
        Ok(UpToCut {
            log: load.finish(LOAD_END_AT_MOST)?,
            began_us,
            lost_us,
            cut_us,
            errors,
            group: shown,
        })
    }

    fn come_back(&mut self) -> Result<(Duration, Duration)> {
        let began = Instant::now();
        if let Place::Group(group) = &mut self.place {
            let step = Step::begin("mounting with three disks", 0);
            group.mount()?;
            step.done("");
        }
        let mounted_after = began.elapsed();
        let step = Step::begin("recovery of the database", 0);
        let began = Instant::now();
        self.database.recover(self.place.directory())?;
        step.done("");
        Ok((mounted_after, began.elapsed()))
    }

    fn prove(&mut self, acknowledgements: &Acknowledgements, name: &str) -> Result<Proof> {
        let step = Step::begin(name, 0);
        let proof = self.database.prove(acknowledgements)?;
        step.done(&format!(
            "{} acknowledged commits, {} faults",
            thousands(proof.acknowledged),
            proof.faults.len()
        ));
        for fault in &proof.faults {
            println!("  FAULT: {fault}");
        }
        Ok(proof)
    }

    /// The load after the power cut, under which disks come and the daemon dies. On a plain
    /// directory it is only the load, for `seconds`.
    fn change_disks(
        &mut self,
        seconds: u64,
        rates: &mut Vec<(&'static str, Rate)>,
    ) -> Result<(Run, Option<(Changes, Value)>)> {
        const RUN: u32 = 2;
        if let Place::Group(group) = &self.place {
            let (run, changes) = changes::happen(self.database.as_mut(), group, RUN)?;
            rates.extend(changes.rates.iter().copied());
            let shown = group.show()?;
            return Ok((run, Some((changes, shown))));
        }
        let began_us = now_us()?;
        let duration = Duration::from_secs(seconds);
        let mut load = self.database.begin_load(RUN, duration)?;
        watch(load.as_mut(), "load after the cut", duration)?;
        let ended_us = now_us()?;
        let errors = load.errors();
        if let Some((_, line)) = errors.first() {
            bail!("after the recovery a client saw: {line}");
        }
        let log = load.finish(LOAD_END_AT_MOST)?;
        rates.push(("after the cut", Rate::between(&log, began_us, ended_us)?));
        Ok((Run { number: RUN, log }, None))
    }

    /// Unmounts, and lets Spindle compare its own books.
    fn end_group(&mut self) -> Result<Option<String>> {
        match &mut self.place {
            Place::Group(group) => group.end().map(Some),
            Place::Plain(_) => Ok(None),
        }
    }
}

/// Looks on for `duration`; a load that ends earlier is an error.
pub fn watch(load: &mut dyn Load, name: &str, duration: Duration) -> Result<()> {
    let length_ms = u64::try_from(duration.as_millis())?;
    let step = Step::begin(name, length_ms);
    let began = Instant::now();
    while began.elapsed() < duration {
        interrupt::sleep(Duration::from_millis(100).min(duration))?;
        let elapsed_ms = u64::try_from(began.elapsed().as_millis())?;
        step.advance(elapsed_ms.min(length_ms), &load.progress());
        if !load.is_running()? && began.elapsed() + Duration::from_secs(2) < duration {
            bail!("the load ended early: {:?}", load.errors());
        }
    }
    step.done(&format!("{CLIENT_COUNT} clients, {}", load.progress()));
    Ok(())
}

fn count(acknowledgements: &mut Acknowledgements, run: u32, log: &[Acknowledged]) {
    for entry in log {
        *acknowledgements.entry((run, entry.client)).or_default() += 1;
    }
}

/// The clock of the load's own log.
pub fn now_us() -> Result<u64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(u64::try_from(since.as_micros())?)
}

fn mode_of<'a>(group: &'a Value, disk: &str) -> Option<&'a str> {
    let disks = group["disks"].as_array()?;
    disks.iter().find(|found| found["name"] == disk)?["mode"].as_str()
}
