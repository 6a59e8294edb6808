//! What the databases write differently, as far as several loads need it.

use crate::experiment::DatabaseKind;

/// A table for `FROM` with one column `n`: the whole numbers `from..=until`.
#[must_use]
pub fn numbers(kind: DatabaseKind, from: u64, until: u64) -> String {
    match kind {
        DatabaseKind::Postgresql => format!("generate_series({from}, {until}) AS numbers(n)"),
        // MariaDB's own engine for it; its tables exist by their names.
        DatabaseKind::Mariadb => format!("(SELECT seq AS n FROM seq_{from}_to_{until}) AS numbers"),
        DatabaseKind::Sqlite => format!(
            "(WITH RECURSIVE counted(n) AS
                  (SELECT {from} UNION ALL SELECT n + 1 FROM counted WHERE n < {until})
              SELECT n FROM counted) AS numbers"
        ),
    }
}

/// An expression cast to a whole number of 8 bytes.
#[must_use]
pub fn integer(kind: DatabaseKind, expression: &str) -> String {
    let name = match kind {
        DatabaseKind::Postgresql => "bigint",
        DatabaseKind::Mariadb => "SIGNED",
        DatabaseKind::Sqlite => "INTEGER",
    };
    format!("CAST({expression} AS {name})")
}

/// A text of `length` letters (at least 32) that differs for each value of the whole number
/// `column`, and that nobody would compress to nothing.
#[must_use]
pub fn filler(kind: DatabaseKind, column: &str, length: usize) -> String {
    match kind {
        DatabaseKind::Postgresql => format!("rpad(md5({column}::text), {length}, 'x')"),
        DatabaseKind::Mariadb => format!("rpad(md5({column}), {length}, 'x')"),
        DatabaseKind::Sqlite => format!(
            "printf('%032x', {column} * 2654435761) || '{}'",
            "x".repeat(length.saturating_sub(32))
        ),
    }
}

/// A statement with `$1`, `$2`, ... as one with `?`, and which parameter (from 0) each `?` is.
pub(super) fn question_marks(statement: &str) -> (String, Vec<usize>) {
    let mut order = Vec::new();
    let text = with_places(statement, |index, text| {
        text.push('?');
        order.push(index);
    });
    (text, order)
}

/// A statement with `$1`, `$2`, ... as one with `?1`, `?2`, ...
pub(super) fn numbered_marks(statement: &str) -> String {
    with_places(statement, |index, text| {
        text.push('?');
        text.push_str(&(index + 1).to_string());
    })
}

/// Replaces each `$1`, `$2`, ... by what `write` gives for its index from 0. What stands in quotes
/// is left alone.
fn with_places(statement: &str, mut write: impl FnMut(usize, &mut String)) -> String {
    let mut text = String::with_capacity(statement.len());
    let mut quote = None;
    let mut letters = statement.chars().peekable();
    while let Some(letter) = letters.next() {
        match quote {
            Some(open) if open == letter => quote = None,
            Some(_) => {}
            None if matches!(letter, '\'' | '"' | '`') => quote = Some(letter),
            None if letter == '$' => {
                let mut number = 0_usize;
                while let Some(digit) = letters.peek().and_then(|next| next.to_digit(10)) {
                    number = number * 10 + digit as usize;
                    letters.next();
                }
                if number > 0 {
                    write(number - 1, &mut text);
                    continue;
                }
            }
            None => {}
        }
        text.push(letter);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_become_question_marks_in_their_order_and_quotes_are_left_alone() {
        let (text, order) = question_marks(
            "UPDATE t SET a = $2, b = $2 + 1, c = '$1 it''s', d = \"$3\" WHERE e = $1",
        );
        assert_eq!(
            text,
            "UPDATE t SET a = ?, b = ? + 1, c = '$1 it''s', d = \"$3\" WHERE e = ?"
        );
        assert_eq!(order, [1, 1, 0]);
        assert_eq!(question_marks("SELECT '$'").0, "SELECT '$'");
        assert_eq!(question_marks("SELECT $12").1, [11]);
        assert_eq!(numbered_marks("SELECT $2, '$1', $1"), "SELECT ?2, '$1', ?1");
    }
}
