//! Requests whose operation fell out of a full log of the kept journal.
//!
//! A request that is done is in the log, with its operation. Where the log is full neither is; both
//! wait for a commit, and nobody is answered before it. A process that is killed when the commit is
//! durable, and before it has let the log go on, would leave an operation that is done and a request
//! that nobody knows as done: the kernel asks again, and what cannot be done twice fails. So such a
//! request is a row of the catalog, `done.WORKER`, of the same change and so of the same commit.
//!
//! Only who takes over reads the rows. They are taken away when a new mount begins, whose kernel counts
//! its requests from the beginning; until then a worker's next one takes the place of the one before.

use spindle_catalog::{Catalog, CatalogError, Edit, FellOut, Table};

const KEY_START: &str = "done.";
/// Behind every such key.
const KEYS_END: &[u8] = b"done/";
/// More than there are workers.
const ROWS_MOST: usize = 1024;

/// The catalog says from the next commit on that the request is done. Its change is open.
pub(super) fn note(catalog: &Catalog, fell_out: FellOut) {
    let key = format!("{KEY_START}{}", fell_out.worker);
    let value = fell_out.unique.to_string();
    let mut edit = Edit::default();
    edit.put(Table::Attribute, key.into_bytes(), value.into_bytes());
    catalog.apply(edit);
}

/// The requests that the catalog knows as done.
pub(in crate::core) fn noted(catalog: &Catalog) -> Result<Vec<u64>, CatalogError> {
    let rows = catalog.range(Table::Attribute, KEY_START.as_bytes(), KEYS_END, ROWS_MOST)?;
    let number = |value: &[u8]| std::str::from_utf8(value).ok()?.parse().ok();
    Ok((rows.iter())
        .filter_map(|(_, value)| number(value))
        .collect())
}

/// A new mount begins: no request of an earlier one is asked again.
pub(in crate::core) fn forget(catalog: &Catalog) -> Result<(), CatalogError> {
    let rows = catalog.range(Table::Attribute, KEY_START.as_bytes(), KEYS_END, ROWS_MOST)?;
    let mut edit = Edit::default();
    for (key, _) in rows {
        edit.delete(Table::Attribute, key);
    }
    if !edit.is_empty() {
        catalog.apply(edit);
    }
    Ok(())
}
