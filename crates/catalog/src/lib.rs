//! The group's metadata: transactions over a replicated region.
//!
//! Every change is an [`Edit`]. Edits gather in memory in the order of [`Catalog::apply`] and
//! are readable at once; [`Catalog::commit`] makes all edits applied before it durable, as one
//! record of the journal, or in one transaction of `redb` where the journal is full. A crash
//! keeps a prefix of the commits, never a part of one.
//!
//! Invariants: a reader sees, for each key, the newest applied edit (pending, then the batch
//! that is being committed, then what the journal holds, then `redb`). Only block 0 of the region is ever overwritten while
//! the last commit still needs it; every other write goes to blocks that no committed tree
//! reaches (`docs/decisions/catalog-commit.md` says why and what it costs). No clock, no thread
//! and no randomness: a run of calls gives the same region bytes every time.

mod backend;
mod catalog;
mod commit;
mod edit;
mod error;
mod journal;
mod kept;
mod levels;
#[cfg(test)]
mod memory_region;
mod overlay;
mod region;
mod room;
mod store;
mod table;

pub use catalog::{Catalog, Row, Visit};
pub use commit::{BegunCommit, TakenBatch};
pub use edit::Edit;
pub use error::CatalogError;
#[cfg(feature = "loom")]
pub use kept::models;
pub use kept::{
    BlockSlot, Bracket, Claim, Connection, KeptJournal, LeftBlock, LostBlock, Recovered,
    RecoveredExtent, RequestUnderWay, Standing, Touch, TouchSlot, UnwrittenBlocks, WORKERS_MAX,
    WriteUnderWay,
};
pub use levels::Committing;
pub use region::{JournalCopy, Journals, Region};
pub use room::{Rows, Wish};
pub use spindle_base::Sequence;
pub use table::{Table, file_key};
