//! Arguments of `spindle clear`.

use clap::Args;

use super::Output;

/// Which findings to acknowledge.
#[derive(Debug, Args)]
pub struct ClearArguments {
    /// The group; with --all every group that is open or on the search path where none is named
    #[arg(required_unless_present = "all")]
    pub group: Option<String>,
    /// Findings as `spindle health` names them: damage, or disk_slow:data_0001 of one disk
    #[arg(value_name = "FINDING", conflicts_with = "all")]
    pub findings: Vec<String>,
    /// Everything that is over; what still holds is left and listed
    #[arg(long)]
    pub all: bool,
    /// Only tell what would be acknowledged
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub output: Output,
}
