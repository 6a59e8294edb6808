//! Settings of a group: what they are, and changing one durably.

use spindle_group::{Event, EventKind, Group, RepairTime};

use crate::api::error::{ControlError, ControlResult};
use crate::api::group_settings::GroupSettings;
use crate::api::nearness::suggestion;

/// The names of all settings.
const NAMES: [&str; 4] = [
    "scrub_interval",
    "disk_repair_time",
    "failgroup_repair_time",
    "watchdog",
];

/// The settings of an open group.
#[must_use]
pub(crate) fn settings_of(group_name: &str, group: &Group) -> GroupSettings {
    let interval_s = group.scrub_interval_s();
    GroupSettings {
        group: group_name.to_owned(),
        scrub_interval_s: (interval_s > 0).then_some(interval_s),
        disk_repair_time_s: group.repair_time(RepairTime::Disk),
        failgroup_repair_time_s: group.repair_time(RepairTime::FailureGroup),
        watchdog_s: group.watchdog_s(),
    }
}

/// Changes one setting of an open group, durably.
///
/// # Errors
/// Where there is no such setting or it cannot be that, and nothing was changed.
pub(crate) fn change(
    group_name: &str,
    group: &Group,
    name: &str,
    value: &str,
) -> ControlResult<GroupSettings> {
    match name {
        "scrub_interval" => group.set_scrub_interval_s(seconds(name, value)?),
        "disk_repair_time" => {
            group.set_repair_time(RepairTime::Disk, repair_seconds(name, value)?)?;
        }
        "failgroup_repair_time" => {
            group.set_repair_time(RepairTime::FailureGroup, repair_seconds(name, value)?)?;
        }
        // Which times are possible the group says.
        "watchdog" => group.set_watchdog_s(seconds_as_written(name, value)?)?,
        _ => {
            let hint = suggestion(name, "setting", NAMES);
            return Err(ControlError::invalid(format!(
                "a group has no setting {name:?}; {hint}"
            )));
        }
    }
    group.event(Event::new(
        EventKind::SettingChanged,
        format!("{name} is {value} now"),
    ));
    // What disks lost of files is told to who asks for a sync of them.
    group.make_durable()?;
    Ok(settings_of(group_name, group))
}

/// As [`seconds`]; a disk that is away is given up at some time.
fn repair_seconds(name: &str, text: &str) -> ControlResult<u64> {
    match seconds(name, text)? {
        0 => Err(ControlError::invalid(format!(
            "{name} cannot be off: write a time such as 12h or 3d; `spindle disk drop --force` gives up a disk at once"
        ))),
        seconds => Ok(seconds),
    }
}

/// `7d`, `12h`, `30m`, `90s`, or `off`.
fn seconds(name: &str, text: &str) -> ControlResult<u64> {
    if text == "off" || text == "0" {
        return Ok(0);
    }
    let seconds = seconds_as_written(name, text)?;
    if (60..=10 * 366 * 86_400).contains(&seconds) {
        Ok(seconds)
    } else {
        Err(ControlError::invalid(format!(
            "{name} cannot be {text:?}: it is between a minute and ten years, or off"
        )))
    }
}

/// `7d`, `12h`, `30m` or `90s`, however long that is.
fn seconds_as_written(name: &str, text: &str) -> ControlResult<u64> {
    let or_off = if name == "watchdog" { "" } else { ", or off" };
    let wrong = || {
        ControlError::invalid(format!(
            "{name} cannot be {text:?}: write a time such as 7d, 12h, 30m or 90s{or_off}"
        ))
    };
    let unit = text.chars().last().ok_or_else(wrong)?;
    let factor = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        'w' => 7 * 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    number.checked_mul(factor).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn a_time_has_a_number_and_a_unit_or_is_off() {
        for (text, expected) in [("7d", 604_800), ("12h", 43_200), ("90s", 90), ("off", 0)] {
            assert_eq!(seconds("x", text).unwrap(), expected, "{text}");
        }
        for text in [
            "",
            "7",
            "d",
            "7y",
            "-1d",
            "59s",
            "99999999999999999999d",
            "3ö",
        ] {
            assert!(seconds("x", text).is_err(), "{text}");
        }
    }
}
