//! Which version of the program is at either end of a conversation.
//!
//! Both say theirs with every request and every answer. Neighbouring versions understand each
//! other: parameters and fields are only ever added. Where one asks for what the other does not
//! know, or answers what the other cannot read, that is told with both versions and what to do,
//! instead of as a mistake of whoever asked.

use std::path::Path;

use axum::http::HeaderMap;

use crate::api::error::{ControlError, ControlErrorKind};

/// The header with the version of the program that sends a request or an answer.
pub(crate) const HEADER: &str = "spindle-version";
/// This program's.
pub(crate) const OWN: &str = env!("CARGO_PKG_VERSION");

/// The version that the other end says, where it is another one than this program's. An answer
/// without one comes from a program that came before all that say it.
pub(crate) fn other(headers: &HeaderMap) -> Option<String> {
    let said = headers
        .get(HEADER)
        .map(|value| String::from_utf8_lossy(value.as_bytes()));
    said.filter(|version| version != OWN)
        .map(std::borrow::Cow::into_owned)
}

/// The daemon does not know what a command of version `command` asks for.
pub(crate) fn unknown_request(group: &str, command: &str, why: &ControlError) -> ControlError {
    misunderstood(
        group,
        OWN,
        command,
        &format!("does not know the request ({why:#})"),
    )
}

/// A daemon of version `daemon` answered what this command cannot read.
pub(super) fn unknown_answer(group: &str, daemon: &str, why: &str) -> ControlError {
    misunderstood(
        group,
        daemon,
        OWN,
        &format!("gave an answer that cannot be read ({why})"),
    )
}

/// A keeper does not know what a command asks for: its own word.
pub(crate) fn unknown_to_keeper(why: &str) -> ControlError {
    ControlError::new(
        ControlErrorKind::Version,
        format!(
            "the keeper is of version {OWN} and does not know the request ({why}): give the command by the program of that version, or unmount and mount again, which starts a keeper of this one"
        ),
    )
}

/// A keeper answered what this command cannot read. It says its version with its status; one that
/// does not came before all that do.
pub(crate) fn unknown_answer_of_keeper(socket: &Path, answer: &str, why: &str) -> ControlError {
    let answer: serde_json::Value = serde_json::from_str(answer).unwrap_or_default();
    let keeper = answer["Ok"]["version"]
        .as_str()
        .unwrap_or("none that it says");
    ControlError::new(
        ControlErrorKind::Version,
        format!(
            "the keeper at {} is of version {keeper}, the command of version {OWN}, and its answer cannot be read ({why}): give the command by the program of the keeper's version",
            socket.display()
        ),
    )
}

fn misunderstood(group: &str, daemon: &str, command: &str, what: &str) -> ControlError {
    let advice = if is_newer(daemon, command) {
        format!("give the command by the program of version {daemon}")
    } else {
        format!("`spindle upgrade {group}`, given by the newer program, hands the group to it")
    };
    ControlError::new(
        ControlErrorKind::Version,
        format!(
            "the process that serves {group} is of version {daemon}, the command of version {command}, and the process {what}: use one version for both; {advice}"
        ),
    )
}

/// Whether the one version is surely the newer one: by its numbers, the first of them first.
fn is_newer(one: &str, other: &str) -> bool {
    let numbers = |version: &str| -> Option<Vec<u64>> {
        let words = version.split(['-', '+']).next()?.split('.');
        words.map(|word| word.parse().ok()).collect()
    };
    matches!((numbers(one), numbers(other)), (Some(one), Some(other)) if one > other)
}

#[cfg(test)]
mod tests {
    use super::is_newer;

    #[test]
    fn the_newer_version_is_told_by_numbers_not_by_letters() {
        assert!(is_newer("0.10.0", "0.9.3"));
        assert!(is_newer("1.0.0", "0.9.3+a"));
        for (one, other) in [("0.9.3", "0.10.0"), ("0.1.0", "0.1.0"), ("x", "0.1.0")] {
            assert!(!is_newer(one, other), "{one} {other}");
        }
    }
}
