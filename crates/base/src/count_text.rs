//! Numbers of things as a person reads them.

/// So many of them: `1 file`, `2 files`. For words that are many with an `s` behind them.
#[must_use]
pub fn count_text(count: u64, one: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {one}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_many() {
        assert_eq!(count_text(0, "file"), "0 files");
        assert_eq!(count_text(1, "file"), "1 file");
        assert_eq!(count_text(2, "failure group"), "2 failure groups");
    }
}
