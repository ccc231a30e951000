//! Latency and load of an interval (the paper's Unified Collector).
//!
//! Latency of the server is a reading if the plant has one; else the mean service time of the I/O threads, which excludes the time that a request waits
//! for its first poll. The number of requests to a namespace is estimated by its share of the bytes.

use pilotlight_plant::{Capabilities, Quantity, Reading, ReadingId, Sample, Scope, Stat};

use super::load::Load;
use super::stability::Latency;

/// The sources that are read.
#[derive(Debug)]
pub(super) struct Readings {
    /// Whose requests.
    scope: Scope,
    /// Statistics of their latency, and the lengths of their windows.
    latencies: Vec<(Stat, ReadingId, u64)>,
    /// The wanted statistic.
    stat: Stat,
    /// Bytes read a second, and written, of these requests' namespaces; of all.
    read: Vec<ReadingId>,
    written: Vec<ReadingId>,
    all: Vec<ReadingId>,
    /// End of the last used window of latency.
    used_ns: u64,
    /// Requests completed since then.
    answered: u64,
}

impl Readings {
    /// With this statistic of latency; the mean if the plant does not measure it.
    pub(super) fn new(scope: Scope, stat: Stat) -> Self {
        let (read, written, all) = (Vec::new(), Vec::new(), Vec::new());
        Self { scope, latencies: Vec::new(), stat, read, written, all, used_ns: 0, answered: 0 }
    }

    /// Finds the sources of a plant.
    pub(super) fn find(&mut self, capabilities: &Capabilities) {
        let source = |stat| {
            let (id, source) = capabilities.find_source(self.scope, Quantity::LatencyNs(stat))?;
            Some((stat, id, source.window_ns))
        };
        self.latencies = [Stat::Mean, Stat::P50, Stat::P99].into_iter().filter_map(source).collect();
        let own = self.scope;
        let of_namespaces = |quantity, is_all: bool| {
            let is_one =
                move |scope| matches!(scope, Scope::Namespace(_)) && (is_all || own == Scope::Server || scope == own);
            capabilities.sources_of(quantity).filter(move |(_, source)| is_one(source.scope)).map(|(id, _)| id)
        };
        self.read = of_namespaces(Quantity::ReadBytesPerS, false).collect();
        self.written = of_namespaces(Quantity::WrittenBytesPerS, false).collect();
        let all = [Quantity::ReadBytesPerS, Quantity::WrittenBytesPerS].map(|quantity| of_namespaces(quantity, true));
        self.all = all.into_iter().flatten().collect();
    }

    fn source(&self) -> Option<(ReadingId, u64)> {
        let of = |stat| self.latencies.iter().find(|(known, ..)| *known == stat);
        of(self.stat).or_else(|| of(Stat::Mean)).map(|&(_, id, window_ns)| (id, window_ns))
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = ReadingId> {
        self.source().into_iter().map(|(id, _)| id).chain(self.all.iter().copied())
    }

    /// The part of the server's requests that counts here.
    fn own(&self, requests: u64, readings: &[Reading]) -> u64 {
        if self.scope == Scope::Server {
            return requests;
        }
        let bytes = |ids: &[ReadingId]| ids.iter().filter_map(|&id| find(readings, id)?.value).sum::<u64>() as f64;
        let part = (bytes(&self.read) + bytes(&self.written)) / bytes(&self.all).max(1.0);
        (requests as f64 * part).round() as u64
    }

    /// Latency of requests, and the start of their window; `None` without a new reading.
    pub(super) fn latency(&mut self, sample: &Sample<'_>) -> Option<(Latency, u64)> {
        let (answered, in_progress_ns) =
            sample.threads.iter().fold((0, 0), |sum, thread| (sum.0 + thread.answered, sum.1 + thread.in_progress_ns));
        let Some((id, window_ns)) = self.source() else {
            if self.scope != Scope::Server {
                return None;
            }
            let latency = Latency { ns: in_progress_ns as f64 / answered.max(1) as f64, requests: answered };
            return (answered > 0).then_some((latency, sample.now_ns.saturating_sub(sample.elapsed_ns)));
        };
        self.answered += self.own(answered, sample.readings);
        let reading = find(sample.readings, id)?;
        let ended_ns = sample.now_ns.checked_sub(reading.age_ns).filter(|&ended_ns| ended_ns > self.used_ns)?;
        self.used_ns = ended_ns;
        let requests = std::mem::take(&mut self.answered);
        let ns = reading.value? as f64;
        Some((Latency { ns, requests: requests.max(1) }, ended_ns.saturating_sub(window_ns)))
    }

    /// Load of the interval.
    pub(super) fn load(&self, sample: &Sample<'_>) -> Load {
        let seconds = sample.elapsed_ns as f64 / 1e9;
        let bytes = |ids: &[ReadingId]| {
            let values = ids.iter().filter_map(|&id| find(sample.readings, id)?.value);
            values.map(|bytes_per_s| bytes_per_s as f64 * seconds).sum()
        };
        Load {
            elapsed_ns: sample.elapsed_ns,
            requests: self.own(sample.threads.iter().map(|thread| thread.requests).sum(), sample.readings),
            read: bytes(&self.read),
            written: bytes(&self.written),
        }
    }
}

fn find(readings: &[Reading], id: ReadingId) -> Option<&Reading> {
    readings.iter().find(|reading| reading.id == id)
}
