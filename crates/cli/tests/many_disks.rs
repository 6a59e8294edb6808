//! Groups and changes of as many disks as there may be.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use place::{Place, outcome};

#[test]
fn a_group_of_a_thousand_disks_is_served_under_the_usual_limit_of_descriptors() {
    let place = Place::new();
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
