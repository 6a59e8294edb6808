//! Where the sessions' time went: a bar for each contender, from the samples of a second.

use super::{Anchor, Canvas, Scale, Width};
use crate::analyse::summary::WorkloadSummary;
use crate::record::AGAIN;

/// What is told apart: the class of the style sheet, its name, and the database's classes of waits.
pub const KINDS: [(&str, &str, &[&str]); 5] = [
    ("w1", "processor", &["CPU"]),
    ("w2", "storage", &["IO"]),
    ("w3", "locks of rows and tables", &["Lock"]),
    ("w4", "locks within the server", &["LWLock", "BufferPin"]),
    ("w5", "everything else", &[]),
];

/// Draws them; empty where no session was sampled.
#[must_use]
pub fn sessions(workload: &WorkloadSummary, width: Width) -> String {
    let rows: Vec<(&str, [f64; 5], f64)> = workload
        .contenders
        .iter()
        .filter(|contender| !contender.name.ends_with(AGAIN))
        .filter_map(|contender| {
            let extract = contender.extract.as_ref()?;
            let mut seconds = [0.0; 5];
            for wait in &extract.waits {
                let kind = KINDS
                    .iter()
                    .position(|(_, _, classes)| classes.contains(&wait.class.as_str()))
                    .unwrap_or(KINDS.len() - 1);
                seconds[kind] += wait.sampled_s;
            }
            let all: f64 = seconds.iter().sum();
            (all > 0.0).then_some((contender.name.as_str(), seconds, extract.elapsed_s))
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let pixels = width.pixels();
    let is_wide = width == Width::Wide;
    let left = if is_wide { 190.0 } else { 12.0 };
    let right = pixels - 20.0;
    // Sessions at once: what was sampled, over the time.
    let most = rows
        .iter()
        .map(|(_, seconds, elapsed_s)| seconds.iter().sum::<f64>() / elapsed_s)
        .fold(0.0, f64::max);
    let scale = Scale::linear(0.0, most * 1.02, left, right);
    let row_height = if is_wide { 30.0 } else { 46.0 };
    let mut canvas = Canvas::new(width, 0.0);
    let mut y = 8.0;
    let bottom = rows.iter().fold(y, |bottom, _| bottom + row_height);
    canvas.bottom_axis(&scale, 4.0, bottom, crate::quantity::show_tick);
    canvas.text(
        "label",
        (f64::midpoint(left, right), bottom + 33.0),
        Anchor::Middle,
        "active sessions, on average",
    );
    for (name, seconds, elapsed_s) in rows {
        let bar_y = if is_wide {
            canvas.text("name", (left - 12.0, y + 15.0), Anchor::End, name);
            y
        } else {
            canvas.text("name", (left, y + 12.0), Anchor::Start, name);
            y + 18.0
        };
        let mut sum = 0.0;
        for ((class, kind, _), value) in KINDS.iter().zip(seconds) {
            let (from, until) = (scale.at(sum), scale.at(sum + value / elapsed_s));
            sum += value / elapsed_s;
            canvas.rectangle(
                &format!("bar {class}"),
                (from, bar_y),
                // A gap parts neighbours whatever their colours.
                ((until - from - 1.5).max(0.0), 20.0),
                &format!("{name}: {kind}: {:.2} sessions", value / elapsed_s),
            );
        }
        y += row_height;
    }
    canvas.height = bottom + 38.0;
    canvas.finish(&format!("Active sessions, {}", workload.title))
}
