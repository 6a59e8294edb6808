//! The order of writers: one at a time, in the order in which they came.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};

/// Whose turn it is. Whoever enters leaves, whatever happens in between.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_taken: bool,
    waiting: VecDeque<(Thread, Arc<AtomicBool>)>,
}

impl Queue {
    /// Waits for the turn of this thread.
    pub fn enter(&self) {
        let my_turn = Arc::new(AtomicBool::new(false));
        {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if !state.is_taken {
                state.is_taken = true;
                return;
            }
            state
                .waiting
                .push_back((thread::current(), Arc::clone(&my_turn)));
        }
        // A thread may wake for no reason.
        while !my_turn.load(Ordering::Acquire) {
            thread::park();
        }
    }

    /// Gives the turn to the next.
    pub fn leave(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // It stays taken where somebody waits: nobody who comes now overtakes.
        match state.waiting.pop_front() {
            Some((thread, turn)) => {
                turn.store(true, Ordering::Release);
                thread.unpark();
            }
            None => state.is_taken = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn writers_have_their_turn_in_the_order_in_which_they_came() {
        let queue = Arc::new(Queue::default());
        let order = Arc::new(Mutex::new(Vec::new()));
        queue.enter();
        let writers: Vec<_> = (0..5)
            .map(|number| {
                let queue_of_its_own = Arc::clone(&queue);
                let order = Arc::clone(&order);
                let writer = thread::spawn(move || {
                    queue_of_its_own.enter();
                    order.lock().unwrap().push(number);
                    queue_of_its_own.leave();
                });
                while queue.state.lock().unwrap().waiting.len() <= number {
                    thread::sleep(Duration::from_millis(1));
                }
                writer
            })
            .collect();
        queue.leave();
        for writer in writers {
            writer.join().unwrap();
        }
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4]);
        assert!(!queue.state.lock().unwrap().is_taken);
    }
}
