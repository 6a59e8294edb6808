//! The statements of the single-user tests and of the cross-section, each with the number of rows
//! that it must give or change.

use super::data::{KEY_STEP, code, spread};

/// A statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Statement {
    /// What it tests.
    pub name: &'static str,
    /// In SQL.
    pub text: String,
    /// Rows that it gives or changes.
    pub rows: u64,
}

fn statement(name: &'static str, rows: u64, text: impl Into<String>) -> Statement {
    Statement {
        name,
        text: text.into(),
        rows,
    }
}

/// Rows of a bulk update.
const BULK: u64 = 1000;
/// What a report shows of a row.
const SHOWN: &str = "key, number, signed, code, large, name";

/// The single-user tests in their order. The order matters: what is put in is taken out later.
pub(super) fn single_user(rows: u64) -> Vec<Statement> {
    let mut all = loading(rows);
    all.extend(selections(rows));
    all.extend(joins(rows));
    all.extend(projections_and_aggregates(rows));
    all.extend(bulk_updates(rows));
    all.extend(row_updates(rows));
    all
}

fn loading(rows: u64) -> Vec<Statement> {
    vec![
        statement(
            "load",
            rows,
            "CREATE TABLE loaded AS SELECT * FROM uniques ORDER BY key",
        ),
        statement("clustered index", 0, "CREATE UNIQUE INDEX ON loaded (key)"),
        statement("secondary index", 0, "CREATE INDEX ON loaded (code)"),
    ]
}

fn selections(rows: u64) -> Vec<Statement> {
    let middle = rows / 2;
    let some = code(spread(middle, rows));
    vec![
        statement(
            "one row, clustered",
            1,
            format!(
                "SELECT {SHOWN} FROM updates WHERE key = {}",
                middle * KEY_STEP
            ),
        ),
        statement(
            "one row, unclustered",
            1,
            format!("SELECT {SHOWN} FROM updates WHERE code = '{some}'"),
        ),
        statement(
            "a hundred rows, clustered",
            100,
            format!("SELECT {SHOWN} FROM updates WHERE key < {}", 100 * KEY_STEP),
        ),
        statement(
            "a hundred rows, unclustered",
            100,
            format!("SELECT {SHOWN} FROM updates WHERE number < 100"),
        ),
        statement(
            "a tenth, clustered",
            rows / 10,
            format!(
                "SELECT {SHOWN} FROM uniques WHERE key < {}",
                rows / 10 * KEY_STEP
            ),
        ),
        statement(
            "a tenth, unclustered",
            rows / 10,
            format!("SELECT {SHOWN} FROM tenpct WHERE name = 'name 3'"),
        ),
        statement(
            "variable selection, low",
            rows / 1000 * 10,
            format!("SELECT {SHOWN} FROM tenpct WHERE number < {}", rows / 1000),
        ),
        statement(
            "variable selection, high",
            rows / 1000 * 250,
            format!(
                "SELECT {SHOWN} FROM tenpct WHERE number < {}",
                rows / 1000 * 25
            ),
        ),
        statement("table scan", 1, "SELECT * FROM uniques WHERE number = 1"),
    ]
}

fn joins(rows: u64) -> Vec<Statement> {
    let key = rows / 3 * KEY_STEP;
    let some = code(spread(rows / 3, rows));
    let columns = |relations: &[&str]| -> String {
        let shown: Vec<String> = relations
            .iter()
            .map(|relation| format!("{relation}.signed, {relation}.day"))
            .collect();
        shown.join(", ")
    };
    let joined = |relations: &[&str], by: &str, is: &str| -> String {
        let mut text = format!("SELECT {} FROM {}", columns(relations), relations[0]);
        for relation in &relations[1..] {
            text.push_str(&format!(
                " JOIN {relation} ON {relation}.{by} = {}.{by}",
                relations[0]
            ));
        }
        text + &format!(" WHERE {}.{by} = {is}", relations[0])
    };
    let quoted = format!("'{some}'");
    let all = ["uniques", "hundred", "tenpct", "updates"];
    let of = |count: usize, by: &str| {
        let is = if by == "key" {
            key.to_string()
        } else {
            quoted.clone()
        };
        joined(&all[..count], by, &is)
    };
    vec![
        statement("join of two, clustered", 1, of(2, "key")),
        statement("join of two, unclustered", 1, of(2, "code")),
        statement(
            "join of two, whole",
            rows / 100,
            format!(
                "SELECT uniques.signed, tenpct.day FROM uniques
                 JOIN tenpct ON tenpct.address = uniques.address AND tenpct.code = uniques.code
                 WHERE uniques.number < {}",
                rows / 100
            ),
        ),
        statement("join of three, clustered", 1, of(3, "key")),
        statement("join of three, unclustered", 1, of(3, "code")),
        statement("join of four, clustered", 1, of(4, "key")),
        statement("join of four, unclustered", 1, of(4, "code")),
    ]
}

fn projections_and_aggregates(rows: u64) -> Vec<Statement> {
    vec![
        statement(
            "projection to a hundred",
            100,
            "SELECT DISTINCT signed, name FROM hundred",
        ),
        statement(
            "projection to a tenth",
            rows / 10,
            "SELECT DISTINCT signed FROM tenpct",
        ),
        statement("scalar aggregate", 1, "SELECT min(number) FROM uniques"),
        statement(
            "aggregate by group",
            100,
            "SELECT name, min(key) FROM hundred GROUP BY name",
        ),
        statement(
            "information retrieval",
            1,
            format!(
                "SELECT count(key) FROM tenpct
                 WHERE name = 'name 3' AND number < {0} AND signed > -{0}
                   AND (small < 100 OR small > 200) AND large > 10 AND amount >= 3",
                rows / 20
            ),
        ),
        statement("simple report", 1, simple_report(rows)),
        statement(
            "report with subtotals",
            100,
            "SELECT hundred.name, avg(tenpct.signed), min(tenpct.key), max(tenpct.amount),
                    sum(tenpct.amount), count(DISTINCT tenpct.day)
             FROM hundred JOIN tenpct ON tenpct.key = hundred.key
             GROUP BY hundred.name ORDER BY hundred.name",
        ),
        statement(
            "report with a total",
            1,
            "SELECT avg(tenpct.signed), min(tenpct.key), max(tenpct.amount), sum(tenpct.amount),
                    count(DISTINCT hundred.name)
             FROM hundred JOIN tenpct ON tenpct.key = hundred.key",
        ),
    ]
}

fn simple_report(rows: u64) -> String {
    format!(
        "SELECT avg(amount) FROM updates
         WHERE key IN (SELECT updates.key FROM updates JOIN hundred ON hundred.key = updates.key
                       WHERE updates.amount > {})",
        rows / 100 * 98
    )
}

fn bulk_updates(rows: u64) -> Vec<Statement> {
    let first = rows / 2 * KEY_STEP;
    let last = first + (BULK - 1) * KEY_STEP;
    vec![
        statement(
            "bulk save",
            BULK,
            format!(
                "CREATE TABLE saved AS SELECT * FROM updates WHERE key BETWEEN {first} AND {last}"
            ),
        ),
        statement(
            "bulk modify",
            BULK,
            format!("UPDATE updates SET amount = amount + 1 WHERE key BETWEEN {first} AND {last}"),
        ),
        statement(
            "bulk append",
            BULK,
            "INSERT INTO updates SELECT key + 1, number, signed, small, large, amount, day, code,
                 name, address FROM saved",
        ),
        statement(
            "bulk delete",
            BULK,
            format!(
                "DELETE FROM updates WHERE key BETWEEN {first} AND {last} + 1 AND key % {KEY_STEP} = 1"
            ),
        ),
    ]
}

/// Changes of a single row, in the middle of the keys and at their end.
fn row_updates(rows: u64) -> Vec<Statement> {
    let middle = rows / 4 * KEY_STEP + 5;
    let end = rows * KEY_STEP + 5;
    let append = |key: u64| {
        format!(
            "INSERT INTO updates VALUES ({key}, {key}, 0, 0, 0, 0, DATE '2000-01-01', 'new',
                 'a new row', 'nowhere') ON CONFLICT (key) DO NOTHING"
        )
    };
    let modify = |key: u64| format!("UPDATE updates SET key = key + 1 WHERE key = {key}");
    let delete = |key: u64| format!("DELETE FROM updates WHERE key = {key}");
    vec![
        statement("append in the middle", 1, append(middle)),
        statement("append again, refused", 0, append(middle)),
        statement("modify in the middle", 1, modify(middle)),
        statement("delete in the middle", 1, delete(middle + 1)),
        statement("append at the end", 1, append(end)),
        statement("modify at the end", 1, modify(end)),
        statement(
            "modify an indexed code",
            1,
            format!("UPDATE updates SET code = 'newer' WHERE key = {}", end + 1),
        ),
        statement(
            "modify an indexed number",
            1,
            format!("UPDATE updates SET number = 0 WHERE key = {}", end + 1),
        ),
        statement("delete at the end", 1, delete(end + 1)),
    ]
}

/// What one user of the mixed tests does in turn: ten statements, read and changed by key and by
/// chance. Changes are of `amount`, and the sum of what they add is [`Statement::rows`] with the sign
/// of the statement's second word.
pub(super) fn cross_section(rows: u64, random: &mut fastrand::Rng) -> Vec<Statement> {
    let some = code(random.u64(0..rows));
    let first = random.u64(0..rows - 100) * KEY_STEP;
    let last = first + 99 * KEY_STEP;
    let keys: std::collections::BTreeSet<u64> =
        (0..100).map(|_| random.u64(0..rows) * KEY_STEP).collect();
    let count = keys.len() as u64;
    let keys: Vec<String> = keys.iter().map(u64::to_string).collect();
    let keys = keys.join(", ");
    let change = |sign: char, which: &str| {
        format!("UPDATE updates SET amount = amount {sign} 1 WHERE key {which}")
    };
    let in_order = format!("BETWEEN {first} AND {last}");
    let by_chance = format!("IN ({keys})");
    vec![
        statement("tiny", 1, "SELECT * FROM tiny"),
        statement(
            "a tenth",
            rows / 10,
            format!("SELECT * FROM hundred WHERE key < {}", rows / 10 * KEY_STEP),
        ),
        statement(
            "one row, unclustered",
            1,
            format!("SELECT {SHOWN} FROM updates WHERE code = '{some}'"),
        ),
        statement("simple report", 1, simple_report(rows)),
        statement(
            "a hundred in order",
            100,
            format!("SELECT {SHOWN} FROM updates WHERE key {in_order}"),
        ),
        statement(
            "a hundred by chance",
            count,
            format!("SELECT {SHOWN} FROM updates WHERE key {by_chance}"),
        ),
        statement("add in order", 100, change('+', &in_order)),
        statement("add by chance", count, change('+', &by_chance)),
        statement("subtract in order", 100, change('-', &in_order)),
        statement("subtract by chance", count, change('-', &by_chance)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_has_a_name_of_its_own() {
        let all = single_user(10_000);
        let names: std::collections::BTreeSet<&str> =
            all.iter().map(|statement| statement.name).collect();
        assert_eq!(names.len(), all.len());
        assert!(all.len() >= 38, "{}", all.len());
    }

    #[test]
    fn a_cross_section_takes_back_what_it_added() {
        let mut random = fastrand::Rng::with_seed(3);
        let all = cross_section(10_000, &mut random);
        assert_eq!(all.len(), 10);
        let sum = |word: &str| -> u64 {
            all.iter()
                .filter(|statement| statement.name.starts_with(word))
                .map(|statement| statement.rows)
                .sum()
        };
        assert_eq!(sum("add"), sum("subtract"));
    }
}
