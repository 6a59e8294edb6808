//! The loads of one `[[workload]]` with several numbers of users together: the scaling curve with
//! its knee, and how long operations take when they arrive at shares of the slowest peak.

use serde::{Deserialize, Serialize};

use super::runs_of;
use crate::analyse::folder::Folder;
use crate::analyse::interval::{centre, interval};
use crate::analyse::latency::{mean_us, merged, quantile_us};
use crate::analyse::scaling::{Fit, fit, knee_interval};
use crate::analyse::series::mean;
use crate::record::Measured;

/// What several loads of one `[[workload]]` show together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// What the loads share of their names.
    pub title: String,
    /// Which `[[workload]]` of the file, from 0.
    pub family: usize,
    /// Of the closed loads.
    pub unit: String,
    /// As in the loads.
    pub contenders: Vec<ContenderCurve>,
    /// Whose peak the open loads are a share of; none where there are none.
    pub slowest: Option<String>,
    /// That peak, in operations a second.
    pub slowest_per_s: Option<f64>,
}

/// A contender's curve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContenderCurve {
    /// Its name.
    pub name: String,
    /// By growing numbers of users.
    pub points: Vec<CurvePoint>,
    /// The highest of the points.
    pub peak: Option<f64>,
    /// With how many users.
    pub peak_users: Option<u32>,
    /// The universal scalability law through the points; none for fewer than three.
    pub fit: Option<Fit>,
    /// From how many users on more of them bring little; none where they were not that many.
    pub knee: Option<Knee>,
    /// By growing shares of the slowest peak.
    pub open: Vec<OpenPoint>,
}

/// Where the curve bends.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Knee {
    /// Users; between two whole numbers, as the curve is.
    pub users: f64,
    /// The lower end of its interval over the blocks; none for too few.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
}

/// A point of the curve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Users at once.
    pub users: u32,
    /// The middle of the runs.
    pub rate: f64,
    /// The lower end of its interval over the blocks; none for too few.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
    /// Microseconds on average.
    pub latency_mean_us: Option<f64>,
    /// Microseconds that one of a hundred exceeds.
    pub latency_p99_us: Option<u64>,
}

/// An open load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenPoint {
    /// Of the slowest contender's peak.
    pub percent: u32,
    /// Arrivals a second, for all contenders.
    pub arrivals_per_s: Option<f64>,
    /// Microseconds on average, the middle of the runs, from the intended start.
    pub latency_mean_us: f64,
    /// The lower end of its interval over the blocks; none for too few.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
    /// Microseconds that one of a hundred exceeds.
    pub latency_p99_us: Option<u64>,
}

/// The curves of every `[[workload]]` that has more than one load.
pub(super) fn curves(folder: &Folder, labels: &[String]) -> Vec<Curve> {
    let workloads = &folder.experiment.workloads;
    let families = workloads.last().map_or(0, |last| last.family + 1);
    (0..families)
        .filter(|family| {
            let loads: Vec<_> = (workloads.iter())
                .filter(|workload| workload.family == *family && workload.beside.is_none())
                .collect();
            // Of several sizes and depths a map is made.
            loads.len() > 1 && loads.iter().all(|load| load.point() == loads[0].point())
        })
        .filter_map(|family| curve(folder, family, labels))
        .collect()
}

fn curve(folder: &Folder, family: usize, labels: &[String]) -> Option<Curve> {
    let workloads = &folder.experiment.workloads;
    let first = workloads
        .iter()
        .position(|workload| workload.family == family)?;
    let contenders: Vec<ContenderCurve> = labels
        .iter()
        .map(|label| contender(folder, family, label))
        .filter(|curve| !curve.points.is_empty() || !curve.open.is_empty())
        .collect();
    let unit = folder
        .runs
        .iter()
        .filter(|run| {
            let asked = &workloads[run.run.planned.workload];
            asked.family == family && !asked.is_open()
        })
        .find_map(|run| Some(run.run.measured()?.unit.clone()))
        .unwrap_or_default();
    let peak = folder
        .peaks
        .as_ref()
        .and_then(|peaks| peaks.peaks.iter().find(|peak| peak.family == family))
        .filter(|_| contenders.iter().any(|curve| !curve.open.is_empty()));
    Some(Curve {
        title: workloads[first].family_title(),
        family,
        unit,
        contenders,
        slowest: peak.map(|peak| peak.contender.clone()),
        slowest_per_s: peak.map(|peak| peak.operations_per_s),
    })
}

fn contender(folder: &Folder, family: usize, label: &str) -> ContenderCurve {
    let (mut points, mut open) = (Vec::new(), Vec::new());
    // The points of each block, to fit it by itself.
    let blocks = usize::try_from(folder.experiment.blocks).unwrap_or(0);
    let mut by_block: Vec<Vec<(f64, f64)>> = vec![Vec::new(); blocks];
    for (index, asked) in folder.experiment.workloads.iter().enumerate() {
        if asked.family != family {
            continue;
        }
        let runs = runs_of(folder, index, label);
        let measured: Vec<&Measured> = runs.iter().filter_map(|run| run.run.measured()).collect();
        if measured.is_empty() {
            continue;
        }
        let latency = merged(measured.iter().map(|run| &run.latency));
        if let Some(percent) = asked.open_percent {
            open.extend(open_point(percent, &measured));
            continue;
        }
        if asked.is_open() {
            continue;
        }
        for run in &runs {
            let block = usize::try_from(run.run.planned.block - 1).unwrap_or(blocks);
            if let (Some(points), Some(measured)) = (by_block.get_mut(block), run.run.measured()) {
                points.push((f64::from(asked.users), measured.rate));
            }
        }
        let rates: Vec<f64> = measured.iter().map(|run| run.rate).collect();
        let found = interval(&rates);
        points.extend(centre(&rates).map(|rate| CurvePoint {
            users: asked.users,
            rate,
            low: found.map(|found| found.low),
            high: found.map(|found| found.high),
            latency_mean_us: mean_us(&latency),
            latency_p99_us: quantile_us(&latency, 0.99),
        }));
    }
    points.sort_by_key(|point: &CurvePoint| point.users);
    let peak = points
        .iter()
        .max_by(|one, other| one.rate.total_cmp(&other.rate));
    let all: Vec<(f64, f64)> = points
        .iter()
        .map(|point| (f64::from(point.users), point.rate))
        .collect();
    let fit = fit(&all);
    let most_users = all.last().map_or(0.0, |point| point.0);
    let knee = fit
        .and_then(|fit| fit.knee())
        .filter(|knee| *knee <= most_users)
        .map(|users| {
            let found = knee_interval(&by_block);
            Knee {
                users,
                low: found.map(|found| found.low),
                high: found.map(|found| found.high),
            }
        });
    ContenderCurve {
        name: label.to_owned(),
        peak: peak.map(|point| point.rate),
        peak_users: peak.map(|point| point.users),
        points,
        fit,
        knee,
        open,
    }
}

fn open_point(percent: u32, measured: &[&Measured]) -> Option<OpenPoint> {
    let means: Vec<f64> = measured
        .iter()
        .filter_map(|run| mean_us(&run.latency))
        .collect();
    let found = interval(&means);
    let arrivals: Vec<f64> = measured
        .iter()
        .filter_map(|run| run.facts.get("arrivals_per_s").copied())
        .collect();
    let latency = merged(measured.iter().map(|run| &run.latency));
    Some(OpenPoint {
        percent,
        arrivals_per_s: mean(&arrivals),
        latency_mean_us: centre(&means)?,
        low: found.map(|found| found.low),
        high: found.map(|found| found.high),
        latency_p99_us: quantile_us(&latency, 0.99),
    })
}
