//! ext3, ext4 and XFS on one device.

use anyhow::{Context, Result};

use super::choice::{Choice, MOUNT};
use super::{Contender, Maker, Place, Site, Standing, kernel_lacks, lacks_root};
use crate::measure::program::lacking;
use crate::record::Layout;

struct KernelFilesystem(&'static str);

/// Which of them there are; volumes and arrays carry the same.
pub(super) const KINDS: [&str; 3] = ["ext3", "ext4", "xfs"];

pub(super) fn offers() -> Vec<Box<dyn Contender>> {
    KINDS
        .into_iter()
        .map(|kind| Box::new(KernelFilesystem(kind)) as Box<dyn Contender>)
        .collect()
}

impl Contender for KernelFilesystem {
    fn name(&self) -> String {
        self.0.to_owned()
    }

    fn lacks(&self) -> Option<String> {
        lacks_root()
            .or_else(|| lacking(&format!("mkfs.{}", self.0)))
            .or_else(|| kernel_lacks(self.0))
    }

    fn device_bytes_at_least(&self) -> u64 {
        // mkfs.xfs refuses less than 300 MB.
        if self.0 == "xfs" {
            320 << 20
        } else {
            128 << 20
        }
    }

    fn choices(&self) -> &'static [Choice] {
        &[MOUNT]
    }

    fn make(&self, site: &Site<'_>) -> Result<Standing> {
        let mut maker = Maker::new(site);
        let leaf = site.leaves.first().context("it needs a device")?;
        let point = maker.filesystem(self.0, &[&leaf.path])?;
        Ok(maker.standing(Place::Directory(point), layout()))
    }

    fn starts_again(&self) -> bool {
        true
    }

    fn start_again(&self, site: &Site<'_>) -> Result<Standing> {
        let mut maker = Maker::new(site);
        let leaf = site.leaves.first().context("it needs a device")?;
        let point = maker.mount(self.0, "", &leaf.path)?;
        Ok(maker.standing(Place::Directory(point), layout()))
    }
}

fn layout() -> Layout {
    Layout {
        copies: 1,
        devices: 1,
        data_checksums: false,
        page_cache: true,
        made_by: Vec::new(),
        mount: None,
    }
}
