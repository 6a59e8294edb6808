//! The ratio plot: every contender's interval against the baseline, the margin of equivalence, and
//! the noise that the baseline shows against itself. What keeps another number of copies stands
//! below, under the name of what it is compared with.

use super::{Anchor, Canvas, Scale, Width, colour};
use crate::analyse::summary::{ContenderSummary, Ratio, Summary, WorkloadSummary};

const ROW: f64 = 28.0;
/// In pixels, from the middle of one figure below the axis to that of the next.
const ROOM_OF_A_TICK: f64 = 36.0;
/// Over those that are compared with something else than the baseline.
const HEADING: f64 = 26.0;

/// The ratio at the end of the axis, the same for every load: its other end is as far from one.
#[must_use]
pub fn reach(summary: &Summary) -> f64 {
    let least = (1.0 + 2.0 * summary.margin).ln();
    (summary.workloads.iter())
        .flat_map(|load| &load.contenders)
        .filter_map(|contender| contender.ratio)
        .flat_map(|ratio| [Some(ratio.centre), ratio.low, ratio.high])
        .flatten()
        .map(|end| end.ln().abs())
        .fold(least, f64::max)
        .exp()
        * 1.03
}

/// Draws the ratios of one load; nothing where it has none. `margin` is 0.05 for 0.95 to 1.05,
/// `reach` the end of the axis.
#[must_use]
pub fn ratios(workload: &WorkloadSummary, margin: f64, reach: f64, width: Width) -> String {
    let mut rows: Vec<_> = workload
        .contenders
        .iter()
        .enumerate()
        .filter_map(|(index, contender)| Some((index, contender, contender.ratio?)))
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let baseline = workload
        .contenders
        .first()
        .map_or("", |contender| contender.name.as_str());
    // The sort is stable: each group stays in the order of the experiment.
    rows.sort_by_key(|(_, contender, _)| {
        let is_it = |other: &&ContenderSummary| Some(&other.name) == contender.against.as_ref();
        workload.contenders.iter().position(|other| is_it(&other))
    });
    let heading = |index: usize| -> Option<&str> {
        let against = |index: usize| rows.get(index)?.1.against.as_deref();
        let own = against(index)?;
        let before = match index.checked_sub(1) {
            Some(before) => against(before),
            None => Some(baseline),
        };
        (before != Some(own)).then_some(own)
    };
    let pixels = width.pixels();
    let (left, right, top) = match width {
        Width::Wide => (190.0, pixels - 130.0, 12.0),
        Width::Narrow => (12.0, pixels - 12.0, 12.0),
    };
    let row = if width == Width::Wide {
        ROW
    } else {
        ROW + 14.0
    };
    let bottom = (0..rows.len()).fold(top, |y, index| {
        y + row + heading(index).map_or(0.0, |_| HEADING)
    });
    let scale = Scale::logarithmic(1.0 / reach, reach, left, right);
    let mut canvas = Canvas::new(width, bottom + 38.0);
    draw_axis(&mut canvas, &scale, margin, (top, bottom));
    let sides = (left, right);
    let mut y = top - row / 2.0;
    for (place, (index, contender, ratio)) in rows.iter().enumerate() {
        if let Some(against) = heading(place) {
            y += HEADING;
            canvas.text(
                "label",
                (12.0, y + row / 2.0 - 8.0),
                Anchor::Start,
                &format!("against {against}, which keeps as many copies:"),
            );
        }
        y += row;
        draw_row(&mut canvas, &scale, sides, y, (*index, contender, *ratio));
    }
    canvas.finish(&format!("Ratios to the baseline, {}", workload.title))
}

/// The margin of equivalence, the grid, and the line of one.
fn draw_axis(canvas: &mut Canvas, scale: &Scale, margin: f64, (top, bottom): (f64, f64)) {
    let (from, until) = (scale.at(1.0 - margin), scale.at(1.0 + margin));
    canvas.rectangle(
        "margin",
        (from, top),
        (until - from, bottom - top),
        &format!("equivalent: {:.2} to {:.2}", 1.0 - margin, 1.0 + margin),
    );
    for tick in ticks(scale) {
        let x = scale.at(tick);
        canvas.line("grid", (x, top), (x, bottom));
        canvas.text(
            "tick",
            (x, bottom + 16.0),
            Anchor::Middle,
            &format!("{tick:.2}"),
        );
    }
    canvas.line("one", (scale.at(1.0), top), (scale.at(1.0), bottom));
    let (one, below) = (scale.at(1.0), bottom + 33.0);
    canvas.text("label", (one - 10.0, below), Anchor::End, "\u{2190} slower");
    canvas.text(
        "label",
        (one + 10.0, below),
        Anchor::Start,
        "faster \u{2192}",
    );
}

/// One contender: name, interval, verdict.
fn draw_row(
    canvas: &mut Canvas,
    scale: &Scale,
    (left, right): (f64, f64),
    y: f64,
    (index, contender, ratio): (usize, &ContenderSummary, Ratio),
) {
    let is_again = contender.verdict.is_none();
    let class = colour(if is_again { 0 } else { index }, is_again);
    let word = contender.verdict.map_or("noise", |verdict| verdict.word());
    let mark_y = if canvas.width == Width::Wide {
        canvas.text("name", (left - 12.0, y + 4.0), Anchor::End, &contender.name);
        canvas.text("verdict", (right + 12.0, y + 4.0), Anchor::Start, word);
        y
    } else {
        canvas.text("name", (left, y - 6.0), Anchor::Start, &contender.name);
        canvas.text("verdict", (right, y - 6.0), Anchor::End, word);
        y + 10.0
    };
    if let (Some(low), Some(high)) = (ratio.low, ratio.high) {
        let (from, until) = (scale.at(low), scale.at(high));
        let class = format!("interval {class}");
        canvas.line(&class, (from, mark_y), (until, mark_y));
        for end in [from, until] {
            canvas.line(&class, (end, mark_y - 5.0), (end, mark_y + 5.0));
        }
    }
    canvas.dot(
        &format!("mark {class}"),
        (scale.at(ratio.centre), mark_y),
        5.0,
        &format!("{}: {:.3}", contender.name, ratio.centre),
    );
}

/// Round ratios on both sides of one: the finest whose figures have room.
fn ticks(scale: &Scale) -> Vec<f64> {
    const CANDIDATES: [&[f64]; 7] = [
        &[0.92, 0.94, 0.96, 0.98, 1.0, 1.02, 1.04, 1.06, 1.08],
        &[0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.15],
        &[0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4],
        &[0.5, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0],
        &[0.25, 0.33, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0],
        &[0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0],
        &[0.01, 0.1, 1.0, 10.0, 100.0],
    ];
    let within = |ticks: &[f64]| -> Vec<f64> {
        ticks
            .iter()
            .copied()
            .filter(|tick| (scale.from..=scale.until).contains(tick))
            .collect()
    };
    let has_room = |ticks: &[f64]| {
        (ticks.windows(2)).all(|pair| scale.at(pair[1]) - scale.at(pair[0]) >= ROOM_OF_A_TICK)
    };
    CANDIDATES
        .into_iter()
        .filter(|ticks| {
            // What ends in the middle of the axis leaves its ends without a figure.
            let reaches =
                |end: Option<&f64>| end.is_some_and(|end| end.ln().abs() * 1.6 >= scale.until.ln());
            reaches(ticks.first()) && reaches(ticks.last())
        })
        .map(within)
        .find(|ticks| has_room(ticks))
        .unwrap_or_else(|| vec![1.0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_lies_in_the_middle_and_half_as_far_away_as_twice() {
        for reach in [1.05, 1.3, 2.0, 4.0, 30.0] {
            for (start, end) in [(190.0, 730.0), (12.0, 328.0)] {
                let scale = Scale::logarithmic(1.0 / reach, reach, start, end);
                assert!((scale.at(1.0) - f64::midpoint(start, end)).abs() < 1e-9);
                let (less, more) = (scale.at(1.0 / 1.04), scale.at(1.04));
                assert!((scale.at(1.0) - less - (more - scale.at(1.0))).abs() < 1e-9);
                let ticks = ticks(&scale);
                assert!(ticks.contains(&1.0), "{reach}: {ticks:?}");
                assert!(ticks.len() >= 3, "{reach}: {ticks:?}");
                assert!(
                    ticks.iter().any(|tick| *tick < 1.0) && ticks.iter().any(|tick| *tick > 1.0)
                );
            }
        }
    }
}
