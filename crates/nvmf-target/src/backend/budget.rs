//! A bound on memory that many take from: the blocks of namespaces in memory, the state of queues (`--max-memory`).

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that may be taken, shared by all who take them.
#[derive(Debug)]
pub struct MemoryBudget {
    limit: u64,
    used: AtomicU64,
}

impl MemoryBudget {
    /// A budget of `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self { limit, used: AtomicU64::new(0) }
    }

    /// A budget that is never exceeded.
    pub fn unlimited() -> Self {
        Self::new(u64::MAX)
    }

    /// Bytes that may be taken in all.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes taken now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes `bytes`, or nothing and returns `false` if that would exceed the limit.
    #[must_use]
    pub fn try_take(&self, bytes: u64) -> bool {
        let more = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= self.limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Gives back `bytes` that were taken.
    pub fn give_back(&self, bytes: u64) {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "more given back than taken");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_up_to_the_limit_and_no_more() {
        let budget = MemoryBudget::new(10);
        assert!(budget.try_take(7));
        assert!(!budget.try_take(4));
        assert_eq!(budget.used(), 7);
        assert!(budget.try_take(3));
        budget.give_back(10);
        assert_eq!((budget.used(), budget.limit()), (0, 10));
    }

    #[test]
    fn does_not_overflow() {
        let budget = MemoryBudget::unlimited();
        assert!(budget.try_take(u64::MAX));
        assert!(!budget.try_take(1));
        assert!(!budget.try_take(u64::MAX));
    }
}
