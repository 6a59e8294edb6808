//! Too few failure groups, too small disks, no disks: refused before a file disk is made.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use place::Place;

#[test]
fn redundancy_needs_as_many_failure_groups_as_copies() {
    let place = Place::new();
    let (a, b) = (
        format!("{}:64M", place.disk("a")),
        format!("{}:64M", place.disk("b")),
    );
    let both = format!("left={a},{b}");
    place.refuse(
        ["group", "create", "data", "--failgroup", &both],
        2,
        &["normal", "2 copies", "there is 1", "add disks"],
    );
    place.refuse(
        [
            "group",
            "create",
            "data",
            "--redundancy",
            "high",
            "--file-disk",
            &a,
            "--file-disk",
            &b,
        ],
        2,
        &["high", "3 copies", "there are 2"],
    );
    place.refuse(["group", "create", "data"], 2, &["needs disks", "--disk"]);
    assert!(place.contents().is_empty(), "no file disk was left behind");
}

#[test]
fn a_disk_that_is_too_small_is_refused_by_name() {
    let place = Place::new();
    let path = place.disk("small");
    for size in ["64K", "1M"] {
        let disk = format!("{path}:{size}");
        place.refuse(
            [
                "group",
                "create",
                "data",
                "--redundancy",
                "external",
                "--file-disk",
                &disk,
            ],
            2,
            &[&path],
        );
        assert!(place.contents().is_empty(), "no file disk was left behind");
    }
    let disk = format!("{path}:64M");
    place.refuse(
        [
            "group",
            "create",
            "data",
            "--redundancy",
            "external",
            "--au-size",
            "64M",
            "--file-disk",
            &disk,
        ],
        2,
        &[&path],
    );
    assert!(place.contents().is_empty(), "no file disk was left behind");
}

#[test]
fn sizes_and_units_that_are_none_are_explained() {
    let place = Place::new();
    for (words, wanted) in [
        (vec!["--au-size", "3M"], "1M, 2M, 4M"),
        (vec!["--file-disk", "a"], "PATH:SIZE"),
        (vec!["--redundancy", "double"], "external, normal or high"),
        (vec!["--failgroup", "left"], "NAME=PATH"),
    ] {
        let outcome = place.run(["group", "create", "data"].into_iter().chain(words));
        assert_eq!(outcome.code, 2, "{outcome:?}");
        assert!(outcome.stderr.contains(wanted), "{outcome:?}");
    }
}

#[test]
fn a_file_disk_that_is_there_and_one_beyond_the_file_system_are_refused() {
    let place = Place::new();
    let path = place.disk("a");
    std::fs::write(&path, b"precious").unwrap();
    let create = |disk: &str| {
        [
            "group",
            "create",
            "data",
            "--redundancy",
            "external",
            "--file-disk",
            disk,
        ]
        .map(str::to_owned)
    };
    place.refuse(create(&format!("{path}:64M")), 2, &[&path, "already"]);
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    let large = place.disk("large");
    place.refuse(create(&format!("{large}:900T")), 2, &[&large, "no room"]);
    assert!(!std::path::Path::new(&large).exists());
}
