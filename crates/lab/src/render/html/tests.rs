//! The page in text; in a real browser it is in `browser`.

use super::*;
use crate::analyse::doubt::Doubt;
use crate::analyse::sample::{curve, experiment, folder, measured};
use crate::analyse::summary::Told;
use crate::analyse::summary::summarise;
use crate::experiment::Experiment;
use crate::record::Outcome;
use crate::render::sample::every_verdict;

mod browser;

fn sample() -> String {
    let folder = folder(experiment(6), |planned| {
        measured(1000.0 + f64::from(planned.number % 7) * 20.0)
    });
    page(&folder, &summarise(&folder))
}

#[test]
fn the_page_brings_everything_along_and_escapes_what_is_not_its_own() {
    let page = sample();
    assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("<script"));
    assert!(page.contains("a &lt;fast&gt; one"));
    assert!(page.contains("<dd>on 1970-01-01 (UTC)</dd>"));
    let verdict = page.find("class=\"first verdicts\"").unwrap();
    let chart = page.find("Ratios</h2>").unwrap();
    let figures = page.find("Figures</h3>").unwrap();
    assert!(
        verdict < chart && chart < figures,
        "the verdict comes first"
    );
    for heading in [
        "Ratios",
        "Every run",
        "Over time",
        "Slow operations",
        "Latency",
        "Bytes an operation",
    ] {
        assert!(page.contains(heading), "{heading}");
    }
}

#[test]
fn keys_of_the_file_are_code_and_the_same_advice_is_given_once() {
    let told = |block: u32| {
        Told::from(Doubt::BlockApart {
            block,
            change: -0.5,
            runs: 4,
        })
    };
    let folder = folder(experiment(6), |_| measured(1000.0));
    let mut summary = summarise(&folder);
    summary.doubts = vec![told(1), told(2)];
    let page = page(&folder, &summary);
    assert_eq!(page.matches("The machine was not the same in").count(), 2);
    assert_eq!(page.matches(&prose(&told(1).what_to_do)).count(), 1);
    assert_eq!(
        prose("raise `blocks` & `a<b`"),
        "raise <code>blocks</code> &amp; <code>a&lt;b</code>"
    );
    assert_eq!(prose("a ` alone"), "a ` alone");
}

/// A scaling curve with open loads, a failed run and a contender with two copies.
fn sample_of_a_curve() -> String {
    let experiment = curve(5);
    let loads = experiment.workloads.clone();
    let folder = folder(experiment, |planned| {
        if planned.label == "ext4" && planned.block == 2 && planned.workload == 2 {
            return Outcome::Failed {
                reason: "the storage <hangs>".to_owned(),
                log_tail: "PANIC: could not fsync".to_owned(),
            };
        }
        let users = f64::from(loads[planned.workload].users);
        let own = match planned.contender.as_str() {
            "xfs" => 1.1,
            "spindle-normal" => 0.9,
            _ => 1.0,
        };
        let noise = 1.0 + 0.01 * f64::from(planned.number * 7 % 5);
        measured(own * noise * 300.0 * users / (1.0 + 0.2 * (users - 1.0)))
    });
    page(&folder, &summarise(&folder))
}

#[test]
fn the_page_of_a_curve_has_its_knees_the_open_loads_the_extract_and_what_failed() {
    let page = sample_of_a_curve();
    for words in [
        "Scaling",
        "knee at users",
        "Open load",
        "In the order of an AWR report",
        "DB time",
        "Load profile, a transaction",
        "IO: WALSync",
        "of ext4, which is the slowest",
        "could not fsync",
        "in no ratio",
        "How to repeat it",
        "aqu-sz",
        "accounts &lt;main&gt;",
        "checkpoints",
    ] {
        assert!(
            page.to_lowercase().contains(&words.to_lowercase()),
            "{words}"
        );
    }
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
}

/// A cell of every sort, with doubts of every reach.
fn sample_of_every_verdict(blocks: u32) -> String {
    let folder = every_verdict(blocks);
    page(&folder, &summarise(&folder))
}

#[test]
fn each_cell_has_its_word_its_figures_and_its_colour() {
    let page = sample_of_every_verdict(12);
    let cells: Vec<&str> = (page.split("<td class=\"cell ").skip(1))
        .map(|rest| rest.split("</td>").next().unwrap_or_default())
        .collect();
    // Three loads and all of them together, by six contenders.
    assert_eq!(cells.len(), 24);
    let of = |class: &str| -> Vec<&str> {
        let begins = format!("{class}\">");
        (cells.iter().copied())
            .filter(|cell| cell.starts_with(&begins))
            .collect()
    };
    for (class, word, figure) in [
        ("faster", "FASTER", "1.199 to 1.20"),
        ("slower", "SLOWER", "0.599 to 0.60"),
        ("equivalent", "EQUIVALENT", "0.99"),
        ("inconclusive", "INCONCLUSIVE", "0.800 to 1.30"),
        ("over-the-limit", "OVER THE LIMIT", "operations/s"),
        ("failed", "FAILED", ""),
    ] {
        let cells = of(class);
        assert!(!cells.is_empty(), "{class}");
        assert!(cells.iter().all(|cell| cell.contains(word)), "{cells:?}");
        assert!(cells.iter().any(|cell| cell.contains(figure)), "{cells:?}");
    }
    assert!(of("baseline")[0].contains("1,00") && !of("baseline")[0].contains("<strong>"));
    assert!(sample_of_every_verdict(5).contains("class=\"cell look\""));
    // The name of its column is in each, for where the columns have no room.
    assert!(
        cells
            .iter()
            .all(|cell| cell.contains("class=\"who\"") || cell.starts_with("none"))
    );
}

#[test]
fn nothing_is_said_twice_and_every_number_leads_to_its_note() {
    for folder in [every_verdict(12), every_verdict(5)] {
        let summary = summarise(&folder);
        let page = page(&folder, &summary);
        let mut told: Vec<&Told> = summary.doubts.iter().collect();
        for load in &summary.workloads {
            told.extend(load.all_doubts().into_iter().map(|(_, told)| told));
        }
        assert!(told.len() > 5, "{}", told.len());
        for told in told {
            assert_eq!(page.matches(&prose(&told.what)).count(), 1, "{}", told.what);
            let advice = prose(&told.what_to_do);
            assert_eq!(page.matches(&advice).count(), 1, "{advice}");
        }
        for link in page.split("href=\"#").skip(1) {
            let target = link.split('"').next().unwrap_or_default();
            let count = page.matches(&format!("id=\"{target}\"")).count();
            assert_eq!(count, 1, "{target}");
        }
        // What it was measured on stands beside the verdicts and nowhere else.
        for fact in [
            "PostgreSQL 15.14",
            "a &lt;fast&gt; one",
            "60.0 MiB/s",
            "Linux 6.1",
            "15.6 GiB of memory",
        ] {
            assert_eq!(page.matches(fact).count(), 1, "{fact}");
        }
        let (first, rest) = page.split_once("<h2>Ratios</h2>").unwrap();
        assert!(first.contains("PostgreSQL 15.14") && first.contains("<h3>Doubts</h3>"));
        // Verdicts are words of the first screen and of the charts; further down are figures.
        let figures = rest.split_once("Figures</h3>").unwrap().1;
        let tables = figures
            .split("Slow operations</h3>")
            .next()
            .unwrap_or_default();
        assert!(!tables.contains("EQUIVALENT") && !tables.contains("INCONCLUSIVE"));
    }
}

#[test]
fn the_terminal_ends_with_the_same_sentence_and_matrix_in_eighty_columns() {
    use crate::render::matrix::sentence;
    for folder in [
        every_verdict(12),
        every_verdict(5),
        folder(curve(5), |_| measured(7.0)),
    ] {
        let summary = summarise(&folder);
        let said = crate::render::terminal::table(&summary);
        let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let at = said.find(&sentence(&summary)[..30]).unwrap();
        let (before, verdicts) = said.split_at(at);
        let doubts = before.split_once("\nDoubts\n").unwrap().1;
        assert!(
            flat(verdicts).starts_with(&flat(&sentence(&summary))),
            "{verdicts}"
        );
        for line in doubts.lines().chain(verdicts.lines()) {
            assert!(line.chars().count() <= 80, "{line}");
        }
        let mut told: Vec<&Told> = summary.doubts.iter().collect();
        for load in &summary.workloads {
            assert!(verdicts.contains(&load.title), "{verdicts}");
            told.extend(load.all_doubts().into_iter().map(|(_, told)| told));
        }
        for told in told {
            let count = flat(&said).matches(&flat(&told.what)).count();
            assert_eq!(count, 1, "{}\n{said}", told.what);
        }
        let is_spaced = |line: &&str| !line.contains("OVER THE LIMIT") || line.contains("LIMIT  ");
        assert!(verdicts.lines().all(|line| is_spaced(&line)), "{verdicts}");
    }
    let said = crate::render::terminal::table(&summarise(&every_verdict(12)));
    let line = said
        .lines()
        .find(|line| line.starts_with("  xfs  "))
        .unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[..2], ["xfs", "FASTER"]);
    assert_eq!((words.len(), words[4]), (6, "to"), "{line}");
    assert!(
        said.contains("FAILED: ") && said.contains("not run: zfs: "),
        "{said}"
    );
}

#[test]
fn another_durability_class_stands_in_a_table_of_its_own() {
    use crate::record::DurabilityClass;
    let folder = crate::analyse::sample::classed(|planned| {
        Some(if planned.contender == "xfs" {
            DurabilityClass::NotDurable
        } else {
            DurabilityClass::Durable
        })
    });
    let summary = summarise(&folder);
    let html = page(&folder, &summary);
    assert!(html.contains("<h4>Not ranked with these: not durable</h4>"));
    let terminal = crate::render::terminal::table(&summary);
    let (above, below) = terminal
        .split_once("not ranked with these: not durable")
        .unwrap();
    let is_row = |line: &str| line.starts_with("xfs  ");
    let first_below = below.lines().nth(2).unwrap();
    assert!(is_row(first_below), "{terminal}");
    assert!(!above.lines().any(is_row), "{terminal}");
}

/// Sizes, depths and shares of reads; xfs is half as fast again at the greater depth alone.
fn sample_of_a_map(read_percents: &str) -> Folder {
    let experiment = Experiment::parse(&format!(
        "contenders = [\"ext4\", \"xfs\"]\nblocks = 12\nduration = \"20 s\"\n[devices]\nkind = \"loop\"\n\
         [[workload]]\nkind = \"block\"\npattern = \"random-mixed\"\nblock_size = [\"4 KiB\", \"64 KiB\"]\n\
         depth = [1, 16]\nread_percent = [{read_percents}]\n",
    ))
    .unwrap();
    let loads = experiment.workloads.clone();
    folder(experiment, |planned| {
        let is_deep = loads[planned.workload].point.depth == 16;
        let own = if planned.contender == "xfs" && is_deep {
            1.5
        } else {
            1.0
        };
        measured(1000.0 * own * (1.0 + f64::from(planned.number % 5) / 1000.0))
    })
}

#[test]
fn sizes_and_depths_are_a_map_for_each_contender_and_one_sentence() {
    let folder = sample_of_a_map("0, 70");
    let summary = summarise(&folder);
    assert_eq!(summary.workloads.len(), 8);
    assert_eq!(summary.curves, []);
    let told: Vec<&String> = (summary.headline.iter())
        .filter(|line| line.contains("xfs against ext4") && line.contains("points"))
        .collect();
    let [sentence] = told.as_slice() else {
        panic!("{:?}", summary.headline);
    };
    assert!(
        sentence.starts_with("block, random-mixed, by sizes and depths: xfs against ext4 is FASTER at 4, EQUIVALENT at 4 of 8 points"),
        "{sentence}"
    );
    let page = page(&folder, &summary);
    assert_eq!(page.matches("by sizes and depths</h2>").count(), 1);
    assert_eq!(page.matches("class=\"map\"").count(), 4);
    assert_eq!(page.matches("<th scope=\"row\">64 KiB</th>").count(), 4);
    assert!(page.contains("<h3>xfs at 70 % reads</h3>"));
    // Each load is there, folded.
    for index in 1..=8 {
        assert!(page.contains(&format!("id=\"load-{index}\"")), "{index}");
    }
}

#[test]
fn a_map_of_many_points_has_one_row_on_the_first_screen_and_its_points_below() {
    let folder = sample_of_a_map("0, 50, 70");
    let page = page(&folder, &summarise(&folder));
    let (first, after) = page.split_once("</section>").unwrap();
    let (shown, folded) = first.split_once("<details>").unwrap();
    assert_eq!(
        shown.matches("<tr><th scope=\"row\">").count(),
        1,
        "{shown}"
    );
    let signed = |sign: char, word: &str, count: u32| {
        format!(
            "<strong><span class=\"sign\" aria-hidden=\"true\">{sign}</span> {word} at {count}</strong>"
        )
    };
    assert!(
        shown.contains("<a href=\"#map-1\">") && shown.contains("12 points"),
        "{shown}"
    );
    assert!(shown.contains(&signed('\u{25b2}', "FASTER", 6)), "{shown}");
    assert!(shown.contains(&signed('=', "EQUIVALENT", 6)), "{shown}");
    assert_eq!(folded.matches("<tr><th scope=\"row\">").count(), 12);
    assert!(after.contains("<section id=\"map-1\">"));
}
