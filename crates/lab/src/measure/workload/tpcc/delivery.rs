//! Delivery: the oldest waiting order of each district goes to a carrier, and its customer owes what
//! it costs. The user waits for it (the standard lets it run behind the user's back).

use anyhow::Result;

use super::dialogue::{Dialogue, Value};
use super::schema::DISTRICTS;
use super::terminal::Desk;

/// By whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    warehouse: i32,
    carrier: i32,
}

const OLDEST: &str = "SELECT no_o_id FROM new_order WHERE no_w_id = $1 AND no_d_id = $2
    ORDER BY no_o_id LIMIT 1 FOR UPDATE";
const NO_LONGER_WAITING: &str =
    "DELETE FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 AND no_o_id = $3";
/// Locked, which is also to say: as it is now. The order may be younger than what the transaction
/// sees elsewhere.
const WHOSE: &str = "SELECT o_c_id FROM orders
    WHERE o_w_id = $1 AND o_d_id = $2 AND o_id = $3 FOR UPDATE";
const CARRIED: &str = "UPDATE orders SET o_carrier_id = $4
    WHERE o_w_id = $1 AND o_d_id = $2 AND o_id = $3";
const DELIVERED: &str = "UPDATE order_line SET ol_delivery_d = CURRENT_TIMESTAMP
    WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3";
const COST: &str = "SELECT CAST(sum(ol_amount) * 100 AS BIGINT) FROM order_line
    WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3";
const OWES: &str = "UPDATE customer SET c_balance = c_balance + CAST($4 AS BIGINT) * 0.01,
    c_delivery_cnt = c_delivery_cnt + 1
    WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3";
const CALL: &str = "CALL tpcc_delivery($1, $2, NULL)";

/// What [`Delivery::perform`] uses.
pub const STATEMENTS: [&str; 7] = [
    OLDEST,
    NO_LONGER_WAITING,
    WHOSE,
    CARRIED,
    DELIVERED,
    COST,
    OWES,
];

/// What [`Delivery::call`] uses.
pub const PROCEDURES: [&str; 1] = [CALL];

impl Delivery {
    /// A delivery from this desk.
    pub fn draw(desk: &Desk, random: &mut fastrand::Rng) -> Self {
        Self {
            warehouse: desk.home,
            carrier: random.i32(1..=10),
        }
    }

    /// Statement by statement, in a transaction that this ends; gives how many orders it delivered:
    /// one for each district in which one waited.
    pub fn perform(&self, dialogue: &mut Dialogue) -> Result<u64> {
        let mut delivered = 0;
        dialogue.begin()?;
        for district in 1..=DISTRICTS {
            let place: [Value; 2] = [self.warehouse.into(), district.into()];
            let Some(oldest) = dialogue.rows(OLDEST, &place)?.pop() else {
                continue;
            };
            let [warehouse, area] = place;
            let order = [warehouse.clone(), area.clone(), oldest.values[0].clone()];
            dialogue.change_one(NO_LONGER_WAITING, &order)?;
            let customer = dialogue.row(WHOSE, &order)?.integer(0)?;
            let [_, _, number] = order.clone();
            dialogue.change_one(
                CARRIED,
                &[warehouse.clone(), area.clone(), number, self.carrier.into()],
            )?;
            dialogue.change(DELIVERED, &order)?;
            let cost = dialogue.row(COST, &order)?.integer(0)?;
            dialogue.change_one(OWES, &[warehouse, area, customer.into(), cost.into()])?;
            delivered += 1;
        }
        dialogue.commit()?;
        Ok(delivered)
    }

    /// By the procedure on the server.
    pub fn call(&self, dialogue: &mut Dialogue) -> Result<u64> {
        let row = dialogue.row(CALL, &[self.warehouse.into(), self.carrier.into()])?;
        Ok(u64::try_from(row.integer(0)?)?)
    }
}
