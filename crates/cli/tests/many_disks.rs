//! Groups and changes of as many disks as there may be.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use place::{Place, outcome};

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
    let words = of_a_thousand_disks(&place);
    let limited = |words: &[String]| {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "ulimit -Sn 1024 && exec \"$@\"", "sh"]);
        shell.arg(env!("CARGO_BIN_EXE_spindle")).args(words);
        shell
            .current_dir(place.path(""))
            .env("SPINDLE_DISKS", place.disk("*"))
            .env("SPINDLE_RUNTIME_DIR", place.path("run"));
        outcome(&mut shell)
    };
    let made = limited(&words);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let served = limited(&["group", "mount", "data"].map(str::to_owned));
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
