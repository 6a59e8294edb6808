//! The catalog's records of disks, and how an opening brings them in line with labels and state.
//!
//! A record is written before the state that needs it and removed after the state that does not.
//! So a crash leaves records that are ahead: of a disk that did not join or was forgotten (they
//! are removed), with a former name (the label's counts), or with a size other than the state's.
//! A size below the state's is a disk that is about to end earlier; one above it is a growth that
//! the state never came to (the state's counts).

use std::collections::BTreeMap;

use spindle_base::DiskNumber;
use spindle_catalog::{Catalog, CatalogError, Edit, Table};
use spindle_format::DiskRecord;

use crate::background::Group;
use crate::core::disks::disk_key;
use crate::error::{GroupError, GroupErrorKind};
use crate::quorum::NewDisk;

/// The record of a disk that joins.
pub(crate) fn of_new(disk: &NewDisk, size_aus: u32) -> DiskRecord {
    DiskRecord {
        uuid: disk.uuid,
        name: disk.name.clone(),
        failure_group: disk.failure_group.clone(),
        size_aus,
        partners: Vec::new(),
    }
}

/// Every record of a disk.
fn all(catalog: &Catalog) -> Result<BTreeMap<DiskNumber, DiskRecord>, GroupError> {
    let mut records = BTreeMap::new();
    catalog.scan(Table::Disk, &mut |key, value| {
        let number = <[u8; 2]>::try_from(key)
            .map(|bytes| DiskNumber(u16::from_be_bytes(bytes)))
            .map_err(|_| CatalogError::Damaged("a disk's key has not 2 bytes".to_owned()))?;
        let record = DiskRecord::parse(value)
            .map_err(|error| CatalogError::Damaged(format!("disk {number}: {error}")))?;
        records.insert(number, record);
        Ok(())
    })?;
    Ok(records)
}

impl Group {
    /// The disk's record.
    pub(crate) fn disk_record(&self, disk: DiskNumber) -> Result<DiskRecord, GroupError> {
        let corrupt = |what: String| GroupError::new(GroupErrorKind::Corrupt, what).on_disk(disk);
        let bytes = (self.catalog.get(Table::Disk, &disk_key(disk))?)
            .ok_or_else(|| corrupt(format!("the catalog has no record of disk {disk}")))?;
        DiskRecord::parse(&bytes).map_err(|error| {
            corrupt(format!("the record of disk {disk} cannot be read")).because(error)
        })
    }

    /// Adds to `edit` that the disk is to have that size.
    pub(crate) fn record_size(
        &self,
        edit: &mut Edit,
        disk: DiskNumber,
        size_aus: u32,
    ) -> Result<(), GroupError> {
        let mut record = self.disk_record(disk)?;
        record.size_aus = size_aus;
        edit.put(Table::Disk, disk_key(disk), record.encode());
        Ok(())
    }

    /// Brings the records in line with labels and state, for an opening; ends disks early that
    /// are about to be smaller. The edits go with the next commit.
    pub(crate) fn bring_disk_records_up_to_date(&self) -> Result<(), GroupError> {
        let records = all(&self.catalog)?;
        let mut edit = Edit::default();
        let members = self.membership.members();
        for (number, record) in &records {
            let Some(member) = members.iter().find(|member| member.state.number == *number) else {
                edit.delete(Table::Disk, disk_key(*number));
                continue;
            };
            let mut wanted = record.clone();
            if let (Some(name), Some(failure_group), Some(uuid)) =
                (&member.name, &member.failure_group, member.uuid)
            {
                wanted.name = name.clone();
                wanted.failure_group = failure_group.clone();
                wanted.uuid = uuid;
            }
            wanted.size_aus = record.size_aus.min(member.state.size_aus);
            if wanted.size_aus < member.state.size_aus {
                let end_bytes = u64::from(wanted.size_aus) * self.membership.au_size().bytes();
                self.space.end_disk(*number, end_bytes);
                self.disks.set_total_bytes(*number, end_bytes);
            }
            if wanted != *record {
                edit.put(Table::Disk, disk_key(*number), wanted.encode());
            }
        }
        if !edit.is_empty() {
            self.catalog.apply(edit);
        }
        self.rebuild_placement();
        Ok(())
    }
}
