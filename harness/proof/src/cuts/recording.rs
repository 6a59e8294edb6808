//! A recording: the disks as they were when it began, every request to them since, and what the
//! clients were told meanwhile. It is a directory, so that a failure can keep it:
//!
//! | name | what |
//! |---|---|
//! | `base/` | the disks' images when the recording began |
//! | `requests` | the recorder's own file: every write, flush and FUA in order, with times |
//! | `told` | the clients' log |
//! | `span` | the times between which cuts are drawn, in nanoseconds |
//! | `disturbance` | what happened to the disks during the load, and when; empty where nothing did |

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use spindle_device::SeededRandom;
use spindle_testbed::figures::{size, thousands};
use spindle_testbed::interrupt;
use spindle_testbed::postgres::{Cluster, Installation};
use spindle_testbed::progress::Step;
use spindle_testbed::scene::Scene;
use spindle_testbed::spindle::Spindle;

use super::acknowledgement::{Entry, from_text, now_ns, to_text};
use super::{copy_sparse, load};

/// The group's name.
pub const GROUP: &str = "cuts";

/// The disks; each is a failure group of its own.
pub const DISKS: [&str; 3] = ["disk1", "disk2", "disk3"];

/// The one that is taken away, in recordings where one is.
const PULLED_DISK: &str = DISKS[1];

/// The one that joins in recordings where disks change; a failure group of its own, too.
pub const NEW_DISK: &str = "disk4";
/// What the group calls it.
pub const NEW_NAME: &str = "joined";

/// The one that is dropped then.
pub const LEAVING_DISK: &str = DISKS[1];
/// What the group calls it: the second of its disks.
pub const LEAVING_NAME: &str = "cuts_0001";

/// Small enough that a disk is rebuilt in a fraction of a second.
const DISK_SIZE: &str = "512M";

/// A small server: what does not fit into its memory goes through the mount at once, and its
/// log is recycled every few seconds.
pub const SETTINGS: [&str; 5] = [
    "shared_buffers=4MB",
    "max_wal_size=16MB",
    "min_wal_size=4MB",
    "checkpoint_completion_target=0.3",
    "autovacuum_naptime=1s",
];

/// What happens to the disks while a load is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// Nothing.
    Nothing,
    /// One is taken away in the middle.
    PullDisk,
    /// One joins, and then another is dropped.
    ChangeDisks,
}

/// What happened to the disks, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disturbance {
    /// Nothing.
    None,
    /// A disk was taken away.
    Pulled {
        /// Which.
        disk: &'static str,
        /// When.
        at_ns: u64,
    },
    /// A disk joined and another began to leave.
    Changed(Changes),
}

/// When the changes of the disks were acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Changes {
    /// From here on the new disk is a member.
    pub added_ns: u64,
    /// From here on the other one leaves, or has left.
    pub dropped_ns: u64,
}

impl Disturbance {
    fn to_text(self) -> String {
        match self {
            Self::None => String::new(),
            Self::Pulled { disk, at_ns } => format!("pulled {disk} {at_ns}\n"),
            Self::Changed(changes) => {
                format!("changed {} {}\n", changes.added_ns, changes.dropped_ns)
            }
        }
    }

    fn from_text(text: &str) -> Result<Self> {
        let words: Vec<&str> = text.split_whitespace().collect();
        Ok(match words[..] {
            [] => Self::None,
            ["pulled", _, at_ns] => Self::Pulled {
                disk: PULLED_DISK,
                at_ns: at_ns.parse()?,
            },
            ["changed", added_ns, dropped_ns] => Self::Changed(Changes {
                added_ns: added_ns.parse()?,
                dropped_ns: dropped_ns.parse()?,
            }),
            _ => bail!("not a disturbance: {text}"),
        })
    }
}

/// A recording, ready to be cut.
pub struct Recording {
    directory: PathBuf,
    /// What the clients were told.
    pub told: Vec<Entry>,
    first_ns: u64,
    last_ns: u64,
    /// What happened to the disks during the load.
    pub disturbance: Disturbance,
}

impl Recording {
    /// Makes one: a new group, a new cluster, `seconds` of load, under which `plan` happens to
    /// the disks.
    pub fn make(
        scene: &Scene,
        installation: &Installation,
        seconds: u64,
        plan: Plan,
    ) -> Result<Self> {
        let directory = scene.directory("recording")?;
        let base = scene.directory("recording/base")?;
        let disks = scene.directory("recording/disks")?;
        let point = scene.directory("recording/mount")?;
        let requests = directory.join("requests");

        let step = Step::begin("a group and a cluster to be recorded", 0);
        let search = format!("{}/*", disks.display());
        let spindle = Spindle::find(&search, &directory.join("run"))?;
        create_group(&spindle, &disks)?;
        let runtime = scene.directory("recording/server")?;
        let data = point.join("pgdata");
        let cluster = Cluster::new(installation, &data, &runtime, &SETTINGS)?;
        let mount = spindle.mount(GROUP, &point, &[])?;
        cluster.init(&["--wal-segsize=1", "--data-checksums"])?;
        let server = cluster.start()?;
        load::prepare(&server)?;
        server.stop()?;
        mount.unmount()?;
        for disk in DISKS {
            copy_sparse(&disks.join(disk), &base.join(disk))?;
        }
        step.done("");

        let step = Step::begin("recording a load", 0);
        let record = requests.to_string_lossy().into_owned();
        let mount = spindle.mount(GROUP, &point, &["--record", &record])?;
        let first_ns = now_ns();
        let server = cluster.start()?;
        let mut disturbance = Disturbance::None;
        let told = load::run(&server, || {
            disturbance = disturb(&spindle, &disks, plan, Duration::from_secs(seconds))?;
            Ok(())
        })?;
        let last_ns = now_ns();
        if plan == Plan::PullDisk {
            let shown = spindle.ask(["group", "show", GROUP])?;
            let count = shown["offline_disks_count"].as_u64();
            ensure!(count == Some(1), "a disk was pulled, {count:?} are offline");
        }
        server.stop()?;
        mount.unmount()?;
        // The disks have served: what a cut needs is their base and the requests.
        fs::remove_dir_all(&disks)?;
        fs::write(directory.join("told"), to_text(&told))?;
        fs::write(directory.join("span"), format!("{first_ns} {last_ns}\n"))?;
        fs::write(directory.join("disturbance"), disturbance.to_text())?;
        step.done(&format!(
            "{} acknowledgements, {} of requests",
            thousands(told.len() as u64),
            size(fs::metadata(&requests)?.len())
        ));
        Ok(Self {
            directory,
            told,
            first_ns,
            last_ns,
            disturbance,
        })
    }

    /// One that an earlier run kept.
    pub fn open(directory: &Path) -> Result<Self> {
        let read = |name: &str| {
            let path = directory.join(name);
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let span = read("span")?;
        let (first, last) = span
            .trim()
            .split_once(' ')
            .context("a span is two numbers")?;
        Ok(Self {
            directory: directory.to_owned(),
            told: from_text(&read("told")?)?,
            first_ns: first.parse()?,
            last_ns: last.parse()?,
            disturbance: Disturbance::from_text(&read("disturbance")?)?,
        })
    }

    /// Where it lies.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The recorder's file.
    pub fn requests(&self) -> PathBuf {
        self.directory.join("requests")
    }

    /// A disk's image when the recording began; none of one that joined during it.
    pub fn base(&self, disk: &str) -> Option<PathBuf> {
        let path = self.directory.join("base").join(disk);
        path.exists().then_some(path)
    }

    /// The disks that the requests may tell of.
    pub fn disks(&self) -> Vec<&'static str> {
        let mut disks = DISKS.to_vec();
        if matches!(self.disturbance, Disturbance::Changed(_)) {
            disks.push(NEW_DISK);
        }
        disks
    }

    /// The moment of a cut: anywhere, or within a breath after something was acknowledged, where
    /// an answer that was given too early shows.
    pub fn moment(&self, random: &mut SeededRandom) -> u64 {
        if !self.told.is_empty() && random.chance(1, 2) {
            self.told[random.index(self.told.len())].at_ns + random.below(20_000)
        } else {
            self.first_ns + random.below(self.last_ns - self.first_ns)
        }
    }
}

/// Lets the load run for `duration`, and the plan happen in it.
fn disturb(spindle: &Spindle, disks: &Path, plan: Plan, duration: Duration) -> Result<Disturbance> {
    match plan {
        Plan::Nothing => {
            interrupt::sleep(duration)?;
            Ok(Disturbance::None)
        }
        Plan::PullDisk => {
            interrupt::sleep(duration / 2)?;
            // Cuts from here on may meet the group with the disk or without it.
            let at_ns = now_ns();
            spindle.pull(GROUP, &disks.join(PULLED_DISK))?;
            interrupt::sleep(duration / 2)?;
            Ok(Disturbance::Pulled {
                disk: PULLED_DISK,
                at_ns,
            })
        }
        Plan::ChangeDisks => {
            interrupt::sleep(duration / 5)?;
            let new = format!("{}:{DISK_SIZE}", disks.join(NEW_DISK).display());
            spindle.tell([
                "disk",
                "add",
                GROUP,
                "--file-disk",
                &new,
                "--name",
                NEW_NAME,
            ])?;
            let added_ns = now_ns();
            interrupt::sleep(duration / 5)?;
            spindle.tell(["disk", "drop", GROUP, LEAVING_NAME])?;
            let dropped_ns = now_ns();
            interrupt::sleep(duration * 3 / 5)?;
            Ok(Disturbance::Changed(Changes {
                added_ns,
                dropped_ns,
            }))
        }
    }
}

fn create_group(spindle: &Spindle, disks: &Path) -> Result<()> {
    let mut words = ["group", "create", GROUP].map(str::to_owned).to_vec();
    for disk in DISKS {
        // A disk that is named alone is a failure group of its own.
        let path = disks.join(disk);
        words.extend([
            "--file-disk".to_owned(),
            format!("{}:{DISK_SIZE}", path.display()),
        ]);
    }
    let options = ["--redundancy", "normal", "--profile", "postgresql"];
    words.extend(options.map(str::to_owned));
    spindle.tell(words.iter().map(String::as_str)).map(drop)
}
