//! Fills an empty database: tables, rows by loaders side by side, then keys and statistics.
//!
//! The loaders take portions in turn, so the rows of a table may lie in another order in the next
//! image; which rows there are does not change. A fill that breaks off leaves a database that is
//! thrown away.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use spindle_testbed::interrupt;

use super::conditions::examine;
use super::dialogue::Dialogue;
use super::rows::Portion;
use super::schema::{Scale, TABLES};
use crate::experiment::DatabaseKind;
use crate::measure::database::Server;

/// What the rows are drawn from.
pub const SEED: u64 = 1992;

/// As many as the server that is filled has connections for.
const LOADERS_AT_MOST: usize = 8;

/// The procedures, which the load need not use.
const PROCEDURES: &str = include_str!("procedures.sql");

/// Fills the server's database and sees that what it then holds is consistent.
///
/// # Errors
/// What the database says, or the first condition that is violated.
pub fn fill(server: &dyn Server, scale: Scale) -> Result<()> {
    let kind = server.kind();
    let mut dialogue = Dialogue::new(server)?;
    for table in &TABLES {
        dialogue.batch(&table.creation(kind))?;
    }
    load_all(server, scale)?;
    for table in &TABLES {
        interrupt::check()?;
        for statement in table.completion(kind) {
            dialogue.batch(&statement)?;
        }
        dialogue.settle(table.name)?;
    }
    if kind == DatabaseKind::Postgresql {
        dialogue.batch(PROCEDURES)?;
    }
    let checks = examine(&mut dialogue, scale, 0)?;
    match checks.iter().find(|check| !check.passed) {
        None => Ok(()),
        Some(check) => bail!("the new database: {}: {}", check.name, check.detail),
    }
}

fn load_all(server: &dyn Server, scale: Scale) -> Result<()> {
    let portions = Portion::all(scale, SEED);
    let next = AtomicUsize::new(0);
    let loaders = thread::available_parallelism()?
        .get()
        .min(LOADERS_AT_MOST)
        .min(portions.len());
    // Connected here, because a server need not be shared between threads.
    let dialogues: Vec<Dialogue> = (0..loaders)
        .map(|_| Dialogue::new(server))
        .collect::<Result<_>>()?;
    thread::scope(|scope| {
        let (portions, next) = (&portions, &next);
        let working: Vec<_> = dialogues
            .into_iter()
            .map(|dialogue| scope.spawn(move || load_portions(dialogue, portions, next)))
            .collect();
        // Every loader is waited for, also after one has failed.
        let ended: Vec<Result<()>> = working
            .into_iter()
            .map(|loader| loader.join().map_err(|_| anyhow!("a loader panicked"))?)
            .collect();
        ended.into_iter().collect()
    })
}

/// One loader: takes what is next until nothing is left.
fn load_portions(mut dialogue: Dialogue, portions: &[Portion], next: &AtomicUsize) -> Result<()> {
    while let Some(portion) = portions.get(next.fetch_add(1, Ordering::Relaxed)) {
        interrupt::check()?;
        let table = portion.table;
        dialogue
            .insert_many(table.name, &table.column_names(), &mut portion.rows())
            .with_context(|| format!("cannot load {}", table.name))?;
    }
    Ok(())
}
