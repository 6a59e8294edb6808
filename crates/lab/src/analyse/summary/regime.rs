//! Whether what was read agrees with the regime that a load is called: `cached` data is not read
//! from the devices, and a cold scan reads all of it there.

use super::ContenderSummary;
use crate::analyse::doubt::Doubt;
use crate::analyse::folder::RunWithSamples;
use crate::analyse::series::mean;
use crate::experiment::{Kind, Regime, Workload};
use crate::quantity::as_float;
use crate::record::{Layer, Measured};

/// Less is catalog and chance.
const READ_BYTES_EACH_AT_MOST: f64 = 1024.0;
const READ_BYTES_AT_MOST: f64 = 1_048_576.0;
/// Of the data, that a cold scan reads.
const READ_SHARE_AT_LEAST: f64 = 0.5;
/// Of what the database asked for, that the devices moved.
const DEVICES_AT_LEAST: f64 = 0.5;

pub(super) fn doubts(
    contender: &ContenderSummary,
    runs: &[&RunWithSamples],
    asked: &Workload,
) -> Vec<Doubt> {
    // What goes on beside it moves bytes of its own.
    if asked.beside.is_some() {
        return Vec::new();
    }
    // A directory that was there before lies on none of the devices; what was fetched for it past
    // the page cache is known.
    let has_devices = contender
        .layout
        .as_ref()
        .is_none_or(|layout| layout.devices > 0);
    let below = if has_devices {
        "devices"
    } else {
        "file system"
    };
    let counted: Vec<&Measured> = runs
        .iter()
        .filter_map(|run| run.run.measured())
        .filter(|run| run.is_counted_whole())
        .collect();
    let read: Vec<(f64, f64)> = counted
        .iter()
        .filter_map(|run| {
            let layer = run.layers.iter().find(|layer| layer.name == below)?;
            Some((layer.read_bytes, as_float(run.operations.max(1))))
        })
        .collect();
    let average = |of: fn(&(f64, f64)) -> f64| mean(&read.iter().map(of).collect::<Vec<_>>());
    let (Some(bytes), Some(each_bytes)) = (
        average(|(bytes, _)| *bytes),
        average(|(bytes, n)| bytes / n),
    ) else {
        return Vec::new();
    };
    let share = bytes / as_float(asked.size_bytes);
    match asked.regime {
        // Growth begins with nothing; what it reads is what it wrote.
        Regime::Cached if asked.kind != Kind::Growth => {
            let is_read = bytes > READ_BYTES_AT_MOST && each_bytes > READ_BYTES_EACH_AT_MOST;
            is_read
                .then_some(Doubt::NotCached { each_bytes, share })
                .into_iter()
                .collect()
        }
        Regime::Cached => Vec::new(),
        Regime::Cold if matches!(asked.kind, Kind::Scan | Kind::Validate) => (share
            < READ_SHARE_AT_LEAST)
            .then_some(Doubt::NotCold { share })
            .into_iter()
            .collect(),
        Regime::Cold | Regime::StorageBound => idle(&counted, below).into_iter().collect(),
    }
}

/// Devices that moved little of what the database asked for.
fn idle(counted: &[&Measured], below: &str) -> Option<Doubt> {
    let moved = |layer: &Layer| layer.read_bytes + layer.written_bytes;
    let shares: Vec<f64> = counted
        .iter()
        .filter_map(|run| {
            let [first, _, ..] = run.layers.as_slice() else {
                return None;
            };
            let last = run.layers.iter().find(|layer| layer.name == below)?;
            (moved(first) > 0.0).then(|| moved(last) / moved(first))
        })
        .collect();
    let share = mean(&shares).filter(|share| *share < DEVICES_AT_LEAST)?;
    Some(Doubt::DevicesIdle { share })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyse::folder::Folder;
    use crate::analyse::sample::{folder, measured};
    use crate::analyse::summary::summarise;
    use crate::analyse::verdict::Verdict;
    use crate::experiment::Experiment;
    use crate::record::Outcome;

    const MIB: f64 = 1_048_576.0;

    /// xfs beside ext4 under a load of 64 MiB; in each run of 1,000 operations of xfs the layers
    /// read so much.
    fn with_reads(load: &str, devices: u32, [asked, fetched, moved]: [f64; 3]) -> Folder {
        let experiment = Experiment::parse(&format!(
            "contenders = [\"ext4\", \"xfs\"]\nblocks = 12\n[devices]\nkind = \"loop\"\n\
             [[workload]]\nsize = \"64 MiB\"\n{load}\n"
        ))
        .unwrap();
        let mut folder = folder(experiment, |planned| {
            let speed = if planned.contender == "xfs" { 2.0 } else { 1.0 };
            let mut outcome = measured(1000.0 * speed + f64::from(planned.number % 3));
            if let Outcome::Measured(run) = &mut outcome {
                let of_xfs = planned.contender == "xfs";
                for (layer, bytes) in run.layers.iter_mut().zip([asked, fetched, moved]) {
                    layer.read_bytes = if of_xfs { bytes } else { 64.0 * MIB };
                    layer.written_bytes = 0.0;
                }
            }
            outcome
        });
        for run in &mut folder.runs {
            if let Some(layout) = &mut run.run.layout
                && run.run.planned.contender == "xfs"
            {
                layout.devices = devices;
            }
        }
        folder
    }

    fn of_xfs(folder: &Folder) -> (Vec<Doubt>, Option<Verdict>) {
        let summary = summarise(folder);
        let xfs = summary.workloads[0].contenders.last().unwrap();
        assert_eq!(xfs.name, "xfs");
        let is_of_the_regime = |doubt: &Doubt| {
            matches!(
                doubt,
                Doubt::NotCached { .. } | Doubt::NotCold { .. } | Doubt::DevicesIdle { .. }
            )
        };
        let doubts = xfs.doubts.iter().map(|told| told.doubt.clone());
        (doubts.filter(is_of_the_regime).collect(), xfs.verdict)
    }

    #[test]
    fn cached_data_that_the_devices_read_all_the_same_is_told_with_the_figure() {
        let cached = "kind = \"tpcb\"\nregime = \"cached\"";
        let (found, _) = of_xfs(&with_reads(cached, 2, [9e6, 9e6, 8_192_000.0]));
        let [doubt @ Doubt::NotCached { each_bytes, .. }] = found.as_slice() else {
            panic!("{found:?}");
        };
        assert!((each_bytes - 8192.0).abs() < 1e-6);
        assert!(
            doubt.what().contains("8.00 KiB an operation"),
            "{}",
            doubt.what()
        );
        let (found, _) = of_xfs(&with_reads(cached, 2, [9e6, 9e6, 500_000.0]));
        assert_eq!(found, []);
    }

    #[test]
    fn a_cold_scan_that_read_nothing_is_ranked_with_nobody() {
        let cold = "kind = \"scan\"\nregime = \"cold\"";
        // A warm directory, which lies on none of the devices.
        let (found, verdict) = of_xfs(&with_reads(cold, 0, [64.0 * MIB, 1e5, 0.0]));
        assert!(
            matches!(found.as_slice(), [Doubt::NotCold { share }] if *share < 0.01),
            "{found:?}"
        );
        assert_eq!(verdict, Some(Verdict::Inconclusive));
        // An honest one: the devices of the lab were idle, its own were not.
        let (found, _) = of_xfs(&with_reads(cold, 0, [64.0 * MIB, 64.0 * MIB, 0.0]));
        assert_eq!(found, []);
    }

    #[test]
    fn an_honest_directory_is_not_said_to_be_measured_in_memory() {
        let bound = "kind = \"random\"\nregime = \"storage-bound\"";
        let (found, _) = of_xfs(&with_reads(bound, 0, [9e8, 8e8, 0.0]));
        assert_eq!(found, []);
        let (found, _) = of_xfs(&with_reads(bound, 0, [9e8, 1e8, 0.0]));
        assert!(matches!(found.as_slice(), [Doubt::DevicesIdle { .. }]));
        let (found, _) = of_xfs(&with_reads(bound, 2, [9e8, 8e8, 1e8]));
        assert!(matches!(found.as_slice(), [Doubt::DevicesIdle { .. }]));
    }

    #[test]
    fn what_was_measured_in_another_regime_than_its_name_is_no_claim_under_that_name() {
        // xfs found in memory what was to come from disks.
        let bound = "kind = \"random\"\nregime = \"storage-bound\"";
        let (_, verdict) = of_xfs(&with_reads(bound, 2, [9e8, 8e8, 1e8]));
        assert_eq!(verdict, Some(Verdict::Look));
        // And here ext4 read what was to be cached. The ratio is what it is, and its sentence corrects
        // the name of the load: a storage past the page cache could be compared under none else.
        let cached = "kind = \"tpcb\"\nregime = \"cached\"";
        let folder = with_reads(cached, 2, [9e6, 9e6, 0.0]);
        assert_eq!(of_xfs(&folder), (Vec::new(), Some(Verdict::Faster)));
        let headline = &summarise(&folder).headline[0];
        assert!(
            headline.contains(
                "FASTER than ext4, that of ext4 not cached although the load is called so"
            ),
            "{headline}"
        );
        // A warm baseline under a cold scan makes nobody slower.
        let cold = "kind = \"scan\"\nregime = \"cold\"";
        let mut folder = with_reads(cold, 2, [64.0 * MIB, 64.0 * MIB, 64.0 * MIB]);
        for run in &mut folder.runs {
            if let Outcome::Measured(measured) = &mut run.run.outcome
                && run.run.planned.contender == "ext4"
            {
                measured
                    .layers
                    .iter_mut()
                    .for_each(|layer| layer.read_bytes = 0.0);
            }
        }
        assert_eq!(of_xfs(&folder).1, Some(Verdict::Inconclusive));
    }
}
