//! Floor 7 of 7, above `change`: the front of an open disk group. How it is made, opened, looked at,
//! stepped on and closed.

pub(crate) mod check;
pub(crate) mod create;
pub(crate) mod open;
pub(crate) mod step;
pub(crate) mod view;
pub(crate) mod work;

pub use open::Attended;
pub use view::{DiskView, ExtentView, GroupFigures, GroupView};

use crate::background::Group;
use crate::core::keeper_journal::claim_of;
use crate::error::GroupError;
use spindle_format::OpenerRecord;

impl Group {
    /// Commits, cleans, and marks the group closed. Later calls fail.
    ///
    /// # Errors
    /// [`GroupErrorKind::Io`] where not everything could be made durable; the next opening then
    /// recovers as after a crash.
    pub fn close(&self) -> Result<(), GroupError> {
        self.keep_scrub();
        // Whoever has the group next may not know their map.
        self.clients.end();
        // What a disk lost is told to whoever syncs; it keeps nobody from closing.
        self.make_durable()?;
        self.clean_everything()?;
        self.make_durable()?;
        self.catalog.close()?;
        // All is durable. Before the disks say that nobody has the group, or a kill between the two
        // would have whoever comes next forget what files owe.
        let journal = self.journal();
        if let Some(journal) = journal {
            journal.close();
        }
        let announce = |before: &OpenerRecord, closed: &OpenerRecord| {
            if let Some(journal) = journal {
                journal.note_claim(claim_of(before), claim_of(closed));
            }
        };
        self.membership.close_announced(&announce)?;
        self.stop_closed();
        Ok(())
    }
}
