//! md over all devices: RAID-0, 1 and 10; each under ext3, ext4 and XFS. It needs the kernel's md.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use spindle_testbed::interrupt;

use super::choice::{Choice, MOUNT};
use super::kernel_filesystem::KINDS;
use super::{Contender, Maker, Place, Site, Standing, kernel_lacks, lacks_root, no_kernel_part};
use crate::experiment::Companion;
use crate::measure::companion::{AWAY, Lap};
use crate::measure::journal::Undo;
use crate::measure::program::{command, lacking};
use crate::measure::stacking::mdadm;
use crate::record::{LAP_AWAY, Layout};

struct Array {
    level: &'static str,
    devices_at_least: u32,
    filesystem: &'static str,
}

pub(super) fn offers() -> Vec<Box<dyn Contender>> {
    let mut offers: Vec<Box<dyn Contender>> = Vec::new();
    for (level, devices_at_least) in [("0", 2), ("1", 2), ("10", 4)] {
        for filesystem in KINDS {
            offers.push(Box::new(Array {
                level,
                devices_at_least,
                filesystem,
            }));
        }
    }
    offers
}

/// A mirror that still copies would be measured copying.
const RESYNC_AT_MOST: Duration = Duration::from_secs(3600);

/// Of one array alone: whether a device is missing, and what is done about it.
const STATE: &str =
    "cd \"/sys/block/$(basename \"$(readlink -f \"$1\")\")/md\" && cat degraded sync_action";

impl Contender for Array {
    fn name(&self) -> String {
        format!("md-raid{}-{}", self.level, self.filesystem)
    }

    fn lacks(&self) -> Option<String> {
        lacks_root()
            .or_else(|| (!Path::new("/proc/mdstat").exists()).then(|| no_kernel_part("md")))
            .or_else(|| lacking("mdadm"))
            .or_else(|| lacking(&format!("mkfs.{}", self.filesystem)))
            .or_else(|| kernel_lacks(self.filesystem))
    }

    fn devices_at_least(&self) -> u32 {
        self.devices_at_least
    }

    fn choices(&self) -> &'static [Choice] {
        &[MOUNT]
    }

    fn accompanies(&self, companion: Companion) -> Result<u32, &'static str> {
        match companion {
            Companion::Backup => Ok(self.devices_at_least),
            Companion::Rebalance => Err("an array of md that gets smaller is reshaped offline"),
            Companion::Resync if self.level != "0" => Ok(self.devices_at_least),
            Companion::Resync => Err("it keeps one copy: no device of it can be away"),
        }
    }

    fn laps(&self, site: &Site<'_>, _standing: &Standing, companion: Companion) -> Vec<Lap> {
        let (Companion::Resync, Some(leaf)) = (companion, site.leaves.last()) else {
            return Vec::new();
        };
        let said = |words: &[&str]| {
            let mut command = mdadm();
            command.arg(device()).args(words).arg(&leaf.path);
            command
        };
        let mut state = command("sh");
        state.args(["-c", STATE, "spindle-lab"]).arg(device());
        vec![
            Lap::new(LAP_AWAY)
                .run(said(&["--fail"]))
                // md lets it go a moment after it failed.
                .run(said(&["--force", "--remove"]))
                .pause(AWAY),
            Lap::new("resync")
                .run(said(&["--add"]))
                .until(state, |told| told.split_whitespace().eq(["0", "idle"])),
        ]
    }

    fn make(&self, site: &Site<'_>) -> Result<Standing> {
        let mut maker = Maker::new(site);
        let device = device();
        for leaf in site.leaves {
            // A member keeps its mark, by which the array would be put together again.
            maker.intend(Undo::Content(leaf.path.clone()))?;
        }
        maker.intend(Undo::Array(device.clone()))?;
        let mut create = mdadm();
        create
            .arg("--create")
            .arg(&device)
            .args(["--run", "--force"]);
        create.args(["--level", self.level]);
        create.args(["--raid-devices", &site.leaves.len().to_string()]);
        if self.level != "1" {
            create.args(["--chunk", "1024"]);
        }
        maker.run(create.args(site.leaves.iter().map(|leaf| &leaf.path)))?;
        site.watch
            .begin("bringing the array in step", 0, RESYNC_AT_MOST)?;
        interrupt::wait_for("the array to be in step", RESYNC_AT_MOST, || {
            let state = std::fs::read_to_string("/proc/mdstat")?;
            Ok((!state.contains("resync")).then_some(()))
        })?;
        let point = maker.filesystem(self.filesystem, &[&device])?;
        self.standing(maker, point)
    }

    fn starts_again(&self) -> bool {
        true
    }

    fn start_again(&self, site: &Site<'_>) -> Result<Standing> {
        let mut maker = Maker::new(site);
        let device = device();
        maker.intend(Undo::Array(device.clone()))?;
        let mut assemble = mdadm();
        assemble.arg("--assemble").arg(&device).arg("--run");
        maker.run(assemble.args(site.leaves.iter().map(|leaf| &leaf.path)))?;
        let point = maker.mount(self.filesystem, "", &device)?;
        self.standing(maker, point)
    }
}

fn device() -> PathBuf {
    PathBuf::from(format!("/dev/md/spindle-lab-{}", std::process::id()))
}

impl Array {
    fn standing(&self, maker: Maker<'_>, point: PathBuf) -> Result<Standing> {
        let count = u32::try_from(maker.site.leaves.len())?;
        let layout = Layout {
            copies: match self.level {
                "0" => 1,
                "1" => count,
                _ => 2,
            },
            devices: count,
            data_checksums: false,
            page_cache: true,
            made_by: Vec::new(),
            mount: None,
        };
        Ok(maker.standing(Place::Directory(point), layout))
    }
}
