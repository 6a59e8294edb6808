//! A database that is already there: each contender gets a copy, the original serves on, and nothing
//! that a copy does reaches it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod scene;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use scene::Scene;
use spindle_lab::analyse::summary::Summary;
use spindle_lab::experiment::DatabaseKind;
use spindle_lab::measure::control_group::ControlGroup;
use spindle_lab::measure::database::{self, Purpose, Server, ServerPlan, Settings};
use spindle_lab::measure::journal::Journal;
use spindle_lab::measure::program::find;
use spindle_lab::record::read_json;

const EXPERIMENT: &str = r#"
contenders = ["ext4"]
blocks = 1
warm_up = "100 ms"
duration = "1 s"
[devices]
kind = "loop"
count = 1
size = "512 MiB"
directory = "SCENE"
[database]
memory = "256 MiB"
copy_of = "CONNECTION"
[[workload]]
kind = "script"
files = ["pay.sql"]
size = "SIZE"
users = 2
"#;

/// The original: a server that archives its log, and says from where.
struct Original {
    server: Box<dyn Server>,
    data: PathBuf,
    archived: PathBuf,
    connection: String,
    _group: ControlGroup,
    _journal: Journal,
}

impl Original {
    fn new(scene: &Scene) -> Self {
        let installation = database::find(DatabaseKind::Postgresql, None).unwrap();
        let [data, runtime, archived] =
            ["original", "serving", "archived"].map(|name| scene.path().join(name));
        // Its journal is none of the lab's under test.
        let journal = Journal::begin(&scene.path().join("original-state")).unwrap();
        let name = format!("spindle-lab-copies-{}", std::process::id());
        let group = ControlGroup::make(&journal, &name, None).unwrap();
        installation.initialise(&data, &Settings::new()).unwrap();
        fs::create_dir(&runtime).unwrap();
        fs::write(&archived, "").unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        fs::set_permissions(&archived, open).unwrap();
        let settings: Settings = [
            ("archive_mode", "on".to_owned()),
            ("archive_command", format!("pwd >> {}", archived.display())),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        let server = installation
            .start(&ServerPlan {
                data: &data,
                runtime: &runtime,
                purpose: Purpose::Measure,
                settings: &settings,
                memory_bytes: None,
                log_bytes: 96 << 20,
                users: 4,
                group: &group,
                journal: &journal,
            })
            .unwrap();
        let mut session = server.connect().unwrap();
        // Kept in its own file, as an administrator does: a copy has it, too.
        for (name, value) in &settings {
            let set = format!("ALTER SYSTEM SET {name} = '{value}'");
            session.batch(&set).unwrap();
        }
        session
            .batch("CREATE TABLE account (id int PRIMARY KEY, paid int)")
            .unwrap();
        session
            .batch("INSERT INTO account SELECT id, 0 FROM generate_series(1, 10000) AS id")
            .unwrap();
        Self {
            server,
            data,
            archived,
            connection: format!("host={} user=postgres dbname=postgres", runtime.display()),
            _group: group,
            _journal: journal,
        }
    }

    fn paid(&self) -> i64 {
        let mut session = self.server.connect().unwrap();
        let row = session.ask_one("SELECT sum(paid)::int8 FROM account");
        row.unwrap().integer(0).unwrap()
    }
}

#[test]
fn a_copy_of_a_database_that_serves_is_measured_and_nothing_reaches_the_original() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["initdb", "mkfs.ext4"]) {
        return;
    }
    let debians = spindle_testbed::postgres::programs();
    let has = |name: &str| {
        find(name).is_some() || (debians.as_ref()).is_some_and(|place| place.join(name).is_file())
    };
    if !has("pg_basebackup") || !has("psql") {
        println!("skipped: pg_basebackup is not installed");
        return;
    }
    let original = Original::new(&scene);
    scene.write(
        "pay.sql",
        "\\set id random(1, 10000)\nUPDATE account SET paid = paid + 1 WHERE id = :id;\n",
    );
    let with = |connection: &str, size: &str| {
        let text = EXPERIMENT.replace("CONNECTION", connection);
        scene.write("copies.toml", &text.replace("SIZE", size))
    };
    // What the size has to be is told.
    let said = scene.lab(&["run", &with(&original.connection, "16 MiB")]);
    assert_eq!(said.status.code(), Some(2), "{}", said.stdout);
    let (_, size) = said.stderr.split_once("write `size = \"").unwrap();
    let size = size.split('"').next().unwrap();
    let ran = scene.lab(&["run", &with(&original.connection, size)]);
    assert!(ran.status.success(), "{}\n{}", ran.stdout, ran.stderr);
    let folder = scene.path().join("copies");
    let summary: Summary = read_json(&folder.join("summary.json")).unwrap();
    let found = &summary.workloads[0].contenders[0];
    assert!(found.rate.unwrap() > 0.0);
    let told = &summary.environment["copied database"];
    let data = original.data.display().to_string();
    assert!(told.contains(&data) && told.contains(" on "), "{told}");
    // It still serves, its rows are as they were, and what was archived is its own.
    assert_eq!(original.paid(), 0);
    let mut session = original.server.connect().unwrap();
    session.batch("SELECT pg_switch_wal()").unwrap();
    let text = fs::read_to_string(&original.archived).unwrap();
    let places: BTreeSet<&str> = text.lines().collect();
    assert!(places.iter().all(|place| *place == data), "{places:?}");
    drop(session);
    for (connection, wanted) in [
        (
            original
                .connection
                .replace("dbname=postgres", "dbname=none"),
            "does not exist",
        ),
        (format!("{} password=x", original.connection), "password"),
        ("host=/nowhere dbname=a".to_owned(), "copy_of"),
        ("host=/nowhere".to_owned(), "names no database"),
    ] {
        let said = scene.lab(&["run", &with(&connection, size)]);
        assert_eq!(said.status.code(), Some(2), "{connection}: {}", said.stdout);
        assert!(
            said.stderr.contains(wanted),
            "{connection}: {}",
            said.stderr
        );
    }
    let text = fs::read_to_string(with(&original.connection, size)).unwrap();
    let text = text.replace("\"script\"\nfiles = [\"pay.sql\"]", "\"tpcb\"");
    let said = scene.lab(&["run", &scene.write("copies.toml", &text)]);
    assert!(
        said.stderr.contains("loads of kind `script`"),
        "{}",
        said.stderr
    );
    original.server.stop().unwrap();
}
