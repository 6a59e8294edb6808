//! The machine and its settings, as far as a report that travels by mail may tell of them.

use std::fmt::Write as _;

use super::measured::TOLD;
use crate::analyse::folder::Folder;
use crate::render::chart::escaped;

/// Beginnings of kernel parameters that change how fast a machine is.
const TELLING: [&str; 33] = [
    "amd_iommu",
    "amd_pstate",
    "audit",
    "cgroup",
    "clocksource",
    "cpufreq",
    "cpuidle",
    "default_hugepagesz",
    "elevator",
    "haltpoll",
    "hugepages",
    "idle",
    "intel_idle",
    "intel_iommu",
    "intel_pstate",
    "iommu",
    "isolcpus",
    "maxcpus",
    "mem",
    "mitigations",
    "nohz",
    "nosmt",
    "numa",
    "nvme",
    "preempt",
    "processor.",
    "psi",
    "rcu_nocbs",
    "scsi_mod",
    "swiotlb",
    "threadirqs",
    "transparent_hugepage",
    "zswap",
];

/// The facts on the machine by their names, but for those that stand beside the verdicts.
pub(super) fn environment(folder: &Folder) -> String {
    let mut text = "<section><h2>Machine and settings</h2><dl>".to_owned();
    let further = folder.environment.facts.iter();
    for (name, value) in further.filter(|(name, _)| !TOLD.contains(&name.as_str())) {
        let (name, value) = if name == "kernel command line" {
            ("kernel parameters", telling(value))
        } else {
            (name.as_str(), value.clone())
        };
        let _ = write!(
            text,
            "<dt>{}</dt><dd>{}</dd>",
            escaped(name),
            escaped(&value)
        );
    }
    text.push_str("</dl></section>");
    text
}

/// Of a kernel's command line what bears on speed. The rest names disks, hosts and whatever else
/// was handed to the first process; it stays in the folder.
fn telling(command_line: &str) -> String {
    let words: Vec<&str> = command_line
        .split_whitespace()
        // What follows is the first process's.
        .take_while(|word| *word != "--")
        .filter(|word| TELLING.iter().any(|beginning| word.starts_with(beginning)))
        .collect();
    if words.is_empty() {
        "none that bears on speed".to_owned()
    } else {
        words.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_tells_the_parameters_that_bear_on_speed_and_no_others() {
        let line = "BOOT_IMAGE=/vmlinuz root=UUID=1234 ro mitigations=off isolcpus=2,3 \
                    ip=192.0.2.7 -- --token secret idle=poll";
        assert_eq!(telling(line), "mitigations=off isolcpus=2,3");
        assert_eq!(telling("root=/dev/sda1 quiet"), "none that bears on speed");
    }
}
