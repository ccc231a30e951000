//! Latency over sliding windows, and its divergence (PACER IV-B).
//!
//! A window is `n` seconds long, and longer while it has too few requests. One with too few requests at its maximum length is *sparse*: it shows only
//! excess, and no divergence.

use std::collections::VecDeque;

use super::load::Load;
use super::parameters::Parameters;

/// Latency of some requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Latency {
    pub(super) ns: f64,
    /// Number of requests.
    pub(super) requests: u64,
}

/// A window that has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Window {
    /// Latency of its requests, in nanoseconds; 0 if there were none.
    pub(super) ns: f64,
    /// Number of requests.
    requests: u64,
    pub(super) is_sparse: bool,
    pub(super) load: Load,
}

/// Windows kept for the loss, in multiples of `windows`; chosen.
const KEPT: usize = 12;

/// The last windows, and the open one.
#[derive(Debug)]
pub(super) struct Windows {
    /// The last [`KEPT`] times `k`, none from before a change.
    ended: VecDeque<Window>,
    k: usize,
    /// Sum of latencies and number of requests in the open window.
    open: (f64, u64),
    load: Load,
}

impl Windows {
    pub(super) fn new(parameters: &Parameters) -> Self {
        let k = parameters.windows;
        Self { ended: VecDeque::with_capacity(KEPT * k), k, open: (0.0, 0), load: Load::default() }
    }

    /// Clears all windows after a change.
    pub(super) fn clear(&mut self) {
        self.ended.clear();
        self.restart();
    }

    fn restart(&mut self) {
        (self.open, self.load) = ((0.0, 0), Load::default());
    }

    /// Adds an interval under the current settings; returns the window that it ends.
    /// `least` is the number of requests that a window needs.
    pub(super) fn add(
        &mut self,
        latency: Option<Latency>,
        load: &Load,
        least: u64,
        parameters: &Parameters,
    ) -> Option<Window> {
        self.load.add(load);
        if let Some(Latency { ns, requests }) = latency {
            self.open = (self.open.0 + ns * requests as f64, self.open.1 + requests);
        }
        let (sum_ns, requests) = self.open;
        let is_sparse = requests < least;
        let least_ns = if is_sparse { parameters.max_window_ns } else { parameters.window_ns };
        if self.load.elapsed_ns < least_ns {
            return None;
        }
        let window = Window { ns: sum_ns / requests.max(1) as f64, requests, is_sparse, load: self.load };
        if self.ended.len() == KEPT * self.k {
            self.ended.pop_front();
        }
        self.ended.push_back(window);
        self.restart();
        Some(window)
    }

    /// Whether there were requests in them, the open one included.
    pub(super) fn has_requests(&self) -> bool {
        self.open.1 > 0 || with_requests(self.ended.iter()).next().is_some()
    }

    /// Mean latency of all windows, in nanoseconds, and its standard error.
    pub(super) fn all(&self) -> Option<(f64, f64)> {
        let mean_ns = mean_ns(self.ended.iter())?;
        Some((mean_ns, error(self.ended.iter(), mean_ns)))
    }

    /// Whether the last is sparse.
    pub(super) fn are_sparse(&self) -> bool {
        self.ended.back().is_some_and(|last| last.is_sparse)
    }

    /// Number of ended windows.
    pub(super) fn len(&self) -> usize {
        self.ended.len()
    }

    /// The last `k`.
    fn last(&self) -> impl Iterator<Item = &Window> + Clone {
        self.ended.iter().skip(self.ended.len().saturating_sub(self.k))
    }

    /// Mean latency of the last `k` with requests, in nanoseconds; `None` without any.
    pub(super) fn mean_ns(&self) -> Option<f64> {
        mean_ns(self.last())
    }

    /// The same, and its standard error.
    pub(super) fn mean(&self) -> Option<(f64, f64)> {
        let mean_ns = self.mean_ns()?;
        Some((mean_ns, error(self.last(), mean_ns)))
    }

    /// The divergence of the last `k`; 0 where one of them is sparse, `None` where there are fewer.
    pub(super) fn divergence(&self) -> Option<f64> {
        if self.ended.len() < self.k {
            return None;
        }
        let mean_ns = self.mean_ns()?;
        if self.last().any(|window| window.is_sparse) {
            return Some(0.0);
        }
        Some((squares(self.last(), mean_ns) / self.k as f64).sqrt() / mean_ns)
    }

    /// Load of the last `k`.
    pub(super) fn load(&self) -> Load {
        let mut load = Load::default();
        self.last().for_each(|window| load.add(&window.load));
        load
    }
}

fn with_requests<'a>(windows: impl Iterator<Item = &'a Window>) -> impl Iterator<Item = &'a Window> {
    windows.filter(|window| window.requests > 0)
}

fn mean_ns<'a>(windows: impl Iterator<Item = &'a Window>) -> Option<f64> {
    let (sum, count) = with_requests(windows).fold((0.0, 0_u32), |(sum, count), window| (sum + window.ns, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

fn squares<'a>(windows: impl Iterator<Item = &'a Window>, mean_ns: f64) -> f64 {
    with_requests(windows).map(|window| (window.ns - mean_ns).powi(2)).sum()
}

/// Standard error of their mean, in nanoseconds: measured, and at least that of latencies with a deviation equal to their mean.
fn error<'a>(windows: impl Iterator<Item = &'a Window> + Clone, mean_ns: f64) -> f64 {
    let (count, requests) =
        with_requests(windows.clone()).fold((0_u32, 0), |(count, sum), window| (count + 1, sum + window.requests));
    let expected_ns = mean_ns / (requests.max(1) as f64).sqrt();
    if count < 2 {
        return expected_ns;
    }
    let shown_ns = (squares(windows, mean_ns) / f64::from(count - 1) / f64::from(count)).sqrt();
    shown_ns.max(expected_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF_S: u64 = 500_000_000;

    fn add(windows: &mut Windows, ns: f64, requests: u64) -> Option<Window> {
        let load = Load { elapsed_ns: HALF_S, requests, ..Load::default() };
        let latency = (requests > 0).then_some(Latency { ns, requests });
        windows.add(latency, &load, 400, &Parameters::default())
    }

    #[test]
    fn the_divergence_is_the_deviation_of_k_windows_over_their_mean() {
        let parameters = Parameters::default();
        let mut windows = Windows::new(&parameters);
        for ns in [90.0, 110.0, 90.0, 110.0] {
            assert!(add(&mut windows, ns, 300).is_none());
            assert_eq!(add(&mut windows, ns, 300).map(|window| window.ns), Some(ns));
            assert_eq!(windows.divergence(), None);
        }
        add(&mut windows, 100.0, 900);
        add(&mut windows, 100.0, 100);
        assert_eq!(windows.mean_ns(), Some(100.0));
        let divergence = windows.divergence().unwrap();
        assert!((divergence - (400.0_f64 / 5.0).sqrt() / 100.0).abs() < 1e-9, "{divergence}");
        assert_eq!(windows.load().requests, 8 * 300 + 1_000);
        windows.clear();
        assert_eq!((windows.divergence(), windows.mean_ns()), (None, None));
    }

    #[test]
    fn a_window_with_few_requests_is_extended_and_finally_sparse() {
        let parameters = Parameters::default();
        let mut windows = Windows::new(&parameters);
        let ended = |windows: &mut Windows, requests: fn(u64) -> u64| {
            (1..).find_map(|nth| add(windows, 100.0 * nth as f64, requests(nth)).map(|window| (nth, window.is_sparse)))
        };
        assert_eq!(ended(&mut windows, |_| 50), Some((8, false)), "400 requests");
        assert_eq!(ended(&mut windows, |nth| u64::from(nth % 20 == 1)), Some((60, true)), "one every 10 s");
        (0..3).for_each(|_| _ = ended(&mut windows, |nth| u64::from(nth % 20 == 1)));
        assert_eq!(windows.divergence(), Some(0.0));
    }
}
