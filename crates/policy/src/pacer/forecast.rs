//! Forecasts the latency cost of a change, so that no step exceeds the tolerance ("anticipates the potential IO performance implications", PACER
//! section I; its rule is not printed).
//!
//! Losses are in nanoseconds for each request. A request's time at the cores follows from their busy time: the service, which a lower frequency
//! lengthens, and the queueing, which fewer cores or a lower frequency lengthen. Queueing is scaled by `forecast`: 1 is that of independent arrivals.

use pilotlight_plant::Sample;

use super::migrator::Migrator;

/// A forecast of losses.
#[derive(Debug)]
pub(super) struct Forecast<'a> {
    pub(super) migrator: &'a mut Migrator,
    pub(super) sample: &'a Sample<'a>,
    /// Factor of the queueing time; 0 disables the forecast.
    pub(super) times: f64,
    /// Maximum use of a core.
    pub(super) limit: f64,
}

impl Forecast<'_> {
    /// The loss that `n` cores of a group add.
    pub(super) fn with_cores(&mut self, group: usize, n: usize) -> f64 {
        self.loss(group..group + 1, Some(n), 1.0)
    }

    /// The loss that a frequency adds at which service takes `slower` times as long.
    pub(super) fn with_frequency(&mut self, slower: f64) -> f64 {
        let groups = self.migrator.sizes().count();
        self.loss(0..groups, None, slower)
    }

    fn loss(&mut self, groups: std::ops::Range<usize>, n: Option<usize>, slower: f64) -> f64 {
        if self.times == 0.0 {
            return 0.0;
        }
        let mut more_ns = 0.0;
        for group in groups {
            more_ns += self.time(group, n, slower) - self.time(group, None, 1.0);
        }
        let requests: u64 = self.sample.threads.iter().map(|thread| thread.requests).sum();
        more_ns / requests.max(1) as f64
    }

    fn time(&mut self, group: usize, n: Option<usize>, slower: f64) -> f64 {
        self.migrator.core_time(group, n, slower, (self.times, self.limit), self.sample)
    }
}
