//! Payment: a customer pays at a district; fifteen of a hundred belong to another warehouse.

use anyhow::Result;

use super::customer::Who;
use super::dialogue::Dialogue;
use super::schema::DISTRICTS;
use super::terminal::Desk;

/// Who pays what where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payment {
    warehouse: i32,
    district: i32,
    customer_warehouse: i32,
    customer_district: i32,
    who: Who,
    hundredths: i64,
}

const PAY_WAREHOUSE: &str =
    "UPDATE warehouse SET w_ytd = w_ytd + CAST($2 AS BIGINT) * 0.01 WHERE w_id = $1";
const WAREHOUSE: &str = "SELECT w_name, w_street_1, w_street_2, w_city, w_state, w_zip
    FROM warehouse WHERE w_id = $1";
const PAY_DISTRICT: &str = "UPDATE district SET d_ytd = d_ytd + CAST($3 AS BIGINT) * 0.01
    WHERE d_w_id = $1 AND d_id = $2";
const DISTRICT: &str = "SELECT d_name, d_street_1, d_street_2, d_city, d_state, d_zip
    FROM district WHERE d_w_id = $1 AND d_id = $2";
const CUSTOMER: &str = "SELECT c_credit, c_data, c_first, c_middle, c_last, c_street_1, c_street_2,
    c_city, c_state, c_zip, c_phone, c_since, CAST(c_credit_lim * 100 AS BIGINT),
    CAST(c_discount * 10000 AS BIGINT), CAST(c_balance * 100 AS BIGINT)
    FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3 FOR UPDATE";
const PAY: &str = "UPDATE customer SET c_balance = c_balance - CAST($4 AS BIGINT) * 0.01,
    c_ytd_payment = c_ytd_payment + CAST($5 AS BIGINT) * 0.01, c_payment_cnt = c_payment_cnt + 1
    WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3";
const PAY_BADLY: &str = "UPDATE customer SET c_balance = c_balance - CAST($4 AS BIGINT) * 0.01,
    c_ytd_payment = c_ytd_payment + CAST($5 AS BIGINT) * 0.01, c_payment_cnt = c_payment_cnt + 1,
    c_data = $6
    WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3";
const HISTORY: &str = "INSERT INTO history
    (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data)
    VALUES ($1, $2, $3, $4, $5, CURRENT_TIMESTAMP, CAST($6 AS BIGINT) * 0.01, $7)";
const CALL: &str = "CALL tpcc_payment($1, $2, $3, $4, $5, $6, $7, NULL)";

/// What [`Payment::perform`] uses beside those of [`Who`].
pub const STATEMENTS: [&str; 8] = [
    PAY_WAREHOUSE,
    WAREHOUSE,
    PAY_DISTRICT,
    DISTRICT,
    CUSTOMER,
    PAY,
    PAY_BADLY,
    HISTORY,
];

/// What [`Payment::call`] uses.
pub const PROCEDURES: [&str; 1] = [CALL];

/// How much of what is known about a customer of bad credit is kept.
const DATA_BYTES_AT_MOST: usize = 500;

impl Payment {
    /// A payment at this desk.
    pub fn draw(desk: &Desk, random: &mut fastrand::Rng) -> Self {
        let district = random.i32(1..=DISTRICTS);
        let is_remote = random.u32(0..100) >= 85;
        let (customer_warehouse, customer_district) = if is_remote {
            (desk.other_warehouse(random), random.i32(1..=DISTRICTS))
        } else {
            (desk.home, district)
        };
        Self {
            warehouse: desk.home,
            district,
            customer_warehouse,
            customer_district,
            who: Who::draw(desk, random),
            hundredths: random.i64(100..=500_000),
        }
    }

    /// Statement by statement, in a transaction that this ends.
    pub fn perform(&self, dialogue: &mut Dialogue) -> Result<()> {
        let (warehouse, district) = (self.warehouse, self.district);
        let (home, area) = (self.customer_warehouse, self.customer_district);
        let amount = self.hundredths;
        dialogue.begin()?;
        dialogue.change_one(PAY_WAREHOUSE, &[warehouse.into(), amount.into()])?;
        let at = dialogue.row(WAREHOUSE, &[warehouse.into()])?;
        dialogue.change_one(
            PAY_DISTRICT,
            &[warehouse.into(), district.into(), amount.into()],
        )?;
        let desk = dialogue.row(DISTRICT, &[warehouse.into(), district.into()])?;
        let number = self.who.find(dialogue, home, area)?;
        let customer = dialogue.row(CUSTOMER, &[home.into(), area.into(), number.into()])?;
        let mut change = vec![
            home.into(),
            area.into(),
            number.into(),
            amount.into(),
            amount.into(),
        ];
        if customer.text(0)?.trim_end() == "BC" {
            let known = self.noted(number, customer.text(1)?);
            change.push(known.as_str().into());
            dialogue.change_one(PAY_BADLY, &change)?;
        } else {
            dialogue.change_one(PAY, &change)?;
        }
        let place = format!("{}    {}", at.text(0)?, desk.text(0)?);
        dialogue.change_one(
            HISTORY,
            &[
                number.into(),
                area.into(),
                home.into(),
                district.into(),
                warehouse.into(),
                amount.into(),
                place.as_str().into(),
            ],
        )?;
        dialogue.commit()
    }

    /// What is known about a customer of bad credit: this payment first, the oldest forgotten.
    fn noted(&self, number: i64, before: &str) -> String {
        let mut known = format!(
            "{number} {} {} {} {} {}.{:02} {before}",
            self.customer_district,
            self.customer_warehouse,
            self.district,
            self.warehouse,
            self.hundredths / 100,
            self.hundredths % 100
        );
        // Letters and digits only: a byte is a letter.
        known.truncate(DATA_BYTES_AT_MOST);
        known
    }

    /// By the procedure on the server, which ends its transaction itself.
    pub fn call(&self, dialogue: &mut Dialogue) -> Result<()> {
        let [number, name] = self.who.parameters();
        let row = dialogue.row(
            CALL,
            &[
                self.warehouse.into(),
                self.district.into(),
                self.customer_warehouse.into(),
                self.customer_district.into(),
                number,
                name,
                self.hundredths.into(),
            ],
        )?;
        // The balance that the terminal shows.
        row.integer(0).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::workload::tpcc::terminal::tests::desk;

    #[test]
    fn customers_are_as_remote_and_as_often_named_as_the_standard_says() {
        let desk = desk(4);
        let mut random = fastrand::Rng::with_seed(6);
        let (mut remote, mut named) = (0, 0);
        for _ in 0..10_000 {
            let payment = Payment::draw(&desk, &mut random);
            assert!((100..=500_000).contains(&payment.hundredths));
            if payment.customer_warehouse == desk.home {
                assert_eq!(payment.customer_district, payment.district);
            } else {
                remote += 1;
            }
            named += u32::from(matches!(payment.who, Who::LastName(_)));
        }
        assert!((1400..1600).contains(&remote), "{remote}");
        assert!((5850..6150).contains(&named), "{named}");
    }

    #[test]
    fn what_is_known_of_bad_credit_begins_with_the_last_payment_and_does_not_grow() {
        let payment = Payment::draw(&desk(1), &mut fastrand::Rng::with_seed(1));
        let known = payment.noted(7, &"x".repeat(500));
        assert_eq!(known.len(), 500);
        assert!(known.starts_with("7 "), "{known}");
    }
}
