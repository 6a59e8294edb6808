//! Where disks are looked for and where the daemon's socket and log lie.
//!
//! Nothing here touches a disk. A file of the working directory is believed only where nobody but
//! its reader and root can have written it, or have put it there: it names a program that is run.
//! What a flag says goes before the environment, the environment before `spindle.toml`, and that
//! before the defaults.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use serde::Deserialize;
use spindle_base::ErrorClass;
use spindle_device::DEADLINE_DEFAULT;

use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::api::event_filter::{parse_kinds, parse_severity};
use crate::api::trust::Trust;
use crate::machine::hook_settings::HookSettings;
use crate::machine::nfs::{NfsServers, ServerTable, is_remote};
use crate::machine::runtime_directory;

/// Variable with the search path: globs, separated by commas.
pub(super) const DISKS_VARIABLE: &str = "SPINDLE_DISKS";
/// Variable with the runtime directory.
pub(super) const RUNTIME_VARIABLE: &str = "SPINDLE_RUNTIME_DIR";
/// Name of the settings file, looked for in the working directory, then in `/etc/spindle`.
pub(super) const SETTINGS_FILE: &str = "spindle.toml";

/// What every command needs to know of its surroundings.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Globs of disks; empty for every block device of the machine.
    pub disk_patterns: Vec<String>,
    /// Where the search path comes from, to be named in messages.
    pub disk_patterns_source: String,
    /// Directory of sockets, logs and events.
    pub runtime_directory: PathBuf,
    /// Who is believed there.
    pub trust: Trust,
    /// The failure group whose copies are read where it has one.
    pub preferred_failure_group: Option<String>,
    /// Use plain system calls although `io_uring` may be there.
    pub plain_engine: bool,
    /// The command that is run at events, if any.
    pub hook: Option<HookSettings>,
    /// How long a disk may leave requests unanswered that others can answer.
    pub io_deadline: Duration,
    /// Whether reads verify the pages of databases.
    pub verifies: bool,
    /// NFS servers with files that are disks.
    pub(crate) servers: NfsServers,
}

/// How long a hook may take where the file does not say.
const HOOK_TIMEOUT_S: u64 = 30;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingsFile {
    #[serde(default)]
    disks: Vec<String>,
    runtime_directory: Option<PathBuf>,
    preferred_failure_group: Option<String>,
    hooks: Option<HooksTable>,
    io_deadline_s: Option<u64>,
    verify: Option<Verify>,
    #[serde(default)]
    nfs: BTreeMap<String, ServerTable>,
}

/// What a read verifies.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Verify {
    /// Pages of databases that have checksums.
    #[default]
    Pages,
    /// Nothing.
    None,
}

/// `[hooks]` of `spindle.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HooksTable {
    event: PathBuf,
    severity: Option<String>,
    #[serde(default)]
    kinds: Vec<String>,
    timeout_s: Option<u64>,
}

impl HooksTable {
    fn check(self) -> ControlResult<HookSettings> {
        if !self.event.is_absolute() {
            return Err(ControlError::invalid(format!(
                "the hook {} is no absolute path: the process that runs it leaves the directory that it was started in",
                self.event.display()
            )));
        }
        let timeout_s = self.timeout_s.unwrap_or(HOOK_TIMEOUT_S);
        if !(1..=3600).contains(&timeout_s) {
            return Err(ControlError::invalid(format!(
                "a hook's timeout_s of {timeout_s} is none: choose from 1 to 3600"
            )));
        }
        Ok(HookSettings {
            command: self.event,
            least: parse_severity(self.severity.as_deref().unwrap_or("info"))?,
            kinds: parse_kinds(&self.kinds.join(","))?,
            timeout: Duration::from_secs(timeout_s),
        })
    }
}

impl Settings {
    /// Gathers the settings; `disks` are the patterns of the command line, empty for none.
    ///
    /// # Errors
    /// Where `spindle.toml` is there and cannot be read or understood.
    pub fn gather(disks: &[String]) -> ControlResult<Self> {
        let (file, file_path) = read_file()?;
        let from_environment = split_patterns(std::env::var(DISKS_VARIABLE).ok().as_deref());
        let (disk_patterns, disk_patterns_source) = if !disks.is_empty() {
            let patterns = disks.iter().flat_map(|d| split_patterns(Some(d))).collect();
            (patterns, "--disks".to_owned())
        } else if !from_environment.is_empty() {
            (from_environment, DISKS_VARIABLE.to_owned())
        } else if !file.disks.is_empty() {
            (file.disks, file_path.display().to_string())
        } else {
            (Vec::new(), "every block device of this machine".to_owned())
        };
        let runtime_directory = match std::env::var_os(RUNTIME_VARIABLE) {
            Some(path) if !path.is_empty() => PathBuf::from(path),
            _ => file.runtime_directory.unwrap_or_else(default_runtime),
        };
        // The daemon leaves the directory that it was started in.
        let runtime_directory = std::path::absolute(&runtime_directory)
            .map_err(|error| ControlError::io("find", runtime_directory.display(), &error))?;
        Ok(Self {
            trust: runtime_directory::trust(&runtime_directory)?,
            disk_patterns,
            disk_patterns_source,
            runtime_directory,
            preferred_failure_group: file.preferred_failure_group,
            hook: file.hooks.map(HooksTable::check).transpose()?,
            io_deadline: io_deadline(file.io_deadline_s)?,
            verifies: file.verify.unwrap_or_default() == Verify::Pages,
            servers: NfsServers::check(file.nfs)?,
            plain_engine: std::env::var("SPINDLE_ENGINE").is_ok_and(|engine| engine == "plain"),
        })
    }

    /// The patterns of the search path; none for every block device.
    #[must_use]
    pub(crate) fn disk_patterns(&self) -> &[String] {
        &self.disk_patterns
    }

    /// The search path as a person reads it in a message.
    #[must_use]
    pub fn search_path(&self) -> String {
        if self.disk_patterns.is_empty() {
            self.disk_patterns_source.clone()
        } else {
            format!(
                "{} ({})",
                self.disk_patterns.join(","),
                self.disk_patterns_source
            )
        }
    }

    /// The paths that the search path names, each once, in order.
    ///
    /// # Errors
    /// Where a pattern is none.
    pub fn disk_paths(&self) -> ControlResult<Vec<PathBuf>> {
        let mut paths = if self.disk_patterns.is_empty() {
            block_devices(Path::new("/sys/class/block"))
        } else {
            // Servers are waited for together.
            let expanded: Vec<ControlResult<Vec<PathBuf>>> = std::thread::scope(|scope| {
                let patterns = self.disk_patterns.iter();
                let expanding: Vec<_> = patterns
                    .map(|pattern| {
                        let is_remote = is_remote(Path::new(pattern));
                        is_remote.then(|| scope.spawn(|| self.expand_remote(pattern)))
                    })
                    .collect();
                (self.disk_patterns.iter().zip(expanding))
                    .map(|(pattern, remote)| match remote {
                        None => expand(pattern),
                        Some(thread) => thread.join().unwrap_or_else(|_| Ok(Vec::new())),
                    })
                    .collect()
            });
            let mut found = Vec::new();
            for paths in expanded {
                found.extend(paths?);
            }
            found
        };
        // Two patterns, or a link and its target, may name one disk: it must be opened once.
        for path in &mut paths {
            if !is_remote(path)
                && let Ok(absolute) = std::path::absolute(&*path)
            {
                *path = absolute;
            }
        }
        let mut seen = std::collections::BTreeSet::new();
        paths.retain(|path| {
            let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
            seen.insert(real)
        });
        Ok(paths)
    }

    /// A server that does not answer hides its own disks, and no others.
    fn expand_remote(&self, pattern: &str) -> ControlResult<Vec<PathBuf>> {
        match self.servers.expand(pattern) {
            Err(error) if error.class == ErrorClass::Environment => {
                tracing::warn!("{}", error.message());
                Ok(Vec::new())
            }
            Err(error) => Err(error),
            Ok(mut found) => {
                found.sort_by_key(|path| natural_order(path));
                Ok(found)
            }
        }
    }
}

fn io_deadline(seconds: Option<u64>) -> ControlResult<Duration> {
    match seconds {
        None => Ok(DEADLINE_DEFAULT),
        Some(seconds @ 1..=3600) => Ok(Duration::from_secs(seconds)),
        Some(seconds) => Err(ControlError::invalid(format!(
            "an io_deadline_s of {seconds} is none: choose from 1 to 3600"
        ))),
    }
}

fn read_file() -> ControlResult<(SettingsFile, PathBuf)> {
    let here = PathBuf::from(SETTINGS_FILE);
    let system = Path::new("/etc/spindle").join(SETTINGS_FILE);
    for (path, is_systems) in [(here, false), (system, true)] {
        let Some(file) = open_settings(&path, is_systems)? else {
            continue;
        };
        let why_not = match why_not_believed(&file, &path)? {
            None if !is_systems => why_no_place_for_settings()?,
            why_not => why_not,
        };
        match (why_not, is_systems) {
            (None, _) => return Ok((parse(file, &path)?, path)),
            (Some(why), true) => {
                return Err(ControlError::new(
                    ControlErrorKind::Denied,
                    format!("{} {why}: only root may be able to", path.display()),
                ));
            }
            (Some(why), false) => tracing::warn!("{} is not read: it {why}", path.display()),
        }
    }
    Ok((SettingsFile::default(), PathBuf::new()))
}

/// Opens the file where there is one; a pipe in its place is not waited for. Only the system's own
/// may be a link: one in a working directory leads where somebody else wants, and what it leads to
/// can look like root's file (`/proc/PID/cmdline`).
fn open_settings(path: &Path, is_systems: bool) -> ControlResult<Option<File>> {
    let mut flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    if !is_systems {
        flags |= rustix::fs::OFlags::NOFOLLOW;
    }
    let opened = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(i32::try_from(flags.bits()).unwrap_or(0))
        .open(path);
    match opened {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) if !is_systems && error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            tracing::warn!("{} is not read: it is a link", path.display());
            Ok(None)
        }
        Err(error) => Err(ControlError::io("read", path.display(), &error)),
    }
}

/// Why somebody else than the reader and root may have written the file, if that is so.
fn why_not_believed(file: &File, path: &Path) -> ControlResult<Option<String>> {
    let metadata = file
        .metadata()
        .map_err(|error| ControlError::io("look at", path.display(), &error))?;
    if !metadata.is_file() {
        return Ok(Some("is no file".to_owned()));
    }
    Ok(why_not_ones_own(metadata.uid(), metadata.mode()))
}

/// Why somebody else than the reader and root may have put a file into the working directory, if
/// that is so: a file of root's from elsewhere, moved or linked here, was not meant for this place.
fn why_no_place_for_settings() -> ControlResult<Option<String>> {
    let metadata = std::fs::metadata(".")
        .map_err(|error| ControlError::io("look at", "the working directory", &error))?;
    Ok(why_not_ones_own(metadata.uid(), metadata.mode())
        .map(|why| format!("lies in a directory that {why}")))
}

/// Why what has this owner and these permissions may be another user's doing.
fn why_not_ones_own(owner: u32, mode: u32) -> Option<String> {
    let own = rustix::process::geteuid().as_raw();
    // Many users have a group of their own; what is root's is never to be written by one.
    let others = if own == 0 { 0o022 } else { 0o002 };
    if owner != own && owner != 0 {
        Some(format!("belongs to user {owner}"))
    } else if mode & others != 0 {
        Some("can be written by others".to_owned())
    } else {
        None
    }
}

fn parse(mut file: File, path: &Path) -> ControlResult<SettingsFile> {
    let mut text = String::new();
    file.read_to_string(&mut text)
        .map_err(|error| ControlError::io("read", path.display(), &error))?;
    toml::from_str(&text).map_err(|error| {
        let reason = error.message().to_owned();
        ControlError::invalid(format!(
            "{} is not understood: {reason}; known are disks, runtime_directory, preferred_failure_group, io_deadline_s, verify, [hooks] and [nfs.NAME]",
            path.display()
        ))
    })
}

fn split_patterns(text: Option<&str>) -> Vec<String> {
    text.unwrap_or("")
        .split(',')
        .map(str::trim)
        .filter(|pattern| !pattern.is_empty())
        .map(str::to_owned)
        .collect()
}

fn default_runtime() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/run/spindle");
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(directory) if !directory.is_empty() => PathBuf::from(directory).join("spindle"),
        _ => std::env::temp_dir().join(format!("spindle-{}", rustix::process::geteuid().as_raw())),
    }
}

fn expand(pattern: &str) -> ControlResult<Vec<PathBuf>> {
    let paths = glob::glob(pattern).map_err(|error| {
        ControlError::invalid(format!("the disk pattern {pattern:?} is none")).because(error)
    })?;
    let mut found: Vec<PathBuf> = paths
        .filter_map(Result::ok)
        .filter(|path| !path.is_dir())
        .collect();
    found.sort_by_key(|path| natural_order(path));
    Ok(found)
}

/// Sorts `disk2` before `disk10`.
fn natural_order(path: &Path) -> (String, usize, String) {
    let text = path.to_string_lossy().into_owned();
    let digits = text.len() - text.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let stem = text[..text.len() - digits].to_owned();
    (stem, digits, text)
}

/// Every block device with a medium, whole or a partition, as `/sys` lists them.
fn block_devices(class: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(class) else {
        return Vec::new();
    };
    let mut devices: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .filter(|entry| {
            let size = std::fs::read_to_string(entry.path().join("size")).unwrap_or_default();
            size.trim().parse::<u64>().is_ok_and(|sectors| sectors > 0)
        })
        .map(|entry| Path::new("/dev").join(entry.file_name()))
        .filter(|path| path.exists())
        .collect();
    devices.sort_by_key(|path| natural_order(path));
    devices
}

#[cfg(test)]
mod tests {
    use super::{expand, io_deadline, natural_order, split_patterns};
    use std::path::Path;

    #[test]
    fn a_search_path_is_globs_between_commas() {
        assert_eq!(
            split_patterns(Some("/dev/sd?, /srv/d*,,")),
            vec!["/dev/sd?".to_owned(), "/srv/d*".to_owned()]
        );
        assert!(split_patterns(None).is_empty());
    }

    #[test]
    fn the_deadline_of_a_disk_is_ten_seconds_unless_the_file_says_another() {
        assert_eq!(io_deadline(None).unwrap().as_secs(), 10);
        assert_eq!(io_deadline(Some(3)).unwrap().as_secs(), 3);
        for none in [0, 3601] {
            let error = io_deadline(Some(none)).unwrap_err();
            assert_eq!(error.class, spindle_base::ErrorClass::Caller);
        }
    }

    #[test]
    fn disk_ten_comes_after_disk_two() {
        let mut paths = [Path::new("/d/disk10"), Path::new("/d/disk2")];
        paths.sort_by_key(|path| natural_order(path));
        assert_eq!(paths[0], Path::new("/d/disk2"));
    }

    #[test]
    fn a_pattern_that_is_none_is_the_callers_mistake() {
        let error = expand("/dev/[").unwrap_err();
        assert_eq!(error.class, spindle_base::ErrorClass::Caller);
        assert!(error.message().contains("/dev/["), "{}", error.message());
    }
}
