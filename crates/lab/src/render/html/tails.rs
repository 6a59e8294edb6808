//! The slow operations of each contender against those of the baseline, as a table.

use std::fmt::Write as _;

use crate::analyse::summary::WorkloadSummary;
use crate::analyse::verdict::Verdict;
use crate::quantity::show_microseconds;
use crate::render::chart::escaped;

/// What stands over the table.
pub(super) const NOTE: &str = "The middle run's time that 95 and 99 of 100 operations do not exceed, as a ratio within the blocks: \
     below one is faster. A run with fewer than 20 operations has no p95, with fewer than 100 no p99.";

/// The table; empty where no run has enough operations.
pub(super) fn tails(workload: &WorkloadSummary) -> String {
    let mut rows = String::new();
    for contender in &workload.contenders {
        for found in &contender.latencies {
            let dash = || "&ndash;".to_owned();
            let interval = found
                .ratio
                .and_then(|ratio| Some(format!("{:.3} to {:.3}", ratio.low?, ratio.high?)));
            let word = found.verdict.map_or("", Verdict::word);
            let _ = write!(
                rows,
                "<tr><td>{} {}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"word-{word}\">{word}</td></tr>",
                escaped(&contender.name),
                escaped(&found.quantile),
                show_microseconds(found.us),
                found
                    .ratio
                    .map_or_else(dash, |ratio| format!("{:.3}", ratio.centre)),
                interval.unwrap_or_else(dash),
            );
        }
    }
    if rows.is_empty() {
        return rows;
    }
    format!(
        "<div class=\"scroll\"><table><thead><tr><th>contender</th><th>middle run</th><th>ratio</th>\
         <th>interval</th><th>verdict</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )
}
