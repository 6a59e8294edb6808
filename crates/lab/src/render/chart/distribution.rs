//! The whole distribution of latencies: how long the slowest of ten, of a hundred, of a thousand
//! operations takes. The tail has as much room as the middle.

use super::{Anchor, Canvas, Scale, Width, colour};
use crate::analyse::folder::Folder;
use crate::analyse::latency::{merged, quantile_us};
use crate::analyse::summary::WorkloadSummary;
use crate::quantity::{as_float, show_microseconds_tick};

/// Draws the load with this index; empty where there are too few operations for a distribution.
#[must_use]
pub fn distribution(
    folder: &Folder,
    index: usize,
    workload: &WorkloadSummary,
    width: Width,
) -> String {
    let pixels = width.pixels();
    let (left, right, top, bottom) = (70.0, pixels - 16.0, 12.0, 230.0);
    let mut lines = Vec::new();
    for (place, contender) in workload.contenders.iter().enumerate() {
        let all = merged(folder.runs.iter().filter_map(|run| {
            let planned = &run.run.planned;
            let is_own = planned.workload == index && planned.label == contender.name;
            is_own
                .then(|| run.run.measured().map(|measured| &measured.latency))
                .flatten()
        }));
        let total: u64 = all.counts.iter().map(|(_, count)| count).sum();
        if total < 20 {
            continue;
        }
        // One of so many; beyond the number of operations there is nothing to say.
        let points: Vec<(f64, f64)> = (0..=60)
            .map(|step| 10_f64.powf(f64::from(step) / 10.0))
            .filter(|one_of| *one_of <= as_float(total))
            .filter_map(|one_of| {
                let quantile = (1.0 - 1.0 / one_of).max(0.001);
                Some((one_of, as_float(quantile_us(&all, quantile)?.max(1))))
            })
            .collect();
        lines.push((place, contender, points));
    }
    let all = || lines.iter().flat_map(|(_, _, points)| points);
    if all().count() < 2 {
        return String::new();
    }
    let furthest = all().map(|point| point.0).fold(10.0, f64::max);
    let low = all().map(|point| point.1).fold(f64::MAX, f64::min);
    let high = all().map(|point| point.1).fold(1.0, f64::max);
    let x = Scale::logarithmic(1.0, furthest, left, right);
    let y = Scale::logarithmic(low * 0.9, high * 1.1, bottom, top);
    let mut canvas = Canvas::new(width, bottom + 38.0);
    canvas.left_axis(&y, left, right, show_microseconds_tick);
    for (one_of, name) in [
        (2.0, "p50"),
        (10.0, "p90"),
        (100.0, "p99"),
        (1e3, "p99.9"),
        (1e4, "p99.99"),
        (1e5, "p99.999"),
    ] {
        if one_of <= furthest {
            let place = x.at(one_of);
            canvas.line("grid", (place, top), (place, bottom));
            // The last one may stand at the end of the axis, where half of it has no room.
            let anchor = if place + 22.0 > right {
                Anchor::End
            } else {
                Anchor::Middle
            };
            canvas.text("tick", (place, bottom + 16.0), anchor, name);
        }
    }
    canvas.text(
        "label",
        (f64::midpoint(left, right), bottom + 33.0),
        Anchor::Middle,
        "share of operations that are not slower",
    );
    for (place, contender, points) in &lines {
        let is_again = contender.verdict.is_none() && contender.ratio.is_some();
        let place = if is_again { 0 } else { *place };
        let course: Vec<(f64, f64)> = points
            .iter()
            .map(|(one_of, us)| (x.at(*one_of), y.at(*us)))
            .collect();
        canvas.path(
            &format!("average {}", colour(place, is_again)),
            &course,
            &contender.name,
        );
    }
    canvas.finish(&format!("Latencies, {}", workload.title))
}
