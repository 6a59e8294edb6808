//! Whether the commands that pages and messages name can be typed.

use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};

use super::Arguments;

/// The top of the repository.
fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every file below `directory` with that ending.
fn files(directory: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, ending, found);
        } else if path.extension().is_some_and(|its| its == ending) {
            found.push(path);
        }
    }
}

/// What is said in backticks on a line, and the line of a block of commands.
fn said(line: &str) -> Vec<&str> {
    let mut said: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
    let typed = line.trim_start().trim_start_matches(['$', '#', '/', ' ']);
    if !line.contains('`') && line.trim_start().starts_with(['s', '$', '#']) {
        said.push(typed);
    }
    said.retain(|text| text.starts_with("spindle "));
    said
}

/// Why this cannot be typed, where it cannot.
fn wrong(text: &str, top: &Command) -> Option<String> {
    let mut command = top;
    for word in text.split_whitespace().skip(1) {
        let word = word.trim_end_matches([',', '.', ':', ';', ')', '\\']);
        if ["|", "||", "&&", "#", ">", "..."].contains(&word) {
            break;
        }
        let is_plain = !word.is_empty()
            && word
                .chars()
                .all(|letter| letter.is_ascii_lowercase() || letter == '-');
        if let Some(flag) = word.strip_prefix("--") {
            let flag = flag.split(['=', '"']).next().unwrap_or_default();
            let of = |command: &Command| {
                (command.get_arguments()).any(|known| known.get_long() == Some(flag))
            };
            if !of(command) && !of(top) && !["help", "version", ""].contains(&flag) {
                return Some(format!("no --{flag}"));
            }
        } else if command.has_subcommands() && is_plain {
            match command.find_subcommand(word) {
                Some(found) => command = found,
                None => return Some(format!("no {word}")),
            }
        }
    }
    None
}

#[test]
fn every_command_that_a_page_or_a_message_names_is_one() {
    let mut paths = vec![top().join("README.md"), top().join("CONTRIBUTING.md")];
    for page in [
        "operations",
        "semantics",
        "json",
        "known-faults",
        "promises",
        "architecture",
    ] {
        paths.push(top().join(format!("docs/{page}.md")));
    }
    for part in ["cli", "control", "group"] {
        files(&top().join(format!("crates/{part}/src")), "rs", &mut paths);
    }
    let commands = Arguments::command();
    let (mut count, mut mistakes) = (0, Vec::new());
    for path in paths.iter().filter(|path| !path.ends_with("pages.rs")) {
        let text = std::fs::read_to_string(path).unwrap();
        for line in text.lines() {
            for text in said(line) {
                count += 1;
                if let Some(why) = wrong(text, &commands) {
                    mistakes.push(format!("{}: `{text}`: {why}", path.display()));
                }
            }
        }
    }
    assert!(count > 200, "only {count} were looked at");
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
}

#[test]
fn a_command_that_there_is_not_is_seen() {
    let commands = Arguments::command();
    for (text, why) in [
        ("spindle disk list", Some("no list")),
        ("spindle disk scan --every", Some("no --every")),
        (
            "spindle disk add data --file-disk /srv/disks/i:1G --dry-run",
            None,
        ),
        ("spindle health data || echo \"exit code $?\"", None),
        ("spindle group show data", None),
    ] {
        assert_eq!(wrong(text, &commands).as_deref(), why, "{text}");
    }
}
