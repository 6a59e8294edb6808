//! `gallery DIR`: every experiment file of a folder is run, and its report put beside it.
//!
//! `NAME.toml` gives `NAME/report.html` and `NAME/summary.json`, and the figures in `NAME.md`: what
//! lies there between the two marks is written anew, the words around it are a person's and stay. A
//! page that is not there yet begins with the question, which is the comment at the head of the
//! file. The runs themselves stay outside of the folder; an interrupted gallery goes on.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, ensure};

use super::run::run_text;
use crate::analyse::summary::{Summary, Told, WorkloadSummary};
use crate::experiment::Experiment;
use crate::quantity::{as_float, show_microseconds, show_number};
use crate::record::{AGAIN, read_json, write_whole};
use crate::{complain, say};

/// What `gallery` takes.
#[derive(Debug, clap::Args)]
pub struct GalleryArguments {
    /// The folder of the experiment files
    #[arg(default_value = "docs/lab/gallery")]
    folder: PathBuf,
    /// Where the runs are kept, a folder for each experiment
    #[arg(long, value_name = "DIR", default_value = "target/lab-gallery")]
    runs: PathBuf,
    /// Only these experiments, by the names of their files without the ending
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// One block of a few seconds each, to see whether all of it works; the pages are left alone
    #[arg(long)]
    short: bool,
    /// Write reports and pages anew from the runs that are there; run nothing
    #[arg(long)]
    render: bool,
}

pub(super) fn run(arguments: &GalleryArguments) -> Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for file in files(arguments)? {
        let name = stem(&file);
        let text =
            fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let (text, runs) = if arguments.short {
            (
                shortened(&text)?,
                arguments.runs.join(format!("{name}-short")),
            )
        } else {
            (text, arguments.runs.join(&name))
        };
        say!("{name}: {}", runs.display());
        if arguments.render {
            super::report::write(&runs)?;
        } else {
            fs::create_dir_all(&arguments.runs)
                .with_context(|| format!("cannot make {}", arguments.runs.display()))?;
            // One that cannot run here must not keep the others from running.
            match run_text(&text, &file, &runs, &[], false) {
                Ok(ended) if ended == ExitCode::SUCCESS => {}
                Ok(_) => code = ExitCode::from(1),
                Err(error) => {
                    complain!("{name}: {error:#}");
                    code = ExitCode::from(1);
                    continue;
                }
            }
        }
        if !arguments.short {
            publish(&arguments.folder, &name, &text, &runs)?;
        }
    }
    Ok(code)
}

fn stem(file: &Path) -> String {
    file.file_stem()
        .map_or(String::new(), |stem| stem.to_string_lossy().into_owned())
}

/// The experiment files, by their names.
fn files(arguments: &GalleryArguments) -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = fs::read_dir(&arguments.folder)
        .with_context(|| format!("cannot read {}", arguments.folder.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ending| ending == "toml"))
        .collect();
    files.sort();
    let names: Vec<String> = files.iter().map(|file| stem(file)).collect();
    for name in &arguments.only {
        let near = crate::nearness::hint(name, names.iter().map(String::as_str));
        ensure!(
            names.contains(name),
            "{} has no `{name}.toml`{near}",
            arguments.folder.display()
        );
    }
    files.retain(|file| arguments.only.is_empty() || arguments.only.contains(&stem(file)));
    ensure!(
        !files.is_empty(),
        "{} has no experiment file",
        arguments.folder.display()
    );
    Ok(files)
}

/// The same experiment as one block of runs of seconds.
fn shortened(text: &str) -> Result<String> {
    let own = ["blocks", "warm_up", "duration"];
    let is_own = |line: &str| {
        line.split_once('=')
            .is_some_and(|(name, _)| own.contains(&name.trim()))
    };
    // What holds for all loads stands before the first table.
    let tables = text.find("\n[").unwrap_or(text.len());
    let (head, rest) = text.split_at(tables);
    let head: Vec<&str> = head.lines().filter(|line| !is_own(line)).collect();
    let text = format!(
        "{}\nblocks = 1\nwarm_up = \"500 ms\"\nduration = \"2 s\"\n{rest}",
        head.join("\n")
    );
    Experiment::parse(&text).map_err(|mistake| anyhow!("{mistake}"))?;
    Ok(text)
}

/// Puts what was found beside the experiment file.
fn publish(folder: &Path, name: &str, text: &str, runs: &Path) -> Result<()> {
    let place = folder.join(name);
    fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
    for file in ["report.html", "summary.json"] {
        fs::copy(runs.join(file), place.join(file))
            .with_context(|| format!("cannot put {file} into {}", place.display()))?;
    }
    let summary: Summary = read_json(&place.join("summary.json"))?;
    let page = folder.join(format!("{name}.md"));
    let before = match fs::read_to_string(&page) {
        Ok(before) => before,
        Err(_) => new_page(name, text, &summary),
    };
    write_whole(&page, &with_figures(&before, &figures(name, &summary))?)?;
    say!("page: {}", page.display());
    Ok(())
}

const BEGIN: &str = "<!-- figures: written by `spindle-lab gallery` -->";
const END: &str = "<!-- end of figures -->";

/// A page with the question, a place for the figures, and what they do not show by themselves.
fn new_page(name: &str, text: &str, summary: &Summary) -> String {
    let question: Vec<&str> = text
        .lines()
        .take_while(|line| line.starts_with('#'))
        .map(|line| line.trim_start_matches('#').trim())
        .collect();
    format!(
        "# {}\n\n## What was asked\n\n{}\n\nThe experiment is [{name}.toml]({name}.toml).\n\n\
         ## What was found\n\n{BEGIN}\n{END}\n\n## What it does not show\n\n\
         Figures of one machine, with loads that are not those of the published experiment.\n",
        summary.name,
        question.join("\n")
    )
}

/// The page with what lies between the marks replaced.
fn with_figures(page: &str, figures: &str) -> Result<String> {
    let (before, rest) = page
        .split_once(BEGIN)
        .with_context(|| format!("the page has no line `{BEGIN}`"))?;
    let (_, after) = rest
        .split_once(END)
        .with_context(|| format!("the page has no line `{END}`"))?;
    Ok(format!(
        "{before}{BEGIN}\n\n{}\n\n{END}{after}",
        figures.trim()
    ))
}

/// The verdicts, a table for each load, and the doubts, in Markdown.
fn figures(name: &str, summary: &Summary) -> String {
    let mut text = String::new();
    for sentence in &summary.headline {
        let _ = writeln!(text, "- {sentence}");
    }
    for curve in &summary.curves {
        let _ = write!(
            text,
            "\n**{}** ({})\n\n| contender | peak | at users | knee at users | one user alone |\n|---|---|---|---|---|\n",
            curve.title, curve.unit
        );
        for contender in &curve.contenders {
            let dash = || "-".to_owned();
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} |",
                contender.name,
                contender.peak.map_or_else(dash, show_number),
                contender
                    .peak_users
                    .map_or_else(dash, |users| users.to_string()),
                contender
                    .knee
                    .map_or_else(dash, |knee| format!("{:.1}", knee.users)),
                contender
                    .fit
                    .map_or_else(dash, |fit| show_number(fit.per_user)),
            );
        }
    }
    for workload in &summary.workloads {
        text.push_str(&table(workload));
    }
    let mut told: Vec<&Told> = summary.doubts.iter().collect();
    for workload in &summary.workloads {
        for (_, doubt) in workload.all_doubts() {
            if !told.iter().any(|other| other.what == doubt.what) {
                told.push(doubt);
            }
        }
    }
    if !told.is_empty() {
        text.push_str("\nDoubts of the lab's own:\n\n");
        for doubt in told {
            let _ = writeln!(text, "- {} {}", doubt.what, doubt.what_to_do);
        }
    }
    for (contender, reason) in &summary.not_run {
        let _ = write!(text, "\nNot run: {contender}: {reason}.\n");
    }
    let failed = if summary.failed.is_empty() {
        String::new()
    } else {
        format!(", {} failed", summary.failed.len())
    };
    let _ = write!(
        text,
        "\n{} of {} runs measured{failed}, seed {}. [The whole report]({name}/report.html), [its figures]({name}/summary.json).\n",
        summary.runs_measured, summary.runs_planned, summary.seed
    );
    text
}

fn table(workload: &WorkloadSummary) -> String {
    let mut text = format!(
        "\n**{}**; the baseline against itself lies within {:.1} %\n\n\
         | contender | {} | ratio | interval | verdict | mean | p99 | CPU an operation |\n|---|---|---|---|---|---|---|---|\n",
        workload.title,
        workload.noise_floor * 100.0,
        workload.unit
    );
    let dash = || "-".to_owned();
    for contender in &workload.contenders {
        if contender.name.ends_with(AGAIN) {
            continue;
        }
        let against = contender.against.as_deref().unwrap_or_default();
        let ratio = contender.ratio.map(|ratio| match against {
            "" => format!("{:.3}", ratio.centre),
            _ => format!("{:.3} of {against}", ratio.centre),
        });
        let interval = contender
            .ratio
            .and_then(|ratio| Some(format!("{:.3} to {:.3}", ratio.low?, ratio.high?)));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            contender.name,
            contender.rate.map_or("failed".to_owned(), show_number),
            ratio.unwrap_or_else(dash),
            interval.unwrap_or_else(dash),
            contender.verdict.map_or("", |verdict| verdict.word()),
            contender
                .latency_mean_us
                .map_or_else(dash, show_microseconds),
            contender
                .latency_us
                .get(2)
                .copied()
                .flatten()
                .map_or_else(dash, |us| show_microseconds(as_float(us))),
            contender.processor_us.map_or_else(dash, show_microseconds),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyse::sample::{curve, folder, measured};
    use crate::analyse::summary::summarise;
    use crate::record::write_json;

    fn found() -> Summary {
        let folder = folder(curve(12), |planned| {
            measured(1000.0 + f64::from(planned.number % 5))
        });
        summarise(&folder)
    }

    #[test]
    fn a_page_keeps_its_words_and_gets_new_figures() {
        let gallery = tempfile::tempdir().unwrap();
        let runs = tempfile::tempdir().unwrap();
        write_json(&runs.path().join("summary.json"), &found()).unwrap();
        fs::write(runs.path().join("report.html"), "a report").unwrap();
        let text = "# Is one faster?\n# Or the other?\nblocks = 5\n";
        publish(gallery.path(), "9-sample", text, runs.path()).unwrap();
        let page = gallery.path().join("9-sample.md");
        let first = fs::read_to_string(&page).unwrap();
        assert!(first.contains("Is one faster?\nOr the other?"), "{first}");
        assert!(first.contains("EQUIVALENT at"), "{first}");
        assert!(first.contains("| btrfs-raid1 |"), "{first}");
        assert!(first.contains("9-sample/report.html"), "{first}");
        fs::write(
            &page,
            first.replace("Figures of one machine", "My own words"),
        )
        .unwrap();
        publish(gallery.path(), "9-sample", text, runs.path()).unwrap();
        let second = fs::read_to_string(&page).unwrap();
        assert_eq!(
            second,
            first.replace("Figures of one machine", "My own words")
        );
        assert!(gallery.path().join("9-sample/report.html").exists());
        fs::write(&page, "no marks").unwrap();
        let error = publish(gallery.path(), "9-sample", text, runs.path()).unwrap_err();
        assert!(error.to_string().contains("has no line"), "{error}");
    }

    #[test]
    fn every_experiment_of_the_gallery_can_be_read_and_its_short_form_too() {
        let folder = Path::new(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/lab/gallery"
        ));
        let arguments = GalleryArguments {
            folder: folder.to_owned(),
            runs: PathBuf::new(),
            only: Vec::new(),
            short: false,
            render: false,
        };
        for file in files(&arguments).unwrap() {
            let text = fs::read_to_string(&file).unwrap();
            let whole = Experiment::parse(&text)
                .unwrap_or_else(|mistake| panic!("{}: {mistake}", file.display()));
            assert!(whole.blocks >= 5, "{}", file.display());
            let short = Experiment::parse(&shortened(&text).unwrap()).unwrap();
            assert_eq!(short.blocks, 1);
            assert_eq!(short.workloads, whole.workloads);
            assert!(
                text.starts_with('#'),
                "{}: the question first",
                file.display()
            );
        }
    }
}
