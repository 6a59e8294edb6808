//! A recording: the disks as they were when it began, every request to them since, and what the
//! clients were told meanwhile. It is a directory, so that a failure can keep it:
//!
//! | name | what |
//! |---|---|
//! | `base/` | the disks' images when the recording began |
//! | `requests` | the recorder's own file: every write, flush and FUA in order, with times |
//! | `told` | the clients' log |
//! | `span` | the times between which cuts are drawn, in nanoseconds |

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use spindle_device::SeededRandom;
use spindle_rig::figures::{size, thousands};
use spindle_rig::postgres::{Cluster, Installation};
use spindle_rig::progress::Step;
use spindle_rig::scene::Scene;
use spindle_rig::spindle::Spindle;

use super::acknowledgement::{Entry, from_text, now_ns, to_text};
use super::{copy_sparse, load};

/// The group's name.
pub const GROUP: &str = "cuts";

/// The disks; each is a failure group of its own.
pub const DISKS: [&str; 3] = ["disk1", "disk2", "disk3"];

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

/// A recording, ready to be cut.
pub struct Recording {
    directory: PathBuf,
    /// What the clients were told.
    pub told: Vec<Entry>,
    first_ns: u64,
    last_ns: u64,
}

impl Recording {
    /// Makes one: a new group, a new cluster, `seconds` of load.
    pub fn make(scene: &Scene, installation: &Installation, seconds: u64) -> Result<Self> {
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
        let told = load::run(&server, Duration::from_secs(seconds))?;
        let last_ns = now_ns();
        server.stop()?;
        mount.unmount()?;
        // The disks have served: what a cut needs is their base and the requests.
        fs::remove_dir_all(&disks)?;
        fs::write(directory.join("told"), to_text(&told))?;
        fs::write(directory.join("span"), format!("{first_ns} {last_ns}\n"))?;
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

    /// A disk's image when the recording began.
    pub fn base(&self, disk: &str) -> PathBuf {
        self.directory.join("base").join(disk)
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
