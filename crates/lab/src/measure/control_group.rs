//! The control group that holds what is measured: its memory and, for spindles, its bandwidth.
//!
//! Version 1 (a hierarchy for each controller) and version 2 (one for all) are both served. Limits
//! of bandwidth go, with version 1, to the root of the block hierarchy: a limit there holds for
//! everybody, also for the kernel's own threads that write dirty pages back, which a limit of the
//! group would not see. The devices are the lab's own, so nobody else is slowed. With version 2 the
//! group's limit covers the pages that it dirtied.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::device::Leaf;
use super::journal::{Journal, Made, Undo};
use super::process::Identity;

pub(super) const ROOT: &str = "/sys/fs/cgroup";

/// Which version this machine has for a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// A hierarchy for each controller.
    One,
    /// One hierarchy.
    Two,
}

/// The version that serves `controller` (`memory`, `blkio` or `io`), where one does.
#[must_use]
pub fn version(controller: &str) -> Option<Version> {
    let first = if controller == "io" {
        "blkio"
    } else {
        controller
    };
    if Path::new(ROOT).join(first).join("cgroup.procs").exists() {
        return Some(Version::One);
    }
    let second = if controller == "blkio" {
        "io"
    } else {
        controller
    };
    let offered = fs::read_to_string(Path::new(ROOT).join("cgroup.controllers")).ok()?;
    offered
        .split_whitespace()
        .any(|name| name == second)
        .then_some(Version::Two)
}

/// Why bandwidth cannot be limited here.
#[must_use]
pub fn lacks_limits() -> Option<String> {
    (version("io").is_none())
        .then(|| "no block cgroup here: devices cannot be held to a bandwidth".to_owned())
}

/// This process as a member of a group; a drop takes it back to where it came from.
#[derive(Debug)]
pub struct Membership {
    homes: Vec<PathBuf>,
}

impl Drop for Membership {
    fn drop(&mut self) {
        for home in &self.homes {
            let _ = become_member(home, std::process::id());
        }
    }
}

fn become_member(group: &Path, process: u32) -> std::io::Result<()> {
    fs::write(group.join("cgroup.procs"), process.to_string())
}

/// Where this process is a member in the hierarchy of a controller.
fn home(controller: &str) -> Result<PathBuf> {
    let version = version("memory").context("no memory cgroup here")?;
    let text = fs::read_to_string("/proc/self/cgroup").context("cannot read /proc/self/cgroup")?;
    let root = match version {
        Version::One => Path::new(ROOT).join(controller),
        Version::Two => PathBuf::from(ROOT),
    };
    let inner = home_in(&text, version, controller).unwrap_or_default();
    let home = root.join(inner.trim_start_matches('/'));
    // Within a container the path may be that of the host, which cannot be seen from here.
    Ok(if home.exists() { home } else { root })
}

/// The path in the text of `/proc/PID/cgroup`.
fn home_in(text: &str, version: Version, controller: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next()?;
        let is_it = match version {
            Version::One => controllers.split(',').any(|name| name == controller),
            Version::Two => controllers.is_empty(),
        };
        is_it.then(|| fields.next().map(str::to_owned))?
    })
}

/// A group. Removing it ends every process in it, but for the one that removes it.
#[derive(Debug)]
pub struct ControlGroup {
    /// Its directory in the hierarchy that holds memory.
    path: PathBuf,
    /// With version 1, its directory in the hierarchy that counts processor time, where there is
    /// one. It has the same members.
    accounting: Option<PathBuf>,
    memory_bytes: Option<u64>,
    _made: Vec<Made>,
}

/// The hierarchy that counts processor time, with version 1.
const ACCOUNTING: &str = "cpuacct";

impl ControlGroup {
    /// Makes one with this memory; without, everything it uses is still counted.
    ///
    /// # Errors
    /// Where there are no control groups, or no permission.
    pub fn make(journal: &Journal, name: &str, memory_bytes: Option<u64>) -> Result<Self> {
        let version = version("memory").context("no memory cgroup here")?;
        let parent = match version {
            Version::One => Path::new(ROOT).join("memory"),
            Version::Two => {
                // Without this the children have no such files. One by one: a kernel without one of
                // them refuses the whole line.
                for controller in ["+memory", "+io", "+cpu"] {
                    let _ = fs::write(Path::new(ROOT).join("cgroup.subtree_control"), controller);
                }
                PathBuf::from(ROOT)
            }
        };
        let path = parent.join(name);
        let accounting = (version == Version::One)
            .then(|| Path::new(ROOT).join(ACCOUNTING))
            .filter(|hierarchy| hierarchy.join("cgroup.procs").exists())
            .map(|hierarchy| hierarchy.join(name));
        let mut made = Vec::new();
        for path in [Some(&path), accounting.as_ref()].into_iter().flatten() {
            made.push(journal.intend(Undo::ControlGroup(path.clone()))?);
            fs::create_dir(path).with_context(|| format!("cannot make {}", path.display()))?;
        }
        if let Some(bytes) = memory_bytes {
            let file = match version {
                Version::One => "memory.limit_in_bytes",
                Version::Two => "memory.max",
            };
            fs::write(path.join(file), bytes.to_string())
                .with_context(|| format!("cannot give {bytes} bytes to {}", path.display()))?;
        }
        Ok(Self {
            path,
            accounting,
            memory_bytes,
            _made: made,
        })
    }

    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.path).chain(&self.accounting)
    }

    /// Seconds of processor time that its processes used, with those that have ended, where a
    /// control group counts that.
    #[must_use]
    pub fn processor_s(&self) -> Option<f64> {
        if let Some(accounting) = &self.accounting {
            let text = fs::read_to_string(accounting.join("cpuacct.usage")).ok()?;
            return Some(text.trim().parse::<f64>().ok()? / 1e9);
        }
        let text = fs::read_to_string(self.path.join("cpu.stat")).ok()?;
        let used_us = text
            .lines()
            .find_map(|line| line.strip_prefix("usage_usec "))?;
        Some(used_us.trim().parse::<f64>().ok()? / 1e6)
    }

    /// Another one beside it, with as much memory of its own and what its program takes: for a
    /// server that would have a machine of its own, and whose client must not wait for it while it
    /// waits for its client.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub fn beside(&self, journal: &Journal, word: &str, program_bytes: u64) -> Result<Self> {
        let name = self.path.file_name().context("a group has a name")?;
        let name = format!("{}-{word}", name.to_string_lossy());
        let memory_bytes = self.memory_bytes.map(|bytes| bytes + program_bytes);
        Self::make(journal, &name, memory_bytes)
    }

    /// The words before a command that make it a member by birth: a shell that moves itself and
    /// becomes the command, with the same process id.
    #[must_use]
    pub fn wrap(&self, command: &Command) -> Command {
        let mut wrapped = Command::new("/bin/sh");
        let script = "while [ \"$1\" != -- ]; do echo $$ > \"$1/cgroup.procs\" || exit; shift; done; \
                      shift; exec \"$@\"";
        wrapped.args(["-c", script, "spindle-lab"]);
        wrapped.args(self.paths()).arg("--");
        wrapped.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => wrapped.env(name, value),
                None => wrapped.env_remove(name),
            };
        }
        if let Some(directory) = command.get_current_dir() {
            wrapped.current_dir(directory);
        }
        wrapped
    }

    /// Moves a running process and what it started here.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn adopt(&self, process: Identity) -> Result<()> {
        for member in process.family() {
            for path in self.paths() {
                if let Err(error) = become_member(path, member.id)
                    && member.is_alive()
                {
                    bail!(
                        "cannot move process {} to {}: {error}",
                        member.id,
                        path.display()
                    );
                }
            }
        }
        Ok(())
    }

    /// Makes this process a member until the drop of what is given.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn enter(&self) -> Result<Membership> {
        let mut homes = vec![home("memory")?];
        if self.accounting.is_some() {
            homes.push(home(ACCOUNTING)?);
        }
        let membership = Membership { homes };
        for path in self.paths() {
            become_member(path, std::process::id())
                .with_context(|| format!("cannot become a member of {}", path.display()))?;
        }
        Ok(membership)
    }

    /// The ids of its processes now.
    #[must_use]
    pub fn members(&self) -> Vec<u32> {
        fs::read_to_string(self.path.join("cgroup.procs"))
            .unwrap_or_default()
            .lines()
            .filter_map(|line| line.trim().parse().ok())
            .collect()
    }

    /// Bytes that the group holds now, page cache included.
    #[must_use]
    pub fn memory_used_bytes(&self) -> Option<u64> {
        ["memory.usage_in_bytes", "memory.current"]
            .iter()
            .find_map(|name| {
                fs::read_to_string(self.path.join(name))
                    .ok()?
                    .trim()
                    .parse()
                    .ok()
            })
    }

    /// What its processes asked of block devices, in the words of version 2.
    pub(super) fn io_statistics(&self) -> String {
        fs::read_to_string(self.path.join("io.stat")).unwrap_or_default()
    }

    /// Whether the kernel ended one of its processes because its memory was used up.
    #[must_use]
    pub fn ran_out_of_memory(&self) -> bool {
        ["memory.oom_control", "memory.events"].iter().any(|name| {
            let text = fs::read_to_string(self.path.join(name)).unwrap_or_default();
            text.lines()
                .filter_map(|line| line.strip_prefix("oom_kill "))
                .any(|count| count.trim() != "0")
        })
    }

    /// Holds each device to these bytes and requests a second, either way.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn limit(
        &self,
        journal: &Journal,
        devices: &[Leaf],
        bandwidth: Option<u64>,
        requests: Option<u64>,
    ) -> Result<Vec<Made>> {
        let mut made = Vec::new();
        let limits = match version("io").context("no block cgroup here")? {
            Version::One => {
                let root = Path::new(ROOT).join("blkio");
                let each = |what: &str, limit: Option<u64>| {
                    ["read", "write"]
                        .map(|way| root.join(format!("blkio.throttle.{way}_{what}_device")))
                        .into_iter()
                        .filter_map(|file| Some((file, limit?.to_string())))
                        .collect::<Vec<_>>()
                };
                [each("bps", bandwidth), each("iops", requests)].concat()
            }
            Version::Two => {
                let mut words = Vec::new();
                for (way, limit) in [("bps", bandwidth), ("iops", requests)] {
                    if let Some(limit) = limit {
                        words.push(format!("r{way}={limit} w{way}={limit}"));
                    }
                }
                vec![(self.path.join("io.max"), words.join(" "))]
            }
        };
        for device in devices {
            for (file, limit) in &limits {
                made.push(journal.intend(Undo::Limit(file.clone(), device.numbers.clone()))?);
                fs::write(file, format!("{} {limit}", device.numbers))
                    .with_context(|| format!("cannot limit {}", device.path.display()))?;
            }
        }
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::program::{command, run_within};

    #[test]
    fn a_group_that_ran_out_of_memory_says_so() {
        if !rustix::process::geteuid().is_root() || version("memory").is_none() {
            println!("skipped: no memory cgroup here, or not root");
            return;
        }
        let state = tempfile::tempdir().unwrap();
        let journal = Journal::begin(state.path()).unwrap();
        let name = format!("spindle-lab-greed-test-{}", std::process::id());
        let group = ControlGroup::make(&journal, &name, Some(16 << 20)).unwrap();
        let limit = std::time::Duration::from_secs(60);
        let succeeds = |program: &Command| {
            let ended = run_within(&mut group.wrap(program), limit).unwrap();
            ended.status.success()
        };
        assert!(succeeds(&command("true")));
        assert!(!group.ran_out_of_memory());
        // It keeps the last lines of what has no lines.
        assert!(!succeeds(command("tail").arg("/dev/zero")));
        assert!(group.ran_out_of_memory());
    }

    #[test]
    fn the_group_of_this_process_is_found_in_either_version() {
        let first = "12:blkio:/a\n5:memory,hugetlb:/user/me\n0::/elsewhere\n";
        let of = |text, version| home_in(text, version, "memory");
        assert_eq!(of(first, Version::One).as_deref(), Some("/user/me"));
        assert_eq!(of(first, Version::Two).as_deref(), Some("/elsewhere"));
        assert_eq!(of("", Version::Two), None);
        let blocks = home_in(first, Version::One, "blkio");
        assert_eq!(blocks.as_deref(), Some("/a"));
    }
}
