//! The files of a group by whichever way there is: the process that serves it, or its disks.

use spindle_base::GroupName;

use crate::client::Client;
use crate::error::ControlResult;
use crate::files::{Files, OpenFiles};
use crate::opening::{Access, Opened};
use crate::settings::Settings;
use crate::sockets;

/// A way to the files of a group.
#[derive(Debug)]
pub enum GroupFiles {
    /// A process serves it.
    Served(Client),
    /// This process opened its disks.
    Opened(Box<Opened>, OpenFiles),
}

impl GroupFiles {
    /// To look at files; nothing is written.
    ///
    /// # Errors
    /// Where there is no such group or it cannot be opened.
    pub fn to_look(settings: &Settings, group: &GroupName) -> ControlResult<Self> {
        Self::reach(settings, group, &Access::Look { force: false })
    }

    /// To change files; ended by [`GroupFiles::close`].
    ///
    /// # Errors
    /// Where there is no such group or it cannot be opened.
    pub fn to_change(settings: &Settings, group: &GroupName) -> ControlResult<Self> {
        Self::reach(settings, group, &Access::Change)
    }

    fn reach(settings: &Settings, group: &GroupName, access: &Access) -> ControlResult<Self> {
        if let Some(client) = sockets::find(settings, group.as_str())? {
            return Ok(Self::Served(client));
        }
        let opened = Opened::open(settings, group, access)?;
        let files = opened.files();
        Ok(Self::Opened(Box::new(opened), files))
    }

    /// What can be done with them.
    #[must_use]
    pub fn files(&self) -> &dyn Files {
        match self {
            Self::Served(client) => client,
            Self::Opened(_, files) => files,
        }
    }

    /// Closes a group that this process opened to change it.
    ///
    /// # Errors
    /// Where a disk refused and no copy is left.
    pub fn close(&self) -> ControlResult<()> {
        match self {
            Self::Served(_) => Ok(()),
            Self::Opened(opened, _) => opened.close(),
        }
    }
}
