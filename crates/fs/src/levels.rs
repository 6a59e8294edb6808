//! Where the locks of files and names stand. The group's own stand between `Shard` and
//! [`NodeState`] and behind it (`crates/group/src/levels.rs`): one scale of places, which the check
//! of `spindle_sync::level` looks at. All of these are taken from many depths, so none asks for a
//! guard.

spindle_sync::levels! {
    /// Held to look names up or to change them, over the rows that are read for it.
    Names = 2, "the names";
    /// A file's content; held over its reads, writes and the commits that these ask for.
    Content = 4, "a file's content";
    /// What is known of all names while a scrub runs; held while it is read.
    NameIndex = 5, "the index of names";
    /// Nodes are loaded under it.
    Shard = 6, "a shard of the nodes";
    /// The entries of a directory; held while they are read.
    Listing = 7, "the listing of a directory";
    /// A node's state. It is taken within operations, which have the group's change lock, and none
    /// begins while it is held.
    NodeState = 45, "a node's state";
    /// The files with blocks that wait to be written; whether one has any is asked under it.
    UnwrittenFiles = 46, "the files with blocks to be written";
}
