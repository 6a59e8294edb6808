//! A failed run again with fewer operations, until none can be left out.

use crate::broken_disks::Breakage;
use crate::outcome::Violation;
use crate::plan::Plan;
use crate::run::simulate;

/// The shortest plan found that still breaks the same promise, and how it does.
#[must_use]
pub fn shrink(
    plan: &Plan,
    violation: Box<Violation>,
    breakage: Option<Breakage>,
) -> (Plan, Box<Violation>) {
    let wanted = kind(&violation);
    let mut best = plan.clone();
    best.operations.truncate(violation.step + 1);
    let mut shown = match simulate(&best, breakage) {
        Err(again) if kind(&again) == wanted => again,
        // It needs the close at the end of the whole plan.
        _ => {
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
            if let Err(again) = simulate(&shorter, breakage)
                && kind(&again) == wanted
            {
                best = shorter;
                shown = again;
            }
        }
        length /= 2;
    }
    (best, shown)
}

/// The beginning of the message without its numbers: another number is the same promise, another
/// sentence is another one.
fn kind(violation: &Violation) -> String {
    (violation.message.chars())
        .filter(|letter| !letter.is_ascii_digit())
        .take(24)
        .collect()
}
