//! What can be typed after `spindle file`.

use std::ffi::OsString;

use clap::Subcommand;
use spindle_base::Redundancy;

use super::{Output, parse_redundancy};

/// `spindle file`.
#[derive(Debug, Subcommand)]
pub enum FileCommand {
    /// Give a file another number of copies; or a directory, for what is made below it
    #[command(after_help = "\
Examples:
  spindle file set data:/pg/base/5/16384 --redundancy high
  spindle file set data:/pg/pg_wal --redundancy high --recursive
  spindle file set data:/scratch --redundancy external     what is made there from now on

Copies are made or given back while the file is read and written; `spindle operations` shows how
far that is, and `spindle rebalance --power` how fast. Refused where failure groups or room are
missing.")]
    Set {
        /// A file or a directory
        #[arg(value_name = "GROUP:/path")]
        path: OsString,
        /// Copies of each extent: external (1), normal (2) or high (3)
        #[arg(long, value_parser = parse_redundancy, value_name = "external|normal|high")]
        redundancy: Redundancy,
        /// Of a directory: everything that is there below it too
        #[arg(short, long)]
        recursive: bool,
        #[command(flatten)]
        output: Output,
    },
}
