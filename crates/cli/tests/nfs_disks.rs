//! Disks that are files on NFS servers: a group with one failure group on each of two servers, one of
//! which is killed and started again. The servers are nfs-ganesha on loopback.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;
#[path = "../../nfs/tests/server/mod.rs"]
mod server;

use std::time::{Duration, Instant};

use place::{Place, bytes, can_mount};
use server::Ganesha;

const MIB: usize = 1 << 20;
/// The deadline of a disk in these stories, and what a busy machine adds.
const DEADLINE_S: u64 = 4;
const LONGEST: Duration = Duration::from_secs(DEADLINE_S + 20);

/// A place with two servers that its settings name, or nothing where there cannot be one here.
/// The place is to be let go of first: a group that is being closed needs its servers.
fn servers_and_place() -> Option<([Ganesha; 2], Place)> {
    if !can_mount() {
        return None;
    }
    let (Some(one), Some(two)) = (Ganesha::start(), Ganesha::start()) else {
        return None;
    };
    let place = Place::new();
    let servers = [one, two];
    let [one, two] = &servers;
    // The first one is reached by two paths.
    let settings = format!(
        "io_deadline_s = {DEADLINE_S}\n\
         [nfs.filer1]\npaths = [\"127.0.0.1:{}\", \"127.0.0.1:{}@127.0.0.1\"]\nexport = \"/disks\"\n\
         [nfs.filer2]\npaths = [\"127.0.0.1:{}\"]\nexport = \"/disks\"\n",
        one.port, one.port, two.port
    );
    std::fs::write(place.path("spindle.toml"), settings).unwrap();
    Some((servers, place))
}

const DISKS: &str = "nfs://filer1/*,nfs://filer2/*";

fn run(place: &Place, words: &[&str]) -> place::Outcome {
    let mut command = place.command(words);
    place::outcome(command.env("SPINDLE_DISKS", DISKS))
}

#[track_caller]
fn tell(place: &Place, words: &[&str]) -> String {
    let outcome = run(place, words);
    assert_eq!(outcome.code, 0, "{outcome:?}");
    outcome.stdout
}

#[track_caller]
fn refuse(place: &Place, words: &[&str], wanted: &[&str]) {
    let outcome = run(place, words);
    assert_ne!(outcome.code, 0, "{outcome:?}");
    for word in wanted {
        assert!(outcome.stderr.contains(word), "{word}: {outcome:?}");
    }
}

/// The group `data`, mounted.
fn mounted(place: &Place) {
    tell(
        place,
        &[
            "group",
            "create",
            "data",
            "--failgroup",
            "left=nfs://filer1/a:64M",
            "--failgroup",
            "right=nfs://filer2/a:64M",
        ],
    );
    let point = place.mount_point();
    tell(place, &["mount", "data", point.to_str().unwrap()]);
}

#[track_caller]
fn wait_for_mode(place: &Place, disk: usize, mode: &str) {
    let begun = Instant::now();
    loop {
        let shown = tell(place, &["group", "show", "data", "--json"]);
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        if shown["disks"][disk]["mode"] == mode {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(90), "{shown}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// The disk serves and has everything: until then the other one cannot be done without.
#[track_caller]
fn wait_until_whole(place: &Place, disk: usize) {
    wait_for_mode(place, disk, "online");
    let begun = Instant::now();
    let is_whole = || {
        let shown = tell(place, &["operations", "data", "--json"]);
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        shown[0]["operations"].as_array().unwrap().is_empty()
            && run(place, &["health", "data"]).code == 0
    };
    while !is_whole() {
        assert!(
            begun.elapsed() < Duration::from_secs(90),
            "{:?}",
            run(place, &["health", "data"])
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Writes and syncs within the time that a disk may take to be given up.
#[track_caller]
fn write_synced(place: &Place, name: &str, contents: &[u8]) {
    let begun = Instant::now();
    let path = place.mount_point().join(name);
    let file = std::fs::File::create(path).unwrap();
    std::io::Write::write_all(&mut &file, contents).unwrap();
    file.sync_all().unwrap();
    assert!(begun.elapsed() < LONGEST, "{:?}", begun.elapsed());
}

#[track_caller]
fn assert_has(place: &Place, files: &[(&str, Vec<u8>)]) {
    for (name, contents) in files {
        let found = std::fs::read(place.mount_point().join(name)).unwrap();
        assert!(found == *contents, "{name}");
    }
}

#[test]
fn a_group_over_two_servers_goes_on_without_one_that_dies_and_its_daemon_may_die_too() {
    let Some((mut servers, place)) = servers_and_place() else {
        return;
    };
    mounted(&place);
    let mut files = vec![("before", bytes(1, 5 * MIB))];
    write_synced(&place, "before", &files[0].1);
    // A server dies, and is started again.
    servers[0].kill();
    files.push(("killed", bytes(2, 2 * MIB)));
    write_synced(&place, "killed", &files[1].1);
    wait_for_mode(&place, 0, "offline");
    assert_has(&place, &files);
    servers[0].start_again();
    wait_until_whole(&place, 0);
    // A daemon that is killed leaves nothing that comes late, and the next one has it all.
    files.push(("unsynced", bytes(3, 3 * MIB)));
    std::fs::write(place.mount_point().join("unsynced"), &files[2].1).unwrap();
    place.kill_daemon();
    assert_has(&place, &files);
    tell(&place, &["umount", place.mount_point().to_str().unwrap()]);
    tell(&place, &["group", "check", "data"]);
    let scrub = tell(&place, &["disk", "scan", "--json"]);
    let scrub: serde_json::Value = serde_json::from_str(&scrub).unwrap();
    let statuses: Vec<_> = scrub["disks"].as_array().unwrap().iter().collect();
    assert_eq!(statuses.len(), 2, "{scrub}");
}

#[test]
fn a_disk_on_a_server_that_cannot_be_had_is_refused_in_words_and_nothing_changes() {
    let Some((servers, place)) = servers_and_place() else {
        return;
    };
    let create = |disk: &str, wanted: &[&str]| {
        let words = [
            "group",
            "create",
            "x",
            "--redundancy",
            "external",
            "--disk",
            disk,
        ];
        refuse(&place, &words, wanted);
    };
    create(
        "nfs://nosuchserver.invalid/x/y",
        &["nosuchserver.invalid", "[nfs."],
    );
    create(
        "nfs://filer1/nosuch",
        &["nfs://filer1/nosuch", "no such file"],
    );
    create("nfs://filer1/../y", &["nfs://SERVER/DIRECTORY/FILE"]);
    create("nfs://filer1", &["nfs://SERVER/DIRECTORY/FILE"]);
    std::fs::write(servers[0].path("small"), [0; 4096]).unwrap();
    create("nfs://filer1/small", &["nfs://filer1/small", "too small"]);
    // Somebody's file, which bears nobody's mark.
    let mut archive = vec![0; 2 * MIB];
    archive[MIB + 5] = 7;
    std::fs::write(servers[0].path("archive"), &archive).unwrap();
    create(
        "nfs://filer1/archive",
        &["nfs://filer1/archive", "unknown data"],
    );
    let words = ["group", "create", "x", "--redundancy", "external"];
    let taken = [&words[..], &["--file-disk", "nfs://filer1/archive:64M"]].concat();
    refuse(&place, &taken, &["is there already"]);
    let kept = std::fs::read(servers[0].path("archive")).unwrap();
    assert!(kept == archive);
    // One that this machine, or another, has open.
    mounted(&place);
    create("nfs://filer1/a", &["nfs://filer1/a", "data"]);
    let listed = tell(&place, &["disk", "scan", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let disks = listed["disks"].as_array().unwrap();
    let member = disks.iter().find(|disk| disk["path"] == "nfs://filer1/a");
    assert_eq!(member.unwrap()["in_use"], true, "{listed}");
    tell(&place, &["umount", place.mount_point().to_str().unwrap()]);
    let many = "[nfs.filer3]\npaths = [\"a\", \"b\", \"c\", \"d\", \"e\"]\n";
    std::fs::write(place.path("spindle.toml"), many).unwrap();
    refuse(&place, &["group", "list"], &["nfs.filer3", "1 to 4"]);
}
