//! PostgreSQL's statistics views, which moved between versions: writes of the backends and of the
//! checkpointer went from `pg_stat_bgwriter` to `pg_stat_io` and `pg_stat_checkpointer` in 17, the
//! writes of the log from `pg_stat_wal` to `pg_stat_io` in 18.

use anyhow::{Context, Result};
use postgres::Client;

use super::super::Statistics;

/// Over a connection of its own.
pub(super) struct PostgresqlStatistics {
    client: Client,
    counters: Vec<(&'static str, &'static str)>,
    query: String,
}

/// Such as 150000 for 15.0.
type Version = u32;
const VERSION_17: Version = 170_000;
const VERSION_18: Version = 180_000;

/// Our name of each counter, and the expression that gives it.
fn counters(version: Version) -> Vec<(&'static str, &'static str)> {
    let mut counters = vec![
        (
            "database_blocks_read",
            "(SELECT sum(blks_read) FROM pg_stat_database)",
        ),
        (
            "database_blocks_hit",
            "(SELECT sum(blks_hit) FROM pg_stat_database)",
        ),
        (
            "database_commits",
            "(SELECT sum(xact_commit) FROM pg_stat_database)",
        ),
        (
            "database_temporary_bytes",
            "(SELECT sum(temp_bytes) FROM pg_stat_database)",
        ),
        (
            "database_read_ms",
            "(SELECT sum(blk_read_time) FROM pg_stat_database)",
        ),
        ("database_log_bytes", "(SELECT wal_bytes FROM pg_stat_wal)"),
    ];
    counters.push((
        "database_blocks_written",
        if version >= VERSION_18 {
            "(SELECT sum(write_bytes) / 8192 FROM pg_stat_io WHERE object = 'relation')"
        } else if version >= VERSION_17 {
            "(SELECT sum(writes) FROM pg_stat_io WHERE object = 'relation')"
        } else {
            "(SELECT buffers_checkpoint + buffers_clean + buffers_backend FROM pg_stat_bgwriter)"
        },
    ));
    counters.push((
        "database_checkpoints",
        if version >= VERSION_17 {
            "(SELECT num_timed + num_requested FROM pg_stat_checkpointer)"
        } else {
            "(SELECT checkpoints_timed + checkpoints_req FROM pg_stat_bgwriter)"
        },
    ));
    counters.push((
        "database_log_writes",
        if version >= VERSION_18 {
            "(SELECT sum(writes) FROM pg_stat_io WHERE object = 'wal')"
        } else {
            "(SELECT wal_write FROM pg_stat_wal)"
        },
    ));
    counters
}

impl PostgresqlStatistics {
    pub fn new(mut client: Client) -> Result<Self> {
        let row = client.query_one("SELECT current_setting('server_version_num')", &[])?;
        let version: Version = row
            .get::<_, &str>(0)
            .parse()
            .context("PostgreSQL has a version")?;
        let counters = counters(version);
        let columns: Vec<String> = counters
            .iter()
            .map(|(_, expression)| format!("{expression}::float8"))
            .collect();
        let query = format!("SELECT {}", columns.join(", "));
        // A view that is not as it should be is told now, not as a column without figures.
        client
            .query_one(&query, &[])
            .context("the statistics views of this PostgreSQL are not those that are known")?;
        Ok(Self {
            client,
            counters,
            query,
        })
    }
}

impl Statistics for PostgresqlStatistics {
    fn read(&mut self) -> Vec<(&'static str, f64)> {
        let row = self.client.query_one(&self.query, &[]).ok();
        self.counters
            .iter()
            .enumerate()
            .map(|(index, (name, _))| {
                let value = row.as_ref().map_or(f64::NAN, |row| {
                    row.get::<_, Option<f64>>(index).unwrap_or(0.0)
                });
                (*name, value)
            })
            .collect()
    }
}
