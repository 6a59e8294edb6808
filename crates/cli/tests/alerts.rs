//! The alert rules and the dashboard that are shipped, against real metrics and a real Prometheus.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use place::{Place, can_mount};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

fn shipped(file: &str) -> PathBuf {
    let packaging = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    packaging.join(file).canonicalize().unwrap()
}

fn is_installed(tool: &str) -> bool {
    let mut asked = Command::new(tool);
    let is_there = asked.arg("--version").output().is_ok();
    if !is_there {
        println!("skipped: {tool} is not installed");
    }
    is_there
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

fn get(address: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    let request = format!("GET {path} HTTP/1.0\r\nhost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    Some(body.to_owned())
}

/// A query of the dashboard, and the labels that its legend shows.
struct Asked {
    expression: String,
    labels: Vec<String>,
}

fn asked_by_the_dashboard() -> Vec<Asked> {
    let text = std::fs::read_to_string(shipped("grafana/spindle.json")).unwrap();
    let board: Value = serde_json::from_str(&text).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let numbers: BTreeSet<u64> = (panels.iter())
        .map(|panel| panel["id"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers.len(), panels.len(), "each panel has its own number");
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap());
    let asked = targets.map(|target| {
        let legend = target["legendFormat"].as_str().unwrap();
        let labels = legend.split("{{").skip(1).map(|rest| {
            let (label, _) = rest.split_once("}}").unwrap();
            label.to_owned()
        });
        let expression = target["expr"].as_str().unwrap();
        // What Grafana puts in their place.
        let expression = expression.replace("$group", ".*");
        Asked {
            expression: expression.replace("$__rate_interval", "4s"),
            labels: labels.collect(),
        }
    });
    asked.collect()
}

/// The names of metrics in an expression.
fn names_in(text: &str) -> BTreeSet<String> {
    let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let words = text.split(|character| !is_part(character));
    let names = words.filter(|word| word.starts_with("spindle_"));
    let family = |name: &str| {
        let suffixes = ["_bucket", "_sum", "_count"];
        let bare = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix));
        bare.unwrap_or(name).to_owned()
    };
    names.map(family).collect()
}

#[test]
fn each_alert_comes_when_it_has_to_and_none_for_a_group_that_is_well() {
    if !is_installed("promtool") {
        return;
    }
    for (what, file) in [
        ("check", "prometheus/spindle.rules.yml"),
        ("test", "prometheus/spindle.rules.test.yml"),
    ] {
        let mut command = Command::new("promtool");
        let answer = command.arg(what).arg("rules").arg(shipped(file)).output();
        let answer = answer.unwrap();
        let said = [answer.stdout, answer.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(answer.status.success(), "{said}");
    }
}

#[test]
fn each_alert_names_a_section_of_the_operations_page_that_is_there() {
    let page = std::fs::read_to_string(shipped("../docs/operations.md")).unwrap();
    let headings: BTreeSet<String> = (page.lines())
        .filter_map(|line| line.strip_prefix("## "))
        .map(|heading| heading.to_lowercase().replace(' ', "-"))
        .collect();
    let rules = std::fs::read_to_string(shipped("prometheus/spindle.rules.yml")).unwrap();
    let alerts: Vec<&str> = rules.split("- alert: ").skip(1).collect();
    assert!(alerts.len() > 10, "{}", alerts.len());
    for alert in alerts {
        let (name, rest) = alert.split_once('\n').unwrap();
        let link = rest.split_once("runbook: \"docs/operations.md#");
        let section = link.and_then(|(_, after)| Some(after.split_once('"')?.0));
        let section = section.unwrap_or_else(|| panic!("{name} has no runbook"));
        assert!(headings.contains(section), "{name}: no section {section}");
    }
}

#[test]
fn what_alerts_and_dashboard_ask_for_is_among_the_metrics() {
    let place = Place::new();
    place.create_group();
    let address = free_address();
    place.tell(["group", "mount", "data", "--metrics", &address.to_string()]);
    let metrics = get(address, "/metrics").unwrap();
    let given: BTreeSet<&str> = (metrics.lines())
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    let rules = std::fs::read_to_string(shipped("prometheus/spindle.rules.yml")).unwrap();
    let mut wanted = names_in(&rules);
    assert!(wanted.len() > 10, "{wanted:?}");
    for asked in asked_by_the_dashboard() {
        wanted.extend(names_in(&asked.expression));
    }
    for name in wanted {
        assert!(given.contains(name.as_str()), "{name} is no metric");
    }
    place.tell(["group", "dismount", "data"]);
}

/// A Prometheus of the test's own.
struct Prometheus {
    process: Child,
    address: SocketAddr,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Prometheus {
    fn start(place: &Place, metrics: SocketAddr) -> Self {
        let rules = shipped("prometheus/spindle.rules.yml");
        let settings = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
             rule_files: ['{}']\n\
             scrape_configs:\n  \
             - {{job_name: spindle, static_configs: [{{targets: ['{metrics}']}}]}}\n",
            rules.display()
        );
        std::fs::write(place.path("prometheus.yml"), settings).unwrap();
        let address = free_address();
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", place.text("prometheus.yml")))
            .arg(format!("--storage.tsdb.path={}", place.text("series")))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self {
            process: process.unwrap(),
            address,
        }
    }

    fn query(&self, expression: &str) -> Option<Value> {
        let percent = |byte: u8| format!("%{byte:02x}");
        let encoded: String = expression.bytes().map(percent).collect();
        let answer = get(self.address, &format!("/api/v1/query?query={encoded}"))?;
        serde_json::from_str(&answer).ok()
    }

    /// The series that the expression gives; once more until there are some.
    fn series(&self, expression: &str) -> Vec<Value> {
        let begun = Instant::now();
        loop {
            if let Some(answer) = self.query(expression) {
                assert_eq!(answer["status"], "success", "{expression}: {answer}");
                let series = answer["data"]["result"].as_array().unwrap();
                if !series.is_empty() {
                    return series.clone();
                }
            }
            if begun.elapsed() > PATIENCE {
                return Vec::new();
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

#[test]
fn prometheus_draws_every_line_of_the_dashboard_and_tells_of_a_pulled_disk() {
    if !can_mount() || !is_installed("prometheus") {
        return;
    }
    let place = Place::new();
    place.create_group();
    let address = free_address();
    let directory = place.mount_point();
    let wanted = ["--metrics", &address.to_string()].map(str::to_owned);
    let mut words = vec!["mount".to_owned(), "data".to_owned()];
    words.push(directory.display().to_string());
    words.extend(wanted);
    place.tell(words);
    std::fs::write(directory.join("file"), [7; 100_000]).unwrap();
    // What is not known has no line: of a scrub there is one to tell.
    place.tell(["scrub", "data", "--wait", "--power", "1024"]);
    let prometheus = Prometheus::start(&place, address);
    for asked in asked_by_the_dashboard() {
        // There is background work when a disk comes back.
        if asked.expression.contains("spindle_operation_") {
            continue;
        }
        let series = prometheus.series(&asked.expression);
        assert!(!series.is_empty(), "{} gives nothing", asked.expression);
        for one in series {
            for label in &asked.labels {
                assert!(one["metric"][label].is_string(), "{label} in {one}");
            }
        }
    }
    assert!(
        (prometheus.query("ALERTS").unwrap()["data"]["result"].as_array())
            .is_some_and(Vec::is_empty),
        "nothing is wrong with it"
    );
    place.tell(["fault", "pull", "data", "data_0001"]);
    std::fs::write(directory.join("file"), [8; 100_000]).unwrap();
    let told = prometheus.series("ALERTS{alertname=\"SpindleDiskOffline\"}");
    assert_eq!(told[0]["metric"]["disk"], "data_0001");
    drop(prometheus);
    place.umount();
}
