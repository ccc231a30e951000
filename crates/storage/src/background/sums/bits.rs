//! A concurrent set of ranges, one bit each.

use std::sync::atomic::{AtomicU64, Ordering};

/// The set.
#[derive(Debug)]
pub struct Bits {
    words: Box<[AtomicU64]>,
    count: AtomicU64,
}

impl Bits {
    /// An empty set of ranges below `ranges`.
    #[must_use]
    pub fn new(ranges: u64) -> Self {
        let words = (0..ranges.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { words, count: AtomicU64::new(0) }
    }

    /// Adds a range.
    pub fn add(&self, range: u64) {
        let bit = 1 << (range % 64);
        if self.words[(range / 64) as usize].fetch_or(bit, Ordering::SeqCst) & bit == 0 {
            self.count.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Removes a range. Returns whether it was in the set.
    pub fn take(&self, range: u64) -> bool {
        let bit = 1 << (range % 64);
        let was = self.words[(range / 64) as usize].fetch_and(!bit, Ordering::SeqCst) & bit != 0;
        if was {
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
        was
    }

    /// Number of ranges.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first range at or after `from`, searched in at most `words` words.
    ///
    /// # Errors
    /// Where to continue the search; `None` at the end.
    pub fn next(&self, from: u64, words: usize) -> Result<u64, Option<u64>> {
        let first = (from / 64) as usize;
        for at in first..self.words.len().min(first + words) {
            let below = if at == first { (1 << (from % 64)) - 1 } else { 0 };
            let word = self.words[at].load(Ordering::Relaxed) & !below;
            if word != 0 {
                return Ok(at as u64 * 64 + u64::from(word.trailing_zeros()));
            }
        }
        let next = first + words;
        Err((next < self.words.len()).then_some(next as u64 * 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_finds_every_range_once() {
        let bits = Bits::new(300);
        for range in [0, 63, 64, 299, 63] {
            bits.add(range);
        }
        assert_eq!(bits.len(), 4);
        let (mut found, mut from) = (Vec::new(), 0);
        loop {
            match bits.next(from, 2) {
                Ok(range) => {
                    found.push(range);
                    from = range + 1;
                }
                Err(Some(next)) => from = next,
                Err(None) => break,
            }
        }
        assert_eq!(found, [0, 63, 64, 299]);
        assert!(bits.take(63) && !bits.take(63));
        assert_eq!(bits.next(0, 1), Ok(0));
        assert_eq!(bits.next(1, 1), Err(Some(64)));
    }
}
