//! The last daemon: it only writes what waits and closes the group. Where it does not come so far, what
//! programs were answered for goes with the keeper's memory.
//!
//! One that refuses, and says why, is not followed by another. One that died without a word, or could
//! not begin for want of something that the machine may have a moment later, is, until [`DEATHS_MOST`]
//! have died. One that the machine cannot even start is tried for as long as nobody says otherwise.

use std::time::Duration;

use super::child::Signals;
use super::{DEATHS_MOST, Keeper, LOOK_INTERVAL, PAUSES_MS};

impl Keeper {
    /// The daemon ends and has not closed the group.
    pub(super) fn note_refusal(&mut self, why: String, may_pass: bool) {
        self.closed = Some(Err(why));
        self.may_pass = may_pass;
    }

    /// Whether another last daemon is to be tried after one that died, or could not be started: after a
    /// pause.
    pub(super) async fn tries_last_again(
        &mut self,
        has_started: bool,
        signals: &mut Signals,
    ) -> bool {
        if !has_started {
            self.pause_before_last(LOOK_INTERVAL, signals).await;
            return true;
        }
        // It may have died of a mount that somebody took away in that moment.
        if self.needs_former || self.mount_is_gone() {
            return true;
        }
        self.last_deaths_count += 1;
        let has_refused = matches!(self.closed, Some(Err(_))) && !self.may_pass;
        if has_refused || self.last_deaths_count >= DEATHS_MOST {
            return false;
        }
        let pause_ms = PAUSES_MS[self.last_deaths_count.min(PAUSES_MS.len() - 1)];
        self.pause_before_last(Duration::from_millis(pause_ms), signals)
            .await;
        true
    }

    /// Commands and whoever supervises this process are answered meanwhile.
    async fn pause_before_last(&mut self, length: Duration, signals: &mut Signals) {
        self.service.tell("WATCHDOG=1");
        let pause = tokio::time::sleep(length);
        tokio::pin!(pause);
        loop {
            tokio::select! {
                () = &mut pause => return,
                asked = self.commands.recv() => if let Some(asked) = asked {
                    self.serve_command(asked, None).await;
                    // It is tried again in any case.
                    self.go_on = false;
                },
                () = signals.received() => {
                    self.hear_the_end();
                    return;
                }
            }
        }
    }
}
