//! Every run as a dot, in its block: what the ratios were made from. A block's dots move together
//! where the machine moved.

use std::collections::BTreeMap;

use super::{Anchor, Canvas, Scale, Width, colour};
use crate::analyse::folder::Folder;
use crate::analyse::summary::WorkloadSummary;
use crate::quantity::{as_float, show_number, show_tick};
use crate::record::AGAIN;

/// Draws the runs of the load with this index.
#[must_use]
pub fn rates(folder: &Folder, index: usize, workload: &WorkloadSummary, width: Width) -> String {
    let order: BTreeMap<&str, usize> = workload
        .contenders
        .iter()
        .enumerate()
        .map(|(index, contender)| (contender.name.as_str(), index))
        .collect();
    let runs: Vec<_> = folder
        .runs
        .iter()
        .filter(|run| run.run.planned.workload == index)
        .filter_map(|run| Some((&run.run.planned, run.run.measured()?.rate)))
        .collect();
    let most = runs.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let pixels = width.pixels();
    let (left, right, top, bottom) = (64.0, pixels - 12.0, 12.0, 200.0);
    let y = Scale::linear(0.0, most * 1.08, bottom, top);
    let blocks = folder.experiment.blocks;
    let mut canvas = Canvas::new(width, bottom + 38.0);
    canvas.left_axis(&y, left, right, show_tick);
    let column = (right - left) / f64::from(blocks.max(1));
    // Thin out the numbers where there are many blocks.
    let every = blocks
        .div_ceil(if width == Width::Wide { 30 } else { 10 })
        .max(1);
    for block in 1..=blocks {
        let x = left + column * (f64::from(block) - 0.5);
        if (block - 1) % every == 0 {
            canvas.text(
                "tick",
                (x, bottom + 16.0),
                Anchor::Middle,
                &block.to_string(),
            );
        }
    }
    canvas.text(
        "label",
        (f64::midpoint(left, right), bottom + 33.0),
        Anchor::Middle,
        &format!("block (each dot a run, {})", workload.unit),
    );
    let count = as_float(order.len() as u64).max(1.0);
    for (planned, rate) in runs {
        let Some(place) = order.get(planned.label.as_str()) else {
            continue;
        };
        let is_again = planned.label.ends_with(AGAIN);
        let shift = (as_float(*place as u64) + 0.5) / count - 0.5;
        let x = left + column * (f64::from(planned.block) - 0.5 + shift * 0.7);
        let index = if is_again { 0 } else { *place };
        canvas.dot(
            &format!("mark {}", colour(index, is_again)),
            (x, y.at(rate)),
            4.5,
            &format!(
                "{}, block {}: {}",
                planned.label,
                planned.block,
                show_number(rate)
            ),
        );
    }
    canvas.finish(&format!("Every run by block, {}", workload.title))
}
