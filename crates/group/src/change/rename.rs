//! A disk gets another name. Its label counts; the catalog's record follows, and where a crash
//! comes in between, the next opening lets it follow.

use spindle_base::{DiskName, DiskNumber};
use spindle_catalog::{Edit, Table};
use spindle_sync::level::Unshown;

use crate::background::Group;
use crate::change::refusal;
use crate::core::disks::disk_key;
use crate::error::{GroupError, GroupErrorKind};
use crate::event::{Event, EventKind};

impl Group {
    /// Gives a disk that is online another name, durably.
    ///
    /// # Errors
    /// [`GroupErrorKind::Invalid`] for a name in use or a disk that is away,
    /// [`GroupErrorKind::NotFound`] for one that is not there; nothing has changed then.
    pub fn rename_disk(&self, disk: DiskNumber, name: &DiskName) -> Result<(), GroupError> {
        let _one = self.disk_changes.lock(Unshown);
        self.check_fence()?;
        let known = self.known_disk(disk)?;
        let former = known.name();
        // Only the case of letters may change of a name that the disk itself has.
        if !former.as_str().eq_ignore_ascii_case(name.as_str()) {
            self.refuse_name_in_use(name)?;
        }
        if !known.is_online() {
            return Err(refusal(
                GroupErrorKind::Invalid,
                format!(
                    "disk {former} is away, and its label has its name; rename it when it is back"
                ),
            ));
        }
        let mut record = self.disk_record(disk)?;
        self.membership.rename_disk(disk, name)?;
        self.disks.set_name(disk, name);
        record.name = name.clone();
        let mut edit = Edit::default();
        edit.put(Table::Disk, disk_key(disk), record.encode());
        self.event(
            Event::new(
                EventKind::DiskRenamed,
                format!("disk {former} is called {name} now"),
            )
            .disk(disk),
        );
        // The labels say it durably; the record follows with the next commit, or at an opening.
        let _change = self.change();
        self.catalog.apply(edit);
        Ok(())
    }
}
