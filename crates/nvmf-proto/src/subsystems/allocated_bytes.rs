//! Allocated bytes of a namespace, written by an OS thread that may block.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Not reported by the medium.
const UNKNOWN: u64 = u64::MAX;

/// Allocated bytes of a namespace, as last read. Clones share the value.
#[derive(Clone)]
pub struct AllocatedBytes(Arc<AtomicU64>);

impl AllocatedBytes {
    /// A number of bytes; `None` if unknown.
    #[must_use]
    pub fn new(bytes: Option<u64>) -> Self {
        Self(Arc::new(AtomicU64::new(bytes.unwrap_or(UNKNOWN))))
    }

    /// The last value; `None` if unknown.
    #[must_use]
    pub fn get(&self) -> Option<u64> {
        Some(self.0.load(Relaxed)).filter(|&bytes| bytes != UNKNOWN)
    }

    /// Sets the value.
    pub fn set(&self, bytes: Option<u64>) {
        self.0.store(bytes.unwrap_or(UNKNOWN), Relaxed);
    }
}

impl fmt::Debug for AllocatedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}
