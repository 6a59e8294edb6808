//! Raising doubts from the figures.

use super::{ContenderSummary, Ratio, Told, beside, class, differing, regime, steady};
use crate::analyse::doubt::Doubt;
use crate::analyse::folder::{Folder, RunWithSamples};
use crate::analyse::interval::BLOCKS_AT_LEAST;
use crate::analyse::series::{median, unsettled};
use crate::experiment::{DatabaseKind, Workload};
use crate::record::{AGAIN, Outcome};

const CHANGE_AT_MOST: f64 = 0.10;
const HARNESS_AT_MOST: f64 = 0.25;

pub(super) fn of_the_noise(noise: Option<&Ratio>) -> Vec<Doubt> {
    match noise {
        // What has no interval is no floor either: a single ratio may be one by chance.
        Some(ratio) if ratio.low.is_some() => {}
        _ => return vec![Doubt::NoNoiseFloor],
    }
    noise
        .filter(|ratio| ratio.differs())
        .map(|ratio| Doubt::BaselineDiffersFromItself {
            ratio: ratio.centre,
        })
        .into_iter()
        .collect()
}

/// Blocks in which the contender or what it is compared with was far slower than in the middle one.
pub(super) fn of_the_stalls(name: &str, against: &str, ratio: &Ratio) -> Vec<Doubt> {
    [(name, ratio.far_below), (against, ratio.far_above)]
        .into_iter()
        .filter(|(_, blocks)| *blocks > 0 && ratio.low.is_some())
        .map(|(whose, blocks)| Doubt::Stalls {
            whose: whose.to_owned(),
            blocks,
            of: ratio.blocks,
            together: ratio.together,
        })
        .collect()
}

impl ContenderSummary {
    /// Whether it misses the limit of the file itself.
    #[must_use]
    pub fn is_over_the_limit(&self) -> bool {
        self.over_the_limit().is_some()
    }

    /// That it misses the limit of the file itself.
    pub(super) fn over_the_limit(&self) -> Option<&Told> {
        self.doubts.iter().find(
            |told| matches!(&told.doubt, Doubt::MissesLimit { whose, .. } if *whose == self.name),
        )
    }

    /// Whether its rate is ranked with none, because it or what it would be compared with misses
    /// the limit of the file.
    pub(super) fn is_unranked(&self) -> bool {
        self.doubts
            .iter()
            .any(|told| matches!(told.doubt, Doubt::MissesLimit { .. }))
    }
}

/// Ninety of a hundred operations of all runs take longer than the file allows.
pub(super) fn of_the_limit(contender: &ContenderSummary, asked: &Workload) -> Option<Doubt> {
    let limit_us = u64::try_from(asked.p90_at_most?.as_micros()).unwrap_or(u64::MAX);
    let p90_us = contender.latency_us.get(1).copied().flatten()?;
    (p90_us > limit_us).then(|| Doubt::MissesLimit {
        whose: contender.name.clone(),
        limit_us,
        p90_us,
    })
}

/// Drift of the machine and time that others took, over all runs in their order.
pub(super) fn of_the_machine(folder: &Folder) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    let asks_a_database = folder
        .experiment
        .workloads
        .iter()
        .any(|workload| workload.kind.needs_database());
    if asks_a_database && folder.experiment.database.kind == DatabaseKind::Sqlite {
        doubts.push(Doubt::DatabaseIsEmbedded);
    }
    let measured: Vec<_> = folder
        .runs
        .iter()
        .filter_map(|run| Some((&run.run.planned, run.run.measured()?)))
        .collect();
    let relative: Vec<f64> = measured
        .iter()
        .filter_map(|(planned, run)| {
            let of_its_kind: Vec<f64> = measured
                .iter()
                .filter(|(other, _)| {
                    other.label == planned.label && other.workload == planned.workload
                })
                .map(|(_, run)| run.rate)
                .collect();
            Some(run.rate / median(&of_its_kind).filter(|middle| *middle > 0.0)?)
        })
        .collect();
    if let Some(change) = unsettled(&relative)
        && change.abs() > CHANGE_AT_MOST
    {
        doubts.push(Doubt::MachineDrifts { change });
    }
    doubts
}

pub(super) fn of_a_contender(
    contender: &ContenderSummary,
    baseline: Option<&ContenderSummary>,
    runs: &[&RunWithSamples],
    asked: &Workload,
) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    if let Some(ratio) = contender.ratio {
        if ratio.blocks < BLOCKS_AT_LEAST {
            doubts.push(Doubt::TooFewBlocks {
                blocks: ratio.blocks,
                needed: BLOCKS_AT_LEAST,
            });
        } else if ratio.blocks < ratio.blocks_for_a_claim() {
            doubts.push(Doubt::FewBlocks {
                blocks: ratio.blocks,
            });
        }
    }
    let first_reason = runs.iter().find_map(|run| match &run.run.outcome {
        Outcome::Failed { reason, .. } => Some(reason.clone()),
        Outcome::Measured(_) => None,
    });
    if let Some(reason) = first_reason {
        doubts.push(Doubt::RunsFailed {
            failed: contender.failed,
            of: runs.len(),
            reason,
        });
    }
    if !asked.is_suite() {
        // A suite goes from one question to the next: its pace says nothing of the storage.
        doubts.extend(steady::doubts(runs, asked));
    }
    if let Some(share) = contender.harness_share
        && share > HARNESS_AT_MOST
    {
        doubts.push(Doubt::HarnessIsBusy { share });
    }
    let in_part = runs
        .iter()
        .filter_map(|run| run.run.measured())
        .filter(|run| !run.is_counted_whole())
        .count();
    if in_part > 0 {
        doubts.push(Doubt::CountedInPart { runs: in_part });
    }
    let unserved: u64 = runs
        .iter()
        .filter_map(|run| Some(run.run.measured()?.unserved))
        .sum();
    if unserved > 0 {
        doubts.push(Doubt::Overloaded { unserved });
    }
    // The baseline's second name is the same storage: what differs there is noise.
    if let Some(baseline) = baseline.filter(|_| !contender.name.ends_with(AGAIN)) {
        doubts.extend(against(contender, baseline));
    }
    doubts.extend(regime::doubts(contender, runs, asked));
    doubts
}

fn against(contender: &ContenderSummary, baseline: &ContenderSummary) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    if !contender.rates.is_empty() && !baseline.rates.is_empty() {
        doubts.extend(class::doubts(
            contender.durability.as_ref(),
            baseline.durability.as_ref(),
        ));
    }
    doubts.extend(differing::against(contender, baseline));
    doubts.extend(beside::of_the_pace(contender, baseline));
    if let (Some(layout), Some(baseline)) = (&contender.layout, &baseline.layout) {
        if layout.copies != baseline.copies {
            doubts.push(Doubt::OtherDurability {
                copies: layout.copies,
                baseline_copies: baseline.copies,
            });
        }
        if layout.data_checksums != baseline.data_checksums {
            doubts.push(Doubt::OtherChecksums {
                checks: layout.data_checksums,
            });
        }
        if layout.devices != baseline.devices && layout.devices > 0 && baseline.devices > 0 {
            doubts.push(Doubt::OtherDeviceCount {
                devices: layout.devices,
                baseline_devices: baseline.devices,
            });
        }
    }
    doubts
}
