//! Groups and changes of as many disks as there may be.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::time::{Duration, Instant};

use place::{Outcome, Place, outcome};

/// Runs the binary as a login shell would: with the usual soft limit of descriptors.
fn limited(place: &Place, words: &[String]) -> Outcome {
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "ulimit -Sn 1024 && exec \"$@\"", "sh"]);
    shell.arg(env!("CARGO_BIN_EXE_spindle")).args(words);
    shell
        .current_dir(place.path(""))
        .env("SPINDLE_DISKS", place.disk("*"))
        .env("SPINDLE_RUNTIME_DIR", place.path("run"));
    outcome(&mut shell)
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// The words that make the group `data` of a thousand disks.
fn of_a_thousand_disks(place: &Place) -> Vec<String> {
    let mut words: Vec<String> = ["group", "create", "data", "--au-size", "1M"]
        .map(str::to_owned)
        .to_vec();
    for side in ["left", "right"] {
        // Files that are there, all holes: what is not written takes no room.
        let disks: Vec<String> = (0..500)
            .map(|number| {
                let disk = place.disk(&format!("{side}{number}"));
                let file = std::fs::File::create(&disk).unwrap();
                file.set_len(16 << 20).unwrap();
                disk
            })
            .collect();
        words.extend([
            "--failgroup".to_owned(),
            format!("{side}={}", disks.join(",")),
        ]);
    }
    words
}

#[test]
fn a_group_of_a_thousand_disks_is_served_under_the_usual_limit_of_descriptors() {
    let place = Place::new();
    let create = of_a_thousand_disks(&place);
    let made = limited(&place, &create);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let served = limited(&place, &words(&["group", "mount", "data"]));
    assert_eq!(served.code, 0, "{}", served.stderr);
    let shown = place.ask(["group", "show", "data"]);
    assert_eq!(shown["disks"].as_array().unwrap().len(), 1000);
    place.tell(["group", "dismount", "data"]);
}

/// What the process has computed so far.
fn processor_time_s(process_id: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process_id}/stat")).unwrap();
    let (_, behind_name) = stat.rsplit_once(')').unwrap();
    let fields: Vec<&str> = behind_name.split_whitespace().collect();
    // utime and stime of proc(5), in hundredths of a second.
    let ticks: f64 = (fields[11..13].iter())
        .map(|field| field.parse::<f64>().unwrap())
        .sum();
    ticks / 100.0
}

/// The memory that the process has by now.
fn resident_bytes(process_id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process_id}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}

/// Programs wait for the next daemon meanwhile. What it computes is asked, since tests run beside
/// each other: 2.8 s, and 257 MB of memory, when it kept a copy of the group state for each disk.
#[test]
fn the_next_daemon_over_a_thousand_disks_has_the_mount_after_little_work() {
    if !place::can_mount() {
        return;
    }
    let place = Place::new();
    place.tell(of_a_thousand_disks(&place));
    place.mount();
    std::fs::write(place.mount_point().join("file"), b"before").unwrap();
    let next = place.kill_daemon();
    assert_eq!(
        std::fs::read(place.mount_point().join("file")).unwrap(),
        b"before"
    );
    let processor_s = processor_time_s(next);
    assert!(processor_s < 1.5, "{processor_s} s");
    let memory_bytes = resident_bytes(next);
    assert!(memory_bytes < 100 << 20, "{memory_bytes} bytes");
    place.umount();
}

#[test]
fn a_change_names_as_many_disks_as_a_group_can_have_and_not_one_more() {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    let offline = |count: usize| {
        let names = (0..count).map(|number| format!("a_rather_long_name_{number:06}"));
        let words = ["disk", "offline", "data"].map(str::to_owned).into_iter();
        place.run(words.chain(names))
    };
    // All of them arrive: the group looks for the first and has no such disk.
    let most = offline(4096);
    place::refused(&most, 2, &["a_rather_long_name_000000"]);
    let more = offline(4097);
    place::refused(&more, 2, &["4097", "4096"]);
}

/// As many disks as a group can have.
const DISKS_MOST: usize = 4096;

/// `SPINDLE_TEST_DISKS` disks, or some.
fn disks_count() -> usize {
    let wanted = std::env::var("SPINDLE_TEST_DISKS").ok();
    let wanted = wanted.and_then(|text| text.parse().ok()).unwrap_or(300);
    assert!((100..=DISKS_MOST).contains(&wanted), "{wanted} disks");
    wanted
}

/// Two failure groups of those of the disks, which are made: holes, so that what is not written
/// takes no room. Their paths are short, since the words of a failure group are one word.
fn halves(place: &Place, numbers: std::ops::Range<usize>) -> Vec<String> {
    let path = |number: &usize| format!("disks/{number}");
    for number in numbers.clone() {
        let file = std::fs::File::create(place.path(&path(&number))).unwrap();
        file.set_len(9 << 20).unwrap();
    }
    ["left", "right"]
        .into_iter()
        .enumerate()
        .flat_map(|(half, name)| {
            let disks = numbers.clone().filter(|number| number % 2 == half);
            let disks: Vec<String> = disks.map(|number| path(&number)).collect();
            [
                "--failgroup".to_owned(),
                format!("{name}={}", disks.join(",")),
            ]
        })
        .collect()
}

/// Runs a command over so many disks that has to succeed, and in a time that rises as they do.
#[track_caller]
fn soon(place: &Place, disks_count: usize, what: &str, words: &[String]) {
    let begun = Instant::now();
    let outcome = limited(place, words);
    let took = begun.elapsed();
    println!("{disks_count} disks: {what}: {:.1} s", took.as_secs_f64());
    assert_eq!(outcome.code, 0, "{what}: {}", outcome.stderr);
    let most =
        Duration::from_secs(30) + Duration::from_millis(25) * disks_count.try_into().unwrap();
    assert!(took < most, "{what}: {took:?}");
}

#[track_caller]
fn has_online(place: &Place, count: usize) {
    let shown = place.ask(["group", "show", "data"]);
    let disks = shown["disks"].as_array().unwrap();
    assert_eq!(disks.len(), count);
    assert!(disks.iter().all(|disk| disk["mode"] == "online"));
}

/// What the daemon did and has, which must not be each disk for each disk.
#[track_caller]
fn is_moderate(place: &Place, disks_count: usize) {
    let daemon = place.process_id();
    let processor_s = processor_time_s(daemon);
    let memory_bytes = resident_bytes(daemon);
    println!(
        "{disks_count} disks: {processor_s:.1} s computed, {} MB",
        memory_bytes >> 20
    );
    let disks: u32 = disks_count.try_into().unwrap();
    assert!(
        processor_s < 3.0 + 0.015 * f64::from(disks),
        "{processor_s} s"
    );
    let most_bytes = (100 << 20) + (u64::from(disks) << 16);
    assert!(memory_bytes < most_bytes, "{memory_bytes} bytes");
}

#[test]
fn as_many_disks_as_a_group_can_have_join_a_mounted_group_in_one_change() {
    if !place::can_mount() {
        return;
    }
    let place = Place::new();
    let count = disks_count();
    let mut create = words(&["group", "create", "data"]);
    create.extend(halves(&place, 0..4));
    soon(&place, 4, "create", &create);
    let mount = words(&["mount", "data", &place.text("mount")]);
    soon(&place, 4, "mount", &mount);
    let file = place.mount_point().join("file");
    std::fs::write(&file, b"before").unwrap();

    let mut add = words(&["disk", "add", "data"]);
    add.extend(halves(&place, 4..count));
    soon(&place, count, "add all others", &add);
    has_online(&place, count);
    is_moderate(&place, count);
    let mut one_more = words(&["disk", "add", "data", "--disk", "disks/more"]);
    let more = std::fs::File::create(place.disk("more")).unwrap();
    more.set_len(9 << 20).unwrap();
    if count == DISKS_MOST {
        // What a process opens is counted in all that it ever opened.
        place::refused(&limited(&place, &one_more), 3, &["4096 disks", "the most"]);
    }
    soon(&place, count, "list", &words(&["group", "list"]));
    soon(&place, count, "status", &words(&["status"]));

    let begun = Instant::now();
    place.kill_daemon();
    assert_eq!(std::fs::read(&file).unwrap(), b"before");
    println!(
        "{count} disks: takeover: {:.1} s",
        begun.elapsed().as_secs_f64()
    );
    has_online(&place, count);
    is_moderate(&place, count);

    let dropped = count / 4;
    let mut drop = words(&["disk", "drop", "data"]);
    drop.extend((count - dropped..count).map(|number| format!("data_{number:04}")));
    soon(&place, count, "drop a quarter", &drop);
    place.tell(["rebalance", "data", "--power", "1024", "--wait"]);
    has_online(&place, count - dropped);
    let point = place.text("mount");
    soon(&place, count, "unmount", &words(&["umount", &point]));
    soon(&place, count, "mount again", &mount);
    assert_eq!(std::fs::read(&file).unwrap(), b"before");
    one_more.extend(words(&["--name", "more"]));
    soon(&place, count - dropped, "add one", &one_more);
    has_online(&place, count - dropped + 1);
    place.umount();
}

#[test]
fn a_group_of_as_many_disks_as_it_can_have_is_made_at_once() {
    let place = Place::new();
    let count = disks_count();
    let mut create = words(&["group", "create", "data"]);
    create.extend(halves(&place, 0..count));
    soon(&place, count, "create", &create);
    has_online(&place, count);
}
