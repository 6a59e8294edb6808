//! Spindle by its mount, as its user has it: the command `spindle` and nothing else. External,
//! normal and high redundancy; with the page cache, or direct.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use spindle_testbed::interrupt;

use super::choice::{Choice, Options};
use super::{Contender, Maker, Place, Site, Standing, lacks_root};
use crate::measure::journal::Undo;
use crate::measure::place::is_mounted;
use crate::measure::program::{Service, find};
use crate::record::Layout;

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
const CACHING: Choice = Choice {
    name: "caching",
    words: "auto or direct",
    takes: |value| ["auto", "direct"].contains(&value),
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
        // One that is direct by its name is nothing else.
        if self.page_cache {
            &[AU_SIZE, CACHING, WORKERS]
        } else {
            &[AU_SIZE, WORKERS]
        }
    }

    fn make(&self, site: &Site<'_>) -> Result<Standing> {
        let mut maker = Maker::new(site);
        let program = program().context("the command `spindle` is not there")?;
        let disks = disks(site);
        let mut create = spindle(&program, site);
        create.args(["group", "create", GROUP, "--force"]);
        create.args(["--redundancy", self.redundancy, "--profile", site.profile]);
        if let Some(size) = site.options.get(AU_SIZE.name) {
            create.args(["--au-size", size]);
        }
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
    /// Whether the kernel's page cache is used.
    fn is_cached(&self, options: &Options) -> bool {
        self.page_cache
            && options
                .get(CACHING.name)
                .is_none_or(|mode| mode != "direct")
    }

    fn mounted(&self, mut maker: Maker<'_>, site: &Site<'_>) -> Result<Standing> {
        let program = program().context("the command `spindle` is not there")?;
        let spindle = || spindle(&program, site);
        let point = maker.mount_point()?;
        maker.intend(Undo::Mount(point.clone()))?;
        let mut mount = spindle();
        mount.args(["mount", GROUP]).arg(&point).arg("--foreground");
        let page_cache = self.is_cached(site.options);
        if !page_cache {
            mount.arg("--direct");
        }
        if let Some(count) = site.options.get(WORKERS.name) {
            mount.args(["--workers", count]);
        }
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
            page_cache,
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
