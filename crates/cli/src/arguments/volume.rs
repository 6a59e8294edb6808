//! What can be typed after `spindle volume`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Subcommand;

use super::Output;
use super::values::parse_size;

/// `spindle volume`.
#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// Make a volume: a file that is used as a block device
    #[command(after_help = "\
Examples:
  spindle volume create data:/vm/web --size 20G
  spindle volume create data:/vm/db --size 200G --reserve

It reads as zeros and takes space as it is written, unless --reserve takes all of it at once. It is
a file like any other of the group: `spindle file set` gives it another redundancy, `spindle map`
shows where it lies. A file that is there becomes a volume on a mount, with
`setfattr -n user.spindle.volume -v 1 FILE`.")]
    Create {
        /// Where it is to be
        #[arg(value_name = "GROUP:/path")]
        path: OsString,
        /// Its size, such as 20G, in whole blocks of 4K
        #[arg(long, value_parser = parse_size, value_name = "SIZE")]
        size: u64,
        /// Take all of its space at once, so that no write finds the group full
        #[arg(long)]
        reserve: bool,
        #[command(flatten)]
        output: Output,
    },
    /// List the volumes of a group, or those below a directory of it
    List {
        /// A group or a directory of it
        #[arg(value_name = "GROUP|GROUP:/path")]
        target: OsString,
        #[command(flatten)]
        output: Output,
    },
    /// Give a volume another size; one that is exported can grow
    #[command(after_help = "\
Examples:
  spindle volume resize data:/vm/web --size 40G
  spindle volume resize data:/vm/web --size 10G --shrink     what lies beyond is lost

The protocol cannot tell a client that is connected: it sees the size when it connects again.")]
    Resize {
        /// The volume
        #[arg(value_name = "GROUP:/path")]
        path: OsString,
        /// Its new size, in whole blocks of 4K
        #[arg(long, value_parser = parse_size, value_name = "SIZE")]
        size: u64,
        /// Let it become smaller: what lies beyond is lost
        #[arg(long)]
        shrink: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Remove a volume that is not exported; what it holds is lost
    Drop {
        /// The volume
        #[arg(value_name = "GROUP:/path")]
        path: OsString,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Export a volume of an open group by the network block device protocol (NBD)
    #[command(after_help = "\
Examples:
  spindle volume export data:/vm/web --socket /run/spindle/web.nbd
  spindle volume export data:/vm/web --socket /run/spindle/web.nbd --read-only

Clients:
  nbdinfo 'nbd+unix:///?socket=/run/spindle/web.nbd'
  nbdcopy disk.img 'nbd+unix:///?socket=/run/spindle/web.nbd'
  qemu-system-x86_64 -drive file='nbd+unix:///?socket=/run/spindle/web.nbd',format=raw
  nbd-client -unix /run/spindle/web.nbd /dev/nbd0

Who may open the socket reads and writes the volume: it belongs to the user of the process that
serves the group, and to nobody else until you say so (chown). Where a keeper starts the next
process, that exports the same again.")]
    Export {
        /// The volume
        #[arg(value_name = "GROUP:/path")]
        path: OsString,
        /// Where the Unix socket is to be
        #[arg(long, value_name = "PATH")]
        socket: PathBuf,
        /// Refuse writes
        #[arg(long)]
        read_only: bool,
        #[command(flatten)]
        output: Output,
    },
    /// List the volumes of an open group that are exported
    Exports {
        /// The group
        group: String,
        #[command(flatten)]
        output: Output,
    },
    /// End an export; refused while clients are connected
    Unexport {
        /// The volume
        #[arg(value_name = "GROUP:/path")]
        path: OsString,
        /// Cut clients off that are connected
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        output: Output,
    },
}
