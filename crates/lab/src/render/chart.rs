//! The parts of every chart: scales, ticks, a canvas that becomes SVG.
//!
//! A chart is drawn twice, wide and narrow, and the page shows the one that fits: scaled down, its
//! letters would be too small to read on a phone. Colours are named classes of the page's style
//! sheet, so that light and dark differ in one place. Marks carry a title, which browsers show when
//! one points at it.

mod distribution;
mod layers;
mod rates;
mod ratio;
mod scaling;
mod series;
mod sessions;

use std::fmt::Write as _;

pub use distribution::distribution;
pub use layers::layers;
pub use rates::rates;
pub use ratio::{ratios, reach};
pub use scaling::{latencies_by_share, latencies_by_users, rates_by_users};
pub use series::{series, window};
pub use sessions::{KINDS as SESSION_KINDS, sessions};

/// How wide a chart is, in the page's pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// For a desktop and for paper.
    Wide,
    /// For a phone.
    Narrow,
}

impl Width {
    fn pixels(self) -> f64 {
        match self {
            Self::Wide => 860.0,
            Self::Narrow => 340.0,
        }
    }

    fn class(self) -> &'static str {
        match self {
            Self::Wide => "wide",
            Self::Narrow => "narrow",
        }
    }

    /// How many ticks have room.
    fn ticks(self) -> usize {
        match self {
            Self::Wide => 8,
            Self::Narrow => 4,
        }
    }
}

/// A chart in both widths.
#[must_use]
pub fn both(draw: impl Fn(Width) -> String) -> String {
    [Width::Wide, Width::Narrow].map(draw).concat()
}

/// From values to pixels.
#[derive(Debug, Clone, Copy)]
struct Scale {
    from: f64,
    until: f64,
    start: f64,
    end: f64,
    is_logarithmic: bool,
}

impl Scale {
    fn linear(from: f64, until: f64, start: f64, end: f64) -> Self {
        // A range of nothing would divide by zero.
        let until = if until > from { until } else { from + 1.0 };
        Self {
            from,
            until,
            start,
            end,
            is_logarithmic: false,
        }
    }

    fn logarithmic(from: f64, until: f64, start: f64, end: f64) -> Self {
        let from = from.max(1e-9);
        Self {
            until: if until > from { until } else { from * 2.0 },
            from,
            start,
            end,
            is_logarithmic: true,
        }
    }

    fn at(&self, value: f64) -> f64 {
        let share = if self.is_logarithmic {
            (value.max(1e-9) / self.from).ln() / (self.until / self.from).ln()
        } else {
            (value - self.from) / (self.until - self.from)
        };
        self.start + share.clamp(0.0, 1.0) * (self.end - self.start)
    }

    /// Round values within the range, about `wanted` of them.
    fn ticks(&self, wanted: usize) -> Vec<f64> {
        if self.is_logarithmic {
            for steps in [&[1.0, 2.0, 5.0][..], &[1.0, 3.0], &[1.0]] {
                let ticks = self.decades(steps);
                if ticks.len() <= wanted {
                    return ticks;
                }
            }
            let all = self.decades(&[1.0]);
            let every = all.len().div_ceil(wanted.max(1));
            return all.into_iter().step_by(every).collect();
        }
        let rough = (self.until - self.from) / crate::quantity::as_float(wanted.max(1) as u64);
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0]
            .into_iter()
            .map(|factor| factor * power)
            .find(|step| *step >= rough)
            .unwrap_or(power);
        let mut ticks = Vec::new();
        let mut tick = (self.from / step).ceil() * step;
        while tick <= self.until + step * 1e-6 && ticks.len() < 50 {
            ticks.push(tick);
            tick += step;
        }
        ticks
    }

    fn decades(&self, steps: &[f64]) -> Vec<f64> {
        let mut ticks = Vec::new();
        let mut power = 10_f64.powf(self.from.log10().floor());
        while power <= self.until && ticks.len() < 200 {
            ticks.extend(
                steps
                    .iter()
                    .map(|step| step * power)
                    .filter(|tick| (self.from..=self.until).contains(tick)),
            );
            power *= 10.0;
        }
        ticks
    }
}

/// Where a text is held.
#[derive(Debug, Clone, Copy)]
enum Anchor {
    Start,
    Middle,
    End,
}

/// An SVG that grows.
struct Canvas {
    width: Width,
    height: f64,
    body: String,
}

impl Canvas {
    fn new(width: Width, height: f64) -> Self {
        Self {
            width,
            height,
            body: String::new(),
        }
    }

    fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let _ = write!(
            self.body,
            "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    fn rectangle(&mut self, class: &str, corner: (f64, f64), size: (f64, f64), title: &str) {
        let _ = write!(
            self.body,
            "<rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\">{}</rect>",
            corner.0,
            corner.1,
            size.0.max(0.0),
            size.1.max(0.0),
            titled(title)
        );
    }

    fn dot(&mut self, class: &str, at: (f64, f64), radius: f64, title: &str) {
        let _ = write!(
            self.body,
            "<circle class=\"{class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius:.1}\">{}</circle>",
            at.0,
            at.1,
            titled(title)
        );
    }

    fn path(&mut self, class: &str, points: &[(f64, f64)], title: &str) {
        if points.len() < 2 {
            return;
        }
        let mut course = String::new();
        for (index, (x, y)) in points.iter().enumerate() {
            let _ = write!(
                course,
                "{}{x:.1} {y:.1}",
                if index == 0 { "M" } else { "L" }
            );
        }
        let _ = write!(
            self.body,
            "<path class=\"{class}\" d=\"{course}\">{}</path>",
            titled(title)
        );
    }

    fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let _ = write!(
            self.body,
            "<text class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            at.0,
            at.1,
            escaped(text)
        );
    }

    /// Vertical grid lines with their values below.
    fn bottom_axis(&mut self, scale: &Scale, top: f64, bottom: f64, show: impl Fn(f64) -> String) {
        for tick in scale.ticks(self.width.ticks()) {
            let x = scale.at(tick);
            self.line("grid", (x, top), (x, bottom));
            self.text("tick", (x, bottom + 16.0), Anchor::Middle, &show(tick));
        }
    }

    /// Horizontal grid lines with their values to the left.
    fn left_axis(&mut self, scale: &Scale, left: f64, right: f64, show: impl Fn(f64) -> String) {
        for tick in scale.ticks(5) {
            let y = scale.at(tick);
            self.line("grid", (left, y), (right, y));
            self.text("tick", (left - 6.0, y + 4.0), Anchor::End, &show(tick));
        }
    }

    fn finish(self, description: &str) -> String {
        let pixels = self.width.pixels();
        format!(
            "<svg class=\"chart {}\" role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {pixels} {:.0}\" width=\"{pixels}\" height=\"{:.0}\">{}</svg>",
            self.width.class(),
            escaped(description),
            self.height,
            self.height,
            self.body
        )
    }
}

fn titled(title: &str) -> String {
    if title.is_empty() {
        String::new()
    } else {
        format!("<title>{}</title>", escaped(title))
    }
}

/// Text that may stand in HTML.
#[must_use]
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// The class of a contender's colour: the same in every chart. The baseline's second name has the
/// baseline's colour, dashed.
#[must_use]
pub fn colour(index: usize, is_again: bool) -> String {
    let dashed = if is_again { " again" } else { "" };
    format!("c{}{dashed}", index % 8 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within_the_range() {
        let linear = Scale::linear(0.0, 97.0, 0.0, 100.0);
        assert_eq!(linear.ticks(5), [0.0, 20.0, 40.0, 60.0, 80.0]);
        assert!((linear.at(48.5) - 50.0).abs() < 1e-9);
        let logarithmic = Scale::logarithmic(1.0, 1000.0, 0.0, 90.0);
        assert_eq!(logarithmic.ticks(4), [1.0, 10.0, 100.0, 1000.0]);
        assert!((logarithmic.at(10.0) - 30.0).abs() < 1e-9);
        // A range of nothing still is a scale.
        assert!(Scale::linear(3.0, 3.0, 0.0, 1.0).at(3.0).is_finite());
    }

    #[test]
    fn text_cannot_break_out() {
        assert_eq!(escaped("<a & \"b\">"), "&lt;a &amp; &quot;b&quot;&gt;");
    }
}
