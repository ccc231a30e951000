//! Latencies of commands, from the poll that read them (for sampled ones from the socket, see `latency/mod.rs`) until their
//! response is written to the socket.
//!
//! The clock is read once, at the end of a poll that sent responses. Most of them belong to commands that arrived
//! together, so they are counted in groups, and each group is recorded at once.

use std::sync::Arc;

use pilotlight_reactor::clock;

use crate::latency::Sample;
use crate::latency::coarse::Pair;
use crate::queue_pair::Arrival;
use crate::stats::Counters;
use crate::subsystems::namespaces::Namespaces;

/// Groups per poll. Beyond that the clock is read again.
const GROUPS: usize = 64;

/// Source of the time at the end of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The system's clock.
    Monotonic,
    /// The time of the poll's start, for tests with simulated time.
    Simulated,
}

/// Responses sent in this poll, by the arrival of their commands.
#[derive(Debug)]
pub struct LatencyBatch {
    clock: Clock,
    groups: [(Arrival, u64); GROUPS],
    used: usize,
    /// Histograms of subsystems by index, for those with connections on this I/O thread.
    subsystems: Vec<Option<Arc<Pair>>>,
}

impl LatencyBatch {
    /// An empty batch.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self { clock, groups: [(Arrival::NONE, 0); GROUPS], used: 0, subsystems: Vec::new() }
    }

    /// Enables the histograms of a subsystem with a connection.
    pub(crate) fn open(&mut self, subsystem: usize, counters: &Counters) {
        let index = Sample::of_subsystem(subsystem, false).subsystem();
        if self.subsystems.len() <= index {
            self.subsystems.resize(index + 1, None);
        }
        self.subsystems[index] = Some(counters.by_subsystem.open(index)); // new ones if another subsystem has got the place
    }

    /// Adds `count` responses sent in the poll that began at `now_ns`. An arrival at 0 is ignored.
    pub fn add(&mut self, arrival: Arrival, count: u64, now_ns: u64, into: &Counters, namespaces: &Namespaces) {
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

    /// Records the batch at the end of the poll that began at `now_ns`.
    #[inline]
    pub fn record(&mut self, now_ns: u64, into: &Counters, namespaces: &Namespaces) {
        if self.used == 0 {
            return;
        }
        let end_ns = match self.clock {
            Clock::Monotonic => clock::now_ns(),
            Clock::Simulated => now_ns,
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
    fn every_response_is_counted_once() {
        let (mut batch, counters) = (LatencyBatch::new(Clock::Simulated), Counters::default());
        let namespaces = Namespaces::new().expect("a bell");
        let at = |poll_ns| Arrival { poll_ns, ..Arrival::NONE };
        batch.record(5, &counters, &namespaces);
        (0..5).for_each(|_| batch.add(at(90), 2, 100, &counters, &namespaces));
        batch.add(at(0), 7, 100, &counters, &namespaces);
        (0..2 * GROUPS as u64).for_each(|n| batch.add(at(50 + n % 2), 1, 100, &counters, &namespaces));
        batch.record(100, &counters, &namespaces);
        let snapshot = counters.latency.snapshot();
        assert_eq!((snapshot.count(), snapshot.max_ns()), (10 + 2 * GROUPS as u64, 50));
        assert_eq!(snapshot.percentile_ns(0.05), 10);
        batch.record(200, &counters, &namespaces);
        assert_eq!(counters.latency.snapshot(), snapshot);
    }

    #[test]
    fn sampled_commands_also_count_from_the_socket() {
        let (mut batch, counters) = (LatencyBatch::new(Clock::Simulated), Counters::default());
        let namespaces = Namespaces::new().expect("a bell");
        let sample = Sample::new(2, Some(2_000));
        for sample in [sample, Sample::NONE] {
            batch.add(Arrival { poll_ns: 3_000, sample }, 2, 4_000, &counters, &namespaces);
        }
        batch.record(4_000, &counters, &namespaces);
        let (polled, socket) = (counters.latency.snapshot(), counters.from_socket.snapshot().latency);
        assert_eq!((polled.count(), polled.mean_ns()), (4, 1_000));
        assert_eq!((socket.count(), socket.mean_ns()), (8, 3_000));
    }
}
