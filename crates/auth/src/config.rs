//! The configuration of one side of an exchange: names, secrets, policy and the counter of sequence numbers.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::group::Group;
use crate::hash::HashFunction;
use crate::secret::Secret;
use crate::tls::PskHash;

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
    /// What a host requests, and which requests a controller accepts.
    pub concatenation: Concatenation,
}

/// Secure channel concatenation: whether an exchange generates a pre-shared key for TLS (SC_C, Base 8.3.5.5.2). It takes a group, and SHA-256
/// or SHA-384.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Concatenation {
    /// No. A controller refuses requests.
    #[default]
    None = 0,
    /// A key for a TLS connection that follows (NEWTLSPSK). A controller refuses exchanges without it.
    New = 2,
    /// A key that replaces that of the TLS connection in use (REPLACETLSPSK). A controller also takes exchanges without it.
    Replace = 3,
}

impl Concatenation {
    /// What a host gets that requests `sc_c`.
    pub(crate) fn accept(self, sc_c: u8) -> Option<Self> {
        let allowed: &[Self] = match self {
            Self::None => &[Self::None],
            Self::New => &[Self::New],
            Self::Replace => &[Self::None, Self::Replace],
        };
        allowed.iter().copied().find(|one| *one as u8 == sc_c)
    }

    /// Whether an exchange with this hash function can have it.
    #[must_use]
    pub fn takes_hash(self, hash: HashFunction) -> bool {
        self == Self::None || PskHash::of(hash).is_some()
    }

    /// Whether an exchange with this group can have it: without a group there is no secret beside the host's.
    #[must_use]
    pub fn takes_group(self, group: Group) -> bool {
        self == Self::None || group != Group::Null
    }
}

impl Default for Policy {
    /// All hash functions, and the groups of 2048 to 4096 bits, the cheapest first, one way or both ways. A peer that has not authenticated
    /// selects the group, and a power in a larger one takes a multiple of the time.
    fn default() -> Self {
        Self {
            hashes: HashFunction::ALL.to_vec(),
            groups: vec![Group::Ffdhe2048, Group::Ffdhe3072, Group::Ffdhe4096],
            require_bidirectional: false,
            concatenation: Concatenation::None,
        }
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
    fn by_default_no_stranger_selects_a_group_above_4096_bits() {
        let groups = Policy::default().groups;
        assert!(groups.iter().all(|group| (256..=512).contains(&group.value_len())), "{groups:?}");
    }

    #[test]
    fn sequence_numbers_skip_zero() {
        let numbers = SequenceNumbers::new(u32::MAX - 1);
        let next: Vec<u32> = (0..4).map(|_| numbers.next().get()).collect();
        assert_eq!(next, [u32::MAX - 1, u32::MAX, 1, 2]);
    }
}
