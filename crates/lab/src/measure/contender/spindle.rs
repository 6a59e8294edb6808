//! Spindle by its mount, as its user has it: the command `spindle` and nothing else. External,
//! normal and high redundancy; with the page cache, or direct.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use spindle_testbed::interrupt;

use super::choice::{Choice, Options};
use super::{Contender, Maker, Place, Site, Standing, lacks_root};
use crate::experiment::Companion;
use crate::measure::companion::{AWAY, Lap};
use crate::measure::journal::Undo;
use crate::measure::place::is_mounted;
use crate::measure::program::{Service, find};
use crate::record::{LAP_AWAY, Layout};

struct Spindle {
    redundancy: &'static str,
    copies: u32,
    page_cache: bool,
}

const MOUNT_AT_MOST: Duration = Duration::from_secs(60);
const GROUP: &str = "lab";

/// In the words of `spindle group create` and `spindle mount`.
const AU_SIZE: Choice = Choice {
    name: "au_size",
    words: "1M, 2M, 4M, 8M, 16M, 32M or 64M",
    takes: |value| ["1M", "2M", "4M", "8M", "16M", "32M", "64M"].contains(&value),
};
const WORKERS: Choice = Choice {
    name: "workers",
    words: "a number from 1 to 256, of event loops",
    takes: |value| (value.parse()).is_ok_and(|count: u32| (1..=256).contains(&count)),
};

pub(super) fn offers() -> Vec<Box<dyn Contender>> {
    let mut offers: Vec<Box<dyn Contender>> = Vec::new();
    for (redundancy, copies) in [("external", 1), ("normal", 2), ("high", 3)] {
        for page_cache in [true, false] {
            offers.push(Box::new(Spindle {
                redundancy,
                copies,
                page_cache,
            }));
        }
    }
    offers
}

/// Where the command is: what `SPINDLE_BINARY` names, beside our own, or on the search path.
#[must_use]
pub fn program() -> Option<PathBuf> {
    let named = std::env::var_os("SPINDLE_BINARY").map(PathBuf::from);
    let beside = std::env::current_exe().ok().and_then(|path| {
        // A test runs one directory further down.
        path.ancestors()
            .skip(1)
            .take(2)
            .map(|directory| directory.join("spindle"))
            .find(|path| path.is_file())
    });
    named.or(beside).or_else(|| find("spindle"))
}

impl Contender for Spindle {
    fn name(&self) -> String {
        let end = if self.page_cache { "" } else { "-direct" };
        format!("spindle-{}{end}", self.redundancy)
    }

    fn lacks(&self) -> Option<String> {
        lacks_root()
            .or_else(|| match program() {
                None => Some(
                    "the command `spindle` is not there: make build, or set SPINDLE_BINARY"
                        .to_owned(),
                ),
                Some(path) if !path.is_file() => {
                    Some(format!("SPINDLE_BINARY: {} does not exist", path.display()))
                }
                Some(_) => None,
            })
            .or_else(|| {
                (!Path::new("/dev/fuse").exists())
                    .then(|| "the running kernel has no FUSE".to_owned())
            })
    }

    fn devices_at_least(&self) -> u32 {
        self.copies
    }

    fn choices(&self) -> &'static [Choice] {
        &[AU_SIZE, WORKERS]
    }

    fn accompanies(&self, companion: Companion) -> Result<u32, &'static str> {
        match companion {
            Companion::Backup => Ok(self.copies),
            Companion::Rebalance => Ok(self.copies + 1),
            Companion::Resync if self.copies > 1 => Ok(self.copies),
            Companion::Resync => Err("it keeps one copy: no device of it can be away"),
        }
    }

    fn laps(&self, site: &Site<'_>, _standing: &Standing, companion: Companion) -> Vec<Lap> {
        let (Some(program), Some(leaf)) = (program(), site.leaves.last()) else {
            return Vec::new();
        };
        let said = |words: &[&str]| {
            let mut command = spindle(&program, site);
            command.args(words);
            command
        };
        let name = format!("{GROUP}_{:04}", site.leaves.len() - 1);
        let settled = || said(&["rebalance", GROUP, "--wait"]);
        match companion {
            Companion::Backup => Vec::new(),
            Companion::Rebalance => {
                let path = leaf.path.display().to_string();
                let quoted = format!("\"{name}\"");
                let back = said(&["disk", "add", GROUP, "--disk", &path, "--name", &name]);
                vec![
                    Lap::new("disk leaves")
                        .run(said(&["disk", "drop", GROUP, &name]))
                        .until(said(&["group", "show", GROUP, "--json"]), move |told| {
                            !told.contains(&quoted)
                        }),
                    Lap::new("disk joins").run(back).run(settled()),
                ]
            }
            Companion::Resync => vec![
                Lap::new(LAP_AWAY)
                    .run(said(&["disk", "offline", GROUP, &name]))
                    .pause(AWAY),
                Lap::new("resync")
                    .run(said(&["disk", "online", GROUP, &name]))
                    .run(settled()),
            ],
        }
    }

    fn make(&self, site: &Site<'_>) -> Result<Standing> {
        let mut maker = Maker::new(site);
        let program = program().context("the command `spindle` is not there")?;
        let disks = disks(site);
        let mut create = spindle(&program, site);
        create.args(["group", "create"]);
        create.args(self.words_of_create(site.profile, site.options));
        for disk in &disks {
            create.args(["--disk", disk]);
        }
        maker.run(&mut create)?;
        self.mounted(maker, site)
    }

    fn starts_again(&self) -> bool {
        true
    }

    fn start_again(&self, site: &Site<'_>) -> Result<Standing> {
        self.mounted(Maker::new(site), site)
    }
}

fn disks(site: &Site<'_>) -> Vec<String> {
    site.leaves
        .iter()
        .map(|leaf| leaf.path.display().to_string())
        .collect()
}

/// Nothing of it touches what else of Spindle runs on this machine.
fn spindle(program: &Path, site: &Site<'_>) -> Command {
    let mut command = Command::new(program);
    command.env("SPINDLE_DISKS", disks(site).join(","));
    command.env("SPINDLE_RUNTIME_DIR", site.scratch.join("spindle"));
    command
}

impl Spindle {
    /// What is said of a group when it is made, but for its disks.
    fn words_of_create<'a>(&self, profile: &'a str, options: &'a Options) -> Vec<&'a str> {
        let mut words = vec![GROUP, "--force", "--redundancy", self.redundancy];
        words.extend(["--profile", profile]);
        if let Some(size) = options.get(AU_SIZE.name) {
            words.extend(["--au-size", size]);
        }
        words
    }

    /// What is said of its mount behind the place.
    fn words_of_mount<'a>(&self, options: &'a Options) -> Vec<&'a str> {
        let mut words = vec!["--foreground"];
        if !self.page_cache {
            words.push("--direct");
        }
        if let Some(count) = options.get(WORKERS.name) {
            words.extend(["--workers", count]);
        }
        words
    }

    fn mounted(&self, mut maker: Maker<'_>, site: &Site<'_>) -> Result<Standing> {
        let program = program().context("the command `spindle` is not there")?;
        let spindle = || spindle(&program, site);
        let point = maker.mount_point()?;
        maker.intend(Undo::Mount(point.clone()))?;
        let mut mount = spindle();
        mount.args(["mount", GROUP]).arg(&point);
        mount.args(self.words_of_mount(site.options));
        maker.note(&mount);
        let mut daemon = Service::start("spindle", &mut site.group.wrap(&mount), site.log)?;
        maker.intend(Undo::Process(daemon.identity()))?;
        interrupt::wait_for("the mount", MOUNT_AT_MOST, || {
            daemon.check_alive()?;
            Ok(is_mounted(&point)?.then_some(()))
        })?;
        let mut farewell = spindle();
        farewell.arg("umount").arg(&point);
        let layout = Layout {
            copies: self.copies,
            devices: u32::try_from(site.leaves.len())?,
            data_checksums: false,
            page_cache: self.page_cache,
            made_by: Vec::new(),
            mount: None,
        };
        let mut standing = maker.standing(Place::Directory(point), layout);
        standing.farewell = Some(farewell);
        standing.daemon = Some(daemon);
        let mut iostat = spindle();
        // Every file, so that their sum is what the mount was asked for.
        iostat.args(["iostat", GROUP, "--json", "--interval", "1"]);
        iostat.args(["--files", "1000000"]);
        standing.iostat = Some(iostat);
        Ok(standing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_reach_the_commands_that_make_and_mount_and_nothing_is_said_without_them() {
        let spindle = |page_cache| Spindle {
            redundancy: "normal",
            copies: 2,
            page_cache,
        };
        let asked: Options = [("au_size", "4M"), ("workers", "3")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let made = spindle(true)
            .words_of_create("postgresql", &asked)
            .join(" ");
        assert_eq!(
            made,
            "lab --force --redundancy normal --profile postgresql --au-size 4M"
        );
        let mounted = |page_cache, options| spindle(page_cache).words_of_mount(options).join(" ");
        assert_eq!(mounted(true, &asked), "--foreground --workers 3");
        assert_eq!(mounted(false, &asked), "--foreground --direct --workers 3");
        let none = Options::new();
        assert_eq!(mounted(true, &none), "--foreground");
        let made = spindle(true).words_of_create("sqlite", &none).join(" ");
        assert!(!made.contains("--au-size"), "{made}");
    }
}
