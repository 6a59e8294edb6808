//! `spindle health`.

use anyhow::Result;
use spindle_control::view::HealthStatus;
use spindle_control::{Settings, check_health};

use super::group::name_of;
use super::print_json;
use crate::arguments::Output;
use crate::line::say;

/// The exit code is that of a monitoring plugin, also where the question itself fails.
pub fn run(settings: &Settings, group: Option<&str>, output: Output) -> Result<u8> {
    let answer = group
        .map(name_of)
        .transpose()
        .and_then(|name| Ok(check_health(settings, name.as_ref())?));
    let reports = match answer {
        Ok(reports) => reports,
        Err(error) => {
            eprintln!("spindle: unknown: {error:#}");
            return Ok(HealthStatus::Unknown.exit_code());
        }
    };
    let worst = reports.iter().map(|report| report.status).max();
    let code = worst.unwrap_or(HealthStatus::Unknown).exit_code();
    if output.json {
        print_json(&reports)?;
        return Ok(code);
    }
    for report in &reports {
        if report.findings.is_empty() {
            say!("{}: ok", report.group);
        }
        for finding in &report.findings {
            say!(
                "{}: {}: {}; {}",
                report.group,
                finding.severity,
                finding.text,
                finding.advice
            );
        }
    }
    Ok(code)
}
