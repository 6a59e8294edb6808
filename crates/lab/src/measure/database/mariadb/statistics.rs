//! MariaDB's own counters, those of InnoDB above all.

use std::collections::HashMap;

use mysql::Conn;
use mysql::prelude::Queryable as _;

use super::super::Statistics;

/// Over a connection of its own.
pub(super) struct MariadbStatistics {
    client: Conn,
}

impl MariadbStatistics {
    pub fn new(client: Conn) -> Self {
        Self { client }
    }
}

impl Statistics for MariadbStatistics {
    fn read(&mut self) -> Vec<(&'static str, f64)> {
        let rows: Vec<(String, String)> =
            self.client.query("SHOW GLOBAL STATUS").unwrap_or_default();
        let values: HashMap<String, f64> = rows
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_ascii_lowercase(), value.parse().ok()?)))
            .collect();
        let of = |name: &str| values.get(name).copied().unwrap_or(f64::NAN);
        vec![
            ("database_blocks_read", of("innodb_pages_read")),
            (
                "database_blocks_hit",
                of("innodb_buffer_pool_read_requests") - of("innodb_buffer_pool_reads"),
            ),
            ("database_commits", of("handler_commit")),
            // Each page is written twice, first to where a torn page is mended from.
            (
                "database_blocks_written",
                of("innodb_pages_written") + of("innodb_dblwr_pages_written"),
            ),
            ("database_log_bytes", of("innodb_os_log_written")),
            ("database_log_writes", of("innodb_log_writes")),
            ("database_rollbacks", of("handler_rollback")),
            (
                "database_rows_changed",
                of("handler_write") + of("handler_update") + of("handler_delete"),
            ),
        ]
    }
}
