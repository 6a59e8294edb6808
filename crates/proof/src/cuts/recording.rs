//! A recording: the disks as they were when it began, every request to them since, and what the
//! clients were told meanwhile. It is a directory, so that a failure can keep it:
//!
//! | name | what |
//! |---|---|
//! | `base/` | the disks' images when the recording began |
//! | `requests` | the recorder's own file: every write, flush and FUA in order, with times |
//! | `told` | the clients' log |
//! | `span` | the times between which cuts are drawn, in nanoseconds |
//! | `pulled` | the disk that was taken away during the load, and when; empty where none was |

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
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

/// The one that is taken away, in recordings where one is.
const PULLED_DISK: &str = DISKS[1];

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
    /// The disk that was taken away in the middle of the load, and when.
    pub pulled: Option<(&'static str, u64)>,
}

impl Recording {
    /// Makes one: a new group, a new cluster, `seconds` of load; with `pulls_disk` a disk is
    /// taken away in its middle.
    pub fn make(
        scene: &Scene,
        installation: &Installation,
        seconds: u64,
        pulls_disk: bool,
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
        let half = Duration::from_secs(seconds) / 2;
        let mut pulled = None;
        let told = load::run(&server, half, || {
            if pulls_disk {
                // Cuts from here on may meet the group with the disk or without it.
                pulled = Some((PULLED_DISK, now_ns()));
                spindle.pull(GROUP, &disks.join(PULLED_DISK))?;
            }
            Ok(())
        })?;
        let last_ns = now_ns();
        if pulls_disk {
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
        let line = pulled.map(|(disk, at_ns)| format!("{disk} {at_ns}\n"));
        fs::write(directory.join("pulled"), line.unwrap_or_default())?;
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
            pulled,
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
            pulled: match read("pulled")?.trim().split_once(' ') {
                Some((_, at_ns)) => Some((PULLED_DISK, at_ns.parse()?)),
                None => None,
            },
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
