//! What the catalog says of a disk that is away, as a line of text that a dump shows as it is.
//!
//! The row goes after the disk is back. A daemon that is killed in between leaves it, so it says of
//! which outage it is: in the next one it says nothing.

use std::collections::BTreeMap;

use spindle_base::DiskNumber;
use spindle_catalog::{Catalog, CatalogError, Table};

/// Since when a disk is away, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Away {
    /// Seconds since 1970.
    pub since_s: u64,
    /// Seconds of it during which the group was open, as last written back.
    pub counted_s: u64,
    /// The epoch of the last group state that it held, as far as we know.
    pub held_epoch: u64,
    /// A person took it offline, and brings it back.
    pub by_hand: bool,
    /// The epoch of the group state that took it offline; `None` in a row of an earlier program.
    pub offline_epoch: Option<u64>,
}

/// The key of the attribute that says since when a disk is away.
pub(crate) fn away_key(number: DiskNumber) -> Vec<u8> {
    format!("away.{}", number.0).into_bytes()
}

impl Away {
    pub(crate) fn encode(self) -> Vec<u8> {
        let offline_epoch = self
            .offline_epoch
            .map(|epoch| format!(" offline_epoch={epoch}"));
        format!(
            "since_s={} counted_s={} held_epoch={} by_hand={}{}",
            self.since_s,
            self.counted_s,
            self.held_epoch,
            self.by_hand,
            offline_epoch.unwrap_or_default()
        )
        .into_bytes()
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let fields: BTreeMap<&str, &str> = std::str::from_utf8(bytes)
            .ok()?
            .split(' ')
            .filter_map(|field| field.split_once('='))
            .collect();
        let offline_epoch = fields
            .get("offline_epoch")
            .map(|epoch| epoch.parse::<u64>());
        Some(Self {
            since_s: fields.get("since_s")?.parse().ok()?,
            counted_s: fields.get("counted_s")?.parse().ok()?,
            held_epoch: fields.get("held_epoch")?.parse().ok()?,
            by_hand: fields.get("by_hand")?.parse().ok()?,
            offline_epoch: offline_epoch.transpose().ok()?,
        })
    }

    /// What is noted of the outage that began with the group state of this epoch.
    ///
    /// # Errors
    /// [`CatalogError`] where the catalog cannot be read.
    pub(crate) fn of_outage(
        catalog: &Catalog,
        disk: DiskNumber,
        offline_epoch: u64,
    ) -> Result<Option<Self>, CatalogError> {
        let row = catalog.get(Table::Attribute, &away_key(disk))?;
        let away = row.and_then(|row| Self::parse(&row));
        Ok(away.filter(|away| (away.offline_epoch).is_none_or(|epoch| epoch == offline_epoch)))
    }
}
