//! How a customer is named: by a number, or by a last name that several may share.

use anyhow::{Context, Result};

use super::dialogue::{Dialogue, Value};
use super::random::last_name;
use super::terminal::Desk;

/// Who is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    /// The customer of this number.
    Number(i64),
    /// The middle one, by first name, of all who have this last name.
    LastName(String),
}

const BY_LAST_NAME: &str = "SELECT c_id FROM customer
    WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3 ORDER BY c_first";

/// What [`Who::find`] uses.
pub const STATEMENTS: [&str; 1] = [BY_LAST_NAME];

/// Of a hundred, so many know only the name.
const BY_NAME_PERCENT: u32 = 60;

impl Who {
    /// Someone.
    pub fn draw(desk: &Desk, random: &mut fastrand::Rng) -> Self {
        if random.u32(0..100) < BY_NAME_PERCENT {
            let names = 0..=desk.scale.last_names() - 1;
            let number = desk.preferences.last_name.draw(random, names);
            return Self::LastName(last_name(number));
        }
        Self::Number(i64::from(number(desk, random)))
    }

    /// The customer's number.
    pub fn find(&self, dialogue: &mut Dialogue, warehouse: i32, district: i32) -> Result<i64> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::LastName(name) => {
                let place = [warehouse.into(), district.into(), name.as_str().into()];
                let rows = dialogue.rows(BY_LAST_NAME, &place)?;
                // Of an even number the earlier of the two in the middle.
                rows.get(rows.len().saturating_sub(1) / 2)
                    .with_context(|| format!("nobody in district {district} is called {name}"))?
                    .integer(0)
            }
        }
    }

    /// Both ways as a procedure takes them: what is not known is empty.
    pub fn parameters(&self) -> [Value; 2] {
        match self {
            Self::Number(number) => [(*number).into(), Value::Null],
            Self::LastName(name) => [Value::Null, name.as_str().into()],
        }
    }
}

/// A customer of a district, some rather than others.
pub fn number(desk: &Desk, random: &mut fastrand::Rng) -> i32 {
    let customers = 1..=desk.scale.customers;
    desk.preferences.customer.draw(random, customers)
}
