//! A lock that many share and one may have alone, which those may share past a waiting one who
//! hold something that it waits for.
//!
//! Whoever comes to have it alone keeps new sharers out, so that it is not starved; but a sharer
//! for whom somebody waits who shares already (and so keeps out the one who waits to be alone)
//! must not stand behind that one, or the three wait in a circle. Such sharers say so.

#[cfg(not(any(feature = "simulated", feature = "loom")))]
mod lock {
    use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

    /// See the module.
    #[derive(Debug, Default)]
    pub struct InsideLock(RwLock<()>);

    /// It is shared as long as this lives.
    pub type InsideReadGuard<'a> = RwLockReadGuard<'a, ()>;
    /// It is had alone as long as this lives.
    pub type InsideWriteGuard<'a> = RwLockWriteGuard<'a, ()>;

    impl InsideLock {
        /// Shares it, behind those who wait to have it alone.
        pub fn read(&self) -> InsideReadGuard<'_> {
            self.0.read()
        }

        /// Shares it, past those who wait to have it alone.
        pub fn read_inside(&self) -> InsideReadGuard<'_> {
            self.0.read_recursive()
        }

        /// Has it alone.
        pub fn write(&self) -> InsideWriteGuard<'_> {
            self.0.write()
        }
    }
}

#[cfg(any(feature = "simulated", feature = "loom"))]
mod lock {
    use crate::{Condvar, Mutex};

    #[derive(Debug, Default)]
    struct State {
        sharers_count: u32,
        is_alone: bool,
        waiting_to_be_alone_count: u32,
    }

    /// See the module.
    #[derive(Debug, Default)]
    pub struct InsideLock {
        state: Mutex<State>,
        changed: Condvar,
    }

    /// It is shared as long as this lives.
    #[derive(Debug)]
    pub struct InsideReadGuard<'a>(&'a InsideLock);
    /// It is had alone as long as this lives.
    #[derive(Debug)]
    pub struct InsideWriteGuard<'a>(&'a InsideLock);

    impl InsideLock {
        /// Shares it, behind those who wait to have it alone.
        pub fn read(&self) -> InsideReadGuard<'_> {
            let mut state = self.state.lock();
            while state.is_alone || state.waiting_to_be_alone_count > 0 {
                self.changed.wait(&mut state);
            }
            state.sharers_count += 1;
            InsideReadGuard(self)
        }

        /// Shares it, past those who wait to have it alone.
        pub fn read_inside(&self) -> InsideReadGuard<'_> {
            let mut state = self.state.lock();
            while state.is_alone {
                self.changed.wait(&mut state);
            }
            state.sharers_count += 1;
            InsideReadGuard(self)
        }

        /// Has it alone.
        pub fn write(&self) -> InsideWriteGuard<'_> {
            let mut state = self.state.lock();
            state.waiting_to_be_alone_count += 1;
            while state.is_alone || state.sharers_count > 0 {
                self.changed.wait(&mut state);
            }
            state.waiting_to_be_alone_count -= 1;
            state.is_alone = true;
            InsideWriteGuard(self)
        }
    }

    impl Drop for InsideReadGuard<'_> {
        fn drop(&mut self) {
            self.0.state.lock().sharers_count -= 1;
            self.0.changed.notify_all();
        }
    }

    impl Drop for InsideWriteGuard<'_> {
        fn drop(&mut self) {
            self.0.state.lock().is_alone = false;
            self.0.changed.notify_all();
        }
    }
}

pub use lock::{InsideLock, InsideReadGuard, InsideWriteGuard};

#[cfg(all(test, not(any(feature = "simulated", feature = "loom"))))]
mod tests {
    use super::InsideLock;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn whoever_is_inside_shares_past_one_who_waits_to_be_alone() {
        let lock = InsideLock::default();
        let is_alone = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let first = lock.read();
            scope.spawn(|| {
                let _alone = lock.write();
                is_alone.store(true, Ordering::SeqCst);
            });
            // It has come when a newcomer has to stand behind it; this one must not.
            std::thread::sleep(std::time::Duration::from_millis(20));
            drop(lock.read_inside());
            assert!(!is_alone.load(Ordering::SeqCst));
            drop(first);
        });
        assert!(is_alone.load(Ordering::SeqCst));
    }
}
