//! ZFS striped over all devices, where it is installed, with 8 KiB records as its users set it for
//! PostgreSQL.

use anyhow::Result;

use super::{Contender, Maker, Place, Site, Standing, kernel_lacks, lacks_root};
use crate::measure::journal::Undo;
use crate::measure::program::{command, lacking};
use crate::record::Layout;

struct Zfs;

pub(super) fn offers() -> Vec<Box<dyn Contender>> {
    vec![Box::new(Zfs)]
}

impl Contender for Zfs {
    fn name(&self) -> String {
        "zfs".to_owned()
    }

    fn lacks(&self) -> Option<String> {
        lacks_root()
            .or_else(|| lacking("zpool"))
            // No guest has it either.
            .or_else(|| kernel_lacks("zfs").map(|_| "the running kernel has no zfs".to_owned()))
    }

    fn make(&self, site: &Site<'_>) -> Result<Standing> {
        let mut maker = Maker::new(site);
        let pool = format!("spindlelab{}", std::process::id());
        let point = maker.mount_point()?;
        maker.intend(Undo::Pool(pool.clone()))?;
        let mut create = command("zpool");
        create
            .args(["create", "-f", "-O", "recordsize=8k", "-m"])
            .arg(&point);
        create
            .arg(&pool)
            .args(site.leaves.iter().map(|leaf| &leaf.path));
        maker.run(&mut create)?;
        let layout = Layout {
            copies: 1,
            devices: u32::try_from(site.leaves.len())?,
            data_checksums: true,
            page_cache: true,
            made_by: Vec::new(),
            mount: None,
        };
        Ok(maker.standing(Place::Directory(point), layout))
    }
}
