//! The pages: links lead somewhere, commands exist, and each promise names what shows it.

#![allow(
    clippy::unwrap_used,
    reason = "a rule that cannot be read off is a failure"
)]

use std::collections::BTreeSet;

use spindle_tidy::{SourceFile, files_ending_with, repository_root};

/// Text between single backticks.
fn code_spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

fn page(path: &str) -> String {
    std::fs::read_to_string(repository_root().join(path)).unwrap()
}

/// The make targets, as the first words of the Makefile's rules.
fn make_targets() -> BTreeSet<String> {
    page("Makefile")
        .lines()
        .filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()))
        .filter_map(|line| line.split_once(':'))
        .map(|(target, _)| target.to_owned())
        .collect()
}

#[test]
fn every_relative_link_leads_to_a_file() {
    for page in files_ending_with(&[".md"]).unwrap() {
        let directory = repository_root().join(&page.path);
        let directory = directory.parent().unwrap();
        for piece in page.text.split("](").skip(1) {
            let link = piece.split(')').next().unwrap_or_default();
            let target = link.split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            assert!(
                directory.join(target).exists(),
                "{} links to {target}, which does not exist",
                page.path
            );
        }
    }
}

#[test]
fn every_make_command_of_a_page_exists() {
    let targets = make_targets();
    for page in files_ending_with(&[".md"]).unwrap() {
        for line in page.text.lines() {
            let commands = code_spans(line).chain(std::iter::once(line.trim_start()));
            for command in commands.filter_map(|text| text.strip_prefix("make ")) {
                let target = command.split_whitespace().next().unwrap_or_default();
                // Prose may begin a line with the verb; a target is never followed by a word.
                let is_prose = !line.contains('`')
                    && command
                        .split_whitespace()
                        .nth(1)
                        .is_some_and(|word| !word.contains('=') && !word.starts_with('#'));
                assert!(
                    is_prose || targets.contains(target),
                    "{}: `make {target}` does not exist",
                    page.path
                );
            }
        }
    }
}

/// The word behind `flag` in a command.
fn value_of<'a>(command: &'a str, flag: &str) -> Option<&'a str> {
    let mut words = command.split_whitespace();
    words.find(|word| *word == flag)?;
    words.next()
}

#[test]
fn every_command_that_runs_one_test_of_a_crate_finds_some() {
    let sources = files_ending_with(&[".rs"]).unwrap();
    let mut commands_count = 0;
    for page in files_ending_with(&[".md"]).unwrap() {
        for line in page.text.lines() {
            let command = line.split('#').next().unwrap_or_default();
            let Some(package) = value_of(command, "-p") else {
                continue;
            };
            if !command.starts_with("cargo test ") {
                continue;
            }
            commands_count += 1;
            let name = package.trim_start_matches("spindle-");
            let folders = [format!("crates/{name}/"), format!("harness/{name}/")];
            let inside = |file: &SourceFile| {
                let inside = folders
                    .iter()
                    .find_map(|folder| file.path.strip_prefix(folder));
                inside.map(str::to_owned)
            };
            if let Some(target) = value_of(command, "--test") {
                let paths = [
                    format!("tests/{target}.rs"),
                    format!("tests/{target}/main.rs"),
                ];
                let is_there = |file| inside(file).is_some_and(|path| paths.contains(&path));
                assert!(
                    sources.iter().any(is_there),
                    "{}: {package} has no tests `{target}`",
                    page.path
                );
            }
            let modules = command.split_whitespace();
            for module in modules.filter_map(|word| word.strip_suffix("::")) {
                let end = format!("/{}.rs", module.replace("::", "/"));
                let has_tests = |file: &SourceFile| {
                    inside(file)
                        .is_some_and(|path| path.starts_with("src/") && path.ends_with(&end))
                        && file.text.contains("mod tests")
                };
                assert!(
                    sources.iter().any(has_tests),
                    "{}: {package} has no module `{module}` with tests",
                    page.path
                );
            }
        }
    }
    assert!(commands_count > 0, "no page says how to run one test");
}

#[test]
fn every_path_of_the_newcomers_way_exists() {
    for name in ["README.md", "CONTRIBUTING.md", "docs/architecture.md"] {
        for line in page(name).lines() {
            for span in code_spans(line) {
                let is_path = ["crates/", "harness/", "docs/"]
                    .iter()
                    .any(|start| span.starts_with(start));
                if is_path && !span.contains(['*', '<', ' ']) {
                    assert!(
                        repository_root().join(span).exists(),
                        "{name} names {span}, which does not exist"
                    );
                }
            }
        }
    }
}

/// The names of all tests: functions below a line that ends with `test]`.
fn test_names(sources: &[SourceFile]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for source in sources {
        let mut after_attribute = false;
        for line in source.text.lines().map(str::trim) {
            if line.starts_with("#[") {
                after_attribute |= line.ends_with("test]");
            } else if let Some(name) = line
                .split_once("fn ")
                .and_then(|(_, rest)| rest.split('(').next())
                .filter(|_| after_attribute)
            {
                names.insert(name.to_owned());
                after_attribute = false;
            } else if !line.starts_with("//") {
                after_attribute = false;
            }
        }
    }
    names
}

#[test]
fn every_promise_names_a_test_that_exists() {
    for name in ["docs/promises.md", "docs/semantics.md"] {
        every_row_names_a_test_that_exists(name);
    }
}

fn every_row_names_a_test_that_exists(name: &str) {
    let names = test_names(&files_ending_with(&[".rs"]).unwrap());
    let targets = make_targets();
    let mut promise_count = 0;
    for line in page(name).lines() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').collect();
        let is_row = line.starts_with("| ") && !line.contains("---") && !line.contains("shown by");
        if !is_row {
            continue;
        }
        promise_count += 1;
        let shown_by = cells.last().copied().unwrap_or_default();
        let mut shown = 0;
        for span in code_spans(shown_by) {
            let known = match span.strip_prefix("make ") {
                Some(command) => {
                    targets.contains(command.split_whitespace().next().unwrap_or_default())
                }
                None => names.contains(span.rsplit("::").next().unwrap_or_default()),
            };
            assert!(
                known,
                "{name}: `{span}` is neither a test nor a make target"
            );
            shown += 1;
        }
        assert!(shown > 0, "{name}: nothing shows this: {line}");
    }
    assert!(promise_count > 0, "{name} holds no promise");
}

#[test]
fn no_page_and_no_source_names_a_place_of_one_machine() {
    // Put together here, so that this file does not hold them itself.
    let places = [
        ["/home", "/"].concat(),
        ["/ro", "ot/"].concat(),
        ["/wor", "k/"].concat(),
    ];
    for file in files_ending_with(&[".rs", ".md", ".toml", "Makefile"]).unwrap() {
        for (index, line) in file.text.lines().enumerate() {
            for place in &places {
                assert!(
                    !line.contains(place.as_str()),
                    "{}:{}: `{place}` exists on one machine only",
                    file.path,
                    index + 1
                );
            }
        }
    }
}
