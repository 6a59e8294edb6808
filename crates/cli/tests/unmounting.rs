//! Mounts that others hold, and mounts that follow one another at once.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use place::{Place, can_mount, is_mounted, outcome, wait_for_end};

/// A process in a mount namespace of its own, as a container has one, ended with its story.
struct Container(Child);

impl Container {
    /// `None` where the machine makes none; the reason is printed.
    fn start(point: &Path) -> Option<Self> {
        // A new namespace has every mount there is, those of other stories too: it lets go of them.
        let script = "while read -r _ _ _ _ at rest; do case $rest in (*fuse.spindle*) \
            test \"$at\" = \"$0\" || umount -l \"$at\";; esac; done < /proc/self/mountinfo; \
            exec sleep 300";
        let child = Command::new("unshare")
            .args(["--mount", "sh", "-c", script])
            .arg(point)
            .stdin(Stdio::null())
            .spawn();
        let mut container = Self(child.ok()?);
        let namespace = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/mnt")).unwrap();
        let id = container.0.id().to_string();
        for _ in 0..1000 {
            if let Some(status) = container.0.try_wait().unwrap() {
                println!("skipped: no mount namespace ({status})");
                return None;
            }
            let comm = std::fs::read_to_string(format!("/proc/{id}/comm")).unwrap();
            if comm.trim() == "sleep" && namespace(&id) != namespace("self") {
                let list = std::fs::read_to_string(format!("/proc/{id}/mountinfo")).unwrap();
                assert!(list.contains(&point.display().to_string()));
                return Some(container);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("unshare came to nothing");
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_until_closed(place: &Place) {
    for _ in 0..1000 {
        if place.ask(["group", "show", "data"])["state"] == "dismounted" {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("the group is not closed");
}

#[test]
fn a_mount_that_another_namespace_holds_is_named_and_served_until_it_lets_go() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    let point = place.mount_point();
    // So that a process without heartbeats would not live long.
    place.mount_with("SPINDLE_WATCHDOG_S", "4");
    std::fs::write(point.join("file"), b"inside").unwrap();
    let daemon = place.process_id();
    let Some(container) = Container::start(&point) else {
        return;
    };
    let holder = container.0.id().to_string();
    let told = ["lives on", holder.as_str(), "sleep", "namespace"];
    let at = place.text("mount");
    place.refuse(["umount", &at], 3, &told);
    assert!(!is_mounted(&point), "here it is gone");
    // Asked again it says the same, and so does who wants to close the group or mount it.
    place.refuse(["umount", &at], 3, &told);
    place.refuse(["group", "dismount", "data"], 3, &told);
    place.refuse(["mount", "data", &at], 3, &told);
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!(place.process_id(), daemon, "it is served as before");
    let enter = ["--mount", "--target", &holder, "cat"];
    let file = point.join("file");
    let inside = outcome(Command::new("nsenter").args(enter).arg(file));
    assert_eq!(inside.stdout, "inside", "{inside:?}");
    drop(container);
    // Nobody has it any more.
    wait_for_end(daemon);
    wait_until_closed(&place);
    place.mount();
    assert_eq!(std::fs::read(point.join("file")).unwrap(), b"inside");
    place.umount();
}

#[test]
fn a_mount_that_is_shown_at_a_second_place_is_unmounted_when_both_are() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    let (at, second) = (place.text("mount"), place.text("second"));
    std::fs::create_dir(&second).unwrap();
    let bound = outcome(Command::new("mount").args(["--bind", &at, &second]));
    assert_eq!(bound.code, 0, "{bound:?}");
    let daemon = place.process_id();
    place.refuse(["umount", &at], 3, &["lives on", &second]);
    std::fs::write(place.path("second/file"), b"still served").unwrap();
    let unbound = outcome(Command::new("umount").arg(&second));
    assert_eq!(unbound.code, 0, "{unbound:?}");
    wait_for_end(daemon);
    wait_until_closed(&place);
    place.mount();
    let file = place.mount_point().join("file");
    assert_eq!(std::fs::read(file).unwrap(), b"still served");
    place.umount();
}

#[test]
fn a_group_ends_in_order_although_another_namespace_holds_its_mount() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    let point = place.mount_point();
    let Some(container) = Container::start(&point) else {
        return;
    };
    std::fs::write(point.join("file"), b"written before the end").unwrap();
    let daemon = place.process_id();
    let keeper = place.keeper_process_id();
    place::signal(daemon, rustix::process::Signal::TERM);
    wait_for_end(daemon);
    wait_for_end(keeper);
    assert!(!is_mounted(&point));
    drop(container);
    place.mount();
    let back = std::fs::read(point.join("file")).unwrap();
    assert_eq!(back, b"written before the end");
    place.umount();
}

#[test]
fn a_group_that_a_process_is_still_closing_is_waited_for() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    place.umount();
    // What a process holds until its end, also when nobody can ask it any more.
    let lock = std::fs::File::options()
        .append(true)
        .open(place.path("run/data.lock"))
        .unwrap();
    lock.lock().unwrap();
    let mut command = place.command(["mount", "data"]);
    let mut mounting = command.arg(place.mount_point()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    assert!(mounting.try_wait().unwrap().is_none(), "it waits");
    lock.unlock().unwrap();
    let begun = Instant::now();
    assert_eq!(mounting.wait().unwrap().code(), Some(0));
    // It does not wait for its own keeper, which gives it a minute.
    assert!(begun.elapsed() < Duration::from_secs(30));
    place.umount();
}

#[test]
fn a_mount_right_after_an_unmount_by_somebody_else_works() {
    if !can_mount() {
        return;
    }
    let wanted = std::env::var("SPINDLE_TEST_MOUNTS").ok();
    let rounds_count = wanted.and_then(|text| text.parse().ok()).unwrap_or(24);
    let place = Place::new();
    place.create_group();
    let point = place.mount_point();
    for round in 0..rounds_count {
        place.mount();
        assert!(is_mounted(&point), "round {round}");
        let name = format!("file{round}");
        std::fs::write(point.join(&name), b"x").unwrap();
        let unmounted = outcome(Command::new("umount").arg(&point));
        assert_eq!(unmounted.code, 0, "{unmounted:?}");
        // At once, and about when the process notices and ends.
        if round % 3 == 2 {
            std::thread::sleep(Duration::from_millis(round * 131 % 2200));
        }
    }
    place.mount();
    assert!(is_mounted(&point));
    let files = std::fs::read_dir(&point).unwrap().count();
    assert_eq!(files as u64, rounds_count);
    place.umount();
}

#[test]
fn a_process_whose_mount_went_ends_though_a_mount_was_refused_right_after() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    let point = place.mount_point();
    let (daemon, keeper) = (place.process_id(), place.keeper_process_id());
    std::fs::create_dir(place.path("full")).unwrap();
    std::fs::write(place.path("full/file"), b"x").unwrap();
    let unmounted = outcome(Command::new("umount").arg(&point));
    assert_eq!(unmounted.code, 0, "{unmounted:?}");
    let refused = place.run(["mount", "data", &place.text("full")]);
    assert_ne!(refused.code, 0, "{refused:?}");
    wait_for_end(daemon);
    wait_for_end(keeper);
    place.mount();
    place.umount();
}

#[test]
fn an_unmount_of_a_mount_in_use_names_the_processes() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    let point = place.mount_point();
    std::fs::write(point.join("file"), b"read").unwrap();
    let mut inside = Command::new("sleep")
        .arg("300")
        .current_dir(&point)
        .spawn()
        .unwrap();
    let open = std::fs::File::open(point.join("file")).unwrap();
    let mut reading = Command::new("sleep")
        .arg("300")
        .stdin(open)
        .spawn()
        .unwrap();
    let ids = [inside.id().to_string(), reading.id().to_string()];
    // They are what they are to be when they are called so.
    for id in &ids {
        while std::fs::read_to_string(format!("/proc/{id}/comm"))
            .unwrap()
            .trim()
            != "sleep"
        {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let in_directory = format!("process {} (sleep, in the directory)", ids[0]);
    let with_file = format!("process {} (sleep, has", ids[1]);
    let wanted = [
        "in use",
        in_directory.as_str(),
        with_file.as_str(),
        "/file open)",
    ];
    let at = place.text("mount");
    place.refuse(["umount", &at], 2, &wanted);
    place.refuse(["umount", "data"], 2, &wanted);
    place.refuse(["group", "dismount", "data"], 2, &wanted);
    for child in [&mut inside, &mut reading] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    place.umount();
}

#[test]
fn a_mount_whose_processes_were_killed_is_unmounted_by_the_name_of_its_group() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    let (daemon, keeper) = (place.process_id(), place.keeper_process_id());
    place::signal(keeper, rustix::process::Signal::KILL);
    place::signal(daemon, rustix::process::Signal::KILL);
    wait_for_end(keeper);
    wait_for_end(daemon);
    let point = place.mount_point();
    assert!(is_mounted(&point), "dead, and there");
    place.tell(["umount", "data"]);
    assert!(!is_mounted(&point));
    place.refuse(["umount", "data"], 2, &["neither"]);
    place.mount();
    place.umount();
}

#[test]
fn a_dead_mount_of_another_group_with_the_same_name_is_left_alone_and_named() {
    if !can_mount() {
        return;
    }
    // The runtime directories differ, as those of two users do. Other stories call their groups
    // otherwise, and so do not take this dead mount for theirs.
    let (place, other) = (Place::new(), Place::new());
    for place in [&place, &other] {
        let groups = ["left", "right"].map(|side| format!("{side}={}:64M", place.disk(side)));
        let [left, right] = &groups;
        let create = ["group", "create", "twin", "--failgroup", left];
        place.tell(create.into_iter().chain(["--failgroup", right]));
        place.tell(["mount", "twin", &place.text("mount"), "--no-keeper"]);
    }
    let served = other.ask(["group", "show", "twin"]);
    let daemon = u32::try_from(served["process_id"].as_u64().unwrap()).unwrap();
    place::signal(daemon, rustix::process::Signal::KILL);
    wait_for_end(daemon);
    let dead = other.mount_point();
    assert!(is_mounted(&dead), "dead, and there");
    place.umount();
    let told = ["neither", "mounted on", &dead.display().to_string()];
    place.refuse(["umount", "TWIN"], 2, &told);
    assert!(is_mounted(&dead), "it is not a mount of this group");
    other.tell(["umount", "twin"]);
    assert!(!is_mounted(&dead));
}
