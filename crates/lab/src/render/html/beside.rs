//! The table of what went on beside a load.

use std::fmt::Write as _;

use crate::analyse::summary::WorkloadSummary;
use crate::quantity::{show_microseconds, show_size};
use crate::render::chart::escaped;

/// What stands over it.
pub(super) const NOTE: &str = "What went on beside the load began with the measured time, and again whenever it was done. The share is of the \
     contender's own rate under the load alone, block by block. A lap without an end was under way at that of a run. \
     CPU/op has what went on as well.";

/// What went on beside the load, of each contender; nothing where nothing did.
pub(super) fn table(workload: &WorkloadSummary) -> String {
    let dash = || "&ndash;".to_owned();
    let mut rows = String::new();
    for contender in &workload.contenders {
        let Some(found) = &contender.beside else {
            continue;
        };
        let share = (found.share).map_or_else(dash, |share| match (share.low, share.high) {
            (Some(low), Some(high)) => format!("{:.2} ({low:.2} to {high:.2})", share.centre),
            _ => format!("{:.2}", share.centre),
        });
        for (place, lap) in found.laps.iter().enumerate() {
            let first = |text: &str| {
                if place == 0 {
                    text.to_owned()
                } else {
                    String::new()
                }
            };
            let _ = write!(
                rows,
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                first(&escaped(&contender.name)),
                first(&share),
                escaped(&lap.name),
                lap.done,
                lap.unfinished,
                lap.median_s
                    .map_or_else(dash, |seconds| show_microseconds(seconds * 1e6)),
                lap.bytes_per_s
                    .map_or_else(dash, |bytes| format!("{}/s", show_size(bytes))),
            );
        }
    }
    if rows.is_empty() {
        return rows;
    }
    format!(
        "<div class=\"scroll\"><table><thead><tr><th>contender</th><th>of its rate alone</th><th>lap</th><th>done</th><th>without an end</th><th>each</th><th>read</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )
}
