//! The interface to databases, tried on every one that this machine has: real servers, small.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use spindle_lab::experiment::DatabaseKind;
use spindle_lab::measure::control_group::ControlGroup;
use spindle_lab::measure::database::dialect::{filler, numbers};
use spindle_lab::measure::database::{
    Installation, Purpose, Server, ServerPlan, Settings, Value, find, is_conflict,
};
use spindle_lab::measure::journal::Journal;

/// With SQLite this process is itself in the control group of a test: what another test started
/// meanwhile would be in it, too, and end with it.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

struct Scene {
    directory: tempfile::TempDir,
    journal: Journal,
    group: ControlGroup,
    _turn: MutexGuard<'static, ()>,
}

impl Scene {
    fn new(name: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: servers are started as another user by root");
            return None;
        }
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let journal = Journal::begin(&directory.path().join("state")).unwrap();
        let name = format!("spindle-lab-{name}-test-{}", std::process::id());
        let Ok(group) = ControlGroup::make(&journal, &name, None) else {
            println!("skipped: no cgroup may be made here");
            return None;
        };
        Some(Self {
            directory,
            journal,
            group,
            _turn: turn,
        })
    }

    fn start(
        &self,
        installation: &dyn Installation,
        purpose: Purpose,
        settings: &Settings,
    ) -> Result<Box<dyn Server>> {
        let runtime = self.directory.path().join("runtime");
        fs::create_dir_all(&runtime)?;
        installation.start(&ServerPlan {
            data: &self.directory.path().join("data"),
            runtime: &runtime,
            purpose,
            settings,
            memory_bytes: Some(128 << 20),
            log_bytes: 32 << 20,
            users: 4,
            group: &self.group,
            journal: &self.journal,
        })
    }
}

/// Every database that is here.
fn found() -> Vec<Box<dyn Installation>> {
    DatabaseKind::ALL
        .into_iter()
        .filter_map(|kind| match find(kind, None) {
            Ok(installation) => Some(installation),
            Err(error) => {
                println!("skipped: {kind}: {error}");
                None
            }
        })
        .collect()
}

#[test]
fn what_is_written_in_one_session_is_read_in_another_and_after_a_restart() {
    let Some(scene) = Scene::new("interface") else {
        return;
    };
    for installation in found() {
        let kind = installation.kind();
        println!("{}", installation.version().unwrap());
        let data = scene.directory.path().join("data");
        installation.initialise(&data, &Settings::new()).unwrap();
        let server = scene
            .start(installation.as_ref(), Purpose::Fill, &Settings::new())
            .unwrap_or_else(|error| panic!("{kind}: {error:#}"));
        fill(server.as_ref());
        server.stop().unwrap();

        let server = scene
            .start(installation.as_ref(), Purpose::Measure, &Settings::new())
            .unwrap_or_else(|error| panic!("{kind}: {error:#}"));
        server.warm().unwrap();
        let mut statistics = server.statistics().unwrap();
        let names: Vec<_> = statistics
            .read()
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert!(names.contains(&"database_blocks_read"), "{kind}: {names:?}");
        read_and_write(server.as_ref());
        let read = statistics.read();
        assert!(
            read.iter()
                .all(|(name, value)| name.starts_with("database_") && value.is_finite()),
            "{kind}: {read:?}"
        );
        drop(statistics);
        assert!(server.block_bytes().is_power_of_two(), "{kind}");
        server.stop().unwrap();
        fs::remove_dir_all(&data).unwrap();
        fs::remove_dir_all(scene.directory.path().join("runtime")).unwrap();
    }
}

fn fill(server: &dyn Server) {
    let mut session = server.connect().unwrap();
    session
        .batch(
            "CREATE TABLE thing (id integer PRIMARY KEY, amount decimal(12, 2), name varchar(40),
                 day date);
             CREATE TABLE generated (id integer PRIMARY KEY, filler text)",
        )
        .unwrap();
    let rows = [
        (1, "12.50", Some("it's one\\"), "2006-08-01"),
        (2, "-0.05", None, "1992-02-29"),
    ];
    let mut rows = rows.into_iter().map(|(id, amount, name, day)| {
        vec![
            Value::from(id),
            Value::from(amount),
            name.into(),
            day.into(),
        ]
    });
    let columns = ["id", "amount", "name", "day"];
    assert_eq!(
        session.insert_many("thing", &columns, &mut rows).unwrap(),
        2
    );
    session
        .batch(&format!(
            "INSERT INTO generated SELECT n, {} FROM {}",
            filler(server.kind(), "n", 100),
            numbers(server.kind(), 11, 500)
        ))
        .unwrap();
    session.settle("thing").unwrap();
}

fn read_and_write(server: &dyn Server) {
    let kind = server.kind();
    let mut session = server.connect().unwrap();
    let row = session
        .ask_one("SELECT count(*), min(id), sum(length(filler)) FROM generated")
        .unwrap();
    let figures = [0, 1, 2].map(|index| row.integer(index).unwrap());
    assert_eq!(figures, [490, 11, 49_000], "{kind}");
    let select = session
        .prepare("SELECT id, amount, name, day FROM thing WHERE id = $1")
        .unwrap();
    let one = session.query_one(select, &[1.into()]).unwrap();
    assert_eq!(one.integer(0).unwrap(), 1);
    assert!(
        (one.float(1).unwrap() - 12.5).abs() < 1e-9,
        "{kind}: {one:?}"
    );
    assert_eq!(one.text(2).unwrap(), "it's one\\", "{kind}");
    assert_eq!(one.text(3).unwrap(), "2006-08-01", "{kind}");
    assert!(session.query_one(select, &[2.into()]).unwrap().is_null(2));
    assert!(session.query(select, &[3.into()]).unwrap().is_empty());
    assert!(session.query_one(select, &[3.into()]).is_err());

    // A parameter may stand twice, and not in its order.
    let update = session
        .prepare("UPDATE thing SET name = $2, amount = amount + $1 WHERE id = $3 AND name <> $2")
        .unwrap();
    let parameters = [Value::from(1), "new".into(), 1.into()];
    session.begin().unwrap();
    assert_eq!(session.execute(update, &parameters).unwrap(), 1, "{kind}");
    session.rollback().unwrap();
    session.begin().unwrap();
    assert_eq!(session.execute(update, &parameters).unwrap(), 1, "{kind}");
    session.commit().unwrap();
    let mut other = server.connect().unwrap();
    let row = other
        .ask_one("SELECT amount, name FROM thing WHERE id = 1")
        .unwrap();
    assert!(
        (row.float(0).unwrap() - 13.5).abs() < 1e-9,
        "{kind}: {row:?}"
    );
    assert_eq!(row.text(1).unwrap(), "new");

    let twice = session
        .prepare("INSERT INTO thing (id) VALUES ($1)")
        .unwrap();
    let error = session.execute(twice, &[1.into()]).unwrap_err();
    assert!(!is_conflict(&error), "{kind}: {error:#}");
    let error = session.prepare("SELEKT 1").unwrap_err();
    assert!(format!("{error:#}").contains("SELEKT"), "{kind}: {error:#}");
}

#[test]
fn writers_at_once_all_come_to_an_end() {
    let Some(scene) = Scene::new("writers") else {
        return;
    };
    for installation in found() {
        let kind = installation.kind();
        let data = scene.directory.path().join("data");
        installation.initialise(&data, &Settings::new()).unwrap();
        let server = scene
            .start(installation.as_ref(), Purpose::Fill, &Settings::new())
            .unwrap();
        let mut session = server.connect().unwrap();
        session
            .batch("CREATE TABLE counter (id integer PRIMARY KEY, value integer)")
            .unwrap();
        session.batch("INSERT INTO counter VALUES (1, 0)").unwrap();
        let writers: Vec<_> = (0..4)
            .map(|_| {
                let mut session = server.connect().unwrap();
                std::thread::spawn(move || {
                    let add = session
                        .prepare("UPDATE counter SET value = value + $1 WHERE id = 1")
                        .unwrap();
                    for _ in 0..25 {
                        session.begin().unwrap();
                        session.execute(add, &[1.into()]).unwrap();
                        session.commit().unwrap();
                        session.execute(add, &[1.into()]).unwrap();
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        let row = session.ask_one("SELECT value FROM counter").unwrap();
        assert_eq!(row.integer(0).unwrap(), 200, "{kind}");
        drop(session);
        server.stop().unwrap();
        fs::remove_dir_all(&data).unwrap();
        fs::remove_dir_all(scene.directory.path().join("runtime")).unwrap();
    }
}

#[test]
fn a_server_that_does_not_start_is_told_with_its_own_words() {
    let Some(scene) = Scene::new("refusal") else {
        return;
    };
    for installation in found() {
        let kind = installation.kind();
        let data = scene.directory.path().join("data");
        installation.initialise(&data, &Settings::new()).unwrap();
        let settings = [("no_such_setting".to_owned(), "1".to_owned())].into();
        let refused = scene.start(installation.as_ref(), Purpose::Measure, &settings);
        let error = format!("{:#}", refused.err().unwrap());
        assert!(error.contains("no_such_setting"), "{kind}: {error}");
        fs::remove_dir_all(&data).unwrap();
        fs::remove_dir_all(scene.directory.path().join("runtime")).unwrap();
    }
}

#[test]
fn a_directory_without_the_database_is_told() {
    for kind in [DatabaseKind::Postgresql, DatabaseKind::Mariadb] {
        let error = find(kind, Some(Path::new("/no/such/place"))).unwrap_err();
        let line = error.to_string();
        assert!(
            line.starts_with(&format!("/no/such/place has no {kind}")),
            "{line}"
        );
    }
}
