//! LVM and md as programs, also where no udev daemon makes the nodes of devices: in a guest, in a
//! container.
//!
//! Neither is to keep anything on this machine beside the devices that it is given: no list of
//! devices (nor hints where volumes were, which the next disks under these names would not have),
//! no archive of metadata, no monitor that outlives the volume.

use std::path::Path;
use std::process::Command;

use super::program::command;

const ALWAYS: &str = "devices{use_devicesfile=0 hints=\"none\"} backup{backup=0 archive=0} \
    activation{monitoring=0} global{event_activation=0}";

/// Without the daemon LVM would wait for nodes that nobody makes.
const WITHOUT_DAEMON: &str = "devices{use_devicesfile=0 hints=\"none\" obtain_device_list_from_udev=0 \
    external_device_info_source=\"none\"} backup{backup=0 archive=0} \
    activation{monitoring=0 udev_sync=0 udev_rules=0} global{event_activation=0}";

/// Whether a daemon makes device nodes here.
#[must_use]
pub fn has_udev() -> bool {
    Path::new("/run/udev/control").exists()
}

/// A program of LVM's.
#[must_use]
pub fn lvm(program: &str) -> Command {
    let mut command = command(program);
    command.arg("--config");
    command.arg(if has_udev() { ALWAYS } else { WITHOUT_DAEMON });
    command
}

/// md's program.
#[must_use]
pub fn mdadm() -> Command {
    let mut command = command("mdadm");
    if !has_udev() {
        command.env("MDADM_NO_UDEV", "1");
    }
    command
}
