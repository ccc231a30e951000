//! How long commands stay: from the poll that read them, and of some from their socket on (`latency/mod.rs`), until their answer is with
//! the socket.
//!
//! The clock is read once, at the end of a poll in which answers have left. Most of them belong to commands that came
//! together, in this poll or in an earlier one; so they are counted in groups, and each group is recorded at once.

use std::sync::Arc;

use pilotlight_reactor::clock;

use crate::latency::coarse::Pair;
use crate::latency::{Arrival, Sample};
use crate::namespaces::Namespaces;
use crate::stats::Counters;

/// Groups of one poll. Should there be more, the clock is read once more.
const GROUPS: usize = 64;

/// Where the time at the end of a poll comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// From the system.
    Monotonic,
    /// A poll takes no time: for tests that hand time in.
    Handed,
}

/// Answers that have left in this poll, by the time when their commands came.
#[derive(Debug)]
pub struct Departures {
    clock: Clock,
    groups: [(Arrival, u64); GROUPS],
    used: usize,
    /// Where latencies are counted by subsystem, by its index, for those that hosts of this I/O thread have connected to.
    subsystems: Vec<Option<Arc<Pair>>>,
}

impl Departures {
    /// None yet.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self { clock, groups: [(Arrival::NONE, 0); GROUPS], used: 0, subsystems: Vec::new() }
    }

    /// A host has connected to this subsystem: its latencies are counted.
    pub(crate) fn open(&mut self, subsystem: usize, counters: &Counters) {
        let index = Sample::of_subsystem(subsystem, false).subsystem();
        if self.subsystems.len() <= index {
            self.subsystems.resize(index + 1, None);
        }
        self.subsystems[index].get_or_insert_with(|| counters.by_subsystem.open(index));
    }

    /// The answers to `count` commands that came at `arrival` have left, in the poll that began at `now_ns`. What came at 0 does not
    /// count.
    pub fn left(&mut self, arrival: Arrival, count: u64, now_ns: u64, into: &Counters, namespaces: &Namespaces) {
        if arrival.poll_ns == 0 || count == 0 {
            return;
        }
        match self.groups[..self.used].last_mut() {
            Some((arrived, counted)) if *arrived == arrival => return *counted += count,
            _ if self.used == GROUPS => self.record(now_ns, into, namespaces),
            _ => {}
        }
        self.groups[self.used] = (arrival, count);
        self.used += 1;
    }

    /// The poll that began at `now_ns` ends.
    #[inline]
    pub fn record(&mut self, now_ns: u64, into: &Counters, namespaces: &Namespaces) {
        if self.used == 0 {
            return;
        }
        let end_ns = match self.clock {
            Clock::Monotonic => clock::now_ns(),
            Clock::Handed => now_ns,
        };
        for &(arrival, count) in &self.groups[..self.used] {
            let pair = self.subsystems.get(arrival.sample.subsystem()).and_then(Option::as_deref);
            arrival.record(count, end_ns, into, pair, namespaces);
        }
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_is_counted_once_in_whatever_groups() {
        let (mut departures, counters) = (Departures::new(Clock::Handed), Counters::default());
        let namespaces = Namespaces::new().expect("a bell");
        let at = |poll_ns| Arrival { poll_ns, ..Arrival::NONE };
        departures.record(5, &counters, &namespaces);
        (0..5).for_each(|_| departures.left(at(90), 2, 100, &counters, &namespaces));
        departures.left(at(0), 7, 100, &counters, &namespaces);
        (0..2 * GROUPS as u64).for_each(|n| departures.left(at(50 + n % 2), 1, 100, &counters, &namespaces));
        departures.record(100, &counters, &namespaces);
        let snapshot = counters.latency.snapshot();
        assert_eq!((snapshot.count(), snapshot.max_ns()), (10 + 2 * GROUPS as u64, 50));
        assert_eq!(snapshot.percentile_ns(0.05), 10);
        departures.record(200, &counters, &namespaces);
        assert_eq!(counters.latency.snapshot(), snapshot);
    }

    #[test]
    fn a_sampled_command_counts_twice_and_others_of_its_poll_once() {
        let (mut departures, counters) = (Departures::new(Clock::Handed), Counters::default());
        let namespaces = Namespaces::new().expect("a bell");
        let sample = Sample::new(2, Some(2_000));
        for sample in [sample, Sample::NONE] {
            departures.left(Arrival { poll_ns: 3_000, sample }, 2, 4_000, &counters, &namespaces);
        }
        departures.record(4_000, &counters, &namespaces);
        let (polled, socket) = (counters.latency.snapshot(), counters.from_socket.snapshot().latency);
        assert_eq!((polled.count(), polled.mean_ns()), (4, 1_000));
        assert_eq!((socket.count(), socket.mean_ns()), (8, 3_000));
    }
}
