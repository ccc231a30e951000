//! For tests: bounds of memory, and how many commands are started.

use super::slots::Slots;
use super::{MAX_EARLY_RESPONSES, QueuePair, Transport};
use crate::services::Services;

impl<T: Transport, S: Services> QueuePair<T, S> {
    /// As [`QueuePair::refill`], to this number.
    pub fn set_budget(&mut self, commands: u32) {
        self.budget = commands;
    }

    /// Asserts the bounds of memory. Returns the charged bytes and the queue size; `None` before Connect.
    pub fn assert_bounded(&self) -> Option<(usize, usize)> {
        let responses = self.transport.unsent_responses();
        let Some(queue) = &self.queue else {
            assert!(responses <= MAX_EARLY_RESPONSES + 1, "{responses} unsent responses before Connect");
            return None;
        };
        let (size, in_use) = (usize::from(queue.size), queue.slots.in_use());
        let waiting = queue.waiting.len() + queue.ready.len() + queue.throttled.len();
        assert!(in_use + responses <= size + 1, "{in_use} commands and {responses} responses in a queue of {size}");
        assert!(waiting <= Slots::count(queue.size), "{waiting} commands wait in a queue of {size}");
        Some((queue.quota.held(), size))
    }
}
