//! An independent judge of `tpcc`: go-tpc's checks pass on our data, before and after our load, and
//! our conditions pass on data that go-tpc made, before and after its load.
//!
//! go-tpc comes from the Go module proxy at a fixed version and is built once for each target
//! directory.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use spindle_lab::experiment::{DatabaseKind, Experiment};
use spindle_lab::measure::control_group::{ControlGroup, version};
use spindle_lab::measure::database::{self, Purpose, Server, ServerPlan, Settings};
use spindle_lab::measure::journal::Journal;
use spindle_lab::measure::load::{Driven, LoadPlan, Meter, Shape, drive};
use spindle_lab::measure::program::{Ended, find, run_within};
use spindle_lab::measure::workload::{self, Load};
use tempfile::TempDir;

const REFEREE: &str = "github.com/pingcap/go-tpc@v1.0.12";

const BUILT_WITHIN: Duration = Duration::from_secs(600);

/// The program, where it can be had.
fn referee() -> Option<PathBuf> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-tpc-1.0.12");
    let program = directory.join("go-tpc");
    if program.exists() {
        return Some(program);
    }
    let Some(go) = find("go") else {
        println!("skipped: go is not installed, and go-tpc is built with it");
        return None;
    };
    let unavailable = |ended: &Ended| {
        let said = ended.stderr.lines().last().unwrap_or_default();
        println!("skipped: go-tpc cannot be had here: {said}");
    };
    let mut download = Command::new(&go);
    download.args(["mod", "download", "-json", REFEREE]);
    let downloaded = run_within(&mut download, BUILT_WITHIN).unwrap();
    if !downloaded.status.success() {
        unavailable(&downloaded);
        return None;
    }
    let module: serde_json::Value = serde_json::from_str(&downloaded.stdout).unwrap();
    // Within the module its own list of versions and sums holds. Built beside its place, so that a
    // build that was interrupted leaves nothing that looks whole.
    let growing = directory.join("growing");
    let mut build = Command::new(&go);
    build
        .args(["build", "-o"])
        .arg(&growing)
        .arg("./cmd/go-tpc")
        .current_dir(module["Dir"].as_str().unwrap());
    let built = run_within(&mut build, BUILT_WITHIN).unwrap();
    if !built.status.success() {
        unavailable(&built);
        return None;
    }
    fs::rename(&growing, &program).unwrap();
    Some(program)
}

/// A server, and everything that goes with it.
struct Court {
    server: Box<dyn Server>,
    runtime: PathBuf,
    program: PathBuf,
    _group: ControlGroup,
    _journal: Journal,
    _directory: TempDir,
}

impl Court {
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: the lab starts databases as root");
            return None;
        }
        if version("memory").is_none() {
            println!("skipped: no memory cgroup here");
            return None;
        }
        let Ok(installation) = database::find(DatabaseKind::Postgresql, None) else {
            println!("skipped: no PostgreSQL here");
            return None;
        };
        let program = referee()?;
        let directory = TempDir::new().unwrap();
        // The database's user must come through.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(directory.path(), open).unwrap();
        let journal = Journal::begin(&directory.path().join("state")).unwrap();
        let name = format!("spindle-lab-referee-{}", std::process::id());
        let group = ControlGroup::make(&journal, &name, None).unwrap();
        let data = directory.path().join("data");
        let settings = Settings::new();
        installation.initialise(&data, &settings).unwrap();
        let runtime = directory.path().join("runtime");
        fs::create_dir(&runtime).unwrap();
        let server = installation
            .start(&ServerPlan {
                data: &data,
                runtime: &runtime,
                purpose: Purpose::Fill,
                settings: &settings,
                memory_bytes: None,
                log_bytes: 256 << 20,
                users: 10,
                group: &group,
                journal: &journal,
            })
            .unwrap();
        Some(Self {
            server,
            runtime,
            program,
            _group: group,
            _journal: journal,
            _directory: directory,
        })
    }

    fn server(&self) -> &dyn Server {
        self.server.as_ref()
    }

    fn batch(&self, statements: &str) {
        self.server.connect().unwrap().batch(statements).unwrap();
    }

    /// The referee at work on one warehouse.
    fn referee(&self, words: &[&str]) -> Ended {
        let mut command = Command::new(&self.program);
        command
            .args(["tpcc", "--driver", "postgres", "--user", "postgres"])
            .args(["--db", "postgres", "--targets", ":5432"])
            .arg("--conn-params")
            .arg(format!("host={}&sslmode=disable", self.runtime.display()))
            .args(["--warehouses", "1", "--threads", "2"])
            .args(words);
        let ended = run_within(&mut command, Duration::from_secs(300)).unwrap();
        assert!(
            ended.status.success(),
            "{words:?}: {}{}",
            ended.stdout,
            ended.stderr
        );
        ended
    }

    /// What the referee found wrong; it must have looked at so many conditions if nothing.
    fn verdict(&self, words: &[&str], condition_count: usize) -> Option<String> {
        let ended = self.referee(words);
        if let Some(line) = ended.stdout.lines().find(|line| line.contains("failed")) {
            return Some(line.to_owned());
        }
        let seen = ended.stdout.matches("at condition 3.3.2.").count();
        assert_eq!(seen, condition_count, "{}", ended.stdout);
        None
    }
}

fn load() -> Box<dyn Load> {
    let text = "contenders = [\"ext4\"]\n[devices]\nkind = \"loop\"\n\
                [[workload]]\nkind = \"tpcc\"\nwarehouses = 1\nusers = 4\n";
    let experiment = Experiment::parse(text).unwrap();
    workload::load(&experiment.workloads[0]).unwrap()
}

/// The twelve conditions that do not hold.
fn violated(load: &dyn Load, server: &dyn Server, driven: &Driven) -> Vec<String> {
    let checks = load.checks(server, driven).unwrap();
    let conditions = checks
        .iter()
        .filter(|check| check.name.starts_with("condition "));
    assert_eq!(conditions.clone().count(), 12);
    conditions
        .filter(|check| !check.passed)
        .map(|check| format!("{}: {}", check.name, check.detail))
        .collect()
}

fn driven(load: &dyn Load, server: &dyn Server, duration: Duration) -> Driven {
    let plan = LoadPlan {
        shape: Shape::Closed {
            think_time: Duration::ZERO,
        },
        warm_up: Duration::ZERO,
        settling: None,
        duration,
        seed: 3,
    };
    let clients = load.clients(server, 3).unwrap();
    drive(clients, &plan, &Meter::default(), || {}, || {}).unwrap()
}

#[test]
fn go_tpc_and_the_lab_agree_on_what_is_consistent() {
    let Some(court) = Court::new() else { return };
    let load = load();
    load.fill(court.server()).unwrap();
    // The referee looks up payments customer by customer; the standard has no index for that.
    court.batch("CREATE INDEX ON history (h_c_w_id, h_c_d_id, h_c_id)");
    assert_eq!(court.verdict(&["check", "--check-all"], 12), None);

    let worked = driven(load.as_ref(), court.server(), Duration::from_secs(2));
    assert!(worked.acknowledged > 23, "{worked:?}");
    // The eleventh holds only for a new database.
    assert_eq!(court.verdict(&["check"], 11), None);
    let checks = load.checks(court.server(), &worked).unwrap();
    assert!(checks.iter().all(|check| check.passed), "{checks:?}");

    // Both see the same violation.
    court.batch("UPDATE district SET d_ytd = d_ytd + 1 WHERE d_w_id = 1 AND d_id = 5");
    let complaint = court.verdict(&["check"], 11).unwrap();
    assert!(
        complaint.contains("3.3.2.1 ") || complaint.contains("3.3.2.9 "),
        "{complaint}"
    );
    assert_eq!(violated(load.as_ref(), court.server(), &worked).len(), 2);

    // The other way round: its data, then its load (without deliveries, which it does not tell).
    court.batch("DROP SCHEMA public CASCADE; CREATE SCHEMA public");
    court.referee(&["prepare", "--no-check"]);
    court.batch("VACUUM ANALYZE");
    let load = self::load();
    let nothing = Driven {
        acknowledged: 0,
        ..worked
    };
    let none: [String; 0] = [];
    assert_eq!(violated(load.as_ref(), court.server(), &nothing), none);
    let ran = court.referee(&["run", "--time", "2s", "--weight", "50,46,2,0,2"]);
    assert!(ran.stdout.contains("NEW_ORDER"), "{}", ran.stdout);
    assert_eq!(violated(load.as_ref(), court.server(), &nothing), none);
}
