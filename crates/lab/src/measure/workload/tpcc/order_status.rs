//! Order-Status: what became of a customer's last order. It changes nothing.

use anyhow::{Result, ensure};

use super::customer::Who;
use super::dialogue::Dialogue;
use super::schema::DISTRICTS;
use super::terminal::Desk;

/// Whose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderStatus {
    warehouse: i32,
    district: i32,
    who: Who,
}

const CUSTOMER: &str = "SELECT CAST(c_balance * 100 AS BIGINT), c_first, c_middle, c_last
    FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3";
const LAST: &str = "SELECT o_id, o_entry_d, o_carrier_id, o_ol_cnt FROM orders
    WHERE o_w_id = $1 AND o_d_id = $2 AND o_c_id = $3 ORDER BY o_id DESC LIMIT 1";
const LINES: &str = "SELECT ol_i_id, ol_supply_w_id, ol_quantity,
    CAST(ol_amount * 100 AS BIGINT), ol_delivery_d FROM order_line
    WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3";
const CALL: &str = "CALL tpcc_order_status($1, $2, $3, $4, NULL, NULL)";

/// What [`OrderStatus::perform`] uses beside those of [`Who`].
pub const STATEMENTS: [&str; 3] = [CUSTOMER, LAST, LINES];

/// What [`OrderStatus::call`] uses.
pub const PROCEDURES: [&str; 1] = [CALL];

impl OrderStatus {
    /// A question of someone at this desk.
    pub fn draw(desk: &Desk, random: &mut fastrand::Rng) -> Self {
        Self {
            warehouse: desk.home,
            district: random.i32(1..=DISTRICTS),
            who: Who::draw(desk, random),
        }
    }

    /// Statement by statement, in a transaction that this ends.
    pub fn perform(&self, dialogue: &mut Dialogue) -> Result<()> {
        let (warehouse, district) = (self.warehouse, self.district);
        dialogue.begin()?;
        let number = self.who.find(dialogue, warehouse, district)?;
        let customer = [warehouse.into(), district.into(), number.into()];
        dialogue.row(CUSTOMER, &customer)?;
        let last = dialogue.row(LAST, &customer)?;
        let order = [warehouse.into(), district.into(), last.values[0].clone()];
        let lines = dialogue.rows(LINES, &order)?;
        dialogue.commit()?;
        let line_count = i64::try_from(lines.len())?;
        // Between the two statements the order can be delivered, but not get or lose a line.
        ensure!(
            line_count == last.integer(3)?,
            "order {} has {line_count} lines and says {}",
            last.integer(0)?,
            last.integer(3)?
        );
        Ok(())
    }

    /// By the procedure on the server.
    pub fn call(&self, dialogue: &mut Dialogue) -> Result<()> {
        let [number, name] = self.who.parameters();
        let place = [self.warehouse.into(), self.district.into(), number, name];
        let row = dialogue.row(CALL, &place)?;
        ensure!(
            (5..=15).contains(&row.integer(1)?),
            "order {} has {} lines",
            row.integer(0)?,
            row.integer(1)?
        );
        Ok(())
    }
}
