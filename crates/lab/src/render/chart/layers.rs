//! Bytes an operation at each layer, side by side: the gap between what the database asked for and
//! what the devices did is the cache, the copies and the log.

use super::{Anchor, Canvas, Scale, Width};
use crate::analyse::summary::WorkloadSummary;
use crate::quantity::show_size;

/// Draws the bytes an operation of every contender.
#[must_use]
pub fn layers(workload: &WorkloadSummary, width: Width) -> String {
    let pixels = width.pixels();
    let names = width == Width::Wide;
    let left = if names { 190.0 } else { 12.0 };
    // The text beside the longest bar needs its room.
    let right = pixels - if names { 190.0 } else { 96.0 };
    let most = workload
        .contenders
        .iter()
        .flat_map(|contender| &contender.layers)
        .flat_map(|(_, read, written)| [*read, *written])
        .fold(0.0, f64::max);
    let scale = Scale::linear(0.0, most, left, right);
    let mut y = 8.0;
    let mut canvas = Canvas::new(width, 0.0);
    for contender in &workload.contenders {
        if contender.layers.is_empty() {
            continue;
        }
        if names {
            canvas.text(
                "name",
                (left - 12.0, y + 14.0),
                Anchor::End,
                &contender.name,
            );
        } else {
            canvas.text("name", (left, y + 12.0), Anchor::Start, &contender.name);
            y += 20.0;
        }
        for (layer, read, written) in &contender.layers {
            for (way, class, value) in [("read", "read", *read), ("written", "written", *written)] {
                let what = format!("{layer}, {way}");
                let end = scale.at(value.max(0.0));
                canvas.rectangle(
                    &format!("bar {class} {layer}"),
                    (left, y),
                    (end - left, 11.0),
                    &format!("{}: {what}: {}", contender.name, show_size(value)),
                );
                canvas.text(
                    "tick",
                    (end + 5.0, y + 10.0),
                    Anchor::Start,
                    &format!("{} {}", label(layer, way, width), show_size(value)),
                );
                y += 14.0;
            }
        }
        y += 8.0;
    }
    canvas.height = y + 4.0;
    canvas.finish(&format!(
        "Bytes an operation at each layer, {}",
        workload.title
    ))
}

fn label(layer: &str, way: &str, width: Width) -> String {
    match width {
        Width::Wide => format!("{layer} {way}"),
        Width::Narrow => way.to_owned(),
    }
}
