//! A directory that a person names: whatever lies below it, used as it is.
//!
//! The lab makes one directory of its own in it and touches nothing else.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::{Contender, Maker, Place, Site, Standing};
use crate::measure::journal::Undo;
use crate::record::Layout;

struct Directory(PathBuf);

pub(super) fn named(path: &str) -> Result<Box<dyn Contender>, String> {
    if !path.starts_with('/') {
        return Err(format!(
            "`directory:{path}` is no absolute path: write `directory:/srv/data`"
        ));
    }
    Ok(Box::new(Directory(PathBuf::from(path))))
}

impl Contender for Directory {
    fn name(&self) -> String {
        format!("directory:{}", self.0.display())
    }

    fn lacks(&self) -> Option<String> {
        if !self.0.is_dir() {
            return Some(format!("{} is no directory", self.0.display()));
        }
        let access = rustix::fs::Access::WRITE_OK;
        rustix::fs::access(&self.0, access)
            .err()
            .map(|error| format!("{} cannot be written: {error}", self.0.display()))
    }

    fn devices_at_least(&self) -> u32 {
        0
    }

    fn make(&self, site: &Site<'_>) -> Result<Standing> {
        let mut maker = Maker::new(site);
        let own = self.0.join(format!("spindle-lab-{}", std::process::id()));
        maker.intend(Undo::Directory(own.clone()))?;
        fs::create_dir(&own).with_context(|| format!("cannot make {}", own.display()))?;
        let layout = Layout {
            copies: 1,
            devices: 0,
            data_checksums: false,
            page_cache: true,
            made_by: Vec::new(),
            mount: None,
        };
        Ok(maker.standing(Place::Directory(own), layout))
    }
}
