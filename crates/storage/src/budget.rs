//! A memory budget shared by namespaces in memory and the state of queues (`--max-memory`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A shared budget of bytes.
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

    /// A budget without a limit.
    pub fn unlimited() -> Self {
        Self::new(u64::MAX)
    }

    /// The limit in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes `bytes`. Returns `false` and takes nothing if that would exceed the limit.
    #[must_use]
    pub fn try_take(&self, bytes: u64) -> bool {
        let more = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= self.limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Takes `bytes` until the charge is dropped. `None` if that would exceed the limit.
    pub(crate) fn charge(self: &Arc<Self>, bytes: u64) -> Option<Charge> {
        self.try_take(bytes).then(|| Charge { budget: Arc::clone(self), bytes })
    }

    /// Returns `bytes` taken before.
    pub fn release(&self, bytes: u64) {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "more bytes released than taken");
    }
}

/// Bytes of a budget, returned when dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<MemoryBudget>,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_up_to_the_limit() {
        let budget = MemoryBudget::new(10);
        assert!(budget.try_take(7));
        assert!(!budget.try_take(4));
        assert_eq!(budget.used(), 7);
        assert!(budget.try_take(3));
        budget.release(10);
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
