//! Where the database lies, and what is done to the disks below it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;
use spindle_testbed::scene::Scene;
use spindle_testbed::spindle::{Mount, Spindle};
use spindle_testbed::work::{Pass, keeper_is_lacking};

const GROUP: &str = "demo";
const DISKS: [&str; 4] = ["east1", "east2", "west1", "west2"];
const DISK_SIZE: &str = "2G";
const LOST_DISK: &str = "west1";
/// It comes later, as a failure group of its own.
const NEW_DISK: &str = "north1";
const NEW_FAILURE_GROUP: &str = "north";

/// Enough that a person need not wait long, and little enough that there is something to see.
const POWER: &str = "4";

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

    /// The database's directory.
    pub fn directory(&self) -> &Path {
        match self {
            Self::Group(group) => &group.point,
            Self::Plain(directory) => directory,
        }
    }
}

impl GroupPlace {
    /// Makes the group.
    pub fn create(&self) -> Result<()> {
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

    /// Mounts it, with a keeper.
    pub fn mount(&mut self) -> Result<()> {
        self.mount = Some(self.spindle.mount(GROUP, &self.point, &["--keeper"])?);
        Ok(())
    }

    /// Unmounts it, and lets Spindle compare its own books; what it says.
    pub fn end(&mut self) -> Result<String> {
        self.mount.take().map_or(Ok(()), Mount::unmount)?;
        let said = self.spindle.tell(["group", "check", GROUP])?;
        Ok(said.lines().last().unwrap_or_default().to_owned())
    }

    /// The disk stops answering, and its file is no longer where it was. Gives its name.
    pub fn lose_disk(&self) -> Result<String> {
        let path = self.disks.join(LOST_DISK);
        let name = self.spindle.pull(GROUP, &path)?;
        std::fs::rename(&path, self.elsewhere())
            .with_context(|| format!("cannot move {} away", path.display()))?;
        Ok(name)
    }

    /// The file of the lost disk is where it was; the group is told to take it back.
    pub fn bring_disk_back(&self) -> Result<()> {
        self.set_power()?;
        let path = self.disks.join(LOST_DISK);
        std::fs::rename(self.elsewhere(), &path)
            .with_context(|| format!("cannot move {} back", path.display()))?;
        self.spindle
            .tell(["disk", "online", GROUP, "--all"])
            .map(drop)
    }

    fn elsewhere(&self) -> PathBuf {
        self.disks.with_file_name("lost-disk")
    }

    fn set_power(&self) -> Result<()> {
        self.spindle
            .tell(["rebalance", GROUP, "--power", POWER, "--default"])
            .map(drop)
    }

    /// A fifth disk joins, in a failure group of its own.
    pub fn add_disk(&self) -> Result<()> {
        let path = self.disks.join(NEW_DISK);
        let new = format!("{NEW_FAILURE_GROUP}={}:{DISK_SIZE}", path.display());
        self.spindle
            .tell(["disk", "add", GROUP, "--failgroup", &new])
            .map(drop)
    }

    /// What copying of a kind came to so far, by the group's own events.
    pub fn copied_bytes(&self, kind: &str) -> Result<u64> {
        self.spindle.copied_bytes(GROUP, kind)
    }

    /// What is copied in the background, or waits to be.
    pub fn passes(&self) -> Result<Vec<Pass>> {
        self.spindle.passes(GROUP)
    }

    /// SIGKILL to the storage daemon alone: its keeper goes on. Why not, where it cannot be.
    pub fn kill_daemon(&self) -> Result<Option<String>> {
        let lacking = keeper_is_lacking();
        if lacking.is_none() {
            self.spindle.kill_daemon(GROUP)?;
        }
        Ok(lacking)
    }

    /// SIGKILL to the daemon and its keeper: the power is cut.
    pub fn kill(&mut self) -> Result<()> {
        self.mount.take().map_or(Ok(()), Mount::kill)
    }

    /// What `spindle group show --json` says.
    pub fn show(&self) -> Result<Value> {
        self.spindle.ask(["group", "show", GROUP])
    }
}
