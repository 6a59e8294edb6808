//! The scaling curve: rate against users with the interval of each point, the fitted law as a thin
//! line, the knee as a ring on it; below it how long an operation takes. And how long operations take
//! that arrive at shares of the slowest contender's peak.

use super::{Anchor, Canvas, Scale, Width, colour};
use crate::analyse::summary::{ContenderCurve, Curve};
use crate::quantity::{
    as_float, show_microseconds, show_microseconds_tick, show_number, show_tick,
};
use crate::record::AGAIN;

const HEIGHT: f64 = 250.0;

/// Where a chart's axes lie.
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Frame {
    fn new(width: Width) -> Self {
        Self {
            left: 70.0,
            right: width.pixels() - 16.0,
            top: 12.0,
            bottom: HEIGHT,
        }
    }

    fn name_below(&self, canvas: &mut Canvas, name: &str) {
        let middle = f64::midpoint(self.left, self.right);
        canvas.text("label", (middle, self.bottom + 33.0), Anchor::Middle, name);
    }
}

/// A contender's place in the colours, and whether it is the baseline's second name.
fn style(index: usize, contender: &ContenderCurve) -> String {
    let is_again = contender.name.ends_with(AGAIN);
    colour(if is_again { 0 } else { index }, is_again)
}

/// A few pixels to the side for each contender, so that intervals at one number of users do not
/// cover each other.
fn shift(index: usize, count: usize) -> f64 {
    (as_float(index as u64) - (as_float(count as u64) - 1.0) / 2.0) * 3.0
}

/// Draws the rates of the closed loads; empty for fewer than two numbers of users.
#[must_use]
pub fn rates_by_users(curve: &Curve, width: Width) -> String {
    let Some(x) = users_scale(curve, width) else {
        return String::new();
    };
    let frame = Frame::new(width);
    let most = curve
        .contenders
        .iter()
        .flat_map(|contender| &contender.points)
        .map(|point| point.high.unwrap_or(point.rate).max(point.rate))
        .fold(0.0, f64::max);
    let y = Scale::linear(0.0, most * 1.08, frame.bottom, frame.top);
    let mut canvas = Canvas::new(width, frame.bottom + 38.0);
    canvas.left_axis(&y, frame.left, frame.right, show_tick);
    users_axis(&mut canvas, &frame, &x, curve);
    let count = curve.contenders.len();
    for (index, contender) in curve.contenders.iter().enumerate() {
        let class = style(index, contender);
        if let Some(fit) = &contender.fit {
            let course: Vec<(f64, f64)> = (0..=60)
                .map(|step| x.from * (x.until / x.from).powf(f64::from(step) / 60.0))
                .map(|users| (x.at(users), y.at(fit.rate(users))))
                .collect();
            canvas.path(&format!("average {class}"), &course, &contender.name);
        }
        for point in &contender.points {
            let place = x.at(f64::from(point.users)) + shift(index, count);
            if let (Some(low), Some(high)) = (point.low, point.high) {
                let class = format!("interval {class}");
                canvas.line(&class, (place, y.at(low)), (place, y.at(high)));
            }
            canvas.dot(
                &format!("mark {class}"),
                (place, y.at(point.rate)),
                4.0,
                &format!(
                    "{}, {} users: {}",
                    contender.name,
                    point.users,
                    show_number(point.rate)
                ),
            );
        }
    }
    // The rings come last, so that no line covers one.
    for (index, contender) in curve.contenders.iter().enumerate() {
        if let (Some(knee), Some(fit)) = (contender.knee, &contender.fit) {
            canvas.dot(
                &format!("knee {}", style(index, contender)),
                (x.at(knee.users), y.at(fit.rate(knee.users))),
                9.0,
                &format!("{}: knee at {:.1} users", contender.name, knee.users),
            );
        }
    }
    canvas.finish(&format!("Rate by users, {}", curve.title))
}

/// Draws the mean latencies of the closed loads; empty for fewer than two numbers of users.
#[must_use]
pub fn latencies_by_users(curve: &Curve, width: Width) -> String {
    let Some(x) = users_scale(curve, width) else {
        return String::new();
    };
    let frame = Frame::new(width);
    let values: Vec<f64> = curve
        .contenders
        .iter()
        .flat_map(|contender| &contender.points)
        .filter_map(|point| point.latency_mean_us)
        .collect();
    let Some(y) = latency_scale(&values, &frame) else {
        return String::new();
    };
    let mut canvas = Canvas::new(width, frame.bottom + 38.0);
    canvas.left_axis(&y, frame.left, frame.right, show_microseconds_tick);
    users_axis(&mut canvas, &frame, &x, curve);
    for (index, contender) in curve.contenders.iter().enumerate() {
        let class = style(index, contender);
        let points: Vec<(f64, f64, String)> = contender
            .points
            .iter()
            .filter_map(|point| {
                let us = point.latency_mean_us?;
                let title = format!(
                    "{}, {} users: {}",
                    contender.name,
                    point.users,
                    show_microseconds(us)
                );
                Some((x.at(f64::from(point.users)), y.at(us), title))
            })
            .collect();
        line_with_marks(&mut canvas, &class, &contender.name, &points);
    }
    canvas.finish(&format!("Mean latency by users, {}", curve.title))
}

/// Draws the mean latencies of the open loads with their intervals, and the slowest of a hundred
/// operations dashed; empty where there are none.
#[must_use]
pub fn latencies_by_share(curve: &Curve, width: Width) -> String {
    let frame = Frame::new(width);
    let points = || curve.contenders.iter().flat_map(|curve| &curve.open);
    let values: Vec<f64> = points()
        .flat_map(|point| {
            [
                Some(point.latency_mean_us),
                point.low,
                point.high,
                point.latency_p99_us.map(as_float),
            ]
        })
        .flatten()
        .collect();
    let Some(y) = latency_scale(&values, &frame) else {
        return String::new();
    };
    let mut shares: Vec<u32> = points().map(|point| point.percent).collect();
    shares.sort_unstable();
    shares.dedup();
    let x = Scale::linear(
        f64::from(shares.first().copied().unwrap_or(0)) - 10.0,
        f64::from(shares.last().copied().unwrap_or(0)) + 10.0,
        frame.left,
        frame.right,
    );
    let mut canvas = Canvas::new(width, frame.bottom + 38.0);
    canvas.left_axis(&y, frame.left, frame.right, show_microseconds_tick);
    for share in shares {
        let place = x.at(f64::from(share));
        canvas.line("grid", (place, frame.top), (place, frame.bottom));
        canvas.text(
            "tick",
            (place, frame.bottom + 16.0),
            Anchor::Middle,
            &format!("{share} %"),
        );
    }
    frame.name_below(&mut canvas, "arrivals, of the slowest contender's peak");
    let count = curve.contenders.len();
    for (index, contender) in curve.contenders.iter().enumerate() {
        let class = style(index, contender);
        let at = |percent: u32| x.at(f64::from(percent)) + shift(index, count);
        for point in &contender.open {
            if let (Some(low), Some(high)) = (point.low, point.high) {
                let place = at(point.percent);
                canvas.line(
                    &format!("interval {class}"),
                    (place, y.at(low)),
                    (place, y.at(high)),
                );
            }
        }
        let means: Vec<(f64, f64, String)> = contender
            .open
            .iter()
            .map(|point| {
                let title = format!(
                    "{}, {} %: mean {}",
                    contender.name,
                    point.percent,
                    show_microseconds(point.latency_mean_us)
                );
                (at(point.percent), y.at(point.latency_mean_us), title)
            })
            .collect();
        line_with_marks(&mut canvas, &class, &contender.name, &means);
        let slowest: Vec<(f64, f64)> = contender
            .open
            .iter()
            .filter_map(|point| Some((at(point.percent), y.at(as_float(point.latency_p99_us?)))))
            .collect();
        canvas.path(
            &format!("tail {class}"),
            &slowest,
            &format!("{}: p99", contender.name),
        );
    }
    canvas.finish(&format!("Latency of open loads, {}", curve.title))
}

fn line_with_marks(canvas: &mut Canvas, class: &str, name: &str, points: &[(f64, f64, String)]) {
    let course: Vec<(f64, f64)> = points.iter().map(|(x, y, _)| (*x, *y)).collect();
    canvas.path(&format!("average {class}"), &course, name);
    for (x, y, title) in points {
        canvas.dot(&format!("mark {class}"), (*x, *y), 4.0, title);
    }
}

/// Users on a scale of doublings, as they are usually chosen.
fn users_scale(curve: &Curve, width: Width) -> Option<Scale> {
    let frame = Frame::new(width);
    let users = all_users(curve);
    let (first, last) = (*users.first()?, *users.last()?);
    (users.len() > 1).then(|| {
        // Room for what is drawn a little to the side.
        let (first, last) = (f64::from(first) * 0.9, f64::from(last) * 1.1);
        Scale::logarithmic(first, last, frame.left, frame.right)
    })
}

fn all_users(curve: &Curve) -> Vec<u32> {
    let mut users: Vec<u32> = curve
        .contenders
        .iter()
        .flat_map(|contender| &contender.points)
        .map(|point| point.users)
        .collect();
    users.sort_unstable();
    users.dedup();
    users
}

fn users_axis(canvas: &mut Canvas, frame: &Frame, x: &Scale, curve: &Curve) {
    let mut free_from = f64::NEG_INFINITY;
    for users in all_users(curve) {
        let place = x.at(f64::from(users));
        canvas.line("grid", (place, frame.top), (place, frame.bottom));
        // Numbers that would touch each other are left out.
        if place >= free_from {
            canvas.text(
                "tick",
                (place, frame.bottom + 16.0),
                Anchor::Middle,
                &users.to_string(),
            );
            free_from = place + 24.0;
        }
    }
    frame.name_below(canvas, "users at once");
}

fn latency_scale(values: &[f64], frame: &Frame) -> Option<Scale> {
    if values.is_empty() {
        return None;
    }
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(1.0, f64::max);
    // Where all are nearly the same the axis would have no number: at least a range of ten.
    let (low, high) = (low.max(1.0) * 0.8, high * 1.2);
    let widen = (10.0 / (high / low)).max(1.0).sqrt();
    Some(Scale::logarithmic(
        low / widen,
        high * widen,
        frame.bottom,
        frame.top,
    ))
}
