//! The refresh functions (clause 2.5 of the specification): RF1 puts new orders with their items in,
//! RF2 takes as many old ones out; a thousandth of all, a transaction each hundred orders.
//!
//! The specification reads the new rows from files of its generator. Here they are the rows of the
//! first orders under keys that are free: of each 32 keys the generator uses the first eight.

use anyhow::{Context, Result};

use super::schema::{Table, values};
use crate::measure::database::Session;

const ORDERS_PER_COMMIT: usize = 100;
/// From a key that is used to one that is not.
const KEY_SHIFT: i64 = 8;

/// What is put in and taken out.
pub(super) struct Refresh {
    /// Key of an order, its row and the rows of its items; both under their new key.
    new: Vec<(i64, String, Vec<String>)>,
}

impl Refresh {
    /// For the data of a scale.
    pub fn of(scale: f64) -> Result<Self> {
        let count = crate::quantity::whole(scale * 1500.0)
            .and_then(|count| usize::try_from(count).ok())
            .unwrap_or(1)
            .max(1);
        let split = |line: &str| -> Result<(i64, String)> {
            let (key, rest) = line.split_once('|').context("a row has a key")?;
            let key: i64 = key.parse()?;
            Ok((key, format!("{}|{rest}", key + KEY_SHIFT)))
        };
        let mut new = Vec::new();
        for line in Table::Orders.rows(scale).take(count) {
            let (key, row) = split(&line)?;
            new.push((key, row, Vec::new()));
        }
        let mut index = 0;
        for line in Table::LineItem.rows(scale) {
            let (key, row) = split(&line)?;
            // Both come in the order of their keys.
            while index < new.len() && new[index].0 < key {
                index += 1;
            }
            let Some((_, _, items)) = new.get_mut(index) else {
                break;
            };
            items.push(row);
        }
        Ok(Self { new })
    }

    /// RF1.
    pub fn insert(&self, session: &mut dyn Session) -> Result<()> {
        for orders in self.new.chunks(ORDERS_PER_COMMIT) {
            session.begin()?;
            let mut rows = orders.iter().map(|(_, row, _)| values(row));
            session.insert_many(
                Table::Orders.name(),
                &Table::Orders.column_names(),
                &mut rows,
            )?;
            let items = orders.iter().flat_map(|(_, _, items)| items);
            let mut rows = items.map(|row| values(row));
            session.insert_many(
                Table::LineItem.name(),
                &Table::LineItem.column_names(),
                &mut rows,
            )?;
            session.commit()?;
        }
        Ok(())
    }

    /// RF2.
    pub fn delete(&self, session: &mut dyn Session) -> Result<()> {
        for orders in self.new.chunks(ORDERS_PER_COMMIT) {
            let keys: Vec<String> = orders.iter().map(|(key, _, _)| key.to_string()).collect();
            let keys = keys.join(", ");
            session.begin()?;
            session.batch(&format!(
                "DELETE FROM lineitem WHERE l_orderkey IN ({keys})"
            ))?;
            session.batch(&format!("DELETE FROM orders WHERE o_orderkey IN ({keys})"))?;
            session.commit()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_orders_have_keys_that_are_free_and_all_their_items() {
        let refresh = Refresh::of(0.01).unwrap();
        assert_eq!(refresh.new.len(), 15);
        for (key, row, items) in &refresh.new {
            assert_eq!(key & 24, 0, "{key} is one of the first eight of 32");
            assert!(row.starts_with(&format!("{}|", key + 8)));
            assert!((1..=7).contains(&items.len()), "{}", items.len());
            assert!(
                items
                    .iter()
                    .all(|item| item.starts_with(&format!("{}|", key + 8)))
            );
        }
    }
}
