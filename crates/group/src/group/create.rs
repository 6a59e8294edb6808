//! Making a group: membership, an empty catalog with the disks' records, the labels last, so
//! that a crash before them leaves no group at all.

use std::sync::Arc;

use spindle_base::{AuSize, DiskName, DiskNumber, FailureGroupName, GroupName, Redundancy, Uuid};
use spindle_catalog::{Catalog, Edit, Region, Table};
use spindle_device::{DiskSlot, Disks};
use spindle_format::DiskRecord;

use super::Group;
use crate::error::GroupError;
use crate::membership::Membership;
use crate::region::ReplicatedRegion;

/// Memory that the catalog may keep of its region, in bytes.
pub(super) const CATALOG_CACHE_BYTES: usize = 16 << 20;
/// The attribute that holds the profile's name.
pub(super) const PROFILE_KEY: &[u8] = b"profile";

/// A disk of a group to be made.
#[derive(Debug, Clone)]
pub struct NewDisk {
    /// Where it is open.
    pub slot: DiskSlot,
    /// Its name in the group.
    pub name: DiskName,
    /// Its failure group.
    pub failure_group: FailureGroupName,
    /// Random identity.
    pub uuid: Uuid,
}

/// A group to be made.
#[derive(Debug, Clone)]
pub struct NewGroup {
    /// Its name.
    pub name: GroupName,
    /// Random identity.
    pub uuid: Uuid,
    /// The redundancy of files whose template says nothing else.
    pub redundancy: Redundancy,
    /// Fixed for the group's life.
    pub au_size: AuSize,
    /// Its disks, numbered in this order.
    pub disks: Vec<NewDisk>,
    /// `postgresql`, `mariadb`, `sqlite` or `plain`; stored as an attribute for the layer above.
    pub profile: String,
    /// Seconds since 1970, for the records.
    pub created_s: u64,
}

impl Group {
    /// Writes labels, group state and an empty catalog. Refuses too few failure groups, too small
    /// disks.
    ///
    /// # Errors
    /// [`crate::GroupErrorKind::NotEnough`], [`crate::GroupErrorKind::Invalid`],
    /// [`crate::GroupErrorKind::Io`].
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

/// A disk's key in its table.
pub(super) fn disk_key(number: DiskNumber) -> Vec<u8> {
    number.0.to_be_bytes().to_vec()
}
