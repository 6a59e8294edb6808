//! A failed run again with fewer operations, until none can be left out.

use crate::broken_disks::Breakage;
use crate::outcome::Violation;
use crate::plan::Plan;
use crate::run::simulate;

/// The shortest plan found that still breaks a promise, and how it does. Any violation counts:
/// a shorter way to another one is as welcome.
#[must_use]
pub fn shrink(
    plan: &Plan,
    violation: Box<Violation>,
    breakage: Option<Breakage>,
) -> (Plan, Box<Violation>) {
    let mut best = plan.clone();
    best.operations.truncate(violation.step + 1);
    let mut shown = match simulate(&best, breakage) {
        Err(again) => again,
        // It needs the close at the end of the whole plan.
        Ok(_) => {
            best = plan.clone();
            violation
        }
    };
    let mut length = best.operations.len() / 2;
    while length > 0 {
        let mut begin = best.operations.len();
        while begin > 0 {
            begin = begin.saturating_sub(length);
            let mut shorter = best.clone();
            let end = (begin + length).min(shorter.operations.len());
            shorter.operations.drain(begin..end);
            if let Err(again) = simulate(&shorter, breakage) {
                best = shorter;
                shown = again;
            }
        }
        length /= 2;
    }
    (best, shown)
}
