//! A group that is open, here or on another host, is not opened again.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::os::unix::fs::FileExt;

use place::{Place, outcome, refused};
use spindle_format::{OPENER_BYTES, OPENER_PLACE, OpenerRecord};

#[test]
fn a_group_served_from_another_runtime_directory_is_refused() {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    let process = format!("process {}", place.process_id());
    let other = place.text("other-run");
    let run = |words: &[&str]| {
        let mut command = place.command(words);
        outcome(command.env("SPINDLE_RUNTIME_DIR", &other))
    };
    refused(
        &run(&["group", "mount", "data"]),
        2,
        &["data", "open already", &process],
    );
    refused(
        &run(&["cp", "/etc/hostname", "data:/x"]),
        2,
        &["open already"],
    );
    refused(&run(&["ls", "data:/"]), 2, &["open", "process"]);
    refused(&run(&["group", "destroy", "data", "--yes"]), 2, &["in use"]);
    refused(
        &run(&["group", "rename", "data", "x"]),
        2,
        &["open already"],
    );
}

/// Rewrites the opener record of every disk as a living process of another host would.
fn open_on_another_host(place: &Place, heartbeat_s: u64) {
    for (path, contents) in place.contents() {
        let start = usize::try_from(OPENER_PLACE).unwrap();
        let mut opener =
            OpenerRecord::parse(&contents[start..start + OPENER_BYTES], OPENER_PLACE).unwrap();
        opener.sequence += 1;
        opener.open = true;
        opener.host = "elsewhere".to_owned();
        opener.boot.0[0] ^= 1;
        opener.process_id = 4711;
        opener.heartbeat_s = heartbeat_s;
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.write_all_at(&opener.encode(OPENER_PLACE), OPENER_PLACE)
            .unwrap();
    }
}

#[test]
fn a_group_open_on_another_host_is_refused_unless_forced() {
    let place = Place::new();
    place.create_group();
    let now_s = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    open_on_another_host(&place, now_s);
    let before = place.contents();
    place.refuse(
        ["group", "mount", "data"],
        2,
        &["data", "elsewhere", "4711"],
    );
    place.refuse(
        ["group", "destroy", "data", "--yes"],
        2,
        &["elsewhere", "4711"],
    );
    assert!(before == place.contents());
    place.tell(["group", "mount", "data", "--force"]);
    place.tell(["group", "dismount", "data"]);
}
