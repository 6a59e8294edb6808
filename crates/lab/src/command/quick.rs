//! `quick`: the two-minute answer on loop devices, with nothing to decide.
//!
//! The database is PostgreSQL or MariaDB where one of them is installed, else SQLite. The runs are
//! short, so that the answer says what differs much, and says so of itself.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;

use super::init::{installed_database, possible_contenders};
use super::run::run_text;
use crate::experiment::DatabaseKind;

/// What `quick` takes.
#[derive(Debug, clap::Args)]
pub struct QuickArguments {
    /// The folder of the results; a new one where it is not given
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Even shorter runs: to see whether all of it works
    #[arg(long)]
    smoke: bool,
}

pub(super) fn run(arguments: &QuickArguments) -> Result<ExitCode> {
    let contenders: Vec<String> = possible_contenders()
        .into_iter()
        .filter(|name| !name.starts_with("btrfs"))
        .collect();
    let text = text(&contenders, installed_database(), arguments.smoke);
    let folder = match &arguments.output {
        Some(folder) => folder.clone(),
        None => {
            let second = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
            PathBuf::from(format!("spindle-lab-quick-{second}"))
        }
    };
    run_text(&text, Path::new("quick"), &folder, &[], false)
}

fn text(contenders: &[String], kind: DatabaseKind, smoke: bool) -> String {
    let (warm_up, duration) = if smoke {
        ("300 ms", "1 s")
    } else {
        ("1 s", "3 s")
    };
    format!(
        "name = \"quick\"\ncontenders = {contenders:?}\nblocks = 5\n\
         warm_up = \"{warm_up}\"\nduration = \"{duration}\"\n\n\
         [devices]\nkind = \"loop\"\ncount = 4\nsize = \"384 MiB\"\n\n\
         [database]\nkind = \"{}\"\nmemory = \"512 MiB\"\n\n\
         [[workload]]\nkind = \"tpcb\"\nsize = \"60 MiB\"\nusers = 4\n",
        kind.name()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;

    #[test]
    fn the_quick_experiment_is_one_that_the_reader_takes() {
        let contenders = ["ext4".to_owned(), "xfs".to_owned()];
        for kind in DatabaseKind::ALL {
            let experiment = Experiment::parse(&text(&contenders, kind, true)).unwrap();
            assert_eq!(experiment.database.kind, kind);
        }
    }
}
