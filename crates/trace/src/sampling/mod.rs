//! Which windows of a dense day to measure, and what they say of the whole day.
//!
//! **Problem.** A day of a dense trace is billions of requests: too many to replay. Measured are some windows, and joules
//! (or anything else that a window has) of the day are estimated, with an interval that says how well.
//!
//! **Words.** The day is cut into *windows* of one width, whose loads (requests) are known from one pass ([`Loads`]). Windows
//! in and around bursts are *exact*: all are measured, since what they cost follows from what came before, and they differ
//! most; where they are too many for that ([`Rule::most_exact`]), they are strata of their own. The others are sorted by load and cut into *strata* of the same number of windows; of each some are drawn at
//! random without replacement.
//!
//! **Algorithm** (Cochran, *Sampling Techniques*, third edition, chapters 2 and 5). [`Plan::new`] gives every stratum at least two draws
//! and deals the rest in proportion to its size times the spread of its loads, a guess at the spread of what is measured
//! (Neyman). [`Plan::estimate`] adds up the exact windows and, for each stratum, size times sample mean; the variance of
//! that is the sum over strata of `N^2 (1 - n/N) s^2 / n`. The interval is Student's, with Satterthwaite's degrees of freedom.
//!
//! **Properties** (tested): a plan that measures everything is exact; the estimate is unbiased; the interval of 95 % holds
//! the truth in about 95 % of draws.

mod estimate;
mod plan;

pub use estimate::{Estimate, Unmeasured};
pub use plan::{Plan, PlanError, Rule, Stratum};

use crate::request::Request;

/// Most windows that loads are gathered for.
pub const MAX_WINDOWS: u64 = 1 << 24;

/// Requests in each window of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loads {
    /// Width of a window, in nanoseconds.
    pub window_ns: u64,
    /// Requests of each, from the beginning of the trace.
    pub requests: Vec<u64>,
}

/// A request too far from the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a request comes {at_ns} ns after the first: more than {MAX_WINDOWS} windows of {window_ns} ns; take wider windows"
)]
pub struct TooManyWindows {
    /// When it comes.
    pub at_ns: u64,
    /// Width of a window.
    pub window_ns: u64,
}

impl Loads {
    /// Counts the requests of each window; `window_ns` of 0 is taken as 1.
    ///
    /// # Errors
    /// [`TooManyWindows`] where memory would not be bounded.
    pub fn of(requests: impl Iterator<Item = Request>, window_ns: u64) -> Result<Self, TooManyWindows> {
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
