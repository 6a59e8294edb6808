//! What lies below a place: the leaf devices that count, and what is known to forget.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::experiment::DatabaseKind;
use crate::measure::contender::Place;
use crate::measure::counters::{devices, devices_since, total};
use crate::measure::database::Settings;
use crate::measure::device::Leaf;
use crate::record::{DeviceActivity, WayCount};

/// The kernel counts a write a moment after its writer has the answer.
const COUNTED_AFTER: Duration = Duration::from_millis(5);

/// File systems in files of file systems, deeper than anybody builds them.
const STACKED_AT_MOST: usize = 8;

/// What the leaf devices do with a write that is not flushed. The name is the device's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cache {
    /// All keep it in a cache that forgets, and only a flush empties that.
    Volatile,
    /// One takes single writes past its cache, which are counted as any write.
    Forced(String),
    /// One has no such cache, or none that the kernel knows of.
    None(String),
}

/// What a contender stands on.
#[derive(Debug, Default)]
pub struct Ground {
    pub(super) leaves: Vec<Leaf>,
    /// Why the disks are not known.
    pub(super) hidden: Option<String>,
    /// What forgets by its nature or its settings.
    pub(super) forgets: Vec<String>,
    /// What forgets only where a device has a volatile cache: a mount without barriers, a database that
    /// does not flush what it wrote past the page cache.
    pub(super) forgets_caches: Vec<String>,
    /// A library that may have answered in place of the kernel.
    pub(super) preloaded: Option<String>,
    /// By device, as it was found; a leaf that is not here is asked.
    pub(super) caches: Vec<Cache>,
}

impl Ground {
    /// The devices of the lab, and what the mount above them says.
    pub fn of_devices(place: &Place, leaves: &[Leaf], simulated: bool) -> Self {
        let mut ground = Self::default();
        ground.look_at_processes(&[std::process::id()]);
        if let Some(mount) = mount_of(place) {
            ground.look_at_options(&mount);
        }
        for leaf in leaves {
            ground.descend(&leaf.numbers, simulated);
        }
        ground.finish();
        ground
    }

    /// What a directory that was there before lies on.
    pub fn of_directory(place: &Place) -> Self {
        let mut ground = Self::default();
        ground.look_at_processes(&[std::process::id()]);
        match place {
            Place::Directory(path) => ground.look_below(path),
            Place::Device(path) => match Leaf::of(path) {
                Ok(leaf) => ground.descend(&leaf.numbers, false),
                Err(error) => ground.hidden = Some(format!("{error:#}")),
            },
        }
        ground.finish();
        ground
    }

    fn look_below(&mut self, path: &Path) {
        let Some(mount) = mount_at(path) else {
            self.hidden = Some(format!("the mount of {} is not known", path.display()));
            return;
        };
        self.look_at_options(&mount);
        match mount.kind.as_str() {
            "tmpfs" | "ramfs" | "hugetlbfs" => self
                .forgets
                .push(format!("it lies in memory ({})", mount.kind)),
            "overlay" => match mount.upper() {
                Some(upper) if upper.is_dir() && upper != path => self.look_below(&upper),
                _ => {
                    self.hidden =
                        Some("what lies below its overlay is not seen from here".to_owned())
                }
            },
            "btrfs" => {
                for numbers in devices_of_btrfs(&mount.source) {
                    self.descend(&numbers, false);
                }
            }
            _ => {
                let number = fs::metadata(path).map_or(0, |metadata| metadata.dev());
                if rustix::fs::major(number) == 0 {
                    self.hidden = Some(format!(
                        "it lies on {}, whose disks are not seen from here",
                        mount.kind
                    ));
                } else {
                    let numbers = format!(
                        "{}:{}",
                        rustix::fs::major(number),
                        rustix::fs::minor(number)
                    );
                    self.descend(&numbers, false);
                }
            }
        }
    }

    /// From a device to the leaves below it: the parts of a stack, the whole disk of a partition
    /// (only whole disks count flushes).
    fn descend(&mut self, numbers: &str, simulated: bool) {
        let Ok(mut path) = fs::canonicalize(format!("/sys/dev/block/{numbers}")) else {
            return;
        };
        if path.join("partition").exists()
            && let Some(whole) = path.parent()
        {
            path = whole.to_owned();
        }
        let parts: Vec<String> = fs::read_dir(path.join("slaves"))
            .map(|parts| {
                parts
                    .filter_map(|part| text(&part.ok()?.path().join("dev")))
                    .collect()
            })
            .unwrap_or_default();
        if !parts.is_empty() {
            for part in parts {
                self.descend(&part, simulated);
            }
            return;
        }
        let Some(numbers) = text(&path.join("dev")) else {
            return;
        };
        if self.leaves.iter().any(|leaf| leaf.numbers == numbers) {
            return;
        }
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        if !simulated {
            self.look_under(&name, &path);
        }
        let says = |file: &str| text(&path.join("queue").join(file)).unwrap_or_default();
        self.caches.push(if says("write_cache") != "write back" {
            Cache::None(name.clone())
        } else if says("fua") == "1" {
            Cache::Forced(name.clone())
        } else {
            Cache::Volatile
        });
        self.leaves.push(Leaf {
            path: Path::new("/dev").join(&name),
            numbers,
            size_bytes: 0,
        });
    }

    /// What a loop device over a file inherits from the file system of that file, and from those
    /// below it: it flushes by an fsync of the file, which that one may answer and forget.
    fn look_under(&mut self, name: &str, device: &Path) {
        let mut device = device.to_owned();
        for _ in 0..STACKED_AT_MOST {
            let file = text(&device.join("loop/backing_file"));
            let Some(mount) = file.and_then(|file| mount_at(Path::new(&file))) else {
                return;
            };
            if ["tmpfs", "ramfs"].contains(&mount.kind.as_str()) {
                self.forgets
                    .push(format!("{name} lies in memory ({})", mount.kind));
                return;
            }
            self.look_at_options(&mount);
            let Some(below) = Path::new(&mount.source).file_name() else {
                return;
            };
            device = Path::new("/sys/block").join(below);
        }
    }

    fn finish(&mut self) {
        if self.hidden.is_none() && self.forgets.is_empty() && self.leaves.is_empty() {
            self.hidden = Some("its disks are not seen from here".to_owned());
        }
        let counted = devices(&self.leaves);
        let silent = counted
            .iter()
            .find(|device| device.reads + device.writes == 0.0)
            .map(|device| device.name.clone());
        // A device of the lab's that a contender leaves alone was filled or formatted before, or
        // is a named one: where not even that was counted, nothing will be.
        if let Some(name) = silent.filter(|_| total(&counted).writes == 0.0) {
            self.hidden
                .get_or_insert_with(|| format!("the kernel has counted no request of {name}"));
        }
    }

    fn look_at_options(&mut self, mount: &Mount) {
        for option in mount.options.split(',') {
            let forgets_caches = ["nobarrier", "barrier=0", "barrier=off"].contains(&option);
            if forgets_caches {
                self.forgets_caches
                    .push(format!("its {} is mounted with `{option}`", mount.kind));
            }
            if mount.kind == "overlay" && option == "volatile" {
                self.forgets
                    .push("its overlay is mounted with `volatile`".to_owned());
            }
        }
    }

    /// Names what the database's settings give up.
    pub fn name_settings(&mut self, kind: DatabaseKind, settings: &Settings) {
        for (name, value) in settings {
            if gives_up(kind, name, value, settings) {
                self.forgets.push(format!("{name} = {value}"));
            } else if gives_caches_up(kind, name, value) {
                self.forgets_caches.push(format!("{name} = {value}"));
            }
        }
    }

    /// Looks for a library that was put before the kernel's answers.
    pub fn look_at_processes(&mut self, members: &[u32]) {
        let of_process = |id: &u32| {
            let variables = fs::read(format!("/proc/{id}/environ")).ok()?;
            let variables = String::from_utf8_lossy(&variables).into_owned();
            variables
                .split('\0')
                .find_map(|variable| variable.strip_prefix("LD_PRELOAD="))
                .filter(|value| !value.is_empty())
                .map(str::to_owned)
        };
        let of_machine = || text(Path::new("/etc/ld.so.preload")).filter(|list| !list.is_empty());
        if self.preloaded.is_none() {
            self.preloaded = members.iter().find_map(of_process).or_else(of_machine);
        }
    }

    /// What is named to forget.
    pub fn forgets(&self) -> Option<String> {
        let mut named = self.forgets.clone();
        if !self
            .caches
            .iter()
            .all(|cache| matches!(cache, Cache::None(_)))
        {
            named.extend(self.forgets_caches.iter().cloned());
        }
        (!named.is_empty()).then(|| named.join(", "))
    }

    /// Why the disks are not known.
    pub fn hidden(&self) -> Option<String> {
        self.hidden.clone()
    }

    /// The cache that hides most.
    pub fn cache(&self) -> Cache {
        let of = |is: fn(&Cache) -> bool| self.caches.iter().find(|cache| is(cache)).cloned();
        of(|cache| matches!(cache, Cache::None(_)))
            .or_else(|| of(|cache| matches!(cache, Cache::Forced(_))))
            .unwrap_or(Cache::Volatile)
    }

    /// Adds what may be the cause.
    pub fn explained(&self, figures: String) -> String {
        match &self.preloaded {
            Some(library) => format!("{figures} (`{library}` is loaded before the C library)"),
            None => figures,
        }
    }

    /// The counters of the leaf devices.
    pub fn read(&self) -> Vec<DeviceActivity> {
        devices(&self.leaves)
    }

    /// What they counted since.
    pub fn since(
        &self,
        before: &[DeviceActivity],
        way: &str,
        writers: u32,
        acknowledged: u64,
    ) -> WayCount {
        thread::sleep(COUNTED_AFTER);
        let grown = total(&devices_since(&self.read(), before));
        WayCount {
            way: way.to_owned(),
            writers,
            acknowledged,
            flushes: grown.flushes,
            writes: grown.writes,
            copies_away: 0,
        }
    }
}

/// Settings that decide on durability: their values are asked of the server itself, which takes more
/// spellings of them than are known here.
pub fn decisive(kind: DatabaseKind) -> impl Iterator<Item = &'static str> {
    let names: &[&str] = match kind {
        DatabaseKind::Postgresql => &["fsync", "synchronous_commit"],
        DatabaseKind::Mariadb => &[
            "debug_no_sync",
            "innodb_flush_log_at_trx_commit",
            "innodb_flush_method",
        ],
        DatabaseKind::Sqlite => &["journal_mode", "synchronous"],
    };
    names.iter().copied()
}

/// Whether a setting lets the database acknowledge what is not durable.
fn gives_up(kind: DatabaseKind, name: &str, value: &str, all: &Settings) -> bool {
    let (name, value) = (name.to_lowercase(), value.trim().to_lowercase());
    let is_off = ["off", "false", "no", "0"].contains(&value.as_str());
    match kind {
        DatabaseKind::Postgresql => {
            ["fsync", "synchronous_commit"].contains(&name.as_str()) && is_off
        }
        DatabaseKind::Mariadb => match name.replace('-', "_").as_str() {
            // 3 flushes at the end of both halves of a commit.
            "innodb_flush_log_at_trx_commit" => !["1", "3"].contains(&value.as_str()),
            "innodb_flush_method" => ["nosync", "littlesync"].contains(&value.as_str()),
            "debug_no_sync" => !is_off,
            _ => false,
        },
        DatabaseKind::Sqlite => {
            let in_log = all
                .get("journal_mode")
                .is_some_and(|mode| mode.eq_ignore_ascii_case("wal"));
            match name.as_str() {
                "synchronous" => is_off || (in_log && ["normal", "1"].contains(&value.as_str())),
                "journal_mode" => ["off", "memory"].contains(&value.as_str()),
                _ => false,
            }
        }
    }
}

/// Whether a setting leaves in the caches of the devices what the database takes for durable: pages that
/// a checkpoint wrote, whose log is written over afterwards.
fn gives_caches_up(kind: DatabaseKind, name: &str, value: &str) -> bool {
    kind == DatabaseKind::Mariadb
        && kind.setting_name(name) == "innodb_flush_method"
        && value.trim().eq_ignore_ascii_case("o_direct_no_fsync")
}

/// A mount, as the kernel lists it.
#[derive(Debug)]
struct Mount {
    point: PathBuf,
    kind: String,
    source: String,
    options: String,
}

impl Mount {
    fn upper(&self) -> Option<PathBuf> {
        self.options
            .split(',')
            .find_map(|option| option.strip_prefix("upperdir="))
            .map(PathBuf::from)
    }
}

/// How a place is mounted: the file system and its options.
#[must_use]
pub fn mounted(place: &Place) -> Option<String> {
    mount_of(place).map(|mount| format!("{} {}", mount.kind, mount.options))
}

fn mount_of(place: &Place) -> Option<Mount> {
    match place {
        Place::Directory(path) => mount_at(path),
        Place::Device(_) => None,
    }
}

/// The mount that a path lies on: the longest, and of those at one place the last.
fn mount_at(path: &Path) -> Option<Mount> {
    let path = fs::canonicalize(path).ok()?;
    let list = fs::read_to_string("/proc/self/mountinfo").ok()?;
    list.lines()
        .filter_map(mount)
        .filter(|mount| path.starts_with(&mount.point))
        .fold(None, |best: Option<Mount>, mount| match best {
            Some(best) if best.point.components().count() > mount.point.components().count() => {
                Some(best)
            }
            _ => Some(mount),
        })
}

fn mount(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let before: Vec<&str> = before.split(' ').collect();
    let mut after = after.split(' ');
    let (kind, source, of_all) = (after.next()?, after.next()?, after.next().unwrap_or(""));
    Some(Mount {
        point: PathBuf::from(before.get(4)?.replace("\\040", " ")),
        kind: kind.to_owned(),
        source: source.replace("\\040", " "),
        options: format!("{},{of_all}", before.get(5)?),
    })
}

/// The devices of the file system that one of them belongs to.
fn devices_of_btrfs(source: &str) -> Vec<String> {
    let Some(name) = fs::canonicalize(source)
        .ok()
        .and_then(|path| Some(path.file_name()?.to_owned()))
    else {
        return Vec::new();
    };
    let found = fs::read_dir("/sys/fs/btrfs")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("devices")))
        .find(|devices| devices.join(&name).exists());
    found
        .and_then(|devices| fs::read_dir(devices).ok())
        .into_iter()
        .flatten()
        .filter_map(|entry| text(&entry.ok()?.path().join("dev")))
        .collect()
}

fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests;
