//! A load: rate, size and read share.

/// Load over a time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Load {
    /// The time, in nanoseconds.
    pub(super) elapsed_ns: u64,
    /// Requests in it.
    pub(super) requests: u64,
    /// Bytes read and written, if measured.
    pub(super) read: f64,
    pub(super) written: f64,
}

/// Standard deviations up to which a difference is noise.
const DEVIATIONS: f64 = 3.0;

impl Load {
    pub(super) fn add(&mut self, more: &Self) {
        self.elapsed_ns += more.elapsed_ns;
        self.requests += more.requests;
        self.read += more.read;
        self.written += more.written;
    }

    fn rate(&self) -> f64 {
        self.requests as f64 / self.elapsed_ns.max(1) as f64
    }

    /// Mean time between requests, in nanoseconds.
    pub(super) fn gap_ns(&self) -> f64 {
        self.elapsed_ns as f64 / self.requests.max(1) as f64
    }

    fn size(&self) -> f64 {
        (self.read + self.written) / self.requests.max(1) as f64
    }

    fn read_share(&self) -> f64 {
        self.read / (self.read + self.written).max(1.0)
    }

    /// Whether another load differs from this one by more than the share `by`. In a closed loop a loss of latency lowers the rate by
    /// itself.
    pub(super) fn differs(&self, other: &Self, by: f64, loss: f64) -> bool {
        let expected = self.rate() * other.elapsed_ns as f64;
        let slack = DEVIATIONS * expected.sqrt();
        let requests = other.requests as f64;
        let is_other_rate = requests > expected * (1.0 + by) + slack
            || requests < expected * (1.0 - by) / (1.0 + loss.max(0.0)) - slack;
        let few = 1.0 + DEVIATIONS / requests.max(1.0).sqrt(); // few requests have a large error
        let is_other_size = (other.size() - self.size()).abs() > by * self.size() * few;
        let is_other_mix = (other.read_share() - self.read_share()).abs() > by * few;
        is_other_rate || is_other_size || is_other_mix
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn load(requests: u64, read: f64, written: f64) -> Load {
        Load { elapsed_ns: S, requests, read, written }
    }

    #[test]
    fn a_different_rate_size_or_mix_is_another_load() {
        let base = load(100_000, 4e8, 4e8);
        let differs = |other: Load| base.differs(&other, 0.25, 0.0);
        assert!(!differs(load(124_000, 4.96e8, 4.96e8)));
        assert!(differs(load(127_000, 5.08e8, 5.08e8)));
        assert!(differs(load(73_000, 2.92e8, 2.92e8)));
        assert!(differs(load(100_000, 5.2e8, 5.2e8)), "larger");
        assert!(differs(load(100_000, 6.2e8, 1.8e8)), "more reads");
        assert!(!base.differs(&load(66_000, 2.64e8, 2.64e8), 0.25, 0.2), "a closed loop that takes 20 % longer");
    }

    #[test]
    fn noise_is_no_other_load() {
        let base = Load { elapsed_ns: 150 * S, requests: 15, ..Load::default() };
        let window = |requests| Load { elapsed_ns: 30 * S, requests, ..Load::default() };
        assert!((0..9).all(|requests| !base.differs(&window(requests), 0.25, 0.0)));
        assert!(base.differs(&window(20), 0.25, 0.0));
    }
}
