//! `compare DIR DIR`: side by side, or why not.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::analyse::comparison::{Change, Row, compare};
use crate::analyse::folder;
use crate::analyse::settings::differences;
use crate::analyse::summary::summarise;
use crate::quantity::show_number;
use crate::say;

pub(super) fn run(first: &Path, second: &Path) -> Result<ExitCode> {
    let (first, second) = (folder::read(first)?, folder::read(second)?);
    let rows = match compare(&first, &second) {
        Ok(rows) => rows,
        Err(reasons) => bail!("not comparable: {}", reasons.join("; ")),
    };
    for row in &rows {
        say!("{}", told(row));
    }
    let of_rates = rows.iter().filter(|row| row.figure == "rate").count();
    if of_rates > 1 {
        let slow = match rows.len() - of_rates {
            0 => String::new(),
            count => format!("; the {count} of p95 and p99 do among themselves"),
        };
        say!(
            "The intervals are so wide that all {of_rates} rows of rates hold together in 95 of 100 comparisons of two folders{slow}."
        );
    }
    for (name, made_of) in summarise(&first).made_of() {
        say!("{name}: {made_of}");
    }
    for line in differences(&first, &second) {
        say!("differs: {line}");
    }
    say!(
        "These are two experiments, not blocks of one: a rate may differ with the day. What is said of a contender beside its baseline does not."
    );
    Ok(ExitCode::SUCCESS)
}

fn told(row: &Row) -> String {
    let figure = match row.figure.as_str() {
        "rate" => String::new(),
        quantile => format!(", {quantile}"),
    };
    let mut text = format!(
        "{}, {}{figure}: {} here, {} there ({})",
        row.workload,
        row.contender,
        show_number(row.first),
        show_number(row.second),
        row.unit,
    );
    if let Some(reason) = &row.not_comparable {
        return format!("{text}: NOT COMPARABLE: {reason}");
    }
    text.push_str(&format!(", ratio {}", change(&row.rates)));
    if let (Some(against), Some(ratios)) = (&row.against, &row.ratios) {
        text.push_str(&format!("; beside {against}, ratio {}", change(ratios)));
    }
    text.push_str(&format!(": {}", row.verdict.word()));
    if let Some(reason) = &row.reason {
        text.push_str(&format!(". {reason}"));
    }
    text
}

fn change(change: &Change) -> String {
    match (change.low, change.high) {
        (Some(low), Some(high)) => format!("{:.3} ({low:.3} to {high:.3})", change.centre),
        _ => format!("{:.3} (no interval)", change.centre),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyse::verdict::Verdict;

    #[test]
    fn a_line_has_the_interval_and_the_word_and_no_bare_percent() {
        let change = |centre: f64| Change {
            low: Some(centre - 0.2),
            centre,
            high: Some(centre + 0.2),
            blocks: 12,
        };
        let mut row = Row {
            figure: "rate".to_owned(),
            not_comparable: None,
            workload: "tpcb".to_owned(),
            contender: "xfs".to_owned(),
            unit: "transactions/s".to_owned(),
            first: 1000.0,
            second: 1140.0,
            rates: change(1.14),
            against: Some("ext4".to_owned()),
            ratios: Some(change(1.01)),
            verdict: Verdict::Inconclusive,
            reason: None,
        };
        assert_eq!(
            told(&row),
            "tpcb, xfs: 1,000 here, 1,140 there (transactions/s), ratio 1.140 (0.940 to 1.340); \
             beside ext4, ratio 1.010 (0.810 to 1.210): INCONCLUSIVE"
        );
        row.not_comparable =
            Some("the durability of xfs: durable here, not durable there".to_owned());
        assert_eq!(
            told(&row),
            "tpcb, xfs: 1,000 here, 1,140 there (transactions/s): NOT COMPARABLE: \
             the durability of xfs: durable here, not durable there"
        );
    }
}
