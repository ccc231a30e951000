//! A change whose effect on bandwidth decides what follows (PASS, Algorithm 1): five samples before it, five after it.

use super::ssd_model::Rate;

/// What was changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Change {
    /// The CPU was cut: unless bandwidth worth more than `expected_uw` was lost, it stays so.
    Cut {
        /// Power that the cut is expected to save, in microwatts.
        expected_uw: f64,
        /// Where the CPU was before.
        cpu_before_uw: u64,
    },
    /// Caps on bandwidth were raised: what is not used goes to the CPU.
    Raise {
        /// Power that they and the CPU can use, in microwatts.
        expected_uw: f64,
    },
}

/// A change under watch.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    change: Change,
    /// Samples from then on are about the change.
    from_ns: u64,
    samples: usize,
    /// What was used before, and the power of all but the drives.
    rates: Vec<Rate>,
    other_uw: f64,
}

impl Trial {
    pub(super) fn new(change: Change, from_ns: u64, rates: Vec<Rate>, other_uw: f64) -> Self {
        Self { change, from_ns, samples: 0, rates, other_uw }
    }

    /// Counts a sample; whether all are there.
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
