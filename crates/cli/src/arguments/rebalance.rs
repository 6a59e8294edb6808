//! Arguments of `spindle rebalance` and `spindle operations`.

use clap::Args;

use super::Output;
use super::values::parse_power;

/// What to rebalance, and how.
#[derive(Debug, Args)]
pub struct RebalanceArguments {
    /// A group, open where it is not only --estimate
    pub group: String,
    /// From 0, which pauses it, to 1024; of a rebalance that runs it is changed
    #[arg(long, value_name = "0..1024", value_parser = parse_power)]
    pub power: Option<u16>,
    /// The power is the group's own from now on: what a rebalance has that is given no other
    #[arg(long, requires = "power")]
    pub default: bool,
    /// Return when nothing is left to do; exit code 1 where something cannot be done
    #[arg(long)]
    pub wait: bool,
    /// Tell what would be moved, how long it takes and what is free then; nothing is changed, and
    /// the group need not be open
    #[arg(long, conflicts_with_all = ["power", "default", "wait"])]
    pub estimate: bool,
    #[command(flatten)]
    pub output: Output,
}

/// Which operations to show.
#[derive(Debug, Args)]
pub struct OperationsArguments {
    /// A group that is open; all of them where none is named
    pub group: Option<String>,
    /// Show them again and again until nothing is left to do
    #[arg(long)]
    pub watch: bool,
    #[command(flatten)]
    pub output: Output,
}
