//! Disks that are files on NFS servers: `nfs://SERVER/DIRECTORY/FILE`, wherever a disk's path is taken.
//!
//! SERVER is a name of the settings, which say how that server is reached and what it exports, or the
//! server's own name or address; then the path is that from the root of its exports. The group's own
//! client speaks to it ([`spindle_nfs`]): nothing is mounted.
//!
//! **Who has a disk.** The server keeps other machines from writing to a file that is open here. Of this
//! machine's processes one alone has it: whoever opens it takes a name of the kernel's that the file
//! gives, in no directory, and the name goes with the process. Without that the second process would
//! take the first one's hold away, because to the server both are this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use serde::Deserialize;
use spindle_device::{
    DISK_SIZE_MIN_BYTES, DiskSlot, FileDisk, MixedDisks, OpenDisk, OpenError, OpenErrorKind,
    RemoteDisk,
};
use spindle_nfs::disk::PathAddress;
use spindle_nfs::rpc::Credentials;
use spindle_nfs::{Access, ErrorKind, FileWanted, NfsDisk, NfsError, Settings, SharedDisk};

use crate::api::error::{ControlError, ControlErrorKind, ControlResult, ErrorContext};
use crate::machine::identity;

const SCHEME: &str = "nfs://";
/// Where servers listen, unless a path says another one.
const PORT: u16 = 2049;
/// The most paths to one server.
const PATHS_MOST: usize = 4;
/// How long a server may take to open a disk that is to be used.
const OPENING_MOST: Duration = Duration::from_secs(10);
/// How long it may take where somebody only looks: programs may wait for the one that does.
const LOOKING_MOST: Duration = Duration::from_secs(3);

/// `[nfs.NAME]` of the settings.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServerTable {
    paths: Vec<String>,
    export: Option<String>,
    uid: Option<u32>,
    gid: Option<u32>,
}

/// The servers that the settings name.
#[derive(Debug, Clone, Default)]
pub(crate) struct NfsServers(BTreeMap<String, ServerTable>);

/// A file or a directory, and how it is reached.
struct Place {
    addresses: Vec<PathAddress>,
    /// Names from the root of the server's exports.
    names: Vec<String>,
    uid: u32,
    gid: u32,
}

/// Whether the path is that of a file on a server.
#[must_use]
pub(crate) fn is_remote(path: &Path) -> bool {
    path.as_os_str().as_bytes().starts_with(SCHEME.as_bytes())
}

impl NfsServers {
    /// Checks what the settings say.
    pub(super) fn check(tables: BTreeMap<String, ServerTable>) -> ControlResult<Self> {
        for (name, table) in &tables {
            if table.paths.is_empty() || table.paths.len() > PATHS_MOST {
                return Err(ControlError::invalid(format!(
                    "[nfs.{name}] has {} paths: give 1 to {PATHS_MOST}, each SERVER or SERVER@OWN-ADDRESS",
                    table.paths.len()
                )));
            }
            if name.is_empty() || name.contains(['/', ':', '@']) {
                return Err(ControlError::invalid(format!(
                    "{name:?} is no name of a server: it stands in nfs://NAME/FILE"
                )));
            }
        }
        Ok(Self(tables))
    }

    fn place(&self, path: &Path) -> ControlResult<Place> {
        let text = path.to_str().and_then(|text| text.strip_prefix(SCHEME));
        let wrong = || {
            ControlError::invalid(format!(
                "{} is no path of a disk on a server: write nfs://SERVER/DIRECTORY/FILE",
                path.display()
            ))
        };
        let (server, file) = text
            .and_then(|text| text.split_once('/'))
            .ok_or_else(wrong)?;
        if server.is_empty() {
            return Err(wrong());
        }
        let (paths, export, own) = match self.0.get(server) {
            Some(table) => {
                let export = table.export.clone().unwrap_or_default();
                (table.paths.clone(), export, (table.uid, table.gid))
            }
            None => (vec![server.to_owned()], String::new(), (None, None)),
        };
        let names: Vec<String> = [&*export, file]
            .iter()
            .flat_map(|part| part.split('/'))
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        if names.iter().any(|name| name == "." || name == "..") || names.is_empty() {
            return Err(wrong());
        }
        let mut addresses = Vec::new();
        for path in &paths {
            addresses.push(address(path, server)?);
        }
        Ok(Place {
            addresses,
            names,
            uid: own.0.unwrap_or_else(|| rustix::process::geteuid().as_raw()),
            gid: own.1.unwrap_or_else(|| rustix::process::getegid().as_raw()),
        })
    }

    /// Opens a disk, of this machine or on a server, to read and write it; nobody else can.
    ///
    /// # Errors
    /// Where it is not there, not to be opened, or in use.
    pub(crate) fn attach_to_own(&self, disks: &MixedDisks, path: &Path) -> ControlResult<DiskSlot> {
        if !is_remote(path) {
            return Ok(disks.try_attach(OpenDisk::open(path)?)?);
        }
        let disk = self.open(path, Access::Own, false)?;
        refuse_too_small(path, disk.size_bytes())?;
        Ok(disks.try_attach_remote(disk)?)
    }

    /// As [`Self::attach_to_look`], of many: servers are waited for together.
    pub(crate) fn attach_all_to_look(
        &self,
        disks: &MixedDisks,
        paths: &[PathBuf],
    ) -> Vec<ControlResult<DiskSlot>> {
        std::thread::scope(|scope| {
            let opening: Vec<_> = (paths.iter())
                .map(|path| {
                    is_remote(path).then(|| scope.spawn(|| self.attach_to_look(disks, path)))
                })
                .collect();
            (paths.iter().zip(opening))
                .map(|(path, remote)| match remote {
                    None => self.attach_to_look(disks, path),
                    Some(thread) => thread.join().unwrap_or_else(|_| {
                        Err(ControlError::new(
                            ControlErrorKind::Bug,
                            format!("{}: opening it ended by a panic", path.display()),
                        ))
                    }),
                })
                .collect()
        })
    }

    /// As [`Self::attach_to_own`], only to look at it.
    ///
    /// # Errors
    /// Where it is not there or not to be opened.
    pub(crate) fn attach_to_look(
        &self,
        disks: &MixedDisks,
        path: &Path,
    ) -> ControlResult<DiskSlot> {
        if !is_remote(path) {
            return Ok(disks.try_attach(OpenDisk::open_read_only(path)?)?);
        }
        let disk = self.open(path, Access::Look, false)?;
        refuse_too_small(path, disk.size_bytes())?;
        Ok(disks.try_attach_remote(disk)?)
    }

    /// Makes a plain file, here or on a server, and opens it as a disk.
    ///
    /// # Errors
    /// Where there is one already, or no room for it.
    pub(crate) fn make(&self, disks: &MixedDisks, disk: &FileDisk) -> ControlResult<DiskSlot> {
        let path = &*disk.path;
        if !is_remote(path) {
            return Ok(disks.try_attach(disk.create()?)?);
        }
        refuse_too_small(path, disk.size_bytes)?;
        match self.open(path, Access::Look, false) {
            Err(error) if error.kind == ControlErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(_) => {
                return Err(ControlError::new(
                    ControlErrorKind::Exists,
                    format!(
                        "{}: a file is there already: choose another path, or use it as it is",
                        path.display()
                    ),
                ));
            }
        }
        let made = self.open(path, Access::Own, true)?;
        (made.set_size(disk.size_bytes, OPENING_MOST))
            .map_err(|error| failed("make", path, &error))?;
        tracing::warn!(
            "{}: the server has not reserved its room: keep so much free there",
            path.display()
        );
        Ok(disks.try_attach_remote(made)?)
    }

    fn open(&self, path: &Path, access: Access, makes: bool) -> ControlResult<Arc<SharedDisk>> {
        let mut place = self.place(path)?;
        let (held, most) = match access {
            Access::Own => (hold(&place, path)?, OPENING_MOST),
            Access::Look => (Vec::new(), LOOKING_MOST),
        };
        let name = place.names.pop().unwrap_or_default();
        let file = FileWanted {
            name,
            makes,
            access,
        };
        let settings = settings_of(&place, Some(file));
        let path_text = path.display().to_string();
        SharedDisk::open(path_text, settings, place.addresses, held, most)
            .map_err(|error| failed("open", path, &error))
    }

    /// The files that a pattern names: `*` and its like in the last name alone.
    ///
    /// # Errors
    /// Where it is none, or the server does not list the directory.
    pub(super) fn expand(&self, pattern: &str) -> ControlResult<Vec<PathBuf>> {
        let (directory, last) = pattern.rsplit_once('/').unwrap_or((pattern, ""));
        if !last.contains(['*', '?', '[']) {
            return Ok(vec![PathBuf::from(pattern)]);
        }
        let wanted = glob::Pattern::new(last).map_err(|error| {
            ControlError::invalid(format!("the disk pattern {pattern:?} is none")).because(error)
        })?;
        let path = Path::new(pattern);
        let mut place = self.place(path)?;
        place.names.pop();
        let settings = settings_of(&place, None);
        let listed = NfsDisk::open(settings, place.addresses, LOOKING_MOST)
            .and_then(|mut directory| {
                let entries = directory.list()?;
                // A server that does not answer ends the session when its lease is over.
                let _ = directory.close();
                Ok(entries)
            })
            .map_err(|error| failed("list", path, &error))?;
        let names = listed.into_iter().filter(|entry| entry.is_file);
        let names = names.filter(|entry| wanted.matches(&entry.name));
        Ok(names
            .map(|entry| PathBuf::from(format!("{directory}/{}", entry.name)))
            .collect())
    }

    /// Whether a process of this machine has the disk.
    #[must_use]
    pub(crate) fn is_held(&self, path: &Path) -> bool {
        let held = self.place(path).and_then(|place| hold(&place, path));
        held.is_err_and(|error| error.kind == ControlErrorKind::Busy)
    }
}

fn settings_of(place: &Place, file: Option<FileWanted>) -> Settings {
    static LOOKS_COUNT: AtomicU64 = AtomicU64::new(0);
    let (host, machine) = identity::host();
    let is_own = (file.as_ref()).is_some_and(|file| file.access == Access::Own);
    let owner = if is_own {
        format!("spindle {machine} {host}")
    } else {
        // Who only looks takes nobody's place.
        let count = LOOKS_COUNT.fetch_add(1, Ordering::Relaxed);
        format!(
            "spindle {machine} {host} looks {} {count}",
            std::process::id()
        )
    };
    Settings {
        paths: place.addresses.len(),
        credentials: Credentials {
            machine_name: host,
            uid: place.uid,
            gid: place.gid,
        },
        owner: owner.into_bytes(),
        directory: place.names.clone(),
        file,
        transfer_bytes: 1 << 20,
        slots: 64,
        probe_after_ms: 2000,
        silent_after_ms: 5000,
        dropped_after_ms: 10_000,
    }
}

/// `SERVER[:PORT][@OWN-ADDRESS]`.
fn address(text: &str, server: &str) -> ControlResult<PathAddress> {
    let (to, own) = match text.split_once('@') {
        Some((to, own)) => (to, Some(own)),
        None => (text, None),
    };
    let own: Option<IpAddr> = match own.map(str::parse) {
        None => None,
        Some(Ok(own)) => Some(own),
        Some(Err(_)) => {
            return Err(ControlError::invalid(format!(
                "{text:?} is no path to the server {server}: behind @ stands an address of this machine"
            )));
        }
    };
    let resolved = match to.parse::<SocketAddr>() {
        Ok(address) => Some(address),
        Err(_) => {
            let (host, port) = match to.rsplit_once(':') {
                Some((host, port)) if !host.contains(':') => (host, port.parse().ok()),
                _ => (to.trim_matches(['[', ']']), Some(PORT)),
            };
            let found = port.and_then(|port| (host, port).to_socket_addrs().ok());
            found.and_then(|mut addresses| {
                addresses.find(|address| own.is_none_or(|own| own.is_ipv4() == address.is_ipv4()))
            })
        }
    };
    let Some(address) = resolved else {
        return Err(ControlError::not_found(format!(
            "the server {to} is not known: give its name or address, or a [nfs.{server}] with its paths in spindle.toml"
        )));
    };
    Ok(PathAddress {
        server: address,
        own,
    })
}

/// Takes the names that say that a process of this machine has the file: one for each address of the
/// server, so that two ways to write its path which share one mean one file.
fn hold(place: &Place, path: &Path) -> ControlResult<Vec<OwnedFd>> {
    let servers: BTreeSet<SocketAddr> = (place.addresses.iter())
        .map(|address| address.server)
        .collect();
    (servers.into_iter())
        .map(|server| hold_at(server, &place.names, path))
        .collect()
}

fn hold_at(server: SocketAddr, names: &[String], path: &Path) -> ControlResult<OwnedFd> {
    // The same in every version of this program.
    let sum = spindle_nfs::fnv(format!("{server}/{}", names.join("/")).as_bytes());
    let name = format!("spindle-nfs-{sum:016x}");
    let fail = |errno: Errno| match errno {
        Errno::ADDRINUSE => ControlError::new(
            ControlErrorKind::Busy,
            format!(
                "{}: in use by another process of this machine: release it first",
                path.display()
            ),
        ),
        errno => ControlError::io("hold", path.display(), &errno.into()),
    };
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(fail)?;
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(fail)?;
    rustix::net::bind(&socket, &address).map_err(fail)?;
    Ok(socket)
}

fn refuse_too_small(path: &Path, size_bytes: u64) -> ControlResult<()> {
    if size_bytes >= DISK_SIZE_MIN_BYTES {
        return Ok(());
    }
    let too_small = OpenError {
        path: path.display().to_string(),
        kind: OpenErrorKind::TooSmall { size_bytes },
        source: None,
    };
    Err(too_small.into())
}

fn failed(what: &'static str, path: &Path, error: &NfsError) -> ControlError {
    let kind = match error.kind {
        ErrorKind::NotFound => ControlErrorKind::NotFound,
        ErrorKind::Exists => ControlErrorKind::Exists,
        ErrorKind::InUse => ControlErrorKind::Busy,
        ErrorKind::NoSpace => ControlErrorKind::NoSpace,
        _ => ControlErrorKind::Io,
    };
    let mut failed = ControlError::new(kind, format!("{}: {error}", path.display()));
    failed.context = ErrorContext::of(what, path.display());
    failed
}
