//! Refused connections and Connect commands, counted by reason. There are few reasons, each a metric series.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pilotlight_nvmf_proto::refusal_reason::RefusalReason;

/// Counters of refusals.
#[derive(Debug, Default)]
pub struct Refusals([AtomicU64; RefusalReason::ALL.len()]);

impl Refusals {
    /// Counts a refusal.
    pub(crate) fn note(&self, reason: RefusalReason) {
        self.0[reason as usize].fetch_add(1, Relaxed);
    }

    /// The counters by reason.
    #[must_use]
    pub fn counts(&self) -> [(RefusalReason, u64); RefusalReason::ALL.len()] {
        RefusalReason::ALL.map(|reason| (reason, self.0[reason as usize].load(Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_counter() {
        let refusals = Refusals::default();
        for (at, reason) in RefusalReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, at);
            (0..=at).for_each(|_| refusals.note(reason));
        }
        assert!((1..).zip(refusals.counts()).all(|(expected, (_, count))| count == expected));
    }
}
