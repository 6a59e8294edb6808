//! Stock-Level: how many items of a district's last twenty orders run short. It changes nothing.

use anyhow::{Result, ensure};

use super::dialogue::Dialogue;
use super::terminal::Desk;

/// Where, and what counts as short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StockLevel {
    warehouse: i32,
    district: i32,
    threshold: i32,
}

const NEXT: &str = "SELECT d_next_o_id FROM district WHERE d_w_id = $1 AND d_id = $2";
const SHORT: &str = "SELECT count(DISTINCT s_i_id) FROM order_line
    JOIN stock ON s_w_id = ol_w_id AND s_i_id = ol_i_id
    WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id < $3 AND ol_o_id >= $4 AND s_quantity < $5";
const CALL: &str = "CALL tpcc_stock_level($1, $2, $3, NULL)";

/// What [`StockLevel::perform`] uses.
pub const STATEMENTS: [&str; 2] = [NEXT, SHORT];

/// What [`StockLevel::call`] uses.
pub const PROCEDURES: [&str; 1] = [CALL];

const RECENT_ORDERS: i64 = 20;
/// More items than twenty orders of fifteen lines cannot run short.
const ITEMS_AT_MOST: i64 = 300;

impl StockLevel {
    /// A question about this desk's own district.
    pub fn draw(desk: &Desk, random: &mut fastrand::Rng) -> Self {
        Self {
            warehouse: desk.home,
            district: desk.district,
            threshold: random.i32(10..=20),
        }
    }

    /// Statement by statement, in a transaction that this ends.
    pub fn perform(&self, dialogue: &mut Dialogue) -> Result<()> {
        let (warehouse, district) = (self.warehouse, self.district);
        dialogue.begin()?;
        let next = dialogue
            .row(NEXT, &[warehouse.into(), district.into()])?
            .integer(0)?;
        let short = dialogue.row(
            SHORT,
            &[
                warehouse.into(),
                district.into(),
                next.into(),
                (next - RECENT_ORDERS).into(),
                self.threshold.into(),
            ],
        )?;
        dialogue.commit()?;
        possible(short.integer(0)?)
    }

    /// By the procedure on the server.
    pub fn call(&self, dialogue: &mut Dialogue) -> Result<()> {
        let place = [
            self.warehouse.into(),
            self.district.into(),
            self.threshold.into(),
        ];
        possible(dialogue.row(CALL, &place)?.integer(0)?)
    }
}

fn possible(short: i64) -> Result<()> {
    ensure!(
        (0..=ITEMS_AT_MOST).contains(&short),
        "{short} items run short, of {RECENT_ORDERS} orders"
    );
    Ok(())
}
