//! When the requests in progress of an I/O thread came: hybrid polling leaves each alone for a time ([`crate::CompletionMode::Hybrid`]).
//!
//! Completions count for the oldest requests. Memory is bounded: requests that come while all places are used count with the last
//! ones before them, so they are polled earlier than they have to be, never later.
//!
//! *Properties* (tests below): the oldest time is that of a naive queue while places last, and never later than it; nothing is
//! allocated.

/// Times that are kept apart: as many requests as a core has in progress where rests still matter.
const PLACES: usize = 32;

/// When requests in progress came, the oldest first.
#[derive(Clone, Copy, Debug)]
pub struct Arrivals {
    /// When, and how many; a ring.
    places: [(u64, u32); PLACES],
    first: usize,
    used: usize,
    held: u32,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self { places: [(0, 0); PLACES], first: 0, used: 0, held: 0 }
    }
}

impl Arrivals {
    /// After a poll that began at `now_ns`: it took `requests`, and left `in_progress`. Requests in progress that no poll before has
    /// reported count as taken by this one.
    pub fn note(&mut self, now_ns: u64, requests: u32, in_progress: u32) {
        let taken = requests.max(in_progress.saturating_sub(self.held));
        self.push(now_ns, taken);
        self.pop(self.held - in_progress);
    }

    /// When the oldest request in progress came, in nanoseconds of the plant's clock.
    #[must_use]
    pub fn oldest_ns(&self) -> Option<u64> {
        (self.used > 0).then(|| self.places[self.first].0)
    }

    fn push(&mut self, now_ns: u64, count: u32) {
        if count == 0 {
            return;
        }
        self.held += count;
        if self.used == PLACES {
            let last = (self.first + PLACES - 1) % PLACES;
            self.places[last].1 += count;
            return;
        }
        self.places[(self.first + self.used) % PLACES] = (now_ns, count);
        self.used += 1;
    }

    fn pop(&mut self, mut count: u32) {
        self.held -= count;
        while count > 0 {
            let oldest = &mut self.places[self.first].1;
            let gone = count.min(*oldest);
            *oldest -= gone;
            count -= gone;
            if *oldest == 0 {
                (self.first, self.used) = ((self.first + 1) % PLACES, self.used - 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Random polls beside a queue with a place for each request.
    #[test]
    fn the_oldest_is_that_of_a_queue_and_never_later() {
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
                assert!(most > PLACES as u64 || arrivals.oldest_ns() == expected, "{arrivals:?}");
            }
        }
    }

    #[test]
    fn requests_of_which_nobody_has_told_come_with_the_first_poll() {
        let mut arrivals = Arrivals::default();
        arrivals.note(7, 0, 3);
        arrivals.note(8, 1, 4);
        assert_eq!(arrivals.oldest_ns(), Some(7));
        arrivals.note(9, 0, 1);
        assert_eq!(arrivals.oldest_ns(), Some(8));
        arrivals.note(10, 2, 0);
        assert_eq!(arrivals.oldest_ns(), None, "taken and answered by one poll");
    }
}
