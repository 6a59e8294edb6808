//! Making a group: membership, an empty catalog with the disks' records, the labels last, so
//! that a crash before them leaves no group at all.

use std::sync::Arc;

use spindle_catalog::{Catalog, Edit, Region, Table};
use spindle_device::Disks;
use spindle_format::DiskRecord;

use crate::background::Group;
use crate::core::disks::disk_key;
use crate::error::GroupError;
use crate::quorum::{Membership, NewGroup};
use crate::region::ReplicatedRegion;

/// Memory that the catalog may keep of its region, in bytes.
pub(crate) const CATALOG_CACHE_BYTES: usize = 16 << 20;
/// The attribute that holds the profile's name.
pub(crate) const PROFILE_KEY: &[u8] = b"profile";

impl Group {
    /// Writes labels, group state and an empty catalog. Refuses too few failure groups, too small
    /// disks.
    ///
    /// # Errors
    /// [`crate::error::GroupErrorKind::NotEnough`], [`crate::error::GroupErrorKind::Invalid`],
    /// [`crate::error::GroupErrorKind::Io`].
    pub fn create(disks: Arc<dyn Disks>, new: &NewGroup) -> Result<(), GroupError> {
        let membership = Arc::new(Membership::create(disks, new)?);
        let region = Arc::new(ReplicatedRegion::create(Arc::clone(&membership))?);
        let catalog = Catalog::create(region as Arc<dyn Region>, CATALOG_CACHE_BYTES)?;
        let mut edit = Edit::default();
        edit.put(
            Table::Attribute,
            PROFILE_KEY.to_vec(),
            new.profile.as_bytes().to_vec(),
        );
        let members = membership.members();
        for (member, disk) in members.iter().zip(&new.disks) {
            let record = DiskRecord {
                uuid: disk.uuid,
                name: disk.name.clone(),
                failure_group: disk.failure_group.clone(),
                size_aus: member.state.size_aus,
                partners: Vec::new(),
            };
            edit.put(Table::Disk, disk_key(member.state.number), record.encode());
        }
        let sequence = catalog.apply(edit);
        catalog.commit(sequence)?;
        catalog.close()?;
        membership.finish_create()
    }
}
