//! Settings as contenders, with real databases: ranked by the same rules, and one that forgets is
//! caught whatever its spelling.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod scene;

use std::fs;

use scene::Scene;
use spindle_lab::analyse::summary::{ContenderSummary, Summary};
use spindle_lab::record::{DurabilityClass, Plan, Run, read_json};

const HEAD: &str = r#"
blocks = 1
warm_up = "100 ms"
settle = "0 s"
duration = "500 ms"
[devices]
kind = "loop"
count = 1
size = "256 MiB"
directory = "SCENE"
"#;

/// Runs it, and gives what was found.
fn summary_of(scene: &Scene, text: &str) -> Summary {
    let file = scene.write("settings.toml", text);
    let said = scene.lab(&["run", &file]);
    assert!(said.status.success(), "{}\n{}", said.stdout, said.stderr);
    scene.assert_clean();
    read_json(&scene.path().join("settings/summary.json")).unwrap()
}

fn of<'a>(summary: &'a Summary, name: &str) -> &'a ContenderSummary {
    let mut all = summary.workloads[0].contenders.iter();
    all.find(|one| one.name == name).unwrap()
}

#[test]
fn contenders_differ_in_settings_of_the_server_and_who_forgets_is_ranked_with_nobody() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["initdb", "mkfs.ext4"]) {
        return;
    }
    let text = format!(
        "contenders = [\n\"ext4\",\n\
         {{ name = \"opened\", storage = \"ext4\", settings = {{ wal_sync_method = \"open_datasync\" }}, options = {{ mount = \"noatime\" }} }},\n\
         {{ name = \"hasty\", storage = \"ext4\", settings = {{ FSYNC = \"of\" }} }},\n]\n{HEAD}\
         [[workload]]\nkind = \"tpcb\"\nsize = \"16 MiB\"\nusers = 2\n"
    );
    let summary = summary_of(&scene, &text);
    let class = |name: &str| of(&summary, name).durability.clone().unwrap();
    // The server itself says what `of` is.
    let hasty = class("hasty");
    assert_eq!(hasty.class, DurabilityClass::NotDurable);
    assert!(hasty.reason.contains("fsync = off"), "{}", hasty.reason);
    assert_ne!(class("ext4").class, DurabilityClass::NotDurable);
    assert_eq!(class("opened").class, class("ext4").class);
    assert!(of(&summary, "hasty").ratio.is_none());
    assert!(of(&summary, "opened").ratio.is_some());
    let had = |name: &str| of(&summary, name).settings["wal_sync_method"].clone();
    assert_eq!(had("ext4"), "fdatasync");
    assert_eq!(had("opened"), "open_datasync");
    let folder = scene.path().join("settings");
    let plan: Plan = read_json(&folder.join("plan.json")).unwrap();
    let planned = plan.runs.iter().find(|run| run.label == "opened").unwrap();
    let run: Run = read_json(&folder.join("runs").join(planned.folder()).join("run.json")).unwrap();
    assert!(run.layout.unwrap().mount.unwrap().contains("noatime"));
    let page = fs::read_to_string(folder.join("report.html")).unwrap();
    assert!(
        page.contains("they differ in fsync, mount, wal_sync_method"),
        "the box on fairness"
    );
    assert!(page.contains("with mount = noatime against the default and wal_sync_method = open_datasync against fdatasync"));

    for (from, to, wanted) in [
        (
            "wal_sync_method =",
            "wal_sync_way =",
            "settings of `opened`: PostgreSQL does not take `wal_sync_way = \"open_datasync\"`: unrecognized configuration parameter",
        ),
        (
            "\"of\"",
            "\"maybe\"",
            "settings of `hasty`: PostgreSQL does not take `fsync = \"maybe\"`: parameter \"fsync\" requires a Boolean value",
        ),
    ] {
        let file = scene.write("refused.toml", &text.replace(from, to));
        let said = scene.lab(&["run", &file]);
        assert_eq!(said.status.code(), Some(2), "{}", said.stdout);
        assert!(said.stderr.contains(wanted), "{}", said.stderr);
        assert!(!scene.path().join("refused").exists());
    }
}

#[test]
fn a_library_has_pragmas_as_contenders_and_a_spelling_that_nobody_knows_is_asked_of_it() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["mkfs.ext4"]) {
        return;
    }
    // `yes` is 1, which is `normal`: with a write-ahead log no commit is durable by itself.
    let text = format!(
        "contenders = [\"ext4\", {{ name = \"yes\", storage = \"ext4\", settings = {{ synchronous = \"yes\", page_size = \"4096\" }} }}]\n{HEAD}\
         [database]\nkind = \"sqlite\"\n[[workload]]\nkind = \"tpcb\"\nsize = \"16 MiB\"\nusers = 2\n"
    );
    let summary = summary_of(&scene, &text);
    let found = of(&summary, "yes").durability.clone().unwrap();
    assert_eq!(found.class, DurabilityClass::NotDurable);
    assert!(
        found.reason.contains("synchronous = normal"),
        "{}",
        found.reason
    );
    // What cannot be changed later has an image of its own.
    assert_eq!(of(&summary, "yes").settings["page_size"], "4096");
    assert_eq!(of(&summary, "ext4").settings["page_size"], "8192");

    let file = scene.write(
        "refused.toml",
        &text.replace("synchronous = \"yes\"", "synchronously = \"1\""),
    );
    let said = scene.lab(&["run", &file]);
    let wanted = "settings of `yes`: SQLite has no pragma `synchronously`";
    assert!(said.stderr.contains(wanted), "{}", said.stderr);
}
