//! The page in text, and in a real browser.

use std::process::Command;
use std::time::Duration;

use super::*;
use crate::analyse::sample::{experiment, folder, measured};
use crate::analyse::summary::summarise;
use crate::measure::program::{find, run_within};

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
        "Latency",
        "Bytes an operation",
    ] {
        assert!(page.contains(heading), "{heading}");
    }
}

#[test]
fn a_browser_without_a_network_draws_every_chart_and_finds_no_error() {
    let Some(browser) = ["chromium", "chromium-browser", "google-chrome"]
        .iter()
        .find_map(|name| find(name))
    else {
        println!("skipped: chromium is not installed");
        return;
    };
    let scene = tempfile::tempdir().unwrap();
    let path = scene.path().join("report.html");
    let page = sample();
    std::fs::write(&path, &page).unwrap();
    for (width, shown) in [(1100, "wide"), (390, "narrow")] {
        let mut command = Command::new(&browser);
        command.args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--dump-dom",
        ]);
        command.args(["--enable-logging=stderr", "--proxy-server=127.0.0.1:9"]);
        command.arg(format!(
            "--user-data-dir={}",
            scene.path().join(shown).display()
        ));
        command.arg(format!("--window-size={width},2000"));
        command.arg(format!("file://{}", path.display()));
        let ended = run_within(&mut command, Duration::from_secs(120)).unwrap();
        assert!(ended.status.success(), "{}", ended.stderr);
        let complaints: Vec<&str> = ended
            .stderr
            .lines()
            .filter(|line| line.contains("CONSOLE"))
            .collect();
        assert!(complaints.is_empty(), "{complaints:?}");
        let charts = ended.stdout.matches("<svg").count();
        assert_eq!(charts, page.matches("<svg").count());
        assert!(charts >= 20, "{charts}");
        assert!(!ended.stdout.contains("NaN"));
    }
}
