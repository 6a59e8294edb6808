//! Files go into a group, are looked at, and come out again, with no mount and no daemon.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use place::{Place, bytes};

#[test]
fn what_was_copied_in_comes_out_the_same_and_the_group_goes() {
    let place = Place::new();
    place.create_group();
    let large = bytes(1, 5_000_000);
    std::fs::create_dir_all(place.path("source/deep")).unwrap();
    std::fs::write(place.path("source/large"), &large).unwrap();
    std::fs::write(place.path("source/empty"), b"").unwrap();
    std::fs::write(place.path("source/deep/small"), b"small").unwrap();
    std::os::unix::fs::symlink("small", place.path("source/deep/link")).unwrap();

    let copied = place.ask(["cp", "-r", "source", "data:/"]);
    assert_eq!(copied["files_count"], 3);
    assert_eq!(copied["directories_count"], 2);
    assert_eq!(copied["symlinks_count"], 1);
    assert_eq!(copied["bytes"], 5_000_005);

    let listed = place.ask(["ls", "data:/source"]);
    let names: Vec<&str> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["deep", "empty", "large"]);
    let stat = place.ask(["stat", "data:/source/large"]);
    assert_eq!(stat["size_bytes"], 5_000_000);
    assert_eq!(stat["redundancy"], "normal");
    let link = place.ask(["stat", "data:/source/deep/link"]);
    assert_eq!(link["target"], "small");

    let sums = place.ask(["du", "--depth", "1", "data:/source"]);
    let sums = sums.as_array().unwrap();
    assert_eq!(sums.last().unwrap()["files_count"], 4);
    assert_eq!(sums[0]["path"], "/source/deep");

    place.tell(["cp", "-r", "data:/source", "back"]);
    assert_eq!(std::fs::read(place.path("back/large")).unwrap(), large);
    assert_eq!(
        std::fs::read(place.path("back/deep/small")).unwrap(),
        b"small"
    );
    assert_eq!(std::fs::read(place.path("back/empty")).unwrap(), b"");
    let target = std::fs::read_link(place.path("back/deep/link")).unwrap();
    assert_eq!(target, std::path::Path::new("small"));

    let check = place.ask(["group", "check", "data"]);
    assert_eq!(check["contradictions"].as_array().unwrap().len(), 0);
    place.tell(["group", "destroy", "data", "--yes"]);
    assert_eq!(place.ask(["group", "list"]).as_array().unwrap().len(), 0);
    let scan = place.ask(["disk", "scan"]);
    let disks = scan["disks"].as_array().unwrap();
    assert_eq!(disks.len(), 4);
    assert!(
        disks.iter().all(|disk| disk["status"] == "former"),
        "{scan}"
    );
}

#[test]
fn the_map_shows_each_copy_in_another_failure_group() {
    let place = Place::new();
    place.create_group();
    std::fs::write(place.path("file"), bytes(2, 10 << 20)).unwrap();
    place.tell(["cp", "file", "data:/file"]);
    let map = place.ask(["map", "data:/file"]);
    let extents = map["extents"].as_array().unwrap();
    assert!(extents.len() >= 10, "{map}");
    for extent in extents {
        let copies = extent["copies"].as_array().unwrap();
        // Disks 0 and 1 are the one failure group, 2 and 3 the other.
        let sides: Vec<bool> = copies
            .iter()
            .map(|copy| copy["disk"].as_u64() < Some(2))
            .collect();
        assert_eq!(sides.len(), 2, "{extent}");
        assert_ne!(sides[0], sides[1], "{extent}");
    }
    assert_eq!(map["disks"].as_array().unwrap().len(), 4);
}

#[test]
fn a_copy_replaces_a_file_and_goes_into_a_directory() {
    let place = Place::new();
    place.create_group();
    std::fs::write(place.path("one"), b"first, and longer").unwrap();
    std::fs::write(place.path("two"), b"second").unwrap();
    std::fs::create_dir(place.path("directory")).unwrap();
    place.tell(["cp", "one", "data:/name"]);
    place.tell(["cp", "two", "data:/name"]);
    place.tell(["cp", "data:/name", "out"]);
    assert_eq!(std::fs::read(place.path("out")).unwrap(), b"second");
    place.tell(["cp", "one", "two", "data:/"]);
    place.tell(["cp", "data:/one", "data:/two", "directory"]);
    assert_eq!(
        std::fs::read(place.path("directory/two")).unwrap(),
        b"second"
    );
    place.refuse(["cp", "one", "two", "data:/name"], 2, &["no directory"]);
    place.refuse(["cp", "directory", "data:/"], 2, &["-r"]);
    place.refuse(["cp", "one", "two"], 2, &["GROUP:/path"]);
}

#[test]
fn the_holes_of_a_file_take_no_space_in_the_group_or_outside() {
    let place = Place::new();
    place.create_group();
    let mut sparse = vec![0; 30 << 20];
    sparse[20 << 20..(20 << 20) + 4096].fill(7);
    std::fs::write(place.path("sparse"), &sparse).unwrap();
    place.tell(["cp", "sparse", "data:/sparse"]);
    let stat = place.ask(["stat", "data:/sparse"]);
    assert_eq!(stat["size_bytes"], 30 << 20);
    assert!(
        stat["allocated_bytes"].as_u64().unwrap() <= 2 << 20,
        "{stat}"
    );
    place.tell(["cp", "data:/sparse", "back"]);
    assert!(std::fs::read(place.path("back")).unwrap() == sparse);
    let blocks =
        std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(place.path("back")).unwrap());
    assert!(blocks * 512 <= 2 << 20, "{blocks} blocks");
}

#[test]
fn looking_at_a_group_writes_nothing() {
    let place = Place::new();
    place.create_group();
    std::fs::write(place.path("file"), b"contents").unwrap();
    place.tell(["cp", "file", "data:/file"]);
    let before = place.contents();
    place.tell(["ls", "-l", "data:/"]);
    place.tell(["stat", "data:/file"]);
    place.tell(["map", "data:/file"]);
    place.tell(["du", "data:/"]);
    place.tell(["cp", "data:/file", "out"]);
    place.tell(["group", "show", "data"]);
    place.tell(["group", "list"]);
    place.tell(["group", "check", "data"]);
    place.tell(["template", "list", "data"]);
    place.tell(["dump", "data"]);
    place.tell(["disk", "scan"]);
    assert!(before == place.contents());
}
