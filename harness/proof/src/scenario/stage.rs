//! The group of a scenario on its mount, and what every act needs: who its members are, which
//! devices are spare, waiting while the clients are looked after, and a line for each act.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use spindle_device::SeededRandom;
use spindle_testbed::interrupt;
use spindle_testbed::scene::Scene;
use spindle_testbed::spindle::{Mount, Spindle};
use spindle_testbed::work::Pass;

use super::clients::Clients;
use super::databases::{ColdFile, Servers};
use super::pulse::Pulse;
use super::shelf::Shelf;

/// The group's name.
pub const GROUP: &str = "scenario";

/// The failure groups; each has two disks at the beginning.
pub const FAILURE_GROUPS: [&str; 3] = ["north", "east", "west"];

/// Six members and two spares.
pub const DEVICE_COUNT: usize = 8;

/// Who waits longer says for what.
const TELL_EVERY: Duration = Duration::from_secs(10);

const COPYING_AT_MOST: Duration = Duration::from_secs(180);
const ANSWER_AT_MOST: Duration = Duration::from_secs(20);

/// A disk of the group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// What the group calls it.
    pub name: String,
    /// Its device's name on the shelf; none where the group does not find it.
    pub device: Option<String>,
    /// Its failure group.
    pub failure_group: String,
    /// Whether it is online and stays.
    pub is_normal: bool,
    /// Whether it is online.
    pub is_online: bool,
}

/// A member that was taken away.
#[derive(Debug, Clone)]
pub struct Away {
    /// It.
    pub member: Member,
    /// Its device.
    pub device: String,
    /// Whether the process that serves the group has its cable pulled; the next one has not.
    pub is_pulled: bool,
}

/// The group, its devices, and whoever uses it: in the order in which they must end.
pub struct Stage {
    /// The clients.
    pub clients: Option<Clients>,
    /// The servers.
    pub servers: Option<Servers>,
    mount: Option<Mount>,
    /// What is typed.
    pub spindle: Spindle,
    /// The devices.
    pub shelf: Shelf,
    /// What decides.
    pub random: SeededRandom,
    /// Files whose pages nobody writes.
    pub cold: Vec<ColdFile>,
    /// A member that is away.
    pub away: Option<Away>,
    /// Devices of members that were given up while away: they must not come back.
    pub given_up: Vec<String>,
    /// How often the daemon was killed.
    pub kills_count: usize,
    /// The longest that a client waited around one of these.
    pub longest_pause: Duration,
    /// How many damaged pages a scrub mended.
    pub mended_count: usize,
    /// What the machine does meanwhile.
    pub pulse: Pulse,
    point: PathBuf,
}

impl Stage {
    /// A group on new devices, mounted.
    pub fn make(scene: &Scene, seed: u64) -> Result<Self> {
        let shelf = Shelf::make(scene, DEVICE_COUNT)?;
        let spindle = Spindle::find(&shelf.search_path(), &scene.join("run"))?;
        let spindle = spindle.with_volatile_caches(seed);
        let mut words = ["group", "create", GROUP, "--redundancy", "normal"]
            .map(str::to_owned)
            .to_vec();
        words.extend(["--profile", "postgresql"].map(str::to_owned));
        let names: Vec<&str> = shelf.names().collect();
        for (failure_group, devices) in FAILURE_GROUPS.iter().zip(names.chunks(2)) {
            let paths: Vec<String> = devices
                .iter()
                .map(|name| shelf.path(name).display().to_string())
                .collect();
            let named = format!("{failure_group}={}", paths.join(","));
            words.extend(["--failgroup".to_owned(), named]);
        }
        spindle.tell(words.iter().map(String::as_str))?;
        let mut stage = Self {
            spindle,
            shelf,
            random: SeededRandom::new(seed),
            cold: Vec::new(),
            away: None,
            given_up: Vec::new(),
            kills_count: 0,
            longest_pause: Duration::ZERO,
            mended_count: 0,
            clients: None,
            servers: None,
            mount: None,
            pulse: Pulse::begin(scene.path())?,
            point: scene.directory("mount")?,
        };
        stage.mount()?;
        Ok(stage)
    }

    /// Where it is mounted.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Mounts it with a keeper.
    pub fn mount(&mut self) -> Result<()> {
        self.mount = Some(self.spindle.mount(GROUP, &self.point, &["--keeper"])?);
        Ok(())
    }

    /// Whether it is mounted.
    pub const fn is_mounted(&self) -> bool {
        self.mount.is_some()
    }

    /// Unmounts it as an administrator would.
    pub fn unmount(&mut self) -> Result<()> {
        self.mount.take().map_or(Ok(()), Mount::unmount)
    }

    /// An error where a client saw one, or a server has ended.
    pub fn check_clients(&mut self) -> Result<()> {
        interrupt::check()?;
        if let Some(clients) = &self.clients {
            clients.check()?;
        }
        self.servers.as_mut().map_or(Ok(()), Servers::check_alive)
    }

    /// Asks again and again until there is an answer, and looks after the clients meanwhile.
    pub fn wait_for<T>(
        &mut self,
        what: &str,
        limit: Duration,
        mut ask: impl FnMut(&mut Self) -> Result<Option<T>>,
    ) -> Result<T> {
        let began = Instant::now();
        let mut told = Duration::ZERO;
        loop {
            self.check_clients()?;
            if let Some(answer) = ask(self)? {
                return Ok(answer);
            }
            if began.elapsed() > told + TELL_EVERY {
                told = began.elapsed();
                let passes = self.spindle.passes(GROUP);
                eprintln!("  waiting {} s for {what}: {passes:?}", told.as_secs());
            }
            if began.elapsed() > limit {
                let shown = self.show()?;
                let passes = self.spindle.passes(GROUP)?;
                anyhow::bail!(
                    "waited {} s for {what}, in vain; the group: {shown}; operations: {passes:?}",
                    limit.as_secs()
                );
            }
            interrupt::sleep(Duration::from_millis(50))?;
        }
    }

    /// Goes on for a while.
    pub fn rest(&mut self, duration: Duration) -> Result<()> {
        let until = Instant::now() + duration;
        self.wait_for("time to pass", duration * 2, |_| {
            Ok((Instant::now() >= until).then_some(()))
        })
    }

    /// What `spindle group show` says. While one daemon follows another nobody answers.
    pub fn show(&self) -> Result<Value> {
        interrupt::wait_for("the group to be served", ANSWER_AT_MOST, || {
            Ok(self.spindle.ask(["group", "show", GROUP]).ok())
        })
    }

    /// The members as they are now.
    pub fn members(&self) -> Result<Vec<Member>> {
        let shown = self.show()?;
        let disks = shown["disks"].as_array().context("a group has disks")?;
        disks
            .iter()
            .map(|disk| {
                let text = |key: &str| disk[key].as_str().map(str::to_owned);
                let is_online = disk["mode"] == "online";
                let path = disk["path"].as_str().map(Path::new);
                let device = path.and_then(|path| self.shelf.device_at(path));
                Ok(Member {
                    name: text("name").context("a disk has a name")?,
                    device: device.filter(|_| is_online),
                    failure_group: text("failure_group").context("a disk has a failure group")?,
                    is_normal: is_online && disk["state"] == "normal",
                    is_online,
                })
            })
            .collect()
    }

    /// Devices that are in no group and were not given up.
    pub fn spares(&self) -> Result<Vec<String>> {
        let members = self.members()?;
        let away = self.away.as_ref().map(|away| &away.device);
        let is_spare = |name: &&str| {
            let is_member = |member: &Member| member.device.as_deref() == Some(*name);
            !members.iter().any(is_member)
                && away.is_none_or(|device| device != name)
                && !self.given_up.iter().any(|device| device == name)
        };
        Ok(self
            .shelf
            .names()
            .filter(is_spare)
            .map(str::to_owned)
            .collect())
    }

    /// One of them by chance.
    pub fn draw<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        if from.is_empty() {
            return None;
        }
        Some(from[self.random.index(from.len())].clone())
    }

    /// The last that the daemons said.
    pub fn log_tail(&self) -> String {
        let daemon = self.mount.as_ref().map(Mount::log_tail).unwrap_or_default();
        let mariadb = (self.servers.as_ref())
            .map(|servers| servers.mariadb.log_tail())
            .unwrap_or_default();
        format!("the daemon's log:\n{daemon}\nMariaDB's log:\n{mariadb}")
    }

    /// Waits until no pass runs for which `matters` says yes.
    pub fn wait_for_copying(&mut self, matters: impl Fn(&Pass) -> bool) -> Result<()> {
        self.wait_for("the copying to end", COPYING_AT_MOST, |stage| {
            // While one daemon follows another nobody answers.
            let Ok(passes) = stage.spindle.passes(GROUP) else {
                return Ok(None);
            };
            for pass in passes.iter().filter(|pass| matters(pass)) {
                ensure!(
                    pass.state != "errors",
                    "the {} cannot go on: {:?}",
                    pass.name,
                    pass.error
                );
            }
            Ok((!passes.iter().any(&matters)).then_some(()))
        })
    }
}
