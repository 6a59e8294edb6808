//! The lock of a file's map.
//!
//! A map changes within a change only: else a commit could take a half of it. So whoever wants to
//! change it shows that the change lock is held.

use spindle_extent::map::Map;
use spindle_sync::level::{Holds, ReadGuard, RwLock, Unshown, WriteGuard};

use crate::levels;

/// See the module.
#[derive(Debug)]
pub(crate) struct MapLock(RwLock<Map, levels::Map>);

/// A map that its holder may change.
pub(crate) type MapWriteGuard<'a> = WriteGuard<'a, Map, levels::Map>;

impl MapLock {
    pub(crate) fn new(map: Map) -> Self {
        Self(RwLock::new(map))
    }

    /// Looks at it. A look needs nothing else held, and is taken in so many deep places, with a
    /// range, a change or nothing, that none is asked for.
    pub(crate) fn read(&self) -> ReadGuard<'_, Map, levels::Map> {
        self.0.read(Unshown)
    }

    /// Has it to change it, within that change.
    pub(crate) fn write(&self, change: &impl Holds<Level = levels::Change>) -> MapWriteGuard<'_> {
        self.0.write(change)
    }

    /// Has it to load it, while the group is being opened and there is nothing to change yet.
    pub(crate) fn load(&self) -> MapWriteGuard<'_> {
        self.0.write(Unshown)
    }
}
