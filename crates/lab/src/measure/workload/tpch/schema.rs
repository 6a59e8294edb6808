//! The eight tables: their columns, keys and indexes, their rows from the generator, and how many
//! there must be (clauses 1.4 and 4.2.5 of the TPC-H specification).

use std::fmt::Display;

use anyhow::{Result, ensure};
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};

use crate::measure::database::Value;

/// A table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Table {
    Region,
    Nation,
    Part,
    Supplier,
    PartSupplier,
    Customer,
    Orders,
    LineItem,
}

impl Table {
    pub const ALL: [Self; 8] = [
        Self::Region,
        Self::Nation,
        Self::Part,
        Self::Supplier,
        Self::PartSupplier,
        Self::Customer,
        Self::Orders,
        Self::LineItem,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Region => "region",
            Self::Nation => "nation",
            Self::Part => "part",
            Self::Supplier => "supplier",
            Self::PartSupplier => "partsupp",
            Self::Customer => "customer",
            Self::Orders => "orders",
            Self::LineItem => "lineitem",
        }
    }

    pub fn columns(self) -> &'static str {
        match self {
            Self::Region => "r_regionkey int NOT NULL, r_name char(25) NOT NULL, r_comment varchar(152)",
            Self::Nation => {
                "n_nationkey int NOT NULL, n_name char(25) NOT NULL, n_regionkey int NOT NULL,
                 n_comment varchar(152)"
            }
            Self::Part => {
                "p_partkey int NOT NULL, p_name varchar(55) NOT NULL, p_mfgr char(25) NOT NULL,
                 p_brand char(10) NOT NULL, p_type varchar(25) NOT NULL, p_size int NOT NULL,
                 p_container char(10) NOT NULL, p_retailprice numeric(15,2) NOT NULL,
                 p_comment varchar(23) NOT NULL"
            }
            Self::Supplier => {
                "s_suppkey int NOT NULL, s_name char(25) NOT NULL, s_address varchar(40) NOT NULL,
                 s_nationkey int NOT NULL, s_phone char(15) NOT NULL, s_acctbal numeric(15,2) NOT NULL,
                 s_comment varchar(101) NOT NULL"
            }
            Self::PartSupplier => {
                "ps_partkey int NOT NULL, ps_suppkey int NOT NULL, ps_availqty int NOT NULL,
                 ps_supplycost numeric(15,2) NOT NULL, ps_comment varchar(199) NOT NULL"
            }
            Self::Customer => {
                "c_custkey int NOT NULL, c_name varchar(25) NOT NULL, c_address varchar(40) NOT NULL,
                 c_nationkey int NOT NULL, c_phone char(15) NOT NULL, c_acctbal numeric(15,2) NOT NULL,
                 c_mktsegment char(10) NOT NULL, c_comment varchar(117) NOT NULL"
            }
            Self::Orders => {
                "o_orderkey int8 NOT NULL, o_custkey int NOT NULL, o_orderstatus char(1) NOT NULL,
                 o_totalprice numeric(15,2) NOT NULL, o_orderdate date NOT NULL,
                 o_orderpriority char(15) NOT NULL, o_clerk char(15) NOT NULL,
                 o_shippriority int NOT NULL, o_comment varchar(79) NOT NULL"
            }
            Self::LineItem => {
                "l_orderkey int8 NOT NULL, l_partkey int NOT NULL, l_suppkey int NOT NULL,
                 l_linenumber int NOT NULL, l_quantity numeric(15,2) NOT NULL,
                 l_extendedprice numeric(15,2) NOT NULL, l_discount numeric(15,2) NOT NULL,
                 l_tax numeric(15,2) NOT NULL, l_returnflag char(1) NOT NULL,
                 l_linestatus char(1) NOT NULL, l_shipdate date NOT NULL, l_commitdate date NOT NULL,
                 l_receiptdate date NOT NULL, l_shipinstruct char(25) NOT NULL,
                 l_shipmode char(10) NOT NULL, l_comment varchar(44) NOT NULL"
            }
        }
    }

    /// In their order.
    pub fn column_names(self) -> Vec<&'static str> {
        // A comma also stands within the two digits of `numeric(15,2)`.
        self.columns()
            .split(',')
            .filter_map(|column| column.split_whitespace().next())
            .filter(|word| word.contains('_'))
            .collect()
    }

    /// How many rows the specification wants; of `lineitem` it is only the middle.
    pub fn expected_rows(self, scale: f64) -> f64 {
        match self {
            Self::Region => 5.0,
            Self::Nation => 25.0,
            Self::Part => scale * 200_000.0,
            Self::Supplier => scale * 10_000.0,
            Self::PartSupplier => scale * 800_000.0,
            Self::Customer => scale * 150_000.0,
            Self::Orders => scale * 1_500_000.0,
            Self::LineItem => scale * 6_000_000.0,
        }
    }

    /// How far a right number may lie from that: a part of a row, with four suppliers each; and each
    /// order has one to seven items by chance.
    pub fn allowed_rows(self, scale: f64) -> f64 {
        match self {
            // Five deviations of a sum of so many even draws from one to seven.
            Self::LineItem => 10.0 * (scale * 1_500_000.0).sqrt() + 4.0,
            _ => 4.0,
        }
    }

    /// The rows of the generator, their values separated by `|`.
    pub fn rows(self, scale: f64) -> Box<dyn Iterator<Item = String>> {
        match self {
            Self::Region => lines(RegionGenerator::default().iter()),
            Self::Nation => lines(NationGenerator::default().iter()),
            Self::Part => lines(PartGenerator::new(scale, 1, 1).iter()),
            Self::Supplier => lines(SupplierGenerator::new(scale, 1, 1).iter()),
            Self::PartSupplier => lines(PartSuppGenerator::new(scale, 1, 1).iter()),
            Self::Customer => lines(CustomerGenerator::new(scale, 1, 1).iter()),
            Self::Orders => lines(OrderGenerator::new(scale, 1, 1).iter()),
            Self::LineItem => lines(LineItemGenerator::new(scale, 1, 1).iter()),
        }
    }
}

/// The generator ends a row with a bar, too.
fn lines<Row: Display>(
    rows: impl Iterator<Item = Row> + 'static,
) -> Box<dyn Iterator<Item = String>> {
    Box::new(rows.map(|row| {
        let mut line = row.to_string();
        if line.ends_with('|') {
            line.pop();
        }
        line
    }))
}

/// A row as a session takes it.
pub(super) fn values(row: &str) -> Vec<Value> {
    row.split('|').map(Value::from).collect()
}

/// Keys, and the indexes that the specification allows: on keys, on references and on dates.
pub(super) const KEYS: [&str; 19] = [
    "ALTER TABLE region ADD PRIMARY KEY (r_regionkey)",
    "ALTER TABLE nation ADD PRIMARY KEY (n_nationkey)",
    "ALTER TABLE part ADD PRIMARY KEY (p_partkey)",
    "ALTER TABLE supplier ADD PRIMARY KEY (s_suppkey)",
    "ALTER TABLE partsupp ADD PRIMARY KEY (ps_partkey, ps_suppkey)",
    "ALTER TABLE customer ADD PRIMARY KEY (c_custkey)",
    "ALTER TABLE orders ADD PRIMARY KEY (o_orderkey)",
    "ALTER TABLE lineitem ADD PRIMARY KEY (l_orderkey, l_linenumber)",
    "CREATE INDEX ON supplier (s_nationkey)",
    "CREATE INDEX ON partsupp (ps_suppkey)",
    "CREATE INDEX ON customer (c_nationkey)",
    "CREATE INDEX ON orders (o_custkey)",
    "CREATE INDEX ON orders (o_orderdate)",
    "CREATE INDEX ON lineitem (l_partkey, l_suppkey)",
    "CREATE INDEX ON lineitem (l_suppkey)",
    "CREATE INDEX ON lineitem (l_shipdate)",
    "ALTER TABLE partsupp ADD FOREIGN KEY (ps_partkey) REFERENCES part,
         ADD FOREIGN KEY (ps_suppkey) REFERENCES supplier",
    "ALTER TABLE orders ADD FOREIGN KEY (o_custkey) REFERENCES customer",
    "ALTER TABLE lineitem ADD FOREIGN KEY (l_orderkey) REFERENCES orders,
         ADD FOREIGN KEY (l_partkey, l_suppkey) REFERENCES partsupp",
];

/// Sees that a table got as many rows as the specification wants.
pub(super) fn check_rows(table: Table, rows: u64, scale: f64) -> Result<()> {
    let expected = table.expected_rows(scale);
    let found = crate::quantity::as_float(rows);
    ensure!(
        (found - expected).abs() <= table.allowed_rows(scale),
        "{} has {rows} rows; at scale {scale} there are to be {expected:.0}",
        table.name()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_gives_as_many_rows_as_the_specification_wants() {
        for table in Table::ALL {
            let lines: Vec<String> = table.rows(0.01).collect();
            let count = lines.len() as u64;
            let fields = lines[0].split('|').count();
            check_rows(table, count, 0.01).unwrap();
            assert_eq!(fields, table.column_names().len(), "{table:?}");
        }
        assert!(check_rows(Table::Part, 1990, 0.01).is_err());
    }
}
