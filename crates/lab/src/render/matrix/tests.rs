use super::*;
use crate::analyse::sample::{classed, curve, experiment, folder, measured};
use crate::analyse::summary::summarise;
use crate::record::Outcome;
use crate::render::sample::every_verdict;

fn cell<'a>(matrix: &'a Matrix<'_>, row: usize, name: &str) -> &'a Cell<'a> {
    let table = matrix.tables.iter().find_map(|table| {
        let column = table
            .columns
            .iter()
            .position(|column| column.name == name)?;
        Some(&table.rows[row].cells[column])
    });
    table.unwrap()
}

fn words(matrix: &Matrix<'_>, row: usize, names: &[&str]) -> Vec<&'static str> {
    let word = |name: &&str| cell(matrix, row, name).standing.word();
    names.iter().map(word).collect()
}

#[test]
fn each_sort_of_verdict_has_its_word_in_its_cell() {
    let names = [
        "ext4",
        "xfs",
        "ext3",
        "btrfs-single",
        "spindle-external",
        "lvm-striped-ext4",
    ];
    let summary = summarise(&every_verdict(12));
    let found = matrix(&summary);
    assert_eq!(
        words(&found, 0, &names),
        [
            "baseline",
            "FASTER",
            "SLOWER",
            "EQUIVALENT",
            "INCONCLUSIVE",
            "FAILED"
        ]
    );
    assert_eq!(
        words(&found, 2, &["ext4", "ext3"]),
        ["baseline", "OVER THE LIMIT"]
    );
    // Over all loads there is nothing of what misses a limit under one of them.
    let overall = &found.tables[0].overall;
    assert_eq!(overall[1].unwrap().verdict, Verdict::Faster);
    assert!(overall[2].is_none());

    let summary = summarise(&every_verdict(5));
    let look = matrix(&summary);
    assert_eq!(words(&look, 0, &["xfs", "ext3"]), ["LOOK", "LOOK"]);

    let summary = summarise(&classed(|planned| {
        Some(if planned.contender == "xfs" {
            DurabilityClass::NotDurable
        } else {
            DurabilityClass::Durable
        })
    }));
    let apart = matrix(&summary);
    assert_eq!(apart.tables.len(), 2);
    assert_eq!(words(&apart, 0, &["xfs"]), ["NOT RANKED"]);
    assert!(
        apart.tables[0]
            .columns
            .iter()
            .all(|column| column.name != "xfs")
    );
}

/// Every doubt of a summary with the load and the contender it is about.
fn all_doubts(summary: &Summary) -> Vec<(Option<usize>, Option<&str>, &Told)> {
    let mut all: Vec<_> = (summary.doubts.iter())
        .map(|told| (None, None, told))
        .collect();
    for (row, load) in summary.workloads.iter().enumerate() {
        all.extend(load.doubts.iter().map(|told| (Some(row), None, told)));
        for contender in &load.contenders {
            let name = contender.name.strip_suffix(AGAIN);
            let name = name.unwrap_or(&contender.name);
            all.extend(
                contender
                    .doubts
                    .iter()
                    .map(|told| (Some(row), Some(name), told)),
            );
        }
    }
    all
}

/// The places of the notes that a reader of a cell meets: in it, and at the heads of what it is in.
fn beside(found: &Matrix<'_>, row: Option<usize>, name: Option<&str>) -> Vec<usize> {
    let mut beside = found.of_all.clone();
    for table in &found.tables {
        let column =
            name.and_then(|name| table.columns.iter().position(|column| column.name == name));
        if name.is_some() && column.is_none() {
            continue;
        }
        beside.extend(&table.notes);
        beside.extend(row.iter().flat_map(|row| &table.rows[*row].notes));
        beside.extend(
            column
                .iter()
                .flat_map(|column| &table.columns[*column].notes),
        );
        if let (Some(row), Some(column)) = (row, column) {
            beside.extend(&table.rows[row].cells[column].notes);
        }
    }
    beside
}

#[test]
fn every_doubt_is_beside_its_cell_once_and_its_sentence_stands_once() {
    let mut folders = vec![every_verdict(12), every_verdict(5), every_verdict(3)];
    folders.push(folder(experiment(12), |planned| {
        measured(f64::from(planned.number))
    }));
    folders.push(folder(curve(12), |planned| {
        measured(1000.0 + f64::from(planned.number % 5))
    }));
    folders.push(classed(|planned| {
        (planned.contender == "xfs").then_some(DurabilityClass::NotDurable)
    }));
    for folder in &folders {
        let mut summary = summarise(folder);
        let moved = |block| Doubt::BlockApart {
            block,
            change: -0.5,
            runs: 4,
        };
        summary.doubts.extend([moved(1), moved(2)].map(Told::from));
        let found = matrix(&summary);
        let sentences: Vec<&str> = (found.notes.iter())
            .flat_map(|note| &note.seen)
            .map(|seen| seen.what)
            .collect();
        for (row, name, told) in all_doubts(&summary) {
            let count = sentences.iter().filter(|what| **what == told.what).count();
            assert_eq!(count, 1, "{}", told.what);
            let told_beside: Vec<usize> = beside(&found, row, name)
                .into_iter()
                .filter(|place| {
                    let note = &found.notes[*place];
                    note.seen.iter().any(|seen| seen.what == told.what)
                })
                .collect();
            // The same kind may be at the head for all and in the cell with another figure.
            assert!(!told_beside.is_empty(), "{row:?} {name:?}: {}", told.what);
        }
        let advice: BTreeSet<(&str, &str)> = (found.notes.iter())
            .map(|note| (note.name, note.advice))
            .collect();
        assert_eq!(advice.len(), found.notes.len(), "a kind has one number");
        // Numbers are given as a reader meets them.
        let mut met: Vec<usize> = found.of_all.clone();
        for table in &found.tables {
            met.extend(&table.notes);
            met.extend(table.columns.iter().flat_map(|column| &column.notes));
            for row in &table.rows {
                met.extend(&row.notes);
                met.extend(row.cells.iter().flat_map(|cell| &cell.notes));
            }
        }
        let mut first_met: Vec<usize> = Vec::new();
        for place in met {
            if !first_met.contains(&place) {
                first_met.push(place);
            }
        }
        let in_order: Vec<usize> = (0..found.notes.len()).collect();
        assert_eq!(
            first_met, in_order,
            "each note has a place, in the order of numbers"
        );
    }
}

#[test]
fn what_all_cells_share_stands_at_their_head_and_what_one_has_in_it() {
    let summary = summarise(&every_verdict(5));
    let found = matrix(&summary);
    let number = |name: &str| {
        found
            .notes
            .iter()
            .position(|note| note.name == name)
            .unwrap()
    };
    let table = &found.tables[0];
    // xfs keeps the lab busy under each load, and nobody else does.
    let busy = number("lab was busy");
    let of_xfs = table
        .columns
        .iter()
        .find(|column| column.name == "xfs")
        .unwrap();
    assert!(of_xfs.notes.contains(&busy));
    let elsewhere = (table.columns.iter().filter(|column| column.name != "xfs"))
        .flat_map(|column| &column.notes)
        .chain(table.rows.iter().flat_map(|row| &row.notes))
        .chain(
            table
                .rows
                .iter()
                .flat_map(|row| &row.cells)
                .flat_map(|cell| &cell.notes),
        );
    assert!(elsewhere.clone().all(|place| *place != busy));
    // The limit is missed under one load, by one contender.
    let over = number("over the limit");
    assert_eq!(elsewhere.filter(|place| **place == over).count(), 1);
    assert!(cell(&found, 2, "ext3").notes.contains(&over));
    assert_eq!(
        found.notes[over].seen[0].whose(),
        "ext3 (tpcb, 16 users, cached)"
    );

    // Where every cell has it, it stands over the table.
    let all = folder(experiment(5), |planned| {
        measured(1000.0 + f64::from(planned.number % 3))
    });
    let summary = summarise(&all);
    let found = matrix(&summary);
    let names: Vec<&str> = (found.tables[0].notes.iter())
        .map(|place| found.notes[*place].name)
        .collect();
    assert_eq!(names, ["too few blocks for a claim"]);
}

#[test]
fn one_sentence_says_who_is_what_and_claims_no_more_than_the_cells() {
    let said = sentence(&summarise(&every_verdict(12)));
    assert_eq!(
        said,
        "Against ext4, xfs is 20 to 50 % FASTER under all 3 loads; ext3 is 20 to 40 % SLOWER under 2 of 3 loads; \
         btrfs-single is EQUIVALENT under all 3 loads, on 4 disks against 1; \
         spindle-external is INCONCLUSIVE under all 3 loads, on 4 disks against 1; \
         lvm-striped-ext4 is INCONCLUSIVE: no run of it was measured beside one of ext4; \
         ext3 misses the limit of response times."
    );
    let look = sentence(&summarise(&every_verdict(5)));
    assert!(
        look.starts_with(
            "A look from 5 blocks and no claim, which needs 12: against ext4, xfs is 1.2"
        ),
        "{look}"
    );
    for word in ["FASTER", "SLOWER", "EQUIVALENT"] {
        assert!(!look.contains(word), "{look}");
    }
    let none = folder(experiment(12), |_| Outcome::Failed {
        reason: "it hangs".to_owned(),
        log_tail: String::new(),
    });
    let none = sentence(&summarise(&none));
    assert!(
        none.contains("are INCONCLUSIVE: no run of them was measured"),
        "{none}"
    );

    let class = |class| move |_: &crate::record::PlannedRun| Some(class);
    let forgetful = summarise(&classed(class(DurabilityClass::NotDurable)));
    let forgetful = sentence(&forgetful);
    assert!(
        forgetful
            .contains("; xfs is not durable (fdatasync by 1 writer: 48 of xfs); spindle-normal is"),
        "{forgetful}"
    );
    let apart = summarise(&classed(|planned| {
        Some(if planned.contender == "xfs" {
            DurabilityClass::NotDurable
        } else {
            DurabilityClass::Durable
        })
    }));
    let apart = sentence(&apart);
    assert!(
        apart.ends_with(
            "; xfs is not ranked with ext4 (not durable: fdatasync by 1 writer: 48 of xfs)."
        ),
        "{apart}"
    );
    assert!(!apart.contains("FASTER"), "{apart}");
    // Where the baseline is the one that forgets, its reason is the reason.
    let apart = sentence(&summarise(&classed(|planned| {
        Some(if planned.contender == "ext4" {
            DurabilityClass::NotDurable
        } else {
            DurabilityClass::Durable
        })
    })));
    assert!(
        apart.contains("xfs is not ranked with ext4 (durable; ext4: not durable, fdatasync by 1 writer: 48 of ext4)"),
        "{apart}"
    );
}

#[test]
fn who_is_said_the_same_of_stands_together_and_under_one_load_no_loads_are_counted() {
    let text = "contenders = [\"ext4\", \"xfs\", \"ext3\"]\nblocks = 12\n[devices]\nkind = \"loop\"\n\
                [[workload]]\nkind = \"tpcb\"\n";
    let asked = crate::experiment::Experiment::parse(text).unwrap();
    let summary = summarise(&folder(asked, |planned| {
        measured(1000.0 + f64::from(planned.number % 3))
    }));
    assert_eq!(
        sentence(&summary),
        "Against ext4, xfs and ext3 are EQUIVALENT."
    );
}
