//! The box on fairness: what was equal for all and what was not, as it was done and not as it is
//! always done.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::analyse::folder::Folder;
use crate::analyse::summary::Summary;
use crate::experiment::{DeviceKind, Experiment};
use crate::quantity::show_number;
use crate::record::{AGAIN, Layout, PRECONDITIONED};
use crate::render::chart::escaped;

/// What was equal for all, and what was not.
pub(super) fn fairness(folder: &Folder, summary: &Summary) -> String {
    let layouts = layouts(summary);
    let sentences = [
        Some(devices(folder).to_owned()),
        caches(folder),
        spread(&folder.experiment, &layouts),
        settings(summary),
        runs(&folder.experiment, summary.seed),
        Some(summary.losses_of_power()),
        (!summary.history.is_empty()).then(|| summary.history.join(" ")),
    ];
    let mut text = "<section><h2>Fairness</h2>".to_owned();
    for sentence in sentences.into_iter().flatten() {
        let _ = write!(text, "<p>{}</p>", escaped(&sentence));
    }
    text.push_str(&table(summary));
    text.push_str(&how(summary));
    text.push_str("</section>");
    text
}

/// Every contender that was made, in the order of the report.
fn layouts(summary: &Summary) -> Vec<(&str, &Layout)> {
    let mut layouts: Vec<(&str, &Layout)> = Vec::new();
    for contender in summary.workloads.iter().flat_map(|load| &load.contenders) {
        if let Some(layout) = &contender.layout
            && !contender.name.ends_with(AGAIN)
            && !layouts.iter().any(|(name, _)| *name == contender.name)
        {
            layouts.push((&contender.name, layout));
        }
    }
    layouts
}

/// What stood on the devices before.
fn devices(folder: &Folder) -> &'static str {
    let is_guest = folder.environment.facts.contains_key("guest");
    match folder.experiment.devices.kind {
        DeviceKind::Loop if is_guest => {
            "The files below the guest's disks were written once from end to end before the first run."
        }
        DeviceKind::Loop => {
            "The files below the loop devices were written once from end to end before the first run."
        }
        DeviceKind::Zram => {
            "Nothing was written to the zram devices before the first run; a block that is written takes memory then."
        }
        DeviceKind::Block if folder.environment.facts.contains_key(PRECONDITIONED) => {
            "Every block of the devices was written once before the first run."
        }
        DeviceKind::Block => {
            "The devices were taken as they were found. Nothing was written to them before the first run, so that the first contenders may have paid for what later ones found done."
        }
    }
}

/// Devices without a volatile cache say nothing of flushes.
fn caches(folder: &Folder) -> Option<String> {
    let lines: Vec<&String> = folder
        .environment
        .facts
        .iter()
        .filter(|(name, _)| name.starts_with("device "))
        .map(|(_, line)| line)
        .collect();
    let through = lines
        .iter()
        .filter(|line| line.contains("write through"))
        .count();
    (through > 0).then(|| {
        let which = if through == lines.len() {
            "The devices have".to_owned()
        } else {
            format!("{through} of the devices have")
        };
        format!(
            "{which} no volatile cache (write-through): a flush costs nothing there, and nothing can be said of how a contender flushes."
        )
    })
}

/// Over how many of the devices each contender lay.
fn spread(experiment: &Experiment, layouts: &[(&str, &Layout)]) -> Option<String> {
    let mut by_count: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    for (name, layout) in layouts {
        by_count.entry(layout.devices).or_default().push(name);
    }
    let all = experiment.devices.count;
    if by_count.len() == 1 && by_count.contains_key(&all) {
        return Some(format!("All contenders used all {all} devices in turn."));
    }
    let parts: Vec<String> = by_count
        .iter()
        .map(|(count, names)| {
            let names = names.join(", ");
            match count {
                0 => format!("{names} used none of them"),
                count if *count == all => format!("{names} used all {all}"),
                count => format!("{names} used {count} of the {all}"),
            }
        })
        .collect();
    (!parts.is_empty()).then(|| format!("In turn: {}.", parts.join("; ")))
}

/// That contenders differ in more than their storage, and in what.
fn settings(summary: &Summary) -> Option<String> {
    let made_of = summary.made_of();
    if made_of.is_empty() {
        return None;
    }
    let differing: Vec<&str> = summary.differing_settings().into_iter().collect();
    let parts: Vec<String> = made_of
        .iter()
        .map(|(name, made_of)| format!("{name} is {made_of}"))
        .collect();
    Some(format!(
        "The contenders do not have the same settings, because the file asks for it: they differ in {}. {}. All else of the database, the memory and the data were the same.",
        differing.join(", "),
        parts.join("; ")
    ))
}

/// What each run began with.
fn runs(experiment: &Experiment, seed: u64) -> Option<String> {
    let needs = |is_needed: bool| {
        experiment
            .workloads
            .iter()
            .any(|load| load.kind.needs_database() == is_needed)
    };
    let began = match (needs(true), needs(false)) {
        (true, false) => "Each run restored the same data and restarted the database",
        (false, _) => "Each run made its contender and its file anew",
        (true, true) => {
            "Each run of a database restored the same data and restarted it, each other run wrote its file anew"
        }
    };
    Some(format!(
        "{began}; the order within a block was drawn from the seed {seed}."
    ))
}

fn table(summary: &Summary) -> String {
    let mut text = "<div class=\"scroll\"><table><thead><tr><th>contender</th><th>made of</th><th>copies</th><th>devices</th>\
         <th>data checksums</th><th>page cache</th><th>acknowledged writes</th><th>fdatasyncs/s</th><th>lab's CPU</th></tr></thead><tbody>"
        .to_owned();
    let first = summary.workloads.first();
    for contender in first.into_iter().flat_map(|load| &load.contenders) {
        let Some(layout) = &contender.layout else {
            continue;
        };
        let yes = |value| if value { "yes" } else { "no" };
        let _ = write!(
            text,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escaped(&contender.name),
            escaped(
                &contender
                    .made_of()
                    .unwrap_or_else(|| contender.storage.clone())
            ),
            layout.copies,
            layout.devices,
            yes(layout.data_checksums),
            yes(layout.page_cache),
            contender
                .durability
                .as_ref()
                .map_or("not looked at", |found| found.class.words()),
            contender
                .fdatasyncs_per_s
                .map_or("&ndash;".to_owned(), show_number),
            contender
                .harness_share
                .map_or("&ndash;".to_owned(), |share| format!(
                    "{:.1} %",
                    share * 100.0
                )),
        );
    }
    text.push_str(
        "</tbody></table></div><p class=\"note\">fdatasyncs/s: 8 KiB written and made durable, one after the other, on the empty contender, \
         before any limit of bandwidth. Acknowledged writes: single writes and commits of the database against the flushes of the devices. Contenders of another class of these and with other numbers of copies are not ranked together.</p>",
    );
    text
}

/// How each contender was made and mounted, and what the database was told.
fn how(summary: &Summary) -> String {
    let mut commands = String::new();
    for (name, layout) in layouts(summary) {
        if layout.made_by.is_empty() && layout.mount.is_none() {
            continue;
        }
        let _ = writeln!(commands, "# {}", escaped(name));
        for command in &layout.made_by {
            let _ = writeln!(commands, "{}", escaped(command));
        }
        if let Some(mount) = &layout.mount {
            let _ = writeln!(commands, "# mounted as {}", escaped(mount));
        }
    }
    let mut settings = String::new();
    let mut told: Vec<&BTreeMap<String, String>> = Vec::new();
    for load in &summary.workloads {
        if load.settings.is_empty() || told.contains(&&load.settings) {
            continue;
        }
        told.push(&load.settings);
        let _ = writeln!(settings, "# {}", escaped(&load.title));
        for (name, value) in &load.settings {
            let _ = writeln!(settings, "{} = {}", escaped(name), escaped(value));
        }
    }
    for (name, made_of) in summary.made_of() {
        let _ = writeln!(settings, "# {} is {}", escaped(name), escaped(&made_of));
    }
    let mut text = format!(
        "<details><summary>How each was made and mounted ($RUN is a directory of the run)</summary><pre>{commands}</pre></details>"
    );
    if !settings.is_empty() {
        let _ = write!(
            text,
            "<details><summary>What the database was started with, for the baseline</summary><pre>{settings}</pre></details>"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::measured::measured_on;
    use super::*;
    use crate::analyse::sample::{folder, measured};
    use crate::analyse::summary::summarise;
    use crate::record::Outcome;

    fn said(devices: &str, facts: &[(&str, &str)], counts: [u32; 2]) -> String {
        let experiment = Experiment::parse(&format!(
            "contenders = [\"ext4\", \"btrfs-raid0\"]\n[devices]\n{devices}\n\
             [[workload]]\nkind = \"tpcb\"\n"
        ))
        .unwrap();
        let mut folder = folder(experiment, |_| {
            let mut outcome = measured(1000.0);
            if let Outcome::Measured(run) = &mut outcome {
                run.settings = [("fsync".to_owned(), "off".to_owned())].into();
            }
            outcome
        });
        for run in &mut folder.runs {
            let is_first = run.run.planned.contender == "ext4";
            if let Some(layout) = &mut run.run.layout {
                layout.devices = counts[usize::from(!is_first)];
                layout.mount = Some("ext4 rw,nobarrier".to_owned());
            }
        }
        for (name, value) in facts {
            let fact = ((*name).to_owned(), (*value).to_owned());
            folder.environment.facts.extend([fact]);
        }
        let summary = summarise(&folder);
        measured_on(&folder, &summary) + &fairness(&folder, &summary)
    }

    #[test]
    fn the_box_says_what_was_done_and_nothing_else() {
        let page = said("kind = \"loop\"\ncount = 2", &[], [2, 2]);
        assert!(page.contains("2 loop devices of 1.00 GiB each"), "{page}");
        assert!(page.contains("written once from end to end before"));
        assert!(page.contains("All contenders used all 2 devices"));
        assert!(!page.contains("was held to") && !page.contains("write-through"));
        assert!(page.contains("fsync = off") && page.contains("mounted as ext4 rw,nobarrier"));

        let page = said(
            "kind = \"zram\"\ncount = 2\nbandwidth = \"60 MiB\"\nrequests = 1500",
            &[("device 1", "/dev/zram0, 1 GiB, write through, rotational 0")],
            [1, 2],
        );
        assert!(!page.contains("end to end"), "{page}");
        assert!(page.contains("no volatile cache (write-through)"));
        assert!(page.contains("ext4 used 1 of the 2; btrfs-raid0 used all 2"));
        assert!(page.contains("held to 60.0 MiB/s and 1,500 requests/s"));

        let page = said(
            "kind = \"block\"\nnames = [\"/dev/sdx\", \"/dev/sdy\"]",
            &[("device 1", "/dev/sdx, 1 TiB, write back, rotational 1")],
            [0, 2],
        );
        assert!(page.contains("<dd>/dev/sdx, /dev/sdy</dd>"), "{page}");
        assert!(page.contains("as they were found"));
        assert!(!page.contains("end to end") && !page.contains("write-through"));
        assert!(page.contains("ext4 used none of them"));
    }
}
