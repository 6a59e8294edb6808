//! The kernel's NFS client against nfs-ganesha on this machine, over ext4 on the first device:
//! version 3, version 4.1, each over one or several connections.
//!
//! The server has a control group of its own beside that of the run, with as much memory, as a host
//! of its own would have. In one group both would hang: the client's dirty pages fill the group, its
//! writers are made to wait until these are written, and the server, who is to write them, is one of
//! these writers. What is served is compared with `ext4`, which is the same file system without the
//! network. Spindle has no disks on NFS yet, and says so.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use spindle_testbed::interrupt;

use super::{Contender, Maker, Place, Site, Standing, kernel_lacks, lacks_root};
use crate::measure::control_group::ControlGroup;
use crate::measure::guest::inside::is_guest;
use crate::measure::journal::Undo;
use crate::measure::program::{Service, command, lacking, run};
use crate::record::Layout;

struct Nfs {
    version: &'static str,
    connections: u32,
}

/// Spindle on disks that are files of an NFS server.
struct SpindleNfs;

const FILESYSTEM: &str = "ext4";
/// Not the usual ports: a server of this machine's own is left in peace.
const PORT: u16 = 20490;
const MOUNT_PORT: u16 = 20491;
const REGISTRY: &str = "127.0.0.1:111";
/// What nfs-ganesha takes for itself: 80 MB were seen, and one that runs out of memory is killed
/// while its client waits for ever.
const PROGRAM_BYTES: u64 = 256 << 20;
const ANSWER_AT_MOST: Duration = Duration::from_secs(90);

pub(super) fn offers() -> Vec<Box<dyn Contender>> {
    let mut offers: Vec<Box<dyn Contender>> = Vec::new();
    for version in ["3", "4"] {
        for connections in [1, 4, 8] {
            offers.push(Box::new(Nfs {
                version,
                connections,
            }));
        }
    }
    offers.push(Box::new(SpindleNfs));
    offers
}

impl Contender for SpindleNfs {
    fn name(&self) -> String {
        "spindle-nfs".to_owned()
    }

    fn lacks(&self) -> Option<String> {
        Some("Spindle has no disks on NFS yet".to_owned())
    }

    fn make(&self, _site: &Site<'_>) -> Result<Standing> {
        bail!("Spindle has no disks on NFS yet")
    }
}

impl Contender for Nfs {
    fn name(&self) -> String {
        match self.connections {
            1 => format!("nfs{}", self.version),
            several => format!("nfs{}-nconnect{several}", self.version),
        }
    }

    fn lacks(&self) -> Option<String> {
        lacks_root()
            .or_else(|| kernel_lacks("nfs"))
            .or_else(|| lacking("ganesha.nfsd"))
            .or_else(|| lacking("mount.nfs"))
            .or_else(|| (self.version == "3").then(lacks_registry).flatten())
            .or_else(|| lacking(&format!("mkfs.{FILESYSTEM}")))
            .or_else(|| kernel_lacks(FILESYSTEM))
    }

    fn make(&self, site: &Site<'_>) -> Result<Standing> {
        let mut maker = Maker::new(site);
        let leaf = site.leaves.first().context("it needs a device")?;
        maker.make_filesystem(FILESYSTEM, &[&leaf.path])?;
        let below = site.scratch.join("served");
        fs::create_dir(&below).with_context(|| format!("cannot make {}", below.display()))?;
        maker.mount_at(FILESYSTEM, "", &leaf.path, &below)?;
        let mut servers = Vec::new();
        if self.version == "3" && TcpStream::connect(REGISTRY).is_err() {
            servers.push(registry(&mut maker)?);
        }
        let group = site.group.beside(site.journal, "server", PROGRAM_BYTES)?;
        servers.push(self.server(&mut maker, &below, &group)?);
        let point = maker.mount_point()?;
        self.attach(&mut maker, &mut servers, &below, &point)?;
        let layout = Layout {
            copies: 1,
            devices: 1,
            data_checksums: false,
            page_cache: true,
            made_by: Vec::new(),
            mount: None,
        };
        let mut standing = maker.standing(Place::Directory(point), layout);
        standing.servers = servers;
        standing.groups.push(group);
        standing.below = Some(below);
        Ok(standing)
    }
}

/// Version 3 finds its services by a registry; the server ends where there is none. It listens on
/// every address of the machine: only in a guest, which has no network, is it ours to start.
fn lacks_registry() -> Option<String> {
    if TcpStream::connect(REGISTRY).is_ok() {
        None
    } else if is_guest() {
        lacking("rpcbind")
    } else {
        Some(
            "NFS version 3 needs rpcbind, which listens on every network: run it yourself, or give --guest"
                .to_owned(),
        )
    }
}

fn registry(maker: &mut Maker<'_>) -> Result<Service> {
    let _ = fs::create_dir("/run/rpcbind");
    let mut rpcbind = command("rpcbind");
    rpcbind.arg("-f");
    let mut service = Service::start("rpcbind", &mut rpcbind, maker.site.log)?;
    maker.intend(Undo::Process(service.identity()))?;
    interrupt::wait_for("rpcbind to answer", ANSWER_AT_MOST, || {
        service.check_alive()?;
        Ok(TcpStream::connect(REGISTRY).ok().map(drop))
    })?;
    Ok(service)
}

impl Nfs {
    fn server(&self, maker: &mut Maker<'_>, below: &Path, group: &ControlGroup) -> Result<Service> {
        let scratch = maker.site.scratch;
        let state = scratch.join("ganesha");
        fs::create_dir(&state)?;
        let settings = scratch.join("ganesha.conf");
        fs::write(&settings, self.settings(below, &state))?;
        let mut ganesha = command("ganesha.nfsd");
        // In the foreground, with its log where ours is.
        ganesha.args(["-F", "-L", "STDERR"]);
        ganesha.arg("-f").arg(&settings);
        ganesha.arg("-p").arg(scratch.join("ganesha.pid"));
        maker.note(&ganesha);
        let ganesha = &mut group.wrap(&ganesha);
        let mut service = Service::start("nfs-ganesha", ganesha, maker.site.log)?;
        maker.intend(Undo::Process(service.identity()))?;
        interrupt::wait_for("nfs-ganesha to answer", ANSWER_AT_MOST, || {
            service.check_alive()?;
            Ok(TcpStream::connect(("127.0.0.1", PORT)).ok().map(drop))
        })?;
        Ok(service)
    }

    /// The server's own file of settings. Owners go as numbers: both ends are one machine.
    fn settings(&self, below: &Path, state: &Path) -> String {
        let version = self.version;
        format!(
            "NFS_CORE_PARAM {{\n\
             \x20   Protocols = {version};\n\
             \x20   NFS_Port = {PORT};\n\
             \x20   MNT_Port = {MOUNT_PORT};\n\
             \x20   Bind_addr = 127.0.0.1;\n\
             \x20   Enable_NLM = false;\n\
             \x20   Enable_RQUOTA = false;\n\
             }}\n\
             NFSv4 {{\n\
             \x20   Graceless = true;\n\
             \x20   Only_Numeric_Owners = true;\n\
             \x20   RecoveryRoot = \"{state}\";\n\
             }}\n\
             EXPORT {{\n\
             \x20   Export_Id = 1;\n\
             \x20   Path = \"{below}\";\n\
             \x20   Pseudo = \"/lab\";\n\
             \x20   Protocols = {version};\n\
             \x20   Transports = TCP;\n\
             \x20   Access_Type = RW;\n\
             \x20   Squash = No_Root_Squash;\n\
             \x20   SecType = sys;\n\
             \x20   FSAL {{ Name = VFS; }}\n\
             }}\n",
            below = below.display(),
            state = state.display(),
        )
    }

    fn attach(
        &self,
        maker: &mut Maker<'_>,
        servers: &mut [Service],
        below: &Path,
        point: &Path,
    ) -> Result<()> {
        let mut options = if self.version == "3" {
            // nfs-ganesha answers what sets access lists, and so a copy, with an I/O error.
            format!(
                "vers=3,proto=tcp,port={PORT},mountproto=tcp,mountport={MOUNT_PORT},nolock,noacl,hard"
            )
        } else {
            format!("vers=4.1,proto=tcp,port={PORT},hard")
        };
        if self.connections > 1 {
            options.push_str(&format!(",nconnect={}", self.connections));
        }
        let source = if self.version == "3" {
            format!("127.0.0.1:{}", below.display())
        } else {
            "127.0.0.1:/lab".to_owned()
        };
        maker.intend(Undo::Mount(point.to_owned()))?;
        let mut mount = command("mount");
        mount.args(["-t", "nfs", "-o", &options]);
        mount.arg(PathBuf::from(source)).arg(point);
        maker.note(&mount);
        // It answers on its port before it serves its exports.
        let mut last = None;
        let waited = interrupt::wait_for("the NFS mount", ANSWER_AT_MOST, || {
            servers.iter_mut().try_for_each(Service::check_alive)?;
            match run(&mut mount) {
                Ok(_) => Ok(Some(())),
                Err(error) => {
                    last = Some(error);
                    std::thread::sleep(Duration::from_millis(300));
                    Ok(None)
                }
            }
        });
        match (waited, last) {
            (Err(waited), Some(last)) => Err(last.context(waited.to_string())),
            (waited, _) => waited,
        }
    }
}
