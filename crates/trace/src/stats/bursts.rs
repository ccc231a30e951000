//! Bursts: sudden increases of load.
//!
//! SANDMAN (2.2, Figure 2) reports "up to 82 I/O bursts within a 30-minute window" without a definition of a burst. With
//! the defaults of [`BurstRule`], time is divided into bins of 1 s from the first request on. A bin is *high* if it has at least 2 times
//! the mean of the 60 bins before it (fewer at the start) and at least 100 requests. The first bin is never high. A burst is a run of
//! high bins, and belongs to the window of 30 minutes in which it begins.
//!
//! The mean includes high bins: after a step to a constant higher load the burst ends when the mean has followed.

use std::collections::VecDeque;

use serde::Serialize;

/// Definition of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BurstRule {
    /// Width of a bin, in nanoseconds.
    pub bin_ns: u64,
    /// Preceding bins in the mean.
    pub background_bins: u32,
    /// Least ratio of a high bin to the mean.
    pub factor: f64,
    /// Least number of requests of a high bin.
    pub min_requests: u64,
    /// Width of the windows in which bursts are counted, in nanoseconds.
    pub window_ns: u64,
}

impl Default for BurstRule {
    fn default() -> Self {
        Self {
            bin_ns: 1_000_000_000,
            background_bins: 60,
            factor: 2.0,
            min_requests: 100,
            window_ns: 1_800_000_000_000,
        }
    }
}

/// Bursts of a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BurstSummary {
    /// The rule.
    pub rule: BurstRule,
    /// Bursts in the whole trace.
    pub bursts: u64,
    /// Most bursts in one window.
    pub max_per_window: u64,
    /// Mean number of bursts per window; `None` if the span is shorter than a window.
    pub mean_per_window: Option<f64>,
    /// Fraction of the bins that are high.
    pub high_share: Option<f64>,
}

/// Counter of bursts.
#[derive(Clone, Debug)]
pub struct Bursts {
    rule: BurstRule,
    /// Counts of the preceding bins, the latest last.
    before: VecDeque<u64>,
    sum: u64,
    bin: u64,
    count: u64,
    /// Whether the last bin was high.
    high: bool,
    high_bins: u64,
    bursts: u64,
    /// The window that bursts are being counted in.
    window: u64,
    in_window: u64,
    max_in_window: u64,
}

impl Bursts {
    /// A counter without bursts.
    #[must_use]
    pub fn new(rule: BurstRule) -> Self {
        let bins = rule.background_bins.max(1);
        let rule =
            BurstRule { bin_ns: rule.bin_ns.max(1), background_bins: bins, window_ns: rule.window_ns.max(1), ..rule };
        Self {
            rule,
            before: VecDeque::with_capacity(bins.min(1 << 16) as usize),
            sum: 0,
            bin: 0,
            count: 0,
            high: false,
            high_bins: 0,
            bursts: 0,
            window: 0,
            in_window: 0,
            max_in_window: 0,
        }
    }

    /// Adds a request; times must not decrease.
    #[inline]
    pub fn add(&mut self, at_ns: u64) {
        let bin = at_ns / self.rule.bin_ns;
        if bin != self.bin {
            self.go_to(bin);
        }
        self.count += 1;
    }

    /// Ends the current bin and the empty ones after it.
    fn go_to(&mut self, bin: u64) {
        self.end_bin();
        // further empty bins change nothing
        let empty = (bin - self.bin - 1).min(u64::from(self.rule.background_bins));
        (0..empty).for_each(|_| self.end_bin());
        self.bin = bin;
    }

    fn end_bin(&mut self) {
        let high = self.is_high();
        if high && !self.high {
            self.begin();
        }
        self.high = high;
        self.high_bins += u64::from(high);
        if self.before.len() == self.rule.background_bins as usize {
            self.sum -= self.before.pop_front().unwrap_or(0);
        }
        self.before.push_back(self.count);
        self.sum += self.count;
        self.count = 0;
    }

    fn is_high(&self) -> bool {
        let mean = self.sum as f64 / self.before.len() as f64; // NaN in the first bin, which compares as false
        self.count >= self.rule.min_requests.max(1) && self.count as f64 >= self.rule.factor * mean
    }

    fn begin(&mut self) {
        let window = (u128::from(self.bin) * u128::from(self.rule.bin_ns) / u128::from(self.rule.window_ns)) as u64;
        if window != self.window {
            (self.window, self.in_window) = (window, 0);
        }
        self.in_window += 1;
        self.bursts += 1;
        self.max_in_window = self.max_in_window.max(self.in_window);
    }

    /// The bursts of a trace that ends at `last_ns`.
    #[must_use]
    pub fn summary(&self, last_ns: u64) -> BurstSummary {
        let mut ended = self.clone();
        ended.end_bin();
        let windows = last_ns as f64 / self.rule.window_ns as f64;
        let seen = self.bin > 0 || self.count > 0;
        BurstSummary {
            rule: self.rule,
            bursts: ended.bursts,
            max_per_window: ended.max_in_window,
            mean_per_window: (windows >= 1.0).then(|| ended.bursts as f64 / windows),
            high_share: seen.then(|| ended.high_bins as f64 / (self.bin as f64 + 1.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert_eq, proptest};

    const S: u64 = 1_000_000_000;

    fn summary(counts: &[u64], rule: BurstRule) -> BurstSummary {
        let mut bursts = Bursts::new(rule);
        for (bin, &count) in counts.iter().enumerate() {
            (0..count).for_each(|_| bursts.add(bin as u64 * rule.bin_ns));
        }
        bursts.summary((counts.len() as u64).saturating_sub(1) * rule.bin_ns)
    }

    #[test]
    fn a_burst_is_a_run_of_high_bins() {
        let mut counts = vec![100; 100];
        counts[50..53].fill(400);
        counts[60] = 200;
        counts[99] = 1000;
        let result = summary(&counts, BurstRule::default());
        // 60 is below twice the mean of 60 bins that hold three of 400
        assert_eq!((result.bursts, result.max_per_window, result.mean_per_window), (2, 2, None));
        assert_eq!(result.high_share, Some(0.04));
    }

    #[test]
    fn the_first_bin_and_few_requests_are_not_bursts() {
        let rule = BurstRule::default();
        assert_eq!(summary(&[5000], rule).bursts, 0);
        assert_eq!(summary(&[1, 0, 0, 99, 0, 0], rule).bursts, 0);
        assert_eq!(summary(&[1, 0, 0, 100, 0, 0], rule).bursts, 1);
    }

    #[test]
    fn bursts_belong_to_the_window_they_begin_in() {
        let rule = BurstRule { window_ns: 10 * S, ..BurstRule::default() };
        let mut counts = vec![0; 40];
        counts[0] = 1;
        for at in [9, 10, 12, 14, 25] {
            counts[at] = 100_000 * (at as u64).pow(2);
        }
        let result = summary(&counts, rule);
        assert_eq!((result.bursts, result.max_per_window), (4, 2), "9 and 10 are one");
    }

    /// Bursts and most per window, computed from all counts.
    fn naive(counts: &[u64], rule: BurstRule) -> (u64, u64) {
        let background = rule.background_bins as usize;
        let high = |at: usize| {
            let before = &counts[at.saturating_sub(background)..at];
            let mean = before.iter().sum::<u64>() as f64 / before.len() as f64;
            at > 0 && counts[at] >= rule.min_requests && counts[at] as f64 >= rule.factor * mean
        };
        let starts: Vec<u64> =
            (0..counts.len()).filter(|&at| high(at) && !high(at.max(1) - 1)).map(|at| at as u64).collect();
        let windows = starts.iter().map(|at| at * rule.bin_ns / rule.window_ns);
        let mut tally = std::collections::BTreeMap::<u64, u64>::new();
        windows.for_each(|window| *tally.entry(window).or_default() += 1);
        (starts.len() as u64, tally.into_values().max().unwrap_or(0))
    }

    proptest! {
        #[test]
        fn bursts_match_the_definition(
            runs in proptest::collection::vec((0_u64..20, 1_usize..9), 1..40), background_bins in 1_u32..8,
        ) {
            let counts: Vec<u64> = runs.iter().flat_map(|&(count, bins)| std::iter::repeat_n(count, bins)).collect();
            let rule = BurstRule { background_bins, min_requests: 3, window_ns: 7 * S, ..BurstRule::default() };
            let result = summary(&counts, rule);
            prop_assert_eq!((result.bursts, result.max_per_window), naive(&counts, rule));
        }
    }

    #[test]
    fn a_long_gap_is_processed_quickly() {
        let mut bursts = Bursts::new(BurstRule::default());
        bursts.add(0);
        (0..200).for_each(|_| bursts.add(u64::MAX));
        assert_eq!(bursts.summary(u64::MAX).bursts, 1);
    }
}
