//! Sorts requests by time in a bounded window.
//!
//! Most requests are nearly in order, so insertion searches from the back. A request that is older than the last one returned gets that
//! one's time.

use std::collections::VecDeque;

use super::fields::Raw;

pub(super) struct Order {
    waiting: VecDeque<Raw>,
    window: usize,
    last_ns: u64,
    late: u64,
}

impl Order {
    pub(super) fn new(window: usize) -> Self {
        Self { waiting: VecDeque::with_capacity(window.saturating_add(1).min(1 << 20)), window, last_ns: 0, late: 0 }
    }

    /// Whether one must be popped before the next push.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() > self.window
    }

    pub(super) fn push(&mut self, mut raw: Raw) {
        if raw.clock_ns < self.last_ns {
            raw.clock_ns = self.last_ns;
            self.late += 1;
        }
        let behind = self.waiting.iter().rev().take_while(|other| other.clock_ns > raw.clock_ns).count();
        self.waiting.insert(self.waiting.len() - behind, raw);
    }

    pub(super) fn pop(&mut self) -> Option<Raw> {
        let raw = self.waiting.pop_front()?;
        self.last_ns = raw.clock_ns;
        Some(raw)
    }

    /// Requests that were too late for the window.
    pub(super) fn late(&self) -> u64 {
        self.late
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Op;
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    /// The sorted requests and the number of late ones.
    fn through(times: &[u64], window: usize) -> (Vec<(u64, u64)>, u64) {
        let mut order = Order::new(window);
        let mut left = Vec::new();
        for (at, &clock_ns) in times.iter().enumerate() {
            order.push(Raw { clock_ns, volume: 0, op: Op::Read, offset: at as u64, bytes: 1 });
            if order.is_full() {
                left.extend(order.pop());
            }
        }
        left.extend(std::iter::from_fn(|| order.pop()));
        (left.into_iter().map(|raw| (raw.clock_ns, raw.offset)).collect(), order.late())
    }

    proptest! {
        #[test]
        fn a_window_as_long_as_the_trace_sorts_it(times in proptest::collection::vec(0_u64..50, 0..100)) {
            let mut sorted: Vec<(u64, u64)> = times.iter().copied().zip(0..).collect();
            sorted.sort();
            prop_assert_eq!(through(&times, times.len()), (sorted, 0));
        }

        #[test]
        fn all_requests_are_returned_and_time_does_not_decrease(
            times in proptest::collection::vec(0_u64..1000, 0..200), window in 0_usize..20,
        ) {
            let (left, late) = through(&times, window);
            prop_assert!(left.is_sorted_by_key(|&(at, _)| at));
            let mut numbers: Vec<u64> = left.iter().map(|&(_, number)| number).collect();
            numbers.sort_unstable();
            prop_assert_eq!(numbers, (0..times.len() as u64).collect::<Vec<_>>());
            let changed = left.iter().filter(|&&(at, number)| times[number as usize] != at).count() as u64;
            prop_assert_eq!(changed, late);
        }
    }
}
