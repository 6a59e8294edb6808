//! In what contenders were asked to differ beside their storage: settings of the database, options of
//! the storage. Nothing of it is in an experiment that compares storages as they are.

use std::collections::{BTreeMap, BTreeSet};

use super::{ContenderSummary, Summary, runs_of};
use crate::analyse::doubt::{Differing, Doubt};
use crate::analyse::folder::Folder;
use crate::measure::contender;
use crate::record::AGAIN;

/// What stands for an option that the file leaves as it is.
const USUAL: &str = "the default";

/// What a contender had of everything in which some contender differs, by name: in the database's own
/// words where it told them. What its storage has not is not in it.
pub(super) fn of(folder: &Folder, load: usize, label: &str) -> BTreeMap<String, String> {
    let experiment = &folder.experiment;
    let name = label.strip_suffix(AGAIN).unwrap_or(label);
    let asked = experiment.asked(name);
    let mut had = BTreeMap::new();
    if experiment.workloads[load].kind.needs_database() {
        let told = (runs_of(folder, load, label).into_iter())
            .find_map(|run| Some(&run.run.measured()?.settings));
        let database = experiment.database_of(name);
        for setting in experiment.differing_settings() {
            let value = told
                .and_then(|told| told.get(&setting))
                .or_else(|| database.settings.get(&setting));
            had.insert(setting, value.cloned().unwrap_or_else(|| USUAL.to_owned()));
        }
    }
    let differing: BTreeSet<String> = (experiment.contenders.iter())
        .flat_map(|name| experiment.asked(name).options.into_keys())
        .collect();
    let choices = contender::find(&asked.storage).map_or(&[][..], |found| found.choices());
    for choice in choices
        .iter()
        .filter(|choice| differing.contains(choice.name))
    {
        let value = asked.options.get(choice.name).map_or(USUAL, String::as_str);
        had.insert(choice.name.to_owned(), value.to_owned());
    }
    had
}

/// The terms on which it stands against another.
pub(super) fn against(own: &ContenderSummary, other: &ContenderSummary) -> Option<Doubt> {
    let names: BTreeSet<&String> = own.settings.keys().chain(other.settings.keys()).collect();
    let differing: Vec<Differing> = names
        .into_iter()
        .map(|name| Differing {
            name: name.clone(),
            own: own.settings.get(name).cloned(),
            baseline: other.settings.get(name).cloned(),
        })
        // A storage without the option leaves the one that has it as usual: that is no difference.
        .filter(|one| one.own != one.baseline)
        .filter(|one| one.own.as_deref() != Some(USUAL) || one.baseline.is_some())
        .filter(|one| one.baseline.as_deref() != Some(USUAL) || one.own.is_some())
        .collect();
    (!differing.is_empty()).then_some(Doubt::OtherSettings { differing })
}

impl ContenderSummary {
    /// The storage and what it was asked to have, in a clause; none where it is a storage as it is in
    /// an experiment of such.
    #[must_use]
    pub fn made_of(&self) -> Option<String> {
        let name = self.name.strip_suffix(AGAIN).unwrap_or(&self.name);
        let has_own_name = !self.storage.is_empty() && name != self.storage;
        if self.settings.is_empty() && !has_own_name {
            return None;
        }
        let parts: Vec<String> = (self.settings.iter())
            .map(|(name, value)| format!("{name} = {value}"))
            .collect();
        Some(if parts.is_empty() {
            self.storage.clone()
        } else {
            format!("{} with {}", self.storage, parts.join(", "))
        })
    }
}

impl Summary {
    /// Every contender with what it was made of, where that is more than its name.
    #[must_use]
    pub fn made_of(&self) -> Vec<(&str, String)> {
        let mut all: Vec<(&str, String)> = Vec::new();
        for contender in self.workloads.iter().flat_map(|load| &load.contenders) {
            let name = contender.name.as_str();
            if name.ends_with(AGAIN) || all.iter().any(|(other, _)| *other == name) {
                continue;
            }
            all.extend(contender.made_of().map(|made_of| (name, made_of)));
        }
        all
    }

    /// The names of the settings in which contenders differ.
    #[must_use]
    pub fn differing_settings(&self) -> BTreeSet<&str> {
        (self.workloads.iter())
            .flat_map(|load| &load.contenders)
            .flat_map(|contender| contender.settings.keys())
            .map(String::as_str)
            .collect()
    }
}

#[cfg(test)]
mod tests;
