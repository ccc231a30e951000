//! Latency readings of the server and of namespaces: the statistics of the last window.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use pilotlight_plant::{Cost, NEVER, Quantity, Scope, Source, Stat, Window};
use pilotlight_reactor::{Histogram, HistogramSnapshot};

/// Length of a window: PACER's decision interval (paper, section III-B).
pub(crate) const WINDOW: Duration = Duration::from_millis(500);
/// Estimated delay from the end of a window to its value.
const LAG: Cost = Cost::Assumed(5_000_000);
/// Number of readings of the server and of each namespace.
pub(crate) const SOURCES: usize = Stat::ALL.len();

/// The readings of the server or of a namespace.
pub(crate) fn sources_of(scope: Scope) -> [Source; SOURCES] {
    let window_ns = WINDOW.as_nanos() as u64;
    Stat::ALL.map(|stat| Source { scope, quantity: Quantity::LatencyNs(stat), window_ns, lag: LAG })
}

/// A latency reading of a namespace, or of the server (without the histogram: each I/O thread has one).
#[derive(Debug, Default)]
pub struct LatencyReading {
    is_wanted: AtomicBool,
    /// Allocated on first use.
    pub(crate) histogram: OnceLock<Histogram>,
    last: LastWindow,
}

/// Statistics of a window, by [`Stat`].
#[derive(Debug)]
struct LastWindow {
    /// [`NEVER`] before the first window.
    ended_ns: AtomicU64,
    /// [`NEVER`] without requests.
    values_ns: [AtomicU64; Stat::ALL.len()],
}

impl Default for LastWindow {
    fn default() -> Self {
        let never = || AtomicU64::new(NEVER);
        Self { ended_ns: never(), values_ns: std::array::from_fn(|_| never()) }
    }
}

impl LatencyReading {
    pub(crate) fn set_wanted(&self, is_wanted: bool) {
        self.is_wanted.store(is_wanted, Relaxed);
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Relaxed)
    }

    /// Its histogram while it is in use.
    pub(crate) fn histogram(&self) -> Option<&Histogram> {
        self.is_wanted().then(|| self.histogram.get())?
    }

    /// Records a window.
    pub(crate) fn note(&self, window: &HistogramSnapshot, ended_ns: u64) {
        let is_empty = window.count() == 0;
        for (cell, stat) in self.last.values_ns.iter().zip(Stat::ALL) {
            cell.store(if is_empty { NEVER } else { value_of(window, stat) }, Relaxed);
        }
        self.last.ended_ns.store(ended_ns, Relaxed);
    }

    /// The last window of a statistic, by its index in [`Stat::ALL`].
    pub(crate) fn window(&self, stat: usize) -> Option<Window> {
        let (ended_ns, value) = (self.last.ended_ns.load(Relaxed), self.last.values_ns.get(stat)?.load(Relaxed));
        (ended_ns != NEVER).then_some(Window { ended_ns, value: Some(value).filter(|&value| value != NEVER) })
    }
}

/// Statistics of a namespace's last window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyWindow {
    /// Mean latency from the socket in nanoseconds.
    pub mean_ns: u64,
    /// The median.
    pub p50_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
}

impl LatencyReading {
    /// The last window, if in use and not empty.
    pub(crate) fn last_window(&self) -> Option<LatencyWindow> {
        let of = |stat: Stat| {
            let at = Stat::ALL.iter().position(|known| *known == stat)?;
            self.window(at)?.value
        };
        let window =
            || Some(LatencyWindow { mean_ns: of(Stat::Mean)?, p50_ns: of(Stat::P50)?, p99_ns: of(Stat::P99)? });
        self.is_wanted().then(window).flatten()
    }
}

/// A statistic of a window in nanoseconds.
fn value_of(window: &HistogramSnapshot, stat: Stat) -> u64 {
    match stat {
        Stat::Mean => window.mean_ns(),
        Stat::P50 => window.percentile_ns(0.5),
        Stat::P99 => window.percentile_ns(0.99),
    }
}
