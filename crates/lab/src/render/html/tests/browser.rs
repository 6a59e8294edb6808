//! The page in a real browser: on a desktop, on a phone, in the dark and on paper.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{every_verdict, sample, sample_of_a_curve, sample_of_every_verdict, summarise};
use crate::measure::program::{find, run_within};

/// What the page looks like from within: opened wide, so that everything is drawn, and put into an
/// attribute that the test reads. The page itself has no script.
const PROBE: &str = r#"<script>
if (!document.documentElement.dataset.printed) document.querySelectorAll('details').forEach(d => d.open = true);
const box = e => e.getBoundingClientRect();
const charts = [...document.querySelectorAll('svg.chart')].filter(c => box(c).width > 0);
const marks = c => [...c.querySelectorAll('path,circle,rect')].filter(m => box(m).width + box(m).height > 1);
const seen = e => box(e).width > 0 && box(e).height > 0;
const nameless = [...document.querySelectorAll('.cell:not(.none)')].filter(seen).filter(c => {
  const head = c.closest('table').tHead.rows[0].cells[c.cellIndex];
  return !seen(c.querySelector('.who')) && !seen(head); }).map(c => c.textContent);
const shut = [...document.querySelectorAll('details')].filter(d => !d.lastElementChild.checkVisibility()).length;
const first = [...document.querySelectorAll('.sentence,.measured-on,.matrix')].map(e => Math.round(box(e).bottom));
const over = [...document.querySelectorAll('.cell strong,.cell .interval,.matrix .name')].filter(seen).filter(e =>
  box(e).right > box(e.closest('td,th')).right + 1 || e.scrollWidth > e.closest('td,th').clientWidth).map(e => e.textContent);
const heads = [...document.querySelectorAll('.matrix tbody th')].filter(seen).map(e => Math.round(box(e).width));
const cut = charts.flatMap(c => [...c.querySelectorAll('text')].filter(t =>
  box(t).left < box(c).left - 1 || box(t).right > box(c).right + 1).map(t => t.textContent));
const wide = [...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll') &&
  !e.closest('svg') && box(e).right > innerWidth + 1).map(e => e.tagName + ' ' + e.textContent.slice(0, 40));
document.body.dataset.probe = JSON.stringify({width: innerWidth, charts: charts.length,
  empty: charts.filter(c => box(c).height < 40 || marks(c).length < 1).map(c => c.getAttribute('aria-label')),
  cut, wide, over, nameless, shut, first, heads});
</script></body>"#;

#[derive(Debug, serde::Deserialize)]
struct Probed {
    width: u32,
    charts: usize,
    empty: Vec<String>,
    cut: Vec<String>,
    wide: Vec<String>,
    /// Words that are wider than their cell.
    over: Vec<String>,
    /// Cells with neither a name of their own nor a head over them.
    nameless: Vec<String>,
    /// Sections that are closed.
    shut: usize,
    /// Where sentence, facts and matrix end.
    first: Vec<f64>,
    /// How wide the titles of the loads are.
    heads: Vec<f64>,
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

/// As the page is on paper, to be measured: its rules for print hold, those for a screen do not.
fn printed(page: &str) -> String {
    page.replace("@media print{", "@media all{")
        .replace("@media screen", "@media not all")
        .replace("<html ", "<html data-printed=\"yes\" ")
}

fn look_at(browser: &Browser, page: &str, width: u32) -> Probed {
    let framed = framed(&page.replace("</body>", PROBE), width, 2000);
    let dom = browser.open(&framed, &["--dump-dom", "--window-size=1500,2000"]);
    assert!(!dom.contains("NaN"), "at {width}");
    let found = probed(&dom);
    assert_eq!(found.width, width);
    assert!(found.empty.is_empty(), "at {width}: {:?}", found.empty);
    assert!(found.cut.is_empty(), "at {width}: {:?}", found.cut);
    assert!(found.wide.is_empty(), "at {width}: {:?}", found.wide);
    assert!(found.over.is_empty(), "at {width}: {:?}", found.over);
    assert!(
        found.nameless.is_empty(),
        "at {width}: {:?}",
        found.nameless
    );
    let narrow = found.heads.iter().any(|head| *head < 110.0);
    assert!(!narrow, "at {width}: {:?}", found.heads);
    assert_eq!(found.shut, 0, "at {width}");
    found
}

fn samples() -> [String; 3] {
    [sample(), sample_of_a_curve(), sample_of_every_verdict(5)]
}

#[test]
fn a_browser_without_a_network_draws_every_chart_and_finds_no_error() {
    let Some(browser) = Browser::find() else {
        return;
    };
    for page in samples() {
        // Each chart is there twice, and the one that fits is shown.
        let charts = page.matches("<svg").count() / 2;
        assert!(charts >= 10, "{charts}");
        for width in [1440, 1100, 390] {
            let found = look_at(&browser, &page, width);
            assert_eq!(found.charts, charts, "at {width}");
        }
    }
}

#[test]
fn the_first_screen_of_a_desktop_holds_the_sentence_the_facts_and_the_matrix() {
    let Some(browser) = Browser::find() else {
        return;
    };
    for page in [sample(), sample_of_every_verdict(12)] {
        let ends = look_at(&browser, &page, 1440).first;
        assert_eq!(ends.len(), 3);
        assert!(
            ends.iter().all(|end| (1.0..900.0).contains(end)),
            "{ends:?}"
        );
    }
}

/// What is left of a sheet of A4 and of letter between the margins, in the page's pixels.
const PAPERS: [(&str, u32); 2] = [("A4", 703), ("letter", 725)];

#[test]
fn on_paper_nothing_is_cut_and_every_section_is_open() {
    let Some(browser) = Browser::find() else {
        return;
    };
    for page in samples() {
        let charts = page.matches("<svg").count() / 2;
        // What may be scrolled on a screen may not on paper.
        let page = printed(&page).replace("class=\"scroll\"", "class=\"printed\"");
        for (paper, width) in PAPERS {
            let found = look_at(&browser, &page, width);
            assert_eq!(found.charts, charts, "on {paper}");
        }
    }
}

/// The sheets that a browser prints, each as its lines; none where they cannot be read.
fn sheets(browser: &Browser, page: &str, paper: &str) -> Option<Vec<Vec<String>>> {
    let program = find("pdftotext");
    if program.is_none() {
        println!("skipped: pdftotext is not installed");
    }
    let file = browser.scene.path().join("printed.pdf");
    let page = page.replace("@page{", &format!("@page{{size:{paper};"));
    let print = format!("--print-to-pdf={}", file.display());
    browser.open(&page, &["--no-pdf-header-footer", &print]);
    let mut read = Command::new(program?);
    read.arg("-layout").arg(&file).arg("-");
    let ended = run_within(&mut read, Duration::from_secs(60)).unwrap();
    assert!(ended.status.success(), "{}", ended.stderr);
    let lines = |sheet: &str| -> Vec<String> {
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        sheet
            .lines()
            .map(words)
            .filter(|line| !line.is_empty())
            .collect()
    };
    let sheets = ended.stdout.split('\u{c}').map(lines);
    Some(sheets.filter(|lines| !lines.is_empty()).collect())
}

/// The text of every element of a sort, without the marks within.
fn texts_of(page: &str, begins: &str, ends: &str) -> Vec<String> {
    (page.split(begins).skip(1))
        .filter_map(|rest| rest.split(ends).next()?.split_once('>'))
        .map(|(_, text)| {
            let plain: String = text
                .split('<')
                .map(|part| part.rsplit('>').next().unwrap_or_default())
                .collect();
            let plain = plain
                .replace("&lt;", "<")
                .replace("&gt;", ">")
                .replace("&quot;", "\"")
                .replace("&amp;", "&");
            plain.split_whitespace().collect::<Vec<_>>().join(" ")
        })
        .collect()
}

#[test]
fn no_heading_stands_alone_at_the_end_of_a_sheet_and_all_of_it_is_printed() {
    let Some(browser) = Browser::find() else {
        return;
    };
    let marks = [
        ("<h1", "</h1>"),
        ("<h2", "</h2>"),
        ("<h3", "</h3>"),
        ("<h4", "</h4>"),
        ("<summary", "</summary>"),
        ("<p class=\"note\"", "</p>"),
    ];
    for page in samples() {
        let heads: Vec<String> = (marks.into_iter())
            .flat_map(|(begins, ends)| texts_of(&page, begins, ends))
            .collect();
        assert!(heads.len() > 20, "{heads:?}");
        for (paper, _) in PAPERS {
            let Some(sheets) = sheets(&browser, &page, paper) else {
                return;
            };
            assert!(sheets.len() > 2, "on {paper}: {}", sheets.len());
            let (_, but_the_last) = sheets.split_last().unwrap();
            for (number, sheet) in but_the_last.iter().enumerate() {
                let last = sheet.last().unwrap();
                let is_head = heads.iter().any(|head| head.ends_with(last.as_str()));
                assert!(!is_head, "{paper}, sheet {}: {last}", number + 1);
            }
            let all = sheets.concat().join(" ");
            for within in ["aqu-sz", "WALSync", "mkfs.ext4 /dev/loop0"] {
                assert!(all.contains(within), "on {paper}: {within}");
            }
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
    let page = sample_of_every_verdict(12);
    let opened = page.replace("<details", "<details open");
    let phone = framed(&opened, 390, 2400);
    for (name, page) in [("page.html", &page), ("curve.html", &sample_of_a_curve())] {
        std::fs::write(target.join(name), page).unwrap();
    }
    let said = crate::render::terminal::table(&summarise(&every_verdict(12)));
    std::fs::write(target.join("terminal.txt"), said).unwrap();
    for (name, page, words) in [
        ("desktop.png", &opened, vec!["--window-size=1440,2400"]),
        (
            "dark.png",
            &opened,
            vec![
                "--window-size=1440,2400",
                "--blink-settings=preferredColorScheme=0",
            ],
        ),
        ("phone.png", &phone, vec!["--window-size=500,2400"]),
        ("paper.pdf", &page, Vec::new()),
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
