//! The twelve consistency conditions of TPC-C (clause 3.3.2), each as the places that violate it.
//!
//! They hold in every state that transactions leave, so they are asked of the new database and after
//! each run. The eleventh speaks of a new database only; with what the load has delivered since it
//! is a statement about any.

use anyhow::Result;

use super::dialogue::{Dialogue, Value};
use super::schema::Scale;
use crate::record::Check;

/// A condition.
#[derive(Debug)]
pub struct Condition {
    /// Its number in clause 3.3.2.
    pub number: u32,
    /// What it says.
    pub says: &'static str,
    /// Counts the places that violate it, and gives the first: warehouse x 100 + district.
    violations: &'static str,
}

/// Makes the question from a query that gives `w` and `d` of each violation.
macro_rules! violations {
    ($($part:expr),+ $(,)?) => {
        concat!(
            "SELECT count(*), min(w * 100 + d) FROM (",
            $($part),+,
            ") AS violation"
        )
    };
}

/// Every customer, with what the lines that were delivered to them cost.
macro_rules! customers_with_cost {
    () => {
        "SELECT c_w_id AS w, c_d_id AS d FROM customer
         LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, sum(ol_amount) AS cost FROM orders
                    JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
                    WHERE ol_delivery_d IS NOT NULL
                    GROUP BY o_w_id, o_d_id, o_c_id) AS delivered
             ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id
         "
    };
}

/// All but the eleventh, which depends on what was delivered.
pub const CONDITIONS: [Condition; 11] = [
    Condition {
        number: 1,
        says: "W_YTD is the sum of D_YTD",
        violations: violations!(
            "SELECT w_id AS w, 0 AS d FROM warehouse
             LEFT JOIN (SELECT d_w_id, sum(d_ytd) AS paid FROM district GROUP BY d_w_id) AS districts
                 ON d_w_id = w_id
             WHERE w_ytd <> coalesce(paid, 0)"
        ),
    },
    Condition {
        number: 2,
        says: "D_NEXT_O_ID - 1 is the largest O_ID and the largest NO_O_ID",
        violations: violations!(
            "SELECT d_w_id AS w, d_id AS d FROM district
             LEFT JOIN (SELECT o_w_id, o_d_id, max(o_id) AS newest FROM orders
                        GROUP BY o_w_id, o_d_id) AS taken
                 ON o_w_id = d_w_id AND o_d_id = d_id
             LEFT JOIN (SELECT no_w_id, no_d_id, max(no_o_id) AS newest_waiting FROM new_order
                        GROUP BY no_w_id, no_d_id) AS waiting
                 ON no_w_id = d_w_id AND no_d_id = d_id
             WHERE d_next_o_id - 1 <> coalesce(newest, 0) OR d_next_o_id - 1 <> newest_waiting"
        ),
    },
    Condition {
        number: 3,
        says: "NO_O_ID has no gaps",
        violations: violations!(
            "SELECT no_w_id AS w, no_d_id AS d FROM new_order GROUP BY no_w_id, no_d_id
             HAVING max(no_o_id) - min(no_o_id) + 1 <> count(*)"
        ),
    },
    Condition {
        number: 4,
        says: "the sum of O_OL_CNT is the number of order lines",
        violations: violations!(
            "SELECT d_w_id AS w, d_id AS d FROM district
             LEFT JOIN (SELECT o_w_id, o_d_id, sum(o_ol_cnt) AS stated FROM orders
                        GROUP BY o_w_id, o_d_id) AS taken
                 ON o_w_id = d_w_id AND o_d_id = d_id
             LEFT JOIN (SELECT ol_w_id, ol_d_id, count(*) AS found FROM order_line
                        GROUP BY ol_w_id, ol_d_id) AS line
                 ON ol_w_id = d_w_id AND ol_d_id = d_id
             WHERE coalesce(stated, 0) <> coalesce(found, 0)"
        ),
    },
    Condition {
        number: 5,
        says: "an order without a carrier waits, and no other",
        violations: violations!(
            "SELECT o_w_id AS w, o_d_id AS d FROM orders
             LEFT JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id
             WHERE (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)"
        ),
    },
    Condition {
        number: 6,
        says: "O_OL_CNT is the number of the order's lines",
        violations: violations!(
            "SELECT o_w_id AS w, o_d_id AS d FROM orders
             LEFT JOIN (SELECT ol_w_id, ol_d_id, ol_o_id, count(*) AS found FROM order_line
                        GROUP BY ol_w_id, ol_d_id, ol_o_id) AS line
                 ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
             WHERE o_ol_cnt <> coalesce(found, 0)"
        ),
    },
    Condition {
        number: 7,
        says: "the lines of an order without a carrier have no delivery date, all others one",
        violations: violations!(
            "SELECT ol_w_id AS w, ol_d_id AS d FROM order_line
             LEFT JOIN orders ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id
             WHERE o_id IS NULL OR (ol_delivery_d IS NULL) <> (o_carrier_id IS NULL)"
        ),
    },
    Condition {
        number: 8,
        says: "W_YTD is the sum of the warehouse's H_AMOUNT",
        violations: violations!(
            "SELECT w_id AS w, 0 AS d FROM warehouse
             LEFT JOIN (SELECT h_w_id, sum(h_amount) AS paid FROM history GROUP BY h_w_id) AS past
                 ON h_w_id = w_id
             WHERE w_ytd <> coalesce(paid, 0)"
        ),
    },
    Condition {
        number: 9,
        says: "D_YTD is the sum of the district's H_AMOUNT",
        violations: violations!(
            "SELECT d_w_id AS w, d_id AS d FROM district
             LEFT JOIN (SELECT h_w_id, h_d_id, sum(h_amount) AS paid FROM history
                        GROUP BY h_w_id, h_d_id) AS past
                 ON h_w_id = d_w_id AND h_d_id = d_id
             WHERE d_ytd <> coalesce(paid, 0)"
        ),
    },
    Condition {
        number: 10,
        says: "C_BALANCE is what the customer's delivered lines cost less what the customer paid",
        violations: violations!(
            customers_with_cost!(),
            "LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) AS paid FROM history
                        GROUP BY h_c_w_id, h_c_d_id, h_c_id) AS past
                 ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id
             WHERE c_balance <> coalesce(cost, 0) - coalesce(paid, 0)"
        ),
    },
    Condition {
        number: 12,
        says: "C_BALANCE and C_YTD_PAYMENT are together what the customer's delivered lines cost",
        violations: violations!(
            customers_with_cost!(),
            "WHERE c_balance + c_ytd_payment <> coalesce(cost, 0)"
        ),
    },
];

/// Orders less waiting orders of every district: how many districts, how many of them have less than
/// a new one, and the sum.
const DELIVERED: &str = "SELECT count(*),
        count(CASE WHEN coalesce(taken_count, 0) - coalesce(waiting_count, 0) < $1 THEN 1 END),
        CAST(sum(coalesce(taken_count, 0) - coalesce(waiting_count, 0)) AS BIGINT)
    FROM district
    LEFT JOIN (SELECT o_w_id, o_d_id, count(*) AS taken_count FROM orders
               GROUP BY o_w_id, o_d_id) AS taken
        ON o_w_id = d_w_id AND o_d_id = d_id
    LEFT JOIN (SELECT no_w_id, no_d_id, count(*) AS waiting_count FROM new_order
               GROUP BY no_w_id, no_d_id) AS waiting
        ON no_w_id = d_w_id AND no_d_id = d_id";

/// Asks all twelve, in their order. `delivered` orders were delivered since the database was new.
///
/// # Errors
/// What the database says.
pub fn examine(dialogue: &mut Dialogue, scale: Scale, delivered: u64) -> Result<Vec<Check>> {
    let mut checks = CONDITIONS
        .iter()
        .map(|condition| ask(dialogue, condition))
        .collect::<Result<Vec<_>>>()?;
    checks.insert(10, eleventh(dialogue, scale, delivered)?);
    Ok(checks)
}

fn ask(dialogue: &mut Dialogue, condition: &Condition) -> Result<Check> {
    let row = dialogue.row(condition.violations, &[])?;
    let count = row.integer(0)?;
    let detail = if row.is_null(1) {
        "holds".to_owned()
    } else {
        let first = row.integer(1)?;
        format!(
            "violated {count} times, first in warehouse {}, district {}",
            first / 100,
            first % 100
        )
    };
    Ok(Check {
        name: format!("condition {}: {}", condition.number, condition.says),
        passed: count == 0,
        detail,
    })
}

fn eleventh(dialogue: &mut Dialogue, scale: Scale, delivered: u64) -> Result<Check> {
    let each = i64::from(scale.delivered());
    let row = dialogue.row(DELIVERED, &[Value::Integer(each)])?;
    let (districts, short, found) = (row.integer(0)?, row.integer(1)?, row.integer(2)?);
    let expected = each * scale.districts() + i64::try_from(delivered)?;
    Ok(Check {
        name: format!(
            "condition 11: orders less waiting orders are {each} in each district, and what was delivered"
        ),
        passed: districts == scale.districts() && short == 0 && found == expected,
        detail: format!(
            "{districts} districts, {short} of them with less, {found} in all, {expected} expected"
        ),
    })
}

#[cfg(test)]
mod tests;
