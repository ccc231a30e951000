//! Counters and histograms of one thread.

use hdrhistogram::Histogram;

use crate::load::picker::Kind;

/// The highest recorded latency: 1,000 s.
const MAX_LATENCY_NS: u64 = 1_000_000_000_000;
/// Faults that are described; all are counted.
const MAX_SAMPLES: usize = 8;

/// Delay from which a request is late.
pub(crate) const LATE_NS: u64 = 100_000;

/// Latencies in nanoseconds with three significant digits.
#[must_use]
pub fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MAX_LATENCY_NS, 3)
        .unwrap_or_else(|_| unreachable!("the bounds are constants in range"))
}

/// Results of one kind of command.
#[derive(Clone, Debug)]
pub(crate) struct KindStats {
    pub(crate) ios: u64,
    pub(crate) bytes: u64,
    pub(crate) errors: u64,
    pub(crate) latency: Histogram<u64>,
}

/// Results of one thread; they can be merged.
#[derive(Clone, Debug)]
pub(crate) struct Stats {
    pub(crate) kinds: [KindStats; Kind::COUNT],
    /// Latency by phase of the schedule; empty for a single phase.
    pub(crate) phases: Vec<Histogram<u64>>,
    /// Monotonic time of the last counted completion.
    pub(crate) last_ns: u64,
    /// Open loop: delay from due time to submission.
    pub(crate) start_delay: Histogram<u64>,
    pub(crate) start_delay_max_ns: u64,
    /// Open loop: requests sent later than [`LATE_NS`].
    pub(crate) late: u64,
    /// Open loop: requests due before the end that were not sent.
    pub(crate) unstarted: u64,
    /// Open loop: sent requests.
    pub(crate) started: u64,
    pub(crate) blocks_checked: u64,
    pub(crate) blocks_read_back: u64,
    pub(crate) mismatches: u64,
    pub(crate) samples: Vec<String>,
    /// CPU time of the thread.
    pub(crate) cpu_ns: u64,
}

impl Stats {
    pub(crate) fn new(phases: usize) -> Self {
        let kind = || KindStats { ios: 0, bytes: 0, errors: 0, latency: new_histogram() };
        Self {
            kinds: std::array::from_fn(|_| kind()),
            phases: if phases > 1 { vec![new_histogram(); phases] } else { Vec::new() },
            last_ns: 0,
            start_delay: new_histogram(),
            start_delay_max_ns: 0,
            late: 0,
            unstarted: 0,
            started: 0,
            blocks_checked: 0,
            blocks_read_back: 0,
            mismatches: 0,
            samples: Vec::with_capacity(MAX_SAMPLES),
            cpu_ns: 0,
        }
    }

    /// Resets rates and latencies at the end of a ramp; errors and checks are kept.
    pub(crate) fn reset_timing(&mut self) {
        for k in &mut self.kinds {
            (k.ios, k.bytes) = (0, 0);
            k.latency.reset();
        }
        self.phases.iter_mut().for_each(Histogram::reset);
        self.start_delay.reset();
        (self.start_delay_max_ns, self.late, self.started) = (0, 0, 0);
    }

    /// Open loop: counts a request sent `delay_ns` after its due time.
    #[inline]
    pub(crate) fn start(&mut self, delay_ns: u64) {
        self.started += 1;
        self.late += u64::from(delay_ns > LATE_NS);
        self.start_delay.saturating_record(delay_ns);
        self.start_delay_max_ns = self.start_delay_max_ns.max(delay_ns);
    }

    /// Counts a command that succeeded.
    #[inline]
    pub(crate) fn record(&mut self, kind: Kind, bytes: u32, phase: u8, latency_ns: u64, now_ns: u64) {
        let k = &mut self.kinds[kind as usize];
        k.ios += 1;
        k.bytes += u64::from(bytes);
        k.latency.saturating_record(latency_ns);
        if let Some(p) = self.phases.get_mut(usize::from(phase)) {
            p.saturating_record(latency_ns);
        }
        self.last_ns = now_ns;
    }

    /// Keeps the description of a fault, up to [`MAX_SAMPLES`].
    #[cold]
    pub(crate) fn sample(&mut self, text: impl FnOnce() -> String) {
        if self.samples.len() < MAX_SAMPLES {
            self.samples.push(text());
        }
    }

    pub(crate) fn ios(&self) -> u64 {
        self.kinds.iter().map(|k| k.ios).sum()
    }

    pub(crate) fn io_errors(&self) -> u64 {
        self.kinds.iter().map(|k| k.errors).sum()
    }

    /// Adds the results of another thread.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (a, b) in self.kinds.iter_mut().zip(&other.kinds) {
            a.ios += b.ios;
            a.bytes += b.bytes;
            a.errors += b.errors;
            a.latency += &b.latency;
        }
        for (a, b) in self.phases.iter_mut().zip(&other.phases) {
            *a += b;
        }
        self.last_ns = self.last_ns.max(other.last_ns);
        self.start_delay_max_ns = self.start_delay_max_ns.max(other.start_delay_max_ns);
        self.start_delay += &other.start_delay;
        self.late += other.late;
        self.unstarted += other.unstarted;
        self.started += other.started;
        self.blocks_checked += other.blocks_checked;
        self.blocks_read_back += other.blocks_read_back;
        self.mismatches += other.mismatches;
        self.cpu_ns += other.cpu_ns;
        let room = MAX_SAMPLES - self.samples.len();
        self.samples.extend(other.samples.iter().take(room).cloned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_results_equal_those_of_one_thread() {
        let (mut one, mut two, mut both) = (Stats::new(2), Stats::new(2), Stats::new(2));
        for i in 1..2000u64 {
            let (part, phase) = if i % 10 == 0 { (&mut one, 0) } else { (&mut two, 1) };
            part.record(Kind::Read, 4096, phase, i * i, i);
            both.record(Kind::Read, 4096, phase, i * i, i);
        }
        one.merge(&two);
        assert_eq!(one.kinds[0].latency, both.kinds[0].latency);
        assert_eq!(one.phases, both.phases);
        assert_eq!((one.ios(), one.kinds[0].bytes, one.last_ns), (1999, 1999 * 4096, 1999));
    }

    #[test]
    fn latencies_beyond_the_range_are_counted() {
        let mut stats = Stats::new(1);
        stats.record(Kind::Read, 1, 0, u64::MAX, 1);
        stats.record(Kind::Read, 1, 0, 0, 1);
        assert_eq!(stats.kinds[0].latency.len(), 2);
    }
}
