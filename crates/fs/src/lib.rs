//! Names, directories, POSIX attributes and semantics over group files.
//!
//! Invariants:
//! - An operation on names or attributes is one change of the group: one commit has all of it or
//!   nothing. The exceptions are sizes and times that data writes move: they live in the node
//!   until a commit is asked for, an aged flush comes, or another operation writes the inode.
//! - A size never becomes durable before the bytes below it: it enters an edit only after the
//!   write below returned, and a commit flushes the data before it writes the edit.
//! - A file without a name has an orphan row in the same edit that took its last name, so that
//!   a crash never leaks it.
//!
//! A crash loses what no commit took. What it can leave half done is only space: bytes beyond
//! the end of a file, which are cleaned before the end moves over them, and orphans, which the
//! next opening removes.
//!
//! Locks, always taken in this order: the names (`Core::names`), a node's content, the group's
//! change, a node's state (one at a time), then leaves (tables, listings, the set of dirty nodes).
//!
//! Permissions are the kernel's business; who may mount is the front door's.

mod activity;
mod allocate;
mod attribute;
mod behind;
mod check;
mod clients;
mod copy;
mod create;
mod data;
mod directory;
mod error;
mod extended;
mod handle;
mod kept;
mod levels;
mod link;
mod node;
mod node_table;
mod orphan;
mod page_judge;
mod path;
mod pattern;
mod redundancy;
mod remove;
mod rename;
mod row;
mod setattr;
mod space;
mod sync;
mod system;
mod template;
mod told;
mod verify;

pub use activity::FileActivity;
pub use attribute::{Asked, AttributeChange, Attributes, Entry, Kind, Owner, RenameMode, Time};
pub use check::Checked;
pub use data::FILE_SIZE_BYTES_MAX;
pub use error::{FsError, FsResult};
pub use handle::Handle;
pub use kept::{Asking, Forgotten, KeptBytes};
pub use link::LINKS_COUNT_MAX;
pub use redundancy::Converted;
pub use space::Space;
pub use system::FileSystem;
pub use template::{Caching, Template, TemplateCaching};
pub use told::Forgetting;
