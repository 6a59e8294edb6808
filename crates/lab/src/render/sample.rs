//! A folder with a cell of every sort, for the tests of what draws it.

use crate::analyse::folder::Folder;
use crate::analyse::sample::{folder, measured};
use crate::experiment::Experiment;
use crate::record::{AGAIN, Outcome, PlannedRun};

/// Under two loads a contender that is faster, one slower, one equivalent, one of which nothing may
/// be said, and one that fails; the third load has a limit that ext3 misses. The second load is
/// noisier for all.
pub(crate) fn every_verdict(blocks: u32) -> Folder {
    let experiment = Experiment::parse(&format!(
        "name = \"every verdict\"\n\
         contenders = [\"ext4\", \"xfs\", \"ext3\", \"btrfs-single\", \"spindle-external\", \"lvm-striped-ext4\"]\n\
         blocks = {blocks}\nwarm_up = \"2 s\"\nduration = \"20 s\"\n\
         [devices]\nkind = \"loop\"\ncount = 4\nsize = \"512 MiB\"\nbandwidth = \"60 MiB\"\n\
         [database]\nmemory = \"192 MiB\"\n\
         [[workload]]\nkind = \"tpcb\"\nusers = 4\n\
         [[workload]]\nkind = \"random\"\nregime = \"storage-bound\"\nusers = 8\nsize = \"2 GiB\"\n\
         [[workload]]\nkind = \"tpcb\"\nusers = 16\np90_at_most = \"1 s\"\n"
    ))
    .unwrap();
    let mut made = folder(experiment, outcome);
    for run in &mut made.runs {
        if let Some(layout) = &mut run.run.layout {
            layout.copies = 1;
            layout.devices = match run.run.planned.contender.as_str() {
                "ext4" | "ext3" | "xfs" => 1,
                _ => 4,
            };
        }
    }
    let facts = [
        ("database", "PostgreSQL 15.14"),
        ("distribution", "Debian GNU/Linux 12"),
        ("memory", "16384000 kB"),
        ("processors", "2"),
        (
            "device 1",
            "/dev/loop0, 512 MiB, scheduler none, write back, rotational 0",
        ),
    ];
    let facts = facts.map(|(name, value)| (name.to_owned(), value.to_owned()));
    made.environment.facts.extend(facts);
    made
}

fn outcome(planned: &PlannedRun) -> Outcome {
    let is_even = planned.block.is_multiple_of(2);
    let (slow, fast) = if planned.workload == 1 {
        (0.6, 1.5)
    } else {
        (0.8, 1.2)
    };
    let own = match planned.contender.as_str() {
        "xfs" => fast,
        "ext3" => slow,
        "spindle-external" if is_even => 1.3,
        "spindle-external" => 0.8,
        "lvm-striped-ext4" => {
            return Outcome::Failed {
                reason: "device-mapper is <not> there".to_owned(),
                log_tail: "modprobe: FATAL".to_owned(),
            };
        }
        _ => 1.0,
    };
    let is_again = planned.label.ends_with(AGAIN);
    let noise = if is_again && planned.workload == 1 && is_even {
        1.03
    } else {
        1.0
    };
    let mut outcome = measured(own * noise * (1000.0 + f64::from(planned.number % 3)));
    if let Outcome::Measured(run) = &mut outcome {
        let slower = if planned.contender == "ext3" { 100 } else { 1 };
        for (us, _) in &mut run.latency.counts {
            *us *= slower;
        }
        if planned.contender == "xfs" {
            run.processor.harness_s = 20.0;
        }
    }
    outcome
}
