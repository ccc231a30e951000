//! Counters with one writer.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Adds to a counter that has one writer: a plain load and store, no locked instruction.
pub fn add(counter: &AtomicU64, value: u64) {
    counter.store(counter.load(Relaxed) + value, Relaxed);
}
