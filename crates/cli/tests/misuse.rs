//! Every message of misuse, as it is said: `misuse/messages.txt` has what is typed and the answer.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::fmt::Write as _;
use std::path::Path;

use place::{Place, can_mount};

const MESSAGES: &str = "tests/misuse/messages.txt";
const SIZE_BYTES: usize = 64 << 20;
/// What is held against messages is worth its while where it is of so many.
const MESSAGES_LEAST: usize = 150;

fn is_open(heading: &str) -> bool {
    heading == "The group is open"
}

/// What stands before the lines of a part, which its heading names.
fn prepare(place: &Place, heading: &str) {
    match heading {
        "Words that are none" => {}
        "No group is there" => {
            // A disk that holds something.
            let mut bytes = place::bytes(1, SIZE_BYTES);
            bytes[..4096].fill(0);
            std::fs::write(place.disk("full"), bytes).unwrap();
        }
        "The group is closed" => {
            place.create_group();
            std::fs::write(place.path("f"), b"a file").unwrap();
            std::fs::create_dir(place.path("d")).unwrap();
            place.tell(["cp", "-r", &place.text("f"), &place.text("d"), "data:/"]);
            place.tell(["volume", "create", "data:/v", "--size", "1M"]);
        }
        "The group is open" => {
            std::fs::create_dir(place.path("other")).unwrap();
            place.mount();
        }
        other => panic!("what stands before the part {other:?}?"),
    }
}

/// The answer as it is kept: the exit code and what was said, without what differs from run to run.
fn answer(place: &Place, serving: Option<u32>, typed: &str, accepted: &mut Vec<String>) -> String {
    let words: Vec<&str> = typed.split_whitespace().skip(2).collect();
    let outcome = place.run(&words);
    if outcome.code == 0 {
        accepted.push(typed.to_owned());
    }
    let said = format!("{}{}", outcome.stdout, outcome.stderr)
        .replace(&place.text(""), "")
        .replace(place.text("").trim_end_matches('/'), ".")
        .replace(&format!("process {}", serving.unwrap_or(0)), "process N");
    let mut answer = String::new();
    for (number, line) in said.lines().filter(|line| !line.is_empty()).enumerate() {
        let code = match number {
            0 => outcome.code.to_string(),
            _ => " ".to_owned(),
        };
        writeln!(answer, "{}", format!("{code:<2}  {line}").trim_end()).unwrap();
    }
    answer
}

#[test]
fn each_misuse_is_answered_as_it_is_written() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(MESSAGES);
    let wanted = std::fs::read_to_string(&path).unwrap();
    let mut found = String::new();
    let mut count = 0;
    let mut serving = None;
    let mut accepted = Vec::new();
    let mut is_answer = false;
    for line in wanted.lines() {
        if line.starts_with('$') {
            writeln!(
                found,
                "{line}\n{}",
                answer(&place, serving, line, &mut accepted).trim_end()
            )
            .unwrap();
            count += 1;
            is_answer = true;
            continue;
        }
        if line.is_empty() {
            // Between two of them stands one.
            found.push('\n');
            is_answer = false;
            continue;
        }
        if let Some(heading) = line.strip_prefix("# ") {
            prepare(&place, heading);
            serving = is_open(heading).then(|| place.process_id());
        }
        if !is_answer {
            writeln!(found, "{line}").unwrap();
        }
    }
    place.umount();
    if std::env::var_os("SPINDLE_WRITE_MESSAGES").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    assert!(accepted.is_empty(), "{accepted:?}");
    assert!(count >= MESSAGES_LEAST, "{count} messages");
    let pairs = wanted.lines().zip(found.lines());
    let differ: Vec<String> = pairs
        .filter(|(wanted, found)| wanted != found)
        .map(|(wanted, found)| format!("- {wanted}\n+ {found}"))
        .collect();
    assert!(wanted == found, "{}", differ.join("\n"));
}
