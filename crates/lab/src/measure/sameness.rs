//! An experiment goes on only where it began: on the same kernel, processor and devices, with the same
//! database and the same `spindle`. Ratios are taken within blocks, and blocks of two machines, or of
//! two versions, are no blocks of one experiment.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::experiment::{DeviceKind, Experiment};
use crate::record::Environment;

/// What must be the same wherever it runs; in a guest the host's, too.
const MUST_MATCH: [&str; 7] = [
    "kernel",
    "processor",
    "processors",
    "database",
    "host's kernel",
    "host's processor",
    "guest's kernel",
];

/// The fact that tells one binary of Spindle from another of the same version.
pub const SPINDLE_DIGEST: &str = "spindle digest";

/// What of the devices is compared by.
const DEVICE: &str = "device ";

/// Refuses to go on where `before`, under which runs of `folder` were measured, is not `now`. Devices
/// are compared where `now` has some: the machine is looked at before any are made.
///
/// # Errors
/// What differs, and what to do.
pub fn check(
    folder: &Path,
    before: &Environment,
    now: &Environment,
    experiment: &Experiment,
) -> Result<()> {
    let differing = differing(before, now, experiment);
    ensure!(
        differing.is_empty(),
        "the runs in {} were measured under other conditions, and are no part of what would be measured now; give another folder by --output: {}",
        folder.display(),
        differing.join("; ")
    );
    Ok(())
}

fn differing(before: &Environment, now: &Environment, experiment: &Experiment) -> Vec<String> {
    let is_there = |name: &&String| name.starts_with(DEVICE);
    let has_devices = now.facts.keys().any(|name| name.starts_with(DEVICE));
    let has_spindle = (experiment.contenders.iter())
        .any(|name| experiment.asked(name).storage.starts_with("spindle"));
    let mut names: Vec<&str> = MUST_MATCH.to_vec();
    if has_spindle {
        names.push(SPINDLE_DIGEST);
    }
    if has_devices {
        let all = before.facts.keys().chain(now.facts.keys());
        names.extend(all.filter(is_there).map(String::as_str));
        names.sort_unstable();
        names.dedup();
    }
    names
        .into_iter()
        .filter_map(|name| {
            let of = |facts: &Environment| facts.facts.get(name).cloned();
            let (one, other) = (of(before), of(now));
            let is_same = if name.starts_with(DEVICE) {
                let bare = |line: &Option<String>| {
                    line.as_deref()
                        .map(|line| bare(line, experiment).to_owned())
                };
                bare(&one) == bare(&other)
            } else {
                one == other
            };
            let show = |fact: Option<String>| fact.unwrap_or_else(|| "not known".to_owned());
            (!is_same).then(|| format!("{name}: {} then, {} now", show(one), show(other)))
        })
        .collect()
}

/// A device that the lab makes has another number each time.
fn bare<'a>(line: &'a str, experiment: &Experiment) -> &'a str {
    if experiment.devices.kind == DeviceKind::Block {
        return line;
    }
    line.split_once(", ").map_or(line, |(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::SCHEMA;

    fn machine(changes: &[(&str, &str)]) -> Environment {
        let facts = [
            ("kernel", "6.1.0"),
            ("processor", "a fast one"),
            ("processors", "2"),
            ("database", "PostgreSQL 15.3"),
            ("load before", "0.1"),
            (SPINDLE_DIGEST, "aaaa"),
            (
                "device 1",
                "/dev/loop0, 1.00 GiB, scheduler [none], rotational 0",
            ),
        ];
        let changes = changes.iter().copied();
        Environment {
            schema: SCHEMA,
            facts: facts
                .into_iter()
                .chain(changes)
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        }
    }

    fn asked(contender: &str, devices: &str) -> Experiment {
        Experiment::parse(&format!(
            "contenders = [\"ext4\", \"{contender}\"]\n[devices]\n{devices}\n[[workload]]\nkind = \"tpcb\"\n"
        ))
        .unwrap()
    }

    #[test]
    fn another_kernel_processor_database_device_or_spindle_is_refused_by_name() {
        let loops = asked("spindle-external", "kind = \"loop\"");
        let then = machine(&[]);
        for (name, value) in [
            ("kernel", "6.2.0"),
            ("processor", "a slow one"),
            ("processors", "4"),
            ("database", "PostgreSQL 16.0"),
            (SPINDLE_DIGEST, "bbbb"),
            (
                "device 1",
                "/dev/loop0, 2.00 GiB, scheduler [none], rotational 0",
            ),
            (
                "device 2",
                "/dev/loop1, 1.00 GiB, scheduler [none], rotational 0",
            ),
            ("host's kernel", "6.2.0"),
        ] {
            let now = machine(&[(name, value)]);
            let error = check(Path::new("DIR"), &then, &now, &loops).unwrap_err();
            let text = error.to_string();
            assert!(
                text.contains(&format!("{name}: ")) && text.contains(&format!("{value} now")),
                "{text}"
            );
            assert!(text.contains("--output"), "{text}");
        }
    }

    #[test]
    fn another_number_of_a_loop_device_and_another_load_are_the_same_machine() {
        let loops = asked("spindle-external", "kind = \"loop\"");
        let renamed = (
            "device 1",
            "/dev/loop7, 1.00 GiB, scheduler [none], rotational 0",
        );
        let now = machine(&[renamed, ("load before", "3.0")]);
        assert_eq!(differing(&machine(&[]), &now, &loops), Vec::<String>::new());
        // A named device is the one that was named.
        let named = asked("xfs", "kind = \"block\"\nnames = [\"/dev/loop0\"]");
        assert_eq!(differing(&machine(&[]), &now, &named).len(), 1);
        // Nobody's figure rests on a Spindle that does not run.
        let other = machine(&[(SPINDLE_DIGEST, "bbbb")]);
        let without = asked("xfs", "kind = \"loop\"");
        assert!(differing(&machine(&[]), &other, &without).is_empty());
        // Before the devices are made nothing is said of them.
        let mut bare = machine(&[]);
        bare.facts.remove("device 1");
        assert!(differing(&machine(&[]), &bare, &loops).is_empty());
    }

    #[test]
    fn what_was_not_noted_then_is_not_taken_for_the_same() {
        let mut then = machine(&[]);
        then.facts.remove(SPINDLE_DIGEST);
        let loops = asked("spindle-external", "kind = \"loop\"");
        let found = differing(&then, &machine(&[]), &loops);
        assert_eq!(found, ["spindle digest: not known then, aaaa now"]);
    }
}
