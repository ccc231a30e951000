//! What a change would cost in latency, so that no step leads beyond the tolerance ("anticipates the potential IO performance implications",
//! PACER section I; its rule is not printed).
//!
//! Losses are in nanoseconds for each request. A request's time at the cores is known from their busy time; with fewer or slower cores it waits longer for them. What is forecast
//! counts `forecast` times, as arrivals come in bursts.

use pilotlight_plant::Sample;

use super::migrator::Migrator;

/// A forecast of losses.
#[derive(Debug)]
pub(super) struct Forecast<'a> {
    pub(super) migrator: &'a mut Migrator,
    pub(super) sample: &'a Sample<'a>,
    /// So many times what is forecast counts.
    pub(super) times: f64,
    /// Most use of a core.
    pub(super) limit: f64,
}

impl Forecast<'_> {
    fn loss(&self, more_ns: f64) -> f64 {
        let requests: u64 = self.sample.threads.iter().map(|thread| thread.requests).sum();
        self.times * more_ns / requests.max(1) as f64
    }

    /// The loss that a group adds with so many cores.
    pub(super) fn with_cores(&mut self, group: usize, n: usize) -> f64 {
        let now_ns = self.migrator.core_time(group, None, 1.0, self.limit, self.sample);
        let then_ns = self.migrator.core_time(group, Some(n), 1.0, self.limit, self.sample);
        self.loss(then_ns - now_ns)
    }

    /// The loss that a frequency adds at which requests take `slower` times as long.
    pub(super) fn with_frequency(&mut self, slower: f64) -> f64 {
        let groups = self.migrator.sizes().count();
        let mut more_ns = 0.0;
        for group in 0..groups {
            more_ns += self.migrator.core_time(group, None, slower, self.limit, self.sample)
                - self.migrator.core_time(group, None, 1.0, self.limit, self.sample);
        }
        self.loss(more_ns)
    }
}
