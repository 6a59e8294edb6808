//! Whatever the questions accept, `run` accepts.

use super::*;

fn machine(memory_bytes: u64) -> Machine {
    Machine {
        memory_bytes,
        room_bytes: 1 << 50,
        contenders: ["ext4", "xfs", "spindle-external"]
            .map(str::to_owned)
            .to_vec(),
    }
}

fn answers(kind: &str, database: DatabaseKind, size: &str) -> Answers {
    Answers {
        workload: kind.to_owned(),
        size: Some(size.to_owned()),
        ..Answers::new(machine(8 << 30), database)
    }
}

/// Whether `run` takes the text.
fn is_taken(text: &str) -> Result<Experiment, String> {
    let experiment = Experiment::parse(text).map_err(|mistake| mistake.to_string())?;
    check_agreement(&experiment).map_err(|error| error.to_string())?;
    Ok(experiment)
}

#[test]
fn what_is_proposed_for_any_load_of_any_size_on_any_database_is_taken_by_run() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut refused = Vec::new();
    for kind in Kind::NAMES {
        for database in DatabaseKind::ALL {
            for _ in 0..40 {
                // From 32 MiB to 512 GiB, each power of two as likely.
                let mib = random.u64(1..=2) << random.u32(5..19);
                let memory = 1 << random.u32(29..42);
                let answers = Answers {
                    machine: machine(memory),
                    files: (kind == "script").then(|| "mine.sql".to_owned()),
                    ..answers(kind, database, &format!("{mib} MiB"))
                };
                match answers.text().map(|text| is_taken(&text)) {
                    Ok(Ok(_)) => {}
                    Ok(Err(reason)) if reason.contains("cannot run") => {
                        refused.push((kind, database));
                    }
                    other => panic!("{kind} of {mib} MiB on {database}: {other:?}"),
                }
            }
        }
    }
    refused.dedup();
    let sqlite = DatabaseKind::Sqlite;
    let mariadb = DatabaseKind::Mariadb;
    assert_eq!(
        refused,
        [
            ("tpcc", sqlite),
            ("tpch", mariadb),
            ("tpch", sqlite),
            ("as3ap", mariadb),
            ("as3ap", sqlite),
            ("script", mariadb),
            ("script", sqlite)
        ]
    );
}

#[test]
fn whatever_answers_are_accepted_one_by_one_the_file_is_taken_by_run() {
    let mut random = fastrand::Rng::with_seed(11);
    let mut pick = |of: &[&str]| (*random.choice(of).unwrap()).to_owned();
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..3000 {
        let database = DatabaseKind::named(&pick(&["postgresql", "mariadb", "sqlite"])).unwrap();
        let mut answers = Answers::new(machine(8 << 30), database);
        // As the questions are asked; an answer that is refused is asked for again.
        let mut ask = |change: &dyn Fn(&mut Answers)| {
            let mut changed = answers.clone();
            change(&mut changed);
            if changed.tried().is_ok() {
                answers = changed;
            } else {
                refused += 1;
            }
        };
        let word = pick(&Kind::NAMES);
        ask(&|answers| answers.workload.clone_from(&word));
        for (words, change) in [
            (
                ["0 B", "16 MiB", "300 MiB", "2 GiB", "40 GiB"].as_slice(),
                (|answers, word| answers.size = word) as fn(&mut Answers, Option<String>),
            ),
            (&["0", "1", "8", "500", "501", "many"], |answers, word| {
                answers.users = word;
            }),
            (
                &["cached", "storage-bound", "cold", "hot"],
                |answers, word| {
                    answers.regime = word;
                },
            ),
            (
                &["0 MiB", "64 MiB", "512 MiB", "4 GiB", "much"],
                |answers, word| answers.memory = word,
            ),
            (
                &["ext4", "raw", "xfs,raw", "spindle-high,ext4", "ext5"],
                |answers, word| answers.contenders = word,
            ),
            (
                &[
                    "loop:0",
                    "loop:1",
                    "loop:4",
                    "zram:3",
                    "/dev/sdx,/dev/sdx",
                    "disk7",
                ],
                |answers, word| answers.devices = word,
            ),
        ] {
            let word = pick(words);
            if !pick(&["typed", "typed", "proposed"]).starts_with("typed") {
                continue;
            }
            ask(&|answers| change(answers, Some(word.clone())));
        }
        let text = answers.text().unwrap();
        is_taken(&text).unwrap_or_else(|reason| panic!("{reason}\n{text}"));
        taken += 1;
    }
    assert!(taken == 3000 && refused > 3000, "{taken} {refused}");
}

#[test]
fn memory_and_regime_are_proposed_from_the_size() {
    let postgresql = DatabaseKind::Postgresql;
    let of = |answers: &Answers| (answers.regime().unwrap(), answers.memory().unwrap());
    let pair = |regime: &str, memory: &str| (regime.to_owned(), memory.to_owned());
    // Two GiB that are to be cached get what caches them, not half a GiB.
    assert_eq!(
        of(&answers("tpcb", postgresql, "2 GiB")),
        pair("cached", "4096 MiB")
    );
    assert_eq!(
        of(&answers("tpcb", DatabaseKind::Mariadb, "512 MiB")),
        pair("cached", "2560 MiB")
    );
    // What half of this machine's memory does not cache is measured beyond the caches.
    assert_eq!(
        of(&answers("tpcb", postgresql, "4 GiB")),
        pair("storage-bound", "819 MiB")
    );
    assert_eq!(
        of(&answers("scan", postgresql, "4 GiB")),
        pair("cold", "512 MiB")
    );
    let refused = Answers {
        memory: Some("512 MiB".to_owned()),
        regime: Some("cached".to_owned()),
        ..answers("tpcb", postgresql, "2 GiB")
    };
    assert!(refused.tried().unwrap_err().contains("are not cached by"));
    let tpch = answers("tpch", DatabaseKind::Sqlite, "1 GiB");
    assert!(tpch.tried().unwrap_err().contains("written for PostgreSQL"));
}

#[test]
fn contenders_with_settings_and_options_are_written_as_tables_that_run_takes() {
    let mut answers = answers("tpcb", DatabaseKind::Postgresql, "64 MiB");
    let list = "ext4, ext4 wal_sync_method=open_datasync, spindle-external au_size=4M shared_buffers=64MB, \
                directory:/a b";
    answers.contenders = Some(list.to_owned());
    let (text, experiment) = answers.tried().unwrap();
    assert_eq!(
        experiment.contenders,
        [
            "ext4",
            "ext4 wal_sync_method=open_datasync",
            "spindle-external au_size=4M shared_buffers=64MB",
            "directory:/a b",
        ],
        "{text}"
    );
    let asked = experiment.asked("spindle-external au_size=4M shared_buffers=64MB");
    assert_eq!(asked.options["au_size"], "4M");
    assert_eq!(asked.settings["shared_buffers"], "64MB");
    answers.contenders = Some("ext4 mount=ro".to_owned());
    assert!(answers.tried().unwrap_err().contains("`mount = \"ro\"`"));
}
