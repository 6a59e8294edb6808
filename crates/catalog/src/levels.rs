//! Where the catalog's locks stand in the order of locks of whoever has it open.
//!
//! The committer's is held over a whole commit, in which its owner takes locks of its own: so it
//! has a level, which the owner lists among those. The others have none, because nothing that is
//! not the catalog's is taken below them but the region's: who renews the reader, then the overlay,
//! then the log of a kept journal. They may be taken with any lock of the owner's held.

spindle_sync::levels! {
    /// Held over a commit: no other runs meanwhile.
    Committing = 20, "the commit that runs";
}
