//! Arguments of `spindle scrub`.

use std::ffi::OsString;

use clap::Args;

use super::Output;
use super::values::parse_power;

/// What to scrub, and how.
#[derive(Debug, Args)]
pub struct ScrubArguments {
    /// A group, or a file or directory of it
    #[arg(value_name = "GROUP|GROUP:/path")]
    pub target: OsString,
    /// Only extents that have a copy on this disk; can be given several times
    #[arg(long, value_name = "NAME")]
    pub disk: Vec<String>,
    /// Mend what is proven: in place, else elsewhere on the disk, else the disk goes offline
    #[arg(long)]
    pub repair: bool,
    /// Your word that this disk is the wrong one: where its copies differ from another and nothing
    /// is proven, they lose. Without --repair it only tells what would be written
    #[arg(long, value_name = "NAME")]
    pub distrust: Option<String>,
    /// Do not ask before --distrust --repair writes
    #[arg(long, requires = "distrust")]
    pub yes: bool,
    /// From 0, which waits, to 1024; of a scrub that runs it is changed. Usually 1
    #[arg(long, value_name = "0..1024", value_parser = parse_power)]
    pub power: Option<u16>,
    /// Return when it has ended; exit code 1 where something is not as it should be
    #[arg(long, conflicts_with_all = ["stop", "status"])]
    pub wait: bool,
    /// End the scrub that runs
    #[arg(long, conflicts_with_all = ["repair", "power", "disk", "distrust", "status"])]
    pub stop: bool,
    /// Only show the scrub that runs, or the last one
    #[arg(long, conflicts_with_all = ["repair", "power", "disk", "distrust"])]
    pub status: bool,
    #[command(flatten)]
    pub output: Output,
}
