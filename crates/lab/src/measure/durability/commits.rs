//! Commits of the database itself: a table of the probe's own, one row a commit.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use super::ground::Ground;
use crate::measure::database::{Server, Session, Value, is_conflict};
use crate::record::WayCount;

const TABLE: &str = "spindle_lab_durability";
/// As `judgement` and the report know it.
const NAME: &str = "commit";
const COMMITS: u64 = 48;
const LENGTH: Duration = Duration::from_millis(600);

/// Makes the table for as long as `work` takes.
pub fn with_table(server: &dyn Server, work: impl FnOnce(&dyn Server) -> Result<()>) -> Result<()> {
    let mut session = server.connect()?;
    session.batch(&format!(
        "CREATE TABLE {TABLE} (writer INTEGER NOT NULL, number INTEGER NOT NULL)"
    ))?;
    let worked = work(server);
    let dropped = session.batch(&format!("DROP TABLE {TABLE}"));
    worked.and(dropped)
}

/// Counts commits of so many sessions.
pub fn count(ground: &Ground, server: &dyn Server, writers: u32) -> Result<Option<WayCount>> {
    let sessions: Vec<Box<dyn Session>> = (0..writers)
        .map(|_| server.connect())
        .collect::<Result<_>>()
        .context("a session for the probe of commits")?;
    let each = if writers == 1 {
        COMMITS
    } else {
        3 * COMMITS / u64::from(writers)
    };
    let before = ground.read();
    let barrier = Barrier::new(sessions.len());
    let results: Vec<Result<u64>> = thread::scope(|scope| {
        let threads: Vec<_> = sessions
            .into_iter()
            .zip(0..)
            .map(|(session, writer)| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    insert(session, writer, each)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(anyhow!("a session of the probe panicked")))
            })
            .collect()
    });
    let mut acknowledged = 0;
    for result in results {
        acknowledged += result.context("the probe of commits")?;
    }
    Ok(Some(ground.since(&before, NAME, writers, acknowledged)))
}

fn insert(mut session: Box<dyn Session>, writer: i64, most: u64) -> Result<u64> {
    let statement = session.prepare(&format!("INSERT INTO {TABLE} VALUES ($1, $2)"))?;
    let began = Instant::now();
    let mut count = 0;
    while count < most && (count < 4 || began.elapsed() < LENGTH) {
        let row = [
            Value::Integer(writer),
            Value::Integer(i64::try_from(count)?),
        ];
        match session.execute(statement, &row) {
            Ok(_) => count += 1,
            Err(error) if is_conflict(&error) && began.elapsed() < 20 * LENGTH => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}
