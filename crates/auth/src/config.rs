//! The configuration of one side of an exchange: names, secrets, policy and the counter of sequence numbers.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::group::Group;
use crate::hash::HashFunction;
use crate::secret::Secret;

/// Configuration of one pair of host and subsystem. Shared; a change makes another one.
#[derive(Clone, Debug)]
pub struct Config {
    /// NQN of the host.
    pub hostnqn: String,
    /// NQN of the subsystem.
    pub subnqn: String,
    /// The host's secret, with which the host is authenticated.
    pub host_secret: Secret,
    /// The controller's secret, with which the controller is authenticated; none for one-way authentication only.
    pub controller_secret: Option<Secret>,
    /// What this side allows.
    pub policy: Policy,
    /// Counter of this process.
    pub sequence: Arc<SequenceNumbers>,
}

/// What one side allows. The lists are a floor against downgrades: the specification authenticates the selected values, but not
/// the lists of AUTH_Negotiate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Allowed hash functions; the controller selects the first that the host offers.
    pub hashes: Vec<HashFunction>,
    /// Allowed groups; the controller selects the first that the host offers.
    pub groups: Vec<Group>,
    /// Whether a controller refuses hosts that do not authenticate it.
    pub require_bidirectional: bool,
}

impl Default for Policy {
    /// All hash functions and all groups except [`Group::Null`], the cheapest first, one way or both ways.
    fn default() -> Self {
        Self { hashes: HashFunction::ALL.to_vec(), groups: Group::ALL[1..].to_vec(), require_bidirectional: false }
    }
}

/// The sequence numbers of a process: a random start, then increasing, never 0 (Base 8.3.5.5.3).
#[derive(Debug)]
pub struct SequenceNumbers(AtomicU32);

impl SequenceNumbers {
    /// Begins at `start`, which the caller draws at random.
    #[must_use]
    pub const fn new(start: u32) -> Self {
        Self(AtomicU32::new(start))
    }

    pub(crate) fn next(&self) -> NonZeroU32 {
        loop {
            if let Some(number) = NonZeroU32::new(self.0.fetch_add(1, Ordering::Relaxed)) {
                return number;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_skip_zero() {
        let numbers = SequenceNumbers::new(u32::MAX - 1);
        let next: Vec<u32> = (0..4).map(|_| numbers.next().get()).collect();
        assert_eq!(next, [u32::MAX - 1, u32::MAX, 1, 2]);
    }
}
