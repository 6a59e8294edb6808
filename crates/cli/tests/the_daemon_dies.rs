//! The process that serves a mount is killed, hangs or is replaced; whoever uses the mount waits
//! for a moment and notices nothing else.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::ffi::OsStr;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use place::{Place, bytes, can_mount, is_mounted, signal, wait_for_end};
use rustix::process::Signal;

/// What a program that waits for the next process may have to wait.
const PAUSE_MOST: Duration = Duration::from_secs(2);

/// `SPINDLE_TEST_KILLS` kills, or a few.
fn kills_count() -> usize {
    let wanted = std::env::var("SPINDLE_TEST_KILLS").ok();
    wanted.and_then(|text| text.parse().ok()).unwrap_or(12)
}

fn no_contradictions(place: &Place) {
    assert_eq!(
        place.ask(["group", "check", "data"])["contradictions"],
        serde_json::json!([])
    );
}

#[test]
fn what_was_written_and_never_synced_is_there_after_a_kill() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.tell([
        OsStr::new("mount"),
        OsStr::new("data"),
        place.mount_point().as_os_str(),
        OsStr::new("--direct"),
    ]);
    let point = place.mount_point();
    let contents = bytes(5, 1_500_000);
    std::fs::create_dir(point.join("directory")).unwrap();
    let mut file = std::fs::File::create_new(point.join("directory/file")).unwrap();
    file.write_all(&contents).unwrap();
    std::fs::rename(point.join("directory/file"), point.join("directory/other")).unwrap();
    let mut unlinked = std::fs::File::create_new(point.join("unlinked")).unwrap();
    unlinked.write_all(b"only open").unwrap();
    std::fs::remove_file(point.join("unlinked")).unwrap();

    place.kill_daemon();
    assert!(is_mounted(&point));
    assert!(std::fs::read(point.join("directory/other")).unwrap() == contents);
    assert!(!point.join("directory/file").exists());
    // The file that was open goes on, with the same descriptor.
    file.seek(SeekFrom::Start(0)).unwrap();
    file.write_all(b"changed").unwrap();
    assert_eq!(file.metadata().unwrap().len(), 1_500_000);
    // So does one without a name, and over a further kill.
    place.kill_daemon();
    unlinked.write_all_at(b"ONLY", 0).unwrap();
    let mut back = String::new();
    unlinked.seek(SeekFrom::Start(0)).unwrap();
    unlinked.read_to_string(&mut back).unwrap();
    assert_eq!(back, "ONLY open");
    let mut start = [0; 7];
    file.read_exact_at(&mut start, 0).unwrap();
    assert_eq!(&start, b"changed");
    drop((file, unlinked));
    no_contradictions(&place);
    let events = place.tell(["events", "data"]);
    assert!(events.contains("took over the mount"), "{events}");
    place.umount();
    assert!(!is_mounted(&point));
}

#[test]
fn processes_that_start_within_one_second_write_to_the_files_that_were_asked_for() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.tell([
        OsStr::new("mount"),
        OsStr::new("data"),
        place.mount_point().as_os_str(),
        OsStr::new("--direct"),
    ]);
    let point = place.mount_point();
    let kill = || {
        let killed = place.process_id();
        signal(killed, Signal::KILL);
    };
    for round in 0..6 {
        // To just behind the beginning of a second of the clock.
        let since = std::time::UNIX_EPOCH.elapsed().unwrap();
        let rest = Duration::from_secs(1) - Duration::from_nanos(since.subsec_nanos().into());
        std::thread::sleep(rest + Duration::from_millis(10));
        kill();
        // Each waits for the next process, and is the first file that it opens.
        let one_path = point.join(format!("one{round}"));
        let other_path = point.join(format!("other{round}"));
        let one = std::fs::File::create_new(&one_path).unwrap();
        one.write_all_at(b"first", 0).unwrap();
        kill();
        let other = std::fs::File::create_new(&other_path).unwrap();
        other.write_all_at(b"other", 0).unwrap();
        one.write_all_at(b"again", 0).unwrap();
        one.sync_all().unwrap();
        other.sync_all().unwrap();
        drop((one, other));
        assert_eq!(std::fs::read(one_path).unwrap(), b"again");
        assert_eq!(std::fs::read(other_path).unwrap(), b"other");
    }
    no_contradictions(&place);
    place.umount();
}

/// Makes, renames, links and removes names, and writes, until told to stop; every answer must be
/// the one that a model gives.
fn work(directory: &std::path::Path, seed: u64, stop: &AtomicBool) -> Duration {
    std::fs::create_dir(directory).unwrap();
    let mut longest = Duration::ZERO;
    let mut model: std::collections::BTreeMap<u64, Vec<u8>> = std::collections::BTreeMap::new();
    let mut round = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        let begun = Instant::now();
        let draw = bytes(seed.wrapping_mul(1_000_003) ^ round, 8);
        let number = u64::from(draw[0] % 24);
        let path = |number: u64| directory.join(format!("file{number}"));
        match draw[1] % 8 {
            0 => {
                let made = std::fs::File::create_new(path(number));
                assert_eq!(made.is_ok(), !model.contains_key(&number), "{made:?}");
                model.entry(number).or_default();
            }
            1 => {
                let removed = std::fs::remove_file(path(number));
                let had = model.remove(&number).is_some();
                assert_eq!(removed.is_ok(), had, "{removed:?}");
            }
            2 => {
                let to = (number + 1) % 24;
                let renamed = std::fs::rename(path(number), path(to));
                assert_eq!(renamed.is_ok(), model.contains_key(&number), "{renamed:?}");
                if let Some(contents) = model.remove(&number) {
                    model.insert(to, contents);
                }
            }
            3 => {
                std::fs::create_dir(directory.join("below")).unwrap();
                std::os::unix::fs::symlink("target", directory.join("below/link")).unwrap();
                std::fs::remove_file(directory.join("below/link")).unwrap();
                std::fs::remove_dir(directory.join("below")).unwrap();
            }
            4 => {
                if let Some(contents) = model.get(&number) {
                    let link = directory.join("second");
                    std::fs::hard_link(path(number), &link).unwrap();
                    assert_eq!(std::fs::metadata(&link).unwrap().nlink(), 2);
                    assert!(std::fs::read(&link).unwrap() == *contents);
                    std::fs::remove_file(&link).unwrap();
                }
            }
            _ => {
                if let Some(contents) = model.get_mut(&number) {
                    let file = std::fs::OpenOptions::new()
                        .write(true)
                        .open(path(number))
                        .unwrap();
                    let offset = usize::from(draw[3]) * 512;
                    let data = bytes(round, 1 + usize::from(draw[4]) * 60);
                    file.write_all_at(&data, offset as u64).unwrap();
                    if contents.len() < offset + data.len() {
                        contents.resize(offset + data.len(), 0);
                    }
                    contents[offset..offset + data.len()].copy_from_slice(&data);
                    if draw[2].is_multiple_of(16) {
                        file.sync_all().unwrap();
                    }
                    assert!(std::fs::read(path(number)).unwrap() == *contents);
                }
            }
        }
        longest = longest.max(begun.elapsed());
    }
    for (number, contents) in &model {
        let found = std::fs::read(directory.join(format!("file{number}"))).unwrap();
        assert!(
            found == *contents,
            "file{number} of {}",
            directory.display()
        );
    }
    let names = std::fs::read_dir(directory).unwrap().count();
    assert_eq!(names, model.len());
    longest
}

fn kills_under_load(direct: bool) {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    let point = place.mount_point();
    let mut words = vec![OsStr::new("mount"), OsStr::new("data"), point.as_os_str()];
    if direct {
        words.push(OsStr::new("--direct"));
    }
    place.tell(words);
    let stop = AtomicBool::new(false);
    let longest = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4_u64)
            .map(|seed| {
                let (stop, directory) = (&stop, point.join(format!("worker{seed}")));
                scope.spawn(move || work(&directory, seed, stop))
            })
            .collect();
        for kill in 0..kills_count() {
            let pause = u64::from(bytes(kill as u64, 1)[0]);
            std::thread::sleep(Duration::from_millis(150 + pause));
            place.kill_daemon();
        }
        stop.store(true, Ordering::Relaxed);
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .max()
    });
    println!("the longest operation took {longest:?}");
    no_contradictions(&place);
    place.umount();
    no_contradictions(&place);
}

/// A file that an earlier process knew keeps its room when its name goes, until the kernel says that
/// no program has it.
#[test]
fn what_is_removed_while_no_daemon_lives_for_a_second_does_not_fill_the_group() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    let contents = bytes(5, 8 << 20);
    // More than twice what the group can hold.
    for round in 0..36 {
        let path = place.mount_point().join(format!("file{round}"));
        std::fs::write(&path, &contents).unwrap();
        place.kill_daemon();
        std::fs::remove_file(&path).unwrap();
        std::thread::sleep(Duration::from_millis(300));
    }
    place.umount();
    no_contradictions(&place);
}

#[test]
fn kills_at_any_moment_give_no_program_a_wrong_answer() {
    kills_under_load(true);
}

#[test]
fn kills_at_any_moment_lose_nothing_of_what_the_page_cache_wrote_back() {
    kills_under_load(false);
}

#[test]
fn a_file_system_call_waits_at_most_two_seconds_for_the_next_process() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    let point = place.mount_point();
    let killed = place.process_id();
    signal(killed, Signal::KILL);
    let begun = Instant::now();
    std::fs::create_dir(point.join("directory")).unwrap();
    let pause = begun.elapsed();
    assert!(pause < PAUSE_MOST, "{pause:?}");
    place.umount();
}

#[test]
fn an_upgrade_hands_the_mount_over_and_a_wrong_program_is_refused() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    let point = place.mount_point();
    let mut file = std::fs::File::create_new(point.join("file")).unwrap();
    file.write_all(b"before").unwrap();
    let before = place.process_id();
    let keeper = place.keeper_process_id();
    place.refuse(
        ["upgrade", "data", "--binary", "/bin/true"],
        2,
        &["/bin/true", "goes on"],
    );
    assert_eq!(place.process_id(), before);
    // One that promises to read everything and then cannot serve.
    let own = place.tell(["formats"]);
    let liar = place.path("liar");
    let script =
        format!("#!/bin/sh\nif [ \"$1\" = formats ]; then\ncat <<'END'\n{own}\nEND\nfi\nexit 9\n");
    std::fs::write(&liar, script).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&liar, mode).unwrap();
    place.refuse(["upgrade", "data", "--binary", "liar"], 3, &["goes on"]);
    std::fs::write(point.join("other"), b"still served").unwrap();
    let between = place.process_id();

    place.tell(["upgrade", "data"]);
    let after = place.process_id();
    assert!(after != before && after != between);
    assert_eq!(place.keeper_process_id(), keeper);
    file.write_all(b" and after").unwrap();
    drop(file);
    assert_eq!(
        std::fs::read(point.join("file")).unwrap(),
        b"before and after"
    );
    no_contradictions(&place);
    place.umount();
    wait_for_end(keeper);
}

#[test]
fn an_upgrade_starts_the_very_file_that_was_asked_whatever_is_at_its_path_by_then() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    // Asked what it knows it answers well, and another program stands in its place from then on.
    let own = place.tell(["formats"]);
    let asked = place.path("asked");
    let other = place.path("other");
    std::fs::copy(env!("CARGO_BIN_EXE_spindle"), &other).unwrap();
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" = formats ]; then\nmv {} {}\ncat <<'END'\n{own}\nEND\nfi\nexit 9\n",
        other.display(),
        asked.display()
    );
    std::fs::write(&asked, script).unwrap();
    for program in [&asked, &other] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(program, mode).unwrap();
    }
    place.refuse(["upgrade", "data", "--binary", "asked"], 3, &["goes on"]);
    assert!(!other.exists(), "it was exchanged");
    let running = std::fs::read_link(format!("/proc/{}/exe", place.process_id())).unwrap();
    assert_ne!(running, asked);
    place.umount();
}

#[test]
fn a_mount_whose_processes_die_again_and_again_is_held_until_somebody_decides() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    let point = place.mount_point();
    place.mount_with("SPINDLE_SHORT_LIFE_MS", "60000");
    std::fs::write(point.join("file"), b"kept").unwrap();
    let keeper = place.keeper_process_id();
    let mut refused = false;
    for _ in 0..20 {
        let shown = place.run(["group", "show", "data", "--json"]);
        if shown.code != 0 {
            refused = shown.stderr.contains("held by the keeper");
            assert!(refused || shown.code == 3, "{shown:?}");
            if refused {
                break;
            }
            continue;
        }
        let group: serde_json::Value = serde_json::from_str(&shown.stdout).unwrap();
        let daemon = u32::try_from(group["process_id"].as_u64().unwrap()).unwrap();
        signal(daemon, Signal::KILL);
        wait_for_end(daemon);
    }
    assert!(refused, "the keeper gives up");
    assert!(is_mounted(&point));
    place.mount();
    assert_eq!(std::fs::read(point.join("file")).unwrap(), b"kept");
    place.umount();
    wait_for_end(keeper);
    assert!(!is_mounted(&point));
}

#[test]
fn a_keeper_whose_parent_ignores_the_ends_of_children_goes_on_when_its_daemon_dies() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    let mount = place.command(["mount", "data"]);
    let mut command = std::process::Command::new("env");
    command.arg("--ignore-signal=CHLD").arg(mount.get_program());
    command.args(mount.get_args()).arg(place.mount_point());
    if let Some(directory) = mount.get_current_dir() {
        command.current_dir(directory);
    }
    for (name, value) in mount.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let mounted = place::outcome(&mut command);
    assert_eq!(mounted.code, 0, "{mounted:?}");
    let file = place.mount_point().join("file");
    std::fs::write(&file, "answered").unwrap();
    let killed = place.process_id();
    signal(killed, Signal::KILL);
    assert_eq!(std::fs::read(&file).unwrap(), b"answered");
    assert_ne!(place.process_id(), killed);
    place.umount();
}

#[test]
fn a_process_that_hangs_is_replaced() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    let point = place.mount_point();
    place.mount_with("SPINDLE_WATCHDOG_S", "2");
    std::fs::write(point.join("file"), b"kept").unwrap();
    let hung = place.process_id();
    signal(hung, Signal::STOP);
    wait_for_end(hung);
    assert_eq!(std::fs::read(point.join("file")).unwrap(), b"kept");
    assert!(place.process_id() != hung);
    let events = place.tell(["events", "data"]);
    assert!(events.contains("no sign of life"), "{events}");
    place.umount();
}

#[test]
fn a_mount_on_the_directory_that_the_command_was_given_in_is_taken_over() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    let point = place.mount_point();
    let mut command = place.command(["mount", "data", "."]);
    let mounted = place::outcome(command.current_dir(&point));
    assert_eq!(mounted.code, 0, "{mounted:?}");
    for number in 0..3 {
        // What the kernel knew of the directory itself is not so any more.
        std::fs::write(point.join(format!("file{number}")), b"kept").unwrap();
        place.kill_daemon();
        assert_eq!(std::fs::read_dir(&point).unwrap().count(), number + 1);
    }
    assert!(is_mounted(&point));
    place.umount();
    assert_eq!(std::fs::read_dir(&point).unwrap().count(), 0);
}

/// A file system that holds the runtime directory, and nothing more.
struct FullRuntime<'a> {
    place: &'a Place,
}

impl<'a> FullRuntime<'a> {
    fn new(place: &'a Place) -> Option<Self> {
        let directory = place.path("run");
        std::fs::create_dir_all(&directory).unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=256k,mode=0700", "tmpfs"]);
        let mounted = place::outcome(mount.arg(&directory));
        if mounted.code != 0 {
            println!("skipped: root cannot mount a tmpfs: {mounted:?}");
            return None;
        }
        Some(Self { place })
    }

    fn fill(&self) {
        // The last page of the log as well.
        for name in ["run/fills", "run/data.log"] {
            let mut options = std::fs::File::options();
            let opened = options.create(true).append(true);
            let mut file = opened.open(self.place.path(name)).unwrap();
            while file.write_all(b"x").is_ok() {}
        }
    }
}

impl Drop for FullRuntime<'_> {
    fn drop(&mut self) {
        let mut umount = std::process::Command::new("umount");
        let _ = umount.arg("--lazy").arg(self.place.path("run")).status();
    }
}

#[test]
fn a_log_that_cannot_be_written_ends_neither_the_daemon_nor_its_keeper() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let Some(runtime) = FullRuntime::new(&place) else {
        return;
    };
    place.create_group();
    place.mount();
    let point = place.mount_point();
    let contents = bytes(6, 1_500_000);
    std::fs::write(point.join("file"), &contents).unwrap();
    runtime.fill();
    let keeper = place.keeper_process_id();
    // Told in the log: a disk goes, and the death of a daemon.
    place.tell(["disk", "offline", "data", "data_0003"]);
    for _ in 0..2 {
        place.kill_daemon();
        assert!(std::fs::read(point.join("file")).unwrap() == contents);
    }
    assert_eq!(place.keeper_process_id(), keeper);
    place.umount();
}

#[test]
fn how_long_a_process_may_hang_is_a_setting_of_the_group() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    place.tell(["group", "set", "data", "watchdog=15s"]);
    // The one that was told, and the one that found it in the group.
    for _ in 0..2 {
        let hung = place.process_id();
        signal(hung, Signal::STOP);
        let begun = Instant::now();
        let status = format!("/proc/{hung}/stat");
        let is_there = || std::fs::read_to_string(&status).is_ok_and(|stat| !stat.contains(") Z "));
        while is_there() {
            let waited = begun.elapsed();
            assert!(waited < Duration::from_secs(45), "it was not killed");
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(begun.elapsed() > Duration::from_secs(10), "killed too soon");
    }
    let events = place.tell(["events", "data"]);
    assert!(events.contains("no sign of life for 15 s"), "{events}");
    place.umount();
}

#[test]
fn without_its_keeper_a_process_goes_on_alone() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    let keeper = place.keeper_process_id();
    signal(keeper, Signal::KILL);
    wait_for_end(keeper);
    std::fs::write(place.mount_point().join("file"), b"alone").unwrap();
    while !place.ask(["group", "show", "data"])["keeper_process_id"].is_null() {
        std::thread::sleep(Duration::from_millis(20));
    }
    place.umount();
    assert!(!is_mounted(&place.mount_point()));
}

#[test]
fn a_keeper_and_a_command_that_do_not_understand_each_other_say_their_versions() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    // A word of a later command.
    let mut keeper = UnixStream::connect(place.path("run/data.keeper")).unwrap();
    keeper.write_all(b"\"dance\"\n").unwrap();
    let mut answer = String::new();
    keeper.read_to_string(&mut answer).unwrap();
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let own = format!("of version {}", env!("CARGO_PKG_VERSION"));
    assert_eq!(answer["Err"]["kind"], "version", "{answer}");
    let told = answer["Err"]["message"].as_str().unwrap();
    assert!(told.contains(&own) && told.contains("dance"), "{told}");
    place.umount();
    // An answer of a later keeper.
    let socket = UnixListener::bind(place.path("run/data.keeper")).unwrap();
    let answering = std::thread::spawn(move || {
        // The first asks whether somebody listens.
        for connection in socket.incoming().take(2) {
            let mut connection = connection.unwrap();
            let _ = connection.read(&mut [0; 64]).unwrap();
            let later = b"{\"Ok\":{\"version\":\"77.1.0\",\"phase\":\"dances\"}}\n";
            let _ = connection.write_all(later);
        }
    });
    let wanted = ["of version 77.1.0", &own, "cannot be read"];
    place.refuse(["group", "show", "data"], 3, &wanted);
    answering.join().unwrap();
    std::fs::remove_file(place.path("run/data.keeper")).unwrap();
}

#[test]
fn a_service_manager_is_told_when_the_group_is_served_and_that_it_lives() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    let socket = UnixDatagram::bind(place.path("notify")).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    for keeper in [false, true] {
        let mut command = place.command(["mount", "data"]);
        command
            .arg(place.mount_point())
            .arg("--foreground")
            .args(keeper.then_some("--keeper"))
            .env("NOTIFY_SOCKET", place.path("notify"))
            .stdout(std::process::Stdio::null());
        let mut served = command.spawn().unwrap();
        for wanted in ["READY=1", "WATCHDOG=1"] {
            let mut word = [0; 256];
            loop {
                let length = socket.recv(&mut word).unwrap();
                if word[..length].starts_with(wanted.as_bytes()) {
                    break;
                }
            }
        }
        assert!(is_mounted(&place.mount_point()));
        signal(served.id(), Signal::TERM);
        assert_eq!(served.wait().unwrap().code(), Some(0));
        assert!(!is_mounted(&place.mount_point()));
    }
}

#[test]
fn the_unit_for_systemd_is_one_that_systemd_understands() {
    let unit =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/spindle@.service");
    let text = std::fs::read_to_string(unit).unwrap();
    let place = Place::new();
    let copy = place.path("spindle@data.service");
    // The program need not be installed to check its unit.
    std::fs::write(
        &copy,
        text.replace("/usr/bin/spindle", env!("CARGO_BIN_EXE_spindle")),
    )
    .unwrap();
    let verified = std::process::Command::new("systemd-analyze")
        .arg("verify")
        .arg(&copy)
        .output();
    match verified {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let about_it = said.lines().any(|line| line.contains("spindle@data"));
            assert!(output.status.success() && !about_it, "{said}");
        }
        Err(error) => println!("skipped: no systemd-analyze ({error})"),
    }
}

/// Goes on when the story ends, however that is.
struct Stopped(u32);

impl Stopped {
    fn new(process_id: u32) -> Self {
        signal(process_id, Signal::STOP);
        Self(process_id)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        signal(self.0, Signal::CONT);
    }
}

#[test]
fn a_keeper_that_is_stopped_for_long_holds_up_no_daemon_and_does_not_take_it_for_hung() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    let point = place.mount_point();
    // Longer than the disk below all tests needs for a flush when they all flush.
    place.mount_with("SPINDLE_WATCHDOG_S", "5");
    let (daemon, keeper) = (place.process_id(), place.keeper_process_id());
    let begun = Instant::now();
    let stopped = Stopped::new(keeper);
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The keeper is told each of them: more than its socket has room for.
            for seconds in 15..415 {
                let wanted = format!("watchdog={seconds}s");
                place.tell(["group", "set", "data", &wanted]);
            }
            done.send(()).unwrap();
        });
        let in_time = is_done.recv_timeout(Duration::from_secs(100));
        if in_time.is_err() {
            signal(keeper, Signal::CONT);
        }
        in_time.expect("the daemon waits for its keeper");
    });
    std::fs::write(point.join("file"), b"kept").unwrap();
    let file = std::fs::File::open(point.join("file")).unwrap();
    file.sync_all().unwrap();
    drop(file);
    place.tell(["sync", "data"]);
    std::thread::sleep(Duration::from_secs(12).saturating_sub(begun.elapsed()));
    drop(stopped);
    std::thread::sleep(Duration::from_secs(7));
    assert_eq!(place.process_id(), daemon);
    let events = place.tell(["events", "data"]);
    assert!(!events.contains("no sign of life"), "{events}");
    // It hears and sees the daemon as before.
    signal(daemon, Signal::STOP);
    wait_for_end(daemon);
    assert_eq!(std::fs::read(point.join("file")).unwrap(), b"kept");
    place.umount();
    wait_for_end(keeper);
}
