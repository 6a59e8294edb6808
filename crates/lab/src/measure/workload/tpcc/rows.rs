//! The rows of a new database.
//!
//! A portion is a table's part in one warehouse. What it holds depends on the scale, the seed and
//! the portion alone, not on who writes it when: loaders work side by side, and two images of the
//! same scale hold the same rows.

use super::dialogue::Value;
use super::random::{Preferences, description, digits, last_name, letters};
use super::schema::{DISTRICTS, Scale, TABLES, Table};

/// When the database was new.
const POPULATED: &str = "2026-01-01 00:00:00";

/// What every customer has paid when the database is new, in hundredths.
const FIRST_PAYMENT: i64 = 1000;

/// A row, in the order of the table's columns.
pub type Fields = Vec<Value>;

/// A table's part in one warehouse.
#[derive(Debug, Clone, Copy)]
pub struct Portion {
    /// How many rows there are.
    pub scale: Scale,
    /// What all chance is drawn from.
    pub seed: u64,
    /// The table.
    pub table: &'static Table,
    /// The warehouse; items belong to none, which is 0.
    pub warehouse: i32,
}

/// A row of these values.
macro_rules! row {
    ($($value:expr),* $(,)?) => { vec![$(Value::from($value)),*] };
}

impl Portion {
    /// All portions of a database: the items, then warehouse after warehouse.
    pub fn all(scale: Scale, seed: u64) -> Vec<Self> {
        (0..=scale.warehouses)
            .flat_map(|warehouse| {
                let is_of_none = warehouse == 0;
                TABLES
                    .iter()
                    .filter(move |table| (table.name == "item") == is_of_none)
                    .map(move |table| Self {
                        scale,
                        seed,
                        table,
                        warehouse,
                    })
            })
            .collect()
    }

    /// The preferences with which a fill of this seed draws.
    pub fn preferences(seed: u64) -> Preferences {
        Preferences::of_fill(&mut stream(seed, "preferences", 0, 0))
    }

    /// Its rows, in the order of their keys.
    ///
    /// # Panics
    /// Where a table has no rows.
    pub fn rows(self) -> Box<dyn Iterator<Item = Fields>> {
        match self.table.name {
            "item" => Box::new(self.items()),
            "stock" => Box::new(self.stock()),
            "warehouse" => Box::new(std::iter::once(self.own())),
            "district" => Box::new((1..=DISTRICTS).map(move |district| self.district(district))),
            "customer" => Box::new((1..=DISTRICTS).flat_map(move |area| self.customers(area))),
            "history" => Box::new((1..=DISTRICTS).flat_map(move |area| self.history(area))),
            "orders" => Box::new((1..=DISTRICTS).flat_map(move |area| self.orders(area))),
            "order_line" => Box::new((1..=DISTRICTS).flat_map(move |area| self.order_lines(area))),
            "new_order" => Box::new((1..=DISTRICTS).flat_map(move |area| self.new_orders(area))),
            other => unreachable!("the table {other} has no rows"),
        }
    }

    fn stream(self, district: i32) -> fastrand::Rng {
        stream(self.seed, self.table.name, self.warehouse, district)
    }

    fn items(self) -> impl Iterator<Item = Fields> {
        let mut random = self.stream(0);
        (1..=self.scale.items).map(move |item| {
            row![
                item,
                random.i32(1..=10_000),
                letters(&mut random, 14..=24),
                money(random.i64(100..=10_000)),
                description(&mut random),
            ]
        })
    }

    fn stock(self) -> impl Iterator<Item = Fields> {
        let mut random = self.stream(0);
        (1..=self.scale.items).map(move |item| {
            let mut row = row![item, self.warehouse, random.i32(10..=100)];
            row.extend((0..DISTRICTS).map(|_| Value::from(letters(&mut random, 24..=24))));
            row.extend(row![0, 0, 0, description(&mut random)]);
            row
        })
    }

    fn own(self) -> Fields {
        let mut random = self.stream(0);
        let customers = i64::from(self.scale.customers) * i64::from(DISTRICTS);
        let mut row = row![self.warehouse, letters(&mut random, 6..=10)];
        row.extend(address(&mut random));
        row.extend(row![
            share(&mut random, 2000),
            money(customers * FIRST_PAYMENT)
        ]);
        row
    }

    fn district(self, district: i32) -> Fields {
        let mut random = self.stream(district);
        let customers = self.scale.customers;
        let mut row = row![district, self.warehouse, letters(&mut random, 6..=10)];
        row.extend(address(&mut random));
        row.extend(row![
            share(&mut random, 2000),
            money(i64::from(customers) * FIRST_PAYMENT),
            customers + 1,
        ]);
        row
    }

    fn customers(self, district: i32) -> impl Iterator<Item = Fields> {
        let mut random = self.stream(district);
        let preferences = Self::preferences(self.seed);
        let names = self.scale.last_names();
        (1..=self.scale.customers).map(move |customer| {
            // Every last name is there once; the rest prefer some.
            let name = if customer <= names {
                customer - 1
            } else {
                preferences.last_name.draw(&mut random, 0..=names - 1)
            };
            let mut row = row![
                customer,
                district,
                self.warehouse,
                letters(&mut random, 8..=16),
                "OE",
                last_name(name),
            ];
            row.extend(address(&mut random));
            let credit = if random.u32(..10) == 0 { "BC" } else { "GC" };
            row.extend(row![
                digits(&mut random, 16),
                POPULATED,
                credit,
                "50000.00",
                share(&mut random, 5000),
                "-10.00",
                "10.00",
                1,
                0,
                letters(&mut random, 300..=500),
            ]);
            row
        })
    }

    fn history(self, district: i32) -> impl Iterator<Item = Fields> {
        let mut random = self.stream(district);
        let warehouse = self.warehouse;
        (1..=self.scale.customers).map(move |customer| {
            row![
                customer,
                district,
                warehouse,
                district,
                warehouse,
                POPULATED,
                "10.00",
                letters(&mut random, 12..=24),
            ]
        })
    }

    /// The orders of a district from 1 on: whose, and of how many lines. Orders and their lines must
    /// agree on it.
    fn ordered(self, district: i32) -> impl Iterator<Item = (i32, i32, i32)> {
        let mut random = stream(self.seed, "order", self.warehouse, district);
        let mut customers: Vec<i32> = (1..=self.scale.customers).collect();
        random.shuffle(&mut customers);
        (1..)
            .zip(customers)
            .map(move |(order, customer)| (order, customer, random.i32(5..=15)))
    }

    fn orders(self, district: i32) -> impl Iterator<Item = Fields> {
        let mut random = self.stream(district);
        self.ordered(district)
            .map(move |(order, customer, line_count)| {
                let is_delivered = order <= self.scale.delivered();
                row![
                    order,
                    district,
                    self.warehouse,
                    customer,
                    POPULATED,
                    is_delivered.then(|| random.i32(1..=10)),
                    line_count,
                    1,
                ]
            })
    }

    fn order_lines(self, district: i32) -> impl Iterator<Item = Fields> {
        let mut random = self.stream(district);
        let warehouse = self.warehouse;
        let lines = self
            .ordered(district)
            .flat_map(|(order, _, line_count)| (1..=line_count).map(move |line| (order, line)));
        lines.map(move |(order, line)| {
            let is_delivered = order <= self.scale.delivered();
            let item = random.i32(1..=self.scale.items);
            let hundredths = if is_delivered {
                0
            } else {
                random.i64(1..=999_999)
            };
            row![
                order,
                district,
                warehouse,
                line,
                item,
                warehouse,
                is_delivered.then_some(POPULATED),
                5,
                money(hundredths),
                letters(&mut random, 24..=24),
            ]
        })
    }

    fn new_orders(self, district: i32) -> impl Iterator<Item = Fields> {
        (self.scale.delivered() + 1..=self.scale.customers)
            .map(move |order| row![order, district, self.warehouse])
    }
}

/// Two streets, a city, a state and a postal code.
fn address(random: &mut fastrand::Rng) -> Fields {
    row![
        letters(random, 10..=20),
        letters(random, 10..=20),
        letters(random, 10..=20),
        letters(random, 2..=2),
        format!("{}11111", digits(random, 4)),
    ]
}

/// A part of one, up to so many ten-thousandths.
fn share(random: &mut fastrand::Rng, at_most: u32) -> String {
    format!("0.{:04}", random.u32(0..=at_most))
}

/// An amount of hundredths, as a decimal number.
fn money(hundredths: i64) -> String {
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// Chance of its own for each table, warehouse and district.
fn stream(seed: u64, table: &str, warehouse: i32, district: i32) -> fastrand::Rng {
    let mut mixed = seed;
    let place = [warehouse, district].map(|number| u64::from(number.unsigned_abs()));
    for part in table.bytes().map(u64::from).chain(place) {
        mixed = fastrand::Rng::with_seed(mixed ^ part).u64(..);
    }
    fastrand::Rng::with_seed(mixed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Scale = Scale {
        warehouses: 2,
        items: 200,
        customers: 30,
    };

    #[test]
    fn every_row_has_a_value_for_each_column_and_the_same_seed_gives_the_same_rows() {
        let portions = Portion::all(SMALL, 7);
        assert_eq!(portions.len(), 1 + 2 * 8);
        for portion in portions {
            let rows: Vec<Fields> = portion.rows().collect();
            let column_count = portion.table.column_names().len();
            for row in &rows {
                assert_eq!(row.len(), column_count, "{}: {row:?}", portion.table.name);
            }
            assert!(rows.iter().eq(portion.rows().collect::<Vec<_>>().iter()));
            let other: Vec<Fields> = Portion { seed: 8, ..portion }.rows().collect();
            assert!(other != rows || portion.table.name == "new_order");
        }
    }

    #[test]
    fn a_warehouse_has_as_many_rows_as_the_standard_says() {
        for portion in Portion::all(Scale::of(1), 1) {
            let count = portion.rows().count();
            let expected = match portion.table.name {
                "item" | "stock" => 100_000..=100_000,
                "customer" | "history" | "orders" => 30_000..=30_000,
                "new_order" => 9000..=9000,
                "order_line" => 295_000..=305_000,
                "district" => 10..=10,
                _ => 1..=1,
            };
            assert!(expected.contains(&count), "{}: {count}", portion.table.name);
        }
    }
}
