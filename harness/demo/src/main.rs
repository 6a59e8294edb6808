//! `make demo`: PostgreSQL on a mirrored group, a disk that dies under load, a power cut, the disk
//! that comes back, a new one, a daemon that is killed, and the proof that every acknowledged
//! commit is there.
//!
//! It sees Spindle only through the binary `spindle`. Everything lies in one directory of its
//! own, and is gone at the end, also after an error or Ctrl-C.

mod changes;
mod database;
mod page;
mod place;
mod postgresql;
#[cfg(feature = "sqlite")]
mod sqlite;
mod story;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;
use spindle_testbed::interrupt;
use spindle_testbed::scene::Scene;

use crate::database::Database;
use crate::place::Place;
use crate::story::Story;

/// Runs a database on a group of four file disks, takes one disk away, cuts the power, brings the
/// disk back, adds another, kills the daemon, and proves that nothing acknowledged was lost.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Where the disks' files are made (10 GiB at most are used).
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    dir: PathBuf,

    /// Seconds of load before and after the loss of the disk.
    #[arg(long, default_value_t = 15)]
    seconds: u64,

    /// Run on SQLite, also where there is a PostgreSQL.
    #[arg(long)]
    sqlite: bool,

    /// Tell the story on a plain directory instead of a mount: no disk is lost then.
    #[arg(long, hide = true)]
    place: Option<PathBuf>,

    #[cfg(feature = "sqlite")]
    #[command(subcommand)]
    writer: Option<sqlite::Writer>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    #[cfg(feature = "sqlite")]
    if let Some(writer) = &arguments.writer {
        return writer.run();
    }
    interrupt::listen()?;
    let scene = Scene::make(&arguments.dir, "spindle-demo")?;
    let database = choose(arguments, &scene)?;
    let place = match &arguments.place {
        Some(directory) => Place::plain(directory)?,
        None => Place::group(&scene)?,
    };
    let told = Story::new(scene, place, database).tell(arguments.seconds)?;
    page::print(&told);
    if !told.faults.is_empty() {
        bail!("the promise was broken, see above");
    }
    Ok(())
}

fn choose(arguments: &Arguments, scene: &Scene) -> Result<Box<dyn Database>> {
    if !arguments.sqlite {
        match postgresql::PostgreSql::find(scene) {
            Ok(database) => return Ok(Box::new(database)),
            Err(error) => println!("{error:#}; the story runs on SQLite instead"),
        }
    }
    #[cfg(feature = "sqlite")]
    return Ok(Box::new(sqlite::Sqlite::new(scene)?));
    #[cfg(not(feature = "sqlite"))]
    bail!("this build holds no SQLite: cargo run -p spindle-demo --features sqlite")
}
