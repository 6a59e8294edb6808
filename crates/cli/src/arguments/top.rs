//! `spindle top`.

use clap::{Args, ValueEnum};

use super::Output;
use super::values::{parse_count, parse_seconds};

/// `spindle top`.
#[derive(Debug, Args)]
pub struct TopArguments {
    /// The group; the only one that is open where none is named
    pub group: Option<String>,
    /// Seconds between two refreshes
    #[arg(short, long, default_value_t = 1.0, value_name = "SECONDS", value_parser = parse_seconds)]
    pub interval: f64,
    /// Stop after so many refreshes; they follow one another then, also on a terminal
    #[arg(short, long, value_parser = parse_count::<u64>)]
    pub count: Option<u64>,
    /// Show what happens in one interval, and end
    #[arg(long, conflicts_with = "count")]
    pub once: bool,
    /// What comes first
    #[arg(short, long, value_enum, default_value_t = TopOrder::Bytes)]
    pub sort: TopOrder,
    #[command(flatten)]
    pub output: Output,
}

/// Which disks and files come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TopOrder {
    /// Those that moved the most bytes
    Bytes,
    /// Those with the most requests
    Requests,
    /// Those whose requests took the longest
    Latency,
}

impl TopOrder {
    /// As it is typed.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Requests => "requests",
            Self::Latency => "latency",
        }
    }

    /// The one that comes after it, round and round.
    pub const fn next(self) -> Self {
        match self {
            Self::Bytes => Self::Requests,
            Self::Requests => Self::Latency,
            Self::Latency => Self::Bytes,
        }
    }
}
