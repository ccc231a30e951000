//! Arrival times of an I/O thread's requests in progress: hybrid polling needs them ([`crate::CompletionMode::Hybrid`]).
//!
//! Completions are attributed to the oldest requests. Memory is bounded: if all slots are used, new requests join the newest slot, so
//! they are polled early, never late.
//!
//! *Properties* (tests below): the oldest time equals that of a plain queue while slots last, and is never later; no allocation.

/// Number of separate times: a core with more requests in progress is too busy to rest.
const SLOTS: usize = 32;

/// Arrival times of requests in progress, the oldest first.
#[derive(Clone, Copy, Debug)]
pub struct Arrivals {
    /// Ring of (time, number of requests).
    slots: [(u64, u32); SLOTS],
    first: usize,
    used: usize,
    held: u32,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self { slots: [(0, 0); SLOTS], first: 0, used: 0, held: 0 }
    }
}

impl Arrivals {
    /// Records a poll that began at `now_ns`, took `requests` and left `in_progress`. Requests in progress that no earlier poll reported
    /// count as taken by this one.
    pub fn note(&mut self, now_ns: u64, requests: u32, in_progress: u32) {
        let taken = requests.max(in_progress.saturating_sub(self.held));
        self.push(now_ns, taken);
        self.pop(self.held - in_progress);
    }

    /// Arrival time of the oldest request in progress, in nanoseconds of the plant's clock.
    #[must_use]
    pub fn oldest_ns(&self) -> Option<u64> {
        (self.used > 0).then(|| self.slots[self.first].0)
    }

    fn push(&mut self, now_ns: u64, count: u32) {
        if count == 0 {
            return;
        }
        self.held += count;
        if self.used == SLOTS {
            let last = (self.first + SLOTS - 1) % SLOTS;
            self.slots[last].1 += count;
            return;
        }
        self.slots[(self.first + self.used) % SLOTS] = (now_ns, count);
        self.used += 1;
    }

    fn pop(&mut self, mut count: u32) {
        self.held -= count;
        while count > 0 {
            let oldest = &mut self.slots[self.first].1;
            let gone = count.min(*oldest);
            *oldest -= gone;
            count -= gone;
            if *oldest == 0 {
                (self.first, self.used) = ((self.first + 1) % SLOTS, self.used - 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Random polls, compared with a plain queue.
    #[test]
    fn the_oldest_arrival_is_never_later_than_in_a_plain_queue() {
        for most in [8_u64, 100] {
            let (mut seed, mut arrivals, mut queue) = (most, Arrivals::default(), VecDeque::new());
            let mut below = |limit: u64| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (seed >> 33) % limit
            };
            for now_ns in 0..20_000 {
                let (requests, answers) = (below(3).min(most - queue.len() as u64), below(3));
                queue.extend((0..requests).map(|_| now_ns));
                queue.drain(..queue.len().min(answers as usize));
                arrivals.note(now_ns, requests as u32, queue.len() as u32);
                let expected = queue.front().copied();
                assert_eq!(arrivals.oldest_ns().is_some(), expected.is_some());
                assert!(arrivals.oldest_ns() <= expected, "{arrivals:?}");
                assert!(most > SLOTS as u64 || arrivals.oldest_ns() == expected, "{arrivals:?}");
            }
        }
    }

    #[test]
    fn unreported_requests_arrive_with_the_first_poll() {
        let mut arrivals = Arrivals::default();
        arrivals.note(7, 0, 3);
        arrivals.note(8, 1, 4);
        assert_eq!(arrivals.oldest_ns(), Some(7));
        arrivals.note(9, 0, 1);
        assert_eq!(arrivals.oldest_ns(), Some(8));
        arrivals.note(10, 2, 0);
        assert_eq!(arrivals.oldest_ns(), None, "taken and completed in one poll");
    }
}
