//! The settings of kernel, devices, mounts and database under which figures were reached, and in
//! which of them two experiments differ.

use std::collections::BTreeMap;

use super::folder::Folder;

/// Facts that are those of a moment.
const OF_A_MOMENT: [&str; 1] = ["load before"];

/// What differs, a line each; what must not differ is refused before.
#[must_use]
pub fn differences(first: &Folder, second: &Folder) -> Vec<String> {
    let (one, other) = (all(first), all(second));
    let mut names: Vec<&String> = one.keys().chain(other.keys()).collect();
    names.sort();
    names.dedup();
    names
        .into_iter()
        .filter(|name| one.get(*name) != other.get(*name))
        .map(|name| {
            let show = |of: &BTreeMap<String, String>| {
                of.get(name).map_or("not told".to_owned(), String::clone)
            };
            format!("{name}: {} here, {} there", show(&one), show(&other))
        })
        .collect()
}

fn all(folder: &Folder) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for (name, value) in &folder.environment.facts {
        if OF_A_MOMENT.contains(&name.as_str()) {
            continue;
        }
        // Which name a device got is chance.
        let value = match value.split_once(", ") {
            Some((path, rest)) if path.starts_with("/dev/") => rest,
            _ => value,
        };
        all.insert(name.clone(), value.to_owned());
    }
    for run in &folder.runs {
        let planned = &run.run.planned;
        if let Some(mount) = run
            .run
            .layout
            .as_ref()
            .and_then(|layout| layout.mount.as_ref())
        {
            all.insert(format!("mount of {}", planned.contender), mount.clone());
        }
        if let Some(measured) = run.run.measured() {
            let asked = folder.experiment.asked(&planned.contender);
            // One that has settings of its own shares no line with the others.
            let whose = if asked.settings.is_empty() {
                "database".to_owned()
            } else {
                format!("database of {}", planned.contender)
            };
            for (name, value) in &measured.settings {
                all.insert(format!("{whose}: {name}"), value.clone());
            }
        }
    }
    for name in &folder.experiment.contenders {
        let asked = folder.experiment.asked(name);
        if asked.storage != *name {
            all.insert(format!("storage of {name}"), asked.storage);
        }
        for (option, value) in asked.options {
            all.insert(format!("{option} of {name}"), value);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyse::sample::{experiment, folder, measured};
    use crate::record::Outcome;

    fn with(facts: &[(&str, &str)], mount: &str, setting: &str) -> Folder {
        let mut folder = folder(experiment(5), |_| {
            let mut outcome = measured(1000.0);
            if let Outcome::Measured(run) = &mut outcome {
                let setting = ("full_page_writes".to_owned(), setting.to_owned());
                run.settings = [setting].into();
            }
            outcome
        });
        for run in &mut folder.runs {
            if let Some(layout) = &mut run.run.layout {
                layout.mount = Some(mount.to_owned());
            }
        }
        folder.environment.facts = facts
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        folder
    }

    #[test]
    fn what_differs_between_kernel_device_mount_and_database_is_told_by_its_name() {
        let one = with(
            &[
                ("vm.dirty_ratio", "20"),
                ("load before", "1"),
                ("device 1", "/dev/loop0, 1.00 GiB, scheduler [none]"),
            ],
            "ext4 rw,relatime",
            "on",
        );
        let same = with(
            &[
                ("vm.dirty_ratio", "20"),
                ("load before", "9"),
                ("device 1", "/dev/loop7, 1.00 GiB, scheduler [none]"),
            ],
            "ext4 rw,relatime",
            "on",
        );
        assert_eq!(differences(&one, &same), Vec::<String>::new());
        let other = with(
            &[
                ("vm.dirty_ratio", "5"),
                ("device 1", "/dev/loop0, 1.00 GiB, scheduler [bfq]"),
            ],
            "ext4 rw,relatime,nobarrier",
            "off",
        );
        assert_eq!(
            differences(&one, &other),
            [
                "database: full_page_writes: on here, off there",
                "device 1: 1.00 GiB, scheduler [none] here, 1.00 GiB, scheduler [bfq] there",
                "mount of ext4: ext4 rw,relatime here, ext4 rw,relatime,nobarrier there",
                "mount of spindle-normal: ext4 rw,relatime here, ext4 rw,relatime,nobarrier there",
                "mount of xfs: ext4 rw,relatime here, ext4 rw,relatime,nobarrier there",
                "vm.dirty_ratio: 20 here, 5 there",
            ]
        );
    }
}
