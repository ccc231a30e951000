//! Latencies of commands, from the poll that read them (for sampled ones from the socket, see `latency/mod.rs`) until their
//! response is written to the socket.
//!
//! The clock is read once, at the end of a poll that sent responses. Most of them belong to commands that arrived
//! together, so they are counted in groups, and each group is recorded at once.

use std::sync::Arc;

use pilotlight_nvmf_proto::arrival::Arrival;
use pilotlight_nvmf_proto::sample::Sample;
use pilotlight_nvmf_proto::services::NamespaceTable as _;
use pilotlight_nvmf_proto::subsystems::views::ViewId;
use pilotlight_reactor::cells::add;
use pilotlight_reactor::clock;

use crate::caps::Limit;
use crate::latency::coarse::Pair;
use crate::namespaces::Namespaces;
use crate::stats::Counters;

/// Groups per poll. Beyond that the clock is read again.
const GROUPS: usize = 64;

/// Source of the time at the end of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The system's clock.
    Monotonic,
    /// The time of the poll's start, for a caller with simulated time.
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
            record_arrival(arrival, count, end_ns, into, pair, namespaces);
        }
        self.used = 0;
    }
}

/// Counts `count` commands with responses written at `end_ns`.
fn record_arrival(
    arrival: Arrival,
    count: u64,
    end_ns: u64,
    into: &Counters,
    of_subsystem: Option<&Pair>,
    namespaces: &Namespaces,
) {
    let polled_ns = end_ns.saturating_sub(arrival.poll_ns);
    into.latency.record(polled_ns, count);
    if let Some(pair) = of_subsystem {
        pair[usize::from(arrival.sample.is_write())].record(polled_ns, count);
    }
    if arrival.sample.is_sampled() {
        let index = |nsid| namespaces.index_of(ViewId::whole(arrival.sample.subsystem()), nsid);
        let limit = arrival.sample.namespace().and_then(index).and_then(|index| namespaces.limit(index));
        record_sample(arrival.sample, count, polled_ns, into, limit.map(|limit| &**limit));
    }
}

/// Counts `count` commands with responses written `polled_ns` after the poll that read them.
#[cold]
fn record_sample(sample: Sample, count: u64, polled_ns: u64, into: &Counters, limit: Option<&Limit>) {
    let (ns, count) = (polled_ns + sample.waited_ns(), count * u64::from(sample.weight()));
    into.from_socket.histogram.record(ns, count);
    add(if sample.is_stamped() { &into.from_socket.stamped } else { &into.from_socket.unstamped }, count);
    if let Some(histogram) = limit.and_then(|limit| limit.latency().histogram()) {
        histogram.record_shared(ns, count);
    }
}

#[cfg(test)]
mod tests {
    use pilotlight_plant::Window;
    use pilotlight_reactor::{Histogram, HistogramSnapshot};

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

    #[test]
    fn samples_are_weighted() {
        let (counters, limit) = (Counters::default(), Limit::default());
        record_sample(Sample::new(2, Some(2_000)), 2, 1_000, &counters, Some(&limit));
        record_sample(Sample::new(2, None), 1, 3_000, &counters, None);
        let socket = counters.from_socket.snapshot();
        assert_eq!((socket.latency.count(), socket.stamped, socket.unstamped), (12, 8, 4));
        assert_eq!(socket.latency.mean_ns(), 3_000);
        assert!(limit.latency().histogram().is_none(), "not in use");
    }

    #[test]
    fn a_namespace_counts_while_in_use() {
        let (counters, limit) = (Counters::default(), Limit::default());
        let sample = Sample::new(0, Some(900));
        let reading = limit.latency();
        reading.set_wanted(true);
        reading.histogram.get_or_init(Histogram::default);
        record_sample(sample, 3, 100, &counters, Some(&limit));
        let window = reading.histogram().unwrap().snapshot();
        reading.note(&window, 9);
        let last = reading.last_window().expect("in use");
        assert_eq!((last.mean_ns, last.p50_ns), (1_000, window.percentile_ns(0.5)));
        assert_eq!(reading.window(0), Some(Window { ended_ns: 9, value: Some(1_000) }));
        reading.note(&HistogramSnapshot::default(), 10);
        assert_eq!(reading.window(2), Some(Window { ended_ns: 10, value: None }), "no request, no latency");
        assert_eq!(reading.last_window(), None);
        reading.set_wanted(false);
        record_sample(sample, 1, 100, &counters, Some(&limit));
        assert_eq!(reading.histogram.get().unwrap().snapshot(), window);
    }
}
