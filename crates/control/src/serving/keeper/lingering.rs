//! Daemons that have ended and that the kernel has not let go of, because a disk that hangs has requests
//! of theirs.
//!
//! A killed one's undertaker closes what else it held (`device/src/undertaker.rs`); the end of its socket
//! tells that. The next daemon is started then, and says where the group needs the disk that hangs.

use super::child::{self, Child};
use super::{Ended, Keeper};

/// A daemon that has ended and that the kernel has not let go of: a disk that hangs has requests of
/// it.
#[derive(Debug)]
pub(super) struct Lingering {
    pub(super) child: Child,
    /// It was killed. One that ended in order let go of its disks before.
    pub(super) was_killed: bool,
}

impl Lingering {
    /// Whether it holds its other disks as well: its undertaker has not closed them yet, or could not.
    fn holds_all(&self) -> bool {
        self.was_killed && !self.child.has_let_go()
    }
}

impl Keeper {
    /// A daemon has ended, and a disk that hangs keeps the kernel from letting go of it. One that
    /// said what became of the group has let go of its other disks, and is waited for no longer. One
    /// that was still closing it was killed: nobody has seen its status.
    pub(super) fn leave(&mut self, child: &Child, handed_over: bool, ending: bool) -> Ended {
        let ended = if handed_over {
            Ended::HandedOver
        } else if ending && self.closed.is_some() {
            Ended::Over(0)
        } else {
            Ended::Died("it was killed while a disk hung".to_owned())
        };
        let then = match ended {
            Ended::Died(_) if child.has_let_go() => {
                "the next one goes on without that disk where it can"
            }
            Ended::Died(_) => "the next one is started when the disk answers",
            Ended::Over(_) | Ended::HandedOver => "it is not waited for",
        };
        let message = format!(
            "process {} has ended, and a disk that hangs keeps the kernel from letting go of it: {then}",
            child.id()
        );
        tracing::error!("{message}");
        self.service.tell(&format!("STATUS={message}"));
        self.notice(&message, false);
        ended
    }

    pub(super) fn forget_gone(&mut self) {
        let killed_count = |lingering: &[Lingering]| {
            let killed = lingering.iter().filter(|former| former.was_killed);
            killed.count()
        };
        let before_count = killed_count(&self.lingering);
        self.lingering.retain_mut(|former| !former.child.is_gone());
        let left_count = killed_count(&self.lingering);
        if left_count < before_count || left_count == 0 {
            // It may have held the disk that is needed: the next daemon says so again where that is
            // another one's.
            self.needs_former = false;
        }
        child::reap_strangers(
            self.daemon_id,
            self.lingering.iter().map(|former| former.child.id()),
        );
    }

    /// Whether the next daemon may be tried although the last one needed a disk: no killed one holds all.
    pub(super) fn may_retry(&self) -> bool {
        self.needs_former && !self.lingering.iter().any(Lingering::holds_all)
    }

    /// Whether the kernel still holds disks for a daemon that was killed, without which there is no next
    /// one: all of them, or one that the group cannot do without. What that one asked of a disk may
    /// reach it after what the next one writes, and nobody could tell.
    pub(super) fn waits_for_kernel(&self) -> bool {
        self.needs_former || self.lingering.iter().any(Lingering::holds_all)
    }
}
