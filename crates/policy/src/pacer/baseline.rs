//! Latency without savings, to which losses are relative (PACER IV-C).
//!
//! It is frozen when savings begin: one that followed latency under savings, as printed, would let the loss grow without end. It is measured
//! again, with the savings off, after a while and for another load.

use super::load::Load;
use super::parameters::{Parameters, share};

/// It holds for at least so many times as long as it takes to measure it; chosen, so that measuring costs at most a twentieth of the savings.
const LEAST_TIMES: u64 = 20;

/// Latency without savings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Baseline {
    /// In nanoseconds.
    pub(super) ns: f64,
    /// Its standard error, in nanoseconds.
    pub(super) error_ns: f64,
    /// When it was measured.
    pub(super) at_ns: u64,
    /// Under which load, and for how long.
    pub(super) load: Load,
}

impl Baseline {
    /// The loss with this latency; negative if it is less.
    pub(super) fn loss(&self, ns: f64) -> f64 {
        (ns - self.ns) / self.ns.max(1.0)
    }

    /// How long it holds, in nanoseconds.
    pub(super) fn lasts_ns(&self, parameters: &Parameters) -> u64 {
        parameters.baseline_interval_ns.max(self.load.elapsed_ns.saturating_mul(LEAST_TIMES))
    }

    pub(super) fn is_old(&self, now_ns: u64, parameters: &Parameters) -> bool {
        now_ns.saturating_sub(self.at_ns) >= self.lasts_ns(parameters)
    }

    /// Whether it is for another load than this one.
    pub(super) fn is_of_other(&self, load: &Load, loss: f64, parameters: &Parameters) -> bool {
        self.load.differs(load, share(parameters.load_change_ppm), loss)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_measured_again_after_a_while_and_later_where_that_takes_long() {
        let parameters = Parameters::default();
        let of =
            |elapsed_ns| Baseline { ns: 100.0, error_ns: 0.0, at_ns: 7, load: Load { elapsed_ns, ..Load::default() } };
        let s = 1_000_000_000;
        assert!(!of(5 * s).is_old(300 * s, &parameters) && of(5 * s).is_old(300 * s + 7, &parameters));
        assert!(!of(150 * s).is_old(3_000 * s, &parameters) && of(150 * s).is_old(3_000 * s + 7, &parameters));
        assert_eq!((of(s).loss(120.0), of(s).loss(90.0)), (0.2, -0.1));
    }
}
