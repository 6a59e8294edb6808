//! btrfs over all devices: single, RAID-0, RAID-1, RAID-10; with copy-on-write and its checksums,
//! or without both, as its users set it for databases.

use std::path::Path;

use anyhow::{Context, Result};

use super::choice::{Choice, MOUNT_BTRFS};
use super::{Contender, Maker, Place, Site, Standing, kernel_lacks, lacks_root};
use crate::experiment::Companion;
use crate::measure::companion::Lap;
use crate::measure::program::{command, lacking};
use crate::record::Layout;

struct Btrfs {
    profile: &'static str,
    devices_at_least: u32,
    copies: u32,
    copies_on_write: bool,
}

/// Profile, devices at least, copies.
const PROFILES: [(&str, u32, u32); 4] = [
    ("single", 1, 1),
    ("raid0", 2, 1),
    ("raid1", 2, 2),
    ("raid10", 4, 2),
];

pub(super) fn offers() -> Vec<Box<dyn Contender>> {
    let mut offers: Vec<Box<dyn Contender>> = Vec::new();
    for (profile, devices_at_least, copies) in PROFILES {
        for copies_on_write in [true, false] {
            offers.push(Box::new(Btrfs {
                profile,
                devices_at_least,
                copies,
                copies_on_write,
            }));
        }
    }
    offers
}

impl Contender for Btrfs {
    fn name(&self) -> String {
        let end = if self.copies_on_write { "" } else { "-nocow" };
        format!("btrfs-{}{end}", self.profile)
    }

    fn lacks(&self) -> Option<String> {
        lacks_root()
            .or_else(|| lacking("mkfs.btrfs"))
            .or_else(|| kernel_lacks("btrfs"))
    }

    fn devices_at_least(&self) -> u32 {
        self.devices_at_least
    }

    fn choices(&self) -> &'static [Choice] {
        &[MOUNT_BTRFS]
    }

    fn accompanies(&self, companion: Companion) -> Result<u32, &'static str> {
        match companion {
            Companion::Backup => Ok(self.devices_at_least),
            Companion::Rebalance => Ok(self.devices_at_least + 1),
            Companion::Resync => Err("a device that was away comes back with the next mount only"),
        }
    }

    fn laps(&self, site: &Site<'_>, standing: &Standing, companion: Companion) -> Vec<Lap> {
        let (Companion::Rebalance, Place::Directory(point), Some(leaf)) =
            (companion, &standing.place, site.leaves.last())
        else {
            return Vec::new();
        };
        let said = |words: &[&str]| {
            let mut command = command("btrfs");
            command.args(words);
            command
        };
        let at = |words: &[&str]| {
            let mut command = said(words);
            command.arg(point);
            command
        };
        let mut remove = said(&["device", "remove"]);
        remove.arg(&leaf.path).arg(point);
        let mut add = said(&["device", "add", "--force", "--nodiscard"]);
        add.arg(&leaf.path).arg(point);
        vec![
            Lap::new("disk leaves").run_or_cancel(remove, at(&["device", "remove", "cancel"])),
            Lap::new("disk joins").run(add).run_or_cancel(
                at(&["balance", "start", "--full-balance"]),
                at(&["balance", "cancel"]),
            ),
        ]
    }

    fn make(&self, site: &Site<'_>) -> Result<Standing> {
        let mut maker = Maker::new(site);
        let paths: Vec<&Path> = site.leaves.iter().map(|leaf| leaf.path.as_path()).collect();
        // Metadata as redundant as the data: neither is the weaker half.
        let mut make = command("mkfs.btrfs");
        make.args(["-q", "-f", "-K", "-d", self.profile, "-m", self.profile]);
        maker.run(make.args(&paths))?;
        self.mounted(maker, &paths)
    }

    fn starts_again(&self) -> bool {
        true
    }

    fn start_again(&self, site: &Site<'_>) -> Result<Standing> {
        let paths: Vec<&Path> = site.leaves.iter().map(|leaf| leaf.path.as_path()).collect();
        self.mounted(Maker::new(site), &paths)
    }
}

impl Btrfs {
    fn mounted(&self, mut maker: Maker<'_>, paths: &[&Path]) -> Result<Standing> {
        maker.run(command("btrfs").args(["device", "scan"]).args(paths))?;
        let options = if self.copies_on_write {
            ""
        } else {
            "nodatacow"
        };
        let first = paths.first().context("it needs a device")?;
        let point = maker.mount("btrfs", options, first)?;
        let layout = Layout {
            copies: self.copies,
            devices: u32::try_from(paths.len())?,
            data_checksums: self.copies_on_write,
            page_cache: true,
            made_by: Vec::new(),
            mount: None,
        };
        Ok(maker.standing(Place::Directory(point), layout))
    }
}
