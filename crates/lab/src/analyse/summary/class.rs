//! The durability class of each contender. Only what is of one class is ranked together: a storage
//! that forgets is fast for a reason that nobody asked for.

use serde::{Deserialize, Serialize};

use super::{ContenderSummary, Summary, WorkloadSummary};
use crate::analyse::doubt::Doubt;
use crate::analyse::folder::Folder;
use crate::record::{AGAIN, Cut, DurabilityClass, Event, Gate};

/// What was found of a contender's acknowledgements, over all its runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The worst of its runs.
    pub class: DurabilityClass,
    /// Why, in a clause.
    pub reason: String,
    /// What came of cutting its power, in a clause; none where that was not asked for.
    #[serde(default)]
    pub cut: Option<String>,
}

/// Of the contender behind a label; none where its records are from before this was looked at.
pub(super) fn of(folder: &Folder, label: &str) -> Option<Found> {
    let contender = label.strip_suffix(AGAIN).unwrap_or(label);
    let gates = folder
        .runs
        .iter()
        .filter(|run| run.run.planned.contender == contender)
        .filter_map(|run| run.run.measured()?.durability.as_ref()?.gate.as_ref());
    let worst = gates.reduce(|worst: &Gate, gate| {
        if gate.class > worst.class {
            gate
        } else {
            worst
        }
    })?;
    let cut = folder.cuts.contenders.get(contender);
    // What is lost is lost, whatever was counted.
    let is_lost = cut.is_some_and(Cut::is_lost) && worst.class != DurabilityClass::NotDurable;
    let before = is_lost_before(folder, contender);
    let clause = cut.filter(|cut| !cut.is_declined()).map(Cut::clause);
    let (class, reason) = match &clause {
        Some(clause) if is_lost => (DurabilityClass::NotDurable, clause),
        _ => match &before {
            Some(before) => (DurabilityClass::NotDurable, before),
            None => (worst.class, &worst.reason),
        },
    };
    Some(Found {
        class,
        reason: reason.clone(),
        cut: clause,
    })
}

/// That a cut found something lost of which the record is gone: who repeats it until nothing is lost has
/// chosen.
pub(super) fn is_lost_before(folder: &Folder, contender: &str) -> Option<String> {
    if folder
        .cuts
        .contenders
        .get(contender)
        .is_some_and(Cut::is_lost)
    {
        return None;
    }
    folder.history.events.iter().find_map(|event| match event {
        Event::Cut {
            contender: whose,
            moments,
            lost,
            ..
        } if whose == contender && *lost > 0 => Some(format!(
            "its power was cut before at {moments} moments, and after {lost} of them acknowledged writes were lost; the record of that is gone"
        )),
        _ => None,
    })
}

/// Whether the two may be ranked together. What has no figures has no class either, and is not in
/// anybody's way.
pub(super) fn is_same(folder: &Folder, label: &str, other: &str) -> bool {
    let has_figures = |label: &str| {
        folder
            .runs
            .iter()
            .any(|run| run.run.planned.label == label && run.run.measured().is_some())
    };
    let class = |label| of(folder, label).map(|found| found.class);
    !has_figures(label) || !has_figures(other) || class(label) == class(other)
}

/// What the class of a contender says of its figures; `against` is what it would be compared with.
pub(super) fn doubts(own: Option<&Found>, against: Option<&Found>) -> Vec<Doubt> {
    let class = |found: Option<&Found>| found.map(|found| found.class);
    if class(own) != class(against) {
        return vec![Doubt::OtherClass {
            class: class(own),
            baseline_class: class(against),
            reason: own
                .or(against)
                .map_or_else(String::new, |found| found.reason.clone()),
        }];
    }
    own.and_then(of_its_own).into_iter().collect()
}

fn of_its_own(found: &Found) -> Option<Doubt> {
    let reason = found.reason.clone();
    match found.class {
        DurabilityClass::Durable => None,
        DurabilityClass::CannotBeSeen => Some(Doubt::DurabilityUnseen { reason }),
        DurabilityClass::NotDurable => Some(Doubt::NotDurable { reason }),
    }
}

impl Summary {
    /// What came of cutting the power of each contender before anything was measured.
    #[must_use]
    pub fn losses_of_power(&self) -> String {
        let mut told: Vec<String> = Vec::new();
        for contender in self.workloads.iter().flat_map(|load| &load.contenders) {
            let found = contender.durability.as_ref();
            if let Some(clause) = found.and_then(|found| found.cut.as_ref())
                && !contender.name.ends_with(AGAIN)
            {
                let line = format!("{}: {clause}.", contender.name);
                if !told.contains(&line) {
                    told.push(line);
                }
            }
        }
        if told.is_empty() {
            return "Nobody's power was cut before anything was measured: a look does without, and `cuts = 200` asks for it.".to_owned();
        }
        format!(
            "The power was cut before anything was measured, on disks that the lab records and rebuilds as at any moment. {}",
            told.join(" ")
        )
    }
}

impl WorkloadSummary {
    /// The contenders by class, the baseline's class first. What failed in all its runs, so that
    /// it has no class, stands with the baseline.
    #[must_use]
    pub fn by_class(&self) -> Vec<(Option<DurabilityClass>, Vec<&ContenderSummary>)> {
        let class =
            |contender: &ContenderSummary| contender.durability.as_ref().map(|found| found.class);
        let first = self.contenders.first().and_then(class);
        let mut classes: Vec<(Option<DurabilityClass>, Vec<&ContenderSummary>)> = Vec::new();
        for contender in &self.contenders {
            let own = if contender.rates.is_empty() {
                first
            } else {
                class(contender)
            };
            match classes.iter_mut().find(|(other, _)| *other == own) {
                Some((_, members)) => members.push(contender),
                None => classes.push((own, vec![contender])),
            }
        }
        classes
    }
}

/// A sentence for each contender that is not durable or stands apart from the baseline.
pub(super) fn sentences(summary: &Summary) -> Vec<String> {
    let mut told: Vec<&str> = Vec::new();
    let mut sentences = Vec::new();
    for workload in &summary.workloads {
        for (index, (_, members)) in workload.by_class().into_iter().enumerate() {
            for contender in members {
                let name = contender.name.as_str();
                let Some(found) = &contender.durability else {
                    continue;
                };
                let is_apart = index > 0;
                let is_told = found.class == DurabilityClass::NotDurable || is_apart;
                if !is_told || told.contains(&name) || name.ends_with(AGAIN) {
                    continue;
                }
                told.push(name);
                let apart = if is_apart {
                    format!(
                        " It stands in a table of its own and is not ranked with {}.",
                        summary.baseline
                    )
                } else {
                    String::new()
                };
                let what = match found.class {
                    DurabilityClass::Durable => format!("{name} is durable"),
                    DurabilityClass::CannotBeSeen => {
                        format!("Whether {name} is durable cannot be seen")
                    }
                    DurabilityClass::NotDurable => format!("{name} is not durable"),
                };
                sentences.push(format!("{what}: {}.{apart}", found.reason));
            }
        }
    }
    sentences
}

/// What a table of one class is called.
#[must_use]
pub fn title(class: Option<DurabilityClass>) -> &'static str {
    match class {
        Some(DurabilityClass::Durable) => "Durable",
        Some(DurabilityClass::CannotBeSeen) => "Whether it is durable cannot be seen",
        Some(DurabilityClass::NotDurable) => "Not durable",
        None => "Durability was not looked at",
    }
}

#[cfg(test)]
mod tests;
