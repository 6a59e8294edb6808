//! Names: unknown ones bring the nearest, those that are too long or none are explained.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use place::Place;

#[test]
fn an_unknown_name_brings_the_nearest() {
    let place = Place::new();
    place.create_group();
    std::fs::write(place.path("archive"), b"x").unwrap();
    place.tell(["cp", "archive", "data:/archive"]);
    place.refuse(
        ["group", "show", "dtaa"],
        2,
        &["no group dtaa", "did you mean data?"],
    );
    place.refuse(
        ["group", "mount", "backup"],
        2,
        &["no group backup", "there is data"],
    );
    place.refuse(
        ["stat", "data:/archvie"],
        2,
        &["data:/archvie", "did you mean archive?"],
    );
    place.refuse(["ls", "data:/nowhere/file"], 2, &["data:/nowhere"]);
    place.refuse(["ls", "/srv"], 2, &["GROUP:/path"]);
    place.refuse(
        ["iostat", "data"],
        2,
        &["not open", "spindle mount data DIR"],
    );
    place.refuse(["umount", "nowhere"], 2, &["nowhere", "nothing is mounted"]);
    let elsewhere = place.disk("none*");
    place.refuse(
        ["group", "show", "data", "--disks", &elsewhere],
        2,
        &[&elsewhere],
    );
}

#[test]
fn a_name_that_is_too_long_or_none_is_explained() {
    let place = Place::new();
    let disk = format!("{}:64M", place.disk("a"));
    let create = |name: &str| {
        [
            "group",
            "create",
            name,
            "--redundancy",
            "external",
            "--file-disk",
            &disk,
        ]
        .map(str::to_owned)
    };
    let long = "g".repeat(31);
    place.refuse(create(&long), 2, &["31 bytes", "at most 30"]);
    place.refuse(create("1data"), 2, &["1data", "letter"]);
    assert!(place.contents().is_empty());
    place.tell(create("data"));
    let file = place.text("file");
    std::fs::write(&file, b"x").unwrap();
    let target = format!("data:/{}", "n".repeat(256));
    place.refuse(["cp", &file, &target], 2, &["256 bytes", "at most 255"]);
    place.refuse(create("data"), 2, &["data", "another name"]);
}
