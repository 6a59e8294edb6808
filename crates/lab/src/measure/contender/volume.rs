//! LVM over all devices: striped, mirrored, RAID-10; each under ext3, ext4 and XFS. It needs the
//! kernel's device-mapper.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use spindle_testbed::interrupt;

use super::choice::{Choice, MOUNT};
use super::kernel_filesystem::KINDS;
use super::{Contender, Maker, Place, Site, Standing, kernel_lacks, lacks_root, no_kernel_part};
use crate::measure::journal::Undo;
use crate::measure::program::{command, lacking, run};
use crate::measure::stacking::{has_udev, lvm};
use crate::record::Layout;

struct Volume {
    shape: &'static str,
    devices_at_least: u32,
    copies: u32,
    filesystem: &'static str,
}

/// Shape, devices at least, copies.
const SHAPES: [(&str, u32, u32); 3] = [("striped", 2, 1), ("mirrored", 2, 2), ("raid10", 4, 2)];

pub(super) fn offers() -> Vec<Box<dyn Contender>> {
    let mut offers: Vec<Box<dyn Contender>> = Vec::new();
    for (shape, devices_at_least, copies) in SHAPES {
        for filesystem in KINDS {
            offers.push(Box::new(Volume {
                shape,
                devices_at_least,
                copies,
                filesystem,
            }));
        }
    }
    offers
}

/// A mirror that still copies would be measured copying.
const RESYNC_AT_MOST: Duration = Duration::from_secs(3600);

impl Contender for Volume {
    fn name(&self) -> String {
        format!("lvm-{}-{}", self.shape, self.filesystem)
    }

    fn lacks(&self) -> Option<String> {
        let has_mapper = std::fs::read_to_string("/proc/devices")
            .is_ok_and(|devices| devices.contains("device-mapper"));
        lacks_root()
            .or_else(|| (!has_mapper).then(|| no_kernel_part("device-mapper")))
            .or_else(|| lacking("lvcreate"))
            .or_else(|| lacking(&format!("mkfs.{}", self.filesystem)))
            .or_else(|| kernel_lacks(self.filesystem))
    }

    fn devices_at_least(&self) -> u32 {
        self.devices_at_least
    }

    fn choices(&self) -> &'static [Choice] {
        &[MOUNT]
    }

    fn make(&self, site: &Site<'_>) -> Result<Standing> {
        let mut maker = Maker::new(site);
        let group = group();
        let paths: Vec<&Path> = site.leaves.iter().map(|leaf| leaf.path.as_path()).collect();
        let count = paths.len();
        // 1 MiB of stripe or chunk for all, as Spindle's coarse striping has.
        let shape: Vec<String> = match self.shape {
            "striped" => ["--stripes", &count.to_string(), "--stripesize", "1m"]
                .map(str::to_owned)
                .to_vec(),
            "mirrored" => ["--type", "raid1", "--mirrors", "1"]
                .map(str::to_owned)
                .to_vec(),
            _ => {
                let stripes = (count / 2).to_string();
                let words = [
                    "--type",
                    "raid10",
                    "--mirrors",
                    "1",
                    "--stripes",
                    &stripes,
                    "--stripesize",
                    "1m",
                ];
                words.map(str::to_owned).to_vec()
            }
        };
        for leaf in site.leaves {
            // What a removed group leaves of itself would make the next contender ask.
            maker.intend(Undo::Content(leaf.path.clone()))?;
        }
        maker.intend(Undo::VolumeGroup(group.clone()))?;
        maker.run(
            lvm("vgcreate")
                .args(["--force", "--yes", &group])
                .args(&paths),
        )?;
        let mut create = lvm("lvcreate");
        create.args(["--yes", "--wipesignatures", "n", "--zero", "n"]);
        create
            .args(["--name", "data", "--extents", "95%FREE"])
            .args(shape);
        maker.run(create.arg(&group))?;
        if !has_udev() {
            run(command("dmsetup").arg("mknodes"))?;
        }
        if self.copies > 1 {
            site.watch
                .begin("bringing the mirror in step", 0, RESYNC_AT_MOST)?;
            interrupt::wait_for("the mirror to be in step", RESYNC_AT_MOST, || {
                let mut list = lvm("lvs");
                list.args(["--noheadings", "--options", "sync_percent", &group]);
                Ok((run(&mut list)?.trim() == "100.00").then_some(()))
            })?;
        }
        let point = maker.filesystem(self.filesystem, &[&device(&group)])?;
        self.standing(maker, point)
    }

    fn starts_again(&self) -> bool {
        true
    }

    fn start_again(&self, site: &Site<'_>) -> Result<Standing> {
        let mut maker = Maker::new(site);
        let group = group();
        maker.intend(Undo::VolumeGroup(group.clone()))?;
        maker.run(lvm("vgchange").args(["--activate", "y", &group]))?;
        if !has_udev() {
            run(command("dmsetup").arg("mknodes"))?;
        }
        let point = maker.mount(self.filesystem, "", &device(&group))?;
        self.standing(maker, point)
    }
}

fn group() -> String {
    format!("spindlelab{}", std::process::id())
}

fn device(group: &str) -> PathBuf {
    PathBuf::from(format!("/dev/mapper/{group}-data"))
}

impl Volume {
    fn standing(&self, maker: Maker<'_>, point: PathBuf) -> Result<Standing> {
        let layout = Layout {
            copies: self.copies,
            devices: u32::try_from(maker.site.leaves.len())?,
            data_checksums: false,
            page_cache: true,
            made_by: Vec::new(),
            mount: None,
        };
        Ok(maker.standing(Place::Directory(point), layout))
    }
}
