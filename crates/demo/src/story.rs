//! The story, step by step: a load, a dead disk, a power cut, the proof, and the load again.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use spindle_rig::figures::{size, thousands};
use spindle_rig::interrupt;
use spindle_rig::pgbench::{Acknowledged, Rate};
use spindle_rig::progress::Step;
use spindle_rig::scene::Scene;
use spindle_rig::spindle::{Mount, Spindle};

use crate::database::{Acknowledgements, CLIENT_COUNT, Database, Load, Proof};

const GROUP: &str = "demo";
const DISKS: [&str; 4] = ["east1", "east2", "west1", "west2"];
const DISK_SIZE: &str = "2G";
const LOST_DISK: &str = "west1";

/// The load ends by itself this long after the power should have been cut: a slow machine must
/// still be under load when the cut comes.
const LOAD_BEYOND_CUT: Duration = Duration::from_secs(60);
const LOAD_END_AT_MOST: Duration = Duration::from_secs(120);

/// Where the database lies.
pub enum Place {
    /// A group of four file disks, mounted.
    Group(Box<GroupPlace>),
    /// A plain directory: for working on the story itself.
    Plain(PathBuf),
}

/// The group, its disks and its mount.
pub struct GroupPlace {
    spindle: Spindle,
    disks: PathBuf,
    point: PathBuf,
    mount: Option<Mount>,
}

impl Place {
    /// A directory that is there.
    pub fn plain(directory: &Path) -> Result<Self> {
        Ok(Self::Plain(std::fs::canonicalize(directory)?))
    }

    /// A group, not yet made.
    pub fn group(scene: &Scene) -> Result<Self> {
        let disks = scene.directory("disks")?;
        let search = format!("{}/*", disks.display());
        Ok(Self::Group(Box::new(GroupPlace {
            spindle: Spindle::find(&search, &scene.join("run"))?,
            disks,
            point: scene.directory("mount")?,
            mount: None,
        })))
    }

    fn directory(&self) -> &Path {
        match self {
            Self::Group(group) => &group.point,
            Self::Plain(directory) => directory,
        }
    }
}

impl GroupPlace {
    fn create(&self) -> Result<()> {
        let mut words = vec!["group".to_owned(), "create".to_owned(), GROUP.to_owned()];
        for site in ["east", "west"] {
            let members: Vec<String> = DISKS
                .iter()
                .filter(|disk| disk.starts_with(site))
                .map(|disk| format!("{}:{DISK_SIZE}", self.disks.join(disk).display()))
                .collect();
            words.extend([
                "--failgroup".to_owned(),
                format!("{site}={}", members.join(",")),
            ]);
        }
        let options = ["--redundancy", "normal", "--profile", "postgresql"];
        words.extend(options.map(str::to_owned));
        self.spindle.tell(words.iter().map(String::as_str))?;
        Ok(())
    }

    fn mount(&mut self) -> Result<()> {
        self.mount = Some(self.spindle.mount(GROUP, &self.point, &[])?);
        Ok(())
    }

    /// The disk stops answering, and its file is no longer where it was. Gives its name.
    fn lose_disk(&self) -> Result<String> {
        let path = self.disks.join(LOST_DISK);
        let name = self.spindle.pull(GROUP, &path)?;
        let elsewhere = self.disks.with_file_name("lost-disk");
        std::fs::rename(&path, elsewhere)
            .with_context(|| format!("cannot move {} away", path.display()))?;
        Ok(name)
    }

    fn kill(&mut self) -> Result<()> {
        self.mount.take().map_or(Ok(()), Mount::kill)
    }

    fn show(&self) -> Result<Value> {
        self.spindle.ask(["group", "show", GROUP])
    }
}

/// What happened, for the page.
pub struct Told {
    /// What ran.
    pub title: String,
    /// The load with all disks, with one gone, and after the power cut.
    pub rates: [(&'static str, Rate); 3],
    /// What `spindle group show --json` said just before the power cut; `None` on a plain
    /// directory.
    pub group: Option<Value>,
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

        let after = self.load_again(seconds.clamp(5, 10))?;
        count(&mut acknowledgements, 2, &after.0);
        let at_end = self.prove(&acknowledgements, "comparing once more")?;
        self.database.stop()?;
        let checked = self.end_group()?;

        let mut faults = cut.errors;
        faults.extend(after_cut.faults.iter().cloned());
        faults.extend(at_end.faults.iter().cloned());
        Ok(Told {
            title: self.database.title(),
            rates: [
                (
                    "all disks",
                    Rate::between(&cut.log, cut.began_us, cut.lost_us)?,
                ),
                (
                    "one disk gone",
                    Rate::between(&cut.log, cut.lost_us, cut.cut_us)?,
                ),
                ("after the cut", after.1),
            ],
            group: cut.group,
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
        Ok(proof)
    }

    fn load_again(&mut self, seconds: u64) -> Result<(Vec<Acknowledged>, Rate)> {
        let began_us = now_us()?;
        let duration = Duration::from_secs(seconds);
        let mut load = self.database.begin_load(2, duration)?;
        watch(load.as_mut(), "load after the cut", duration)?;
        let ended_us = now_us()?;
        let errors = load.errors();
        if let Some((_, line)) = errors.first() {
            bail!("after the recovery a client saw: {line}");
        }
        let log = load.finish(LOAD_END_AT_MOST)?;
        let rate = Rate::between(&log, began_us, ended_us)?;
        Ok((log, rate))
    }

    /// Unmounts, and lets Spindle compare its own books.
    fn end_group(&mut self) -> Result<Option<String>> {
        let Place::Group(group) = &mut self.place else {
            return Ok(None);
        };
        group.mount.take().map_or(Ok(()), Mount::unmount)?;
        let said = group.spindle.tell(["group", "check", GROUP])?;
        Ok(Some(said.lines().last().unwrap_or_default().to_owned()))
    }
}

/// Looks on for `duration`; a load that ends earlier is an error.
fn watch(load: &mut dyn Load, name: &str, duration: Duration) -> Result<()> {
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
fn now_us() -> Result<u64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(u64::try_from(since.as_micros())?)
}

fn mode_of<'a>(group: &'a Value, disk: &str) -> Option<&'a str> {
    let disks = group["disks"].as_array()?;
    disks.iter().find(|found| found["name"] == disk)?["mode"].as_str()
}

/// The disks of the group's JSON, as the page shows them.
pub fn disk_lines(group: &Value) -> Vec<String> {
    let text = |disk: &Value, key: &str| disk[key].as_str().unwrap_or("-").to_owned();
    let bytes = |disk: &Value, key: &str| disk[key].as_u64().map_or("-".to_owned(), size);
    let mut lines = vec![format!(
        "  {:14} {:14} {:>10} {:>10} {:>10} {:>10}   mode",
        "disk", "failure group", "size", "free", "read", "written"
    )];
    for disk in group["disks"].as_array().into_iter().flatten() {
        lines.push(format!(
            "  {:14} {:14} {:>10} {:>10} {:>10} {:>10}   {}",
            text(disk, "name"),
            text(disk, "failure_group"),
            bytes(disk, "total_bytes"),
            bytes(disk, "free_bytes"),
            bytes(disk, "read_bytes"),
            bytes(disk, "written_bytes"),
            text(disk, "mode")
        ));
    }
    lines
}
