//! Settings of a group that are changed while it is open: `spindle group set`.

use spindle_base::GroupName;

use crate::api::calls::{ChangeSetting, ShowSettings};
use crate::api::error::ControlResult;
use crate::api::group_settings::GroupSettings;
use crate::command::reach::serving;
use crate::machine::settings::Settings;

/// The settings of an open group.
///
/// # Errors
/// Where it is not open.
pub fn show_settings(settings: &Settings, group: &GroupName) -> ControlResult<GroupSettings> {
    serving(settings, group.as_str())?.ask(&ShowSettings {})
}

/// Changes one setting of an open group.
///
/// # Errors
/// Where it is not open, there is no such setting, or it cannot be that.
pub fn change_setting(
    settings: &Settings,
    group: &GroupName,
    name: &str,
    value: &str,
) -> ControlResult<GroupSettings> {
    let (name, value) = (name.to_owned(), value.to_owned());
    serving(settings, group.as_str())?.ask(&ChangeSetting { name, value })
}
