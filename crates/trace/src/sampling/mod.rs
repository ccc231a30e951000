//! Stratified sampling of a trace: selection of windows to measure, and estimates for the whole trace.
//!
//! **Problem.** A day of a dense trace has billions of requests, too many to replay. Only some windows are measured, and the total of
//! joules (or another quantity of a window) is estimated with a confidence interval.
//!
//! **Terms.** The trace is divided into *windows* of equal width, whose loads (requests) are counted in one pass ([`Loads`]). Windows in
//! and around bursts are *exact*: all are measured, because their cost depends on preceding load and varies most. If there are more than
//! [`Rule::max_exact`], they form strata. The others are sorted by load and divided into *strata* of equal size; some windows of each
//! are drawn at random without replacement.
//!
//! **Algorithm** (Cochran, *Sampling Techniques*, third edition, chapters 2 and 5). [`Plan::new`] assigns two draws to every stratum and
//! the rest in proportion to its size times the deviation of its loads, as an estimate of the deviation of the measurements (Neyman).
//! [`Plan::estimate`] adds the exact windows and, for each stratum, size times sample mean; its variance is the sum over strata of
//! `N^2 (1 - n/N) s^2 / n`. The interval is Student's, with Satterthwaite's degrees of freedom.
//!
//! **Properties** (tested): a plan that measures everything is exact; the estimate is unbiased; the 95 % interval contains the true total
//! in about 95 % of draws.

mod estimate;
mod plan;

pub use estimate::{Estimate, Unmeasured};
pub use plan::{Plan, PlanError, Rule, Stratum};

use crate::request::Request;

/// Most windows of a trace.
pub const MAX_WINDOWS: u64 = 1 << 24;

/// Requests in each window of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loads {
    /// Width of a window, in nanoseconds.
    pub window_ns: u64,
    /// Requests of each window, from the start of the trace.
    pub requests: Vec<u64>,
}

/// The trace has too many windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a request at {at_ns} ns exceeds {MAX_WINDOWS} windows of {window_ns} ns; use wider windows")]
pub struct TooManyWindows {
    /// Time of the request.
    pub at_ns: u64,
    /// Width of a window.
    pub window_ns: u64,
}

impl Loads {
    /// Counts the requests of each window; a `window_ns` of 0 counts as 1.
    ///
    /// # Errors
    /// [`TooManyWindows`] beyond [`MAX_WINDOWS`].
    pub fn from_requests(requests: impl Iterator<Item = Request>, window_ns: u64) -> Result<Self, TooManyWindows> {
        let mut loads = Self { window_ns: window_ns.max(1), requests: Vec::new() };
        for request in requests {
            let window = request.at_ns / loads.window_ns;
            if window >= MAX_WINDOWS {
                return Err(TooManyWindows { at_ns: request.at_ns, window_ns: loads.window_ns });
            }
            if window as usize >= loads.requests.len() {
                loads.requests.resize(window as usize + 1, 0);
            }
            loads.requests[window as usize] += 1;
        }
        Ok(loads)
    }
}

#[cfg(test)]
mod tests;
