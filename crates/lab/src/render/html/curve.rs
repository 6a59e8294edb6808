//! The section of a `[[workload]]` with several numbers of users: the curve first, then each of its
//! loads, folded away until a reader wants it.

use std::ops::Range;

use super::sections::{figure, folded, legend};
use crate::analyse::folder::Folder;
use crate::analyse::summary::{ContenderCurve, Curve, Summary};
use crate::quantity::{show_microseconds, show_number};
use crate::render::chart::{both, escaped, latencies_by_share, latencies_by_users, rates_by_users};

/// The section; `loads` are the places of its loads in the summary.
pub(super) fn section(
    folder: &Folder,
    summary: &Summary,
    curve: &Curve,
    loads: Range<usize>,
) -> String {
    let mut text = format!("<section><h2>{}</h2>", escaped(&curve.title));
    let names: Vec<&str> = curve
        .contenders
        .iter()
        .map(|contender| contender.name.as_str())
        .collect();
    let legend = legend(&names);
    let rates = both(|width| rates_by_users(curve, width));
    if !rates.is_empty() {
        let note = format!(
            "{}, by users at once, each point with its interval over the blocks. \
             Lines: the universal scalability law through the points. Rings: the knee, where the slope of one user \
             meets the highest rate of that curve.",
            escaped(&curve.unit)
        );
        text.push_str(&figure("h3", "Scaling", &note, &format!("{legend}{rates}")));
        text.push_str(&knees(curve));
        let latencies = both(|width| latencies_by_users(curve, width));
        let note = "The mean; past the knee more users bring waiting.";
        text.push_str(&figure(
            "h3",
            "Latency by users",
            note,
            &format!("{legend}{latencies}"),
        ));
    }
    let open = both(|width| latencies_by_share(curve, width));
    if !open.is_empty() {
        let peak = match (&curve.slowest, curve.slowest_per_s) {
            (Some(name), Some(per_s)) => format!(
                "Operations arrive by chance, the same number a second for all: shares of {} a second, the peak of {}, \
                 which is the slowest of the first block. ",
                show_number(per_s),
                escaped(name)
            ),
            _ => String::new(),
        };
        let note = format!(
            "{peak}Latency from the intended start: lines the mean with its interval, dashed the slowest of a hundred."
        );
        text.push_str(&figure(
            "h3",
            "Open load",
            &note,
            &format!("{legend}{open}"),
        ));
    }
    text.push_str(&folded(folder, summary, loads));
    text.push_str("</section>");
    text
}

fn knees(curve: &Curve) -> String {
    let mut text = "<div class=\"scroll\"><table><thead><tr><th>contender</th><th>peak</th><th>at users</th>\
         <th>knee at users</th><th>interval</th><th>one user alone</th><th>contention</th><th>coherency</th>\
         <th>mean at peak</th></tr></thead><tbody>"
        .to_owned();
    for contender in &curve.contenders {
        text.push_str(&row(contender));
    }
    text.push_str("</tbody></table></div>");
    text
}

fn row(contender: &ContenderCurve) -> String {
    let dash = || "&ndash;".to_owned();
    let most = contender.points.last().map_or(0, |point| point.users);
    let knee = match (contender.knee, &contender.fit) {
        (Some(knee), _) => format!("{:.1}", knee.users),
        (None, Some(_)) => format!("beyond {most}"),
        (None, None) => dash(),
    };
    let interval = contender
        .knee
        .and_then(|knee| Some(format!("{:.1} to {:.1}", knee.low?, knee.high?)));
    let at_peak = contender
        .points
        .iter()
        .find(|point| Some(point.users) == contender.peak_users)
        .and_then(|point| point.latency_mean_us);
    let fitted = |of: fn(&crate::analyse::scaling::Fit) -> f64| contender.fit.as_ref().map(of);
    format!(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{knee}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
        escaped(&contender.name),
        contender.peak.map_or_else(dash, show_number),
        contender
            .peak_users
            .map_or_else(dash, |users| users.to_string()),
        interval.unwrap_or_else(dash),
        fitted(|fit| fit.per_user).map_or_else(dash, show_number),
        fitted(|fit| fit.contention).map_or_else(dash, |share| format!("{:.1} %", share * 100.0)),
        fitted(|fit| fit.coherency).map_or_else(dash, |share| format!("{:.3} %", share * 100.0)),
        at_peak.map_or_else(dash, show_microseconds),
    )
}
