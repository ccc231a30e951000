//! A change whose effect on bandwidth decides what follows (PASS, Algorithm 1): five samples before it, five after it.

use super::ssd_model::Rate;

/// The change on trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Change {
    /// The CPU was cut; the cut stays unless bandwidth worth more than `expected_uw` was lost.
    Cut {
        /// Power that the cut is expected to save, in microwatts.
        expected_uw: f64,
        /// The CPU's level before.
        cpu_before_uw: u64,
    },
    /// The CPU was cut for drives, within the budget; it is restored if more was lost than `expected_uw`.
    Rebalance {
        /// Power that the cut is expected to save, in microwatts.
        expected_uw: f64,
        /// The CPU's level before.
        cpu_before_uw: u64,
    },
    /// Bandwidth caps were raised; power that the drives do not use goes to the CPU.
    Raise {
        /// Additional power for drives and CPU, in microwatts.
        expected_uw: f64,
    },
}

/// A trial in progress.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    change: Change,
    /// Start of the samples after the change.
    from_ns: u64,
    samples: usize,
    /// Rates before the change, and the power of everything but the drives.
    rates: Vec<Rate>,
    other_uw: f64,
}

impl Trial {
    pub(super) fn new(change: Change, from_ns: u64, rates: Vec<Rate>, other_uw: f64) -> Self {
        Self { change, from_ns, samples: 0, rates, other_uw }
    }

    /// Counts a sample; whether the trial is complete.
    pub(super) fn is_over(&mut self, now_ns: u64, many: usize) -> bool {
        self.samples += usize::from(now_ns >= self.from_ns);
        self.samples >= many
    }

    pub(super) fn change(&self) -> Change {
        self.change
    }

    pub(super) fn other_uw(&self) -> f64 {
        self.other_uw
    }

    pub(super) fn rates(&self) -> &[Rate] {
        &self.rates
    }
}
