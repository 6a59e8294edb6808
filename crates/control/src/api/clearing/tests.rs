//! What an acknowledgement covers, and what it is refused for.

use super::{FINDING_CLEARED, WorkState, chosen, not_cleared, text_of};
use crate::api::operations::OperationReport;
use crate::api::view::{EventReport, HealthFindingReport, HealthReport, HealthStatus};

fn event(number: u64, kind: &str, disk: Option<u16>, text: &str) -> EventReport {
    EventReport {
        number,
        time_s: 0,
        time_ms: 0,
        host: String::new(),
        group: "data".to_owned(),
        severity: "critical".to_owned(),
        kind: kind.to_owned(),
        disk,
        disk_name: None,
        file: None,
        path: None,
        text: text.to_owned(),
    }
}

fn finding(kind: &str, disk: Option<&str>, can_be_cleared: bool) -> HealthFindingReport {
    HealthFindingReport {
        severity: HealthStatus::Critical,
        kind: kind.to_owned(),
        disk_name: disk.map(str::to_owned),
        text: format!("what {kind} says: at length"),
        advice: format!("mend {kind}"),
        can_be_cleared,
    }
}

fn health() -> HealthReport {
    HealthReport {
        group: "data".to_owned(),
        status: HealthStatus::Critical,
        findings: vec![
            finding("damage", None, true),
            finding("disk_offline", Some("data_0001"), false),
            finding("background_failed", None, true),
        ],
    }
}

fn names(findings: &[HealthFindingReport]) -> Vec<String> {
    findings.iter().map(HealthFindingReport::name).collect()
}

fn numbers(events: &[EventReport]) -> Vec<u64> {
    not_cleared(events)
        .iter()
        .map(|event| event.number)
        .collect()
}

#[test]
fn an_acknowledgement_covers_its_kind_up_to_what_was_judged_and_nothing_later() {
    let by = "root (uid 0): up to event 99: x";
    let text = text_of(&finding("damage", None, true), 3, by);
    let events = [
        event(0, "copies_differ", None, "no log has it yet"),
        event(1, "copies_differ", None, "old"),
        event(2, "background_failed", None, "another kind"),
        event(3, "write_failed", Some(1), "the last that was judged"),
        event(4, "damage_found", None, "while it was acknowledged"),
        event(5, FINDING_CLEARED, None, &text),
        event(6, "copies_differ", None, "new"),
    ];
    assert_eq!(numbers(&events), [0, 2, 4, 5, 6]);
}

#[test]
fn a_condition_is_acknowledged_of_its_own_disk_only_and_a_text_that_says_nothing_covers_nothing() {
    let text = text_of(&finding("background_failed", None, true), 9, "root");
    let events = [
        event(1, "background_failed", None, "it"),
        event(2, "background_failed", Some(1), "of a disk"),
        event(3, FINDING_CLEARED, None, &text),
    ];
    assert_eq!(numbers(&events), [2, 3]);
    for text in [
        "",
        "background_failed",
        "background_failed up to event x: by",
    ] {
        let events = [
            event(1, "background_failed", None, "it"),
            event(3, FINDING_CLEARED, None, text),
        ];
        assert_eq!(numbers(&events), [1, 3], "{text}");
    }
}

#[test]
fn all_that_is_over_is_chosen_and_what_holds_is_left() {
    let report = chosen(&health(), "", true).unwrap();
    assert_eq!(names(&report.cleared), ["damage", "background_failed"]);
    assert_eq!(names(&report.left), ["disk_offline:data_0001"]);
    let report = chosen(&health(), "background_failed", false).unwrap();
    assert_eq!(names(&report.cleared), ["background_failed"]);
    assert_eq!(report.left.len(), 2);
}

#[test]
fn what_holds_is_refused_with_what_ends_it_and_takes_the_others_along() {
    for name in [
        "disk_offline",
        "disk_offline:DATA_0001",
        "damage,disk_offline",
    ] {
        let refused = chosen(&health(), name, false).unwrap_err();
        let message = refused.message();
        for wanted in [
            "disk_offline:data_0001 of data",
            "still holds",
            "mend disk_offline",
        ] {
            assert!(message.contains(wanted), "{wanted} in {message}");
        }
    }
    let refused = chosen(&health(), "damages", false).unwrap_err();
    assert!(
        refused.message().contains("did you mean damage?"),
        "{refused}"
    );
    for (names, all) in [("", false), ("damage", true)] {
        let refused = chosen(&health(), names, all).unwrap_err();
        assert!(
            refused
                .message()
                .contains("disk_offline:data_0001 (still holds)"),
            "{refused}"
        );
    }
}

#[test]
fn work_that_cannot_go_on_is_no_finding_of_the_past() {
    let operation = |state: &str| OperationReport {
        group: "data".to_owned(),
        pass: "restore".to_owned(),
        state: state.to_owned(),
        power: 1,
        done_bytes: 0,
        left_bytes: 1,
        rate_bytes_per_s: 0,
        left_s: None,
        error: None,
    };
    let stands = WorkState::of_served(false, &[operation("errors")]);
    assert!(!stands.lets_clear("restore_stopped", false));
    assert!(stands.lets_clear("rebalance_stopped", false));
    assert!(stands.lets_clear("background_failed", false));
    let goes_on = WorkState::of_served(true, &[operation("run")]);
    assert!(goes_on.lets_clear("restore_stopped", false));
    assert!(!goes_on.lets_clear("restore_stopped", true));
    assert!(!goes_on.lets_clear("background_failed", false));
    assert!(!WorkState::of_none().lets_clear("restore_stopped", false));
}
