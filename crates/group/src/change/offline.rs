//! Disks are taken offline by a person, where nothing would lose its last good copy.

use std::collections::BTreeSet;

use smallvec::SmallVec;
use spindle_base::{DiskNumber, count_text};
use spindle_extent::plan::Serving;
use spindle_format::ExtentCopy;
use spindle_sync::level::Unshown;

use crate::background::Group;
use crate::change::refusal;
use crate::error::{GroupError, GroupErrorKind};
use crate::event::{Event, EventKind};

impl Group {
    /// Takes disks offline, durably, in one state. They keep their places, and what is written
    /// meanwhile is remembered.
    ///
    /// # Errors
    /// [`GroupErrorKind::NotEnough`] where an extent would have no good copy online or the group
    /// could not go on; [`GroupErrorKind::Invalid`] for a disk named twice or offline already;
    /// [`GroupErrorKind::NotFound`]. Nothing has changed then. [`GroupErrorKind::Io`] where they are
    /// offline and that a person wanted it could not be made durable.
    pub fn offline_disks(&self, disks: &[DiskNumber]) -> Result<(), GroupError> {
        let one = self.disk_changes.lock(Unshown);
        // Nobody takes them back between the state and the note that a person took them offline.
        let _no_return = self.returning.lock(&one);
        self.judge_offline(disks)?;
        // What is flushed now the disks do not lose: two rounds, because what is written lately is
        // kept in two generations.
        for _ in 0..2 {
            self.clean_round()?;
        }
        // A disk that began a new life may lack something that is not noted yet.
        self.notice_offline();
        // Before they go: the daemon's round may note the outage first.
        self.begin_by_hand(disks);
        let gone = {
            // Alone, so that no extent comes to lie only there between the look and the state.
            let _alone = self.change.write(&one);
            (self.refuse_last_copies(disks, "go offline"))
                .and_then(|()| self.membership.offline_by_wish(disks))
        };
        if gone.is_err() {
            self.end_by_hand(disks);
        }
        gone?;
        for disk in disks {
            let title = self.disks.describe(*disk);
            self.event(
                Event::new(
                    EventKind::DiskOffline,
                    format!("{title} was taken offline by hand"),
                )
                .severity(crate::event::Severity::Warning)
                .disk(*disk),
            );
        }
        self.notice_offline();
        self.note_by_hand(disks)?;
        // The next process takes back by itself what no person took offline.
        self.commit_everything()
    }

    /// Refuses disks that cannot be taken offline because of what they are.
    pub(crate) fn judge_offline(&self, disks: &[DiskNumber]) -> Result<(), GroupError> {
        self.check_fence()?;
        for (index, disk) in disks.iter().enumerate() {
            let name = self.known_disk(*disk)?.name();
            if disks[..index].contains(disk) {
                return Err(refusal(
                    GroupErrorKind::Invalid,
                    format!("disk {name} is named twice; name each disk once"),
                ));
            }
            if !self.membership.is_online(*disk) {
                return Err(refusal(
                    GroupErrorKind::Invalid,
                    format!("disk {name} is offline already"),
                ));
            }
        }
        Ok(())
    }

    /// Refuses where an extent has its only good copies on `going`; `what` they cannot do then.
    pub(crate) fn refuse_last_copies(
        &self,
        going: &[DiskNumber],
        what: &str,
    ) -> Result<(), GroupError> {
        for file in self.all_files() {
            let map = file.map.read();
            let schedule = map.schedule();
            let mut lost: u64 = 0;
            let mut distrusted = BTreeSet::new();
            map.for_each(0, u32::MAX, |index, extent| {
                let (first, end) = schedule.envelope(index);
                let concerned = extent.present().any(|copy| going.contains(&copy.disk()));
                let stays: SmallVec<[DiskNumber; 3]> = (extent.present())
                    .filter(|copy| {
                        let disk = copy.disk();
                        !going.contains(&disk)
                            && self.disks.slot_of(*copy).is_some()
                            && !self.dirty.is_stale(&file, disk, first, end)
                    })
                    .map(ExtentCopy::disk)
                    .collect();
                // What was set back serves until it can go, and is no good copy.
                let is_set_back = |disk: &DiskNumber| self.disks.is_set_back(*disk);
                if concerned && stays.iter().all(is_set_back) {
                    lost += 1;
                    distrusted.extend(stays);
                }
            });
            if lost > 0 {
                let way_out = if distrusted.is_empty() {
                    String::new()
                } else {
                    format!(
                        " ({} has a copy, and was set back to an older image; to go on with that, \
                         mount the group anew and try again)",
                        self.disk_names(distrusted)
                    )
                };
                return Err(refusal(
                    GroupErrorKind::NotEnough,
                    format!(
                        "{} cannot {what}: the last good copy of {} of file {} lies there; bring \
                         other disks back first, or remove the file{way_out}",
                        self.disk_names(going.iter().copied()),
                        count_text(lost, "extent"),
                        file.id
                    ),
                )
                .of_file(file.id));
            }
        }
        Ok(())
    }
    /// The names of those that the group has, in a list.
    pub(crate) fn disk_names(&self, disks: impl IntoIterator<Item = DiskNumber>) -> String {
        let names: Vec<String> = (disks.into_iter())
            .filter_map(|disk| Some(self.disks.get(disk)?.name().to_string()))
            .collect();
        names.join(", ")
    }
}
