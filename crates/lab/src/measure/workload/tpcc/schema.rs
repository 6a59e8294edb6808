//! The nine tables, their keys, and how many rows each has.
//!
//! Names and types are the standard's. There are no foreign keys: the standard asks that what they
//! would hold is true, and the consistency conditions show it.

use crate::experiment::DatabaseKind;

/// Districts of a warehouse.
pub const DISTRICTS: i32 = 10;

/// How many rows there are. Only tests use another than [`Scale::of`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// Warehouses.
    pub warehouses: i32,
    /// Items, and stock of each in every warehouse.
    pub items: i32,
    /// Customers of a district, and as many orders.
    pub customers: i32,
}

impl Scale {
    /// The standard's, for so many warehouses.
    pub fn of(warehouses: i32) -> Self {
        Self {
            warehouses,
            items: 100_000,
            customers: 3000,
        }
    }

    /// How many of a district's orders are delivered when the database is new.
    pub fn delivered(self) -> i32 {
        self.customers / 10 * 7
    }

    /// How many last names there are.
    pub fn last_names(self) -> i32 {
        self.customers.min(1000)
    }

    /// All districts.
    pub fn districts(self) -> i64 {
        i64::from(self.warehouses) * i64::from(DISTRICTS)
    }
}

/// A table.
#[derive(Debug)]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// Its columns, a line each: the name, then the type; what may be missing says `NULL`.
    columns: &'static str,
    /// The columns of its primary key; the history has none.
    key: Option<&'static str>,
    /// The columns of another index.
    index: Option<&'static str>,
}

impl Table {
    /// The names of its columns, in the order in which rows are loaded.
    pub fn column_names(&self) -> Vec<&'static str> {
        self.columns
            .lines()
            .filter_map(|line| line.split_whitespace().next())
            .collect()
    }

    /// The statement that makes it: with its primary key, where the rows lie in the order of that, and
    /// without, where a key is quicker made of rows that are there.
    pub fn creation(&self, kind: DatabaseKind) -> String {
        let lines: Vec<String> = self
            .columns
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .map(|line| {
                if line.ends_with("NULL") {
                    line.to_owned()
                } else {
                    format!("{line} NOT NULL")
                }
            })
            .collect();
        let columns = lines.join(", ");
        match (kind, self.key) {
            (DatabaseKind::Mariadb, key) => {
                // A `TIMESTAMP` would be changed with every other column.
                let columns = columns.replace("TIMESTAMP", "DATETIME");
                let key = key.map_or(String::new(), |key| format!(", PRIMARY KEY ({key})"));
                format!("CREATE TABLE {} ({columns}{key})", self.name)
            }
            _ => format!("CREATE TABLE {} ({columns})", self.name),
        }
    }

    /// The statements that make its keys.
    pub fn completion(&self, kind: DatabaseKind) -> Vec<String> {
        let key = self
            .key
            .filter(|_| kind != DatabaseKind::Mariadb)
            .map(|key| format!("ALTER TABLE {} ADD PRIMARY KEY ({key})", self.name));
        let index = self
            .index
            .map(|columns| format!("CREATE INDEX {0}_index ON {0} ({columns})", self.name));
        key.into_iter().chain(index).collect()
    }
}

/// All of them.
pub static TABLES: [Table; 9] = [
    Table {
        name: "item",
        columns: "
            i_id INT
            i_im_id INT
            i_name VARCHAR(24)
            i_price DECIMAL(5,2)
            i_data VARCHAR(50)
        ",
        key: Some("i_id"),
        index: None,
    },
    Table {
        name: "warehouse",
        columns: "
            w_id INT
            w_name VARCHAR(10)
            w_street_1 VARCHAR(20)
            w_street_2 VARCHAR(20)
            w_city VARCHAR(20)
            w_state CHAR(2)
            w_zip CHAR(9)
            w_tax DECIMAL(4,4)
            w_ytd DECIMAL(12,2)
        ",
        key: Some("w_id"),
        index: None,
    },
    Table {
        name: "district",
        columns: "
            d_id INT
            d_w_id INT
            d_name VARCHAR(10)
            d_street_1 VARCHAR(20)
            d_street_2 VARCHAR(20)
            d_city VARCHAR(20)
            d_state CHAR(2)
            d_zip CHAR(9)
            d_tax DECIMAL(4,4)
            d_ytd DECIMAL(12,2)
            d_next_o_id INT
        ",
        key: Some("d_w_id, d_id"),
        index: None,
    },
    Table {
        name: "customer",
        columns: "
            c_id INT
            c_d_id INT
            c_w_id INT
            c_first VARCHAR(16)
            c_middle CHAR(2)
            c_last VARCHAR(16)
            c_street_1 VARCHAR(20)
            c_street_2 VARCHAR(20)
            c_city VARCHAR(20)
            c_state CHAR(2)
            c_zip CHAR(9)
            c_phone CHAR(16)
            c_since TIMESTAMP
            c_credit CHAR(2)
            c_credit_lim DECIMAL(12,2)
            c_discount DECIMAL(4,4)
            c_balance DECIMAL(12,2)
            c_ytd_payment DECIMAL(12,2)
            c_payment_cnt INT
            c_delivery_cnt INT
            c_data VARCHAR(500)
        ",
        key: Some("c_w_id, c_d_id, c_id"),
        index: Some("c_w_id, c_d_id, c_last, c_first"),
    },
    Table {
        name: "history",
        columns: "
            h_c_id INT
            h_c_d_id INT
            h_c_w_id INT
            h_d_id INT
            h_w_id INT
            h_date TIMESTAMP
            h_amount DECIMAL(6,2)
            h_data VARCHAR(24)
        ",
        key: None,
        index: None,
    },
    Table {
        name: "new_order",
        columns: "
            no_o_id INT
            no_d_id INT
            no_w_id INT
        ",
        key: Some("no_w_id, no_d_id, no_o_id"),
        index: None,
    },
    Table {
        name: "orders",
        columns: "
            o_id INT
            o_d_id INT
            o_w_id INT
            o_c_id INT
            o_entry_d TIMESTAMP
            o_carrier_id INT NULL
            o_ol_cnt INT
            o_all_local INT
        ",
        key: Some("o_w_id, o_d_id, o_id"),
        index: Some("o_w_id, o_d_id, o_c_id, o_id"),
    },
    Table {
        name: "order_line",
        columns: "
            ol_o_id INT
            ol_d_id INT
            ol_w_id INT
            ol_number INT
            ol_i_id INT
            ol_supply_w_id INT
            ol_delivery_d TIMESTAMP NULL
            ol_quantity INT
            ol_amount DECIMAL(6,2)
            ol_dist_info CHAR(24)
        ",
        key: Some("ol_w_id, ol_d_id, ol_o_id, ol_number"),
        index: None,
    },
    Table {
        name: "stock",
        columns: "
            s_i_id INT
            s_w_id INT
            s_quantity INT
            s_dist_01 CHAR(24)
            s_dist_02 CHAR(24)
            s_dist_03 CHAR(24)
            s_dist_04 CHAR(24)
            s_dist_05 CHAR(24)
            s_dist_06 CHAR(24)
            s_dist_07 CHAR(24)
            s_dist_08 CHAR(24)
            s_dist_09 CHAR(24)
            s_dist_10 CHAR(24)
            s_ytd INT
            s_order_cnt INT
            s_remote_cnt INT
            s_data VARCHAR(50)
        ",
        key: Some("s_w_id, s_i_id"),
        index: None,
    },
];
