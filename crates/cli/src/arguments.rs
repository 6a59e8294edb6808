//! What can be typed, and what `--help` teaches about it.

mod check;
mod clear;
mod console;
mod disk;
mod file;
#[cfg(test)]
mod pages;
mod rebalance;
mod scrub;
mod status;
mod top;
mod values;
mod volume;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use spindle_base::{AuSize, Redundancy};
use spindle_control::FileDisk;

use values::{parse_count, parse_seconds, parse_socket};

pub use disk::{AddArguments, DiskCommand, FailureGroupCommand, Preview};

const EXIT_CODES: &str = "\
Exit codes:
  0   done
  1   `group check` found contradictions, `scrub` what it did not mend, or `rebalance --wait`
      cannot end (`health` has exit codes of its own)
  2   the caller's mistake: a wrong name, a disk in use, no room, too few failure groups
  3   the machine refused: a disk failed, no FUSE, no permission
  4   bytes on a disk are not what they must be
  70  a bug in Spindle: please report it with the log

A first group:
  spindle group create data --redundancy normal \\
      --failgroup left=/dev/sdb,/dev/sdc --failgroup right=/dev/sdd,/dev/sde
  spindle mount data /srv/data
  spindle group show data
  spindle umount /srv/data

Where disks are looked for: --disks, else SPINDLE_DISKS, else `disks = [\"GLOB\", ...]` in
./spindle.toml or /etc/spindle/spindle.toml, else every block device of the machine.
The process that serves a group has its socket and log in SPINDLE_RUNTIME_DIR, else
/run/spindle (root) or $XDG_RUNTIME_DIR/spindle. SPINDLE_ENGINE=plain uses plain system calls
where io_uring is not wanted.";

/// Automatic storage management for databases: disk groups that stripe and mirror every file.
#[derive(Debug, Parser)]
#[command(name = "spindle", version, after_help = EXIT_CODES, max_term_width = 100)]
#[command(arg_required_else_help = true, infer_subcommands = false)]
pub struct Arguments {
    /// Globs of disks, instead of the search path; may be given several times
    #[arg(long, global = true, value_name = "GLOB", value_delimiter = ',')]
    pub disks: Vec<String>,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

impl Arguments {
    /// Whether this process is to serve a group itself.
    pub const fn serves(&self) -> bool {
        match &self.command {
            Command::Mount(mount) => mount.serve.serves(),
            Command::Group(GroupCommand::Mount { serve, .. }) => serve.serves(),
            _ => false,
        }
    }
}

pub use check::CheckArguments;
pub use clear::ClearArguments;
pub use console::ConsoleArguments;
pub use file::FileCommand;
pub use rebalance::{OperationsArguments, RebalanceArguments};
pub use scrub::ScrubArguments;
pub use status::StatusArguments;
pub use top::{TopArguments, TopOrder};
pub use volume::VolumeCommand;

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Look at disks, and add, drop, replace, resize and rename the disks of a group
    #[command(subcommand)]
    Disk(DiskCommand),
    /// Do the same to all disks of a failure group
    #[command(subcommand)]
    Failgroup(FailureGroupCommand),
    /// Make, list, open, close, examine, rename and destroy disk groups
    #[command(subcommand)]
    Group(GroupCommand),
    /// Mount the files of a group on an empty directory
    #[command(after_help = "\
Examples:
  spindle mount data /srv/data
  spindle mount data /srv/data --direct        every read and write goes to the disks
  spindle mount data /srv/data --foreground    stay, log to the terminal, stop with Ctrl-C")]
    Mount(MountArguments),
    /// Unmount a directory, or everything of a group; waits until all is closed cleanly
    #[command(after_help = "\
Examples:
  spindle umount /srv/data
  spindle umount data")]
    Umount {
        /// A mount point, or the name of a group
        #[arg(value_name = "DIR|GROUP")]
        target: OsString,
        #[command(flatten)]
        output: Output,
    },
    /// Make durable what programs have written to a group until now
    #[command(after_help = "\
Examples:
  spindle sync data

Linux does not tell a FUSE file system of sync(1): what that wrote is durable about half a second
later. This command ends when it is durable; fsync(2) does so for one file.")]
    Sync {
        /// The group
        group: String,
        #[command(flatten)]
        output: Output,
    },
    /// Hand a mounted group over to another version of this program, while databases run
    #[command(after_help = "\
Examples:
  spindle upgrade data                          to the program that this command is
  spindle upgrade data --binary /opt/spindle/spindle

Programs that use the mount wait for a moment and notice nothing else. A program that does not
read what the running one writes is refused, and one that cannot serve is left: the running one
goes on then.")]
    Upgrade {
        /// The group
        group: String,
        /// The program that is to serve from now on
        #[arg(long, value_name = "PATH")]
        binary: Option<PathBuf>,
        #[command(flatten)]
        output: Output,
    },
    /// Print what udev is to know of a device; for the rule that the packages bring
    #[command(hide = true)]
    Udev {
        /// The device
        device: PathBuf,
    },
    /// Print what this program reads and writes, by number
    #[command(hide = true)]
    Formats,
    /// Send the notices of a mount that another process serves, which starts this one
    #[command(hide = true)]
    Notices {
        /// Standard input leads to that process
        #[arg(long, required = true)]
        of_mount: bool,
    },
    /// List a directory of a group, mounted or not
    #[command(after_help = "\
Examples:
  spindle ls data:/
  spindle ls -l data:/base data:/pg_wal")]
    Ls {
        /// Directories or files
        #[arg(value_name = "GROUP:/path", required = true)]
        paths: Vec<OsString>,
        /// Permissions, owner, layout, size and time of each entry
        #[arg(short, long)]
        long: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Show everything about an entry of a group
    Stat {
        /// A file, directory or other entry
        #[arg(value_name = "GROUP:/path")]
        path: OsString,
        #[command(flatten)]
        output: Output,
    },
    /// Show which extents of a file lie where
    #[command(after_help = "\
Examples:
  spindle map data:/base/5/16384
  spindle map --summary data:/base/5/16384     only the sums by disk")]
    Map {
        /// A regular file
        #[arg(value_name = "GROUP:/path")]
        path: OsString,
        /// Only the sums by disk
        #[arg(short, long)]
        summary: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Add up the space that directories take
    Du {
        /// A directory
        #[arg(value_name = "GROUP:/path")]
        path: OsString,
        /// Levels of directories to tell apart
        #[arg(short, long, default_value_t = 1, value_parser = parse_count::<usize>)]
        depth: usize,
        #[command(flatten)]
        output: Output,
    },
    /// Copy files into a group, out of it, or between groups, without a mount
    #[command(after_help = "\
Examples:
  spindle cp backup.tar data:/                 into a group
  spindle cp -a data:/pgdata /srv/copy         out of it, with owners and times
  spindle cp -r data:/pgdata flash:/           from group to group

A file becomes visible under its name when all of it is there. A local path that looks like
GROUP:/path is written with ./ before it.")]
    #[command(override_usage = "spindle cp [OPTIONS] SOURCE... DESTINATION")]
    Cp(CopyArguments),
    /// Rates, bytes and latencies of every disk and of the busy files
    #[command(after_help = "\
Examples:
  spindle iostat data
  spindle iostat data --interval 5 --count 12
  spindle iostat data --count 1 --json")]
    Iostat {
        /// The group; it must be open
        group: String,
        /// Seconds between two refreshes
        #[arg(short, long, default_value_t = 1.0, value_name = "SECONDS", value_parser = parse_seconds)]
        interval: f64,
        /// Stop after so many refreshes
        #[arg(short, long, value_parser = parse_count::<u64>)]
        count: Option<u64>,
        /// Files shown at most
        #[arg(short, long, default_value_t = 10, value_parser = parse_count::<usize>)]
        files: usize,
        #[command(flatten)]
        output: Output,
    },
    /// One screen with a group's health, operations, disks, busy files and last events
    #[command(after_help = "\
Examples:
  spindle top                                  of the only group that is open
  spindle top data --sort latency
  spindle top data --once                      one screen, also into a file
  spindle top data --once --json

On a terminal it is refreshed in place: q ends it, s sorts otherwise. Disks that are offline or
slow come first. r/s and w/s are requests a second, rB/s and wB/s bytes a second, r_ms and w_ms
their mean times in milliseconds. `spindle iostat` has the same figures alone.")]
    Top(TopArguments),
    /// One page for each group: its health, space, background work, users and last events
    #[command(after_help = "\
Examples:
  spindle status
  spindle status data
  spindle status data --watch                  refreshed in place; q ends it
  spindle status data --json

Below the space stands what is wrong and what to do, then when the group will be full at the rate of
the last days, who serves and who uses it, what runs in the background and how long it takes, the
last scrubs, and the last events. Times are those of this machine's zone, or of TZ. Groups that are
closed are shown as their disks tell.")]
    Status(StatusArguments),
    /// The same in a browser on this machine, live, and with --operate changes of the disks
    #[command(after_help = "\
Examples:
  spindle console                              of the only group that is open, to look
  spindle console data --operate               a second address may change disks
  spindle console data --listen 127.0.0.1:7080
  ssh -L 7080:127.0.0.1:7080 HOST              from elsewhere; then open the address here

It listens on the loopback interface only. A change is made after its dry run was shown, and the
event log says who asked for it.")]
    Console(ConsoleArguments),
    /// Show labels, group states and the catalog of disks; never writes
    #[command(after_help = "\
Examples:
  spindle dump data
  spindle dump --disk /dev/sdb --disk /dev/sdc
  spindle dump data --rows 100 --json")]
    Dump {
        /// The group whose disks are looked at
        #[arg(required_unless_present = "disk")]
        group: Option<String>,
        /// Look at these disks only, whatever stands on them
        #[arg(long, value_name = "PATH")]
        disk: Vec<PathBuf>,
        /// Rows of each table of the catalog shown at most
        #[arg(long, default_value_t = 20, value_parser = parse_count::<usize>)]
        rows: usize,
        #[command(flatten)]
        output: Output,
    },
    /// Change how files are kept, while they are used
    #[command(subcommand)]
    File(FileCommand),
    /// Make files that serve as block devices, and export them to virtual machines
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// Look at templates and change them: which files get which layout
    #[command(subcommand)]
    Template(TemplateCommand),
    /// Judge groups for monitoring: a line for each finding, with what to do
    #[command(after_help = "\
Exit codes, as plugins of monitoring have them:
  0  ok        1  warning        2  critical        3  unknown: it could not be found out

Examples:
  spindle health
  spindle health data --json")]
    Health {
        /// Only this group
        group: Option<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Acknowledge findings that are over, as `spindle health` tells them, so that they do not count
    #[command(after_help = "\
Examples:
  spindle clear data damage                    once the damaged files are restored
  spindle clear data --all --dry-run
  spindle clear --all                          of every group

The event log of the group keeps who cleared what. What still holds, such as a disk that is offline,
is refused with what ends it; what is found anew is told again.")]
    Clear(ClearArguments),
    /// Show what happened in groups: disks lost, blocks repaired, mounts
    #[command(after_help = "\
Examples:
  spindle events data
  spindle events data --since 2h --severity warning
  spindle events data --kind disk_offline,disk_online --follow

The log lies in the group itself, so it is shown whether the group is open or not.")]
    Events(EventsArguments),
    /// Bring every disk to its fair share; usually it begins by itself when disks change
    #[command(after_help = "\
Examples:
  spindle rebalance data --wait
  spindle rebalance data --power 64            of the rebalance that runs, too
  spindle rebalance data --power 0             pause it
  spindle rebalance data --power 8 --default   the group's own power from now on
  spindle rebalance data --estimate            what it would move, and how long that takes")]
    Rebalance(RebalanceArguments),
    /// Show what background copying runs and waits: resync, restore, rebalance
    #[command(after_help = "\
Examples:
  spindle operations
  spindle operations data --watch")]
    Operations(OperationsArguments),
    /// Read every copy, compare them, and judge pages of databases by their own checksums
    #[command(after_help = "\
Examples:
  spindle scrub data                           begin, and return
  spindle scrub data --repair --power 64 --wait
  spindle scrub data --disk data_0001 --wait
  spindle scrub data:/pg/main/base --repair --wait
  spindle scrub data --status
  spindle scrub data --power 8                 of the scrub that runs
  spindle scrub data --stop

Which copy is right is told by the page checksums of PostgreSQL, InnoDB and SQLite. Where they do
not tell it, nothing is touched.")]
    Scrub(ScrubArguments),
    /// Compare the maps, the space, the records and the names of a group, open or closed; exit
    /// code 1 where they disagree
    #[command(after_help = "\
Examples:
  spindle check data
  spindle check data --repair

Put right is only what loses nothing: counts and rows that repeat what the maps and the names say,
names that lead nowhere, and files without a name, which are found in /lost+found then.")]
    Check(CheckArguments),
    /// For tests: make a disk of an open group answer as if its cable was pulled
    #[command(subcommand)]
    Fault(FaultCommand),
    /// Print the OpenAPI document of the API, with the schema of every --json listing
    Openapi,
    /// Print the completions of a shell
    #[command(after_help = "\
Example:
  spindle completions bash > /etc/bash_completion.d/spindle")]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the man pages into a directory
    #[command(after_help = "\
Example:
  spindle man /usr/local/share/man/man1 && man spindle-group-create")]
    Man {
        /// Where to; the page spindle.1 goes to the standard output without it
        directory: Option<PathBuf>,
    },
}

/// How to print.
#[derive(Debug, Clone, Copy, Args)]
pub struct Output {
    /// JSON with a stable schema (docs/json.md) instead of a table
    #[arg(long)]
    pub json: bool,
}

/// `spindle group`.
#[derive(Debug, Subcommand)]
pub enum GroupCommand {
    /// Make a disk group
    #[command(after_help = "\
Examples:
  spindle group create scratch --redundancy external --disk /dev/sdb --disk /dev/sdc
  spindle group create data --profile postgresql \\
      --failgroup left=/dev/sdb,/dev/sdc --failgroup right=/dev/sdd,/dev/sde
  spindle group create trial --file-disk a.disk:4G --file-disk b.disk:4G

Failure groups are disks that one fault can take away together, such as a shelf or a site. A
disk given by --disk or --file-disk is a failure group of its own. Nothing is written to a disk
that holds something unless --force is given.")]
    Create(CreateArguments),
    /// List the groups found on the search path and those that are open
    List {
        #[command(flatten)]
        output: Output,
    },
    /// Show a group and its disks
    Show {
        /// The group
        group: String,
        #[command(flatten)]
        output: Output,
    },
    /// Open a group and serve it without a mount
    Mount {
        /// The group
        group: String,
        #[command(flatten)]
        serve: ServeArguments,
        #[command(flatten)]
        output: Output,
    },
    /// Unmount everything of a group, close it, and end the process that serves it
    Dismount {
        /// The group
        group: String,
        #[command(flatten)]
        output: Output,
    },
    /// The same as `spindle check`
    Check(CheckArguments),
    /// Show or change the settings of an open group
    #[command(after_help = "\
Examples:
  spindle group set data
  spindle group set data scrub_interval=7d
  spindle group set data scrub_interval=off
  spindle group set data disk_repair_time=3h failgroup_repair_time=1d
  spindle group set data watchdog=5m           kill a daemon that hangs after five minutes")]
    Set {
        /// The group
        group: String,
        /// What to change; nothing to show all
        #[arg(value_name = "NAME=VALUE")]
        changes: Vec<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Give a group another redundancy while it is used, and all files that are kept as the group
    #[command(after_help = "\
Examples:
  spindle group convert data --redundancy high
  spindle group convert data --redundancy normal
  spindle group convert data --redundancy external --dry-run

Files whose template, directory or `spindle file set` says another redundancy keep it; without
redundancy (external) all have one copy. Where there are to be more copies the group has its new
redundancy when all are there; `spindle operations` shows how far that is.")]
    Convert {
        /// The group
        group: String,
        /// Copies of each extent: external (1), normal (2) or high (3)
        #[arg(long, value_parser = parse_redundancy, value_name = "external|normal|high")]
        redundancy: Redundancy,
        /// Report how many files would change and what a lost disk would cost; change nothing
        #[arg(long)]
        dry_run: bool,
        /// Do not ask where copies are given up
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Show which features of later formats a group uses; programs before them refuse it then
    #[command(after_help = "\
Examples:
  spindle group upgrade data --dry-run

A feature is set when it is first used, and by nothing else, so that earlier programs go on with
the group until then. Nothing has to be set by hand, and without --dry-run nothing is.")]
    Upgrade {
        /// The group
        group: String,
        /// Only show what is set and what would set the others
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Destroy a closed group: its disks become former members, its files are lost
    Destroy {
        /// The group
        group: String,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
    /// Give a closed group another name
    Rename {
        /// The group
        group: String,
        /// Its new name
        name: String,
    },
}

/// `spindle group create`.
#[derive(Debug, Args)]
pub struct CreateArguments {
    /// Name of the group: a letter, then letters, digits, _ - $ #, at most 30
    pub name: String,
    /// A disk that is a failure group of its own: a block device or a plain file
    #[arg(long = "disk", value_name = "PATH")]
    pub disk: Vec<PathBuf>,
    /// A plain file to be made and used as a disk, such as a.disk:10G
    #[arg(long = "file-disk", value_name = "PATH:SIZE")]
    pub file_disk: Vec<FileDisk>,
    /// Disks that one fault can take away together; PATH:SIZE makes a file disk
    #[arg(long = "failgroup", value_name = "NAME=PATH,PATH")]
    pub failure_groups: Vec<OsString>,
    /// Make a partition that fills each disk, of a type of our own, and use that: other tools and
    /// installers see that it is taken. Wants whole block devices
    #[arg(long)]
    pub partition: bool,
    /// Copies of each extent: external (1), normal (2) or high (3)
    #[arg(long, default_value = "normal", value_parser = parse_redundancy, value_name = "external|normal|high")]
    pub redundancy: Redundancy,
    /// Allocation unit, fixed for the group's life: 1M, 2M, 4M, 8M, 16M, 32M or 64M
    #[arg(long, default_value_t = AuSize::DEFAULT)]
    pub au_size: AuSize,
    /// Set of templates
    #[arg(long, value_enum, default_value_t = Profile::Plain)]
    pub profile: Profile,
    /// Use disks although something stands on them: it is lost
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub output: Output,
}

/// The sets of templates there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Profile {
    /// Write-ahead log fine and at least normal, temporary files external, the rest coarse
    Postgresql,
    /// Redo log fine, temporary tables external, the rest coarse
    Mariadb,
    /// Journals and write-ahead logs fine, the rest coarse
    Sqlite,
    /// Everything coarse and as the group
    Plain,
}

impl Profile {
    /// As the group stores it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Postgresql => "postgresql",
            Self::Mariadb => "mariadb",
            Self::Sqlite => "sqlite",
            Self::Plain => "plain",
        }
    }
}

fn parse_redundancy(text: &str) -> Result<Redundancy, String> {
    match text {
        "external" => Ok(Redundancy::External),
        "normal" => Ok(Redundancy::Normal),
        "high" => Ok(Redundancy::High),
        _ => Err("choose external, normal or high".to_owned()),
    }
}

/// How to serve a group.
#[derive(Debug, Clone, Args)]
pub struct ServeArguments {
    /// Stay in the foreground and log to the terminal
    #[arg(long)]
    pub foreground: bool,
    /// Record every write and flush of the disks in order, for the replayer
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Give metrics for Prometheus at http://ADDRESS/metrics too; they are always on the socket
    #[arg(long, value_name = "127.0.0.1:PORT", value_parser = parse_socket)]
    pub metrics: Option<std::net::SocketAddr>,
    /// Let --metrics be an address that other machines can reach
    #[arg(long, requires = "metrics")]
    pub metrics_public: bool,
    /// Take the group although another host seems to have it, or although a majority of its
    /// disks cannot be seen: where the other half lives on, the two diverge for ever
    #[arg(long)]
    pub force: bool,
    /// With --foreground: stay as the keeper, which starts the process that serves the group, and
    /// the next one where that dies; without --foreground this is what happens anyway
    #[arg(long, conflicts_with = "no_keeper", conflicts_with = "record")]
    pub keeper: bool,
    /// Without a keeper: the mount dies with the process that serves it
    #[arg(long)]
    pub no_keeper: bool,
    /// The process that the command started to serve the group
    #[arg(long, hide = true)]
    pub daemon: bool,
}

impl ServeArguments {
    /// Whether this process is to serve or keep a group itself.
    pub const fn serves(&self) -> bool {
        self.foreground || self.daemon || self.keeper
    }

    /// Whether this is the process that a person started, and not one that it starts.
    pub const fn is_first(&self) -> bool {
        !self.daemon && (self.foreground || !self.keeper)
    }

    /// Whether a process in the background is to have a keeper.
    pub const fn wants_keeper(&self) -> bool {
        !self.no_keeper && self.record.is_none()
    }
}

/// `spindle mount`.
#[derive(Debug, Args)]
pub struct MountArguments {
    /// The group
    pub group: String,
    /// An empty directory
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Bypass the page cache for every file, not only where a template says so
    #[arg(long)]
    pub direct: bool,
    /// Event loops, 1 to 256; 16 where it is not given: each waits while its disks work
    #[arg(long, value_name = "N")]
    pub workers: Option<usize>,
    #[command(flatten)]
    pub serve: ServeArguments,
    #[command(flatten)]
    pub output: Output,
}

/// `spindle cp`.
#[derive(Debug, Args)]
pub struct CopyArguments {
    /// Sources, then the destination; GROUP:/path is in a group, anything else is local
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    pub paths: Vec<OsString>,
    /// Directories with everything below
    #[arg(short, long)]
    pub recursive: bool,
    /// Owners, times and set-id bits as the source has them; a file whose owner cannot be set
    /// has no set-id bits
    #[arg(short, long)]
    pub preserve: bool,
    /// The same as -r -p
    #[arg(short, long)]
    pub archive: bool,
    /// No progress bar
    #[arg(short, long)]
    pub quiet: bool,
    #[command(flatten)]
    pub output: Output,
}

/// `spindle events`.
#[derive(Debug, Args)]
pub struct EventsArguments {
    /// Only of this group
    pub group: Option<String>,
    /// Wait for more, until Ctrl-C
    #[arg(short, long)]
    pub follow: bool,
    /// Only since then: 90s, 15m, 2h, 7d ago, or a date and time in UTC
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Only what matters at least so much: info, warning or critical
    #[arg(long, default_value = "info", value_name = "SEVERITY")]
    pub severity: String,
    /// Only these kinds, such as disk_offline; may be given several times
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub kind: Vec<String>,
    /// List the kinds that there are, with how much each matters and what it means
    #[arg(long, conflicts_with_all = ["group", "follow", "since", "kind"])]
    pub list_kinds: bool,
    #[command(flatten)]
    pub output: Output,
}

/// `spindle template`.
#[derive(Debug, Subcommand)]
pub enum TemplateCommand {
    /// List the templates of a group
    List {
        /// The group
        group: String,
        #[command(flatten)]
        output: Output,
    },
    /// Give templates another redundancy, for files made from now on
    #[command(after_help = "\
Examples:
  spindle template set data log --redundancy high
  spindle template set data log --redundancy group      as the group has it

Files that are there keep theirs: `spindle file set` changes it.")]
    Set {
        /// The group
        group: String,
        /// The templates' name, as `spindle template list` shows it
        name: String,
        /// Copies of each extent; group: as many as the group has
        #[arg(long, value_parser = parse_template_redundancy, value_name = "external|normal|high|group")]
        redundancy: TemplateRedundancy,
        #[command(flatten)]
        output: Output,
    },
}

/// What a template says of redundancy; `None` for "as the group".
#[derive(Debug, Clone, Copy)]
pub struct TemplateRedundancy(pub Option<Redundancy>);

fn parse_template_redundancy(text: &str) -> Result<TemplateRedundancy, String> {
    if text == "group" {
        return Ok(TemplateRedundancy(None));
    }
    parse_redundancy(text).map(|redundancy| TemplateRedundancy(Some(redundancy)))
}

/// `spindle fault`.
#[derive(Debug, Subcommand)]
pub enum FaultCommand {
    /// From now on every request to the disk fails, as if it was gone
    Pull {
        /// The group; it must be open
        group: String,
        /// The disk's name
        disk: String,
    },
    /// The disk answers again; bringing it back into the group is another matter
    Plug {
        /// The group; it must be open
        group: String,
        /// The disk's name
        disk: String,
    },
}

#[cfg(test)]
mod tests {
    use super::Arguments;
    use clap::CommandFactory;

    #[test]
    fn the_definition_of_the_arguments_is_consistent() {
        Arguments::command().debug_assert();
    }
}
