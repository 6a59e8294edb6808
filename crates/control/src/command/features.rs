//! What a group uses of what earlier programs do not know, and what it may come to use. Only
//! looked at: a feature is set by nothing but its first use.

use spindle_base::GroupName;
use spindle_format::Feature;

use crate::api::error::ControlResult;
use crate::api::view::{FeatureReport, FeaturesReport};
use crate::machine::discovery::Discovery;
use crate::machine::settings::Settings;

/// The features of a group, from the newest state that its disks show.
///
/// # Errors
/// Where there is no such group, or a newer program has changed it.
pub fn group_features(settings: &Settings, name: &GroupName) -> ControlResult<FeaturesReport> {
    let discovery = Discovery::look(settings)?;
    let found = discovery.group(name.as_str())?;
    let newest = (found.disks.iter())
        .filter_map(|probe| probe.state())
        .max_by_key(|state| state.epoch);
    let used = newest.map(|state| state.features).unwrap_or_default();
    Ok(FeaturesReport {
        group: found.name.clone(),
        features: (Feature::ALL.into_iter())
            .map(|feature| FeatureReport {
                name: feature.name().to_owned(),
                in_use: used.contains(feature),
                set_when: feature.set_when().to_owned(),
            })
            .collect(),
    })
}
