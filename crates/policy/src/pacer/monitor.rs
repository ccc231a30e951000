//! Latency under one tolerance: its readings, windows and baseline.

use pilotlight_plant::{Capabilities, Sample};

use super::baseline::Baseline;
use super::parameters::{Parameters, share};
use super::readings::Readings;
use super::stability::{Latency, Window, Windows};
use super::tolerance::{PLF, Tolerance};

/// The burst check needs a window's number of requests over this; chosen.
const BURST_PART: u64 = 4;

/// Latency under one tolerance.
#[derive(Debug)]
pub(super) struct Monitor {
    pub(super) tolerance: Tolerance,
    pub(super) readings: Readings,
    pub(super) windows: Windows,
    pub(super) baseline: Option<Baseline>,
    /// Latency of the last interval, and the start of its readings; the window that ended with it.
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

    /// The allowed increase of latency, as a share; 0 if no latency may be lost.
    pub(super) fn plf(&self) -> f64 {
        self.tolerance.plf(self.baseline.map_or(0.0, |baseline| baseline.ns))
    }

    /// Whether it had requests since the last change. A tolerance without requests does not bind.
    pub(super) fn is_active(&self) -> bool {
        self.windows.has_requests()
    }

    /// Reads an interval.
    pub(super) fn read(&mut self, sample: &Sample<'_>) {
        (self.seen, self.ended) = (self.readings.latency(sample), None);
    }

    /// Adds the interval to the windows; completions before `holds_ns` do not count.
    pub(super) fn add(&mut self, sample: &Sample<'_>, holds_ns: u64, parameters: &Parameters) {
        let latency = self.seen.filter(|(_, began_ns)| *began_ns >= holds_ns).map(|(latency, _)| latency);
        let least = self.min_requests(parameters);
        self.ended = self.windows.add(latency, &self.readings.load(sample), least, parameters);
    }

    /// Requests that a window needs: more for a smaller tolerance, so that noise stays a fixed part of it.
    fn min_requests(&self, parameters: &Parameters) -> u64 {
        let plf = self.plf();
        let times = if plf > 0.0 { (PLF / plf).powi(2).max(1.0) } else { 1.0 };
        (parameters.min_requests as f64 * times) as u64
    }

    /// Whether latency of the interval is far above its mean since the last change, or above the tolerance.
    pub(super) fn is_burst(&self, parameters: &Parameters) -> bool {
        let (Some(baseline), Some((latency, _))) = (self.baseline, self.seen) else { return false };
        let expected_ns = self.windows.mean_ns().unwrap_or(baseline.ns * (1.0 + self.plf()));
        latency.requests >= parameters.min_requests.div_ceil(BURST_PART)
            && latency.ns > expected_ns * (1.0 + share(parameters.burst_threshold_ppm))
    }

    /// Whether the ended window shows another load than the baseline, or a load without a baseline.
    pub(super) fn is_of_other_load(&self, parameters: &Parameters) -> bool {
        let Some(window) = self.ended else { return false };
        match self.baseline {
            Some(baseline) => {
                parameters.load_change_ppm > 0
                    && baseline.is_of_other(&window.load, baseline.loss(window.ns), parameters)
            }
            None => window.ns > 0.0,
        }
    }

    /// Whether the interval has another load than the baseline: then its latency is not due to savings.
    pub(super) fn is_surge_of_load(&self, sample: &Sample<'_>, parameters: &Parameters) -> bool {
        let load = self.readings.load(sample);
        self.baseline.is_some_and(|baseline| baseline.is_of_other(&load, self.plf(), parameters))
    }

    /// Takes the latency of the windows as the baseline.
    pub(super) fn measure(&mut self, now_ns: u64) {
        let load = self.windows.load();
        // Sparse windows are too uncertain for a smaller aim.
        let times = if self.windows.are_sparse() { 0.0 } else { 1.0 };
        let baseline = |(ns, error_ns)| Baseline { ns, error_ns: times * error_ns, at_ns: now_ns, load };
        self.baseline = self.windows.mean().map(baseline);
    }

    /// Increase of latency in the last interval, in nanoseconds.
    pub(super) fn last_delay_ns(&self) -> Option<f64> {
        Some(self.seen?.0.ns - self.baseline?.ns)
    }

    /// The loss over the windows since the last change; `None` without requests.
    pub(super) fn loss(&self) -> Option<LossEstimate> {
        let baseline = self.baseline?;
        let (ns, error_ns) = self.windows.all()?;
        let of = |ns: f64| ns / baseline.ns.max(1.0);
        let (recent_ns, recent_error_ns) = self.windows.mean()?;
        Some(LossEstimate {
            share: baseline.loss(ns),
            error: of(error_ns),
            total_error: of(error_ns.hypot(baseline.error_ns)),
            recent: (baseline.loss(recent_ns), of(recent_error_ns)),
        })
    }
}

/// A loss, as a share, with the standard error of latency, and that of latency and baseline together.
#[derive(Clone, Copy, Debug)]
pub(super) struct LossEstimate {
    pub(super) share: f64,
    pub(super) error: f64,
    pub(super) total_error: f64,
    /// The loss of the last windows, and the standard error of their latency.
    pub(super) recent: (f64, f64),
}
