//! `spindle status`: a group on one page.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use place::exposition::{parse, value};
use place::{Place, can_mount};
use serde_json::{Value, json};

#[test]
fn a_page_tells_of_health_space_work_and_events_of_a_group_that_is_open_or_closed() {
    let place = Place::new();
    place.create_group();
    let closed = place.tell(["status"]);
    assert!(closed.contains("data: dismounted"), "{closed}");
    assert!(closed.contains("the group is not open"), "{closed}");
    place.tell(["group", "mount", "data"]);
    let open = place.tell(["status", "data"]);
    assert!(open.contains("health ok"), "{open}");
    assert!(open.contains("served by process"), "{open}");
    assert!(!open.contains("scrub"), "none has run: {open}");
    place.tell(["scrub", "data", "--wait"]);
    place.tell(["fault", "pull", "data", "data_0001"]);
    std::fs::write(place.path("file"), [7; 100_000]).unwrap();
    place.tell(["cp", "file", "data:/file"]);
    let hurt = place.tell(["status", "data"]);
    let words: String = hurt.split_whitespace().collect::<Vec<_>>().join(" ");
    for wanted in [
        "health critical",
        "1 offline",
        "spindle disk online",
        "scrub of data: done",
        "0 findings",
        "was pulled for a test",
    ] {
        assert!(words.contains(wanted), "{wanted} in {hurt}");
    }
    for line in hurt.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let report = &place.ask(["status", "data"])[0];
    assert_eq!(report["group"]["name"], "data");
    assert_eq!(report["health"]["status"], "critical");
    assert_eq!(report["scrub"]["state"], "done");
    assert!(report["events"].as_array().unwrap().len() <= 5);
    place.refuse(["status", "nothing"], 2, &["nothing", "data"]);
    place.tell(["group", "dismount", "data"]);
}

#[test]
fn a_page_names_who_uses_the_mount() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    let mut user = Command::new("cat")
        .current_dir(place.mount_point())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let shown = place.tell(["status", "data"]);
    let wanted = format!("used by cat (process {}", user.id());
    assert!(shown.contains(&wanted), "{wanted} in {shown}");
    let report = &place.ask(["status", "data"])[0]["users"][0];
    assert_eq!(report["process_id"], user.id());
    drop(user.stdin.take());
    user.wait().unwrap();
    assert!(!place.tell(["status", "data"]).contains("used by"));
    place.umount();
}

/// What a process that served the group would have left: sizes of four days, one an hour, that grow
/// by 200,000 bytes each, the newest from then.
fn leave_growth(place: &Place, uuid: &str, last: &Value) {
    let samples: Vec<_> = (0..=96_u64)
        .map(|hour| json!({"at_s": hour * 3600, "used_bytes": 10_000_000 + hour * 200_000}))
        .collect();
    let kept = json!({
        "group_uuid": uuid,
        "history": {"last": last, "samples": samples},
    });
    std::fs::write(place.path("run/data.space"), kept.to_string()).unwrap();
}

/// Just now in this boot of the machine, by a calendar that is wrong by years.
fn just_now() -> Value {
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
    let booted_s: u64 = uptime.split('.').next().unwrap().parse().unwrap();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    json!({"boot": boot.trim(), "booted_s": booted_s, "time_s": 5})
}

/// An hour ago, before the machine was restarted.
fn an_hour_ago() -> Value {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap();
    json!({"boot": "another", "booted_s": 1_000_000, "time_s": now.as_secs() - 3600})
}

fn metrics(place: &Place) -> Vec<place::exposition::Sample> {
    let mut stream = UnixStream::connect(place.path("run/data.sock")).unwrap();
    let request = "GET /metrics HTTP/1.1\r\nhost: spindle\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    parse(answer.split_once("\r\n\r\n").unwrap().1)
}

#[test]
fn a_page_says_when_the_group_will_be_full_from_what_an_earlier_process_saw() {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    let shown = place.tell(["status", "data"]);
    assert!(
        shown.contains("when it will be full is not known yet"),
        "{shown}"
    );
    let forecast = &place.ask(["status", "data"])[0]["forecast"];
    assert_eq!(forecast["state"], "unknown");
    assert!(forecast["full_in_s"].is_null());
    let group = [("group", "data")];
    let samples = metrics(&place);
    let full = "spindle_group_forecast_full_seconds";
    assert!(
        samples.iter().all(|sample| sample.name != full),
        "none is better than a wrong one"
    );
    let uuid = place.ask(["group", "show", "data"])["uuid"]
        .as_str()
        .unwrap()
        .to_owned();
    place.tell(["group", "dismount", "data"]);
    assert!(
        place.path("run/data.space").exists(),
        "it is kept over a restart"
    );

    leave_growth(&place, &uuid, &just_now());
    place.tell(["group", "mount", "data"]);
    let told = &place.ask(["status", "data"])[0];
    let forecast = &told["forecast"];
    assert_eq!(forecast["state"], "filling", "{forecast}");
    assert_eq!(forecast["window_s"], 96 * 3600);
    let growth = forecast["growth_bytes_per_day"].as_f64().unwrap();
    assert!((growth - 4_800_000.0).abs() < 100.0, "{growth}");
    // Two copies of what is usable, at that rate.
    let usable = told["group"]["usable_bytes"].as_f64().unwrap();
    let wanted_s = usable * 2.0 / 4_800_000.0 * 86_400.0;
    let full_in_s = forecast["full_in_s"].as_f64().unwrap();
    assert!(
        (full_in_s - wanted_s).abs() < wanted_s / 100.0,
        "{full_in_s} of {wanted_s}"
    );
    let shown = place.tell(["status", "data"]);
    let days = format!(
        "full in about {:.0} days at the rate of the last 4 days",
        wanted_s / 86_400.0
    );
    assert!(shown.contains(&days), "{days} in {shown}");
    for line in shown.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let full = value(&metrics(&place), full, &group);
    assert!((full - wanted_s).abs() < wanted_s / 100.0, "{full}");
    // Its own size is far from those, so it is noted and does not change the forecast.
    place.tell(["group", "dismount", "data"]);
    leave_growth(&place, &uuid, &an_hour_ago());
    place.tell(["group", "mount", "data"]);
    let forecast = &place.ask(["status", "data"])[0]["forecast"];
    assert_eq!(forecast["state"], "filling", "{forecast}");
    assert!(forecast["window_s"].as_u64().unwrap() >= 97 * 3600);

    // Another group of the same name grows by itself.
    place.tell(["group", "dismount", "data"]);
    leave_growth(&place, "00000000-0000-4000-8000-000000000000", &just_now());
    place.tell(["group", "mount", "data"]);
    assert_eq!(
        place.ask(["status", "data"])[0]["forecast"]["state"],
        "unknown"
    );
    place.tell(["group", "dismount", "data"]);
    std::fs::write(place.path("run/data.space"), "no history").unwrap();
    place.tell(["group", "mount", "data"]);
    assert_eq!(
        place.ask(["status", "data"])[0]["forecast"]["state"],
        "unknown"
    );
}

#[test]
fn times_are_those_of_the_zone_and_say_how_far_that_is_from_utc() {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    place.tell(["scrub", "data", "--wait", "--power", "1024"]);
    place.tell(["group", "dismount", "data"]);
    let ended_s = place.ask(["status", "data"])[0]["last_scrub"]["ended_s"]
        .as_i64()
        .unwrap();
    let clock = |shift_s: i64| {
        let second = (ended_s + shift_s).rem_euclid(86_400);
        format!(
            "{:02}:{:02}:{:02}",
            second / 3600,
            second / 60 % 60,
            second % 60
        )
    };
    for (zone, shift_s, distance) in [("XST-5:30", 19_800, "+0530"), ("UTC0", 0, "+0000")] {
        let mut command = place.command(["status", "data"]);
        let shown = place::outcome(command.env("TZ", zone)).stdout;
        let scrub = shown
            .lines()
            .find(|line| line.starts_with("last complete scrub ended "));
        let wanted = format!(" {} {distance}", clock(shift_s));
        assert!(
            scrub.is_some_and(|line| line.ends_with(&wanted)),
            "{wanted} in {shown}"
        );
        let closed = shown
            .lines()
            .find(|line| line.ends_with("  closed"))
            .unwrap();
        assert!(closed.contains(&format!(" {distance}  info ")), "{shown}");
    }
}
