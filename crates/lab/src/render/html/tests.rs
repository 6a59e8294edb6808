//! The page in text, and in a real browser.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::*;
use crate::analyse::doubt::Doubt;
use crate::analyse::sample::{curve, experiment, folder, measured};
use crate::analyse::summary::summarise;
use crate::measure::program::{find, run_within};
use crate::record::Outcome;

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
    let verdict = page.find("class=\"verdicts\"").unwrap();
    let figures = page.find("Ratio</h3>").unwrap();
    assert!(verdict < figures, "the verdict comes first");
    for heading in [
        "Ratio",
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
    let (first, second) = (told(1), told(2));
    let list = doubts(&[(String::new(), &first), (String::new(), &second)]);
    assert_eq!(list.matches("<li>").count(), 2);
    assert_eq!(list.matches("class=\"advice\"").count(), 1);
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

/// What the page looks like from within: opened wide, so that everything is drawn, and put into an
/// attribute that the test reads. The page itself has no script.
const PROBE: &str = r#"<script>
document.querySelectorAll('details').forEach(d => d.open = true);
const box = e => e.getBoundingClientRect();
const charts = [...document.querySelectorAll('svg.chart')].filter(c => box(c).width > 0);
const marks = c => [...c.querySelectorAll('path,circle,rect')].filter(m => box(m).width + box(m).height > 1);
const cut = charts.flatMap(c => [...c.querySelectorAll('text')].filter(t =>
  box(t).left < box(c).left - 1 || box(t).right > box(c).right + 1).map(t => t.textContent));
const wide = [...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll') &&
  !e.closest('svg') && box(e).right > innerWidth + 1).map(e => e.tagName + ' ' + e.textContent.slice(0, 40));
document.body.dataset.probe = JSON.stringify({width: innerWidth, charts: charts.length,
  empty: charts.filter(c => box(c).height < 40 || marks(c).length < 1).map(c => c.getAttribute('aria-label')),
  cut, wide});
</script></body>"#;

#[derive(Debug, serde::Deserialize)]
struct Probed {
    width: u32,
    charts: usize,
    empty: Vec<String>,
    cut: Vec<String>,
    wide: Vec<String>,
}

/// A browser without a network, and a directory for what it keeps.
struct Browser {
    program: PathBuf,
    scene: tempfile::TempDir,
}

impl Browser {
    fn find() -> Option<Self> {
        let program = ["chromium", "chromium-browser", "google-chrome"]
            .iter()
            .find_map(|name| find(name));
        if program.is_none() {
            println!("skipped: chromium is not installed");
        }
        Some(Self {
            program: program?,
            scene: tempfile::tempdir().unwrap(),
        })
    }

    /// Opens a page and gives what the browser printed; a word on the console is a failure.
    fn open(&self, page: &str, words: &[&str]) -> String {
        let path = self.scene.path().join("page.html");
        std::fs::write(&path, page).unwrap();
        let mut command = Command::new(&self.program);
        command.args(["--headless=new", "--no-sandbox", "--disable-gpu"]);
        command.args(["--enable-logging=stderr", "--proxy-server=127.0.0.1:9"]);
        command.arg("--hide-scrollbars");
        command.arg(format!(
            "--user-data-dir={}",
            self.scene.path().join("profile").display()
        ));
        command.args(words);
        command.arg(format!("file://{}", path.display()));
        let ended = run_within(&mut command, Duration::from_secs(120)).unwrap();
        assert!(ended.status.success(), "{}", ended.stderr);
        let complaints: Vec<&str> = ended
            .stderr
            .lines()
            .filter(|line| line.contains("CONSOLE"))
            .collect();
        assert!(complaints.is_empty(), "{complaints:?}");
        ended.stdout
    }
}

/// A page in a frame of a phone's width: a headless browser's own window is never so narrow.
fn framed(page: &str, width: u32, height: u32) -> String {
    let inner = page.replace('&', "&amp;").replace('"', "&quot;");
    format!(
        "<!doctype html><html><body style=\"margin:0\"><iframe style=\"border:0\" width=\"{width}\" \
         height=\"{height}\" srcdoc=\"{inner}\"></iframe><script>onload = () => {{ document.body.dataset.probe = \
         frames[0].document.body.dataset.probe }}</script></body></html>"
    )
}

fn probed(dom: &str) -> Probed {
    let (_, rest) = dom
        .rsplit_once("data-probe=\"")
        .expect("the probe has left its mark");
    let json = rest.split('"').next().unwrap_or_default();
    let json = json.replace("&quot;", "\"").replace("&amp;", "&");
    serde_json::from_str(&json).unwrap()
}

#[test]
fn a_browser_without_a_network_draws_every_chart_and_finds_no_error() {
    let Some(browser) = Browser::find() else {
        return;
    };
    for page in [sample(), sample_of_a_curve()] {
        // Each chart is there twice, and the one that fits is shown.
        let charts = page.matches("<svg").count() / 2;
        assert!(charts >= 10, "{charts}");
        let with_probe = page.replace("</body>", PROBE);
        for width in [1100, 390] {
            let framed = framed(&with_probe, width, 2000);
            let dom = browser.open(&framed, &["--dump-dom", "--window-size=1200,2000"]);
            assert!(!dom.contains("NaN"), "at {width}");
            let found = probed(&dom);
            assert_eq!(found.width, width);
            assert_eq!(found.charts, charts, "at {width}");
            assert!(found.empty.is_empty(), "at {width}: {:?}", found.empty);
            assert!(found.cut.is_empty(), "at {width}: {:?}", found.cut);
            assert!(found.wide.is_empty(), "at {width}: {:?}", found.wide);
        }
    }
}

#[test]
fn a_browser_shows_it_in_light_in_dark_on_a_phone_and_on_paper() {
    let Some(browser) = Browser::find() else {
        return;
    };
    let target = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../target/lab-report"
    ));
    std::fs::create_dir_all(target).unwrap();
    let opened = sample_of_a_curve().replace("<details", "<details open");
    let phone = framed(&opened, 390, 2400);
    for (name, page, words) in [
        ("desktop.png", &opened, vec!["--window-size=1100,2400"]),
        (
            "dark.png",
            &opened,
            vec![
                "--window-size=1100,2400",
                "--blink-settings=preferredColorScheme=0",
            ],
        ),
        ("phone.png", &phone, vec!["--window-size=500,2400"]),
        ("paper.pdf", &opened, Vec::new()),
    ] {
        let file = target.join(name);
        // What an earlier test left would look like success.
        let _ = std::fs::remove_file(&file);
        let shot = if name == "paper.pdf" {
            format!("--print-to-pdf={}", file.display())
        } else {
            format!("--screenshot={}", file.display())
        };
        let mut words = words.clone();
        words.push(&shot);
        browser.open(page, &words);
        let length = file.metadata().unwrap().len();
        assert!(length > 20_000, "{name}: {length} bytes");
    }
    println!("to look at: {}", target.display());
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
