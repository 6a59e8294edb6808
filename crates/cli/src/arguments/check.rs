//! Arguments of `spindle check`.

use clap::Args;

use super::Output;

/// What to check, and whether to put it right.
#[derive(Debug, Args)]
pub struct CheckArguments {
    /// The group
    pub group: String,
    /// Put right what can be without losing anything
    #[arg(long)]
    pub repair: bool,
    #[command(flatten)]
    pub output: Output,
}
