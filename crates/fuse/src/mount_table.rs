//! The kernel's list of mounts, and who else holds one.
//!
//! A mount lives for as long as any mount namespace shows it at any place. The one that was asked
//! to be unmounted may be gone from its place and yet be served, because a container or a service
//! with a namespace of its own was started meanwhile and has a copy.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A line of the kernel's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelMount {
    /// The mount point.
    pub directory: PathBuf,
    /// The number of the file system's device, as `0:50`: it differs from that of every other.
    pub device: String,
    /// The type of file system.
    pub kind: String,
    /// Its source: a group's name where the type is ours.
    pub source: String,
}

/// What is mounted at `directory`, the topmost where there are several.
#[must_use]
pub fn mounted_at(directory: &Path) -> Option<KernelMount> {
    own_mounts()
        .into_iter()
        .rfind(|mount| mount.directory == directory)
}

/// Everything that is mounted in the tree of this process.
#[must_use]
pub fn all_mounts() -> Vec<KernelMount> {
    own_mounts()
}

fn own_mounts() -> Vec<KernelMount> {
    std::fs::read("/proc/self/mountinfo").map_or_else(|_| Vec::new(), |list| parse_mounts(&list))
}

/// Where a file system stands in the tree of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// At that directory, to be seen.
    There,
    /// At that directory, below another mount.
    Covered,
    /// Not at that directory.
    Gone,
}

/// Where the file system `device` stands at `directory`.
pub(crate) fn standing(directory: &Path, device: &str) -> Standing {
    let mounts = own_mounts();
    let mut here = mounts
        .iter()
        .filter(|mount| mount.directory == directory)
        .rev();
    match here.next() {
        Some(top) if top.device == device => Standing::There,
        _ if here.any(|mount| mount.device == device) => Standing::Covered,
        _ => Standing::Gone,
    }
}

/// How many requests the kernel has sent to the FUSE file system `device`, or is about to, that
/// are not answered. `None` where that is not to be seen: not everybody may, and the control file
/// system need not be mounted.
pub(crate) fn requests_under_way(device: &str) -> Option<u64> {
    let connection = device.rsplit(':').next()?;
    let path = format!("/sys/fs/fuse/connections/{connection}/waiting");
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Somebody through whom a file system lives on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Holder {
    /// It is mounted at a further place.
    Place(PathBuf),
    /// A process in another mount namespace, which has it there.
    Process { id: u32, name: String },
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Place(directory) => write!(f, "it is also mounted on {}", directory.display()),
            Self::Process { id, name } => {
                write!(
                    f,
                    "process {id} ({name}) has it in a mount namespace of its own"
                )
            }
        }
    }
}

/// Who holds the file system `device`: places of this namespace, and one process of each other
/// namespace. What belongs to other users is seen by root only.
pub(crate) fn holders(device: &str) -> Vec<Holder> {
    let others = in_other_namespaces(device).into_iter().map(|(id, _)| {
        let name = std::fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
        let name = name.trim().to_owned();
        Holder::Process { id, name }
    });
    let holders: BTreeSet<Holder> = (own_places(device).map(Holder::Place))
        .chain(others)
        .collect();
    holders.into_iter().collect()
}

/// Paths that may lead this process to the file system `device`, wherever it is mounted. Something
/// else may be mounted over it there.
pub(crate) fn ways_to(device: &str) -> Vec<PathBuf> {
    let others = in_other_namespaces(device)
        .into_iter()
        .map(|(id, directory)| {
            let root = PathBuf::from(format!("/proc/{id}/root"));
            root.join(directory.strip_prefix("/").unwrap_or(&directory))
        });
    own_places(device).chain(others).collect()
}

fn own_places(device: &str) -> impl Iterator<Item = PathBuf> {
    let mounts = own_mounts().into_iter();
    let has_it = mounts.filter(move |mount| mount.device == device);
    has_it.map(|mount| mount.directory)
}

/// A process of each other namespace that has the file system `device`, and where it has it.
fn in_other_namespaces(device: &str) -> Vec<(u32, PathBuf)> {
    let mut found = Vec::new();
    let mut seen: Vec<PathBuf> = std::fs::read_link("/proc/self/ns/mnt")
        .into_iter()
        .collect();
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return found;
    };
    let mut ids: Vec<u32> = processes
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    ids.sort_unstable();
    for id in ids {
        let Ok(namespace) = std::fs::read_link(format!("/proc/{id}/ns/mnt")) else {
            continue;
        };
        if seen.contains(&namespace) {
            continue;
        }
        let Ok(list) = std::fs::read(format!("/proc/{id}/mountinfo")) else {
            continue;
        };
        let mut mounts = parse_mounts(&list).into_iter();
        if let Some(mount) = mounts.find(|mount| mount.device == device) {
            found.push((id, mount.directory));
        } else if list.is_empty() {
            // It is ending; another of its namespace may not be.
            continue;
        }
        seen.push(namespace);
    }
    found
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
                device: text(2)?,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_list_is_read_with_its_optional_fields_and_its_blanks() {
        let list = b"22 1 0:21 / /proc rw,nosuid shared:5 master:2 - proc proc rw\n\
            40 22 0:50 / /srv/my\\040data rw - fuse.spindle data rw,user_id=0\n";
        let mounts = parse_mounts(list);
        assert_eq!(mounts.len(), 2);
        assert_eq!(mounts[0].kind, "proc");
        assert_eq!(mounts[1].directory, Path::new("/srv/my data"));
        assert_eq!(mounts[1].device, "0:50");
        assert_eq!(mounts[1].kind, "fuse.spindle");
        assert_eq!(mounts[1].source, "data");
    }
}
