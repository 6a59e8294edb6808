//! Scrubs of a served group: begun, shown and stopped for who asks. The threads that do their
//! units are those of all background work (`working.rs`).

use std::path::Path;

use spindle_base::{DiskNumber, FileId};
use spindle_group::{Distrust, EventKind, GroupErrorKind, ScrubScope, ScrubView, ScrubWish};

use super::Daemon;
use crate::api::calls::StartScrub;
use crate::api::error::{ControlError, ControlResult};
use crate::api::event_filter::EventFilter;
use crate::api::nearness::suggestion;
use crate::api::scrub::{POWER_USUAL, ScrubReport};
use crate::machine::clock::now;

impl Daemon {
    /// Begins a scrub of what is asked for, by the user of that name.
    ///
    /// # Errors
    /// Where a scrub is running, or the path, a disk or the power is not valid.
    pub(crate) fn start_scrub(&self, asked: &StartScrub, by: &str) -> ControlResult<ScrubReport> {
        let path = asked.path.as_deref();
        let disks = &asked.body.disks;
        let distrust = match &asked.distrust {
            Some(name) => Some(Distrust {
                disk: self.disk_to_scrub(name)?,
                by: by.to_owned(),
            }),
            None => None,
        };
        // Where it is not said, a word on a disk is about all that the disk holds.
        let is_whole = path.is_none_or(|path| path == Path::new("/"));
        let distrusted = asked.distrust.iter().cloned();
        let all_of_it: Vec<String> = distrusted.filter(|_| is_whole).collect();
        let disks = if disks.is_empty() { &all_of_it } else { disks };
        let (scope, title) = match (disks.is_empty(), path.filter(|_| !is_whole)) {
            (false, Some(_)) => {
                return Err(ControlError::invalid(
                    "a scrub is of a path or of disks, not of both: ask for one of them",
                ));
            }
            (false, None) => self.disks_to_scrub(disks)?,
            (true, Some(path)) if path != Path::new("/") => self.files_to_scrub(path)?,
            (true, _) => (ScrubScope::Group, self.group_name().to_owned()),
        };
        self.opened.group().start_scrub(ScrubWish {
            scope,
            title,
            repair: asked.repair,
            power: asked.power.unwrap_or(POWER_USUAL),
            distrust,
        })?;
        self.scrub_report()
    }

    fn disks_to_scrub(&self, names: &[String]) -> ControlResult<(ScrubScope, String)> {
        let numbers: Vec<DiskNumber> = names
            .iter()
            .map(|name| self.disk_to_scrub(name))
            .collect::<ControlResult<_>>()?;
        let title = format!("disk {}", names.join(", "));
        Ok((ScrubScope::Disks(numbers), title))
    }

    fn disk_to_scrub(&self, name: &str) -> ControlResult<DiskNumber> {
        let report = self.report();
        let found = report
            .disks
            .iter()
            .find(|disk| disk.name.eq_ignore_ascii_case(name));
        let Some(disk) = found else {
            let all = report.disks.iter().map(|disk| disk.name.as_str());
            let hint = suggestion(name, "disk", all);
            return Err(ControlError::not_found(format!(
                "the group {} has no disk {name:?}; {hint}",
                self.group_name()
            )));
        };
        Ok(DiskNumber(disk.number))
    }

    fn scrub_report_of(&self, view: ScrubView) -> ScrubReport {
        let distrust = view.distrust.map(|number| {
            let report = self.report();
            let mut disks = report.disks.into_iter();
            disks
                .find(|disk| disk.number == number.0)
                .map_or_else(|| number.to_string(), |disk| disk.name)
        });
        ScrubReport::new(self.group_name(), view, distrust)
    }

    fn files_to_scrub(&self, path: &Path) -> ControlResult<(ScrubScope, String)> {
        let title = path.display().to_string();
        let about = |error: spindle_fs::FsError| {
            ControlError::from(error).about(format!("{}:{title}", self.group_name()))
        };
        let files = self.opened.file_system();
        let found = files.resolve(path.as_os_str()).map_err(about)?;
        let mut ids: Vec<FileId> = Vec::new();
        if found.kind == spindle_fs::Kind::Directory {
            let visit = &mut |_: &std::ffi::OsStr, attributes: &spindle_fs::Attributes| {
                if attributes.kind == spindle_fs::Kind::Regular {
                    ids.push(attributes.id);
                }
                Ok(())
            };
            files.walk(found.id, visit).map_err(about)?;
        } else if found.kind == spindle_fs::Kind::Regular {
            ids.push(found.id);
        } else {
            return Err(ControlError::invalid(format!(
                "{title} is neither a file nor a directory: there is nothing to scrub"
            )));
        }
        Ok((ScrubScope::Files(ids), title))
    }

    /// Ends the scrub that runs.
    ///
    /// # Errors
    /// Where none runs.
    pub(crate) fn stop_scrub(&self) -> ControlResult<ScrubReport> {
        let view = self.opened.group().stop_scrub()?;
        Ok(self.scrub_report_of(view))
    }

    /// Changes the power of the scrub that runs.
    ///
    /// # Errors
    /// Where none runs or the power is out of range.
    pub(crate) fn set_scrub_power(&self, power: u16) -> ControlResult<ScrubReport> {
        self.opened.group().set_scrub_power(power)?;
        self.scrub_report()
    }

    /// The scrub that runs, or the last one.
    ///
    /// # Errors
    /// Where none has run since the group was opened.
    pub(crate) fn scrub_report(&self) -> ControlResult<ScrubReport> {
        let view = self.opened.group().scrub_view().ok_or_else(|| {
            ControlError::not_found(format!(
                "no scrub has run since {0} was opened{1}: `spindle scrub {0}` begins one",
                self.group_name(),
                self.scrub_before()
            ))
        })?;
        Ok(self.scrub_report_of(view))
    }

    /// What the event log knows of the last scrub that an earlier process ran.
    fn scrub_before(&self) -> String {
        let filter = EventFilter {
            kinds: vec![EventKind::ScrubEnded.name().to_owned()],
            ..EventFilter::default()
        };
        let last = self.opened.events(&filter).unwrap_or_default().pop();
        last.map_or_else(String::new, |event| {
            let now_s = u64::try_from(now().seconds).unwrap_or(0);
            let ago = ago(now_s.saturating_sub(event.time_s));
            format!(" (before that, {ago} ago: {})", event.text)
        })
    }

    /// Begins the scheduled scrub where its time has come.
    pub(super) fn scrub_on_schedule(&self, now_s: u64) -> ControlResult<()> {
        match self.opened.group().scrub_on_schedule(now_s) {
            // Somebody began one in the same moment.
            Err(error) if error.kind == GroupErrorKind::Busy => Ok(()),
            answer => Ok(answer?),
        }
    }
}

/// So long, in the largest unit of which there is one.
fn ago(seconds: u64) -> String {
    let units = [("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)];
    let (unit, length_s) =
        (units.into_iter().find(|(_, length_s)| seconds >= *length_s)).unwrap_or(("s", 1));
    format!("{} {unit}", seconds / length_s)
}

#[cfg(test)]
mod tests {
    use super::ago;

    #[test]
    fn how_long_ago_is_told_in_the_largest_unit() {
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (7_199, "1 h"),
            (172_800, "2 d"),
        ] {
            assert_eq!(ago(seconds), text);
        }
    }
}
