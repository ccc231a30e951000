//! Latency without savings, to which losses are relative (PACER IV-C).
//!
//! It is fixed when savings start: a baseline that followed latency under savings, as printed, would let the loss grow without bound. It is measured
//! again, without savings, after some time and when the load changes.

use super::load::Load;
use super::parameters::Parameters;

/// Minimum lifetime as a multiple of the measuring time; chosen, so that measuring costs at most a twentieth of the savings.
const MIN_TIMES: u64 = 20;

/// Latency without savings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Baseline {
    /// In nanoseconds.
    pub(super) ns: f64,
    /// Its standard error, in nanoseconds.
    pub(super) error_ns: f64,
    /// When it was measured.
    pub(super) at_ns: u64,
    /// The load during the measurement.
    pub(super) load: Load,
}

impl Baseline {
    /// The loss at this latency; negative below the baseline.
    pub(super) fn loss(&self, ns: f64) -> f64 {
        (ns - self.ns) / self.ns.max(1.0)
    }

    /// Its lifetime, in nanoseconds.
    pub(super) fn lasts_ns(&self, parameters: &Parameters) -> u64 {
        parameters.baseline_interval_ns.max(self.load.elapsed_ns.saturating_mul(MIN_TIMES))
    }

    pub(super) fn is_old(&self, now_ns: u64, parameters: &Parameters) -> bool {
        now_ns.saturating_sub(self.at_ns) >= self.lasts_ns(parameters)
    }

    /// Whether it was measured under a different load.
    pub(super) fn is_of_other(&self, load: &Load, loss: f64, parameters: &Parameters) -> bool {
        self.load.differs(load, parameters.other_load(), loss)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lifetime_grows_with_the_measuring_time() {
        let parameters = Parameters::default();
        let of =
            |elapsed_ns| Baseline { ns: 100.0, error_ns: 0.0, at_ns: 7, load: Load { elapsed_ns, ..Load::default() } };
        let s = 1_000_000_000;
        assert!(!of(5 * s).is_old(300 * s, &parameters) && of(5 * s).is_old(300 * s + 7, &parameters));
        assert!(!of(150 * s).is_old(3_000 * s, &parameters) && of(150 * s).is_old(3_000 * s + 7, &parameters));
        assert_eq!((of(s).loss(120.0), of(s).loss(90.0)), (0.2, -0.1));
    }
}
