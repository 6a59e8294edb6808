//! `spindle status`.

use clap::Args;

use super::Output;
use super::values::parse_page_seconds;

/// `spindle status`.
#[derive(Debug, Args)]
pub struct StatusArguments {
    /// Only this group; every group that is open or on the search path where none is named
    pub group: Option<String>,
    /// Refresh it in place, until q or Ctrl-C
    #[arg(short, long, conflicts_with = "json")]
    pub watch: bool,
    /// Seconds between two refreshes
    #[arg(
        short,
        long,
        default_value_t = 2.0,
        value_name = "SECONDS",
        value_parser = parse_page_seconds,
        requires = "watch"
    )]
    pub interval: f64,
    #[command(flatten)]
    pub output: Output,
}
