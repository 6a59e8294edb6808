//! What can be typed after `spindle disk` and `spindle failgroup`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use spindle_control::FileDisk;

use super::Output;
use super::values::parse_size;

/// Whether to tell only.
#[derive(Debug, Clone, Copy, Args)]
pub struct Preview {
    /// Tell what would be moved, how long it takes and what is free then; nothing is changed
    #[arg(long)]
    pub dry_run: bool,
}

/// `spindle disk`.
#[derive(Debug, Subcommand)]
pub enum DiskCommand {
    /// List every disk of the search path with what stands on it; never writes
    #[command(after_help = "\
Examples:
  spindle disk scan
  spindle disk scan --disks '/dev/sd?' --disks '/srv/disks/*'

Status: candidate (free), member, former (was a member: free), foreign (somebody else's),
conflict (a copy of another disk found here), unusable (unreadable or damaged).")]
    Scan {
        #[command(flatten)]
        output: Output,
    },
    /// Add disks to a group, and drop others in the same go
    #[command(after_help = "\
Examples:
  spindle disk add data --disk /dev/sdf                     a failure group of its own
  spindle disk add data --failgroup left=/dev/sdf,/dev/sdg
  spindle disk add data --file-disk e.disk:10G
  spindle disk add data --disk /dev/sdf --partition         other tools see that it is taken
  spindle disk add data --disk /dev/nvme0n1 --disk /dev/nvme1n1 --drop DATA_0000 --drop DATA_0001

The group uses the disks at once, mounted or not, and moves data to them while databases run.
What is added and dropped in one command is one change and wants one rebalance. Nothing is
written to a disk that holds something unless --force is given.")]
    Add(AddArguments),
    /// Empty disks and let them go; the group forgets each when nothing lies on it any more
    #[command(after_help = "\
Examples:
  spindle disk drop data DATA_0003
  spindle disk drop data DATA_0003 --force      it is dead: restore what it held from the copies

Refused where the disks that remain could not hold the data or its redundancy. While a disk is
being emptied, `spindle disk undrop` keeps it after all.")]
    Drop {
        /// The group
        group: String,
        /// Names of disks, as `spindle group show` lists them
        #[arg(required = true, value_name = "DISK")]
        names: Vec<String>,
        /// Give up disks that are offline: nothing is read from them any more
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        preview: Preview,
        #[command(flatten)]
        output: Output,
    },
    /// Keep disks that are being dropped
    Undrop {
        /// The group
        group: String,
        /// Names of disks
        #[arg(required = true, value_name = "DISK")]
        names: Vec<String>,
        #[command(flatten)]
        preview: Preview,
        #[command(flatten)]
        output: Output,
    },
    /// Put a new disk in the place of one that works, fails or is dead
    #[command(after_help = "\
Examples:
  spindle disk replace data DATA_0003 --with /dev/sdh
  spindle disk replace data DATA_0003 --with e.disk:10G     a plain file to be made

The new disk joins the failure group of the old one and is at least as large. What the old one
holds is moved, or copied from the other copies where it is offline; then the group forgets it.")]
    Replace {
        /// The group
        group: String,
        /// The name of the disk that goes
        disk: String,
        /// The disk that comes; PATH:SIZE makes a plain file
        #[arg(long, value_name = "PATH")]
        with: OsString,
        /// Its name; else the group's name and a number
        #[arg(long)]
        name: Option<String>,
        /// Use it although something stands on it: that is lost
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        preview: Preview,
        #[command(flatten)]
        output: Output,
    },
    /// Use more of disks that have grown, or less of them
    #[command(after_help = "\
Examples:
  spindle disk resize data DATA_0003               all that the device has now
  spindle disk resize data DATA_0003 --size 200G

What lies behind a smaller end is moved away first; cut the device only when the label that
`spindle dump --disk PATH` shows has the new size. Refused where the group could not hold its
data then.")]
    Resize {
        /// The group
        group: String,
        /// Names of disks
        #[arg(required = true, value_name = "DISK")]
        names: Vec<String>,
        /// What to use of each; all that it has where not given
        #[arg(long, value_parser = parse_size, value_name = "SIZE")]
        size: Option<u64>,
        #[command(flatten)]
        preview: Preview,
        #[command(flatten)]
        output: Output,
    },
    /// Give a disk another name
    Rename {
        /// The group
        group: String,
        /// Its name
        disk: String,
        /// Its new name
        name: String,
        #[command(flatten)]
        output: Output,
    },
    /// Take disks offline, to work on them; what is written meanwhile is remembered
    #[command(after_help = "\
Example:
  spindle disk offline data DATA_0003

Refused where anything would lose its last good copy. `spindle disk online` brings it back.")]
    Offline {
        /// The group
        group: String,
        /// Names of disks
        #[arg(required = true, value_name = "DISK")]
        names: Vec<String>,
        #[command(flatten)]
        preview: Preview,
        #[command(flatten)]
        output: Output,
    },
    /// Bring disks back that are offline: they get what they missed, and no more
    #[command(after_help = "\
Examples:
  spindle disk online data DATA_0003
  spindle disk online data --all

A disk that went by itself comes back by itself when it answers again, three times an hour at
most. One that was dropped, set back, or used without the others does not come back.")]
    Online {
        /// The group
        group: String,
        /// Names of disks
        #[arg(required_unless_present = "all", value_name = "DISK")]
        names: Vec<String>,
        /// Every disk that is offline and can be found
        #[arg(long, conflicts_with = "names")]
        all: bool,
        #[command(flatten)]
        preview: Preview,
        #[command(flatten)]
        output: Output,
    },
}

/// `spindle disk add`.
#[derive(Debug, Args)]
pub struct AddArguments {
    /// The group
    pub group: String,
    /// A disk that is a failure group of its own: a block device or a plain file
    #[arg(long = "disk", value_name = "PATH")]
    pub disk: Vec<PathBuf>,
    /// A plain file to be made and used as a disk, such as a.disk:10G
    #[arg(long = "file-disk", value_name = "PATH:SIZE")]
    pub file_disk: Vec<FileDisk>,
    /// Disks of a failure group, new or there already; PATH:SIZE makes a file disk
    #[arg(long = "failgroup", value_name = "NAME=PATH,PATH")]
    pub failure_groups: Vec<OsString>,
    /// Make a partition that fills each disk, of a type of our own, and use that: other tools and
    /// installers see that it is taken. Wants whole block devices
    #[arg(long)]
    pub partition: bool,
    /// The name of the disk, where one is added; else the group's name and a number
    #[arg(long)]
    pub name: Option<String>,
    /// Drop this disk in the same go
    #[arg(long, value_name = "DISK")]
    pub drop: Vec<String>,
    /// Give up disks of --drop that are offline
    #[arg(long, requires = "drop")]
    pub force_drop: bool,
    /// Use new disks although something stands on them: it is lost
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub preview: Preview,
    #[command(flatten)]
    pub output: Output,
}

/// `spindle failgroup`.
#[derive(Debug, Subcommand)]
pub enum FailureGroupCommand {
    /// Empty all disks of failure groups and let them go
    #[command(after_help = "\
Example:
  spindle failgroup drop data old_shelf")]
    Drop {
        /// The group
        group: String,
        /// Names of failure groups
        #[arg(required = true, value_name = "FAILGROUP")]
        names: Vec<String>,
        /// Give up disks that are offline: nothing is read from them any more
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        preview: Preview,
        #[command(flatten)]
        output: Output,
    },
    /// Keep the disks of failure groups that are being dropped
    Undrop {
        /// The group
        group: String,
        /// Names of failure groups
        #[arg(required = true, value_name = "FAILGROUP")]
        names: Vec<String>,
        #[command(flatten)]
        preview: Preview,
        #[command(flatten)]
        output: Output,
    },
    /// Use more of all disks of failure groups, or less of them
    Resize {
        /// The group
        group: String,
        /// Names of failure groups
        #[arg(required = true, value_name = "FAILGROUP")]
        names: Vec<String>,
        /// What to use of each disk; all that it has where not given
        #[arg(long, value_parser = parse_size, value_name = "SIZE")]
        size: Option<u64>,
        #[command(flatten)]
        preview: Preview,
        #[command(flatten)]
        output: Output,
    },
    /// Take all disks of failure groups offline, to work on them
    #[command(after_help = "\
Example:
  spindle failgroup offline data shelf_b")]
    Offline {
        /// The group
        group: String,
        /// Names of failure groups
        #[arg(required = true, value_name = "FAILGROUP")]
        names: Vec<String>,
        #[command(flatten)]
        preview: Preview,
        #[command(flatten)]
        output: Output,
    },
    /// Bring back the disks of failure groups that are offline
    Online {
        /// The group
        group: String,
        /// Names of failure groups
        #[arg(required = true, value_name = "FAILGROUP")]
        names: Vec<String>,
        #[command(flatten)]
        preview: Preview,
        #[command(flatten)]
        output: Output,
    },
}
