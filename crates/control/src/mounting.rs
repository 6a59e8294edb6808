//! The mounts of a served group, and dead ones that an earlier process left.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use spindle_base::{ErrorClass, FileId};
use spindle_fs::FileSystem;
use spindle_fuse::{Mount, MountError, MountOptions};

use crate::dirty_limit;
use crate::error::{ControlError, ControlErrorKind, ControlResult};
use crate::files::KernelCache;
use crate::keeper::{KeeperLink, KeptMount};
use crate::view::MountReport;

/// Where to mount, and how.
#[derive(Debug, Clone)]
pub struct MountRequest {
    /// An empty directory.
    pub directory: PathBuf,
    /// Bypass the page cache for every file.
    pub direct: bool,
    /// Event loops; the front door's own choice where `None`.
    pub workers_count: Option<usize>,
}

/// Every mount of one group.
#[derive(Debug, Default)]
pub struct Mounts(Mutex<Vec<(Mount, MountReport)>>);

impl Mounts {
    /// Mounts the files. A dead mount of a group in the same place is taken away first.
    ///
    /// One mount at a time: the kernel keeps names and attributes of each mount for itself, and
    /// would not see in one what was changed in another.
    ///
    /// # Errors
    /// Where the directory cannot be mounted on, or the group is mounted already.
    pub fn add(
        &self,
        file_system: &Arc<FileSystem>,
        group_name: &str,
        request: &MountRequest,
        keeper: Option<&KeeperLink>,
    ) -> ControlResult<MountReport> {
        let mut mounts = self.0.lock();
        mounts.retain(|(mount, _)| mount.is_alive());
        if let Some((_, report)) = mounts.first() {
            let wanted = request.directory.display();
            let message = if report.directory == wanted.to_string() {
                format!("{wanted} is a mount point already: {group_name} is mounted there")
            } else {
                format!(
                    "{group_name} is mounted on {0} already: use it there, or show it in a further place with: mount --bind {0} {wanted}",
                    report.directory
                )
            };
            return Err(ControlError::new(ControlErrorKind::Busy, message));
        }
        let directory = crate::starting::absolute(&request.directory)?;
        remove_dead(&directory)?;
        let mut options = MountOptions::new(group_name);
        options.direct = request.direct;
        options.generation = keeper.map_or(0, KeeperLink::generation);
        options.dirty_bytes_max = dirty_limit::lowest(file_system.group().view().disks.len());
        if let Some(count) = request.workers_count {
            options.workers_count = count;
        }
        let mount = Mount::start(file_system.clone(), &directory, &options)?;
        let report = MountReport {
            directory: mount.directory().display().to_string(),
            direct: request.direct,
        };
        if let Some(link) = keeper
            && link.keep(&mount, request.direct)
        {
            mount.keep();
        }
        mounts.push((mount, report.clone()));
        Ok(report)
    }

    /// Serves the mount that the keeper holds.
    ///
    /// # Errors
    /// Where no worker can be started.
    pub fn take_over(
        &self,
        file_system: &Arc<FileSystem>,
        group_name: &str,
        link: &KeeperLink,
        kept: &KeptMount,
    ) -> ControlResult<()> {
        let mut options = MountOptions::new(group_name);
        options.direct = kept.direct;
        options.generation = link.generation();
        let (descriptors, negotiated) = link.take_descriptors();
        let mount = Mount::take_over(
            file_system.clone(),
            &kept.directory,
            descriptors,
            negotiated,
            &options,
        )?;
        let report = MountReport {
            directory: mount.directory().display().to_string(),
            direct: kept.direct,
        };
        self.0.lock().push((mount, report));
        Ok(())
    }

    /// Serves nothing any more and leaves the mounts in the tree, for the next process.
    pub fn suspend(&self) {
        for (mount, _) in self.0.lock().iter() {
            mount.suspend();
        }
    }

    /// Nobody holds the mounts any more but this process.
    pub fn own_again(&self) {
        for (mount, _) in self.0.lock().iter() {
            mount.own_again();
        }
    }

    /// How much written data the page cache may hold for each mount from now on.
    pub fn limit_dirty_bytes(&self, bytes: u64) {
        for (mount, report) in self.0.lock().iter() {
            if let Err(error) = mount.limit_dirty_bytes(bytes) {
                tracing::debug!(directory = %report.directory, %error, bytes,
                    "the limit of written data stays what it was");
            }
        }
    }

    /// Whether the kernel has this file in its memory.
    #[must_use]
    pub fn is_known(&self, id: FileId) -> bool {
        let mounts = self.0.lock();
        // Where it cannot be asked, it may.
        mounts
            .iter()
            .any(|(mount, _)| mount.is_alive() && mount.is_known(id).unwrap_or(true))
    }

    /// Unmounts one place.
    ///
    /// # Errors
    /// Where nothing of this group is mounted there, or programs use it.
    pub fn remove(&self, directory: &Path) -> ControlResult<()> {
        let mut mounts = self.0.lock();
        let wanted = directory.display().to_string();
        let Some(index) = mounts
            .iter()
            .position(|(_, report)| report.directory == wanted)
        else {
            return Err(ControlError::not_found(format!(
                "nothing of this group is mounted on {wanted}"
            )));
        };
        mounts[index].0.stop(false)?;
        mounts.remove(index);
        Ok(())
    }

    /// Unmounts everything, also what is in use: the process is ending.
    pub fn remove_all(&self) {
        for (mount, report) in self.0.lock().drain(..) {
            let busy = match mount.stop(false) {
                Ok(()) => continue,
                Err(error) => error,
            };
            tracing::warn!(directory = %report.directory, %busy, "detached although it is in use");
            if let Err(error) = mount.stop(true) {
                tracing::error!(directory = %report.directory, %error, "still mounted");
            }
        }
    }

    /// Forgets mounts that somebody removed from outside; whether there was one.
    pub fn reap(&self) -> bool {
        let mut mounts = self.0.lock();
        let before = mounts.len();
        mounts.retain(|(mount, _)| mount.is_alive());
        mounts.len() < before
    }

    /// Whether nothing is mounted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Where the group is mounted.
    #[must_use]
    pub fn reports(&self) -> Vec<MountReport> {
        self.0
            .lock()
            .iter()
            .map(|(_, report)| report.clone())
            .collect()
    }
}

/// How often the kernel asked something of the mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestSum {
    /// What, in snake_case.
    pub name: String,
    /// How often.
    pub count: u64,
    /// How long the answers took together.
    pub total_us: u64,
}

impl Mounts {
    /// The requests of every mount, by kind.
    #[must_use]
    pub fn requests(&self) -> Vec<RequestSum> {
        let mut sums: Vec<RequestSum> = Vec::new();
        for (mount, _) in self.0.lock().iter() {
            for request in mount.counters().requests() {
                let name = snake_case(&format!("{:?}", request.opcode));
                match sums.iter_mut().find(|sum| sum.name == name) {
                    Some(sum) => {
                        sum.count += request.count;
                        sum.total_us += request.total_us;
                    }
                    None => sums.push(RequestSum {
                        name,
                        count: request.count,
                        total_us: request.total_us,
                    }),
                }
            }
        }
        sums
    }
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

impl KernelCache for Mounts {
    fn write_back(&self, id: FileId) {
        for (mount, _) in self.0.lock().iter() {
            // The kernel writes changed pages before it forgets them. Where it does not know
            // the file there is nothing to write.
            if let Err(error) = mount.invalidate_file(id) {
                tracing::warn!(%id, %error, "the kernel did not write a file back");
            }
        }
    }

    fn entry_changed(&self, parent: FileId, name: &OsStr) {
        for (mount, _) in self.0.lock().iter() {
            if let Err(error) = mount.invalidate_entry(parent, name.as_bytes()) {
                tracing::warn!(%parent, %error, "the kernel did not forget an entry");
            }
        }
    }
}

impl From<MountError> for ControlError {
    fn from(error: MountError) -> Self {
        let kind = match (&error, error.class()) {
            (MountError::Missing(_), _) => ControlErrorKind::NotFound,
            (MountError::NotEmpty(_), _) => ControlErrorKind::Exists,
            (MountError::AlreadyMounted(_) | MountError::Busy(_), _) => ControlErrorKind::Busy,
            (_, ErrorClass::Caller) => ControlErrorKind::Invalid,
            (_, ErrorClass::Environment) => ControlErrorKind::Io,
            (_, ErrorClass::BadBytes) => ControlErrorKind::Corrupt,
            (_, ErrorClass::Bug) => ControlErrorKind::Bug,
        };
        Self::new(kind, error.to_string())
    }
}

/// What is mounted at a directory, by the kernel's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelMount {
    /// The mount point.
    pub directory: PathBuf,
    /// The type of file system.
    pub kind: String,
    /// Its source: a group's name where the type is ours.
    pub source: String,
}

/// What is mounted at `directory`, the topmost where there are several.
#[must_use]
pub fn mounted_at(directory: &Path) -> Option<KernelMount> {
    let list = std::fs::read("/proc/self/mountinfo").ok()?;
    parse_mounts(&list)
        .into_iter()
        .rfind(|mount| mount.directory == directory)
}

fn parse_mounts(list: &[u8]) -> Vec<KernelMount> {
    list.split(|byte| *byte == b'\n')
        .filter_map(|line| {
            let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
            let dash = fields.iter().position(|field| *field == b"-")?;
            let text = |index: usize| {
                fields
                    .get(index)
                    .map(|field| String::from_utf8_lossy(field).into_owned())
            };
            Some(KernelMount {
                directory: unescape(fields.get(4)?),
                kind: text(dash + 1)?,
                source: text(dash + 2)?,
            })
        })
        .collect()
}

/// Blanks and the like are written as `\040`.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut at = 0;
    while at < field.len() {
        let code = field
            .get(at + 1..at + 4)
            .filter(|_| field[at] == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(code.unwrap_or(field[at]));
        at += if code.is_some() { 4 } else { 1 };
    }
    PathBuf::from(OsStr::from_bytes(&bytes))
}

/// Detaches mounts of ours at `directory` whose process has died. Whether there was one.
///
/// # Errors
/// Where the kernel refuses.
pub fn remove_dead(directory: &Path) -> ControlResult<bool> {
    let mut removed = false;
    while let Some(mount) = mounted_at(directory) {
        // The attributes of the root may be cached; how full it is must be asked for.
        let dead = matches!(
            rustix::fs::statfs(directory),
            Err(rustix::io::Errno::NOTCONN | rustix::io::Errno::CONNABORTED)
        );
        if !dead || mount.kind != "fuse.spindle" {
            break;
        }
        detach(directory)?;
        removed = true;
    }
    Ok(removed)
}

fn detach(directory: &Path) -> ControlResult<()> {
    let fail = |error| ControlError::io("take away the dead mount at", directory.display(), &error);
    if rustix::process::geteuid().is_root() {
        return rustix::mount::unmount(directory, rustix::mount::UnmountFlags::DETACH)
            .map_err(|error| fail(error.into()));
    }
    let output = std::process::Command::new("fusermount3")
        .args(["-u", "-z", "--"])
        .arg(directory)
        .output()
        .map_err(fail)?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(fail(std::io::Error::other(message)))
}

#[cfg(test)]
mod tests {
    use super::parse_mounts;
    use std::path::Path;

    #[test]
    fn the_kernels_list_is_read_with_its_optional_fields_and_its_blanks() {
        let list = b"22 1 0:21 / /proc rw,nosuid shared:5 master:2 - proc proc rw\n\
            40 22 0:50 / /srv/my\\040data rw - fuse.spindle data rw,user_id=0\n";
        let mounts = parse_mounts(list);
        assert_eq!(mounts.len(), 2);
        assert_eq!(mounts[0].kind, "proc");
        assert_eq!(mounts[1].directory, Path::new("/srv/my data"));
        assert_eq!(mounts[1].kind, "fuse.spindle");
        assert_eq!(mounts[1].source, "data");
    }
}
