//! `compare DIR DIR`: side by side, or why not.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::analyse::comparison::compare;
use crate::analyse::folder;
use crate::quantity::show_number;
use crate::say;

pub(super) fn run(first: &Path, second: &Path) -> Result<ExitCode> {
    let rows = match compare(&folder::read(first)?, &folder::read(second)?) {
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
    say!("These are two experiments, not blocks of one: what differs may be the day.");
    Ok(ExitCode::SUCCESS)
}
