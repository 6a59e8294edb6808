//! `doctor`: what this machine can run, and what not and why. It touches nothing.

use std::process::ExitCode;

use anyhow::Result;

use crate::experiment::DatabaseKind;
use crate::measure::contender;
use crate::measure::control_group::{Version, lacks_limits, version};
use crate::measure::database;
use crate::measure::guest::{self, kernel::Kernel};
use crate::measure::program::lacking;
use crate::say;

pub(super) fn run() -> Result<ExitCode> {
    say!("Contenders");
    for contender in contender::all() {
        line(&contender.name(), contender.lacks());
    }
    line("directory:PATH", None);
    say!("\nDevices");
    let is_root = rustix::process::geteuid().is_root();
    let needs_root = (!is_root).then(|| "made by root: run it with sudo".to_owned());
    line("loop", needs_root.clone().or_else(|| lacking("losetup")));
    let has_zram = std::path::Path::new("/sys/class/zram-control").exists();
    let no_zram = (!has_zram).then(|| "the running kernel has no zram (modprobe zram)".to_owned());
    line("zram", needs_root.clone().or(no_zram));
    line("block", needs_root);
    say!("\nA guest with a kernel of its own: device-mapper, md, NFS (run FILE --guest)");
    tell_guest();
    say!("\nLimits");
    line("bandwidth (a device as a spindle)", lacks_limits());
    line(
        "memory",
        version("memory")
            .is_none()
            .then(|| "no memory cgroup here".to_owned()),
    );
    if let Some(found) = version("memory") {
        let number = if found == Version::One { 1 } else { 2 };
        say!("  control groups of version {number}");
    }
    say!("\nDatabases");
    for kind in DatabaseKind::ALL {
        let found = database::find(kind, None)
            .and_then(|installation| Ok((installation.version()?, installation)));
        match found {
            Ok((version, installation)) if installation.is_embedded() => {
                line(&format!("{}: {version}, built in", kind.name()), None);
            }
            Ok((version, _)) => line(&format!("{}: {version}", kind.name()), None),
            Err(error) => line(kind.name(), Some(format!("{error:#}"))),
        }
    }
    say!(
        "  any other by `directory` in [database]; docs/lab/README.md says where PostgreSQL 18 is to be had"
    );
    say!("\nWorkloads");
    line("block, validate", lacking("fio"));
    line("all others", None);
    Ok(ExitCode::SUCCESS)
}

/// What each family of contenders needs in a guest: programs of the host's, modules of its kernel.
const IN_A_GUEST: [(&str, &[&str], &[&str]); 4] = [
    ("lvm-*", &["lvcreate"], &["dm-mod", "dm-mirror", "dm-raid"]),
    ("md-*", &["mdadm"], &["raid0", "raid1", "raid10"]),
    (
        "nfs*",
        &["ganesha.nfsd", "mount.nfs", "rpcbind", "ip"],
        &["nfsv3", "nfsv4"],
    ),
    ("spindle-*", &["spindle"], &["fuse"]),
];

/// A guest is started: files that are there do not tell whether this processor bears their kernel.
fn tell_guest() {
    let kernel = Kernel::configured();
    let greeted = match guest::lacks() {
        Some(reason) => Err(reason),
        None => guest::greet(&kernel).map_err(|error| {
            let said = format!("{error:#}");
            format!("{kernel}: {}", said.lines().next().unwrap_or_default())
        }),
    };
    match &greeted {
        Ok(greeting) => line(
            &format!("user-mode Linux {} ({kernel})", greeting.release),
            None,
        ),
        Err(reason) => line("user-mode Linux", Some(reason.clone())),
    }
    for (contenders, programs, modules) in IN_A_GUEST {
        let lacks = programs
            .iter()
            .find_map(|program| match *program {
                "spindle" => contender::spindle_program()
                    .is_none()
                    .then(|| "the program `spindle` is not there".to_owned()),
                program => lacking(program),
            })
            .or_else(|| {
                let Ok(greeting) = &greeted else {
                    return Some("there is no guest".to_owned());
                };
                let module = modules
                    .iter()
                    .find(|module| greeting.lacking_modules.iter().any(|it| it == *module))?;
                Some(format!("the guest's kernel cannot load {module}"))
            });
        line(&format!("{contenders} in it"), lacks);
    }
}

fn line(name: &str, lacks: Option<String>) {
    match lacks {
        None => say!("  yes  {name}"),
        Some(reason) => say!("  no   {name}: {reason}"),
    }
}
