//! Each condition against a row that was changed by hand.

use super::*;
use crate::experiment::DatabaseKind;
use crate::measure::workload::tpcc::dialogue::Dialogue;
use crate::measure::workload::tpcc::tests::{SMALL, company};

/// The condition, one row changed, and all conditions that this violates.
const CHANGES: [(u32, &str, &[u32]); 12] = [
    (
        1,
        "UPDATE warehouse SET w_ytd = w_ytd + 0.01 WHERE w_id = 2",
        &[1, 8],
    ),
    (
        2,
        "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = 1 AND d_id = 4",
        &[2],
    ),
    (
        3,
        "DELETE FROM new_order WHERE no_w_id = 2 AND no_d_id = 7 AND no_o_id = 25",
        &[3, 5, 11],
    ),
    (
        4,
        "DELETE FROM order_line WHERE ol_w_id = 1 AND ol_d_id = 1 AND ol_o_id = 1
         AND ol_number = 3",
        &[4, 6],
    ),
    (
        5,
        "UPDATE orders SET o_carrier_id = NULL WHERE o_w_id = 1 AND o_d_id = 2 AND o_id = 3",
        &[5, 7],
    ),
    (
        6,
        "UPDATE orders SET o_ol_cnt = o_ol_cnt - 1 WHERE o_w_id = 2 AND o_d_id = 2 AND o_id = 9",
        &[4, 6],
    ),
    (
        7,
        "UPDATE order_line SET ol_delivery_d = NULL
         WHERE ol_w_id = 2 AND ol_d_id = 10 AND ol_o_id = 1 AND ol_number = 1",
        &[7],
    ),
    (
        8,
        "UPDATE history SET h_w_id = 2 WHERE h_w_id = 1 AND h_d_id = 1 AND h_c_id = 5",
        &[8, 9],
    ),
    (
        9,
        "UPDATE history SET h_d_id = 2 WHERE h_w_id = 1 AND h_d_id = 1 AND h_c_id = 5",
        &[9],
    ),
    (
        10,
        "UPDATE history SET h_c_id = 6 WHERE h_w_id = 1 AND h_d_id = 1 AND h_c_id = 5",
        &[10],
    ),
    (
        11,
        "DELETE FROM new_order WHERE no_w_id = 1 AND no_d_id = 1 AND no_o_id = 22",
        &[5, 11],
    ),
    (
        12,
        "UPDATE customer SET c_ytd_payment = c_ytd_payment - 0.01
         WHERE c_w_id = 1 AND c_d_id = 9 AND c_id = 30",
        &[12],
    ),
];

fn violated(dialogue: &mut Dialogue) -> Vec<usize> {
    let checks = examine(dialogue, SMALL, 0).unwrap();
    assert_eq!(checks.len(), 12);
    (1..)
        .zip(&checks)
        .filter(|(_, check)| !check.passed)
        .map(|(number, _)| number)
        .collect()
}

#[test]
fn a_condition_is_violated_by_one_row_that_was_changed_by_hand() {
    for kind in [DatabaseKind::Postgresql, DatabaseKind::Mariadb] {
        if let Some(company) = company(kind) {
            change_by_hand(&mut Dialogue::new(company.server()).unwrap());
        }
    }
}

fn change_by_hand(dialogue: &mut Dialogue) {
    for (number, change, expected) in CHANGES {
        dialogue.begin().unwrap();
        dialogue.change_one(change, &[]).unwrap();
        let found = violated(dialogue);
        let expected: Vec<usize> = expected
            .iter()
            .map(|number| usize::try_from(*number).unwrap())
            .collect();
        assert_eq!(found, expected, "{change}");
        assert!(found.contains(&usize::try_from(number).unwrap()));
        dialogue.rollback().unwrap();
        assert!(violated(dialogue).is_empty());
    }
}

#[test]
fn what_a_violation_says_leads_to_its_place() {
    let Some(company) = company(DatabaseKind::Postgresql) else {
        return;
    };
    let mut dialogue = Dialogue::new(company.server()).unwrap();
    dialogue.begin().unwrap();
    dialogue.change_one(CHANGES[6].1, &[]).unwrap();
    let check = examine(&mut dialogue, SMALL, 0).unwrap().swap_remove(6);
    assert!(check.name.starts_with("condition 7: "), "{}", check.name);
    assert_eq!(
        check.detail,
        "violated 1 times, first in warehouse 2, district 10"
    );
}
