//! `compare DIR DIR`: side by side, or why not.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::analyse::comparison::compare;
use crate::analyse::folder;
use crate::analyse::settings::differences;
use crate::quantity::show_number;
use crate::say;

pub(super) fn run(first: &Path, second: &Path) -> Result<ExitCode> {
    let (first, second) = (folder::read(first)?, folder::read(second)?);
    let rows = match compare(&first, &second) {
        Ok(rows) => rows,
        Err(reasons) => bail!("not comparable: {}", reasons.join("; ")),
    };
    for row in rows {
        say!(
            "{}, {}: {} here, {} there ({:+.1} %) {}",
            row.workload,
            row.contender,
            show_number(row.first),
            show_number(row.second),
            (row.second / row.first - 1.0) * 100.0,
            row.unit
        );
    }
    for line in differences(&first, &second) {
        say!("differs: {line}");
    }
    say!("These are two experiments, not blocks of one: what differs may be the day.");
    Ok(ExitCode::SUCCESS)
}
