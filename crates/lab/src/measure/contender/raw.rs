//! A device as it is, with nothing on it: what the others are measured against below a database.

use anyhow::{Context, Result};

use super::{Contender, Maker, Place, Site, Standing, lacks_root};
use crate::record::Layout;

struct Raw;

pub(super) fn offers() -> Vec<Box<dyn Contender>> {
    vec![Box::new(Raw)]
}

impl Contender for Raw {
    fn name(&self) -> String {
        "raw".to_owned()
    }

    fn lacks(&self) -> Option<String> {
        lacks_root()
    }

    fn is_device(&self) -> bool {
        true
    }

    fn make(&self, site: &Site<'_>) -> Result<Standing> {
        let leaf = site.leaves.first().context("it needs a device")?;
        let layout = Layout {
            copies: 1,
            devices: 1,
            data_checksums: false,
            page_cache: false,
            made_by: Vec::new(),
            mount: None,
        };
        Ok(Maker::new(site).standing(Place::Device(leaf.path.clone()), layout))
    }
}
