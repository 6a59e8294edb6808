//! The load against a real server, small: the same code, fewer rows.

use std::fs;

use tempfile::TempDir;

use super::*;
use crate::measure::control_group::{ControlGroup, version};
use crate::measure::database::{Purpose, ServerPlan, Settings, find};
use crate::measure::journal::Journal;
use crate::measure::load::{LoadPlan, Meter, Shape, drive};

/// A company that is filled in a moment.
pub const SMALL: Scale = Scale {
    warehouses: 2,
    items: 100,
    customers: 30,
};

/// A server with a small company; all of it goes with this value, the server first.
pub struct Company {
    server: Box<dyn Server>,
    _group: ControlGroup,
    _journal: Journal,
    _directory: TempDir,
}

impl Company {
    pub fn server(&self) -> &dyn Server {
        self.server.as_ref()
    }
}

/// A new one, or none where this database cannot run.
pub fn company(kind: DatabaseKind) -> Option<Company> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: the lab starts databases as root");
        return None;
    }
    if version("memory").is_none() {
        println!("skipped: no memory cgroup here");
        return None;
    }
    let Ok(installation) = find(kind, None) else {
        println!("skipped: {kind} is not installed");
        return None;
    };
    let directory = TempDir::new().unwrap();
    // The database's user must come through.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(directory.path(), open).unwrap();
    let journal = Journal::begin(&directory.path().join("state")).unwrap();
    let name = directory.path().file_name().unwrap().to_string_lossy();
    let group = ControlGroup::make(&journal, &format!("spindle-lab-test{name}"), None).unwrap();
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
            log_bytes: 96 << 20,
            users: 10,
            group: &group,
            journal: &journal,
        })
        .unwrap();
    fill::fill(server.as_ref(), SMALL).unwrap();
    Some(Company {
        server,
        _group: group,
        _journal: journal,
        _directory: directory,
    })
}

fn load(by_procedures: bool) -> Tpcc {
    Tpcc {
        scale: SMALL,
        users: 6,
        pace: Pace::default(),
        by_procedures,
        tally: Arc::new(Tally::default()),
    }
}

fn driven(load: &Tpcc, server: &dyn Server) -> Driven {
    drive(
        load.clients(server, 5).unwrap(),
        &LoadPlan {
            shape: Shape::Closed {
                think_time: Duration::ZERO,
            },
            warm_up: Duration::from_millis(100),
            settling: None,
            duration: Duration::from_millis(1500),
            seed: 5,
        },
        &Meter::default(),
        || {},
        || {},
    )
    .unwrap()
}

/// Six terminals at two small warehouses meet all the time: rows are waited for, districts run out
/// of orders, transactions are rolled back.
fn work_is_consistent_and_whole(kind: DatabaseKind, by_procedures: bool) {
    let Some(company) = company(kind) else { return };
    let load = load(by_procedures);
    let driven = driven(&load, company.server());
    let checks = load.checks(company.server(), &driven).unwrap();
    assert_eq!(checks.len(), 15);
    for check in &checks {
        assert!(check.passed, "{}: {}", check.name, check.detail);
    }
    let facts = load.facts(company.server()).unwrap();
    let all: f64 = [
        "new_orders",
        "new_orders_rolled_back",
        "payments",
        "order_statuses",
        "deliveries",
        "stock_levels",
    ]
    .map(|name| facts[name])
    .iter()
    .sum();
    assert!(
        (all - as_float(driven.acknowledged)).abs() < 0.5,
        "{facts:?}"
    );
    // Ten of 23, give or take the decks that were not dealt to the end.
    let share = (facts["new_orders"] + facts["new_orders_rolled_back"]) / all;
    assert!((share - 10.0 / 23.0).abs() < 0.05, "{facts:?}");
    assert!(facts["orders_delivered"] > 0.0, "{facts:?}");
    assert_eq!(load.produced().map(as_float), Some(facts["new_orders"]));
}

#[test]
fn the_transactions_as_statements_leave_a_consistent_database_with_all_that_was_acknowledged() {
    work_is_consistent_and_whole(DatabaseKind::Postgresql, false);
}

#[test]
fn the_transactions_leave_a_consistent_database_on_mariadb_too() {
    work_is_consistent_and_whole(DatabaseKind::Mariadb, false);
}

#[test]
fn the_transactions_as_procedures_leave_a_consistent_database_with_all_that_was_acknowledged() {
    work_is_consistent_and_whole(DatabaseKind::Postgresql, true);
}

#[test]
fn an_order_for_an_item_that_does_not_exist_leaves_nothing() {
    let Some(company) = company(DatabaseKind::Postgresql) else {
        return;
    };
    let preferences = Portion::preferences(fill::SEED);
    for by_procedures in [false, true] {
        let mut desk = load(by_procedures).desk(0, preferences).unwrap();
        // Of one item there is only what does not exist.
        let mut dialogue = Dialogue::new(company.server()).unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        desk.scale.items = 100_000;
        let order = new_order::NewOrder::draw(&desk, &mut random);
        let ordered = if by_procedures {
            order.call(&mut dialogue).unwrap()
        } else {
            order.perform(&mut dialogue).unwrap()
        };
        assert_eq!(ordered, new_order::Ordered::RolledBack);
        let checks = conditions::examine(&mut dialogue, SMALL, 0).unwrap();
        assert!(checks.iter().all(|check| check.passed), "{checks:?}");
    }
}

#[test]
fn users_go_round_the_warehouses_and_then_round_the_districts() {
    let load = load(false);
    let preferences = Portion::preferences(fill::SEED);
    let places: Vec<(i32, i32)> = (0..6)
        .map(|user| load.desk(user, preferences).unwrap())
        .map(|desk| (desk.home, desk.district))
        .collect();
    assert_eq!(places, [(1, 1), (2, 1), (1, 2), (2, 2), (1, 3), (2, 3)]);
}
