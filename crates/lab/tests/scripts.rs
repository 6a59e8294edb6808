//! Own scripts as a load, with the real command and a real server.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod scene;

use std::fs;
use std::path::Path;

use scene::Scene;
use spindle_lab::analyse::summary::Summary;
use spindle_lab::record::{DurabilityClass, Run, read_json};

const FILE: &str = r#"
contenders = ["ext4"]
blocks = 1
warm_up = "100 ms"
settle = "0 s"
duration = "700 ms"
[devices]
kind = "loop"
count = 1
size = "256 MiB"
directory = "SCENE"
[[workload]]
kind = "script"
files = ["pay.sql@3", "look.sql"]
init = "tables.sql"
scale = 2
size = "16 MiB"
users = 2
"#;

const TABLES: &str = "CREATE TABLE account (id integer PRIMARY KEY, balance integer NOT NULL);\n\
     INSERT INTO account SELECT n, 0 FROM generate_series(1, 1000 * :scale) AS n;\n\
     CREATE TABLE payment (id integer, amount integer, client integer);\n";

const PAY: &str = "\\set id random_zipfian(1, 1000 * :scale, 1.1)\n\\set amount random(-50, 50)\nBEGIN;\n\
     UPDATE account SET balance = balance + :amount WHERE id = :id;\n\
     INSERT INTO payment VALUES (:id, :amount, :client_id);\nCOMMIT;\n";

const LOOK: &str = "\\set id random(1, 1000 * :scale)\n\
     SELECT balance FROM account WHERE id = :id \\gset\n\\if :balance < 0\n\\sleep 1 ms\n\\endif\n";

#[test]
fn scripts_run_by_their_weights_are_told_each_and_held_against_the_flushes() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["initdb", "mkfs.ext4"]) {
        return;
    }
    scene.write("tables.sql", TABLES);
    scene.write("pay.sql", PAY);
    scene.write("look.sql", LOOK);
    let file = scene.write("mine.toml", FILE);

    // What is wrong with a script is told before anything is made.
    for (name, text, wanted) in [
        (
            "look.sql",
            "SELECT 1;\n\\shell date\n",
            "look.sql, line 2: the lab has no command `\\shell`",
        ),
        (
            "tables.sql",
            "\\set a randm(1, 2)\nSELECT 1;",
            "tables.sql, line 1: `\\set a`: there is no function `randm`; did you mean random",
        ),
    ] {
        scene.write(name, text);
        let said = scene.lab(&["run", &file]);
        assert_eq!(said.status.code(), Some(2), "{}", said.stdout);
        assert!(said.stderr.contains(wanted), "{}", said.stderr);
        assert!(!scene.path().join("mine").exists());
        scene.write("look.sql", LOOK);
        scene.write("tables.sql", TABLES);
    }

    let said = scene.lab(&["run", &file]);
    assert!(said.status.success(), "{}\n{}", said.stdout, said.stderr);
    scene.assert_clean();
    let folder = scene.path().join("mine");
    let summary: Summary = read_json(&folder.join("summary.json")).unwrap();
    let load = &summary.workloads[0];
    assert_eq!(
        load.title,
        "script, pay.sql@3 and look.sql, scale 2, 2 users, cached"
    );
    assert_eq!(load.unit, "transactions/s");
    let ext4 = &load.contenders[0];
    let durability = ext4.durability.as_ref().unwrap();
    assert_ne!(
        durability.class,
        DurabilityClass::NotDurable,
        "{}",
        durability.reason
    );
    assert_every_change_was_held_against_the_flushes(&folder);
    let [pay, look] = ext4.scripts.as_slice() else {
        panic!("{:?}", ext4.scripts);
    };
    assert_eq!(
        (pay.name.as_str(), look.name.as_str()),
        ("pay.sql", "look.sql")
    );
    assert!((0.55..0.95).contains(&pay.share), "{pay:?}");
    let sum = pay.per_s + look.per_s;
    assert!(
        (sum / ext4.rate.unwrap() - 1.0).abs() < 0.02,
        "{sum} {:?}",
        ext4.rate
    );
    assert_eq!(
        fs::read_to_string(folder.join("scripts/pay.sql")).unwrap(),
        PAY
    );
    let page = fs::read_to_string(folder.join("report.html")).unwrap();
    assert!(page.contains(">Scripts<") && page.contains("look.sql"));

    // The runs of a folder are those of its scripts.
    scene.write("pay.sql", &PAY.replace("-50", "-60"));
    let said = scene.lab(&["run", &file]);
    assert!(
        said.stderr
            .contains("pay.sql is not the script that the runs in"),
        "{}",
        said.stderr
    );
}

fn assert_every_change_was_held_against_the_flushes(folder: &Path) {
    for entry in fs::read_dir(folder.join("runs")).unwrap() {
        let run: Run = read_json(&entry.unwrap().path().join("run.json")).unwrap();
        let measured = run.measured().unwrap();
        let gate = measured.durability.as_ref().unwrap().gate.as_ref().unwrap();
        let load = gate.ways.iter().find(|count| count.way == "load").unwrap();
        assert_eq!(load.writers, 2, "{gate:#?}");
        assert!(load.acknowledged > 0, "{gate:#?}");
        let changes = measured.facts["script_changes"];
        assert_eq!(changes, quantity(load.acknowledged), "{gate:#?}");
        assert!(!gate.reason.contains("not counted"), "{}", gate.reason);
    }
}

fn quantity(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap())
}

#[test]
fn init_writes_a_file_with_scripts_that_run_takes() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["initdb", "mkfs.ext4"]) {
        return;
    }
    scene.write("pay.sql", "SELECT 1;");
    let words = "init mine.toml --workload script --files pay.sql@2 --init pgbench --size 64MiB --contenders ext4";
    let said = scene.lab(&words.split(' ').collect::<Vec<_>>());
    assert!(said.status.success(), "{}", said.stderr);
    let text = fs::read_to_string(scene.path().join("mine.toml")).unwrap();
    assert!(
        text.contains("files = [\"pay.sql@2\"]\ninit = \"pgbench\"\n"),
        "{text}"
    );
    let said = scene.lab(&[
        "init",
        "other.toml",
        "--workload",
        "script",
        "--contenders",
        "ext4",
    ]);
    assert!(
        said.stderr.contains("`script` needs `files"),
        "{}",
        said.stderr
    );
    let words = "init other.toml --workload script --files none.sql --contenders ext4";
    let said = scene.lab(&words.split(' ').collect::<Vec<_>>());
    assert!(
        said.stderr.contains("none.sql cannot be read"),
        "{}",
        said.stderr
    );
}
