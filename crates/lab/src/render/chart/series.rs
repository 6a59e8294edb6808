//! The pace over time: a thin line a run, a thick one for the moving average over all runs of a
//! contender; the warm-up is shaded, and strokes below, on a line for each contender, are checkpoints
//! and the ends of what went on beside the load.

use std::collections::BTreeMap;

use super::{Anchor, Canvas, Scale, Width, colour};
use crate::analyse::folder::Folder;
use crate::analyse::series::{mean, moving_average};
use crate::analyse::summary::{ContenderSummary, WorkloadSummary};
use crate::quantity::{as_float, show_tick, whole};
use crate::record::AGAIN;

/// Seconds of the moving average; long runs take a sixtieth of themselves.
#[must_use]
pub fn window(duration_s: f64) -> usize {
    whole(duration_s / 60.0)
        .and_then(|seconds| usize::try_from(seconds).ok())
        .map_or(3, |seconds| seconds.clamp(3, 60))
}

/// Moments of one kind: whose they are, by the place in the list of contenders, and the seconds.
struct Marks {
    title: &'static str,
    seconds: Vec<(usize, Vec<f64>)>,
}

/// What there is of each kind until `longest_s`.
fn marks(folder: &Folder, index: usize, workload: &WorkloadSummary, longest_s: f64) -> Vec<Marks> {
    let mut all = ["checkpoints", "done beside it"].map(|title| Marks {
        title,
        seconds: Vec::new(),
    });
    for run in &folder.runs {
        let (planned, Some(measured)) = (&run.run.planned, run.run.measured()) else {
            continue;
        };
        let mut contenders = workload.contenders.iter();
        let place = contenders.position(|contender| contender.name == planned.label);
        let Some(place) = place.filter(|_| planned.workload == index) else {
            continue;
        };
        let laps = measured.beside.iter().filter_map(|lap| lap.until_s);
        let laps = laps.map(|until_s| measured.warm_up_s + until_s).collect();
        for (marks, seconds) in all.iter_mut().zip([run.checkpoints(), laps]) {
            if seconds.iter().any(|second| *second <= longest_s) {
                marks.seconds.push((place, seconds));
            }
        }
    }
    let there = all.into_iter().filter(|marks| !marks.seconds.is_empty());
    there.collect()
}

/// Strokes at their seconds, each contender's on a line of its own, from `top` down.
fn draw_marks(canvas: &mut Canvas, workload: &WorkloadSummary, marks: &Marks, x: &Scale, top: f64) {
    canvas.text("tick", (x.start, top), Anchor::Start, marks.title);
    for (place, seconds) in &marks.seconds {
        let contender = &workload.contenders[*place];
        let y = top + 6.0 + as_float(*place as u64) * 7.0;
        let class = format!("stroke {}", class(*place, contender));
        for second in seconds.iter().filter(|second| **second <= x.until) {
            canvas.line(&class, (x.at(*second), y), (x.at(*second), y + 6.0));
        }
    }
}

fn class(place: usize, contender: &ContenderSummary) -> String {
    let is_again = contender.name.ends_with(AGAIN);
    colour(if is_again { 0 } else { place }, is_again)
}

/// A run of an hour has more seconds than a chart has pixels, and a page has its limits.
const POINTS_AT_MOST: usize = 240;

/// Neighbours together, so that at most [`POINTS_AT_MOST`] are left.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let together = points.len().div_ceil(POINTS_AT_MOST).max(1);
    points
        .chunks(together)
        .filter_map(|chunk| {
            let seconds: Vec<f64> = chunk.iter().map(|point| point.0).collect();
            let paces: Vec<f64> = chunk.iter().map(|point| point.1).collect();
            Some((mean(&seconds)?, mean(&paces)?))
        })
        .collect()
}

/// Draws the load with this index; empty where no run has three samples.
#[must_use]
pub fn series(folder: &Folder, index: usize, workload: &WorkloadSummary, width: Width) -> String {
    let pixels = width.pixels();
    let (left, right, top, bottom) = (64.0, pixels - 12.0, 12.0, 230.0);
    let mut lines = Vec::new();
    let (mut longest, mut most, mut warm_up) = (0.0_f64, 0.0_f64, 0.0_f64);
    for (place, contender) in workload.contenders.iter().enumerate() {
        let mut by_second: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for run in &folder.runs {
            let planned = &run.run.planned;
            if planned.workload != index || planned.label != contender.name {
                continue;
            }
            let points = run.pace(true);
            for (second, pace) in &points {
                by_second
                    .entry(whole(*second).unwrap_or(0))
                    .or_default()
                    .push(*pace);
                longest = longest.max(*second);
                most = most.max(*pace);
            }
            if let Some(measured) = run.run.measured() {
                warm_up = warm_up.max(measured.warm_up_s);
            }
            lines.push((place, contender, "raw", thinned(&points)));
        }
        let middle: Vec<(f64, f64)> = by_second
            .into_iter()
            .filter_map(|(second, paces)| Some((as_float(second), mean(&paces)?)))
            .collect();
        let smooth = moving_average(&middle, window(longest));
        lines.push((place, contender, "average", thinned(&smooth)));
    }
    if lines.iter().all(|(_, _, _, points)| points.len() < 3) {
        return String::new();
    }
    let x = Scale::linear(0.0, longest, left, right);
    let y = Scale::linear(0.0, most * 1.05, bottom, top);
    let marks = marks(folder, index, workload, longest);
    let height = as_float(workload.contenders.len() as u64) * 7.0 + 20.0;
    let below = as_float(marks.len() as u64) * height;
    let mut canvas = Canvas::new(width, bottom + 38.0 + below);
    canvas.rectangle(
        "warm-up",
        (left, top),
        (x.at(warm_up) - left, bottom - top),
        "warm-up",
    );
    canvas.left_axis(&y, left, right, show_tick);
    canvas.bottom_axis(&x, bottom, bottom + 4.0, show_tick);
    canvas.text(
        "label",
        (f64::midpoint(left, right), bottom + 33.0),
        Anchor::Middle,
        "seconds",
    );
    for (row, marks) in marks.iter().enumerate() {
        let top = bottom + 50.0 + as_float(row as u64) * height;
        draw_marks(&mut canvas, workload, marks, &x, top);
    }
    for style in ["raw", "average"] {
        for (place, contender, own, points) in &lines {
            if *own != style {
                continue;
            }
            let course: Vec<(f64, f64)> = points
                .iter()
                .map(|(second, pace)| (x.at(*second), y.at(*pace)))
                .collect();
            canvas.path(
                &format!("{style} {}", class(*place, contender)),
                &course,
                &contender.name,
            );
        }
    }
    canvas.finish(&format!("Pace over time, {}", workload.title))
}
