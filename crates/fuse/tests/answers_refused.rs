//! Requests whose answer is an error because it cannot be known whose the group is.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::RenameFlags;
use rustix::io::Errno;
use spindle_group::{Moment, Watch};
use support::Mounted;

/// A clock that stands still, and after some looks at it shows a time at which nothing is trusted
/// that was read before.
#[derive(Debug, Default)]
struct Sleeper {
    looks_left: AtomicU64,
    now_ms: AtomicU64,
}

impl Sleeper {
    fn watch(self: &Arc<Self>) -> Watch {
        let clock = Arc::clone(self);
        Watch {
            clock: Box::new(move || clock.look()),
            apart: Box::new(|work| std::thread::Builder::new().spawn(work).map(drop)),
        }
    }

    fn look(&self) -> Moment {
        let now_ms = match self.looks_left.load(Ordering::SeqCst) {
            0 => self.now_ms.load(Ordering::SeqCst),
            1 => {
                self.looks_left.store(0, Ordering::SeqCst);
                self.now_ms.fetch_add(60_000, Ordering::SeqCst)
            }
            _ => {
                self.looks_left.fetch_sub(1, Ordering::SeqCst);
                self.now_ms.load(Ordering::SeqCst)
            }
        };
        Moment {
            awake_ms: now_ms,
            booted_ms: now_ms,
        }
    }

    /// Lets `request` be refused when it has been done: the first look at the clock, before it,
    /// trusts what was read.
    fn refuse_after<T>(&self, mounted: &Mounted, request: impl FnOnce() -> Result<T, Errno>) {
        // Nothing else looks at the clock now.
        mounted.file_system.sync().unwrap();
        std::thread::sleep(Duration::from_millis(500));
        mounted.disks().pull_all();
        self.looks_left.store(1, Ordering::SeqCst);
        let refused = request().err();
        assert_eq!(self.looks_left.load(Ordering::SeqCst), 0);
        mounted.disks().plug_all();
        assert_eq!(refused, Some(Errno::IO));
    }
}

/// The kernel forgets soon after its answer.
fn assert_soon(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_kernel_forgets_names_of_what_was_made_and_answered_with_an_error() {
    let sleeper = Arc::new(Sleeper::default());
    let watch = sleeper.watch();
    let Some(mounted) = Mounted::watched(512 << 20, watch) else {
        return;
    };
    let at = |name: &str| mounted.root.join(name);
    let text = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    for name in ["conf", "conf.new", "goes"] {
        fs::write(at(name), name).unwrap();
        assert_eq!(text(&at(name)), name);
    }
    assert!(!at("made").exists());
    sleeper.refuse_after(&mounted, || {
        let (from, to) = (at("conf.new"), at("conf"));
        rustix::fs::renameat_with(
            rustix::fs::CWD,
            from,
            rustix::fs::CWD,
            to,
            RenameFlags::empty(),
        )
    });
    assert_soon("the new name", || text(&at("conf")) == "conf.new");
    assert_soon("the old name", || !at("conf.new").exists());
    sleeper.refuse_after(&mounted, || rustix::fs::unlink(at("goes")));
    assert_soon("what was removed", || !at("goes").exists());
    sleeper.refuse_after(&mounted, || {
        rustix::fs::mkdir(at("made"), rustix::fs::Mode::RWXU)
    });
    assert_soon("what was made", || at("made").is_dir());
}
