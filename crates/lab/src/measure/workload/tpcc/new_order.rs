//! New-Order: a customer orders 5 to 15 items, one of a hundred of them from another warehouse. One
//! order of a hundred names an item that does not exist and is rolled back when its last line is
//! reached.

use anyhow::{Result, ensure};

use super::customer;
use super::dialogue::{Dialogue, Row, Value};
use super::random::ORIGINAL;
use super::schema::DISTRICTS;
use super::terminal::Desk;

/// What is ordered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewOrder {
    warehouse: i32,
    district: i32,
    customer: i32,
    /// In the order of their items: two orders that ask for the same stock so wait for each other,
    /// and never both for the other.
    lines: Vec<Line>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    item: i32,
    supplier: i32,
    quantity: i32,
}

/// What became of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ordered {
    /// It is durable, under this number.
    Taken(i64),
    /// An item does not exist: nothing of it is there.
    RolledBack,
}

const WAREHOUSE: &str = "SELECT CAST(w_tax * 10000 AS BIGINT) FROM warehouse WHERE w_id = $1";
const DISTRICT: &str = "SELECT CAST(d_tax * 10000 AS BIGINT), d_next_o_id FROM district
    WHERE d_w_id = $1 AND d_id = $2 FOR UPDATE";
const COUNT_ON: &str =
    "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = $1 AND d_id = $2";
const CUSTOMER: &str = "SELECT CAST(c_discount * 10000 AS BIGINT), c_last, c_credit FROM customer
    WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3";
const ORDER: &str = "INSERT INTO orders
    (o_w_id, o_d_id, o_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local)
    VALUES ($1, $2, $3, $4, CURRENT_TIMESTAMP, $5, $6)";
const WAITING: &str = "INSERT INTO new_order (no_w_id, no_d_id, no_o_id) VALUES ($1, $2, $3)";
const ITEM: &str = "SELECT CAST(i_price * 100 AS BIGINT), i_name, i_data FROM item WHERE i_id = $1";
const TAKE: &str = "UPDATE stock SET s_quantity = $3, s_ytd = s_ytd + $4,
    s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + $5
    WHERE s_w_id = $1 AND s_i_id = $2";
const LINE: &str = "INSERT INTO order_line
    (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount,
     ol_dist_info)
    VALUES ($1, $2, $3, $4, $5, $6, $7, CAST($8 AS BIGINT) * 0.01, $9)";
const CALL: &str = "CALL tpcc_new_order($1, $2, $3, string_to_array($4, ',')::int[],
    string_to_array($5, ',')::int[], string_to_array($6, ',')::int[], NULL, NULL)";

/// Each district has its own text in the stock.
macro_rules! stock {
    ($district:literal) => {
        concat!(
            "SELECT s_quantity, s_data, s_dist_",
            $district,
            " FROM stock WHERE s_w_id = $1 AND s_i_id = $2 FOR UPDATE"
        )
    };
}

const STOCK: [&str; 10] = [
    stock!("01"),
    stock!("02"),
    stock!("03"),
    stock!("04"),
    stock!("05"),
    stock!("06"),
    stock!("07"),
    stock!("08"),
    stock!("09"),
    stock!("10"),
];

/// What [`NewOrder::perform`] uses.
pub fn statements() -> Vec<&'static str> {
    let mut all = vec![
        WAREHOUSE, DISTRICT, COUNT_ON, CUSTOMER, ORDER, WAITING, ITEM, TAKE, LINE,
    ];
    all.extend(STOCK);
    all
}

/// What [`NewOrder::call`] uses.
pub const PROCEDURES: [&str; 1] = [CALL];

impl NewOrder {
    /// An order of someone at this desk.
    pub fn draw(desk: &Desk, random: &mut fastrand::Rng) -> Self {
        let district = random.i32(1..=DISTRICTS);
        let customer = customer::number(desk, random);
        let mut lines: Vec<Line> = (0..random.i32(5..=15))
            .map(|_| {
                let item = desk.preferences.item.draw(random, 1..=desk.scale.items);
                let supplier = if random.u32(1..=100) == 1 {
                    desk.other_warehouse(random)
                } else {
                    desk.home
                };
                Line {
                    item,
                    supplier,
                    quantity: random.i32(1..=10),
                }
            })
            .collect();
        lines.sort_unstable();
        if random.u32(1..=100) == 1
            && let Some(last) = lines.last_mut()
        {
            last.item = desk.scale.items + 1;
        }
        Self {
            warehouse: desk.home,
            district,
            customer,
            lines,
        }
    }

    fn is_all_local(&self) -> bool {
        self.lines
            .iter()
            .all(|line| line.supplier == self.warehouse)
    }

    /// Statement by statement, in a transaction that this ends.
    pub fn perform(&self, dialogue: &mut Dialogue) -> Result<Ordered> {
        let place: [Value; 2] = [self.warehouse.into(), self.district.into()];
        dialogue.begin()?;
        let warehouse_tax = dialogue.row(WAREHOUSE, &place[..1])?.integer(0)?;
        let district = dialogue.row(DISTRICT, &place)?;
        let (district_tax, order) = (district.integer(0)?, district.integer(1)?);
        dialogue.change_one(COUNT_ON, &place)?;
        let [warehouse, area] = place;
        let customer = dialogue.row(
            CUSTOMER,
            &[warehouse.clone(), area.clone(), self.customer.into()],
        )?;
        let line_count = i32::try_from(self.lines.len())?;
        dialogue.change_one(
            ORDER,
            &[
                warehouse.clone(),
                area.clone(),
                order.into(),
                self.customer.into(),
                line_count.into(),
                i32::from(self.is_all_local()).into(),
            ],
        )?;
        dialogue.change_one(WAITING, &[warehouse, area, order.into()])?;
        let mut total = 0;
        for (number, line) in (1..).zip(&self.lines) {
            let Some(item) = dialogue.rows(ITEM, &[line.item.into()])?.pop() else {
                dialogue.rollback()?;
                return Ok(Ordered::RolledBack);
            };
            total += self.take(dialogue, order, number, line, &item)?;
        }
        dialogue.commit()?;
        // What the terminal shows at the end.
        let discounted = total * (10_000 - customer.integer(0)?) / 10_000;
        let taxed = discounted * (10_000 + warehouse_tax + district_tax) / 10_000;
        ensure!(taxed > 0, "an order of {line_count} lines costs nothing");
        Ok(Ordered::Taken(order))
    }

    /// A line of the order; gives its amount.
    fn take(
        &self,
        dialogue: &mut Dialogue,
        order: i64,
        number: i32,
        line: &Line,
        item: &Row,
    ) -> Result<i64> {
        let index = usize::try_from(self.district - 1)?;
        let stock = dialogue.row(STOCK[index], &[line.supplier.into(), line.item.into()])?;
        let mut left = stock.integer(0)? - i64::from(line.quantity);
        if left < 10 {
            left += 91;
        }
        dialogue.change_one(
            TAKE,
            &[
                line.supplier.into(),
                line.item.into(),
                left.into(),
                line.quantity.into(),
                i32::from(line.supplier != self.warehouse).into(),
            ],
        )?;
        // The mark of a brand is shown, and stored nowhere.
        let _is_brand = item.text(2)?.contains(ORIGINAL) && stock.text(1)?.contains(ORIGINAL);
        let amount = item.integer(0)? * i64::from(line.quantity);
        dialogue.change_one(
            LINE,
            &[
                self.warehouse.into(),
                self.district.into(),
                order.into(),
                number.into(),
                line.item.into(),
                line.supplier.into(),
                line.quantity.into(),
                amount.into(),
                stock.text(2)?.into(),
            ],
        )?;
        Ok(amount)
    }

    /// By the procedure on the server, which ends its transaction itself.
    pub fn call(&self, dialogue: &mut Dialogue) -> Result<Ordered> {
        let list = |of: fn(&Line) -> i32| {
            let words: Vec<String> = self.lines.iter().map(|line| of(line).to_string()).collect();
            words.join(",")
        };
        let row = dialogue.row(
            CALL,
            &[
                self.warehouse.into(),
                self.district.into(),
                self.customer.into(),
                list(|line| line.item).as_str().into(),
                list(|line| line.supplier).as_str().into(),
                list(|line| line.quantity).as_str().into(),
            ],
        )?;
        if row.is_null(0) {
            return Ok(Ordered::RolledBack);
        }
        let order = row.integer(0)?;
        ensure!(row.integer(1)? > 0, "order {order} costs nothing");
        Ok(Ordered::Taken(order))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::workload::tpcc::terminal::tests::desk;

    #[test]
    fn orders_are_as_large_remote_and_wrong_as_the_standard_says() {
        let here = desk(3);
        let mut random = fastrand::Rng::with_seed(2);
        let (mut line_count, mut remote, mut wrong) = (0, 0, 0);
        for _ in 0..20_000 {
            let order = NewOrder::draw(&here, &mut random);
            assert!((5..=15).contains(&order.lines.len()));
            assert!(order.lines.is_sorted());
            assert!((1..=10).contains(&order.district));
            for line in &order.lines {
                assert!((1..=3).contains(&line.supplier) && (1..=10).contains(&line.quantity));
                remote += u32::from(line.supplier != here.home);
                line_count += 1;
            }
            let unknown = order
                .lines
                .iter()
                .filter(|line| line.item > here.scale.items);
            wrong += unknown.count();
        }
        assert!((198_000..202_000).contains(&line_count), "{line_count}");
        assert!((1800..2200).contains(&remote), "{remote}");
        assert!((150..250).contains(&wrong), "{wrong}");
        let alone = NewOrder::draw(&desk(1), &mut random);
        assert!(alone.is_all_local());
    }
}
