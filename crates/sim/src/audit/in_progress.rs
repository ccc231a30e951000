//! Requests in progress over time for Little's law: the integral over each stretch, and those open at its end.

use super::{Findings, Law};

/// Totals of a stretch.
#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    answered: u64,
    /// Requests in progress, integrated, in request-nanoseconds.
    area: u128,
    /// Elapsed time of the requests in progress at the end.
    open_ns: u128,
}

/// Counts requests in progress.
#[derive(Debug, Default)]
pub(super) struct InProgress {
    count: u64,
    /// Sum of their send times.
    sent_ns: u128,
    since_ns: u64,
    present: Stretch,
    stretches: Vec<Stretch>,
}

impl InProgress {
    pub(super) fn begin(&mut self, at_ns: u64) {
        self.integrate(at_ns);
        self.count += 1;
        self.sent_ns += u128::from(at_ns);
    }

    /// A request ends that was sent at `sent_ns`.
    pub(super) fn end(&mut self, at_ns: u64, sent_ns: u64) {
        self.integrate(at_ns);
        self.present.answered += 1;
        self.count = self.count.saturating_sub(1);
        self.sent_ns -= u128::from(sent_ns);
    }

    /// A stretch ends.
    pub(super) fn stretch(&mut self, end_ns: u64) {
        self.integrate(end_ns);
        self.present.open_ns = u128::from(self.count) * u128::from(end_ns) - self.sent_ns;
        self.stretches.push(std::mem::take(&mut self.present));
    }

    fn integrate(&mut self, at_ns: u64) {
        self.present.area += u128::from(self.count) * u128::from(at_ns.saturating_sub(self.since_ns));
        self.since_ns = self.since_ns.max(at_ns);
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn stretches(&self) -> usize {
        self.stretches.len()
    }

    /// The mean over a run of this length.
    pub(super) fn mean(&self, duration_ns: u64) -> f64 {
        self.stretches.iter().map(|stretch| stretch.area).sum::<u128>() as f64 / duration_ns as f64
    }

    /// Checks Little's law in each stretch of `series_ns`: the integral of requests in progress equals the latencies, corrected for requests
    /// open at both ends. `claimed` has answers and latencies by stretch; `of` names the requests.
    pub(super) fn compare(
        &self,
        series_ns: u64,
        of: &str,
        claimed: impl Iterator<Item = (u64, u64)>,
        findings: &mut Findings,
    ) {
        let (answers, area) = (format!("answers of {of} in a stretch"), format!("{of} in progress, integrated"));
        let mut open_ns = 0;
        for (index, (seen, (answered, latency_ns))) in self.stretches.iter().zip(claimed).enumerate() {
            let at_ns = (index as u64 + 1) * series_ns;
            findings.check_equal(Law::Requests, at_ns, &answers, seen.answered.into(), answered.into());
            let expected = u128::from(latency_ns) + seen.open_ns;
            findings.check_equal(Law::Little, at_ns, &area, seen.area + open_ns, expected);
            open_ns = seen.open_ns;
        }
    }
}
