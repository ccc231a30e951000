//! Latency under one tolerance: where it is read, its windows, and its baseline.

use pilotlight_plant::{Capabilities, Sample};

use super::baseline::Baseline;
use super::parameters::{Parameters, share};
use super::readings::Readings;
use super::stability::{Latency, Window, Windows};
use super::tolerance::{PLF, Tolerance};

/// The burst check needs one of so many requests that a window needs; chosen.
const BURST_PART: u64 = 4;

/// Latency under one tolerance.
#[derive(Debug)]
pub(super) struct Monitor {
    pub(super) tolerance: Tolerance,
    pub(super) readings: Readings,
    pub(super) windows: Windows,
    pub(super) baseline: Option<Baseline>,
    /// What the last interval has shown: latency and from when on requests were answered; the window that it has ended.
    seen: Option<(Latency, u64)>,
    pub(super) ended: Option<Window>,
}

impl Monitor {
    pub(super) fn new(tolerance: Tolerance, parameters: &Parameters) -> Self {
        Self {
            readings: Readings::new(tolerance.scope, tolerance.stat),
            windows: Windows::new(parameters),
            tolerance,
            baseline: None,
            seen: None,
            ended: None,
        }
    }

    /// The sources of a plant.
    pub(super) fn find(&mut self, capabilities: &Capabilities) {
        self.readings.find(capabilities);
    }

    /// How much longer requests may take, as a share; 0 where nothing may be saved that costs latency.
    pub(super) fn plf(&self) -> f64 {
        self.tolerance.plf(self.baseline.map_or(0.0, |baseline| baseline.ns))
    }

    /// Whether it had requests since the last change. One without does not bind.
    pub(super) fn is_active(&self) -> bool {
        self.windows.has_requests()
    }

    /// An interval.
    pub(super) fn read(&mut self, sample: &Sample<'_>) {
        (self.seen, self.ended) = (self.readings.latency(sample), None);
    }

    /// The interval goes into the windows; what was answered before `holds_ns` does not count.
    pub(super) fn add(&mut self, sample: &Sample<'_>, holds_ns: u64, parameters: &Parameters) {
        let latency = self.seen.filter(|(_, began_ns)| *began_ns >= holds_ns).map(|(latency, _)| latency);
        let least = self.least_requests(parameters);
        self.ended = self.windows.add(latency, &self.readings.load(sample), least, parameters);
    }

    /// Requests that a window needs: the smaller the tolerance, the more, so that chance stays a fixed part of it.
    fn least_requests(&self, parameters: &Parameters) -> u64 {
        let plf = self.plf();
        let times = if plf > 0.0 { (PLF / plf).powi(2).max(1.0) } else { 1.0 };
        (parameters.least_requests as f64 * times) as u64
    }

    /// Whether latency of the interval is far above what it was since the last change, or above what is tolerated.
    pub(super) fn is_burst(&self, parameters: &Parameters) -> bool {
        let (Some(baseline), Some((latency, _))) = (self.baseline, self.seen) else { return false };
        let expected_ns = self.windows.mean_ns().unwrap_or(baseline.ns * (1.0 + self.plf()));
        latency.requests >= parameters.least_requests.div_ceil(BURST_PART)
            && latency.ns > expected_ns * (1.0 + share(parameters.burst_ppm))
    }

    /// Whether the window that has ended shows another load than that of the baseline, or one where there was none.
    pub(super) fn is_of_other_load(&self, parameters: &Parameters) -> bool {
        let Some(window) = self.ended else { return false };
        match self.baseline {
            Some(baseline) => baseline.is_of_other(&window.load, baseline.loss(window.ns), parameters),
            None => window.ns > 0.0,
        }
    }

    /// Whether the interval has another load than that of the baseline: what latency it shows is not due to savings.
    pub(super) fn is_surge_of_load(&self, sample: &Sample<'_>, parameters: &Parameters) -> bool {
        let load = self.readings.load(sample);
        self.baseline.is_some_and(|baseline| baseline.is_of_other(&load, self.plf(), parameters))
    }

    /// Latency of the windows is that without savings.
    pub(super) fn measure(&mut self, now_ns: u64) {
        let load = self.windows.load();
        // Of sparse windows it is not known well enough to begin with less.
        let times = if self.windows.are_sparse() { 0.0 } else { 1.0 };
        let baseline = |(ns, error_ns)| Baseline { ns, error_ns: times * error_ns, at_ns: now_ns, load };
        self.baseline = self.windows.mean().map(baseline);
    }

    /// How much longer requests of the last interval took than without savings, in nanoseconds.
    pub(super) fn seen_delay_ns(&self) -> Option<f64> {
        Some(self.seen?.0.ns - self.baseline?.ns)
    }

    /// The loss over the windows since the last change; `None` without requests.
    pub(super) fn loss(&self) -> Option<Known> {
        let baseline = self.baseline?;
        let (ns, error_ns) = self.windows.all()?;
        let of = |ns: f64| ns / baseline.ns.max(1.0);
        let (recent_ns, recent_error_ns) = self.windows.mean()?;
        Some(Known {
            share: baseline.loss(ns),
            error: of(error_ns),
            of_both: of(error_ns.hypot(baseline.error_ns)),
            recent: (baseline.loss(recent_ns), of(recent_error_ns)),
        })
    }
}

/// A loss, as a share, with the standard error of latency, and of that and of the baseline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) share: f64,
    pub(super) error: f64,
    pub(super) of_both: f64,
    /// The loss of the last windows, and the standard error of their latency.
    pub(super) recent: (f64, f64),
}
