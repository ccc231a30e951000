//! Arrival of a command, and counting it when its response is written.

use pilotlight_reactor::cells::add;

use crate::caps::Limit;
use crate::latency::Sample;
use crate::latency::coarse::Pair;
use crate::stats::Counters;
use crate::subsystems::namespaces::Namespaces;
use crate::subsystems::views::ViewId;

/// Arrival of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Time of the poll that read it, or of its admission if it was throttled, in nanoseconds. 0 if it is not counted.
    pub poll_ns: u64,
    /// Its time at the socket.
    pub sample: Sample,
}

impl Arrival {
    /// A command that is not counted.
    pub const NONE: Self = Self { poll_ns: 0, sample: Sample::NONE };

    /// Counts `count` commands with responses written at `end_ns`.
    pub(crate) fn record(
        self,
        count: u64,
        end_ns: u64,
        into: &Counters,
        of_subsystem: Option<&Pair>,
        namespaces: &Namespaces,
    ) {
        let polled_ns = end_ns.saturating_sub(self.poll_ns);
        into.latency.record(polled_ns, count);
        if let Some(pair) = of_subsystem {
            pair[usize::from(self.sample.is_write())].record(polled_ns, count);
        }
        if self.sample.is_sampled() {
            let index = |nsid| namespaces.index_of(ViewId::whole(self.sample.subsystem()), nsid);
            let limit = self.sample.namespace().and_then(index).and_then(|index| namespaces.limit(index));
            self.sample.record(count, polled_ns, into, limit.map(|limit| &**limit));
        }
    }
}

impl Sample {
    /// Counts `count` commands with responses written `polled_ns` after the poll that read them.
    #[cold]
    fn record(self, count: u64, polled_ns: u64, into: &Counters, limit: Option<&Limit>) {
        let (ns, count) = (polled_ns + self.waited_ns(), count * u64::from(self.weight()));
        into.from_socket.histogram.record(ns, count);
        add(if self.is_stamped() { &into.from_socket.stamped } else { &into.from_socket.unstamped }, count);
        if let Some(histogram) = limit.and_then(|limit| limit.latency().histogram()) {
            histogram.record_shared(ns, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use pilotlight_plant::Window;
    use pilotlight_reactor::{Histogram, HistogramSnapshot};

    use super::*;

    #[test]
    fn samples_are_weighted() {
        let (counters, limit) = (Counters::default(), Limit::default());
        Sample::new(2, Some(2_000)).record(2, 1_000, &counters, Some(&limit));
        Sample::new(2, None).record(1, 3_000, &counters, None);
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
        sample.record(3, 100, &counters, Some(&limit));
        let window = reading.histogram().unwrap().snapshot();
        reading.note(&window, 9);
        let last = reading.last_window().expect("in use");
        assert_eq!((last.mean_ns, last.p50_ns), (1_000, window.percentile_ns(0.5)));
        assert_eq!(reading.window(0), Some(Window { ended_ns: 9, value: Some(1_000) }));
        reading.note(&HistogramSnapshot::default(), 10);
        assert_eq!(reading.window(2), Some(Window { ended_ns: 10, value: None }), "no request, no latency");
        assert_eq!(reading.last_window(), None);
        reading.set_wanted(false);
        sample.record(1, 100, &counters, Some(&limit));
        assert_eq!(reading.histogram.get().unwrap().snapshot(), window);
    }
}
