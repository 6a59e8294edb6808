//! Contenders that differ in settings, from the file to the sentence.

use crate::analyse::comparison::compare;
use crate::analyse::folder::Folder;
use crate::analyse::sample::{folder, measured};
use crate::analyse::summary::summarise;
use crate::analyse::verdict::Verdict;
use crate::experiment::Experiment;
use crate::record::{DurabilityClass, Gate, Outcome};
use crate::render::matrix::sentence;

fn text(settings: &str) -> String {
    format!(
        "contenders = [\n  \"ext4\",\n  {{ storage = \"ext4\", name = \"opened\", {settings} }},\n  \
         {{ storage = \"spindle-external\", options = {{ au_size = \"4M\" }} }},\n]\n\
         blocks = 12\nwarm_up = \"2 s\"\nduration = \"20 s\"\n[devices]\nkind = \"loop\"\n\
         [[workload]]\nkind = \"tpcb\"\n"
    )
}

const OPENED: &str = "settings = { wal_sync_method = \"open_datasync\" }";

/// The second is half as fast again; what it was started with is as the server told it.
fn sample(settings: &str) -> Folder {
    let experiment = Experiment::parse(&text(settings)).unwrap();
    let mut folder = folder(experiment, |planned| {
        let is_opened = planned.contender == "opened";
        let rate = if is_opened { 1500.0 } else { 1000.0 };
        let mut outcome = measured(rate + f64::from(planned.number % 3));
        if let Outcome::Measured(run) = &mut outcome {
            let method = if is_opened {
                "open_datasync"
            } else {
                "fdatasync"
            };
            run.settings = [("wal_sync_method".to_owned(), method.to_owned())].into();
        }
        outcome
    });
    for run in &mut folder.runs {
        if let Some(layout) = &mut run.run.layout {
            (layout.copies, layout.devices) = (1, 1);
        }
    }
    folder
}

#[test]
fn contenders_on_one_storage_are_ranked_together_and_the_sentence_names_their_settings() {
    let summary = summarise(&sample(OPENED));
    let load = &summary.workloads[0];
    let opened = load
        .contenders
        .iter()
        .find(|one| one.name == "opened")
        .unwrap();
    assert_eq!(opened.verdict, Some(Verdict::Faster), "{:?}", opened.doubts);
    assert_eq!(opened.storage, "ext4");
    assert_eq!(opened.settings["wal_sync_method"], "open_datasync");
    let said = sentence(&summary);
    assert!(
        said.contains(
            "opened is 50 % FASTER, with wal_sync_method = open_datasync against fdatasync"
        ),
        "{said}"
    );
    assert!(said.contains("with au_size = 4M"), "{said}");
    let headline = summary.headline.join("\n");
    assert!(
        headline.contains("with wal_sync_method = open_datasync against fdatasync"),
        "{headline}"
    );
    // What the load's database was started with is the baseline's.
    assert_eq!(load.settings["wal_sync_method"], "fdatasync");
    assert_eq!(
        summary.made_of(),
        [
            ("ext4", "ext4 with wal_sync_method = fdatasync".to_owned()),
            (
                "opened",
                "ext4 with wal_sync_method = open_datasync".to_owned()
            ),
            (
                "spindle-external au_size=4M",
                "spindle-external with au_size = 4M, wal_sync_method = fdatasync".to_owned()
            ),
        ]
    );
}

#[test]
fn settings_that_forget_put_a_contender_into_a_table_of_its_own() {
    let mut folder = sample("settings = { fsync = \"off\" }");
    for run in &mut folder.runs {
        let is_opened = run.run.planned.contender == "opened";
        let Outcome::Measured(measured) = &mut run.run.outcome else {
            continue;
        };
        let (class, reason) = if is_opened {
            (DurabilityClass::NotDurable, "fsync = off")
        } else {
            (DurabilityClass::Durable, "commit by 1 writer: 48 flushes")
        };
        if let Some(durability) = &mut measured.durability {
            let reason = reason.to_owned();
            durability.gate = Some(Gate {
                class,
                reason,
                ways: Vec::new(),
            });
        }
    }
    let summary = summarise(&folder);
    let said = sentence(&summary);
    assert!(
        said.contains("opened is not ranked with ext4 (not durable: fsync = off)"),
        "{said}"
    );
    let opened = summary.workloads[0]
        .contenders
        .iter()
        .find(|one| one.name == "opened")
        .unwrap();
    assert_eq!((opened.verdict, opened.ratio), (None, None));
}

#[test]
fn a_name_that_stands_for_other_settings_in_the_other_folder_is_not_compared() {
    let one = sample(OPENED);
    let other = sample("settings = { wal_sync_method = \"open_sync\" }");
    let rows = compare(&one, &other).unwrap();
    let reason_of = |name: &str| {
        let row = rows.iter().find(|row| row.contender == name).unwrap();
        row.not_comparable.clone()
    };
    assert_eq!(reason_of("ext4"), None);
    assert_eq!(
        reason_of("opened").unwrap(),
        "opened is not the same in both: ext4 wal_sync_method=open_datasync here, ext4 wal_sync_method=open_sync there"
    );
    assert!(
        compare(&one, &one)
            .unwrap()
            .iter()
            .all(|row| row.not_comparable.is_none())
    );
}
