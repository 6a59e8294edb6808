//! The relations: four of as many rows, and one of a single row.
//!
//! `uniques`, `hundred`, `tenpct` and `updates` have the same columns; what differs is how many
//! values a column has: as many as rows, a hundred, or a tenth of the rows. All lie in the order of
//! their key, so that its index is clustered and every other one is not. Values are made from the
//! number of the row by multiplication with a prime, so that they are known without being stored.

use anyhow::Result;

use crate::measure::database::Server;

/// Keys are so far apart: there is room for new ones between two.
pub(super) const KEY_STEP: u64 = 10;
/// Coprime to the number of rows, so that multiplying gives every value once.
const PRIME: u64 = 48_271;
/// Fewer rows are too few for the selections of a thousand.
const ROWS_AT_LEAST: u64 = 10_000;
/// What a row of each of the four relations takes together, with its indexes.
const ROW_BYTES: u64 = 1100;

/// How many rows fit: a multiple of a hundred.
pub(super) fn row_count(size_bytes: u64) -> u64 {
    let count = (size_bytes / ROW_BYTES).max(ROWS_AT_LEAST) / 100 * 100;
    if count.is_multiple_of(PRIME) {
        count + 100
    } else {
        count
    }
}

/// The value of an unclustered column in a row: each of `0..rows` once.
pub(super) fn spread(row: u64, rows: u64) -> u64 {
    row * PRIME % rows
}

/// How the code of a value is written.
pub(super) fn code(value: u64) -> String {
    format!("C{value:09}")
}

const COLUMNS: &str = "key int8 NOT NULL, number int8 NOT NULL, signed int8 NOT NULL,
    small float4 NOT NULL, large float8 NOT NULL, amount numeric(18,2) NOT NULL, day date NOT NULL,
    code char(10) NOT NULL, name char(20) NOT NULL, address varchar(80) NOT NULL";

/// Fills an empty database.
pub(super) fn fill(server: &dyn Server, rows: u64) -> Result<()> {
    let mut session = server.connect()?;
    for (relation, values) in [
        ("uniques", rows),
        ("hundred", 100),
        ("tenpct", rows / 10),
        ("updates", rows),
    ] {
        // The name has ten values where others have a tenth of the rows: it selects a tenth.
        let names = if relation == "tenpct" { 10 } else { values };
        session.batch(&format!(
            "BEGIN;
             CREATE TABLE {relation} ({COLUMNS});
             INSERT INTO {relation}
             SELECT row * {KEY_STEP}, spread % {values}, spread % {values} - {values} / 2,
                    spread % {values}, spread % {values}, spread % {values},
                    DATE '1990-01-01' + (spread % least({values}, 10000))::int,
                    'C' || lpad(spread::text, 9, '0'), 'name ' || spread % {names},
                    substr(repeat(md5(row::text), 3), 1, 2 + (spread % 38)::int)
             FROM (SELECT row, row * {PRIME} % {rows} AS spread
                   FROM generate_series(0::int8, {rows} - 1) AS row) AS numbered;
             COMMIT;"
        ))?;
    }
    session.batch("CREATE TABLE tiny (key int8 NOT NULL); INSERT INTO tiny VALUES (0)")?;
    for index in INDEXES {
        session.batch(index)?;
    }
    session.batch("VACUUM (FREEZE, ANALYZE)")?;
    Ok(())
}

const INDEXES: [&str; 16] = [
    "ALTER TABLE uniques ADD PRIMARY KEY (key)",
    "CREATE INDEX ON uniques (code)",
    "ALTER TABLE hundred ADD PRIMARY KEY (key)",
    "CREATE INDEX ON hundred (code)",
    "ALTER TABLE tenpct ADD PRIMARY KEY (key)",
    "CREATE INDEX ON tenpct (code)",
    "CREATE INDEX ON tenpct (name)",
    "CREATE INDEX ON tenpct (signed)",
    "CREATE INDEX ON tenpct (number)",
    "CREATE INDEX ON tenpct (large)",
    "CREATE INDEX ON tenpct (amount)",
    "ALTER TABLE updates ADD PRIMARY KEY (key)",
    "CREATE INDEX ON updates (number)",
    "CREATE INDEX ON updates (large)",
    "CREATE INDEX ON updates (amount)",
    "CREATE INDEX ON updates (code)",
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn an_unclustered_column_has_every_value_once() {
        for size in [16 << 20, 53 << 20, PRIME * 100 * ROW_BYTES] {
            let rows = row_count(size);
            assert!(rows >= ROWS_AT_LEAST && rows.is_multiple_of(100), "{rows}");
            assert!(!rows.is_multiple_of(PRIME), "{rows}");
        }
        let rows = row_count(16 << 20);
        let values: BTreeSet<u64> = (0..rows).map(|row| spread(row, rows)).collect();
        assert_eq!(values.len() as u64, rows);
        // Neighbours by key are far apart in it.
        assert!(spread(1, rows).abs_diff(spread(2, rows)) > rows / 100);
    }
}
