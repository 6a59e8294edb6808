//! `spindle top`: a group on one screen, for a program, for a file and on a terminal.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use place::{Place, bytes, can_mount};

#[test]
fn a_group_at_one_moment_is_told_to_a_program_and_on_one_page() {
    let place = Place::new();
    place.create_group();
    place.refuse(["top"], 2, &["no group is open"]);
    place.refuse(["top", "data"], 2, &["not open"]);
    place.tell(["group", "mount", "data"]);
    place.tell(["disk", "offline", "data", "data_0001"]);
    let top = place.ask(["top", "--once", "--interval", "0.1"]);
    assert_eq!(top["group"]["name"], "data", "{top}");
    assert_eq!(top["group"]["disks"].as_array().unwrap().len(), 4);
    assert_eq!(top["health"]["status"], "critical", "{top}");
    assert_eq!(top["operations"]["group"], "data");
    assert!(
        !top["activity"]["disks"].as_array().unwrap().is_empty(),
        "{top}"
    );
    let events = top["events"].as_array().unwrap();
    let kinds: Vec<&str> = (events.iter())
        .map(|event| event["kind"].as_str().unwrap())
        .collect();
    assert!(
        kinds.ends_with(&["disk_offline", "disks_change_asked"]),
        "{top}"
    );
    let page = place.tell(["top", "data", "--once", "--interval", "0.1"]);
    // Findings are broken where the line ends.
    let words: Vec<&str> = page.split_whitespace().collect();
    let told = words.join(" ");
    for wanted in [
        "data: mounted",
        "data_0001 left offline",
        "`spindle disk online data data_0001`",
    ] {
        assert!(told.contains(wanted), "{wanted:?} in {page}");
    }
    assert!(
        page.lines().all(|line| line.chars().count() <= 80),
        "{page}"
    );
    assert!(
        !page.contains('\u{1b}'),
        "no terminal was asked for: {page}"
    );
    place.tell(["group", "dismount", "data"]);
}

/// What `script` showed until the command ended, which was told `typed` after it had drawn.
fn on_a_terminal(place: &Place, typed: &[u8]) -> (bool, String) {
    let line = format!(
        "stty rows 24 cols 80; {} top data -i 0.2; stty -a",
        env!("CARGO_BIN_EXE_spindle")
    );
    let mut command = place.command([""; 0]);
    let directory = command.get_current_dir().unwrap().to_owned();
    let variables: Vec<_> = (command.get_envs())
        .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
        .collect();
    command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]);
    let mut child = command
        .current_dir(directory)
        .envs(variables)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut keyboard = child.stdin.take().unwrap();
    let mut screen = child.stdout.take().unwrap();
    let reading = std::thread::spawn(move || {
        let mut shown = String::new();
        let _ = screen.read_to_string(&mut shown);
        shown
    });
    std::thread::sleep(Duration::from_millis(1500));
    keyboard.write_all(typed).unwrap();
    keyboard.flush().unwrap();
    let begun = Instant::now();
    let mut ended = false;
    while !ended && begun.elapsed() < Duration::from_secs(20) {
        ended = child.try_wait().unwrap().is_some();
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    let _ = child.wait();
    (ended, reading.join().unwrap())
}

#[test]
fn on_a_terminal_it_is_refreshed_in_place_and_leaves_everything_as_it_was() {
    if !can_mount() {
        return;
    }
    if Command::new("script").arg("--version").output().is_err() {
        println!("skipped: no script(1)");
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    std::fs::write(place.mount_point().join("file"), bytes(1, 1 << 20)).unwrap();
    for typed in [&b"sq"[..], b"\x03"] {
        let (ended, shown) = on_a_terminal(&place, typed);
        assert!(ended, "{typed:?}: {shown}");
        let (entered, left) = (shown.find("\u{1b}[?1049h"), shown.find("\u{1b}[?1049l"));
        assert!(entered.is_some() && entered < left, "{shown}");
        assert!(shown.matches("data: mounted").count() > 2, "{shown}");
        let after = &shown[left.unwrap()..];
        assert!(
            after.contains("\u{1b}") && after.contains(" icanon") && after.contains(" echo "),
            "{after}"
        );
    }
    place.umount();
}

#[test]
fn a_file_that_is_open_since_before_a_takeover_has_its_path() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    let directory = place.mount_point().join("of/it");
    std::fs::create_dir_all(&directory).unwrap();
    let mut file = std::fs::File::create(directory.join("open")).unwrap();
    file.write_all(&bytes(1, 1 << 16)).unwrap();
    file.sync_all().unwrap();
    place.kill_daemon();
    let mut sampled = place
        .command(["top", "data", "--once", "--interval", "2", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    while sampled.try_wait().unwrap().is_none() {
        file.write_all(&bytes(2, 1 << 16)).unwrap();
        file.sync_all().unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    let output = sampled.wait_with_output().unwrap();
    let top: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(top["activity"]["files"][0]["name"], "/of/it/open", "{top}");
    drop(file);
    place.umount();
}
