//! Requests of the API that are being answered on threads of their own.
//!
//! The group is closed when none is left. Their threads are not waited for: one that had a request
//! to a disk that hangs ends only when the kernel has done with it.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use tokio::sync::OwnedSemaphorePermit;

/// A connection's place at its door, held until both the connection and the work that it asked for
/// have ended.
#[derive(Debug, Clone)]
pub(crate) struct Place(#[expect(dead_code, reason = "held")] Arc<OwnedSemaphorePermit>);

impl Place {
    pub(crate) fn new(permit: OwnedSemaphorePermit) -> Self {
        Self(Arc::new(permit))
    }
}

/// How many there are.
#[derive(Debug, Default)]
pub(crate) struct Underway {
    count: Mutex<usize>,
    ended: Condvar,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Begun {
    underway: Arc<Underway>,
    #[expect(dead_code, reason = "held")]
    place: Place,
}

impl Underway {
    pub(crate) fn begin(self: &Arc<Self>, place: Place) -> Begun {
        *self.count.lock() += 1;
        Begun {
            underway: self.clone(),
            place,
        }
    }

    /// Waits until none is left.
    pub(crate) fn wait(&self) {
        let mut count = self.count.lock();
        while *count > 0 {
            self.ended.wait(&mut count);
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        *self.underway.count.lock() -= 1;
        self.underway.ended.notify_all();
    }
}
