//! The proofs: power cuts under PostgreSQL (`cuts`), disks that change under PostgreSQL and
//! MariaDB (`scenario`), and every figure beside that of a rival (`bench`).
//!
//! All of them use unchanged servers on a real mount. What fails says how to repeat it; what could
//! not be measured fails, and is never a zero.

mod bench;
mod cuts;
mod scenario;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use spindle_testbed::interrupt;

/// Proofs that Spindle keeps its promises, and how fast it is.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    proof: Proof,
}

#[derive(Debug, Subcommand)]
enum Proof {
    /// Records a mount under PostgreSQL, cuts the power at many points, and recovers each.
    Cuts(cuts::Arguments),
    /// Adds, drops, fails, returns, replaces, kills and damages under two databases.
    Scenario(scenario::Arguments),
    /// Measures Spindle beside its rivals; targets and what was reached as a table and as JSON.
    Bench(bench::Arguments),
}

fn main() -> ExitCode {
    let result = interrupt::listen().and_then(|()| match Arguments::parse().proof {
        Proof::Cuts(arguments) => cuts::run(&arguments),
        Proof::Scenario(arguments) => scenario::run(&arguments),
        Proof::Bench(arguments) => bench::run(&arguments),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("proof: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Where disks that must be fast and small are made: memory, where this machine offers it.
fn memory_directory() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() {
        memory
    } else {
        std::env::temp_dir()
    }
}
