//! The way to a group: the process that serves it, or where there is none its disks.

use spindle_base::GroupName;

use crate::api::call::{Effect, Standalone};
use crate::api::client::Client;
use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::api::files::Files;
use crate::machine::discovery::Discovery;
use crate::machine::settings::Settings;
use crate::opened::files::OpenFiles;
use crate::opened::open::{Access, Opened};
use crate::serving::served;

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
        if let Some(client) = served::find(settings, group.as_str())? {
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

/// Asks the process that serves the group, or where there is none opens its disks and does it here:
/// to look where the call only looks, else to change the group and close it again.
///
/// # Errors
/// Where there is no such group, it cannot be opened, or the call is refused.
pub(super) fn reach<C: Standalone>(
    settings: &Settings,
    group: &GroupName,
    call: &C,
    here: impl FnOnce(&Opened) -> ControlResult<C::Answer>,
) -> ControlResult<C::Answer> {
    if let Some(client) = served::find(settings, group.as_str())? {
        return client.ask(call);
    }
    if C::SHAPE.effect == Effect::Looks {
        let access = Access::Look { force: false };
        return here(&Opened::open(settings, group, &access)?);
    }
    let opened = Opened::open(settings, group, &Access::Change)?;
    let answer = here(&opened).map_err(|error| opened.with_path(error));
    // Closed also where it was refused, so that it is not left open.
    let closed = opened.close();
    let answer = answer?;
    closed?;
    Ok(answer)
}

/// The process that serves the group.
///
/// # Errors
/// Where there is no such process; the message says whether there is such a group.
pub fn serving(settings: &Settings, name: &str) -> ControlResult<Client> {
    if let Some(client) = served::find(settings, name)? {
        return Ok(client);
    }
    let discovery = Discovery::look(settings)?;
    let found = discovery.group(name)?;
    Err(ControlError::new(
        ControlErrorKind::NotFound,
        format!(
            "the group {} is not open: `spindle mount {} DIR` or `spindle group mount {}` opens it",
            found.name, found.name, found.name
        ),
    ))
}
