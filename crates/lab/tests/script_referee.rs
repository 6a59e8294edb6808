//! Scripts of the lab against pgbench itself: the same script on the same server leaves the same
//! values, what is drawn is distributed alike, and what the one refuses the other does not run.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use spindle_lab::experiment::{DatabaseKind, Experiment, Workload};
use spindle_lab::measure::control_group::{ControlGroup, version};
use spindle_lab::measure::database::{self, Purpose, Server, ServerPlan, Settings};
use spindle_lab::measure::journal::Journal;
use spindle_lab::measure::program::find;
use spindle_lab::measure::workload::load;
use tempfile::TempDir;

/// A server and the referee.
struct Court {
    server: Box<dyn Server>,
    runtime: PathBuf,
    pgbench: PathBuf,
    directory: TempDir,
    _group: ControlGroup,
    _journal: Journal,
}

impl Court {
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() || version("memory").is_none() {
            println!("skipped: the lab starts databases as root, in a memory cgroup");
            return None;
        }
        let Ok(installation) = database::find(DatabaseKind::Postgresql, None) else {
            println!("skipped: no PostgreSQL here");
            return None;
        };
        let debians = spindle_testbed::postgres::programs().map(|place| place.join("pgbench"));
        let Some(pgbench) = debians
            .filter(|path| path.is_file())
            .or_else(|| find("pgbench"))
        else {
            println!("skipped: pgbench is not installed");
            return None;
        };
        let directory = TempDir::new().unwrap();
        // The database's user must come through.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let journal = Journal::begin(&directory.path().join("state")).unwrap();
        let name = format!("spindle-lab-script-referee-{}", std::process::id());
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
                users: 4,
                group: &group,
                journal: &journal,
            })
            .unwrap();
        Some(Self {
            server,
            runtime,
            pgbench,
            directory,
            _group: group,
            _journal: journal,
        })
    }

    fn batch(&self, statements: &str) {
        self.server.connect().unwrap().batch(statements).unwrap();
    }

    /// The rows of a statement as text.
    fn rows(&self, statement: &str) -> Vec<Vec<Option<String>>> {
        let mut answers = self.server.connect().unwrap().speak(statement).unwrap();
        answers.pop().unwrap().rows
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// pgbench with one client; what it said where it failed.
    fn pgbench(&self, script: &Path, times: u32) -> Result<(), String> {
        let output = Command::new(&self.pgbench)
            .args(["--no-vacuum", "--client=1", "--random-seed=11", "--scale=3"])
            .arg(format!("--transactions={times}"))
            .arg(format!("--file={}", script.display()))
            .arg(format!("--host={}", self.runtime.display()))
            .args(["--username=postgres", "postgres"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() && !said.contains("aborted") {
            return Ok(());
        }
        Err(said)
    }

    /// The lab with one client.
    fn lab(&self, script: &Path, times: u32) -> Result<(), String> {
        let workload = workload(script)?;
        let load = load(&workload).unwrap();
        let mut clients = load.clients(self.server.as_ref(), 11).unwrap();
        let mut random = fastrand::Rng::with_seed(11);
        for _ in 0..times {
            clients[0]
                .operate(&mut random)
                .map_err(|error| format!("{error:#}"))?;
        }
        Ok(())
    }
}

/// The load of one script at the scale 3, as a file of an experiment would have it.
fn workload(script: &Path) -> Result<Workload, String> {
    let text = format!(
        "contenders = [\"ext4\"]\n[devices]\nkind = \"loop\"\n[[workload]]\nkind = \"script\"\nusers = 1\n\
         files = [{:?}]\nscale = 3\n",
        script.display().to_string()
    );
    let mut experiment = Experiment::parse(&text).unwrap();
    experiment.read_scripts(|file| PathBuf::from(&file.path))?;
    Ok(experiment.workloads.remove(0))
}

/// One server for all of it.
#[test]
fn a_script_means_the_same_to_the_lab_as_to_pgbench() {
    let Some(court) = Court::new() else { return };
    a_script_leaves_the_same_values_by_the_lab_as_by_pgbench(&court);
    what_is_drawn_is_distributed_as_by_pgbench(&court);
    what_pgbench_refuses_the_lab_does_not_run_and_the_other_way_round(&court);
}

/// Each is an expression without chance: its value in a statement has to be the same.
const EXPRESSIONS: [&str; 63] = [
    "1 + 2 * 3",
    "(1 + 2) * 3",
    "7 / 2",
    "-7 / 2",
    "7 / -2",
    "-7 % 3",
    "7 % -3",
    "7 / 2.0",
    "1.0 / 3",
    "2 - 3 - 4",
    "- - 3",
    "-2 * -3",
    "+5",
    "-9223372036854775808",
    "9223372036854775807",
    "1 << 3 + 1",
    "6 & 3 | 8",
    "5 # 3",
    "-16 >> 2",
    "~ 1 + 1",
    "~ ~ 5",
    "1 < 2",
    "2 <= 2.0",
    "1 <> 1",
    "1 != 2",
    "3 >= 4",
    "1 < 2 and 2 < 1",
    "not 1 = 2",
    "not not true",
    "true or 1 = 2 and false",
    "null is null",
    "1 is not null",
    "1 is true",
    "true is true",
    "false is not true",
    "1 isnull",
    "1 notnull",
    "null + 1",
    "null and false",
    "false and null",
    "null or true",
    "null or false",
    "true or null",
    "case when 1 > 2 then 3 when null then 4 else 5 end",
    "case when 0 then 1 end",
    "greatest(1, 5, 3)",
    "greatest(1, 2.5)",
    "least(4)",
    "abs(-4)",
    "abs(-4.5)",
    "int(2.5)",
    "int(3.5)",
    "int(-0.6)",
    "double(3)",
    "mod(17, 5)",
    "pi()",
    "sqrt(2)",
    "ln(10) * exp(1)",
    "power(2, 0.5)",
    "1e20",
    "1.5e-7",
    "hash(10, 5432) + hash_fnv1a(:scale, 7) % 1000",
    ":scale * 10 + :client_id",
];

fn a_script_leaves_the_same_values_by_the_lab_as_by_pgbench(court: &Court) {
    court.batch("CREATE TABLE result (name integer, value text)");
    let mut script = String::new();
    for (number, expression) in EXPRESSIONS.into_iter().enumerate() {
        script.push_str(&format!(
            "\\set v{number} {expression}\nINSERT INTO result VALUES ({number}, ':v{number}');\n"
        ));
    }
    script.push_str(
        "-- branches, rows of statements, and several statements at once\n\
         SELECT 40 AS a, 'word' AS b \\gset\n\
         SELECT :a + 2 AS c, NULL AS d \\gset p_\n\
         \\set e :p_c + 1\n\
         SELECT ' 40' AS g, '  +1.5' AS h, '7  ' AS i \\gset\n\
         \\set g :g + 1\n\\set h :h * 2\n\
         INSERT INTO result VALUES (108, ':g'), (109, ':h'), (110, ':i|');\n\
         \\if :e = 43\nINSERT INTO result VALUES (100, 'yes :b');\n\\else\nINSERT INTO result VALUES (100, 'no');\n\\endif\n\
         \\if false\nINSERT INTO result VALUES (101, 'one');\n\\elif null\nINSERT INTO result VALUES (101, 'two');\n\
         \\elif 0.5\nINSERT INTO result VALUES (101, 'three');\n\\else\nINSERT INTO result VALUES (101, 'four');\n\\endif\n\
         BEGIN \\; INSERT INTO result VALUES (102, ':e'), (103, '12:34:e') \\; COMMIT;\n\
         INSERT INTO result VALUES (104, $$;:e$$), (105, ':p_d|'), (106, 'a'':nobody');\n\
         \\set f :e \\\n  * 2\n\\sleep 1 us\n\
         INSERT INTO result VALUES (107, :f::text) -- the end\n;\n",
    );
    let path = court.write("values.sql", &script);
    let all = "SELECT name, value FROM result ORDER BY name, value";
    court.lab(&path, 2).unwrap();
    let ours = court.rows(all);
    court.batch("TRUNCATE result");
    court.pgbench(&path, 2).unwrap();
    let theirs = court.rows(all);
    let told = |row: &Vec<Option<String>>| {
        let number: usize = row[0].as_deref().unwrap().parse().unwrap();
        let expression = EXPRESSIONS
            .get(number)
            .copied()
            .unwrap_or("the end of the script");
        format!("{expression}: {:?}", row[1])
    };
    let ours: Vec<String> = ours.iter().map(told).collect();
    let theirs: Vec<String> = theirs.iter().map(told).collect();
    assert_eq!(ours, theirs);
    assert_eq!(ours.len(), 2 * (EXPRESSIONS.len() + 11));
}

fn what_is_drawn_is_distributed_as_by_pgbench(court: &Court) {
    court.batch("CREATE TABLE drawn (kind integer, value bigint)");
    let draws = [
        "random(11, 110)",
        "random_gaussian(11, 110, 2.5)",
        "random_exponential(11, 110, 5.0)",
        "random_zipfian(11, 110, 1.1)",
        "random_zipfian(11, 110, 2.0)",
        "random(-3, -3)",
    ];
    let mut script = String::new();
    let mut values = Vec::new();
    for (kind, draw) in draws.into_iter().enumerate() {
        for time in 0..20 {
            script.push_str(&format!("\\set v{kind}_{time} {draw}\n"));
            values.push(format!("({kind}, :v{kind}_{time})"));
        }
    }
    script.push_str(&format!(
        "INSERT INTO drawn VALUES {};\n",
        values.join(", ")
    ));
    let path = court.write("drawn.sql", &script);
    let counts = || -> Vec<Vec<f64>> {
        let mut counts = vec![vec![0.0; 10]; draws.len()];
        let text = "SELECT kind, (value - 11) / 10, count(*), min(value), max(value) FROM drawn GROUP BY 1, 2";
        for row in court.rows(text) {
            let at = |column: usize| row[column].as_deref().unwrap().parse::<i64>().unwrap();
            let kind = usize::try_from(at(0)).unwrap();
            let range = if kind == 5 { -3..=-3 } else { 11..=110 };
            assert!(range.contains(&at(3)) && range.contains(&at(4)), "{row:?}");
            let bucket = usize::try_from(at(1)).unwrap_or(0);
            counts[kind][bucket] += row[2].as_deref().unwrap().parse::<f64>().unwrap();
        }
        counts
    };
    court.lab(&path, 400).unwrap();
    let ours = counts();
    court.batch("TRUNCATE drawn");
    court.pgbench(&path, 400).unwrap();
    let theirs = counts();
    for (kind, draw) in draws.into_iter().enumerate() {
        for bucket in 0..10 {
            let (one, other) = (ours[kind][bucket], theirs[kind][bucket]);
            // Both are counts by chance; five of their own deviations are met once in a million.
            assert!(
                (one - other).abs() <= 5.0 * (one + other).sqrt() + 1.0,
                "{draw}, from {}: {one} by the lab, {other} by pgbench",
                11 + 10 * bucket
            );
        }
    }
}

fn what_pgbench_refuses_the_lab_does_not_run_and_the_other_way_round(court: &Court) {
    court.batch("CREATE TABLE t (a integer)");
    for good in [
        "SELECT 1;",
        "\\set a 1\n\\if :a\nSELECT :a;\n\\endif\n",
        "\\sleep 1ms\nSELECT 1;",
        "  \\set a random(1, 2)\nINSERT INTO t VALUES (:a);",
        "SELECT 1 AS x\n\\gset y_\nSELECT :y_x;",
        "BEGIN;\nINSERT INTO t VALUES (1);\nROLLBACK;\n",
        "SELECT 1",
    ] {
        let path = court.write("good.sql", good);
        assert_eq!(court.pgbench(&path, 1), Ok(()), "{good}");
        assert_eq!(court.lab(&path, 1), Ok(()), "{good}");
    }
    for bad in [
        "\\sett a 1\nSELECT 1;",
        "\\set a\nSELECT 1;",
        "\\set a 1 +\nSELECT 1;",
        "\\set a 1 < 2 < 3\nSELECT 1;",
        "\\set a nobody(1)\nSELECT 1;",
        "\\set a random(1)\nSELECT 1;",
        "\\set a 1 / 0\nSELECT 1;",
        "\\set a random(2, 1)\nSELECT 1;",
        "\\set a random_gaussian(1, 2, 1.0)\nSELECT 1;",
        "\\set a random_zipfian(1, 2, 1.0)\nSELECT 1;",
        "\\set a true + 1\nSELECT 1;",
        "\\set a 9223372036854775807 + 1\nSELECT 1;",
        "\\set a :nobody\nSELECT 1;",
        "\\if 1\nSELECT 1;",
        "\\endif\nSELECT 1;",
        "\\if 1\n\\else\n\\else\n\\endif\nSELECT 1;",
        "\\sleep 1 hour\nSELECT 1;",
        "SELECT a FROM t WHERE false \\gset\n",
        "SELECT '7 ' AS a \\gset\n\\set b :a + 1\nSELECT 1;",
        "SELECT '1.5 ' AS a \\gset\n\\set b :a + 1\nSELECT 1;",
        "SELECT ' true' AS a \\gset\n\\set b not :a\nSELECT 1;",
        "SELECT '1e999' AS a \\gset\n\\set b :a + 1\nSELECT 1;",
        "SELECT 1; SELEKT 2;",
        "",
    ] {
        let path = court.write("bad.sql", bad);
        assert!(court.pgbench(&path, 1).is_err(), "pgbench runs {bad:?}");
        assert!(court.lab(&path, 1).is_err(), "the lab runs {bad:?}");
    }
    // The lab alone refuses what would be no load of transactions.
    let path = court.write("open.sql", "BEGIN;\nINSERT INTO t VALUES (1);\n");
    let said = court.lab(&path, 1).unwrap_err();
    assert!(
        said.contains("within the transaction that line 1 begins"),
        "{said}"
    );
}
