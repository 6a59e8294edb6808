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

/// Checkpoints and who wrote the blocks, before 17.
const CHECKPOINTS: [(&str, &str); 5] = [
    (
        "database_checkpoints_requested",
        "(SELECT checkpoints_req FROM pg_stat_bgwriter)",
    ),
    (
        "database_checkpoint_write_ms",
        "(SELECT checkpoint_write_time FROM pg_stat_bgwriter)",
    ),
    (
        "database_checkpoint_sync_ms",
        "(SELECT checkpoint_sync_time FROM pg_stat_bgwriter)",
    ),
    (
        "database_blocks_by_checkpoints",
        "(SELECT buffers_checkpoint FROM pg_stat_bgwriter)",
    ),
    (
        "database_blocks_by_sessions",
        "(SELECT buffers_backend FROM pg_stat_bgwriter)",
    ),
];

/// The same since 17.
const CHECKPOINTS_17: [(&str, &str); 5] = [
    (
        "database_checkpoints_requested",
        "(SELECT num_requested FROM pg_stat_checkpointer)",
    ),
    (
        "database_checkpoint_write_ms",
        "(SELECT write_time FROM pg_stat_checkpointer)",
    ),
    (
        "database_checkpoint_sync_ms",
        "(SELECT sync_time FROM pg_stat_checkpointer)",
    ),
    (
        "database_blocks_by_checkpoints",
        "(SELECT buffers_written FROM pg_stat_checkpointer)",
    ),
    (
        "database_blocks_by_sessions",
        "(SELECT sum(writes) FROM pg_stat_io WHERE object = 'relation' AND backend_type = 'client backend')",
    ),
];

/// Times and flushes of the log, before 18.
const LOG: [(&str, &str); 3] = [
    (
        "database_log_write_ms",
        "(SELECT wal_write_time FROM pg_stat_wal)",
    ),
    ("database_log_syncs", "(SELECT wal_sync FROM pg_stat_wal)"),
    (
        "database_log_sync_ms",
        "(SELECT wal_sync_time FROM pg_stat_wal)",
    ),
];

/// The same since 18.
const LOG_18: [(&str, &str); 3] = [
    (
        "database_log_write_ms",
        "(SELECT sum(write_time) FROM pg_stat_io WHERE object = 'wal')",
    ),
    (
        "database_log_syncs",
        "(SELECT sum(fsyncs) FROM pg_stat_io WHERE object = 'wal')",
    ),
    (
        "database_log_sync_ms",
        "(SELECT sum(fsync_time) FROM pg_stat_io WHERE object = 'wal')",
    ),
];

/// Sessions that work for a client, and what they wait for; who runs waits for nothing.
const SESSIONS: &str =
    "SELECT coalesce(wait_event_type, 'CPU'), coalesce(wait_event, 'CPU'), count(*)
     FROM pg_stat_activity
     WHERE state = 'active' AND pid <> pg_backend_pid()
           AND backend_type IN ('client backend', 'parallel worker')
     GROUP BY 1, 2";

/// Blocks of every table and index: name, read, found in memory.
const OBJECTS: &str =
    "SELECT relname::text, (heap_blks_read + coalesce(toast_blks_read, 0))::float8,
            (heap_blks_hit + coalesce(toast_blks_hit, 0))::float8
     FROM pg_statio_user_tables
     UNION ALL
     SELECT indexrelname::text, idx_blks_read::float8, idx_blks_hit::float8
     FROM pg_statio_user_indexes";

/// What all versions count alike.
const ALWAYS: [(&str, &str); 13] = [
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
    (
        "database_rollbacks",
        "(SELECT sum(xact_rollback) FROM pg_stat_database)",
    ),
    (
        "database_rows_changed",
        "(SELECT sum(tup_inserted + tup_updated + tup_deleted) FROM pg_stat_database)",
    ),
    (
        "database_active_ms",
        "(SELECT sum(active_time) FROM pg_stat_database)",
    ),
    (
        "database_write_ms",
        "(SELECT sum(blk_write_time) FROM pg_stat_database)",
    ),
    (
        "database_log_records",
        "(SELECT wal_records FROM pg_stat_wal)",
    ),
    (
        "database_log_full_pages",
        "(SELECT wal_fpi FROM pg_stat_wal)",
    ),
    (
        "database_blocks_by_cleaner",
        "(SELECT buffers_clean FROM pg_stat_bgwriter)",
    ),
];

/// Our name of each counter, and the expression that gives it.
fn counters(version: Version) -> Vec<(&'static str, &'static str)> {
    let mut counters = ALWAYS.to_vec();
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
    counters.extend(if version >= VERSION_17 {
        CHECKPOINTS_17
    } else {
        CHECKPOINTS
    });
    counters.extend(if version >= VERSION_18 { LOG_18 } else { LOG });
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

    fn sessions(&mut self) -> Vec<(String, String, u64)> {
        let rows = self.client.query(SESSIONS, &[]).unwrap_or_default();
        rows.iter()
            .map(|row| {
                let count = u64::try_from(row.get::<_, i64>(2)).unwrap_or(0);
                (row.get(0), row.get(1), count)
            })
            .collect()
    }

    fn objects(&mut self) -> Vec<(String, f64, f64)> {
        let rows = self.client.query(OBJECTS, &[]).unwrap_or_default();
        rows.iter()
            .map(|row| (row.get(0), row.get(1), row.get(2)))
            .collect()
    }
}
